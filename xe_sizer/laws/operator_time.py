"""Seconds of operators on one accelerator: joins the graph's sizes with the accelerator's laws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from xe_sizer.graph.operators import (
    Array,
    Attention,
    Collective,
    Matmul,
    MemoryBound,
    Scan,
    as_array,
    launches,
    stacked,
)
from xe_sizer.immutable import Immutable
from xe_sizer.laws.attention import (
    EAGER_BACKWARD_FLOPS,
    FLASH_BACKWARD_FLOPS,
    MEASURED_HEAD_DIM,
    DecodeLaw,
    attention_time_s,
    decode_attention_time_s,
    eager_attention_bytes,
)
from xe_sizer.laws.matmul import grouped_law, masks, matmul_time_s, misalignment, tile_padding
from xe_sizer.laws.scans import SCAN_ERROR, scan_law, scan_time_s

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Casts
    from xe_sizer.graph.operators import Operator
    from xe_sizer.laws.attention import AttentionLaw
    from xe_sizer.laws.matmul import MatmulLaw

# Kernels that only move memory: norms, activations, rotary, residuals, casts, loss, optimizer.


def memory_bound_time_s(
    moved_bytes: ArrayLike,
    launches: ArrayLike,
    bandwidth_bytes_per_s: float,
    efficiency: float,
    floor_s: float,
) -> NDArray[np.float64]:
    """Time of kernels that only move memory.

        t = bytes / (e bandwidth) + launches t0

    Parameters
    ----------
    moved_bytes : what the kernels read and write: a fused kernel moves each tensor once, an unfused chain once per step
        of the chain [bytes]
    launches : kernels [-]
    bandwidth_bytes_per_s : of the accelerator's memory [bytes/s]
    efficiency : e, share of the bandwidth that streaming kernels reach [-]
    floor_s : t0, time of the accelerator's smallest kernel [s]

    Returns
    -------
    ndarray of float, shape that bytes and launches broadcast to, seconds [s]; zero where nothing moves

    Source: streaming kernels reach 0.8 to 0.9 of the bandwidth; e and t0 stand in the accelerator's profile.
    """
    moved = np.asarray(moved_bytes, dtype=np.float64)
    return np.where(moved > 0, moved / (efficiency * bandwidth_bytes_per_s) + np.asarray(launches) * floor_s, 0.0)


# Seconds of all operators.

NO_LAW = DecodeLaw(0.0, 1.0)  # of devices that train
# Fitted: keys that queries gather each on its own come from the cache of the chip too: 19 GB for 16,384 queries of
# 2,048 keys in 8 bit take 2 ms on B200 (SGLang and TensorRT-LLM, 8 heads, in 8 and 16 bit, timed by aiconfigurator).
GATHERED_SHARE = 1.2
Times = tuple[Array, Array, Array]
"""Seconds forward, backward, and of that for weight gradients."""
ATTENTION_BACKWARD_BYTES = 2.5  # over those of the forward; assumed to grow as the FLOPs of flash attention do


class Device(Immutable):
    """One accelerator at one precision, as a stack drives it.

    `expert_matmul` is the law of grouped products of experts, `reserved_matmul` where their rows are reserved for the
    worst case (None: as elsewhere), `adapter_*` that of adapters, which may run in another precision than the base
    model, on elements of `adapter_element_bytes` (None: as elsewhere); `scan_matmul` those inside scans, which run in
    the precision of attention.
    `narrow_attention_peak_flops_per_s` is that of attention whose operands are in 8 bit [FLOP/s].
    `masked_attention` is the law of attention kernels that take a mask, `eager_attention` that of the products of
    attention step by step, which tensor cores do in TF32 too; None: as fused kernels.
    `weight_element_bytes` [bytes] where weights are kept in another format than activations, but for those of the
    `wide_modules`, which keep and multiply what attention does. `casts`: what it takes to narrow operands, in kernels
    beside the products; None: nothing is narrowed so. `scan_law_holds`: scans are as slow as their kernels are.
    """

    matmul: MatmulLaw
    peak_flops_per_s: float
    attention: AttentionLaw
    masked_attention: AttentionLaw
    attention_peak_flops_per_s: float
    narrow_attention_peak_flops_per_s: float
    adapter_matmul: MatmulLaw
    adapter_peak_flops_per_s: float
    expert_matmul: MatmulLaw
    scan_matmul: MatmulLaw
    bandwidth_bytes_per_s: float
    memory_bound_efficiency: float
    memory_bound_floor_s: float
    element_bytes: float
    decode: DecodeLaw = NO_LAW
    weight_element_bytes: float | None = None
    adapter_element_bytes: float | None = None
    wide_modules: frozenset[str] = frozenset()
    casts: Casts | None = None
    scan_law_holds: bool = True
    reserved_matmul: MatmulLaw | None = None
    eager_attention: AttentionLaw | None = None
    memory_bound_error: float | None = None

    def error_of(self, op: Operator) -> float | None:
        """What nine in ten kernels of an operator's law are closer than to it [-]; None where no one fit tells."""
        if isinstance(op, Matmul):
            return _matmul_laws(op, self)[0].p90_error
        if isinstance(op, Scan):
            return SCAN_ERROR
        if not isinstance(op, Attention):
            return self.memory_bound_error
        if op.kernel == "decode":
            return self.decode.p90_error
        law = (self.eager_attention or self.attention) if op.kernel == "eager" else self.attention
        if op.masked is None or not np.any(op.masked):
            return law.p90_error
        return worst_of((law.p90_error, self.masked_attention.p90_error))


class OperatorTime(Immutable):
    """Seconds of one operator in all layers that contain it; collectives are timed elsewhere.

    `weight_s` is the part of `backward_s` spent on weight gradients, which nothing needs before the optimizer.
    """

    operator: Operator
    forward_s: Array
    backward_s: Array
    weight_s: Array


def _matmul_laws(op: Matmul, device: Device) -> tuple[MatmulLaw, float, float, float | None]:
    """Law, peak [FLOP/s] and sizes of an element of the activations and of a weight [bytes] of a product."""
    size = device.element_bytes
    if op.module in device.wide_modules:
        law = grouped_law(device.scan_matmul) if op.grouped else device.scan_matmul
        return law, device.attention_peak_flops_per_s, size, None
    if op.grouped:
        peak = device.adapter_peak_flops_per_s if op.adapter else device.peak_flops_per_s
        return device.expert_matmul, peak, size, device.weight_element_bytes
    if op.adapter and device.adapter_element_bytes:
        return device.adapter_matmul, device.adapter_peak_flops_per_s, device.adapter_element_bytes, None
    if op.adapter:
        return device.adapter_matmul, device.adapter_peak_flops_per_s, size, device.weight_element_bytes
    return device.matmul, device.peak_flops_per_s, size, device.weight_element_bytes


def _products(op: Matmul, backward: bool) -> Iterator[tuple[tuple[Array, Array, Array], float]]:
    """Sizes m, n, k of the forward, and of the gradients of input and weight where they are computed.

    With each what it moves of an element of the gradient that it adds to [bytes].
    """
    yield (op.m, op.n, op.k), 0.0
    if backward and op.input_gradient:
        yield (op.m, op.k, op.n), 0.0
    if backward and op.weight_gradient:
        yield (op.k, op.n, op.m), op.accumulated_bytes


def _slowdown(op: Matmul, law: MatmulLaw) -> Array:
    """Of few rows, and of weights that are not aligned; adapters are as narrow as they are.

    Most stacks pad vocabularies; of one that nobody pads the rest of a division by 8 counts.
    """
    rows = np.where(op.m < law.few_rows, 1.0 / law.few_rows_share, 1.0)
    if law.grouped:
        rows = rows * (1.0 if op.padding is None else op.padding) * np.where(masks(op.n, op.k), law.masked, 1.0)
    if op.adapter or (op.module == "head" and not op.unpadded):
        return rows
    return np.asarray(rows * misalignment(op.n, op.k, 1.0 if op.unpadded else law.misaligned, law.unaligned))


def _matmul_times(ops: Sequence[Matmul], device: Device, backward: bool) -> Iterator[tuple[Matmul, Times]]:
    """Seconds of products; where an expert is alone on its rank or rows are reserved, by the law for these there."""
    laws = (
        (device.matmul, [(op, op.alone) for op in ops if op.alone is not None and np.any(op.alone)]),
        (device.reserved_matmul, [(op, op.reserved) for op in ops if op.reserved is not None]),
    )
    seconds = {id(op): times for op, times in _product_times(ops, device, backward)}
    for law, there in laws:
        if law is None or not there:
            continue
        where = {id(op): points for op, points in there}
        for op, times in _product_times([op for op, _ in there], replace(device, expert_matmul=law), backward):
            both = zip(times, seconds[id(op)], strict=True)
            forward, back, weights = (np.where(where[id(op)], *pair) for pair in both)
            seconds[id(op)] = forward, back, weights
    yield from ((op, seconds[id(op)]) for op in ops)


def _product_times(ops: Sequence[Matmul], device: Device, backward: bool) -> Iterator[tuple[Matmul, Times]]:
    """Seconds of products, those of one law in one array of shape (product, rank shape)."""
    by_law: dict[tuple[MatmulLaw, float, float, float | None], list[Matmul]] = {}
    for op in ops:
        by_law.setdefault(_matmul_laws(op, device), []).append(op)
    for (law, peak, size, weight_bytes), alike in by_law.items():
        listed = [(op, *product) for op in alike for product in _products(op, backward)]
        products = [(op, sizes) for op, sizes, _ in listed]
        shape = np.broadcast_shapes(*{size.shape for op in alike for size in (op.m, op.n, op.k, op.copies)})
        m, n, k = (stacked([sizes[place] for _, sizes in products], shape) for place in range(3))
        copies = stacked([op.copies for op, _ in products], shape)
        slower = stacked([_slowdown(op, law) for op, _ in products], shape)
        slower, bandwidth = slower * tile_padding(m, n, law.tile), device.bandwidth_bytes_per_s
        added = np.reshape([more for _, _, more in listed], (-1, *(1 for _ in shape)))
        cast = stacked([sizes[0] if op.cast_rows is None else op.cast_rows for op, sizes in products], shape)
        whole = matmul_time_s(m, n, k, law, peak, bandwidth, size, weight_bytes, slower, added, cast)
        # Grouped experts run together: sizes grow by the copies, the launch floor is paid once.
        floor_s = np.where(m * n * k > 0, law.floor_s, 0.0)
        apart = np.reshape([op.apart and not op.grouped for op, _ in products], (-1, *(1 for _ in shape)))
        seconds = iter((whole - floor_s) * copies + floor_s * np.where(apart, copies, 1.0))
        for op in alike:
            forward = next(seconds)
            zero = np.zeros_like(forward)
            inputs = next(seconds) if backward and op.input_gradient else zero
            weights = next(seconds) if backward and op.weight_gradient else zero
            again = zero if op.tiles is None or not backward else forward
            yield op, (forward, inputs + weights + again, weights)


def _attention_times(op: Attention, device: Device) -> tuple[Array, Array]:
    """Fused kernels pay for what the mask leaves; eager attention multiplies and moves the full scores."""
    blocks = 1.0 if op.blocks is None else op.blocks
    moved = op.operand_bytes(device.element_bytes) / blocks
    seen = op.key if op.window is None else np.minimum(op.key, op.window)
    sequence = np.asarray(seen) / blocks
    flops = op.forward_flops / blocks
    scores_s, scores_backward_s = np.zeros_like(flops), np.zeros_like(flops)
    backward_flops = FLASH_BACKWARD_FLOPS * flops
    if op.kernel == "eager":
        flops = flops * (op.query * op.key) / op.pairs
        backward_flops = EAGER_BACKWARD_FLOPS * flops
        passes = [
            eager_attention_bytes(op.batch, op.heads, op.query, op.key, device.element_bytes, backward, op.softmax)
            for backward in (False, True)
        ]
        scores_s, scores_backward_s = (_moved_s(passed, 0.0, device) for passed in passes)
    law, bandwidth = device.attention, device.bandwidth_bytes_per_s
    peak = device.narrow_attention_peak_flops_per_s if op.narrow else device.attention_peak_flops_per_s
    head_dim = op.head_dim
    if op.kernel == "eager":
        law, head_dim = device.eager_attention or law, MEASURED_HEAD_DIM  # scores move beside the products
    if op.kernel == "decode":
        reached = law.flops_efficiency * peak
        forward = decode_attention_time_s(flops, moved, device.decode, reached, bandwidth)
        return forward, np.zeros_like(forward)
    forward = blocks * attention_time_s(flops, moved, sequence, law, peak, bandwidth, head_dim=head_dim) + scores_s
    if op.gathers and not math.isinf(law.sharpness):
        gathered_s = op.gathered_bytes(device.element_bytes) / (GATHERED_SHARE * bandwidth)
        forward = np.maximum(forward, np.where(op.batch > 0, law.floor_s + gathered_s, 0.0))
    if op.peak_share is not None and not math.isinf(law.sharpness):
        forward = np.maximum(forward, np.where(op.batch > 0, law.floor_s + flops / (op.peak_share * peak), 0.0))
    moved = ATTENTION_BACKWARD_BYTES * moved
    backward = blocks * attention_time_s(backward_flops, moved, sequence, law, peak, bandwidth, True, head_dim)
    if op.masked is not None:
        masked, masked_backward = _masked_attention_times(op, device)
        forward = forward + op.masked * (masked - forward)
        backward = backward + op.masked * (masked_backward - backward)
    return forward, backward + scores_backward_s


def _masked_attention_times(op: Attention, device: Device) -> tuple[Array, Array]:
    """Kernels that are given a mask work on all pairs, and read the mask once for every head in each direction.

    Source: PyTorch aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h and kernel_backward.h:
    blocks of keys are left out under is_causal alone, and every head loads its tiles of the bias.
    """
    law, peak, bandwidth = device.masked_attention, device.attention_peak_flops_per_s, device.bandwidth_bytes_per_s
    sequence, scores = np.asarray(op.key), op.batch * op.heads * op.query * op.key
    flops, mask_bytes = op.forward_flops * (op.query * op.key) / op.pairs, scores * device.element_bytes
    moved = op.operand_bytes(device.element_bytes)
    forward = attention_time_s(flops, moved + mask_bytes, sequence, law, peak, bandwidth, head_dim=op.head_dim)
    flops, moved = FLASH_BACKWARD_FLOPS * flops, ATTENTION_BACKWARD_BYTES * moved + mask_bytes
    return forward, attention_time_s(flops, moved, sequence, law, peak, bandwidth, True, op.head_dim)


def _scan_times(op: Scan, device: Device) -> tuple[Array, Array]:
    """Fixed efficiencies price products and bytes as those of any other operator, and no walk."""
    bandwidth = device.memory_bound_efficiency * device.bandwidth_bytes_per_s
    law, peak = scan_law(op.kind, op.fused), device.attention_peak_flops_per_s
    if not device.scan_law_holds:
        law = replace(law, flops_per_s=math.inf, chunk_s=0.0, slower=1.0)
        peak = device.scan_matmul.flops_efficiency * device.attention_peak_flops_per_s
    forward = scan_time_s(op.forward_flops, op.moved_bytes, op.walked, law, peak, bandwidth)
    forward = forward + np.where(op.moved_bytes > 0, op.kernels * device.memory_bound_floor_s, 0.0)
    return forward, law.backward * forward


def _moved_s(moved_bytes: Array, kernels: ArrayLike, device: Device) -> Array:
    return memory_bound_time_s(
        moved_bytes,
        kernels,
        device.bandwidth_bytes_per_s,
        device.memory_bound_efficiency,
        device.memory_bound_floor_s,
    )


def _moving_times(ops: Sequence[MemoryBound], device: Device, backward: bool) -> Iterator[tuple[MemoryBound, Times]]:
    """Seconds of operators that only move memory, in one array of shape (pass, rank shape)."""
    if not ops:
        return
    passes = [(op.forward_bytes, op.forward_launches) for op in ops]
    passes += [(op.backward_bytes, op.backward_launches) for op in ops] if backward else []
    shape = np.broadcast_shapes(*{np.shape(moved) for moved, _ in passes})
    shape = np.broadcast_shapes(shape, *{np.shape(launched) for _, launched in passes})
    moved_bytes = stacked([moved for moved, _ in passes], shape)
    kernels = stacked([as_array(launched) for _, launched in passes], shape)
    seconds = _moved_s(moved_bytes, kernels, device)
    zero = np.zeros(1)
    for row, op in enumerate(ops):
        back = seconds[len(ops) + row] if backward else np.zeros_like(seconds[row])
        yield op, (seconds[row], back, zero)


def operator_times(operators: Iterable[Operator], device: Device, backward: bool = True) -> tuple[OperatorTime, ...]:
    """Seconds of every operator but the collectives, forward and backward, summed over its layers.

        t = layers x law(sizes)

    Matrix products, attention, scans and memory-bound operators each follow their law; the backward of a product is one
    product for each gradient that is computed, that of flash attention 2.5 times its forward's FLOPs, that of a scan
    as often its forward as its law says.

    Parameters
    ----------
    operators : of one rank and one micro-batch, sizes of shape (rank shape,)
    device : laws and peaks of the accelerator
    backward : whether gradients are timed too; without, what would be theirs is not to be relied on

    Returns
    -------
    tuple of OperatorTime, in the order of the operators; arrays broadcast to shape (rank shape,), seconds [s] of one
    micro-batch over all layers

    Source: laws of the accelerator's profile; Dao 2022 (arXiv:2205.14135), algorithm 4, for the backward of attention.
    """
    timed = [op for op in operators if not isinstance(op, Collective)]
    times: dict[int, Times] = {}
    zero: Array = np.zeros(1)
    for product, seconds in _matmul_times([op for op in timed if isinstance(op, Matmul)], device, backward):
        times[id(product)] = seconds
    for moving, seconds in _moving_times([op for op in timed if isinstance(op, MemoryBound)], device, backward):
        times[id(moving)] = seconds
    for op in timed:
        if isinstance(op, Attention):
            times[id(op)] = (*_attention_times(op, device), zero)
        elif isinstance(op, Scan):
            times[id(op)] = (*_scan_times(op, device), zero)
        elif not isinstance(op, Matmul | MemoryBound):
            raise TypeError(f"no law for {type(op).__name__}")
    return tuple(OperatorTime(op, *(op.layers * side for side in times[id(op)])) for op in timed)


def worst_of(errors: Iterable[float | None]) -> float | None:
    """The largest of several errors [-]; None where one of them is unknown."""
    worst = 0.0
    for error in errors:
        if error is None:
            return None
        worst = max(worst, error)
    return worst


def launch_counts(operators: Iterable[Operator]) -> tuple[Array, Array]:
    """Kernels that one micro-batch launches over all layers.

        launches = sum of layers x launches of the operator

    Parameters
    ----------
    operators : of one rank and one micro-batch

    Returns
    -------
    (forward, backward), ndarrays of float that broadcast to shape (rank shape,) [-]

    Source: `graph.operators.launches`.
    """
    forward, backward = np.zeros(1), np.zeros(1)
    for op in operators:
        each = launches(op)
        forward = forward + op.layers * each[0]
        backward = backward + op.layers * each[1]
    return forward, backward


# What one operator is made of, for an explanation: shape, FLOPs, bytes, seconds, and which of them bounds it.
#
# Nothing is computed by equations of its own. FLOPs are the seconds of a device that does one in a second and moves
# anything at once; bytes are those of a device that moves one in a second; so what is counted is what the laws price.

AT_ONCE = 1e300  # defined: a rate at which nothing takes time, but is not nothing
NOTHING = 1e-200  # defined: below, what a device counts that does the rest at once
COMPUTE, MEMORY, LAUNCH, NETWORK = "compute", "memory", "launch", "network"
Sides = tuple["Array", "Array"]
"""Forward and backward."""


class OperatorWork(Immutable):
    """One operator over all its layers and one micro-batch; arrays broadcast to shape (rank shape,).

    seconds, flops, moved_bytes : forward and backward, as the device's laws price them [s], [FLOP], [bytes]
    bounds_s : compute, memory, launch -> seconds that each alone would take, forward and backward together
    """

    operator: Operator
    seconds: Sides
    flops: Sides
    moved_bytes: Sides
    bounds_s: dict[str, Array]


class OperatorCost(Immutable):
    """What one operator takes of a step.

    sizes : its shape by name, as `operator_sizes` says
    times : how often its forward runs in a step; flops, moved_bytes : of all passes of the step, or sent
    parts : name of a part of the step -> seconds that the operator adds to it
    bound : what most of its time is for: compute, memory, launch or network
    """

    operator: Operator
    sizes: dict[str, float]
    times: float
    flops: float
    moved_bytes: float
    parts: dict[str, float]
    bound: str

    @property
    def seconds(self) -> float:
        return sum(self.parts.values(), 0.0)


def _unit_matmul(law: MatmulLaw) -> MatmulLaw:
    return replace(
        law,
        floor_s=0.0,
        flops_efficiency=1.0,
        sustained_flops_efficiency=None,
        memory_efficiency=1.0,
        grouped=False,
        misaligned=1.0,
        unaligned=None,
    )


def _unit_attention(law: AttentionLaw) -> AttentionLaw:
    return replace(
        law,
        floor_s=0.0,
        flops_efficiency=1.0,
        half_length=0.0,
        half_head_dim=0.0,
        memory_efficiency=1.0,
        backward_flops_efficiency=1.0,
    )


def _counting(device: Device, flops_per_s: float, bytes_per_s: float) -> Device:
    """A device of these rates, each of which it reaches, and no floors."""
    return replace(
        _without_floors(device),
        matmul=_unit_matmul(device.matmul),
        adapter_matmul=_unit_matmul(device.adapter_matmul),
        expert_matmul=_unit_matmul(device.expert_matmul),
        reserved_matmul=None,
        scan_matmul=_unit_matmul(device.scan_matmul),
        attention=_unit_attention(device.attention),
        masked_attention=_unit_attention(device.masked_attention),
        eager_attention=_unit_attention(device.eager_attention or device.attention),
        decode=NO_LAW,
        scan_law_holds=False,
        memory_bound_efficiency=1.0,
        **_rates(flops_per_s, bytes_per_s),
    )


def _rates(flops_per_s: float | None = None, bytes_per_s: float | None = None) -> dict[str, Any]:
    names = ("peak", "attention_peak", "narrow_attention_peak", "adapter_peak")
    peaks = tuple(f"{name}_flops_per_s" for name in names)
    rates = {} if flops_per_s is None else dict.fromkeys(peaks, flops_per_s)
    return rates if bytes_per_s is None else {**rates, "bandwidth_bytes_per_s": bytes_per_s}


def _without_floors(device: Device) -> Device:
    """The device whose kernels start at once."""
    names = (
        "matmul", "adapter_matmul", "expert_matmul", "scan_matmul", "attention", "masked_attention", "eager_attention",
        "decode", "reserved_matmul",
    )  # fmt: skip
    laws: dict[str, Any] = {name: replace(law, floor_s=0.0) for name in names if (law := getattr(device, name))}
    return replace(device, memory_bound_floor_s=0.0, **laws)


def operator_work(operators: Iterable[Operator], device: Device, backward: bool = True) -> tuple[OperatorWork, ...]:
    """Work of every operator but the collectives: times, FLOPs and bytes.

        seconds = operator_times
        FLOPs = operator_times of a device of 1 FLOP/s without memory limit, bytes of one of 1 byte/s without peak
        bound = the longest of compute alone, memory alone and what starting the kernels adds

    Parameters
    ----------
    operators : of one rank and one micro-batch, sizes of shape (rank shape,)
    device : laws and peaks of the accelerator
    backward : whether gradients are counted too, else zero

    Returns
    -------
    tuple of OperatorWork, in the order of the operators; arrays broadcast to shape (rank shape,) [s], [FLOP], [bytes]

    Source: `operator_times`, asked five times.
    """
    timed = tuple(op for op in operators if not isinstance(op, Collective))
    free = _without_floors(device)
    seconds, flops, moved, compute, memory, floorless = (
        [_sides(time.forward_s, time.backward_s, backward) for time in operator_times(timed, each, backward)]
        for each in (
            device,
            _counting(device, 1.0, AT_ONCE),
            _counting(device, AT_ONCE, 1.0),
            replace(free, **_rates(bytes_per_s=AT_ONCE)),
            replace(free, **_rates(flops_per_s=AT_ONCE)),
            free,
        )
    )
    return tuple(
        OperatorWork(
            operator=op,
            seconds=seconds[place],
            flops=_counted(flops[place]),
            moved_bytes=_counted(moved[place]),
            bounds_s={
                COMPUTE: np.asarray(sum(compute[place])),
                MEMORY: np.asarray(sum(memory[place])),
                LAUNCH: np.asarray(sum(seconds[place]) - sum(floorless[place])),
            },
        )
        for place, op in enumerate(timed)
    )


def _sides(forward: Array, backward_: Array, backward: bool) -> Sides:
    return forward, backward_ if backward else np.zeros_like(forward)


def _counted(sides: Sides) -> Sides:
    forward, backward = (np.where(side < NOTHING, 0.0, side) for side in sides)
    return forward, backward


def operator_sizes(operator: Operator) -> dict[str, Array]:
    """Return the sizes of an operator by their names.

        sizes = m, n, k of a product; sequences, heads, queries, keys of attention; kernels or message of others

    Parameters
    ----------
    operator : of one rank and one micro-batch

    Returns
    -------
    dict of name -> ndarray of float, shape (rank shape,) [-], messages of the forward in [bytes]

    Source: the fields of the operators.
    """
    if isinstance(operator, Matmul):
        sizes = {"m": operator.m, "n": operator.n, "k": operator.k}
        return {**sizes, "copies": operator.copies} if np.any(operator.copies != 1.0) else sizes
    if isinstance(operator, Attention):
        return {
            "sequences": operator.batch,
            "heads": operator.heads,
            "kv_heads": operator.kv_heads,
            "queries": operator.query,
            "keys": operator.key,
            "head_size": np.asarray(float(operator.qk_head_dim)),
        }
    if isinstance(operator, MemoryBound):
        return {"kernels": np.asarray(operator.forward_launches)}
    if isinstance(operator, Collective):
        return {"message_bytes": np.asarray(sum(message for _, message in operator.forward))}
    return {}


# The host: time to launch what the accelerator runs.


def exposed_launch_time_s(launches: ArrayLike, launch_s: float, device_time_s: ArrayLike) -> NDArray[np.float64]:
    """Time that the accelerator waits for the host.

        t = max(0, launches x launch_s - device_time)

    The queue hides launches as long as the kernels take longer. CUDA graphs and compilation lower the time of a launch,
    or the number of launches.

    Parameters
    ----------
    launches : kernels that the host starts [-]
    launch_s : time of one launch [s]
    device_time_s : time that the kernels run [s]

    Returns
    -------
    ndarray of float, shape that launches and device time broadcast to, seconds [s]

    Source: eager frameworks launch a kernel every 4 to 8 us; own derivation from a queue that one thread fills and the
    accelerator empties.
    """
    waiting_s = np.asarray(launches, dtype=np.float64) * launch_s - np.asarray(device_time_s, dtype=np.float64)
    return np.asarray(np.maximum(0.0, waiting_s))
