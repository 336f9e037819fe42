"""curl as people use it: big files with Expect, chunked uploads, forms, HTTP/1.0, HEAD, several requests on a connection."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

from tests.fakes.gateway_rig import Rig, run, secret
from tests.parts import cannot_be_had

LIMIT = 1024 * 1024


async def curl(rig: Rig, *args: str, path: str = "/v1/chat/completions") -> str:
    if shutil.which("curl") is None:
        cannot_be_had("curl", "not installed")
    command = [
        "curl",
        "-sS",
        "--max-time",
        "30",
        "-H",
        f"Authorization: Bearer {secret('tomas')}",
        *args,
        rig.url + path,
    ]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_curl(tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    big.write_bytes(b'{"model": "auto", "x": "' + b"y" * (4 * LIMIT) + b'"}')
    sound = tmp_path / "a.wav"
    sound.write_bytes(bytes(256) * 16_384)

    async def test(rig: Rig) -> None:
        await rig.serve_default()
        post = ("-H", "Content-Type: application/json")
        rewritten = big.read_bytes().replace(b"auto", b"default-model")
        said = await curl(rig, *post, "-v", "-H", "Expect: 100-continue", "--data-binary", f"@{big}")
        assert "HTTP/1.1 100 Continue" in said
        await curl(rig, *post, "-H", "Transfer-Encoding: chunked", "--data-binary", f"@{big}")
        await curl(rig, *post, "--http1.0", "--data-binary", f"@{big}")
        assert [seen.body == rewritten for seen in rig.engine.seen] == [True, True, True]
        await curl(rig, "-F", "model=auto", "-F", f"file=@{sound}", path="/v1/audio/transcriptions")
        assert sound.read_bytes() in rig.engine.seen[-1].body
        assert b"\r\n\r\ndefault-model\r\n" in rig.engine.seen[-1].body
        said = await curl(rig, "-F", f"file=@{sound}", "-F", "model=auto", path="/v1/audio/transcriptions")
        assert json.loads(said)["error"]["code"] == "body_too_large", "its model comes last"
        said = await curl(rig, *post, "-v", "-H", "Authorization: Bearer sk-ss-eve", "-H", "Expect: 100-continue",
                          "--data-binary", f"@{big}")  # fmt: skip
        assert "100 Continue" not in said, "two keys: refused before the body"
        assert "HTTP/1.1 200 OK" in await curl(rig, "-I", path="/v1/models")
        said = await curl(rig, "-v", f"{rig.url}/v1/models", f"{rig.url}/v1/models", path="/v1/models")
        assert said.count("Re-using existing connection") == 2
        await rig.drained()

    run(test, body_limit=LIMIT)
