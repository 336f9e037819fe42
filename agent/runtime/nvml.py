"""What is asked of NVML, card by card: handles, processes, MIG devices, and whose fault an error is.

An error of the driver as a whole is raised. Any other is one card's (it has fallen off the bus, has no power, is not for
this user), which is left out where several are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
COMPUTE, GRAPHICS = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"
MIG = "MIG-"  # a part of a card: how its UUID begins
DRIVERS = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH")
LOST = ("GPU_IS_LOST", "RESET_REQUIRED")
ADVICE = {
    **dict.fromkeys(LOST, "the card has to be reset, most often with a restart of the machine"),
    "NO_PERMISSION": "let the agent's user, or its container, open the card (/dev/nvidia*)",
    "INSUFFICIENT_POWER": "see its power cables",
}


class Nvml:
    """`n`: the binding (pynvml), initialised."""

    def __init__(self, n: Any) -> None:
        self.n = n

    def of_driver(self, err: Exception) -> bool:
        return self._is(err, DRIVERS)

    def of_lost_card(self, err: Exception) -> bool:
        return self._is(err, LOST)

    def advice(self, err: Exception) -> str:
        """What to do about a card that cannot be asked; "" where nothing is known."""
        return next((words for kind, words in ADVICE.items() if self._is(err, (kind,))), "")

    def handle(self, index: int) -> tuple[str, Any]:
        """UUID and handle. Raises NVMLError."""
        handle = self.n.nvmlDeviceGetHandleByIndex(index)
        return text(self.n.nvmlDeviceGetUUID(handle)), handle

    def cards(self, wanted: set[str]) -> list[tuple[str, Any]]:
        """UUID and handle of those of these GPUs and MIG devices that are there and can be asked."""
        divided = any(name.startswith(MIG) for name in wanted)
        found = []
        for index in range(self.n.nvmlDeviceGetCount()):
            for one in self.each([index], self.handle):
                found.append(one)
                if divided:
                    found += self.each(self._mig(one[1]), lambda part: (text(self.n.nvmlDeviceGetUUID(part)), part))
        return [(uuid, handle) for uuid, handle in found if uuid in wanted]

    def each(self, things: Iterable[Any], question: Callable[[Any], T]) -> list[T]:
        """The answers of those that can be asked."""
        found = []
        for thing in things:
            try:
                found.append(question(thing))
            except self.n.NVMLError as err:
                if self.of_driver(err):
                    raise
        return found

    def answer(self, question: Callable[[], T], nothing: T) -> T:
        """For what not every GPU can say. That the card is lost, or the driver, is raised."""
        try:
            return question()
        except self.n.NVMLError as err:
            if self.of_driver(err) or self.of_lost_card(err):
                raise
            return nothing

    def running(self, handle: Any, kind: str) -> Any:
        """Processes as the driver lists them; one that is older than the binding knows the second version only."""

        def ask() -> Any:
            try:
                return getattr(self.n, kind)(handle)
            except getattr(self.n, "NVMLLibraryMismatchError", ()):
                return getattr(self.n, f"{kind}_v2")(handle)

        return self.answer(ask, None) or ()

    def _mig(self, handle: Any) -> Iterator[Any]:
        """The handles of a card's MIG devices; none where it is not divided."""
        n = self.n
        mode = self.answer(lambda: n.nvmlDeviceGetMigMode(handle), (0, 0))
        places = self.answer(lambda: n.nvmlDeviceGetMaxMigDeviceCount(handle), 0) if mode[0] else 0
        yield from self.each(range(places), lambda place: n.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))

    def _is(self, err: Exception, kinds: Iterable[str]) -> bool:
        return getattr(err, "value", None) in [getattr(self.n, f"NVML_ERROR_{kind}") for kind in kinds]


def text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
