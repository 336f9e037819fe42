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
    NVML_ERROR_UNINITIALIZED, NVML_ERROR_NO_PERMISSION, NVML_ERROR_INSUFFICIENT_POWER = 1, 4, 8
    NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 9, 12, 18
    NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED = 15, 16

    def __init__(self) -> None:
        self.error = self.lost = 0
        self.inits = 0
        self.used = {A: 1 * GIB, B: 2 * GIB}
        self.running: dict[str, list[tuple[int, int | None]]] = {A: [], B: []}
        self.drawing: dict[str, list[tuple[int, int | None]]] = {A: [], B: []}
        self.silent = False
        self.gone: set[str] = set()  # cannot be asked, while the others go on
        self.gone_how = 15
        self.use: int | None = None
        self.parts: dict[str, dict[str, int]] = {}  # by card: its MIG devices and what is in use of each

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
            raise NVMLError(self.gone_how)
        return handle

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle

    def nvmlDeviceGetName(self, handle: str) -> bytes:
        return b"Fake"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        if self.silent:
            raise NVMLError(3)
        parts = {part: used for of in self.parts.values() for part, used in of.items()}
        return SimpleNamespace(total=24 * GIB, used=(self.used | parts)[handle])

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if not self.parts:
            raise NVMLError(3)
        return [1, 1] if handle in self.parts else [0, 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if index % 2:  # places are not filled one after another
            raise NVMLError(6)
        parts = list(self.parts[handle])
        if index // 2 >= len(parts):
            raise NVMLError(6)
        return parts[index // 2]

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
        return [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in self.running.get(handle, [])]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=p, usedGpuMemory=m) for p, m in self.drawing.get(handle, [])]
