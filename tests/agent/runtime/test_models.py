"""Model discovery: split sets, projectors, partial downloads, links in circles, changes, Hugging Face folders."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agent.runtime import models as models_room
from agent.runtime.disks import rotates
from agent.runtime.models import FoundModel, ModelIndex
from agent.settings import ChannelConfig

HEAD = b"GGUF\x03\0\0\0"


@pytest.fixture(autouse=True)
def still_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_room, "rotates", lambda _: False)


def put(path: Path, size: int = 100, head: bytes = HEAD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((head + b"\0" * size)[:size])
    return path


def index(*folders: Path, **more: list[Path]) -> ModelIndex:
    channels = {"main": list(folders), **more}
    found = ModelIndex([ChannelConfig(name=n, model_folders=f, engines=["llama.cpp"]) for n, f in channels.items()])
    found.scan()
    return found


def by_name(found: ModelIndex) -> dict[str, FoundModel]:
    return {m.name: m for m in found.models()}


def test_what_is_a_model_and_what_is_not(tmp_path: Path) -> None:
    put(tmp_path / "Qwen3-8B-Q4_K_M.gguf", 1000)
    put(tmp_path / "deep" / "er" / "small model.GGUF", 50)
    for name in ("mmproj-F16.gguf", "MMPROJ-x.gguf", "a.gguf.part", "b.gguf.tmp", "c.gguf.incomplete", "readme.md"):
        put(tmp_path / name)
    put(tmp_path / ".hidden" / "x.gguf")
    put(tmp_path / ".y.gguf")
    models = by_name(index(tmp_path))
    assert sorted(models) == ["Qwen3-8B-Q4_K_M", "small model"]
    big = models["Qwen3-8B-Q4_K_M"]
    projector = str(tmp_path / "mmproj-F16.gguf")
    assert big == FoundModel(
        big.name, str(tmp_path / f"{big.name}.gguf"), 1000, "gguf", False, "", ("main",), projector
    )


@pytest.mark.parametrize(
    ("files", "pairs"),
    [
        ("a.gguf mmproj-BF16.gguf mmproj-F16.gguf mmproj-F32.gguf", {"a": "mmproj-F16.gguf"}),
        ("a-Q4_K_M.gguf a-UD-IQ2_XXS.gguf mmproj.gguf", {"a-Q4_K_M": "mmproj.gguf", "a-UD-IQ2_XXS": "mmproj.gguf"}),
        ("a-Q4_0.gguf b-Q4_0.gguf mmproj-F16.gguf", {"a-Q4_0": "", "b-Q4_0": ""}),
        ("a-Q4_0.gguf b-Q4_0.gguf mmproj-B-f16.gguf", {"a-Q4_0": "", "b-Q4_0": "mmproj-B-f16.gguf"}),
        ("a-Q4_0-00001-of-00002.gguf a-Q4_0-00002-of-00002.gguf mmproj-a-bf16.gguf", {"a-Q4_0": "mmproj-a-bf16.gguf"}),
        ("a.gguf", {"a": ""}),
    ],
)  # fmt: skip
def test_projectors_belong_to_a_model_of_their_folder(tmp_path: Path, files: str, pairs: dict[str, str]) -> None:
    for name in files.split():
        put(tmp_path / "here" / name)
    put(tmp_path / "elsewhere" / "mmproj-F16.gguf")
    assert {n: Path(m.projector).name for n, m in by_name(index(tmp_path)).items()} == pairs


def test_a_cache_with_several_revisions_gives_the_one_that_main_names(tmp_path: Path) -> None:
    root = tmp_path / "models--org--net"
    for revision in ("aaa", "bbb", "ccc"):
        put(root / "snapshots" / revision / "model.safetensors", 10)
        (root / "snapshots" / revision / "config.json").write_text("{}")
    put(root / "blobs" / "1234.incomplete")
    assert by_name(index(tmp_path))["org/net"].path.endswith("aaa")
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("bbb")
    assert by_name(index(tmp_path))["org/net"].path.endswith("bbb")


def test_numbered_parts_without_an_index_are_missed_too(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    put(folder / "model-00001-of-00003.safetensors", 10)
    (folder / "config.json").write_text("{}")
    found = by_name(index(tmp_path))["net"]
    assert found.incomplete
    assert found.detail == "model-00002-of-00003.safetensors and 1 more are missing"


def test_split_set_is_one_model_given_by_its_first_part(tmp_path: Path) -> None:
    for n in (3, 1, 2):
        put(tmp_path / f"big-0000{n}-of-00003.gguf", n * 100)
    put(tmp_path / "big-00001-of-00002.txt")
    models = by_name(index(tmp_path))
    assert list(models) == ["big"]
    assert models["big"].path.endswith("big-00001-of-00003.gguf")
    assert models["big"].size_bytes == 600
    assert not models["big"].incomplete


@pytest.mark.parametrize(
    ("there", "words"), [((1, 3), "part 2 of 3"), ((2, 3), "part 1 of 3"), ((1,), "part 2, 3 of 3")]
)
def test_missing_part_is_incomplete_and_says_which(tmp_path: Path, there: tuple[int, ...], words: str) -> None:
    for n in there:
        put(tmp_path / f"big-0000{n}-of-00003.gguf")
    model = by_name(index(tmp_path))["big"]
    assert model.incomplete
    assert model.detail == f"{words} is missing"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "m.gguf is empty"), (b"<html>404</html>", "is not a GGUF file"), (b"GG", "is not a GGUF file")],
)
def test_files_that_cannot_be_models_are_listed_and_say_why(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    model = by_name(index(tmp_path))["m"]
    assert model.incomplete
    assert words in model.detail


def test_cut_short_and_simulated_files_are_for_the_engine_to_judge(tmp_path: Path) -> None:
    put(tmp_path / "short.gguf", 8)
    (tmp_path / "sim.gguf").write_text("simulated model\n")
    assert [m.incomplete for m in index(tmp_path).models()] == [False, False]


def test_links_are_followed_without_going_round(tmp_path: Path) -> None:
    store = tmp_path / "store"
    put(store / "m.gguf", 10)
    root = tmp_path / "root"
    root.mkdir()
    (root / "again").symlink_to(root)
    (root / "up").symlink_to(tmp_path)
    (root / "one").symlink_to(store)
    (root / "two").symlink_to(store)
    (root / "linked.gguf").symlink_to(store / "m.gguf")
    (root / "broken.gguf").symlink_to(tmp_path / "nowhere")
    (root / "self.gguf").symlink_to(root / "self.gguf")
    models = by_name(index(root))
    assert sorted(models) == ["linked", "m"]
    assert models["linked"].size_bytes == 10


def test_of_two_with_one_name_the_first_folder_wins_in_each_channel(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    put(a / "same.gguf", 10)
    put(b / "same.gguf", 20)
    put(b / "only-b.gguf", 30)
    found = index(a, b, other=[b, a])
    assert found.find("same", "main").size_bytes == 10
    assert found.find("same", "other").size_bytes == 20
    assert found.find("same", "nobody") is None
    assert by_name(found)["same"].channels == ("main", "other")
    assert by_name(found)["same"].path == str(a / "same.gguf")
    assert len(found.models()) == 2


def test_changes_are_noticed_and_nothing_else(tmp_path: Path) -> None:
    found = index(tmp_path)
    assert found.models() == ()
    assert not found.scan()
    part = put(tmp_path / "m.gguf.part", 10)
    assert not found.scan()
    part.rename(tmp_path / "m.gguf")
    assert found.scan()
    assert not found.scan()
    put(tmp_path / "m.gguf", 20)
    assert found.scan()
    put(tmp_path / "m.gguf", 20, b"nonsense")
    os.utime(tmp_path / "m.gguf", (1, 1))
    assert found.scan(), "same name and size, other content"
    assert found.models()[0].incomplete
    (tmp_path / "m.gguf").unlink()
    found.refresh()
    assert found.find("m", "main") is None
    assert found.scan(), "also where somebody else has looked before"
    assert not found.scan()
    assert found.models() == ()


def test_folder_that_is_not_there_is_told_and_the_others_count(tmp_path: Path) -> None:
    put(tmp_path / "m.gguf")
    found = index(tmp_path / "gone", tmp_path)
    assert list(by_name(found)) == ["m"]
    assert found.unreadable == (f"{tmp_path / 'gone'}: No such file or directory",)


def test_names_that_nobody_can_say_are_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad\xff.gguf")).write_bytes(HEAD)
    put(tmp_path / "gut-gemacht-ß-模型.gguf")
    found = index(tmp_path)
    assert list(by_name(found)) == ["gut-gemacht-ß-模型"]
    assert "not UTF-8" in found.unreadable[0]
    found.unreadable[0].encode()


def test_a_link_far_up_does_not_send_us_over_the_whole_disk(tmp_path: Path) -> None:
    deep = tmp_path / "other"
    put(deep.joinpath(*(["d"] * 15)) / "far.gguf")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "link").symlink_to(deep)
    assert index(tmp_path / "models").models() == ()


def test_hugging_face_folders(tmp_path: Path) -> None:
    model = tmp_path / "tiny-hf"
    put(model / "config.json", 10)
    put(model / "model-00001-of-00002.safetensors", 100)
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    put(tmp_path / "no-weights" / "config.json")
    snapshot = tmp_path / "models--org--Name-1B" / "snapshots" / "0123abcd"
    put(snapshot / "config.json")
    put(snapshot / "model.safetensors", 70)
    found = index(tmp_path)
    models = by_name(found)
    assert sorted(models) == ["org/Name-1B", "tiny-hf"]
    assert (models["org/Name-1B"].path, models["org/Name-1B"].size_bytes) == (str(snapshot), 70)
    assert models["tiny-hf"].format == "safetensors"
    assert models["tiny-hf"].detail == "model-00002-of-00002.safetensors is missing"
    put(model / "model-00002-of-00002.safetensors", 100)
    assert found.scan()
    assert by_name(found)["tiny-hf"].incomplete is False
    (model / "model.safetensors.index.json").write_text("[1")
    assert found.scan() is False, "an index that cannot be read says nothing"


def test_files_that_are_as_they_were_are_not_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(600):
        put(tmp_path / str(n % 50) / f"m{n}.gguf", 8)
    found = index(tmp_path)
    assert len(found.models()) == 600
    monkeypatch.setattr(models_room, "_check_head", lambda path: pytest.fail(f"{path} was opened again"))
    assert not found.scan()


def disk(folder: Path, name: str, flag: str) -> Path:
    """As /sys shows a disk with one partition."""
    path = folder / "devices" / name
    (path / "queue").mkdir(parents=True)
    (path / "queue" / "rotational").write_text(flag)
    (path / f"{path.name}1").mkdir()
    (path / f"{path.name}1" / "partition").write_text("1\n")
    return path


def test_a_disk_that_rotates_is_known_by_its_block_device(tmp_path: Path) -> None:
    block = tmp_path / "block"
    block.mkdir()
    turning, still = disk(tmp_path, "sda", "1\n"), disk(tmp_path, "nvme0n1", "0\n")
    virtual = disk(tmp_path, "virtio1/block/vda", "1\n")
    array = tmp_path / "devices" / "dm-0"
    (array / "slaves").mkdir(parents=True)
    (array / "slaves" / "sda1").symlink_to(turning / "sda1")
    cases = [(turning / "sda1", True), (turning, True), (still, False), (still / "nvme0n11", False), (array, True)]
    for number, (place, expected) in enumerate([*cases, (virtual, False)], 1):
        (block / f"8:{number}").symlink_to(place)
        assert rotates(os.makedev(8, number), block) is expected, place
    assert not rotates(os.makedev(0, 57), block), "a network disk"


def test_a_model_on_such_a_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a.gguf")
    found = index(tmp_path)
    assert not by_name(found)["a"].rotating_disk
    monkeypatch.setattr(models_room, "rotates", lambda _: True)
    assert found.scan(), "that is news"
    assert by_name(found)["a"].rotating_disk
