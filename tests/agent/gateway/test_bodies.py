"""The model of a body: found in every form, in any number of pieces, and rewritten without touching another byte."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.gateway.body import CHECKED_BYTES, Scanner, find, rewrite, scanner
from agent.gateway.body_found import Found
from agent.gateway.body_json import JsonScanner
from agent.gateway.errors import Refusal

JSON = b"application/json"
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
        found = find(JSON, body)
    except Refusal:
        assert any("\ud800" <= c <= "\udfff" for c in model + json.dumps(content, ensure_ascii=False))
        return
    assert found.model == model
    assert json.loads(body[found.start : found.end]) == model
    changed = rewrite(JSON, found, "new/name", body)
    assert json.loads(changed) == {**dict(items), "model": "new/name"}
    assert changed[: found.start] == body[: found.start]
    assert changed.endswith(body[found.end :])


@given(contents)
def test_put_in_where_there_is_none(content: dict) -> None:
    body = b" " + json.dumps(content).encode()
    found = find(JSON, body)
    assert found == Found(None)
    assert json.loads(rewrite(JSON, found, "m", body)) == {**content, "model": "m"}


@given(contents, names, st.lists(st.integers(1, 7), min_size=1), st.integers(0, 4))
def test_scanner_in_pieces_finds_the_same(content: dict, model: str, sizes: list[int], place: int) -> None:
    items = list(content.items())
    items.insert(min(place, len(items)), ("model", model))
    body = json.dumps(dict(items)).encode()
    found = in_pieces(scanner(JSON), body, sizes)
    assert found.model == model
    assert json.loads(body[found.start : found.end]) == model


def in_pieces(scan: Scanner, body: bytes, sizes: list[int]) -> Found:
    """What is found, which is the same from the moment on at which it was first known."""
    at = step = 0
    first = None
    while at < len(body):
        size = sizes[step % len(sizes)]
        scan.feed(body[at : at + size])
        at, step = at + size, step + 1
        first = first or scan.found
    found = scan.finish()
    assert first in (None, found)
    return found


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\model 1', max_size=40).map(str.encode))
def test_any_bytes_are_an_answer_or_a_refusal(data: bytes) -> None:
    for look in (lambda: find(JSON, data), lambda: in_pieces(scanner(JSON), data, [1]), lambda: find(KIND, data)):
        try:
            found = look()
        except Refusal:
            continue
        assert isinstance(found, Found)


SECOND = (
    '{"model": "a", "model": "b"}',
    '{"model": "a", "model": "a"}',
    '{"model": "a", "x": {"model": "b"}, "mod\\u0065l": "b"}',
    '{"model": null, "model": "b"}',
    '{"model": "a", "model": null}',
    '{"model": "a", "x": [1, {"y": "}"}], "model" : "b"}',
)


@pytest.mark.parametrize("text", SECOND)
@pytest.mark.parametrize("filler", [0, 2 * CHECKED_BYTES])
@pytest.mark.parametrize("size", [1, 7, 1_000_000])
def test_a_second_model_is_refused_wherever_it_stands(text: str, filler: int, size: int) -> None:
    body = text.replace('"a", ', '"a", "filler": "' + "f" * filler + '", ', 1).encode()
    with pytest.raises(Refusal, match="more than once"):
        in_pieces(scanner(JSON), body, [size])
    with pytest.raises(Refusal, match="more than once"):
        find(JSON, body)


def test_models_that_are_none() -> None:
    nested = b'{"a": {"model": "x"}, "b": [{"model": "y"}], "c": "\\"model\\": \\"z\\"", "models": "m"}'
    assert find(JSON, nested) == in_pieces(scanner(JSON), nested, [3]) == Found(None)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '"model"',
        "{",
        '{"model"}',
        '{"model": 1}',
        '{"model": nullx}',
        '{"model": ["a"]}',
        '{"model": "a"} {}',
        "1",
    ],
)
def test_what_is_no_json_object_with_a_model(text: str) -> None:
    for sizes in ([1], [100]):
        with pytest.raises(Refusal):
            in_pieces(scanner(JSON), text.encode(), sizes)


@pytest.mark.parametrize(
    "piece",
    [b"A" * 65_536, b"\\n" * 32_768, b" " * 65_536, b"1,2," * 16_384],
    ids=["letters", "escapes", "spaces", "numbers"],
)
def test_many_megabytes_are_gone_over_once(piece: bytes) -> None:
    begun, ended = {b" ": (b'{"model":', b'"m"}'), b"1": (b'{"input": [', b'0], "model": "m"}')}.get(
        piece[:1], (b'{"image": "', b'", "model": "m"}')
    )
    scan = JsonScanner()
    scan.feed(begun)
    for _ in range(400):  # gone over again and again they would outlast the test's time-out
        scan.feed(piece)
    scan.feed(ended)
    assert scan.finish().model == "m"
    assert len(scan._captured) < 100, "nothing of it is kept"


FORM = (
    b'--xx\r\nContent-Disposition: form-data; name="file"; filename="model"\r\nContent-Type: audio/wav\r\n\r\n'
    b'RIFF\r\n--x\r\n\r\n\r\n--xx\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n--xx--\r\n'
)


KIND = b"multipart/form-data; boundary=xx"
MODEL = b'--xx\r\nContent-Disposition: form-data; name="model"\r\n\r\nauto\r\n'


@pytest.mark.parametrize("size", [1, 2, 5, 17, 1000])
def test_multipart(size: int) -> None:
    found = in_pieces(scanner(KIND), FORM, [size])
    assert found == find(KIND, FORM)
    assert found.model == "auto"
    assert rewrite(KIND, found, "whisper", FORM) == FORM.replace(b"auto", b"whisper")
    without = FORM.replace(MODEL, b"")
    quoted = b'multipart/form-data; charset=utf-8; BOUNDARY="xx"'
    found = in_pieces(scanner(quoted), without, [size])
    assert found == Found(None)
    again = find(KIND, rewrite(KIND, found, "whisper", without))
    assert again.model == "whisper"


def test_multipart_is_known_as_soon_as_the_field_has_come() -> None:
    scan = scanner(KIND)
    scan.feed(MODEL[:-2])
    assert scan.found is None
    scan.feed(b"\r\n--xx")
    assert scan.found == Found("auto", MODEL.index(b"auto"), MODEL.index(b"auto") + 4)


ODD_FORMS = {
    "padded delimiter": (FORM.replace(b"--xx\r\n", b"--xx \t\r\n"), "auto"),
    "preamble and epilogue": (b"hello\r\n" + FORM + b"bye", "auto"),
    "name without quotes": (FORM.replace(b'"model"\r', b"model\r"), "auto"),
    "name in capitals": (FORM.replace(b"name=", b"NAME="), "auto"),
    "other headers": (FORM.replace(b'name="model"\r\n', b'name="model"\r\nContent-Type: text/plain\r\n'), "auto"),
    "no headers at all": (FORM.replace(MODEL, b"--xx\r\n\r\nauto\r\n"), None),
    "no content": (FORM.replace(MODEL, b'--xx\r\nContent-Disposition: form-data; name="a"\r\n\r\n'), None),
    "a file's name that says it": (FORM.replace(b'name="model"\r', b'name="a"; filename="b; name=model"\r'), None),
    "an escaped quote": (FORM.replace(b'name="model"\r', b'filename="b\\"; name=\\"a"; name="model"\r'), "auto"),
    "empty": (FORM.replace(b"auto", b""), ""),
}


@pytest.mark.parametrize("name", ODD_FORMS)
def test_odd_multipart(name: str) -> None:
    form, model = ODD_FORMS[name]
    assert find(KIND, form).model == in_pieces(scanner(KIND), form, [3]).model == model


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"multipart/form-data", FORM),
        (b"multipart/form-data; boundary=", FORM),
        (b"multipart/form-data; boundary=xx; boundary=yy", FORM),
        (b"multipart/form-data; boundary=yy", FORM),
        (KIND, FORM[:-20]),
        (KIND, FORM[:-2].removesuffix(b"--")),
        (KIND, b"--xx"),
        (KIND, b""),
        (KIND, FORM.replace(MODEL, MODEL * 2)),
        (KIND, FORM.replace(b"auto", b"a" * 20_000)),
        (KIND, FORM.replace(b"auto", b"\xff")),
        (KIND, FORM.replace(b"--xx--", b"--xxy--")),
        (KIND, b"--xx\r\nX-Long: " + b"a" * 20_000 + b"\r\n" + FORM),
    ],
)
def test_multipart_that_cannot_be_read(kind: bytes, body: bytes) -> None:
    with pytest.raises(Refusal):
        find(kind, body)
