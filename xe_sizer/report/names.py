"""Parts of the ledger in words that fit the accelerator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.report.format import clean
from xe_sizer.result.common import ONLY_STAGE

if TYPE_CHECKING:
    from xe_sizer.result.common import Ledger, Sized

# The ledger speaks of NVIDIA's software; other vendors have the same parts under other names.
_MONITORS = {"NVIDIA": "nvidia-smi", "AMD": "rocm-smi"}
_WITHOUT_VENDOR = {"CUDA context": "device context", "NCCL buffers": "collective library buffers"}


def component_name(result: Sized, name: str) -> str:
    """A component of the memory ledger; results that do not know the vendor keep the ledger's word."""
    names = result.scenario.get("names") or {}
    return clean(name if names.get("vendor", "NVIDIA") == "NVIDIA" else _WITHOUT_VENDOR.get(name, name))


def memory_place(memory: Ledger, moment: str) -> str:
    """Which GPU is the fullest and at which moment; without a pipeline it is any of them."""
    return clean(moment if memory.gpu == ONLY_STAGE else f"{memory.gpu}, {moment}")


def monitor_name(result: Sized) -> str:
    """What shows the memory of the whole card."""
    names = result.scenario.get("names") or {}
    return _MONITORS.get(str(names.get("vendor", "NVIDIA")), "the vendor's monitor")
