"""What a report says of an iteration of reinforcement learning: its phases, its answers, who writes them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import xe_sizer
from xe_sizer.report.answers.estimate import iteration_points, split_words
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.result.training import Result

SHARED: dict[str, Any] = {
    "model": "llama-3.2-1b", "gpu": "h100-sxm-80gb", "gpus": 8, "job": "grpo", "stack": "verl",
    "rollout": {"prompts": 32, "group": 4, "input_tokens": 200, "output_tokens": 500, "max_output_tokens": 2048},
}  # fmt: skip


@cache
def answer(gpus: int = 0, asynchronous: bool = False, job: str = "grpo", tp: int = 0) -> Result:
    """On GPUs that do both in turn, or with some that only write answers."""
    apart = {"gpus": gpus, "colocated": False, "asynchronous": asynchronous} if gpus else {}
    apart |= {"tp": tp} if tp else {}
    return xe_sizer.estimate(**{**SHARED, "job": job, "rollout": {**SHARED["rollout"], **apart}})


def points(result: Result) -> dict[str, str]:
    return {point.label: point.text for point in iteration_points(result)}


def test_the_first_screen_says_what_an_iteration_spends_its_time_on() -> None:
    result = answer()
    told = points(result)
    for phase in result.phases:
        assert (f"{phase.name} " in told["Iteration"]) is (phase.share >= 0.01)
    assert told["Answers"].startswith("128 per iteration (32 prompts x 4); 500 tokens each in the mean")
    assert "in turn with training" in told["Rollout"]


def test_phases_sum_to_the_iteration() -> None:
    text = render(answer(), "table", Options(width=120))
    assert "Phases of an iteration" in text
    assert "time per iteration" in text
    assert "Split of the GPUs" not in text
    assert sum(phase.seconds for phase in answer().phases) == pytest.approx(answer().time.step_s.expected)


def test_gpus_that_only_write_answers_are_a_row_of_their_own() -> None:
    result = answer(gpus=4)
    text = render(result, "table", Options(width=120))
    assert "Split of the GPUs" in text
    assert "on 4 GPUs of its own" in points(result)["Rollout"]
    assert split_words(result.pools) == "4 train, 4 write (4 replicas of one GPU)"
    assert split_words(answer(gpus=4, tp=4).pools) == "4 train, 4 write (1 replica of tp 4)"
    assert split_words(answer().pools).startswith("in turn, ")


def test_what_others_hide_is_said_to_run_meanwhile() -> None:
    told = points(answer(gpus=4, asynchronous=True))
    assert "meanwhile" in told["Iteration"]
    assert "answers up to 1 iteration old" in told["Rollout"]
    assert "meanwhile: beside the longer work" in render(answer(gpus=4, asynchronous=True), "table", Options(width=120))


def test_other_jobs_have_steps_and_no_phases() -> None:
    result = xe_sizer.estimate(model="llama-3.2-1b", gpu="h100-sxm-80gb", gpus=8)
    text = render(result, "table", Options(width=120))
    assert points(result) == {}
    assert "iteration" not in text


@pytest.mark.parametrize("form", ["markdown", "html", "csv", "json"])
def test_every_form_has_the_phases(form: str) -> None:
    assert "weight synchronisation" in render(answer(), form, Options())
