"""Seconds of operators on one accelerator: joins the graph's sizes with the accelerator's laws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from xe_sizer.cost.attention import (
    EAGER_BACKWARD_FLOPS,
    FLASH_BACKWARD_FLOPS,
    AttentionLaw,
    attention_time_s,
    eager_attention_bytes,
)
from xe_sizer.cost.matmul import MatmulLaw, matmul_time_s
from xe_sizer.cost.memory_bound import memory_bound_time_s
from xe_sizer.graph.operators import Array, Attention, Collective, Matmul, MemoryBound, Operator, launches


@dataclass(frozen=True, eq=False)
class Device:
    """One accelerator at one precision, as a stack drives it.

    `adapter_*` price matrix products of adapters, which may run in another precision than the base model.
    """

    matmul: MatmulLaw
    peak_flops_per_s: float
    attention: AttentionLaw
    attention_peak_flops_per_s: float
    adapter_matmul: MatmulLaw
    adapter_peak_flops_per_s: float
    bandwidth_bytes_per_s: float
    memory_bound_efficiency: float
    memory_bound_floor_s: float
    element_bytes: float


@dataclass(frozen=True, eq=False)
class OperatorTime:
    """Seconds of one operator in all layers that contain it; collectives are priced elsewhere."""

    operator: Operator
    forward_s: Array
    backward_s: Array


def _matmul_times(op: Matmul, device: Device) -> tuple[Array, Array]:
    law, peak = device.matmul, device.peak_flops_per_s
    if op.adapter:
        law, peak = device.adapter_matmul, device.adapter_peak_flops_per_s

    def time_s(m: Array, n: Array, k: Array) -> Array:
        # Grouped experts are one kernel: sizes grow by the copies, the launch floor is paid once.
        whole = matmul_time_s(m, n, k, law, peak, device.bandwidth_bytes_per_s, device.element_bytes)
        floor_s = np.where(m * n * k > 0, law.floor_s, 0.0)
        return np.asarray((whole - floor_s) * op.copies + floor_s)

    forward = time_s(op.m, op.n, op.k)
    backward = np.zeros_like(forward)
    if op.input_gradient:
        backward = backward + time_s(op.m, op.k, op.n)
    if op.weight_gradient:
        backward = backward + time_s(op.k, op.n, op.m)
    return forward, backward


def _attention_times(op: Attention, device: Device) -> tuple[Array, Array]:
    """Fused kernels pay for what the mask leaves; eager attention multiplies and moves the full scores."""
    moved = op.operand_elements * device.element_bytes
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
    forward = attention_time_s(flops, moved, sequence, law, peak, bandwidth) + scores_s
    backward = attention_time_s(backward_flops, 2.5 * moved, sequence, law, peak, bandwidth, backward=True)
    return forward, backward + scores_backward_s


def _moved_s(moved_bytes: Array, kernels: float, device: Device) -> Array:
    return memory_bound_time_s(
        moved_bytes,
        kernels,
        device.bandwidth_bytes_per_s,
        device.memory_bound_efficiency,
        device.memory_bound_floor_s,
    )


def price(operators: Iterable[Operator], device: Device) -> tuple[OperatorTime, ...]:
    """Seconds of every operator but the collectives, forward and backward, summed over its layers.

    Returns
    -------
    tuple of OperatorTime; arrays broadcast over layouts, seconds [s] of one micro-batch over all layers
    """
    times = []
    for op in operators:
        if isinstance(op, Matmul):
            forward, backward = _matmul_times(op, device)
        elif isinstance(op, Attention):
            forward, backward = _attention_times(op, device)
        elif isinstance(op, MemoryBound):
            forward = _moved_s(op.forward_bytes, op.forward_launches, device)
            backward = _moved_s(op.backward_bytes, op.backward_launches, device)
        elif isinstance(op, Collective):
            continue
        else:
            raise TypeError(f"no price for {type(op).__name__}")
        times.append(OperatorTime(op, op.layers * forward, op.layers * backward))
    return tuple(times)


def launch_counts(operators: Iterable[Operator]) -> tuple[float, float]:
    """Kernels that one micro-batch launches over all layers, forward and backward [-]."""
    forward = backward = 0.0
    for op in operators:
        each = launches(op)
        forward += op.layers * each[0]
        backward += op.layers * each[1]
    return forward, backward
