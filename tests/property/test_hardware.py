"""Better hardware is never slower, on whole steps of many layouts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from cases import job, layouts, with_device
from msgspec.structs import replace

from xe_sizer.laws.collectives import CollectiveLaw
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.step_time import timeline

MODELS = ("llama-2-7b", "mixtral-8x7b", "deepseek-v2-lite", "qwen2.5-0.5b")
STACKS = ("generic", "hf-trainer", "deepspeed", "megatron-lm")
FACTORS = (1.02, 1.3, 4.0, 100.0)


def faster_link(law: CollectiveLaw, factor: float) -> CollectiveLaw:
    return replace(law, bus_bytes_per_s=tuple(rate * factor for rate in law.bus_bytes_per_s))


def quicker_link(law: CollectiveLaw, factor: float) -> CollectiveLaw:
    return replace(law, alpha_s=tuple(alpha / factor for alpha in law.alpha_s))


def improved(made: Job, what: str, factor: float) -> Job:
    """The job on hardware of which one thing is better by a factor."""
    network = made.network
    if what == "bandwidth":
        return with_device(made, bandwidth_bytes_per_s=factor)
    if what == "peak":
        peaks = ("peak_flops_per_s", "attention_peak_flops_per_s", "adapter_peak_flops_per_s")
        return with_device(made, **dict.fromkeys(peaks, factor))
    if what == "scale-out rate":
        return replace(made, network=replace(network, scale_out_bytes_per_s=network.scale_out_bytes_per_s * factor))
    if what == "scale-out latency":
        return replace(made, network=replace(network, scale_out_alpha_s=network.scale_out_alpha_s / factor))
    better = faster_link if what == "link rate" else quicker_link
    laws = {operation: better(law, factor) for operation, law in network.scale_up.items()}
    return replace(made, network=replace(network, scale_up=laws))


def many_layouts() -> Layouts:
    """Inside a node and across, host-bound and compute-bound, sharded and not."""
    rows = [
        (tp, pp, dp, zero, micro, mode, accum)
        for tp, pp, dp, zero, micro, mode, accum in product(
            (1, 2, 8), (1, 2), (1, 2, 8, 16), (0, 1, 2, 3), (1, 8), (0, 2), (1, 4)
        )
        if zero < 2 or pp == 1
    ]
    names = ("tp", "pp", "dp", "zero", "micro_batch", "recompute", "grad_accum")
    sizes = dict(zip(names, np.array(rows).T, strict=True))
    return layouts(**sizes, sequence_parallel=(sizes["tp"] > 1).astype(int))


LAYOUTS = many_layouts()
IMPROVEMENTS = ("bandwidth", "peak", "link rate", "link latency", "scale-out rate", "scale-out latency")


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("kind", "tokens"), [("pretrain", 64), ("lora", 64), ("lora", 2048)])
def test_better_hardware_is_never_slower(model: str, stack: str, kind: str, tokens: int) -> None:
    """Also where several things hide behind each other: launches, exchanges and kernels."""
    made = job(model, kind, stack, train__seq_len=tokens, train__padding="to-seq-len")
    before = timeline(made, LAYOUTS).step_s
    for index, what in enumerate(IMPROVEMENTS):
        after = timeline(improved(made, what, FACTORS[index % len(FACTORS)]), LAYOUTS).step_s
        assert np.all(after <= before * (1 + 1e-12)), what
        if what in ("bandwidth", "peak") and tokens == 2048:
            assert np.any(after < 0.999 * before), what


@pytest.mark.parametrize("what", IMPROVEMENTS)
@pytest.mark.parametrize("factor", FACTORS)
def test_by_any_factor(what: str, factor: float) -> None:
    made = job("llama-2-7b", "lora", "hf-trainer", train__seq_len=64, train__padding="to-seq-len")
    before = timeline(made, LAYOUTS).step_s
    assert np.all(timeline(improved(made, what, factor), LAYOUTS).step_s <= before * (1 + 1e-12))
