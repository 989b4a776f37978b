"""Critic, reward model and reference on GPUs of their own: times, memory, sizes, and what contradicts itself."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace
from reinforcement_cases import PPO, resolved, sized

from xe_sizer.errors import InputError
from xe_sizer.reinforcement.advice import larger_pools
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.pools import ModelPool
from xe_sizer.reinforcement.summary import summarise

GIB = 2.0**30
PARAMETERS = 1_235_814_400  # of Llama 3.2 1B, whose head is its embedding
APART: dict[str, Any] = {**PPO, "gpus": 16, "critic__gpus": 4, "reward__gpus": 2, "reference__gpus": 2}


@cache
def apart() -> ReinforcementEstimate:
    return sized(**APART)


def pool(name: str, estimate: ReinforcementEstimate | None = None) -> ModelPool:
    others = (estimate or apart()).iteration.others
    return next(one for one in others if one.asked.section == name)


def test_the_slowest_pool_of_each_stage_decides() -> None:
    """Rating waits for the last of the models, learning for the slower of actor and critic; then come the weights."""
    one, seconds = apart().iteration, apart().iteration.phase_s
    trainer_s = seconds["log-probabilities"] + seconds["rewards"]
    rated_s = max(
        trainer_s,
        seconds["log-probabilities (critic)"],
        seconds["rewards (reward model)"],
        seconds["log-probabilities (reference model)"],
    )
    learnt_s = max(seconds["training"], seconds["training (critic)"])
    whole_s = seconds["rollout"] + rated_s + learnt_s + seconds["weight synchronisation"]
    assert one.seconds == pytest.approx(whole_s)
    assert sum(part.seconds for part in summarise(apart()).time.components) == pytest.approx(whole_s)
    assert one.gpus == 16
    assert one.trainer_gpus == 8


def test_the_trainer_no_longer_holds_or_passes_what_has_gpus_of_its_own() -> None:
    shared = sized(**PPO)
    here, there = apart().iteration.parts_s, shared.iteration.parts_s
    for phase, part in (
        ("log-probabilities", "log-probabilities: values of the critic"),
        ("log-probabilities", "log-probabilities of the reference"),
        ("rewards", "reward model"),
        ("training", "training of the critic"),
    ):
        assert here[phase][part] == 0 < there[phase][part]
    states = [one.iteration.kept_bytes for one in (shared, apart())]
    critic, frozen = (
        18 * PARAMETERS,
        2 * 2 * PARAMETERS,
    )  # AdamW with float32 masters less gradients; two copies in 16 bit
    assert states[0] - states[1] == pytest.approx(critic + frozen, rel=0.25)


def test_a_frozen_model_takes_its_weights_and_a_pass() -> None:
    """Weights of 16 bit on every GPU of a pool that shards nothing."""
    reference = pool("reference")
    assert reference.layouts is not None
    ranks = int(reference.layouts.tp[0] * reference.layouts.pp[0])
    shards = ranks * (int(reference.layouts.dp[0]) if int(reference.layouts.zero[0]) == 3 else 1)
    assert reference.states_bytes - reference.around_bytes == pytest.approx(2 * PARAMETERS / shards, rel=0.02)
    assert reference.rating_bytes > reference.states_bytes
    assert (reference.steps_s, reference.learning_bytes) == (0, 0)


def test_the_pool_of_a_critic_learns_in_a_layout_of_its_own() -> None:
    given = sized(**{**APART, "critic__tp": 2})
    critic = pool("critic", given)
    assert critic.layouts is not None
    assert (critic.gpus, int(critic.layouts.tp[0]), int(given.layouts.tp[0])) == (4, 2, 1)
    assert critic.learning_bytes > 2 * PARAMETERS / 2
    assert given.iteration.parts_s["training (critic)"] == {"training of the critic": critic.steps_s}


def test_a_reward_model_with_the_critic_is_held_and_passed_there() -> None:
    together = sized(**PPO, gpus=12, critic__gpus=4, reward__with_critic=True)
    (both,) = together.iteration.others
    alone = pool("critic", sized(**PPO, gpus=12, critic__gpus=4))
    assert both.asked.name == "critic and reward model"
    assert list(both.passes_s) == ["log-probabilities: values of the critic", "reward model"]
    assert together.iteration.phase_s["rewards"] == 0
    assert both.states_bytes - alone.states_bytes == pytest.approx(2 * PARAMETERS, rel=0.3)


@pytest.mark.parametrize(
    ("rollout_s", "streams", "expected"),
    [(100.0, False, 30.0), (100.0, True, 4.0), (20.0, True, 10.0), (28.0, True, 4.0), (0.0, True, 30.0)],
)
def test_rating_as_answers_end_adds_what_is_left(rollout_s: float, streams: bool, expected: float) -> None:
    """30 s of passes: of those 20 or 28 are done while answers are written; the last answer still takes 4 s."""
    one = pool("reward")
    asked = replace(one.asked, streams=streams)
    assert replace(one, asked=asked, passes_s={"reward model": 30.0}, last_s=4.0).rated_s(rollout_s) == expected


def test_a_judge_is_an_engine_that_writes_about_every_answer() -> None:
    """Each replica reads all its weights for every token that it writes."""
    asked: dict[str, Any] = {**PPO, "gpus": 12, "reward__gpus": 4, "train__reward_model": "llama-3.1-8b"}
    given = {words: sized(**asked, reward__output_tokens=words) for words in (100, 400)}
    times = {words: given[words].iteration.phase_s["rewards (reward model)"] for words in given}
    ranks = {words: one.pools[-1].tp * one.pools[-1].pp for words, one in given.items()}
    assert times[400] > 400 * 16e9 / (ranks[400] * 3.35e12)
    assert times[400] > 2 * times[100]
    judge = given[400].pools[-1]
    assert (judge.name, judge.model, judge.engine) == ("reward model", "llama-3.1-8b", "vllm")
    judged = pool("reward", given[400]).asked.judged
    assert judged is not None
    assert judged.count == 512
    assert judged.inputs == pytest.approx(256 + 600)
    scored = sized(**asked, reward__engine="vllm")
    assert scored.iteration.phase_s["rewards (reward model)"] < times[100]


TAUGHT: dict[str, Any] = {
    "job": "distill-on-policy", "train__teacher_model": "llama-3.1-8b", "train__teacher_top_k": 64, "rollout__group": 1,
    "rollout__prompts": 512,
}  # fmt: skip


def test_a_teacher_on_gpus_of_its_own_reads_the_answers_before_the_student_learns() -> None:
    """All answers pass 8 B parameters: two FLOPs a parameter and token, of 856 tokens each."""
    beside, away = sized(**TAUGHT, gpus=8), sized(**TAUGHT, gpus=16, teacher__gpus=8)
    seconds = away.iteration.phase_s["log-probabilities (teacher)"]
    assert seconds > 2 * 8e9 * 512 * 856 / (8 * 989e12)
    assert away.iteration.phase_s["training"] < beside.iteration.phase_s["training"]
    assert beside.iteration.kept_bytes - away.iteration.kept_bytes == pytest.approx(2 * 8.03e9, rel=0.05)
    assert (away.pools[-1].name, away.pools[-1].model) == ("teacher", "llama-3.1-8b")
    served = sized(**TAUGHT, gpus=16, teacher__gpus=8, teacher__engine="vllm")
    assert served.pools[-1].engine == "vllm"
    assert served.iteration.phase_s["log-probabilities (teacher)"] > seconds / 4


def test_open_sizes_are_those_of_the_soonest_iteration() -> None:
    found = sized(**PPO, gpus=8, critic__colocated=False)
    tried = [sized(**PPO, gpus=8, critic__gpus=size) for size in (1, 2, 4)]
    assert found.step_s == min(one.step_s for one in tried if one.fits)
    assert found.pool_keys["critic.gpus"] == found.iteration.others[0].gpus


def test_a_pool_that_does_not_fit_is_told_with_its_gpus_and_mended() -> None:
    small = sized(**PPO, gpus=9, critic__gpus=1, train__critic_model="llama-3.1-8b")
    assert not small.fits
    memory = summarise(small).memory
    assert (memory.gpu, memory.phase) == ("GPU of the critic", "training")
    assert memory.peak_bytes > 80 * GIB
    sizes = [change.values["critic.gpus"] for change in larger_pools(small, None)]  # type: ignore[arg-type]
    assert sizes == [2, 4, 8]


def test_pools_stand_in_the_answer_with_their_times() -> None:
    result = summarise(apart())
    assert [one.name for one in result.pools] == ["trainer and rollout", "critic", "reward model", "reference model"]
    assert sum(one.gpus for one in result.pools) == result.gpus.count == 16
    for phase in result.phases:
        assert sum(part.seconds for part in phase.components) == pytest.approx(phase.seconds)
        assert sum(part.bytes for part in phase.holds) == pytest.approx(phase.peak_bytes, abs=2)
    starts = {phase.name: phase.start_s for phase in result.phases}
    assert starts["rewards (reward model)"] == starts["log-probabilities"] == pytest.approx(result.phases[0].seconds)
    assert starts["training (critic)"] == starts["training"] > starts["log-probabilities"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"critic__gpus": 4}, "has no critic here"),
        ({**PPO, "critic__gpus": 4, "critic__colocated": True}, "'colocated' critic shares"),
        ({**PPO, "critic__gpus": 3, "critic__tp": 2}, "3 GPUs are no multiple of tp x pp"),
        ({**PPO, "reward__with_critic": True}, "needs a critic on GPUs of its own"),
        ({**PPO, "critic__gpus": 2, "reward__with_critic": True, "reward__gpus": 2}, "does not go with 'with_critic'"),
        ({**PPO, "critic__gpus": 4, "reference__gpus": 4}, "take 8 GPUs and leave none of the 8"),
        ({**PPO, "critic__gpus": 2, "stack": "trl"}, "the stack trl keeps the critic on the GPUs that train"),
        ({"reward__gpus": 2}, "has no reward model here"),
        ({**TAUGHT, "train__teacher_top_k": None, "teacher__gpus": 4}, "cannot send the logits of all words"),
        ({"teacher__gpus": 4}, "has no teacher here"),
        ({"environment__seconds": 2}, "'seconds' needs 'turns' above 1"),
    ],
)
def test_contradictions_are_told(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        resolved(**flags)
    assert any(message in one.message for one in error.value.problems)
