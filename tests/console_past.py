"""What the scene's machines did in the last week: states, requests, logs, GPUs of the last quarter of an hour.

The same figures at every run. tests/console_week.py puts it together with what people did.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from controller.fleet.gpu_history import GpuHistory
from controller.fleet.live import LiveGpu, LiveGpuProcess
from controller.fleet.logs import Launch, LogStore
from controller.store.tables import Channel, ChannelState, Node, Usage
from tests.console_scene import GB, NOW, Scene, at

HOUR = 3_600_000
MINUTE = 60_000
# GPU memory in use and how busy, of 1; the last value is shown in figures
AT_WORK = {
    "gpu-a01/main": (0.92, 0.78),
    "gpu-a01/c6": (0.84, 0.41),
    "gpu-a01/c7": (0.27, 0.06),
    "gpu-a02/tp4-a": (0.71, 0.22),
    "gpu-a02/tp4-b": (0.55, 0.97),
    "gpu-b01/g0": (0.63, 0.34),
    "gpu-b01/g1": (0.66, 0.52),
    "gpu-b01/g2": (0.31, 0.0),
    "lab-3090/g0": (0.02, 0.0),
    "lab-3090/g1": (0.77, 0.88),
}
# channel -> (instant, phase, model, in place of the booked one)
PAST = {
    "gpu-a02/tp4-a": (
        ("12 09:00", "ready", "Qwen3-32B-FP8", False),
        ("18 21:10", "loading", "gpt-oss-120b-MXFP4", False),
        ("18 21:14", "ready", "gpt-oss-120b-MXFP4", False),
        ("19 05:20", "loading", "Qwen3-32B-FP8", False),
        ("19 05:21", "ready", "Qwen3-32B-FP8", False),
        ("19 09:20", "unknown", None, False),
        ("19 10:05", "loading", "Qwen3-32B-FP8", False),
        ("19 10:06", "ready", "Qwen3-32B-FP8", False),
        ("19 13:27", "retry_wait", "gpt-oss-120b-MXFP4", False),
        ("19 13:31", "ready", "Qwen3-32B-FP8", True),
        ("19 13:50", "retry_wait", "gpt-oss-120b-MXFP4", False),
        ("19 13:52", "ready", "Qwen3-32B-FP8", True),
        ("19 14:22", "retry_wait", "gpt-oss-120b-MXFP4", False),
        ("19 14:24", "ready", "Qwen3-32B-FP8", True),
    ),
    "gpu-a02/tp4-b": (("12 09:00", "ready", "Qwen3-32B-FP8", False), ("19 12:00", "off", None, False)),
    "gpu-a01/main": (
        ("12 09:00", "ready", "DeepSeek-R1-Distill-Llama-70B-BF16", False),
        ("17 20:00", "loading", "Qwen3-32B-Q4_K_M", False),
        ("17 20:01", "ready", "Qwen3-32B-Q4_K_M", False),
        ("18 02:00", "loading", "DeepSeek-R1-Distill-Llama-70B-BF16", False),
        ("18 02:06", "ready", "DeepSeek-R1-Distill-Llama-70B-BF16", False),
    ),
    "gpu-a01/c6": (("13 11:00", "ready", "Qwen3-32B-Q4_K_M", False),),
    "gpu-b01/g0": (("14 08:00", "off", None, False), ("16 08:00", "ready", "Qwen3-32B-Q4_K_M", False)),
    "edge-t4/g0": (("12 09:00", "ready", "Qwen3-4B-Instruct-Q8_0", False), ("19 13:58", "unknown", None, False)),
    "lab-3090/g1": (
        ("12 09:00", "ready", "Mistral-Small-3.2-24B-Q4_K_M", False),
        ("19 12:15", "blocked", None, False),
    ),
}
LOG = """\
llama_model_loader: loaded meta data with 38 key-value pairs and 687 tensors from gpt-oss-120b-MXFP4-00001-of-00003.gguf
llama_model_loader: - kv   0:                       general.architecture str              = gpt-oss
print_info: file format = GGUF V3 (latest)
print_info: n_ctx_train      = 131072
load_tensors: offloading 36 repeating layers to GPU
load_tensors:        CUDA0 model buffer size = 59851.68 MiB
llama_context: n_ctx         = 65536
warning: n_ctx_per_seq (65536) < n_ctx_train (131072) -- the full capacity of the model will not be utilized
ggml_cuda_host_malloc: failed to allocate 61440.00 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 61440.00 MiB on device 0: cudaMalloc failed: out of memory
error: failed to initialise the context: failed to allocate buffer for kv cache
main: exiting due to model loading error
"""


def lived(s: Scene) -> None:
    """All of it."""
    _history(s)
    _requests(s)
    _logs(s)
    _gpus(s)


def _history(s: Scene) -> None:
    with s.store.write() as db:
        for channel, rows in PAST.items():
            for when, phase, model, fallback in rows:
                reason = "Out of GPU memory" if phase == "retry_wait" else ""
                db.add(
                    ChannelState(
                        channel_id=s.ids[channel],
                        at=at(when),
                        phase=phase,
                        model=model,
                        fallback=fallback,
                        reason=reason,
                    )
                )


def _requests(s: Scene) -> None:
    """Busier by day than by night; some are refused."""
    dice = random.Random(7)
    served = [(c, rows[0][2]) for c, rows in PAST.items() if rows[0][2]]
    with s.store.write() as db:
        nodes = {n.name: n.id for n in db.query(Node)}
        for i in range(1600):
            back = dice.randrange(7 * 24 * 60) * MINUTE
            hour = ((NOW - back) // HOUR + 8) % 24
            if dice.random() > 0.25 + 0.75 * max(0.0, math.sin((hour - 6) / 24 * 2 * math.pi)):
                continue
            channel, model = dice.choice(served)
            status = 403 if dice.random() < 0.04 else 200
            db.add(
                Usage(
                    id=f"w{i}",
                    node_id=nodes[channel.partition("/")[0]],
                    channel=channel.partition("/")[2],
                    model=model,
                    key_id="k",
                    user_id=s.ids[dice.choice(("lin", "maya", "maya", "tomas", "阿哲", "sofia"))],
                    at=NOW - back,
                    duration=dice.uniform(0.4, 19),
                    first_byte=0.2,
                    status=status,
                    outcome="refused" if status == 403 else "served",
                    bytes_in=900,
                    bytes_out=4000,
                    prompt_tokens=None if status == 403 else dice.randrange(80, 9000),
                    completion_tokens=None if status == 403 else dice.randrange(20, 1500),
                )
            )


def _logs(s: Scene) -> None:
    logs = LogStore(s.ctx.settings.state_dir / "logs")
    for name, when, failed in (("a1", at("14:02"), True), ("b2", at("14:22"), True)):
        launch = Launch(name, when, "gpt-oss-120b-MXFP4", None, "", ended=True, failed=failed)
        logs.append("gpu-a02", "tp4-a", launch, 0, LOG.encode())
    steady = "".join(
        f"slot update_slots: id {i % 4} | task {900 + i} | prompt processing done, n_past = {i * 37 % 4096}\n"
        for i in range(120)
    )
    launch = Launch("c3", at("09:11"), "DeepSeek-R1-Distill-Llama-70B-BF16", None, "")
    logs.append("gpu-a01", "main", launch, 0, steady.encode())
    s.ctx.logs = logs


def _gpus(s: Scene) -> None:
    """A quarter of an hour of every GPU, and whose process is on it."""
    s.live.gpu_history = GpuHistory(every=0)
    dice = random.Random(5)
    with s.store.read() as db:
        rows = [(node.name, c.name, c.gpu_uuids[0]) for c, node in db.query(Channel, Node).join(Node)]
    for node, channel, uuid in rows:
        memory, use = AT_WORK.get(f"{node}/{channel}", (0.0, 0.0))
        known = s.live.node(node)
        for i in range(90):
            sway = 0.5 + 0.5 * math.sin(i / 7 + len(channel)) + dice.uniform(-0.3, 0.3)
            shown = [
                _busy(g, memory, use * (0.7 + 0.5 * sway) if i < 89 else use) for g in known.gpus if g.uuid == uuid
            ]
            s.live.gpu_history.note(shown)
        if known.online:
            s.live.gpu_history, kept = GpuHistory(every=0), s.live.gpu_history
            s.live.update(
                node, gpus=tuple(_owned(_busy(g, memory, use), channel) if g.uuid == uuid else g for g in known.gpus)
            )
            s.live.gpu_history = kept


def _busy(gpu: LiveGpu, memory: float, use: float) -> LiveGpu:
    percent = max(0, min(100, round(100 * use)))
    return replace(
        gpu,
        memory_used_bytes=round(memory * gpu.memory_total_bytes),
        utilisation_percent=percent,
        temperature_c=34 + percent // 3,
        power_watts=70 + 5 * percent,
    )


def _owned(gpu: LiveGpu, channel: str) -> LiveGpu:
    if gpu.name == "RTX 3090" and channel == "g1":
        return replace(gpu, processes=(LiveGpuProcess(48213, "wei", "python3 train.py", round(18.4 * GB), None),))
    return gpu
