"""GPUs through a made-up driver: late, lost, partly silent; who holds the memory and when it counts as free."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent.runtime import gpu as gpu_module
from agent.runtime.gpu import Gpus
from agent.runtime.memory import wait_free
from tests.agent.runtime.fake_nvml import GIB, A, B, FakeNvml


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.setattr(gpu_module, "RETRY_SECONDS", 0.0)
    return FakeNvml()


def test_inventory_names_and_numbers(nvml: FakeNvml) -> None:
    gpus = Gpus(nvml)
    first = gpus.inventory()[0]
    assert (first.index, first.uuid, first.name, first.memory_total_bytes) == (0, A, "Fake", 24 * GIB)
    assert gpus.resolve([1, "0", "GPU-bb", "GPU-", "GPU-zz", 7]) == (B, A, B, "GPU-", "GPU-zz", "7")
    assert gpus.used([0]) == {A: GIB}
    assert gpus.reason == ""
    assert (first.utilisation_percent, first.temperature_c, first.power_watts) == (None, 41, 120)
    nvml.use, nvml.running[B] = 97, [(11, GIB), (12, None)]
    second = gpus.inventory()[1]
    assert (second.utilisation_percent, [(p.pid, p.memory_bytes) for p in second.processes]) == (
        97,
        [(11, GIB), (12, 0)],
    )
    assert gpus.utilisation([0, B]) == [97, 97]


def test_a_lost_card_does_not_hide_the_others(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(nvml)
    assert gpus.inventory()
    nvml.gone, nvml.running[B] = {A}, [(11, GIB)]
    lost, well = gpus.inventory()
    assert (lost.uuid, lost.name, lost.memory_total_bytes, lost.utilisation_percent) == (A, "Fake", 0, None)
    assert lost.problem
    assert not well.problem
    assert "has to be reset" in gpus.missing([0])
    assert gpus.missing([1]) == ""
    assert gpus.used([A, B]) == {B: 2 * GIB}, "unknown is not zero"
    assert [p.pid for p in gpus.processes([A, B])] == [11]
    assert gpus.utilisation([A]) == []
    assert nvml.inits == 1
    monkeypatch.setattr(gpu_module, "LOST_SECONDS", 0.0)  # a reset card is seen by a driver that was started anew
    gpus.inventory()
    nvml.gone = set()
    assert not gpus.inventory()[0].problem
    assert nvml.inits == 2
    assert gpus.missing([0]) == ""


@pytest.mark.parametrize(
    ("code", "words"),
    [(4, "/dev/nvidia"), (8, "power cables"), (16, "has to be reset"), (11, "error 11"), (999, "error 999")],
)
def test_whatever_a_card_cannot_be_asked_for_the_others_are_seen(nvml: FakeNvml, code: int, words: str) -> None:
    gpus = Gpus(nvml)
    assert gpus.inventory()
    nvml.gone, nvml.gone_how, nvml.running[B], nvml.use = {A}, code, [(11, GIB)], 5
    lost, well = gpus.inventory()
    assert (lost.uuid, bool(lost.problem), well.problem, gpus.reason) == (A, True, "", "")
    assert words in gpus.missing([A])
    assert gpus.used([A, B]) == {B: 2 * GIB}
    assert [p.pid for p in gpus.processes([A, B])] == [11]
    assert gpus.utilisation([A, B]) == [5]
    assert nvml.inits == 1, "the driver is well"


def test_a_mig_device_is_a_gpu_by_its_uuid(nvml: FakeNvml) -> None:
    gpus = Gpus(nvml)
    nvml.parts = {B: {"MIG-one": GIB, "MIG-two": 3 * GIB}}
    nvml.running["MIG-two"] = [(7, 2 * GIB)]
    assert [g.uuid for g in gpus.inventory()] == [A, B]
    assert gpus.missing(["MIG-one", "MIG-two", A]) == ""
    assert "GPU MIG-three cannot be seen" in gpus.missing(["MIG-three"])
    assert gpus.used(["MIG-two", A]) == {"MIG-two": 3 * GIB, A: GIB}
    assert [(p.gpu, p.pid, p.memory_bytes) for p in gpus.processes(["MIG-one", "MIG-two"])] == [("MIG-two", 7, 2 * GIB)]
    assert gpus.processes(["MIG-one"]) == []
    nvml.gone = {B}
    assert "cannot be seen" in gpus.missing(["MIG-one"])
    assert gpus.used(["MIG-one"]) == {}


@pytest.mark.parametrize("code", [1, 9, 18])
def test_an_error_of_the_driver_is_no_cards(nvml: FakeNvml, code: int) -> None:
    gpus = Gpus(nvml)
    nvml.gone, nvml.gone_how = {A}, code
    assert gpus.inventory() == ()
    assert str(code) in gpus.reason
    nvml.gone = set()
    assert len(gpus.inventory()) == 2
    assert nvml.inits == 2


def test_memory_that_cannot_be_read_is_unknown_not_zero(nvml: FakeNvml) -> None:
    nvml.silent = True
    gpus = Gpus(nvml)
    assert gpus.inventory()[0].memory_total_bytes == 0
    assert gpus.used([0]) == {}
    assert asyncio.run(wait_free(gpus, [0], {A: 0})) == ""


def test_no_library_is_no_gpus_and_no_complaint(nvml: FakeNvml) -> None:
    nvml.error = 12
    gpus = Gpus(nvml)
    assert gpus.inventory() == ()
    assert gpus.absent
    assert "12" in gpus.reason
    assert gpus.missing([0]) == "", "perhaps another make of GPU"
    assert gpus.processes([0]) == []


def test_driver_that_comes_up_later_is_noticed(nvml: FakeNvml) -> None:
    nvml.error = 9
    gpus = Gpus(nvml)
    assert gpus.inventory() == ()
    assert "no GPU can be seen" in gpus.missing([A])
    nvml.error = 0
    assert len(gpus.inventory()) == 2
    assert gpus.missing([A, 1]) == ""
    assert "GPU-zz cannot be seen" in gpus.missing([A, "GPU-zz"])


def test_a_failed_start_is_not_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    nvml.error = 9
    gpus = Gpus(nvml)
    for _ in range(5):
        gpus.inventory()
    assert nvml.inits == 1


def test_lost_gpu_is_no_error_and_the_driver_is_started_anew(nvml: FakeNvml) -> None:
    gpus = Gpus(nvml)
    assert gpus.inventory()
    nvml.lost = 15
    assert gpus.inventory() == ()
    assert gpus.processes([A]) == []
    nvml.lost = 0
    assert gpus.inventory()
    assert nvml.inits >= 2


def pauses(nvml: FakeNvml, free_after: int | None, before: dict[str, int]) -> tuple[list[float], str]:
    """The waits until memory counts as free; it becomes so after that many of them."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        if free_after is not None and len(waited) >= free_after:
            nvml.running[A] = []
            nvml.used[A] = GIB

    return waited, asyncio.run(wait_free(Gpus(nvml), [0], before, sleep))


def test_free_at_once_waits_not_at_all(nvml: FakeNvml) -> None:
    assert pauses(nvml, None, {}) == ([], "")


def test_waits_50_ms_for_a_second_then_250_ms_for_ten(nvml: FakeNvml) -> None:
    nvml.running[A] = [(4711, 3 * GIB), (4712, None)]
    waited, held = pauses(nvml, None, {})
    assert waited[:20] == [0.05] * 20
    assert set(waited[20:]) == {0.25}
    assert sum(waited) == pytest.approx(10.0)
    assert "process 4711 (3.0 GiB)" in held
    assert "4712" in held


def test_memory_beyond_what_was_used_before_the_start_is_waited_for(nvml: FakeNvml) -> None:
    nvml.used[A] = 9 * GIB
    assert pauses(nvml, 3, {A: GIB}) == ([0.05] * 3, "")
    nvml.used[A] = 9 * GIB
    assert "8.0 GiB more" in pauses(nvml, None, {A: GIB})[1]
    nvml.used[A] = 9 * GIB
    assert pauses(nvml, None, {A: 9 * GIB})[1] == "", "it was so before"


def test_a_channel_without_gpus_never_waits(nvml: FakeNvml) -> None:
    assert asyncio.run(wait_free(Gpus(nvml), [], {})) == ""
    assert nvml.inits == 0


def test_a_desktop_is_no_compute_process(nvml: FakeNvml) -> None:
    """Neither somebody who holds the GPU, nor memory that is waited for, however it grows while an engine runs."""
    nvml.drawing[A] = [(900, GIB), (901, None)]
    gpus = Gpus(nvml)
    assert gpus.processes([A]) == []
    assert gpus.used([A]) == {A: 0}
    nvml.drawing[A], nvml.used[A] = [(900, 3 * GIB)], 3 * GIB
    assert pauses(nvml, None, gpus.used([A])) == ([], "")
    nvml.running[A], nvml.used[A] = [(900, 3 * GIB)], 4 * GIB
    assert gpus.used([A]) == {A: 4 * GIB}, "what computes as well counts, once"
    assert [p.pid for p in gpus.processes([A])] == [900]


def test_a_driver_that_hangs_costs_one_thread(nvml: FakeNvml) -> None:
    """However often it is asked; afterwards everything is answered again."""
    gpus, goes_on = Gpus(nvml), threading.Event()
    count = nvml.nvmlDeviceGetCount

    def hangs() -> int:
        goes_on.wait(10)
        return count()

    async def story() -> None:
        nvml.nvmlDeviceGetCount = hangs  # type: ignore[method-assign]
        before = set(threading.enumerate())
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await gpus.aside(gpus.inventory)
        assert len(set(threading.enumerate()) - before) == 1
        goes_on.set()
        assert len(await gpus.aside(gpus.inventory)) == 2

    asyncio.run(story())
