"""Seconds of operators on one accelerator: joins the graph's sizes with the accelerator's laws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from xe_sizer.graph.operators import (
    Array,
    Attention,
    Collective,
    Matmul,
    MemoryBound,
    Operator,
    RankShape,
    Scan,
    launches,
)
from xe_sizer.laws.attention import (
    EAGER_BACKWARD_FLOPS,
    FLASH_BACKWARD_FLOPS,
    AttentionLaw,
    DecodeLaw,
    attention_time_s,
    decode_attention_time_s,
    eager_attention_bytes,
)
from xe_sizer.laws.collectives import Network, collective_time_s
from xe_sizer.laws.matmul import MatmulLaw, grouped_law, matmul_time_s
from xe_sizer.laws.memory_bound import memory_bound_time_s

NO_LAW = DecodeLaw(0.0, 1.0)  # of devices that train
SCAN_BACKWARD = 3.0  # both gradients of every product, and the forward once more


@dataclass(frozen=True, eq=False)
class Device:
    """One accelerator at one precision, as a stack drives it.

    `expert_matmul` prices grouped products of experts; `adapter_*` those of adapters, which may run in another
    precision than the base model; `scan_matmul` those inside scans, which run in the precision of attention.
    `weight_element_bytes` [bytes] where weights are kept in another format than activations, but for those of the
    `wide_modules`, which keep and multiply 16 bit.
    """

    matmul: MatmulLaw
    peak_flops_per_s: float
    attention: AttentionLaw
    attention_peak_flops_per_s: float
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
    wide_modules: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class OperatorTime:
    """Seconds of one operator in all layers that contain it; collectives are priced elsewhere.

    `weight_s` is the part of `backward_s` that makes weight gradients, which nothing waits for before the optimizer.
    """

    operator: Operator
    forward_s: Array
    backward_s: Array
    weight_s: Array


def _matmul_times(op: Matmul, device: Device, backward: bool) -> tuple[Array, Array, Array]:
    law, peak = device.matmul, device.peak_flops_per_s
    if op.adapter:
        law, peak = device.adapter_matmul, device.adapter_peak_flops_per_s
    if op.grouped:
        law = device.expert_matmul
    weight_bytes = device.weight_element_bytes
    if op.module in device.wide_modules:
        law, peak, weight_bytes = device.scan_matmul, device.attention_peak_flops_per_s, None
        law = grouped_law(law) if op.grouped else law

    def time_s(m: Array, n: Array, k: Array) -> Array:
        # Grouped experts are one kernel: sizes grow by the copies, the launch floor is paid once.
        whole = matmul_time_s(m, n, k, law, peak, device.bandwidth_bytes_per_s, device.element_bytes, weight_bytes)
        floor_s = np.where(m * n * k > 0, law.floor_s, 0.0)
        return np.asarray((whole - floor_s) * op.copies + floor_s)

    forward = time_s(op.m, op.n, op.k)
    inputs = time_s(op.m, op.k, op.n) if op.input_gradient and backward else np.zeros_like(forward)
    weights = time_s(op.k, op.n, op.m) if op.weight_gradient and backward else np.zeros_like(forward)
    return forward, inputs + weights, weights


def _attention_times(op: Attention, device: Device) -> tuple[Array, Array]:
    """Fused kernels pay for what the mask leaves; eager attention multiplies and moves the full scores."""
    moved = op.operand_bytes(device.element_bytes)
    sequence = np.asarray(op.key)
    flops = op.forward_flops
    scores_s, scores_backward_s = np.zeros_like(flops), np.zeros_like(flops)
    backward_flops = FLASH_BACKWARD_FLOPS * flops
    if op.kernel == "eager":
        flops = flops * (op.query * op.key) / op.pairs
        backward_flops = EAGER_BACKWARD_FLOPS * flops
        passes = [
            eager_attention_bytes(op.batch, op.heads, op.query, op.key, device.element_bytes, backward)
            for backward in (False, True)
        ]
        scores_s, scores_backward_s = (_moved_s(passed, 0.0, device) for passed in passes)
    law, peak, bandwidth = device.attention, device.attention_peak_flops_per_s, device.bandwidth_bytes_per_s
    if op.kernel == "decode":
        reached = law.flops_efficiency * peak
        forward = decode_attention_time_s(flops, moved, device.decode, reached, bandwidth)
        return forward, np.zeros_like(forward)
    forward = attention_time_s(flops, moved, sequence, law, peak, bandwidth) + scores_s
    backward = attention_time_s(backward_flops, 2.5 * moved, sequence, law, peak, bandwidth, backward=True)
    return forward, backward + scores_backward_s


def _scan_times(op: Scan, device: Device) -> tuple[Array, Array]:
    """Each product is a kernel over all heads and chunks; the states pass from chunk to chunk in another."""
    law, peak, bandwidth = device.scan_matmul, device.attention_peak_flops_per_s, device.bandwidth_bytes_per_s
    forward = _moved_s(2.0 * op.state_bytes, 1.0, device)
    for m, n, k, copies in op.products:
        once = matmul_time_s(m, n, k, law, peak, bandwidth, device.element_bytes) - law.floor_s
        forward = forward + np.where(m * n * k * copies > 0, law.floor_s + once * copies, 0.0)
    return forward, SCAN_BACKWARD * forward


def _moved_s(moved_bytes: Array, kernels: float, device: Device) -> Array:
    return memory_bound_time_s(
        moved_bytes,
        kernels,
        device.bandwidth_bytes_per_s,
        device.memory_bound_efficiency,
        device.memory_bound_floor_s,
    )


def operator_times(operators: Iterable[Operator], device: Device, backward: bool = True) -> tuple[OperatorTime, ...]:
    """Seconds of every operator but the collectives, forward and backward, summed over its layers.

    backward : price gradients too; without, what would be theirs is not to be relied on

    Returns
    -------
    tuple of OperatorTime; arrays broadcast over layouts, seconds [s] of one micro-batch over all layers
    """
    times = []
    for op in operators:
        weights: Array = np.zeros(1)
        if isinstance(op, Matmul):
            forward, back, weights = _matmul_times(op, device, backward)
        elif isinstance(op, Attention):
            forward, back = _attention_times(op, device)
        elif isinstance(op, Scan):
            forward, back = _scan_times(op, device)
        elif isinstance(op, MemoryBound):
            forward = _moved_s(op.forward_bytes, op.forward_launches, device)
            back = _moved_s(op.backward_bytes, op.backward_launches, device) if backward else np.zeros_like(forward)
        elif isinstance(op, Collective):
            continue
        else:
            raise TypeError(f"no price for {type(op).__name__}")
        times.append(OperatorTime(op, op.layers * forward, op.layers * back, op.layers * weights))
    return tuple(times)


def launch_counts(operators: Iterable[Operator]) -> tuple[float, float]:
    """Kernels that one micro-batch launches over all layers, forward and backward [-]."""
    forward = backward = 0.0
    for op in operators:
        each = launches(op)
        forward += op.layers * each[0]
        backward += op.layers * each[1]
    return forward, backward


def exchange_times(
    operators: Iterable[Operator], rank: RankShape, network: Network, efficiency: float, backward: bool = True
) -> dict[str, tuple[Array, Array]]:
    """Seconds of the collectives inside the layers by group, forward and backward, over all layers; unhidden.

    efficiency : factor on the rates that the network's laws state; backward : price its collectives too, else zero
    """
    sizes = {"tp": rank.tp, "cp": rank.cp, "ep": rank.ep}
    inner = {"tp": np.ones(1), "cp": rank.tp, "ep": rank.expert_tp}
    total = {group: (np.zeros(rank.tp.shape), np.zeros(rank.tp.shape)) for group in sizes}
    active = {group for group, size in sizes.items() if np.any(size > 1)}
    for op in operators:
        if not isinstance(op, Collective) or op.group not in active:
            continue
        ranks = sizes[op.group]
        per_node = np.clip(network.node_ranks // inner[op.group], 1, ranks)
        sides = (op.forward, op.backward if backward else ())
        seconds = [
            op.layers * sum((_exchange_s(one, ranks, per_node, network) for one in side), np.zeros(1)) for side in sides
        ]
        before = total[op.group]
        total[op.group] = (before[0] + seconds[0], before[1] + seconds[1])
    return {group: (forward / efficiency, backward / efficiency) for group, (forward, backward) in total.items()}


def _exchange_s(exchange: tuple[str, Array], ranks: Array, per_node: Array, network: Network) -> Array:
    operation, message = exchange
    if not np.any(message):  # such as those of sequence parallelism where it is off
        return np.zeros(1)
    return collective_time_s(operation, message, ranks, per_node, network)
