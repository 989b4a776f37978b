"""How long a kernel takes: repeats after a warm-up, on the clock of the device, and what the card did meanwhile."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from xe_sizer.measure.samples import COLLECTIVE, COPY, HOST, STORAGE, Sample

if TYPE_CHECKING:
    from xe_sizer.measure.samples import Kernel

LEAST_REPEATS, MOST_REPEATS = 3, 200  # chosen: a median of fewer says little, of more no more
WARM_UP = 2  # calls that pay for the choice of kernels and the first touch of memory; one, of a long kernel
LONG_S = 0.02
# Calls that one graph replays: a kernel of microseconds is shorter than the launch of a graph. Fewer of long ones.
IN_A_GRAPH, GRAPH_S = 10, 5e-3
CPU, CUDA = "cpu", "cuda"
OF_THE_HOST = (HOST, COPY, STORAGE, COLLECTIVE)  # laws of which the time of the host counts, until the device is done
Clock = Callable[[], float]
Call = Callable[[int], object]
"""A kernel; the number says which of its copies of the operands it takes."""


@contextlib.contextmanager
def own_stream(device: str) -> Iterator[None]:
    """A stream of a card's in which graphs can be captured; autograd runs a backward where its forward ran."""
    if not device.startswith(CUDA):
        yield
        return
    import torch

    stream = _stream(device)
    stream.wait_stream(torch.cuda.current_stream(torch.device(device)))
    with torch.cuda.stream(stream):
        yield
        stream.synchronize()


@cache
def _stream(device: str) -> Any:
    import torch

    return torch.cuda.Stream(torch.device(device))


class Timer:
    """Times calls on one device.

    clock : of the host, which times a CPU; a card times by its own events, in CUDA graphs, so that no launch counts
    """

    def __init__(self, device: str, clock: Clock = time.perf_counter) -> None:
        self.device, self.clock = device, clock

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.startswith(CUDA):
            import torch

            torch.cuda.synchronize()

    def sample(self, kernel: Kernel, call: Call, budget_s: float, walk: int) -> Sample:
        """Time a kernel for so long, at least LEAST_REPEATS times and at most MOST_REPEATS."""
        graphed = self.device.startswith(CUDA) and kernel.law not in OF_THE_HOST
        with own_stream(self.device) if graphed else contextlib.nullcontext():
            began = taken = time.monotonic()
            for place in range(WARM_UP):
                taken = time.monotonic()
                call(place)
                self.wait()
                if time.monotonic() - began > LONG_S:
                    break
            count = int(min(max(GRAPH_S / max(time.monotonic() - taken, 1e-9), 1), IN_A_GRAPH))
            once = self._graphed(call, count) if graphed else self._plain(call)
            times = self._repeated(once, budget_s)
        return summary(kernel, times, walk)

    @staticmethod
    def _repeated(once: Callable[[], float], budget_s: float) -> list[float]:
        ends = time.monotonic() + budget_s
        times: list[float] = []
        while len(times) < LEAST_REPEATS or (len(times) < MOST_REPEATS and time.monotonic() < ends):
            times.append(once())
        return times

    def _plain(self, call: Call) -> Callable[[], float]:
        place = 0

        def once() -> float:
            nonlocal place
            began = self.clock()
            call(place)
            self.wait()
            ended = self.clock()
            place += 1
            return max(ended - began, 1e-9)

        return once

    def _graphed(self, call: Call, count: int) -> Callable[[], float]:
        """One replay of a graph of so many calls, or these between two events where the kernel cannot be captured."""
        import torch

        graph: Any = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
                for place in range(count):
                    call(place)
            replay: Callable[[], object] = graph.replay
        except RuntimeError:
            torch.cuda.synchronize()

            def replay() -> None:
                for place in range(count):
                    call(place)

        def once() -> float:
            began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began.record()
            replay()
            ended.record()
            ended.synchronize()
            return max(float(began.elapsed_time(ended)) / 1e3 / count, 1e-9)

        return once


def summary(kernel: Kernel, times: Sequence[float], walk: int) -> Sample:
    """Median and spread of repeats."""
    ordered = sorted(times)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return Sample(
        kernel=kernel, seconds=statistics.median(ordered), low=low, high=high, repeats=len(ordered), walk=walk
    )


# What the card does meanwhile, by its driver.

WATCH_S = 0.2
GIB = 2**30


class Watch(threading.Thread):
    """Reads the card's clocks, power, temperature and used memory while kernels run; nothing without nvidia-ml-py.

    rows : used memory [GiB], SM and memory clock [MHz], power [W] and temperature [C]
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.rows: list[tuple[float, float, float, float, float]] = []
        self.limit_w: float | None = None
        self.start()

    def run(self) -> None:
        try:
            import pynvml
            import torch

            pynvml.nvmlInit()
            card = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        except Exception:  # noqa: BLE001  a driver that cannot be asked says nothing, whatever the reason
            return
        self.limit_w = pynvml.nvmlDeviceGetEnforcedPowerLimit(card) / 1e3
        while True:
            self.rows.append((
                pynvml.nvmlDeviceGetMemoryInfo(card, version=pynvml.nvmlMemory_v2).used / GIB,
                pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM),
                pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_MEM),
                pynvml.nvmlDeviceGetPowerUsage(card) / 1e3,
                pynvml.nvmlDeviceGetTemperature(card, pynvml.NVML_TEMPERATURE_GPU),
            ))  # fmt: skip
            if self.ended.wait(WATCH_S):
                return

    def stop(self) -> None:
        self.ended.set()
        self.join()

    @property
    def used_gib(self) -> float | None:
        """The most that the card's memory held [GiB]."""
        return max(row[0] for row in self.rows) if self.rows else None

    @property
    def conditions(self) -> dict[str, float]:
        """Medians of the clocks [MHz], power [W] and temperature [C]."""
        if not self.rows:
            return {}
        names = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
        columns = list(zip(*self.rows, strict=True))[1:]
        seen = {name: round(statistics.median(column)) for name, column in zip(names, columns, strict=True)}
        return seen | ({"power_limit_w": self.limit_w} if self.limit_w else {})

    @property
    def words(self) -> str:
        """The same in words; empty where nobody can be asked."""
        seen = self.conditions
        if not seen:
            return ""
        limit = f" of {seen['power_limit_w']:g}" if "power_limit_w" in seen else ""
        clocks = f"SM clock {seen['sm_clock_mhz']:g} MHz, memory {seen['memory_clock_mhz']:g} MHz"
        return f"{clocks}, {seen['power_w']:g}{limit} W, {seen['temperature_c']:g} C"
