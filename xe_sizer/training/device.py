"""The accelerator as a training stack drives it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from xe_sizer.graph.inputs import KEPT_WIDE
from xe_sizer.laws.device import Efficiency, device
from xe_sizer.software.number_formats import casts_of
from xe_sizer.software.stack import EXCHANGES
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Accelerator
    from xe_sizer.laws.matmul import MatmulLaw
    from xe_sizer.laws.operator_time import Device
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.job import Job
    from xe_sizer.training.methods import Method


def build_device(gpu: Accelerator, stack: Stack, method: Method, precision: str, chosen: Efficiency) -> Device:
    """Build the device at one precision under one stack, for training by one method.

    Adapters run in 16 bit (or float32 when the job does) whatever the precision of the base products; float32 adapters
    without autocast run in float32, which PyTorch keeps off the tensor cores (allow_tf32 is off). Products in 8 and 4
    bit follow the stack's recipe, but for the head and routers.
    """
    wide = stack.states.adapter_weight_bytes == FLOAT32 and not stack.states.autocast
    activations = method.wide_activations(stack.states.autocast)
    made = device(gpu, precision, stack.kernels.attention_family, stack.efficiency, chosen, wide, activations)
    if chosen.fixed:
        return made
    casts = casts_of(stack, precision, gpu.peak_flops_per_s)
    if casts is None:
        return made
    narrow = replace(_narrow(made.matmul, made.scan_matmul, casts.rate), sharpness=made.scan_matmul.sharpness)
    experts = _narrow(made.expert_matmul, made.scan_matmul, casts.rate)
    return replace(made, matmul=narrow, expert_matmul=experts, wide_modules=KEPT_WIDE, casts=casts)


def _narrow(law: MatmulLaw, wide: MatmulLaw, rate: float) -> MatmulLaw:
    """The law of products in 8 or 4 bit without the casts in front, which stand in the graph as kernels of their own.

    rate : share of it that products of the recipe reach [-]
    """
    sustained = law.sustained_flops_efficiency
    return replace(
        law,
        floor_s=wide.floor_s,
        cast_bytes_per_element=0.0,
        flops_efficiency=law.flops_efficiency * rate,
        sustained_flops_efficiency=None if sustained is None else sustained * rate,
    )


def at_the_speed_of_light(job: Job) -> Job:
    """Return the job with every peak reached and every exchange hidden, as `--ideal` times it."""
    ideal = Efficiency(ideal=True)
    stack = without_losses(job.stack, ideal)
    device = build_device(job.server.accelerator, stack, job.method, job.precision, ideal)
    return replace(job, stack=stack, device=device)


def without_losses(stack: Stack, efficiency: Efficiency) -> Stack:
    """Fixed fractions of the peaks leave no room for a host, and perhaps none for exchanges."""
    if not efficiency.fixed:
        return stack
    host = msgspec.structs.replace(
        stack.host,
        forward_launch_us=0.0,
        backward_launch_us=0.0,
        step_overhead_ms=0.0,
        micro_batch_overhead_ms=0.0,
        gathered_module_us=0.0,
        expert_layer_us=0.0,
    )
    if not efficiency.hides_exchanges:
        return msgspec.structs.replace(stack, host=host)
    hidden = {exchange.replace("-", "_"): 1.0 for exchange in EXCHANGES}
    overlap = msgspec.structs.replace(stack.overlap, **hidden)
    return msgspec.structs.replace(stack, host=host, overlap=overlap)
