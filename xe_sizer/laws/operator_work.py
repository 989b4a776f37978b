"""What one operator is made of: its shape, FLOPs, bytes and seconds, and which of them bounds it.

Nothing is computed by equations of its own. FLOPs are the seconds of a device that does one in a second and moves
anything at once; bytes are those of a device that moves one in a second; so what is counted is what the laws price.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import Attention, Collective, Matmul, MemoryBound
from xe_sizer.laws.operator_time import NO_LAW, operator_times

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.laws.attention import AttentionLaw
    from xe_sizer.laws.matmul import MatmulLaw
    from xe_sizer.laws.operator_time import Device

AT_ONCE = 1e300  # defined: a rate at which nothing takes time, but is not nothing
NOTHING = 1e-200  # defined: below, what a device counts that does the rest at once
COMPUTE, MEMORY, LAUNCH, NETWORK = "compute", "memory", "launch", "network"
Sides = tuple["Array", "Array"]
"""Forward and backward."""


@frozen
class OperatorWork:
    """One operator over all its layers and one micro-batch; arrays broadcast to shape (rank shape,).

    seconds, flops, moved_bytes : forward and backward, as the device's laws price them [s], [FLOP], [bytes]
    bounds_s : compute, memory, launch -> seconds that each alone would take, forward and backward together
    """

    operator: Operator
    seconds: Sides
    flops: Sides
    moved_bytes: Sides
    bounds_s: dict[str, Array]


@frozen
class OperatorCost:
    """What one operator takes of a step.

    sizes : its shape by name, as `sizes_of` says
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
    )


def _unit_attention(law: AttentionLaw) -> AttentionLaw:
    return replace(
        law, floor_s=0.0, flops_efficiency=1.0, half_length=0.0, memory_efficiency=1.0, backward_flops_efficiency=1.0
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
        scan_share=1.0,
        memory_bound_efficiency=1.0,
        **_rates(flops_per_s, bytes_per_s),
    )


def _rates(flops_per_s: float | None = None, bytes_per_s: float | None = None) -> dict[str, Any]:
    peaks = ("peak_flops_per_s", "attention_peak_flops_per_s", "adapter_peak_flops_per_s")
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
    """What every operator but the collectives is made of.

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


def sizes_of(operator: Operator) -> dict[str, Array]:
    """The shape of an operator by the names of its sizes.

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
