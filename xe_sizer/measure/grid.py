"""Which kernels are timed, at which sizes: those of the catalogue's models, as far as the device does them in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import INT8
from xe_sizer.measure.samples import (
    ATTENTION,
    BACKWARD,
    COPY,
    DECODE,
    FORWARD,
    GROUPED,
    HOST,
    MATMUL,
    MEMORY,
    STORAGE,
    SUSTAINED,
    Kernel,
)
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape

INPUT_GRADIENT, WEIGHT_GRADIENT = "input-gradient", "weight-gradient"
FORMS = (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)
# Kernels that only move memory: bytes of an element that each reads and writes, by size of an element.
MOVING = {"add": 3.0, "scale": 2.0, "silu": 2.0, "layer-norm": 2.0, "softmax": 2.0}
UPDATE = "update"  # one kernel of AdamW of float32 weights, gradients and both moments: 4 are read, 3 written
UPDATE_BYTES = 7 * FLOAT32
LAUNCH, STEP = "launch", "optimizer-step"
TO_DEVICE, FROM_DEVICE, WRITE = "to-device", "from-device", "write"
# Chosen: rows of a product, tokens of a sequence, elements that are moved, and how many of the catalogue's weights.
ROWS = {True: (16, 256, 1024, 4096), False: (1, 16, 64, 256, 512, 1024, 2048, 4096, 16384)}
WEIGHTS = {True: 3, False: 8}
LENGTHS = {True: (256, 1024), False: (256, 512, 1024, 2048, 4096, 8192)}
HEAD_SIZES = {True: (64,), False: (64, 128)}
MOVED = {True: (2**17, 2**20, 2**23, 2**25), False: tuple(2**power for power in range(16, 31, 2))}
ODD = (4096, 50257, 1600)  # the head of a vocabulary that nobody pads
HEADS = {True: 32, False: 8}  # on a card, which fewer do not fill, and on a CPU
NARROWEST_SIDE = 16  # of weights that cuBLAS multiplies in 8 bit; torch._int_mm wants more rows than that too
LEAST_WEIGHT = 2**16  # elements: below, a product is all floor
SHARE_OF_MEMORY = 0.2  # chosen: of the device's memory that the operands of one kernel take at most
EXPERTS = ((8, 1024, 2048), (64, 2048, 768))  # count, hidden and width of experts, as of Mixtral and Qwen3 in small
FILE_BYTES = {True: 64e6, False: 1e9}
COPY_BYTES = {True: 64e6, False: 512e6}


class Rates(Immutable):
    """What the device does at most, as far as a first look tells: FLOP/s by number format, and bytes/s.

    element_bytes : of each format; a_call_s : what one call of a kernel may take; memory_bytes : of the device
    """

    flops_per_s: dict[str, float]
    element_bytes: dict[str, float]
    bytes_per_s: float
    memory_bytes: float
    a_call_s: float


def weights_of(models: Iterable[ModelShape]) -> tuple[tuple[int, int], ...]:
    """Sides n and k of the weights of all layers and heads, the smallest first."""
    found = set()
    for model in models:
        attention, hidden = model.heads * model.head_dim, model.hidden
        queries = attention + 2 * model.kv_heads * model.head_dim
        found |= {(queries, hidden), (hidden, attention), (model.ffn, hidden), (hidden, model.ffn)}
        found.add((model.vocab, hidden))
    large = (sides for sides in found if sides[0] * sides[1] >= LEAST_WEIGHT)
    return tuple(sorted(large, key=lambda sides: (sides[0] * sides[1], sides)))


def work(kernel: Kernel, element_bytes: float) -> tuple[float, float]:
    """FLOP and bytes of one call.

    2 m n k;  2 b a s (s + 1) d, times 2.5 backward;  bytes of all operands, once each
    """
    size = kernel.sizes
    if kernel.law in (MATMUL, GROUPED, SUSTAINED):
        m, n, k, copies = size["m"], size["n"], size["k"], size.get("copies", 1.0)
        return 2.0 * m * n * k * copies, (m * n + n * k + m * k) * copies * element_bytes
    if kernel.law == ATTENTION:
        tokens = size["batch"] * size["heads"] * size["length"] * size["head_dim"]
        flops = 2.0 * tokens * (size["length"] + 1.0)
        return flops * (2.5 if kernel.form == BACKWARD else 1.0), 4.0 * tokens * element_bytes
    if kernel.law == DECODE:
        read = 2.0 * size["batch"] * size["heads"] * size["length"] * size["head_dim"]
        return 2.0 * read, read * element_bytes
    if kernel.law == MEMORY:
        each = UPDATE_BYTES if kernel.name == UPDATE else MOVING[kernel.name] * element_bytes
        return 0.0, size["elements"] * each
    return 0.0, size.get("bytes", 0.0)


def is_known(kernel: Kernel) -> bool:
    """Whether this version times such kernels; another one may have written them down."""
    return kernel.law != MEMORY or kernel.name in (*MOVING, UPDATE)


def in_time(kernels: Iterable[Kernel], rates: Rates) -> Iterator[Kernel]:
    """The kernels of which a call is short enough, and whose operands the memory takes.

    Other than the law expects, half of the peak and of the bandwidth count: most kernels reach more.
    """
    for kernel in kernels:
        element = rates.element_bytes.get(kernel.name, SIXTEEN_BIT)
        flops, moved = work(kernel, element)
        rate = rates.flops_per_s.get(kernel.name) or max(rates.flops_per_s.values())
        seconds = 2.0 * (flops / rate + moved / rates.bytes_per_s)
        if seconds <= rates.a_call_s and moved <= SHARE_OF_MEMORY * rates.memory_bytes:
            yield kernel


def _spread(found: Sequence[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """So many of a sorted list, from its first to its last, as far apart as can be."""
    if found:
        yield from (found[place] for place in dict.fromkeys(np.linspace(0, len(found) - 1, count).round().astype(int)))


def products(weights: Sequence[tuple[int, int]], rates: Rates, quick: bool) -> Iterator[Kernel]:
    """Products of each number format: rows from one token to many, weights from the smallest to the largest."""
    for name in rates.flops_per_s:
        turn = 0
        for rows in ROWS[quick]:
            sides = [
                (int(kernel.sizes["n"]), int(kernel.sizes["k"]))
                for kernel in in_time((_product(name, rows, n, k, FORWARD) for n, k in weights), rates)
                if _possible(kernel, rates.element_bytes[name])
            ]
            for n, k in _spread(sides, WEIGHTS[quick]):
                yield _product(name, rows, n, k, FORWARD)
                if rows >= 256:  # where there are few, nothing learns
                    turn += 1
                    yield _product(name, rows, n, k, FORMS[1 + turn % 2])
        if rates.element_bytes[name] == SIXTEEN_BIT:
            yield from in_time((_product(name, *ODD, form) for form in FORMS), rates)


def _possible(kernel: Kernel, element_bytes: float) -> bool:
    """Whether libraries have a kernel of these sizes."""
    if element_bytes > 1.0:
        return True
    sides = kernel.sizes["n"] % NARROWEST_SIDE == 0 and kernel.sizes["k"] % NARROWEST_SIDE == 0
    return sides and (kernel.name != INT8 or kernel.sizes["m"] > NARROWEST_SIDE)


def _product(name: str, rows: int, n: int, k: int, form: str) -> Kernel:
    return Kernel(law=MATMUL, name=name, sizes={"m": rows, "n": n, "k": k}, form=form)


def grouped(rates: Rates, name: str, quick: bool) -> Iterator[Kernel]:
    """Products of experts in one kernel, in 16 bit."""
    rows = (64, 256) if quick else (16, 64, 256, 1024)
    found = (
        Kernel(law=GROUPED, name=name, sizes={"m": each, "n": width, "k": hidden, "copies": count})
        for count, hidden, width in EXPERTS
        for each in rows
    )
    return in_time(found, rates)


def attention(rates: Rates, families: Iterable[str], card: bool, quick: bool) -> Iterator[Kernel]:
    """Causal attention of each family of kernels, forward and backward; its number format follows from the family."""
    found = (
        Kernel(
            law=ATTENTION,
            name=family,
            sizes={"batch": batch, "heads": HEADS[card], "length": length, "head_dim": size},
            form=form,
        )
        for family in families
        for size in HEAD_SIZES[quick]
        for length in LENGTHS[quick]
        for batch in (1, 4)
        for form in (FORWARD, BACKWARD)
    )
    return in_time(found, rates)


def decoding(rates: Rates, name: str, card: bool, quick: bool) -> Iterator[Kernel]:
    """Attention of one query over a cache."""
    found = (
        Kernel(law=DECODE, name=name, sizes={"batch": batch, "heads": HEADS[card], "length": length, "head_dim": 128})
        for batch in ((1, 16) if quick else (1, 4, 16, 64))
        for length in ((512, 4096) if quick else (512, 2048, 8192, 32768))
    )
    return in_time(found, rates)


def moving(rates: Rates, name: str, quick: bool) -> Iterator[Kernel]:
    """Kernels that only move memory, in elements of one format, and an update of weights in float32."""
    operations = (*MOVING, UPDATE)
    found = (
        Kernel(law=MEMORY, name=operation, sizes={"elements": elements}, form=name)
        for operation in operations
        for elements in MOVED[quick]
    )
    return in_time(found, rates)


def beside(card: bool, quick: bool) -> Iterator[Kernel]:
    """What is no kernel of a model: launches of the host, copies to and from a card, a file that is written."""
    yield Kernel(law=HOST, name=LAUNCH, sizes={"kernels": 200})
    yield Kernel(law=HOST, name=STEP, sizes={"tensors": 64})
    if card:
        yield from (Kernel(law=COPY, name=way, sizes={"bytes": COPY_BYTES[quick]}) for way in (TO_DEVICE, FROM_DEVICE))
    yield Kernel(law=STORAGE, name=WRITE, sizes={"bytes": FILE_BYTES[quick]})


def sustained(weights: Sequence[tuple[int, int]], rates: Rates, name: str) -> Iterator[Kernel]:
    """The largest product that the device does in time, for a run of seconds."""
    *_, last = [None, *in_time((_product(name, 4096, n, k, FORWARD) for n, k in weights), rates)]
    if last is not None:
        yield Kernel(law=SUSTAINED, name=name, sizes=last.sizes)
