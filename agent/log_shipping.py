"""Ships the engines' output to the controller, each piece acknowledged, from where the controller says it has it.

On a stream of its own and one piece at a time: a slow controller slows this down and nothing else; the engine writes to
its files whatever happens here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import grpc

from agent.runtime.logs import LaunchLog, LogFolder
from protos import logs_pb2, logs_pb2_grpc

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
PIECE = 64 << 10
KEPT_THERE = 10_000_000  # what the controller keeps a channel: older output is not sent at all


class LogShipper:
    """`folders`: the log folder of each channel by name."""

    def __init__(self, folders: Mapping[str, LogFolder], look_seconds: float = LOOK_SECONDS) -> None:
        self._folders, self._look_seconds = folders, look_seconds

    async def ship(self, channel: Any) -> None:
        """Over one connection, until it ends or the task is cancelled; a stream that breaks is opened again."""
        while True:
            call = logs_pb2_grpc.LogsStub(channel).Ship()
            try:
                await self._stream(call)
            except grpc.aio.AioRpcError as err:
                log.warning("log stream ended why=%r", err.details())
            except asyncio.InvalidStateError:
                log.warning("log stream ended why='the call was over'")
            except (OSError, ValueError) as err:  # a disk of the logs' must not end the connection of the plan
                log.error("log not read error=%r; trying again", str(err))
            finally:
                call.cancel()
            await asyncio.sleep(5.0)

    async def _stream(self, call: Any) -> None:
        offsets: dict[tuple[str, str], int] = {}  # where the controller has everything before
        finished: set[tuple[str, str]] = set()
        while True:
            sent = 0
            for name, folder in self._folders.items():
                for launch in await asyncio.to_thread(folder.launches):
                    at = (name, launch.launch_id)
                    if at in finished:
                        continue
                    if at not in offsets:
                        offsets[at] = await self._exchange(call, name, launch, 0, b"")
                    sent += await self._catch_up(call, name, folder, launch, offsets)
                    if launch.ended and offsets[at] >= launch.size:
                        await self._exchange(call, name, launch, offsets[at], b"")  # says that it has ended
                        finished.add(at)
            if not sent:
                await asyncio.sleep(self._look_seconds)

    async def _catch_up(
        self, call: Any, name: str, folder: LogFolder, launch: LaunchLog, offsets: dict[tuple[str, str], int]
    ) -> int:
        at, sent = (name, launch.launch_id), 0
        offset = max(offsets[at], launch.first_offset, launch.size - KEPT_THERE)
        while offset < launch.size:
            piece = await asyncio.to_thread(folder.read, launch.launch_id, offset, PIECE)
            if not piece.data:
                break
            offset = await self._exchange(call, name, launch, piece.offset, piece.data)
            sent += len(piece.data)
        offsets[at] = offset
        return sent

    async def _exchange(self, call: Any, name: str, launch: LaunchLog, offset: int, data: bytes) -> int:
        chunk = logs_pb2.LogChunk(
            channel=name,
            launch_id=launch.launch_id,
            offset=offset,
            data=data,
            launched_at_ms=launch.launched_at,
            model=launch.model,
            reservation_id=launch.reservation_id,
            ended=launch.ended and offset + len(data) >= launch.size,  # nothing comes after it
            failed=launch.failed,
        )
        if launch.preset is not None:
            chunk.preset = launch.preset
        await call.write(chunk)
        answer = await call.read()
        if answer is grpc.aio.EOF:
            raise asyncio.InvalidStateError("the controller ended the log stream")
        return int(answer.next_offset)
