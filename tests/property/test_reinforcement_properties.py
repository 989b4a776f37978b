"""What is true of every iteration of reinforcement learning."""

from __future__ import annotations

from cases import REGISTRY
from hypothesis import given, settings
from hypothesis import strategies as st

from xe_sizer.reinforcement.answers import cut_answers
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.search import size
from xe_sizer.scenario.read import read_scenario

FEW = settings(max_examples=8, deadline=None)
FIXED = {"layout.tp": 1, "layout.dp": 8, "layout.zero": 3, "layout.recompute": "full", "train.micro_batch": 1}
ANSWERS = {
    "rollout.prompts": st.sampled_from([16, 64]),
    "rollout.group": st.sampled_from([2, 8]),
    "rollout.output_tokens": st.floats(50, 1500),
    "rollout.max_output_tokens": st.sampled_from([1600, 4096]),
    "rollout.output_spread": st.sampled_from([0.0, 0.6, 1.5]),
}


def sized(flags: dict[str, object], **more: object) -> ReinforcementEstimate:
    plain = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "job": "grpo", "gpus": 8, "train.steps": 10, **FIXED}
    asked = {**plain, **flags, **{name.replace("__", "."): value for name, value in more.items()}}
    return size(resolve(read_scenario(None, asked, {}), REGISTRY))


@FEW
@given(st.fixed_dictionaries(ANSWERS))
def test_without_answers_only_the_training_is_left(flags: dict[str, object]) -> None:
    found = sized(flags, rollout__output_tokens=0)
    assert set(found.iteration.phase_s.values()) - {0.0, found.iteration.phase_s["training"]} == set()


@FEW
@given(st.fixed_dictionaries(ANSWERS), st.sampled_from([4, 8, 16]))
def test_more_gpus_that_write_are_never_slower(flags: dict[str, object], gpus: int) -> None:
    few, many = (sized(flags, gpus=8 + one, rollout__gpus=one) for one in (gpus, 2 * gpus))
    assert many.step_s <= few.step_s * (1.0 + 1e-9)


@FEW
@given(st.fixed_dictionaries(ANSWERS))
def test_models_beside_the_policy_never_take_less(flags: dict[str, object]) -> None:
    none = sized(flags, train__reference="none")
    one = sized(flags, train__reference="copy")
    two = sized(flags, train__reference="copy", train__reward_model="llama-3.1-8b")
    peaks = [each.iteration.peaks["training"] for each in (none, one, two)]
    assert peaks == sorted(peaks)
    assert none.step_s <= one.step_s <= two.step_s


@settings(max_examples=40, deadline=None)
@given(st.floats(1, 8000), st.floats(0, 3), st.integers(16, 32_768))
def test_a_cut_keeps_its_mean_and_its_limit(mean: float, spread: float, most: int) -> None:
    answers = cut_answers(mean, spread, most)
    assert answers.longest <= most
    assert abs(answers.mean - min(mean, most)) <= 1e-3 * min(mean, most)
    assert answers.expected_longest(64) >= answers.expected_longest(8) >= answers.mean * (1 - 1e-9)
