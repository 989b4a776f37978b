"""What reports call things: profiles by their own names, parts of the ledger in words that fit the accelerator."""

from __future__ import annotations

from xe_sizer.report.format import clean
from xe_sizer.result.serving import Answer

# The ledger speaks of NVIDIA's software; other vendors have the same parts under other names.
_MONITORS = {"NVIDIA": "nvidia-smi", "AMD": "rocm-smi"}
_WITHOUT_VENDOR = {"CUDA context": "device context", "NCCL buffers": "collective library buffers"}


def profile_name(result: Answer, kind: str) -> str:
    """The name of the model, server or gpu, also where the scenario gives a path; empty where there is none."""
    names = result.scenario.get("names") or {}
    return clean(names.get(kind) or result.scenario.get(kind) or "")


def component_name(result: Answer, name: str) -> str:
    """A component of the memory ledger; results that do not know the vendor keep the ledger's word."""
    names = result.scenario.get("names") or {}
    return clean(name if names.get("vendor", "NVIDIA") == "NVIDIA" else _WITHOUT_VENDOR.get(name, name))


def monitor_name(result: Answer) -> str:
    """What shows the memory of the whole card."""
    names = result.scenario.get("names") or {}
    return _MONITORS.get(str(names.get("vendor", "NVIDIA")), "the vendor's monitor")
