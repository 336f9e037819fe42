"""llama-server's paths and answers, as far as SlotServe and its tests use them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

from agent.simulated.http import Connection, Request
from agent.simulated.slots import Engine, Slot

PUBLIC = frozenset(("/health", "/v1/health", "/models", "/v1/models", "/"))


class Api:
    """What is answered to what: `Api(engine).answer` is the server's handler."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def answer(self, to: Connection, request: Request) -> None:
        engine = self.engine
        if not engine.loaded:
            return to.error(503, "Loading model", "unavailable_error")
        key = request.headers.get("authorization", "").removeprefix("Bearer ").strip() or request.headers.get(
            "x-api-key", ""
        )
        if engine.keys and request.path not in PUBLIC and key not in engine.keys:
            return to.error(401, "Invalid API Key", "authentication_error")
        if request.method == "GET":
            return self._look(to, request.path, request.query)
        generate = {
            "/v1/chat/completions": self._chat,
            "/chat/completions": self._chat,
            "/v1/completions": self._completion,
            "/completions": self._completion,
            "/completion": self._completion,
            "/v1/messages": self._messages,
            "/v1/embeddings": self._embeddings,
            "/embeddings": self._embeddings,
            "/tokenize": self._tokenize,
        }.get(request.path)
        if generate is None:
            return to.error(404, "File Not Found", "not_found_error")
        try:
            asked = json.loads(request.body)
            if not isinstance(asked, dict):
                raise ValueError("not an object")
        except ValueError as err:
            return to.error(500, f"[json.exception.parse_error.101] parse error: {err}", "server_error")
        fails = engine.failing()
        if fails:
            return to.error(fails, "simulated failure", "server_error")
        return generate(to, asked)

    def _look(self, to: Connection, path: str, query: str) -> None:
        engine = self.engine
        if path in ("/health", "/v1/health"):
            if engine.due("sick-after"):
                return to.error(500, "simulated sickness", "server_error")
            return to.json({"status": "ok"})
        if path in ("/v1/models", "/models"):
            meta = {"n_ctx_train": 4096, "n_ctx": int(engine.given.get("-c", 4096)), "size": 0, "n_params": 0}
            entry = {
                "id": engine.name(),
                "aliases": engine.aliases,
                "object": "model",
                "owned_by": "simulated",
                "meta": meta,
            }
            return to.json({"object": "list", "data": [entry] if engine.aliases else []})
        if path == "/slots":
            busy = list(engine.busy)
            if parse_qs(query).get("fail_on_no_slot") and all(busy):
                return to.error(503, "no slot available", "unavailable_error")
            return to.json([{"id": i, "is_processing": b} for i, b in enumerate(busy)])
        if path == "/props":
            shown = {"model_path": engine.model, "model_alias": engine.name(), "total_slots": len(engine.busy)}
            return to.json({**shown, "is_sleeping": False, "build_info": "simulated"})
        if path == "/metrics":
            if "--metrics" not in engine.given:
                message = "This server does not support metrics endpoint. Start it with `--metrics`"
                return to.error(501, message, "not_supported_error")
            lines = {"requests_processing": sum(engine.busy), "requests_deferred": engine.waiting}
            lines["tokens_predicted_total"] = engine.tokens
            text = "".join(f"llamacpp:{key} {value}\n" for key, value in lines.items())
            return to.send(200, text.encode(), "text/plain; version=0.0.4")
        return to.error(404, "File Not Found", "not_found_error")

    def _chat(self, to: Connection, asked: dict[str, Any]) -> None:
        text = json.dumps(asked.get("messages", ""))
        identity = {"id": _id("chatcmpl"), "created": int(time.time()), "model": self.engine.name()}

        def chunk(delta: dict[str, Any], end: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "finish_reason": end}
            return {"choices": [choice], **identity, "object": "chat.completion.chunk"}

        with Slot(self.engine, to.watch, text) as slot:
            limit = asked.get("max_completion_tokens", asked.get("max_tokens"))
            if not asked.get("stream"):
                answer = "".join(slot.generate(limit))
                choice = {"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": slot.end}
                return to.json({"choices": [choice], **identity, "object": "chat.completion", "usage": slot.usage()})
            tokens = slot.generate(limit)
            first = next(tokens, None)
            to.stream()
            to.event(chunk({"role": "assistant", "content": None}))
            if first is not None:
                to.event(chunk({"content": first}))
            for token in tokens:
                to.event(chunk({"content": token}))
            to.event(chunk({}, slot.end))
            if (asked.get("stream_options") or {}).get("include_usage"):
                to.event({"choices": [], **identity, "object": "chat.completion.chunk", "usage": slot.usage()})
            return to.done()

    def _completion(self, to: Connection, asked: dict[str, Any]) -> None:
        identity = {
            "id": _id("cmpl"),
            "created": int(time.time()),
            "model": self.engine.name(),
            "object": "text_completion",
        }

        def whole(text: str, end: str | None, **more: Any) -> dict[str, Any]:
            choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": end}
            return {"choices": [choice], "content": text, **identity, **more}

        with Slot(self.engine, to.watch, str(asked.get("prompt", ""))) as slot:
            limit = asked.get("max_tokens", asked.get("n_predict"))
            if not asked.get("stream"):
                return to.json(whole("".join(slot.generate(limit)), slot.end, usage=slot.usage()))
            tokens = slot.generate(limit)
            first = next(tokens, "")
            to.stream()
            to.event(whole(first, None))
            for token in tokens:
                to.event(whole(token, None))
            to.event(whole("", slot.end, usage=slot.usage()))
            return to.done()

    def _messages(self, to: Connection, asked: dict[str, Any]) -> None:
        identity = {"id": _id("msg"), "type": "message", "role": "assistant", "model": self.engine.name()}
        with Slot(self.engine, to.watch, json.dumps(asked.get("messages", ""))) as slot:
            tokens = slot.generate(asked.get("max_tokens"))
            if not asked.get("stream"):
                content = [{"type": "text", "text": "".join(tokens)}]
                stop = {"stop_reason": slot.stop_reason(), "usage": slot.usage_of_messages()}
                return to.json({**identity, "content": content, **stop})
            first = next(tokens, "")
            to.stream()
            start: dict[str, Any] = {**identity, "content": [], "stop_reason": None, "usage": slot.usage_of_messages()}
            to.event({"type": "message_start", "message": start}, "message_start")
            block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            to.event(block, "content_block_start")
            for token in _chain(first, tokens):
                delta = {"type": "text_delta", "text": token}
                to.event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
            to.event({"type": "content_block_stop", "index": 0}, "content_block_stop")
            ending = {"stop_reason": slot.stop_reason(), "stop_sequence": None}
            to.event({"type": "message_delta", "delta": ending, "usage": slot.usage_of_messages()}, "message_delta")
            to.event({"type": "message_stop"}, "message_stop")
            return to.chunk(b"")

    def _embeddings(self, to: Connection, asked: dict[str, Any]) -> None:
        given = asked.get("input", "")
        texts = given if isinstance(given, list) else [given]
        data = [
            {"object": "embedding", "index": i, "embedding": [((len(str(t)) * 31 + d * 7) % 97) / 97 for d in range(8)]}
            for i, t in enumerate(texts)
        ]
        usage = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
        to.json({"object": "list", "model": self.engine.name(), "data": data, "usage": usage})

    def _tokenize(self, to: Connection, asked: dict[str, Any]) -> None:
        to.json({"tokens": [sum(word.encode()) % 32000 for word in str(asked.get("content", "")).split()]})


def _id(prefix: str) -> str:
    return f"{prefix}-{os.urandom(12).hex()}"


def _chain(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
