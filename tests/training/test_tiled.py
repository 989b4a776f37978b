"""Tiled MLP and loss: what is left of them in memory, and what is computed twice."""

from __future__ import annotations

import pytest

from tests.cases import ask, layouts
from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.step_time import timeline

LAYERS, HIDDEN, FFN, TOKENS = 32, 4096, 11_008, 32_768  # Llama 2 7B


def asked(*fused: str) -> Job:
    flags = {"model": "llama-2-7b", "job": "sft", "stack": "generic", "train.seq_len": TOKENS, "train.steps": 1}
    kernels = {"train.fused_kernels": fused} if fused else {}
    return ask({**flags, **kernels, "train.padding": "packed", "train.global_batch": 1}).job


def part(job: Job, name: str, moment: str, recompute: int = 0) -> float:
    value = memory_ledger(job, layouts(recompute=recompute)).components[name]
    return float(value[0, MOMENTS.index(moment), 0])


def test_layers_keep_the_input_of_their_mlp_alone() -> None:
    """Gate, up and what the down projection reads are three tensors of the MLP's width that nobody keeps."""
    less = part(asked(), "activations", "end of forward") - part(asked("tiled-mlp"), "activations", "end of forward")
    assert less == pytest.approx(LAYERS * TOKENS * 3 * FFN * 2)


def test_a_recomputed_layer_holds_one_slice_of_its_mlp() -> None:
    whole, tiled = (
        part(asked(*fused), "layer in its backward", "backward of the last layer", 2) for fused in ((), ("tiled-mlp",))
    )
    assert tiled < whole
    assert whole - tiled > TOKENS * FFN * 2


def test_the_forward_of_the_mlp_runs_again() -> None:
    """Three products of 2 t h f FLOPs a layer, at most at the peak, are what the backward takes longer."""
    whole, tiled = (timeline(asked(*fused), layouts()) for fused in ((), ("tiled-mlp",)))
    longer_s = tiled.components["backward"][0] - whole.components["backward"][0]
    least_s = LAYERS * 3 * 2 * TOKENS * HIDDEN * FFN / asked().device.peak_flops_per_s
    assert least_s < longer_s < 2.5 * least_s
    assert tiled.components["forward"][0] == pytest.approx(whole.components["forward"][0])


def test_a_tiled_loss_holds_no_logits() -> None:
    assert part(asked("tiled-loss"), "logits and loss", "loss") < part(asked(), "logits and loss", "loss") / 4
