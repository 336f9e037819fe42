"""The model of a body: found in every form, in any number of pieces, and rewritten without touching another byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gateway.body import Found, ModelScanner, find_model, find_model_multipart, rewrite, rewrite_multipart
from agent.gateway.errors import Refusal

names = st.text(min_size=1, max_size=20).filter(lambda s: "\ud800" not in s) | st.sampled_from(["a/b c:d", 'q"\\', "ü"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=10,
)
contents = st.dictionaries(st.text(max_size=8).filter(lambda k: k != "model"), values, max_size=4)


@given(contents, names, st.integers(0, 4), st.booleans(), st.sampled_from([None, 1]))
def test_found_and_rewritten(content: dict, model: str, place: int, escaped: bool, indent: int | None) -> None:
    items = list(content.items())
    items.insert(min(place, len(items)), ("model", model))
    body = json.dumps(dict(items), ensure_ascii=escaped, indent=indent).encode("utf-8", "surrogatepass")
    try:
        found = find_model(body)
    except Refusal:
        assert any("\ud800" <= c <= "\udfff" for c in model + json.dumps(content, ensure_ascii=False))
        return
    assert found.model == model
    assert json.loads(body[found.start : found.end]) == model
    changed = rewrite(found, "new/name", body)
    assert json.loads(changed) == {**dict(items), "model": "new/name"}
    assert changed[: found.start] == body[: found.start]
    assert changed.endswith(body[found.end :])


@given(contents)
def test_put_in_where_there_is_none(content: dict) -> None:
    body = b" " + json.dumps(content).encode()
    found = find_model(body)
    assert found == Found(None)
    assert json.loads(rewrite(found, "m", body)) == {**content, "model": "m"}


@given(contents, names, st.lists(st.integers(1, 7), min_size=1), st.integers(0, 4))
def test_scanner_in_pieces_finds_the_same(content: dict, model: str, sizes: list[int], place: int) -> None:
    items = list(content.items())
    items.insert(min(place, len(items)), ("model", model))
    body = json.dumps(dict(items)).encode()
    scanner, data, step, at = ModelScanner(), bytearray(), 0, 0
    found = None
    while found is None:
        size = sizes[step % len(sizes)]
        data += body[at : at + size]
        at, step = at + size, step + 1
        found = scanner.scan(data, at >= len(body))
    assert found.model == model
    assert json.loads(body[found.start : found.end]) == model


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\model 1', max_size=40).map(str.encode))
def test_any_bytes_are_an_answer_or_a_refusal(data: bytes) -> None:
    for look in (lambda: find_model(data), lambda: ModelScanner().scan(data, True)):
        try:
            found = look()
        except Refusal:
            continue
        assert found is None or isinstance(found, Found)


def test_a_string_of_many_megabytes_is_gone_over_once() -> None:
    scanner, data = ModelScanner(), bytearray(b'{"image": "')
    for _ in range(200):
        data += b"A" * 65_536
        assert scanner.scan(data, False) is None
        assert scanner._pos == len(data)
    data += b'", "model": "m"}'
    found = scanner.scan(data, True)
    assert found
    assert found.model == "m"


FORM = (
    b'--xx\r\nContent-Disposition: form-data; name="file"; filename="model"\r\nContent-Type: audio/wav\r\n\r\n'
    b'RIFF\r\n--x\r\n\r\n\r\n--xx\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n--xx--\r\n'
)


def test_multipart() -> None:
    found, boundary = find_model_multipart(b"multipart/form-data; boundary=xx", FORM)
    assert found.model == "auto"
    assert rewrite_multipart(found, boundary, "whisper", FORM) == FORM.replace(b"auto", b"whisper")
    without = FORM[: FORM.index(b'--xx\r\nContent-Disposition: form-data; name="model"')] + b"--xx--\r\n"
    found, boundary = find_model_multipart(b'multipart/form-data; boundary="xx"', without)
    assert found == Found(None)
    added = rewrite_multipart(found, boundary, "whisper", without)
    again, _ = find_model_multipart(b"multipart/form-data; boundary=xx", added)
    assert again.model == "whisper"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"multipart/form-data", FORM),
        (b"multipart/form-data; boundary=yy", FORM),
        (b"multipart/form-data; boundary=xx", FORM[:-20]),
        (b"multipart/form-data; boundary=xx", b"--xx"),
    ],
)
def test_multipart_that_cannot_be_read(kind: bytes, body: bytes) -> None:
    with pytest.raises(Refusal):
        find_model_multipart(kind, body)
