"""Samples of a device whose laws are known: what kernels would take by these, with a spread that is drawn."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from xe_sizer.laws.attention import AttentionLaw
from xe_sizer.laws.matmul import MatmulLaw
from xe_sizer.measure import fit
from xe_sizer.measure.samples import (
    ATTENTION,
    BACKWARD,
    FORWARD,
    HOST,
    MATMUL,
    MEMORY,
    Kernel,
    Machine,
    Point,
    Sample,
)

PEAK, BANDWIDTH = 989e12, 3350e9  # of the H100's profile
PRODUCTS = MatmulLaw(floor_s=4e-6, flops_efficiency=0.6, memory_efficiency=0.7, sharpness=2.0)
KERNELS = AttentionLaw(
    floor_s=8e-6, flops_efficiency=0.5, half_length=200.0, memory_efficiency=0.6, backward_flops_efficiency=0.4
)
CARD = Machine(
    device="NVIDIA H100 80GB HBM3", kind="cuda", software="torch 2.11.0, CUDA 13.0", memory_bytes=85e9, devices=8,
    host="a host", host_memory_bytes=1e12, date="2026-11-27", conditions="SM clock 1755 MHz",
)  # fmt: skip
PROCESSOR = Machine(
    device="ACME 9000, 8 cores", kind="cpu", software="torch 2.13.0", memory_bytes=64e9, devices=1,
    host="ACME 9000, 8 cores", host_memory_bytes=64e9, date="2026-11-27", conditions="8 threads",
)  # fmt: skip


def products(name: str = "bf16") -> list[Kernel]:
    return [
        Kernel(law=MATMUL, name=name, sizes={"m": m, "n": n, "k": k}, form=FORWARD)
        for m in (1, 16, 256, 1024, 4096, 16384)
        for n, k in ((1024, 1024), (4096, 4096), (14336, 4096), (4096, 14336))
    ]


def attention(name: str) -> list[Kernel]:
    return [
        Kernel(law=ATTENTION, name=name, sizes={"batch": 1, "heads": 32, "length": s, "head_dim": 128}, form=form)
        for s in (256, 512, 1024, 2048, 4096, 8192)
        for form in (FORWARD, BACKWARD)
    ]


def moving(form: str = "bf16") -> list[Kernel]:
    return [
        Kernel(law=MEMORY, name=name, sizes={"elements": float(2**power)}, form=form)
        for name in ("add", "scale")
        for power in (16, 20, 24, 28)
    ]


def launch() -> Kernel:
    return Kernel(law=HOST, name="launch", sizes={"kernels": 200})


def timed(kernels: Iterable[Kernel], spread: float = 0.0, slower: float = 1.0) -> list[Point]:
    """Points by the laws above, each off by its own factor. slower : than by the laws"""
    draw = np.random.default_rng(7)
    found = []
    for kernel in kernels:
        point = Point(kernel=kernel, seconds=1.0, apart=1.0)
        seconds = slower * _seconds(point) * float(np.exp(spread * draw.standard_normal()))
        found.append(Point(kernel=kernel, seconds=seconds, apart=1.0))
    return found


def _seconds(point: Point) -> float:
    law = point.kernel.law
    if law == MATMUL:
        return float(fit.seconds_of_products([point], PRODUCTS, PEAK, BANDWIDTH, 2.0)[0])
    if law == ATTENTION:
        return float(fit.seconds_of_attention([point], KERNELS, PEAK, BANDWIDTH, 2.0)[0])
    if law == HOST:
        return 200 * 5e-6
    return float(fit.seconds_of_moving([point], 0.8, 3e-6, BANDWIDTH, 2.0)[0])


def samples(kernels: Iterable[Kernel], spread: float = 0.0, slower: float = 1.0, walk: int = 1) -> list[Sample]:
    return [
        Sample(kernel=point.kernel, seconds=point.seconds, low=point.seconds, high=point.seconds, repeats=5, walk=walk)
        for point in timed(kernels, spread, slower)
    ]
