"""A driver made up for tests: as pynvml, for what is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

GIB = 1 << 30
A, B = "GPU-aaaa1111", "GPU-bbbb2222"


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """As pynvml, for what is asked. `error`: what nvmlInit raises; `lost`: calls raise it once initialised."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0
    NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_GPU_IS_LOST = 12, 9, 15

    def __init__(self) -> None:
        self.error = self.lost = 0
        self.inits = 0
        self.used = {A: 1 * GIB, B: 2 * GIB}
        self.running: dict[str, list[tuple[int, int | None]]] = {A: [], B: []}
        self.drawing: dict[str, list[tuple[int, int | None]]] = {A: [], B: []}
        self.silent = False
        self.gone: set[str] = set()  # lost, while the others go on
        self.use: int | None = None

    def nvmlInit(self) -> None:
        self.inits += 1
        if self.error:
            raise NVMLError(self.error)

    def nvmlShutdown(self) -> None:
        raise NVMLError(1)

    def nvmlDeviceGetCount(self) -> int:
        if self.lost:
            raise NVMLError(self.lost)
        return len(self.used)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        handle = list(self.used)[index]
        if handle in self.gone:
            raise NVMLError(15)
        return handle

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"Fake"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        if self.silent:
            raise NVMLError(3)
        return SimpleNamespace(total=24 * GIB, used=self.used[handle])

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if self.use is None:
            raise NVMLError(3)
        return SimpleNamespace(gpu=self.use)

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 41

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if self.silent:
            raise NVMLError(3)
        return 123_456

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in self.running[handle]]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in self.drawing[handle]]
