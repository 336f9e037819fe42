"""The stream on which an agent ships its engines' output; each piece is answered with the offset that is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from controller.fleet.logs import Launch, LogStore
from controller.fleet.peer import Peer, admitted
from controller.fleet.records import NodeRefused, Records
from protos import logs_pb2, logs_pb2_grpc

log = logging.getLogger(__name__)
THREADS = 4


class LogService(logs_pb2_grpc.LogsServicer):
    """Its own stream, its own threads: a disk that hangs here delays no plan, however many nodes wait for it."""

    def __init__(self, store: LogStore, records: Records) -> None:
        self._store, self._records = store, records
        self._pool = ThreadPoolExecutor(THREADS, "fleet-logs")

    async def Ship(
        self, chunks: AsyncIterator[logs_pb2.LogChunk], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[logs_pb2.LogAnswer]:
        peer, _ = await admitted(context, self._records)
        async for chunk in chunks:
            try:
                offset = await asyncio.get_running_loop().run_in_executor(self._pool, self._keep, peer, chunk)
            except NodeRefused as err:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(err))
            except ValueError as err:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(err))
            yield logs_pb2.LogAnswer(channel=chunk.channel, launch_id=chunk.launch_id, next_offset=offset)

    def _keep(self, peer: Peer, chunk: Any) -> int:
        self._records.check(peer.node, peer.enrolment, peer.ends_at)  # removed meanwhile, or run out?
        launch = Launch(
            id=chunk.launch_id,
            launched_at=chunk.launched_at_ms,
            model=chunk.model,
            preset=chunk.preset if chunk.HasField("preset") else None,
            reservation_id=chunk.reservation_id,
            ended=chunk.ended,
            failed=chunk.failed,
        )
        return self._store.append(peer.node, chunk.channel, launch, chunk.offset, chunk.data)
