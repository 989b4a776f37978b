"""Checkpoints of a run, its gradients and the update of matrices: small cases whose answers are plain."""

from __future__ import annotations

import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from cases import job, layouts
from msgspec.structs import replace

from xe_sizer.laws.collectives import ALL_GATHER, collective_time_s
from xe_sizer.laws.parts import named
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job, Pauses
from xe_sizer.training.memory_parts import MOMENTS, gradients_over_time
from xe_sizer.training.model_states import StateBytes, learning_matrices, weight_matrices
from xe_sizer.training.optimizer_step import gathering_s
from xe_sizer.training.run import Run

# Llama 2 7B
LAYERS, HIDDEN, VOCAB = 32, 4096, 32000
LINEAR = 4 * HIDDEN**2 + 3 * HIDDEN * 11008
PARAMETERS = LAYERS * (LINEAR + 2 * HIDDEN) + 2 * VOCAB * HIDDEN + HIDDEN


def run_of(pauses: Pauses, step_s: float, steps: int = 50) -> Run:
    return Run(Evaluation(replace(job(stack="nemo"), steps=steps, pauses=pauses), layouts()), np.array([step_s]))


def test_checkpoints_come_between_one_step_and_all() -> None:
    """A job that fails every few seconds saves each step; one that hardly fails saves its last."""
    assert run_of(Pauses(failures_per_gpu_day=1e6), 1e4).best_every.tolist() == [1.0]
    assert run_of(Pauses(failures_per_gpu_day=1e-9), 1.0).best_every.tolist() == [50.0]
    never = run_of(Pauses(), 1.0)
    assert (never.every.tolist(), never.saves.tolist(), never.mtbf_s.tolist()) == ([50.0], [0.0], [math.inf])


def test_an_asynchronous_checkpoint_is_written_before_the_next() -> None:
    """14 B x 6.74 billion at 2 GB/s take 47.2 s: 48 steps of a second at least, however often it fails."""
    asked = Pauses(failures_per_gpu_day=1e5, asynchronous=True)
    assert run_of(asked, 1.0, steps=500).best_every.tolist() == [round(14 * PARAMETERS / 2e9)]


def test_gradients_of_a_tied_table_come_with_the_head() -> None:
    """No table is still to come where the head is the table; a copy that learns beside adapters comes with its end."""
    made = job("llama-3.2-1b", stack="hf-bf16")
    whole = named(np.full((2, 1), 1e12), "B")
    found = gradients_over_time(Evaluation(made, layouts()), whole, whole).value[0, :, 0]
    layer = 2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192 + 2 * 2048
    assert found[MOMENTS.index("backward of the first layer")] == 1e12 - 2 * layer
    assert found[MOMENTS.index("backward of the last layer")] == 2 * (128_256 * 2048 + 2048)


def copied(**flags: object) -> Job:
    return job(kind="lora", stack="hf-bf16", lora__rank=8, lora__targets=["q", "v"], **flags)


def test_a_copy_of_the_head_has_its_gradient_first() -> None:
    """float32 gradients of 32,000 x 4,096 copied weights, of which the norm of the head is none's."""
    made = copied(lora__modules_to_save=["lm_head"])
    held = Evaluation(made, layouts()).held
    whole = named(np.full((2, 1), 1e12), "B")
    found = gradients_over_time(Evaluation(made, layouts()), whole, whole).value[0, :, 0]
    each = StateBytes.of(made, layouts()).adapter_gradient * made.method.saved_element_share
    assert found[MOMENTS.index("backward of the last layer")] == pytest.approx(float(held.head[0, 0]) * float(each))
    plain = gradients_over_time(Evaluation(copied(), layouts()), whole, whole).value[0, :, 0]
    assert plain[MOMENTS.index("backward of the last layer")] == 0.0


def test_wide_activations_mean_wide_states() -> None:
    """float32 has no 16-bit copies of anything; frozen weights are float32 there, or where a quantiser casts them."""
    wide = StateBytes.of(job(stack="deepspeed", precision="fp32"), layouts())
    sizes = [float(np.ravel(getattr(wide, name))[0]) for name in ("weight", "gradient", "frozen", "gather", "reduce")]
    assert sizes == [4.0] * 5
    assert float(np.ravel(StateBytes.of(copied(), layouts()).frozen)[0]) == 2.0
    cast = job(kind="qlora", stack="hf-bf16")
    for upcast, expected in ((True, 4.0), (False, 2.0)):
        states = msgspec.structs.replace(cast.stack.states, quantised_upcast=upcast)
        changed = replace(cast, stack=msgspec.structs.replace(cast.stack, states=states))
        assert float(np.ravel(StateBytes.of(changed, layouts()).frozen)[0]) == expected


def test_matrices_are_gathered_over_states_and_over_tensor_ranks() -> None:
    """Each in its own rings: alone, over 8 that share states, over 8 tensor ranks, and both over two nodes."""
    made = job(stack="megatron-lm", optimizer="muon")
    factors = msgspec.structs.replace(made.stack.efficiency, collectives=0.8)
    made = replace(made, stack=msgspec.structs.replace(made.stack, efficiency=factors))
    one = next(matrices for matrices in learning_matrices(made) if matrices.split and not matrices.experts)

    def gathered_s(tp: int, share: float) -> float:
        dp = max(int(share), 1)
        return float(gathering_s(made, layouts(tp=tp, dp=dp), one, np.array([2.0]), np.array([share]))[0])

    assert gathered_s(1, 1.0) == 0.0
    states_s, tensors_s = gathered_s(1, 8.0), gathered_s(8, 1.0)
    assert states_s == pytest.approx(tensors_s, rel=1e-12)  # the same message in a ring of 8
    gather_s = collective_time_s(ALL_GATHER, 2 * 2.0 * one.rows * one.columns, 8, 8, made.network)
    assert states_s == pytest.approx(float(gather_s) / made.stack.efficiency.collectives, rel=1e-12)
    held = 2 * 2.0 * one.rows * one.columns
    both_s = collective_time_s(ALL_GATHER, held / 2, 4, 4, made.network)
    both_s = both_s + collective_time_s(ALL_GATHER, held / 4, 2, 2, made.network)
    assert gathered_s(2, 4.0) == pytest.approx(float(both_s) / 0.8, rel=1e-12)
    assert gathered_s(2, 4.0) > 0.5 * gathered_s(1, 4.0)
    assert gathered_s(2, 1.0) < gathered_s(2, 4.0)


def test_weights_that_all_tensor_ranks_hold_are_not_gathered_over_them() -> None:
    known = {"inputs": 3, "outputs": 5, "copies": 2, "sharing": 1}
    found = [
        weight_matrices(SimpleNamespace(**known, split=split), 4)  # type: ignore[arg-type]
        for split in ("expert", "replicated", "column")
    ]
    assert [(one.rows, one.columns, one.count) for one in found] == [(3, 5, 8.0)] * 3
    assert [(one.experts, one.split) for one in found] == [(True, True), (False, False), (False, True)]
