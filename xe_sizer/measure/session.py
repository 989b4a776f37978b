"""A session of measuring: the device that is asked, a first look at it, and walks of the grid within a budget."""

from __future__ import annotations

import platform
import random
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import FP32, INT8
from xe_sizer.measure import grid
from xe_sizer.measure.samples import MATMUL, MEMORY, Kernel, Machine
from xe_sizer.measure.timer import CPU, CUDA, Timer
from xe_sizer.profiles.installed import host_memory_bytes, installed_cards, processor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.measure.samples import Samples

INSTALL = "pip install 'xe-sizer[measure]'"
AUTO = "auto"
QUICK_S = 42.0  # of the walks: with the start and the fit, under one minute
FULL_S = {CUDA: 300.0, CPU: 540.0}  # a card does all of its grid twice in that; a CPU needs longer, under ten minutes
QUICK_CALL_S, FULL_CALL_S = 0.1, 0.2  # chosen: the longest call of a kernel
BUSY_SHARE = 0.05  # chosen: of a card's memory that others hold, or of its time that they compute, before it is busy
SUSTAINED_S = {True: 3.0, False: 20.0}  # a card heats up and meets its power limit in seconds
Say = Callable[[int, int, float], None]
"""Told after each kernel: how many are done, of how many, and the seconds that are left."""


def import_torch() -> Any:
    """PyTorch. Raises InputError: it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise InputError(Problem("measuring needs PyTorch, which is not installed", hint=INSTALL)) from error
    return torch


def chosen_device(asked: str) -> str:
    """The device that is measured, as torch calls it. Raises InputError: no such device here."""
    torch = import_torch()
    if asked == AUTO:
        return CUDA if torch.cuda.is_available() else CPU
    name, _, number = asked.partition(":")
    place = Location("--device")
    if name not in (CPU, CUDA) or (number and not number.isdecimal()) or (name == CPU and number):
        raise InputError(Problem(f"'{asked}' is no device", place, "auto, cpu, cuda, or cuda:1"))
    if name == CUDA and not torch.cuda.is_available():
        raise InputError(Problem("this PyTorch finds no GPU", place, "--device cpu measures the processor"))
    if number and int(number) >= torch.cuda.device_count():
        raise InputError(Problem(f"there are {torch.cuda.device_count()} GPUs, the first is cuda:0", place))
    if name == CUDA:
        torch.cuda.set_device(int(number or 0))
    return asked


def refuse_busy(device: str) -> None:
    """Raise InputError where others use the device: what is timed beside them says nothing of it.

    A card by its driver, a CPU by the processes that are ready to run.
    """
    said = _busy_card(device) if device.startswith(CUDA) else _busy_processor()
    if said:
        raise InputError(
            Problem(said, Location("--device"), "wait until it is idle, or measure all the same: --anyway")
        )


def _busy_card(device: str) -> str | None:
    torch = import_torch()
    free, total = torch.cuda.mem_get_info(torch.device(device))
    own = torch.cuda.memory_reserved(torch.device(device))
    held = 1.0 - (free + own) / total
    try:
        used = torch.cuda.utilization(torch.device(device)) / 100.0
    except Exception:  # noqa: BLE001  nvidia-ml-py is missing or refuses: memory alone tells
        used = 0.0
    context = 0.02  # what this process holds itself
    if held > BUSY_SHARE + context or used > BUSY_SHARE:
        return (
            f"the card is busy: others hold {100 * held:.0f} % of its memory and use it {100 * used:.0f} % of the time"
        )
    return None


def _busy_processor() -> str | None:
    import os

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > max(0.5 * cores, 1.0):
        return f"the processor is busy: {load:.1f} processes were ready to run in the last minute, on {cores} cores"
    return None


def machine(device: str, watch_words: str = "") -> Machine:
    """The machine at hand, as samples and profiles name it."""
    torch = import_torch()
    memory = host_memory_bytes()
    host = processor()
    if device.startswith(CUDA):
        properties = torch.cuda.get_device_properties(device)
        kind = (torch.version.hip and "HIP") or "CUDA"
        below = torch.version.hip or torch.version.cuda
        name, bytes_, count = properties.name, float(properties.total_memory), torch.cuda.device_count()
        driver = next((card.driver for card in installed_cards() if card.name == name), "")
        software = f"torch {torch.__version__}, {kind} {below}" + (f", driver {driver}" if driver else "")
        conditions = watch_words
    else:
        name, bytes_, count = host, memory or 0.0, 1
        software = f"torch {torch.__version__}"
        conditions = f"{torch.get_num_threads()} threads"
    return Machine(
        device=name,
        kind=device.partition(":")[0],
        software=software,
        memory_bytes=bytes_,
        devices=count,
        host=f"{host}, {platform.system()}",
        host_memory_bytes=memory,
        date=datetime.now(UTC).date().isoformat(),
        conditions=conditions,
    )


def silent(done: int, whole: int, left_s: float) -> None:
    """Say nothing of how far a walk is."""


# A first look, which decides what of the grid is possible.

LOOK = {"m": 1024.0, "n": 1024.0, "k": 1024.0}
LOOK_ELEMENTS = float(2**23)


def look(device: str, timer: Timer, memory_bytes: float, quick: bool) -> grid.Rates:
    """What the device does at most: one product in each format, and one stream."""
    from xe_sizer.measure import kernels

    flops: dict[str, float] = {}
    known, base = kernels.formats(device), kernels.sixteen_bit(device)
    for name in known:
        product = Kernel(law=MATMUL, name=name, sizes=LOOK)
        taken = timer.sample(product, kernels.build(product, device, None), 0.05, 0)
        flops[name] = grid.work(product, 2.0)[0] / taken.low
    # A format that is slower than float32 is emulated; nobody trains in 8-bit integers.
    emulated = {name for name, rate in flops.items() if rate < flops.get(FP32, 0.0) and name != base}
    left_out = emulated | ({INT8} if quick else set())
    flops = {name: rate for name, rate in flops.items() if name not in left_out}
    stream = Kernel(law=MEMORY, name="scale", sizes={"elements": LOOK_ELEMENTS}, form=base)
    taken = timer.sample(stream, kernels.build(stream, device, None), 0.05, 0)
    moved = grid.work(stream, kernels.element_bytes(base))[1]
    return grid.Rates(
        flops_per_s=flops,
        element_bytes={name: kernels.element_bytes(name) for name in flops},
        bytes_per_s=moved / taken.low,
        memory_bytes=memory_bytes,
        a_call_s=QUICK_CALL_S if quick else FULL_CALL_S,
    )


def kernels_of(device: str, rates: grid.Rates, models: Iterable[ModelShape], quick: bool) -> list[Kernel]:
    """The grid of a device."""
    from xe_sizer.measure import kernels

    card, base = device.startswith(CUDA), kernels.sixteen_bit(device)
    weights = grid.weights_of(models)
    found = [*grid.products(weights, rates, quick), *grid.attention(rates, kernels.families(device), card, quick)]
    found += grid.moving(rates, base, quick)
    if base in rates.flops_per_s:
        found += grid.grouped(rates, base, quick)
    if not card or kernels.paged_kernels():
        found += grid.decoding(rates, base, card, quick)
    found += grid.beside(card, quick)
    return list({kernel.key: kernel for kernel in found}.values())


def budget_s(device: str, quick: bool) -> float:
    """How long kernels are timed [s]."""
    return QUICK_S if quick else FULL_S[device.partition(":")[0]]


class Walk(Immutable):
    """What walks of the grid left: kernels that were timed, and those that failed with the reason."""

    timed: int
    failed: tuple[tuple[str, str], ...]
    interrupted: bool


def walk(
    found: Sequence[Kernel],
    device: str,
    samples: Samples,
    timer: Timer,
    budget_s: float,
    say: Say = silent,
) -> Walk:
    """Time the kernels of a grid within a budget: twice, the second time in another order.

    Those that an earlier run has not timed come first. What was timed is in the file whatever happens: an interrupt
    ends the walk, and what there is is used.
    """
    from xe_sizer.measure import kernels

    first, second, draw = list(found), list(found), random.Random(0)
    draw.shuffle(first)  # so that a walk that ends early has kernels of every law
    draw.shuffle(second)
    order = sorted(first, key=samples.times)
    began, done = time.monotonic(), 0
    failed: dict[str, str] = {}
    planned = [(1, kernel) for kernel in order] + [(2, kernel) for kernel in second]
    try:
        for walked, kernel in planned:
            left_s = budget_s - (time.monotonic() - began)
            if left_s <= 0.0:
                break
            share_s = left_s / (len(planned) - done)
            done += 1
            if kernel.words in failed:
                continue
            try:
                call = kernels.build(kernel, device, samples.file.parent)
                samples.add(timer.sample(kernel, call, 0.6 * share_s, walked))  # the rest is for operands
            except (RuntimeError, NotImplementedError) as error:  # out of memory, or no kernel for such sizes
                failed[kernel.words] = str(error).splitlines()[0][:120]
            say(done, len(planned), max(budget_s - (time.monotonic() - began), 0.0))
    except KeyboardInterrupt:
        return Walk(done, tuple(failed.items()), interrupted=True)
    return Walk(done, tuple(failed.items()), interrupted=False)


def run_hot(kernel: Kernel, device: str, samples: Samples, seconds: float) -> None:
    """Multiply for some seconds, and keep what a product takes at first (low) and in the last third (seconds)."""
    import statistics

    from xe_sizer.measure import kernels
    from xe_sizer.measure.samples import Sample

    call, timer = kernels.build(kernel, device, None), Timer(device)
    times: list[float] = []
    call(0)
    timer.wait()
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or len(times) < 9:
        began = time.perf_counter()
        for place in range(10):
            call(place)
        timer.wait()
        times.append((time.perf_counter() - began) / 10)
    third = max(len(times) // 3, 1)
    first, last = statistics.median(times[: max(third // 3, 1)]), statistics.median(times[-third:])
    samples.add(Sample(kernel=kernel, seconds=last, low=first, high=max(times), repeats=10 * len(times), walk=1))
