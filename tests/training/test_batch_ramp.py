"""A global batch that grows: how many steps there are, and what they take."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts

from xe_sizer.errors import InputError
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import BatchRamp
from xe_sizer.training.run import Run, first_layouts, ramp_time_s, run_parts, run_time_s
from xe_sizer.training.search_space import legal_layouts
from xe_sizer.training.step_time import timeline


def test_every_size_of_the_batch_takes_the_same_sequences() -> None:
    """From 16 by 16 to 64: three sizes, 480 sequences each."""
    batches, steps = BatchRamp(16, 16, 1440).levels(64, 1e6)
    assert batches.tolist() == [16, 32, 48]
    assert steps.tolist() == [30, 15, 10]
    assert BatchRamp(16, 16, 1440).more_steps(64, 1e6) == 55 - 1440 / 64


def test_a_run_that_ends_before_the_batch_is_whole() -> None:
    batches, steps = BatchRamp(16, 16, 1440).levels(64, 720)
    assert (steps * batches).tolist() == [480, 240, 0]


def test_steps_of_smaller_batches_lie_on_a_line() -> None:
    """A step of 64 takes 10 s and one of 16 takes 4 s, so 32 take 6 and 48 take 8."""
    more = ramp_time_s(BatchRamp(16, 16, 1440), 64, 1e6, np.array([4.0]), np.array([10.0]))
    assert more.tolist() == pytest.approx([30 * 4 + 15 * 6 + 10 * 8 - 10 * 1440 / 64])


def test_a_ramp_to_the_batch_that_is_there_takes_nothing() -> None:
    assert ramp_time_s(BatchRamp(64, 16, 1440), 64, 1e6, np.ones(2), np.ones(2)).tolist() == [0, 0]


def test_the_time_of_a_run() -> None:
    flags = {"train__global_batch": 128, "train__steps": 100}
    plain = job(stack="megatron-lm", **flags)
    made = job(stack="megatron-lm", train__batch_ramp_up=(32, 32, 960), **flags)
    layout = layouts(tp=2, dp=8, grad_accum=16, zero=1)
    step_s = timeline(made, layout).step_s
    assert first_layouts(BatchRamp(32, 32, 960), layout).grad_accum.tolist() == [4]
    first_s = timeline(made, layouts(tp=2, dp=8, grad_accum=4, zero=1)).step_s
    parts = run_parts(Run(Evaluation(made, layout), step_s))
    assert parts["steps"] == pytest.approx(100 * step_s)
    assert parts["batch ramp-up"] == pytest.approx(
        ramp_time_s(BatchRamp(32, 32, 960), 128, 12_800, first_s, step_s)
    )  # fmt: skip
    assert run_time_s(Run(Evaluation(made, layout), step_s)) == pytest.approx(sum(parts.values()))
    assert np.all(
        run_time_s(Run(Evaluation(made, layout), step_s)) > run_time_s(Run(Evaluation(plain, layout), step_s))
    )


@pytest.mark.parametrize(
    ("ramp", "said"),
    [
        ((32, 32, 960), None),
        ((32, 28, 960), "steps of 28 do not lead from 32 to 128"),
        ((128, 32, 960), "starts with 128, and the global batch is 128"),
    ],
)
def test_what_leads_to_the_global_batch(ramp: tuple[int, ...], said: str | None) -> None:
    asked = {"model": "llama-2-7b", "job": "pretrain", "train.global_batch": 128, "train.batch_ramp_up": ramp}
    if said is None:
        grows = "the batch grows from 32 to 128 sequences over 960"
        assert any(text.startswith(grows) for text in ask(asked).warnings)
        return
    with pytest.raises(InputError, match=said):
        ask(asked)


def test_the_first_batch_and_its_growth_are_divided_over_the_replicas() -> None:
    flags = {"model": "llama-2-7b", "job": "pretrain", "stack": "hf-trainer", "train.global_batch": 128}
    usual, growing = (ask({**flags, **more}).rules for more in ({}, {"train.batch_ramp_up": (8, 4, 960)}))
    together = [legal_layouts(rules, (8,)) for rules in (usual, growing)]
    shares = [sorted({int(one) for one in found.micro_batch * found.dp}) for found in together]
    assert shares == [[8, 16, 32, 64, 128], []]
    assert {int(one) for one in legal_layouts(growing, (4,)).micro_batch} == {1}
