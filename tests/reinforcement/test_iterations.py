"""Iterations of reinforcement learning: their phases, what they take of a card, and what never gets worse."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import REGISTRY

from xe_sizer.errors import InputError
from xe_sizer.reinforcement.estimate import ReinforcementEstimate
from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.search import Search, size
from xe_sizer.reinforcement.summary import summarise
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario

ASKED = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "job": "grpo", "stack": "generic", "gpus": 8, "train.steps": 100,
    "rollout.prompts": 64, "rollout.group": 8, "rollout.output_tokens": 600, "rollout.max_output_tokens": 2048,
}  # fmt: skip


def sized(**flags: object) -> ReinforcementEstimate:
    given = {**ASKED, **{name.replace("__", "."): value for name, value in flags.items()}}
    return size(resolve(read_scenario(None, given, {}), REGISTRY))


def answer(**flags: object) -> Result:
    return summarise(sized(**flags))


def problems(**flags: object) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        sized(**flags)
    return [(one.location.name if one.location else "", one.message) for one in caught.value.problems]


def test_the_phases_of_an_iteration_sum_to_its_time() -> None:
    result = answer()
    assert [phase.name for phase in result.phases] == [
        "rollout", "log-probabilities", "training", "weight synchronisation",
    ]  # fmt: skip
    assert sum(phase.seconds for phase in result.phases) == pytest.approx(result.time.step_s.expected)
    assert sum(part.seconds for part in result.time.components) == pytest.approx(result.time.step_s.expected)
    for phase in result.phases:
        assert sum(part.seconds for part in phase.components) == pytest.approx(phase.seconds)
        assert phase.peak_bytes <= phase.usable_bytes
    assert result.time.total_s.expected == pytest.approx(100 * result.time.step_s.expected)
    assert result.memory.peak_bytes == sum(part.bytes for part in result.memory.components)
    assert result.memory.peak_bytes == pytest.approx(max(phase.peak_bytes for phase in result.phases))


def test_a_batch_that_micro_batches_make_is_that_of_all_replicas() -> None:
    """2 sequences x 4 micro-batches on each of 8 replicas: 64 of the 512 answers in a step, 8 steps in an iteration."""
    given = answer(stack="verl", train__micro_batch=2, train__grad_accum=4)
    assert given.layout.dp == 8
    assert given.scenario["train"]["global_batch"] == 64
    assert given.iteration is not None
    assert given.iteration.optimizer_steps == 8
    whole = answer(stack="verl", train__micro_batch=2, train__grad_accum=4, train__global_batch=64)
    assert given.time.step_s == whole.time.step_s
    accumulated = answer(stack="verl", train__grad_accum=4).iteration
    assert accumulated is not None
    assert accumulated.optimizer_steps == 1


def test_the_trainer_has_the_optimizer_that_the_resolved_scenario_names() -> None:
    """torchtune's recipe for one GPU has another one than its recipes for several."""
    one = sized(model="llama-3.2-1b", stack="torchtune", gpus=1)
    assert one.resolved.values.optimizer == one.resolved.job.optimizer.name == "paged-adamw-8bit"


def test_the_resolved_scenario_has_the_gpus_of_both_pools() -> None:
    apart = answer(rollout__gpus=4)
    assert apart.scenario["gpus"] == 8
    assert apart.gpus.count == 8
    nodes = answer(gpu=None, server="dell-xe9680-h100", gpus=None, nodes=2, rollout__gpus=8)
    assert nodes.gpus.count == 16
    assert sorted(pool.gpus for pool in nodes.pools) == [8, 8]


def test_the_iteration_in_figures() -> None:
    found = answer().iteration
    assert found is not None
    assert (found.count, found.answers, found.trained_answers, found.optimizer_steps) == (100, 512, 512, 1)
    assert found.output_tokens == pytest.approx(600)
    assert found.tokens == pytest.approx(512 * (256 + 600))
    assert found.colocated
    smaller = answer(train__global_batch=128, rollout__updates=2).iteration
    assert smaller is not None
    assert smaller.optimizer_steps == 8


def test_without_answers_an_iteration_is_its_training() -> None:
    found = sized(rollout__output_tokens=0)
    seconds = found.iteration.phase_s
    overhead = found.reinforcement.settings.defaults.iteration_overhead_s
    assert found.step_s == pytest.approx(found.reinforcement.steps * found.timeline.step_s[0] + overhead)
    assert seconds["rollout"] == seconds["weight synchronisation"] == seconds["log-probabilities"] == 0.0


def test_memory_holds_the_longest_sequence_of_the_whole_run() -> None:
    assert answer(train__micro_batch=1).data.longest_tokens == pytest.approx(256 + 2048, rel=0.01)


def test_more_gpus_for_the_rollout_are_never_slower() -> None:
    fixed: dict[str, object] = {"layout__dp": 8, "layout__tp": 1}
    times = [sized(gpus=8 + more, rollout__gpus=more, **fixed).step_s for more in (4, 8, 16, 32)]
    assert times == sorted(times, reverse=True)


def test_models_beside_the_actor_never_take_less() -> None:
    plain = sized(rollout__verifier_s=0, train__reward_model="none", layout__dp=8, layout__tp=1)
    rated = sized(train__reward_model="llama-3.1-8b", layout__dp=8, layout__tp=1)
    with_critic = sized(job="ppo", layout__dp=8, layout__tp=1)
    assert plain.iteration.peaks["training"] < rated.iteration.peaks["training"]
    assert rated.iteration.peaks["training"] < with_critic.iteration.peaks["training"]
    assert plain.step_s < rated.step_s < with_critic.step_s


def test_a_verifier_takes_the_time_of_the_cpus() -> None:
    found = answer(rollout__verifier_s=2.0, rollout__verifier_workers=100)
    reward = next(phase for phase in found.phases if phase.name == "rewards")
    assert reward.seconds == pytest.approx(6 * 2.0)  # 512 answers by 100 at once


def test_pools_that_work_at_the_same_time_take_as_long_as_the_slower_one() -> None:
    pools = {"gpus": 16, "rollout__gpus": 8}
    turns, both = sized(**pools), sized(**pools, rollout__asynchronous=True)
    seconds = turns.iteration.phase_s
    trained = seconds["log-probabilities"] + seconds["rewards"] + seconds["training"]
    assert both.step_s == pytest.approx(max(seconds["rollout"], trained) + seconds["weight synchronisation"])
    assert turns.step_s == pytest.approx(sum(seconds.values()))
    hidden = [phase.name for phase in summarise(both).phases if phase.hidden]
    assert hidden == (["rollout"] if trained >= seconds["rollout"] else ["log-probabilities", "training"])


@pytest.mark.parametrize(("stack", "carried"), [("nemo-rl", True), ("nemo-rl@0.3", False), ("generic", False)])
def test_answers_go_on_with_new_weights_where_the_stack_does_so_while_it_trains(stack: str, carried: bool) -> None:
    pools: dict[str, object] = {"stack": stack, "gpus": 16, "rollout__gpus": 8}
    found = sized(**pools, rollout__asynchronous=True)
    assert found.reinforcement.settings.asked.carried is carried
    assert found.reinforcement.settings.staleness == 1
    assert not sized(**pools, rollout__asynchronous=True, rollout__partial=False).reinforcement.settings.asked.carried
    assert not sized(**pools).reinforcement.settings.asked.carried


def test_pools_are_said_with_their_layouts() -> None:
    trainer, rollout = answer(gpus=16, rollout__gpus=8, rollout__tp=2).pools
    assert (trainer.name, trainer.gpus, trainer.replicas) == ("trainer", 8, 0)
    assert trainer.layout is not None
    assert (rollout.name, rollout.gpus, rollout.replicas, rollout.tp, rollout.layout) == ("rollout", 8, 4, 2, None)
    (both,) = answer().pools
    assert (both.name, both.gpus, both.engine) == ("trainer and rollout", 8, "vllm")


def test_an_engine_that_shares_the_card_has_what_the_trainer_leaves() -> None:
    share = {"rollout__gpu_memory_utilization": 0.3}
    asleep, awake = (sized(rollout__sleep=how, **share) for how in ("weights-dropped", "none"))
    assert awake.iteration.asleep_bytes == pytest.approx(0.3 * awake.usable_bytes)
    assert asleep.iteration.asleep_bytes < 4 * 2**30
    small = sized(rollout__gpu_memory_utilization=0.03)
    assert not small.fits
    assert "rollout-out-of-memory" in {reason.code for reason in summarise(small).verdict.reasons}


def test_an_engine_on_gpus_of_its_own_has_its_own_share_of_the_card_whoever_split_them() -> None:
    """verl lets vLLM use half of a card that it shares; on one of its own it takes the engine's nine tenths."""
    verl = {"stack": "verl", "gpus": 16, "train__micro_batch": 1}
    found = [sized(**verl, **way) for way in ({"rollout__colocated": False}, {"rollout__gpus": 8})]
    assert [one.iteration.rollout.share for one in found] == [0.9, 0.9]
    together = sized(**verl, rollout__colocated=True)
    assert together.iteration.rollout.share == 0.5
    search = Search(together.reinforcement)
    assert search.apart(8).share == 0.9


def test_groups_of_attention_follow_from_the_ranks_of_experts() -> None:
    """8 ranks of experts on a tensor rank each are 8 groups that serve sequences of their own."""
    one = sized(model="mixtral-8x7b", gpus=16, rollout__gpus=8, rollout__tp=1, rollout__ep=8, rollout__pp=1)
    placement = one.iteration.rollout.placement
    assert [int(size[0]) for size in (placement.tp, placement.ep, placement.dp)] == [1, 8, 8]


def test_the_fewest_gpus_are_found_where_nobody_names_a_number() -> None:
    found = sized(gpus=None)
    assert found.fits
    assert found.gpus == found.minimum
    hours = found.hours
    faster = sized(gpus=None, limits__max_hours=hours / 3)
    assert faster.ok
    assert faster.gpus > found.gpus


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"rollout__group": 1}, "grpo compares the responses to a prompt, and there is 1"),
        ({"rollout__gpus": 8}, "'gpus' of the rollout (8) leave none of the 8 to train"),
        ({"rollout__colocated": True, "rollout__gpus": 4},
         "'colocated' responses are generated on the GPUs that train, but 'gpus' names others"),
        ({"rollout__output_tokens": 4096}, "'output_tokens' (4,096) is above 'max_output_tokens' (2,048)"),
        ({"rollout__max_staleness": 2}, "'max_staleness' needs 'asynchronous'"),
        ({"rollout__verifier_workers": 4}, "'verifier_workers' needs 'verifier_s'"),
        ({"train__global_batch": 1024}, "'global_batch' (1,024) is more than the 512 responses of an iteration"),
        ({"train__seq_len": 512}, "'seq_len' (512) cuts prompts with their responses, of up to 2,176 tokens"),
        ({"rollout__colocated": True, "rollout__asynchronous": True},
         "colocated generation takes turns with the training, never 'asynchronous'"),
    ],
)  # fmt: skip
def test_contradictions(flags: dict[str, object], message: str) -> None:
    assert message in [said for _, said in problems(**flags)]


def test_a_teacher_takes_the_place_of_rewards() -> None:
    asked: dict[str, object] = {"job": "distill-on-policy", "rollout__group": 1, "rollout__prompts": 256}
    fixed: dict[str, object] = {
        "train__micro_batch": 1,
        "layout__dp": 8,
        "layout__tp": 1,
        "layout__recompute": "full",
        "layout__zero": 3,
    }
    found = sized(**asked, **fixed, train__teacher_model="llama-3.1-8b")
    assert found.iteration.phase_s["log-probabilities"] == found.iteration.phase_s["rewards"] == 0.0
    assert found.timeline.components["frozen forward"][0] > 0  # the teacher's, in every step
    alone = sized(**fixed, rollout__group=2, rollout__prompts=128, train__reference="none")
    assert found.iteration.peaks["training"] > alone.iteration.peaks["training"]
    assert "the job 'distill-on-policy' needs a teacher" in [said for _, said in problems(**asked)]


def test_a_reference_is_a_copy_or_the_model_without_its_adapters() -> None:
    copy, none, off = (
        sized(train__reference=how, **flags)
        for how, flags in (("copy", {}), ("none", {}), ("adapters-off", {"adapter": "lora"}))
    )
    assert copy.iteration.parts_s["log-probabilities"]["log-probabilities of the reference"] > 0
    assert none.iteration.parts_s["log-probabilities"]["log-probabilities of the reference"] == 0
    assert off.iteration.parts_s["log-probabilities"]["log-probabilities of the reference"] > 0
    assert [one.copies for one in off.resolved.job.method.frozen] == [0]
    assert "responses are new in every iteration: the reference cannot be 'precomputed'" in [
        said for _, said in problems(train__reference="precomputed")
    ]


def test_unknown_names_are_found_where_they_stand() -> None:
    assert problems(rollout__engine="vlm")[0][0] == "--rollout-engine"
    assert problems(train__reward_model="nothing-like-it")[0][0] == "--reward-model"
    assert problems(job="ppo", train__critic_model="nothing-like-it")[0][0] == "--critic-model"


def test_what_a_replica_cannot_do_is_told_at_the_keys_of_the_rollout() -> None:
    told = problems(rollout__tp=3, rollout__pp=99, rollout__ep=2, precision="fp4")
    assert [place for place, _ in told] == ["--precision", "--rollout-tp", "--rollout-ep", "--rollout-pp"]
    assert told[0][1] == "h100-sxm-80gb has no fp4"


def test_files_of_engine_and_critic_lie_beside_the_scenario(tmp_path: Path) -> None:
    engine = REGISTRY.path("engine", "vllm").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(engine.replace("name: vllm", "name: mine", 1), encoding="utf-8")
    text = "{model: llama-3.1-8b, gpu: h100-sxm-80gb, job: ppo, stack: generic, gpus: 8, "
    text += "train: {steps: 9, critic_model: ./none.yaml}, rollout: {engine: ./%s.yaml}}"
    file = tmp_path / "scenario.yaml"
    file.write_text(text % "mine", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        resolve(read_scenario(file, {}, {}), REGISTRY)
    assert [one.message for one in caught.value.problems] == [f"no such file: {tmp_path / 'none.yaml'}"]
    file.write_text((text % "mine").replace(", critic_model: ./none.yaml", ""), encoding="utf-8")
    assert resolve(read_scenario(file, {}, {}), REGISTRY).writer.engine.name == "mine"


def test_a_critic_lies_beside_a_scenario_of_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("jobs")
    folder.mkdir()
    shape = REGISTRY.path("model", "llama-3.2-1b").read_text(encoding="utf-8")
    (folder / "critic.yaml").write_text(shape.replace("name: llama-3.2-1b", "name: critic", 1), encoding="utf-8")
    text = "{model: llama-3.2-3b, gpu: h100-sxm-80gb, job: ppo, stack: verl, gpus: 8, "
    (folder / "ppo.yaml").write_text(text + "train: {critic_model: ./critic.yaml}}", encoding="utf-8")
    critic = resolve(read_scenario(folder / "ppo.yaml", {}, {}), REGISTRY).critic
    assert critic is not None
    assert critic.model.name == "critic"


def test_an_engine_that_is_asked_batch_by_batch_waits_for_the_longest_of_each() -> None:
    asked: dict[str, object] = {
        "rollout__max_sequences": 8, "layout__dp": 8, "rollout__colocated": True, "rollout__tp": 1,
    }  # fmt: skip
    refilled, batched = (sized(stack=name, **asked) for name in ("openrlhf", "openrlhf@0.5.0"))
    lengths = batched.reinforcement.settings.answers
    writing = batched.iteration.rollout.writing
    assert float((writing.full_s + writing.tail_s)[0] / writing.full_s[0]) == pytest.approx(
        float(lengths.expected_longest(8.0)) / lengths.mean
    )
    assert batched.iteration.rollout.seconds > 1.3 * refilled.iteration.rollout.seconds


def test_a_sequence_that_a_file_names_leaves_the_prompt_what_the_answer_does_not_take() -> None:
    assert sized(train__seq_len=2048 + 64).fits  # the longest answer has 2,048 tokens, and a prompt 64


def test_weights_that_do_not_fit_whole_come_together_in_every_step() -> None:
    placed = {"layout__zero": 3, "rollout__tp": 1, "rollout__pp": 1, "gpus": 128}
    asked: dict[str, object] = {"stack": "deepspeed-chat", "job": "ppo", **placed}
    small, large = (sized(model=name, **asked) for name in ("llama-3.1-8b", "llama-3.1-70b"))
    assert small.iteration.rollout.step_gather_s == 0.0 < small.iteration.synchronisation_s
    assert large.iteration.rollout.step_gather_s > 0.0 == large.iteration.synchronisation_s
    assert large.iteration.rollout.fits
    # Prompts are fewer than the ranks can hold at once: one wave, longer than its answers are in the mean.
    assert large.iteration.rollout.seconds > 600 * large.iteration.rollout.step_gather_s


def test_replicas_asleep_leave_the_trainer_room_for_its_steps() -> None:
    """An engine that keeps its weights asleep is split so far that actor and critic step beside it."""
    asked = {"job": "ppo", "stack": "nemo-aligner", "rollout__output_tokens": None, "rollout__max_output_tokens": None}
    found = sized(**asked, rollout__prompts=128, rollout__group=1)
    assert found.fits
    assert found.ok
    assert found.iteration.peaks["training"] <= found.usable_bytes
    whole = summarise(sized(**asked, rollout__prompts=128, rollout__group=1, rollout__tp=1))
    assert whole.verdict.fits is (whole.memory.peak_bytes <= whole.memory.usable_bytes)


def test_what_does_not_fit_is_not_ok() -> None:
    found = sized(model="llama-3.1-70b", job="ppo")
    assert found.peak_bytes > found.usable_bytes
    assert not found.ok


def test_a_run_over_known_prompts_says_how_many_it_reads() -> None:
    data = answer(data__samples=1000, train__steps=None, train__epochs=2).data
    assert data.samples == 1000
    assert data.samples_read == 30 * 64  # 2 passes over 1,000 prompts, 15 x 64 of them: the last 40 are dropped
    assert data.epochs == pytest.approx(1.92)
    assert answer().data.samples == 100 * 64
    assert answer().data.epochs is None


def test_the_length_of_a_run_is_shown_as_it_was_given() -> None:
    over_prompts = answer(data__samples=1000, train__steps=None).scenario
    assert over_prompts["train"]["epochs"] == 1
    assert "steps" not in over_prompts["train"]
    assert over_prompts["data"] == {"samples": 1000}
    assert answer().scenario["train"]["steps"] == 100


def test_lengths_of_a_data_set_are_said_to_have_no_effect() -> None:
    (told,) = [one for one in answer(data__mean_tokens=800).warnings if "without effect" in one]
    assert "mean-tokens" in told
    assert not [one for one in answer(data__samples=1000).warnings if "without effect" in one]


@pytest.mark.parametrize(
    ("flags", "phase"),
    [
        ({"stack": "verl", "train__micro_batch": 8}, "rollout"),
        ({"stack": "verl", "train__micro_batch": 8, "rollout__gpu_memory_utilization": 0.2}, "training"),
        ({"stack": "trl", "layout__zero": 3}, "training"),
        ({"rollout__gpus": 4}, "rollout"),
    ],
)
def test_what_monitors_show_is_of_one_moment(flags: dict[str, object], phase: str) -> None:
    """Live tensors are part of what the allocator reserves, which is part of what the card has."""
    memory = answer(**flags).memory
    assert memory.phase.startswith(phase)
    assert 0 < memory.allocated_bytes <= memory.reserved_bytes <= memory.device_bytes <= memory.usable_bytes
    assert memory.reserved_bytes - memory.cached_bytes >= memory.allocated_bytes
    if phase == "rollout":
        assert memory.device_bytes == memory.peak_bytes
        assert memory.cached_bytes == 0.0


def test_an_evaluation_writes_an_answer_to_each_sample() -> None:
    """As a rollout of so many prompts with one answer each; 6,400 prompts answer as 100 x 64 of an iteration."""
    every = {"train__evaluate_every": 1, "train__evaluate_samples": 64 * 8}
    result = answer(**every)
    run = {part.name: part.seconds for part in result.time.run}
    rollout_s = next(phase.seconds for phase in result.phases if phase.name == "rollout")
    assert run["evaluation"] / 100 == pytest.approx(rollout_s, rel=0.1)  # prompts are read once a group there
    assert result.time.total_s.expected == pytest.approx(sum(run.values()))
    left_out = answer(train__evaluate_every=1)
    assert "evaluation" not in {part.name for part in left_out.time.run}
