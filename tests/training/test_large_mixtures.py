"""Mixtures over many stages and nodes: stages without experts, exchanges that leave the node, states of 16 bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import job, layouts
from test_stage_memory import by_stage

from xe_sizer.training.evaluation import HIDDEN_ACROSS_NODES, Evaluation
from xe_sizer.training.layout import SCHEDULES
from xe_sizer.training.memory import memory_ledger

DEEPSEEK = {"stack": "megatron-lm", "kind": "pretrain", "train__seq_len": 4096}
EXPERT = 3 * 7168 * 2048
DENSE, MIXED = 3, 58  # layers of DeepSeek-V3 without experts and with


@pytest.mark.parametrize(
    ("sizes", "stages"),
    [
        ({"pp": 1}, [MIXED]),
        ({"pp": 2}, [31 - DENSE, 30]),
        ({"pp": 4}, [15 - DENSE, 16, 16, 14]),  # both ends have a place each
        ({"pp": 4, "vpp": 8}, [15 - 1, 16 - 2, 16, 14]),  # chunks of two layers, the first of one
        ({"pp": 16, "schedule": SCHEDULES.index("dualpipe")}, [3 - DENSE + 2, *[4 + 4] * 14, 3 - DENSE + 2]),
    ],
    ids=str,
)
def test_stages_hold_the_experts_of_their_own_layers(sizes: dict[str, Any], stages: list[int]) -> None:
    """A mixture begins with layers without experts, which are on the first stages; both ends may be on one rank."""
    made = job("deepseek-v3", **DEEPSEEK)
    each = Evaluation(made, layouts(**{"ep": 64, "dp": 64, "grad_accum": 64, **sizes})).at_each_stage
    held = [*each.held.experts[0, :-1], each.held.experts[1, -1]]
    assert [elements / (256 / 64 * EXPERT) for elements in held] == pytest.approx(stages)


@pytest.mark.parametrize(
    "sizes", [{"pp": 4}, {"pp": 8, "vpp": 2}, {"pp": 16, "schedule": SCHEDULES.index("dualpipe")}], ids=str
)
def test_the_fullest_stage_of_a_mixture_that_begins_without_experts(sizes: dict[str, Any]) -> None:
    made = job("deepseek-v3", **DEEPSEEK)
    sizes = {"ep": 64, "dp": 64, "zero": 1, "grad_accum": 64, **sizes}
    _, peaks = by_stage(made, **sizes)
    assert peaks.max() == pytest.approx(memory_ledger(made, layouts(**sizes)).peak_bytes[0], rel=1e-12)


def test_exchanges_of_experts_hide_less_where_they_leave_the_node() -> None:
    """NeMo hides nine tenths on NVLink; expert groups of 16 are on two nodes."""
    made = job("qwen3-30b-a3b", stack="nemo", kind="pretrain", train__seq_len=4096)
    exposed = [Evaluation(made, layouts(ep=ep, dp=16, grad_accum=8)).exposed["ep"][0][0] for ep in (8, 16)]
    assert exposed == pytest.approx([0.1, 1.0 - 0.9 * HIDDEN_ACROSS_NODES])


def test_16_bit_masters_take_half() -> None:
    def states(optimizer: str, stack: str = "megatron-lm") -> float:
        made = job("llama-2-7b", stack=stack, kind="pretrain", optimizer=optimizer)
        return float(np.max(memory_ledger(made, layouts()).components["optimizer states"]))

    assert states("adamw-precision-aware") / states("adamw") == pytest.approx((2 + 8) / (4 + 8))
    assert states("adamw-precision-aware-bf16") / states("adamw") == pytest.approx((2 + 4) / (4 + 8))


def test_gradients_of_experts_are_copied_for_the_ranks_that_share_them() -> None:
    """NeMo's update reads float32 copies of 16-bit gradients: of dense ones an eighth, of experts all that it holds."""
    made = job("qwen3-30b-a3b", stack="nemo", kind="pretrain", train__seq_len=4096)
    held = Evaluation(made, layouts(ep=8, dp=8, zero=1)).held
    copied = 4.0 * ((held.linear + held.other) / 8 + held.experts)[0, 0]
    workspace = memory_ledger(made, layouts(ep=8, dp=8, zero=1)).components["optimizer workspace"]
    assert np.max(workspace) == pytest.approx(copied)


def test_layers_with_experts_wait_for_counts_unless_another_micro_batch_runs() -> None:
    """Megatron-LM: 0.6 ms in each of 48 layers of a micro-batch; NeMo runs another one where there are several."""
    gaps = {
        (stack, times): Evaluation(
            job("qwen3-30b-a3b", stack=stack, kind="pretrain", train__seq_len=4096),
            layouts(ep=8, dp=8, grad_accum=times),
        ).gaps_s[1][0, 0]
        for stack in ("megatron-lm", "nemo")
        for times in (1, 8)
    }
    assert gaps["megatron-lm", 8] >= gaps["nemo", 1] == pytest.approx(48 * 600e-6)
    assert gaps["nemo", 8] == 0.0
