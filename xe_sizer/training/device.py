"""The accelerator as a training stack drives it."""

from __future__ import annotations

from xe_sizer.laws.device import Efficiency, device
from xe_sizer.laws.hardware import Accelerator
from xe_sizer.laws.operator_time import Device
from xe_sizer.software.stack import Stack
from xe_sizer.units import FLOAT32


def device_of(gpu: Accelerator, stack: Stack, precision: str, chosen: Efficiency) -> Device:
    """The device at one precision under one stack, for training.

    Adapters run in 16 bit (or float32 when the job does) whatever the precision of the base products; float32 adapters
    without autocast run in float32, which PyTorch keeps off the tensor cores (allow_tf32 is off).
    """
    wide = stack.states.adapter_weight_bytes == FLOAT32 and not stack.states.autocast
    return device(gpu, precision, stack.kernels.attention_family, stack.efficiency, chosen, wide)
