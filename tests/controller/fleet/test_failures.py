"""A store that fails in the middle of a call, over real gRPC connections."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from sqlalchemy.exc import IntegrityError, OperationalError

from controller.fleet.failures import StoreFailures
from protos import logs_pb2, logs_pb2_grpc, peers_pb2, peers_pb2_grpc

AWAY = OperationalError("SELECT 1", None, ConnectionError("server closed the connection\nunexpectedly"))
FULL = OSError(errno.ENOSPC, "No space left on device")
OURS = IntegrityError("INSERT", None, ValueError("a fault of ours"))


class Logs(logs_pb2_grpc.LogsServicer):
    """Answers the first piece, and fails at the second."""

    def __init__(self, err: Exception) -> None:
        self.err = err

    async def Ship(self, chunks: AsyncIterator[Any], _context: Any) -> AsyncIterator[Any]:
        async for chunk in chunks:
            if chunk.offset:
                raise self.err
            yield logs_pb2.LogAnswer(channel=chunk.channel, next_offset=7)


class Peers(peers_pb2_grpc.PeersServicer):
    def __init__(self, err: Exception) -> None:
        self.err = err

    async def ReadLog(self, _asked: Any, context: Any) -> Any:
        if isinstance(self.err, LookupError):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "for controllers only")
        raise self.err


async def said(err: Exception) -> tuple[list[int], grpc.aio.AioRpcError, grpc.aio.AioRpcError]:
    """The answers of the stream, what ended it, and what the plain call heard."""
    server = grpc.aio.server(interceptors=(StoreFailures(),))
    logs_pb2_grpc.add_LogsServicer_to_server(Logs(err), server)
    peers_pb2_grpc.add_PeersServicer_to_server(Peers(err), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            pieces = [logs_pb2.LogChunk(channel="c0", offset=at) for at in (0, 7)]
            stub = logs_pb2_grpc.LogsStub(channel)
            answers, shipping = [], stub.Ship(iter(pieces))
            answers.append((await shipping.read()).next_offset)
            with pytest.raises(grpc.aio.AioRpcError) as stream:
                await shipping.read()
            with pytest.raises(grpc.aio.AioRpcError) as plain:
                await peers_pb2_grpc.PeersStub(channel).ReadLog(peers_pb2.LogRequest())
            return answers, stream.value, plain.value
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("err", "words"),
    [
        (AWAY, "the controller's database does not answer"),
        (FULL, "the controller cannot keep it: No space left on device"),
    ],
    ids=["database", "disk"],
)
def test_the_caller_is_to_come_again(err: Exception, words: str, caplog: Any) -> None:
    answers, stream, plain = asyncio.run(said(err))
    assert answers == [7]
    for heard in (stream, plain):
        assert (heard.code(), heard.details()) == (grpc.StatusCode.UNAVAILABLE, words)
    assert [(r.levelno, r.exc_info) for r in caplog.records] == [(logging.WARNING, None)] * 2  # no traceback
    assert "\n" not in caplog.text.strip().splitlines()[0]
    assert "/slotserve.v1.Logs/Ship" in caplog.text


def test_a_fault_of_ours_stays_one() -> None:
    _, stream, plain = asyncio.run(said(OURS))
    assert {stream.code(), plain.code()} == {grpc.StatusCode.UNKNOWN}


def test_an_answer_that_ends_a_call_stays_as_it_is() -> None:
    _, _, plain = asyncio.run(said(LookupError()))
    assert (plain.code(), plain.details()) == (grpc.StatusCode.PERMISSION_DENIED, "for controllers only")
