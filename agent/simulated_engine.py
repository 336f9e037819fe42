"""A small real program with llama-server's command line and API, whose behaviour is set by arguments.

    python -m agent.simulated_engine -m MODEL --alias NAME --host PATH.sock|ADDRESS --port N [llama-server's options]

It stands for llama-server where none can be had and where a test wants an engine that misbehaves. What it knows beyond
llama-server:

    --sim-load-seconds S     "Loading model" (503) for so long            --sim-tokens N          longest answer (32)
    --sim-crash-at-load      end when the load is over                    --sim-first-token-ms N  wait before the first token
    --sim-crash-after S      end so long after it was ready               --sim-token-ms N        wait before each other one
    --sim-exit-code N        how those two end (1); -N: by signal N       --sim-error-rate P      this share of requests fails
    --sim-oom                run out of GPU memory while loading          --sim-status N          how they fail (500)
    --sim-memory-mb N        hold that much memory                        --sim-wrong-name NAME   serve under another name
    --sim-ignore-sigterm     only SIGKILL ends it                         --sim-hang              ready, but no answer ever comes
    --sim-hang-after S       hang so long after it was ready      --sim-sick-after S      its health check fails from then on
    --sim-cuda-error-after S say "CUDA error" and hang then       --sim-closed-after S    takes no connections from then on, and spins
    --sim-leave-worker       a worker in its own session that ignores SIGTERM (ends by itself after 10 minutes)

A model file whose first line is `simulated` holds such settings, one a line (`load-seconds = 2`, `oom`); so does a GGUF
file with those lines appended. Arguments win. Standard library alone, and little of it: it starts in some 40 ms.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

from agent.simulated.api import Api
from agent.simulated.arguments import behaviour, parse
from agent.simulated.console import break_device, check_model, crash, end, fail_to_load, leave, log
from agent.simulated.http import listen
from agent.simulated.slots import Engine

WORKER_SECONDS = 600


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs until a signal, or until its settings say so."""
    given = parse(sys.argv[1:] if argv is None else argv)
    model = given.get("-m", "")
    settings = {
        **(behaviour(model) if model else {}),
        **{k[6:]: v for k, v in given.items() if k.startswith("--sim-")},
    }
    if "ignore-sigterm" in settings:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "leave-worker" in settings:
        _leave_worker()
    engine = Engine(given, settings)
    host, port = given.get("--host", "127.0.0.1"), int(given.get("--port", 8080))
    try:
        address, door = listen(host, port, Api(engine).answer)
    except OSError:
        log(f"srv         start: couldn't bind HTTP server socket, hostname: {host}, port: {port}", "E")
        leave(1, "exiting due to HTTP server error")
    log(f"srv    load_model: loading model '{model}'")
    memory = bytearray()
    if model:
        check_model(model)
        time.sleep(float(settings.get("load-seconds", 0)))
        fail_to_load(settings, model)
        memory = bytearray(b"x") * (int(settings.get("memory-mb", 0)) << 20)  # written, so it is resident
    if "ignore-sigterm" not in settings:
        # As in llama-server: only now; before, a signal simply ends it.
        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
    engine.become_ready()
    log("srv  llama_server: model loaded")
    log(f"srv  llama_server: listening on {address}")
    if "cuda-error-after" in settings:
        threading.Timer(float(settings["cuda-error-after"]), break_device).start()
    if "closed-after" in settings:
        time.sleep(float(settings["closed-after"]))
        door.shutdown(socket.SHUT_RDWR)
        while True:
            pass
    time.sleep(float(settings.get("crash-after", 10**8)))
    log(f"srv  simulated crash, holding {len(memory)} bytes", "E")
    crash(settings)


def _leave_worker() -> None:
    """What vLLM's workers are when their parent dies: another session, no ear for SIGTERM, still there."""
    if os.fork():
        return
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(WORKER_SECONDS)
    os._exit(0)


if __name__ == "__main__":
    main()
