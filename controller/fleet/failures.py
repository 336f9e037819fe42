"""What an agent hears where the controller's store fails in the middle of a call: one rule for every service.

A database that does not answer, or a disk that is full, is no fault of the call: the caller gets UNAVAILABLE with the
reason and comes again by itself, and the log gets one line instead of a traceback. Anything else is a fault of ours
and stays one.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from sqlalchemy.exc import DBAPIError, TimeoutError

from controller.store.session import answers_not, why_not

log = logging.getLogger(__name__)
FAILURES = (DBAPIError, TimeoutError, OSError)


class StoreFailures(grpc.aio.ServerInterceptor):
    """Wraps each handler, in the shape that gRPC finds it: a coroutine, or an asynchronous generator."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        found: Any = await continuation(handler_call_details)
        if found is None:  # no such method: gRPC says so
            return None
        method = str(handler_call_details.method)
        kinds = {
            (False, False): (grpc.unary_unary_rpc_method_handler, found.unary_unary),
            (False, True): (grpc.unary_stream_rpc_method_handler, found.unary_stream),
            (True, False): (grpc.stream_unary_rpc_method_handler, found.stream_unary),
            (True, True): (grpc.stream_stream_rpc_method_handler, found.stream_stream),
        }
        make, handle = kinds[found.request_streaming, found.response_streaming]
        wrap = _generator if inspect.isasyncgenfunction(handle) else _coroutine
        return make(wrap(handle, method), found.request_deserializer, found.response_serializer)


def _coroutine(handle: Callable[..., Awaitable[Any]], method: str) -> Callable[..., Awaitable[Any]]:
    async def handled(request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await handle(request, context)
        except FAILURES as err:
            await _say(err, context, method)

    return handled


def _generator(handle: Callable[..., AsyncIterator[Any]], method: str) -> Callable[..., AsyncIterator[Any]]:
    async def handled(request: Any, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
        try:
            async for answer in handle(request, context):
                yield answer
        except FAILURES as err:
            await _say(err, context, method)

    return handled


async def _say(err: Exception, context: grpc.aio.ServicerContext, method: str) -> None:
    """Raises gRPC's own abort, or `err` where it is a fault of ours."""
    if answers_not(err):
        what = "the controller's database does not answer"
    elif isinstance(err, OSError) and err.errno:
        what = f"the controller cannot keep it: {err.strerror}"
    else:
        raise err
    log.warning("call broken off method=%s peer=%s: %s error=%r", method, context.peer(), what, why_not(err))
    await context.abort(grpc.StatusCode.UNAVAILABLE, what)
