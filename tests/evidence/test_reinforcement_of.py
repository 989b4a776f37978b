"""Records of reinforcement learning as scenarios: lengths of answers, pools, and the batch of an optimizer step."""

from typing import Any

from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import reinforce_record, validate
from xe_sizer.evidence.records import Batch, LayoutStated, Lora, Measured, Record, Rollout
from xe_sizer.evidence.training_scenario import Asked, build_scenario, reinforces

TOGETHER = Record(
    id="a", job="grpo", stack="verl", model="qwen2.5-7b", gpu="h100-sxm-80gb", gpus=8, gpus_per_node=8,
    precision="bf16", layout=LayoutStated(zero=3), recompute="full",
    batch=Batch(prompts=128, group=8, micro=4, total=256),
    input_len=100, output_len=500, max_output_len=2048, colocated=True, rollout=Rollout(engine="vllm", tp=2),
    measured=Measured(iteration_s=60.0, rollout_s=20.0, train_s=30.0),
)  # fmt: skip


def changed(**changes: Any) -> Record:
    kept = {name: getattr(TOGETHER, name) for name in TOGETHER.__struct_fields__}
    return Record(**(kept | changes))


def asked(**changes: Any) -> Asked:
    return build_scenario(changed(**changes), RecordRegistry())


def test_answers_on_the_gpus_that_train() -> None:
    found = asked()
    assert {key: value for key, value in found.flags.items() if key.startswith("rollout.")} == {
        "rollout.prompts": 128, "rollout.group": 8, "rollout.input_tokens": 100, "rollout.output_tokens": 500,
        "rollout.max_output_tokens": 2048, "rollout.colocated": True, "rollout.engine": "vllm", "rollout.tp": 2,
        "rollout.pp": 1, "rollout.ep": 1,
    }  # fmt: skip
    assert (found.flags["train.global_batch"], found.flags["train.micro_batch"], found.guessed) == (256, 4, False)
    assert not {"train.seq_len", "data.mean_tokens", "data.samples"} & set(found.flags)


def test_pools_are_told_by_the_gpus_of_the_trainer() -> None:
    found = asked(gpus=16, trainer_gpus=12, colocated=False, asynchronous=True, layout=LayoutStated(tp=4))
    assert (found.flags["gpus"], found.flags["rollout.gpus"]) == (16, 4)
    assert (found.flags["rollout.colocated"], found.flags["rollout.asynchronous"]) == (False, True)
    # 12 GPUs in groups of 4 are 3 replicas, of which 256 sequences in micro-batches of 4 are no whole number.
    assert found.flags["train.global_batch"] % (3 * 4) == 0


def test_an_optimizer_step_takes_all_answers_unless_something_is_stated() -> None:
    assert asked(batch=Batch(prompts=16, group=8)).flags["train.global_batch"] == 128
    assert asked(batch=Batch(prompts=16, group=8, total=512)).flags["train.global_batch"] == 128


def test_what_prompts_and_answers_are_cut_at_is_the_longest_sequence() -> None:
    assert asked(max_prompt_len=1024).flags["train.seq_len"] == 1024 + 2048
    assert "train.seq_len" not in asked(max_prompt_len=1024, max_output_len=None).flags


def test_lengths_that_are_not_stated_are_a_guess() -> None:
    found = asked(input_len=None, output_len=None)
    assert found.guessed
    assert "rollout.output_tokens" not in found.flags
    together = asked(input_len=None, output_len=None, mean_tokens=1110)
    assert not together.guessed
    assert (together.flags["rollout.input_tokens"], together.flags["rollout.output_tokens"]) == (110, 1000)


def test_without_answers_of_its_own_a_record_is_the_training_phase_alone() -> None:
    alone = changed(
        rollout=Rollout(), colocated=None, batch=Batch(micro=1, total=16), input_len=None, output_len=None,
        max_output_len=None, seq_len=4096, lora=Lora(rank=16),
    )  # fmt: skip
    found = build_scenario(alone, RecordRegistry())
    assert not reinforces(alone)
    assert (found.flags["job"], found.flags["train.seq_len"], found.flags["lora.rank"]) == ("lora", 4096, 16)
    assert any("training phase alone" in text for text in found.assumed)


def test_a_critic_of_another_size_is_named_and_one_alike_is_not() -> None:
    small = asked(job="ppo", batch=Batch(prompts=128, group=1), critic_model="qwen2.5-1.5b", reward_model="qwen2.5-7b")
    assert small.flags["train.critic_model"] == "qwen2.5-1.5b"
    assert "train.reward_model" not in small.flags


def test_the_iteration_and_its_phases_are_compared() -> None:
    found = {(one.quantity, one.groups[-1]): one for one in validate([TOGETHER]).records}
    step = next(one for (quantity, _), one in found.items() if quantity == "step_time")
    phases = {group: one for (quantity, group), one in found.items() if quantity == "phase_time"}
    assert set(phases) == {"phase:rollout", "phase:training"}
    assert step.measured == 60.0
    assert float(step.predicted) > sum(float(one.predicted) for one in phases.values())
    assert [one.predicted for one in validate([TOGETHER]).records if one.quantity == "oom"] == [False]


def test_a_rate_of_answers_is_an_iteration_of_all_of_them() -> None:
    rate = validate([changed(measured=Measured(samples_per_s=16.0))]).records
    step = next(one for one in rate if one.quantity == "step_time")
    assert step.measured == 1024 / 16.0


def test_a_placement_that_cannot_be_is_given_up() -> None:
    found = reinforce_record(changed(rollout=Rollout(engine="vllm", tp=3)), RecordRegistry())
    assert "rollout.tp" not in found.asked.flags
    assert any(text.startswith("rollout.tp 3 is not possible") for text in found.assumed)


def test_where_prompts_are_not_stated_they_make_one_step() -> None:
    found = asked(batch=Batch(group=8, micro=4, total=256))
    assert (found.flags["rollout.prompts"], found.guessed) == (32, True)


def test_gpus_that_neither_train_nor_write_are_those_of_critic_and_reward_model() -> None:
    found = asked(job="ppo", gpus=96, trainer_gpus=64, batch=Batch(prompts=1024, total=128))
    assert (found.flags["gpus"], found.flags["train.global_batch"]) == (96, 128)
    assert (found.flags["critic.gpus"], found.flags["reward.with_critic"]) == (32, True)
    assert "critic.gpus" not in asked(job="ppo", gpus=96).flags


def test_the_engine_is_of_the_release_that_the_framework_names_or_of_the_time_of_the_stack() -> None:
    assert asked(framework="verl 0.3 (FSDP, vLLM 0.8.2)").flags["rollout.engine"] == "vllm@0.8.2"
    old = {"stack": "openrlhf", "framework": "OpenRLHF 0.3 (Ray, vLLM)"}
    assert asked(**old).flags["rollout.engine"] == "vllm@0.4.2"
    assert "rollout.engine" not in asked(**old, rollout=Rollout()).flags
    assert asked(**old, rollout=Rollout(engine="sglang")).flags["rollout.engine"] == "sglang"


def test_asynchronous_frameworks_update_weights_in_flight_unless_a_record_says_otherwise() -> None:
    """AReaL and prime-rl by design; NeMo RL since 0.4 (its pull request 1381)."""
    pools = {"gpus": 16, "trainer_gpus": 8, "colocated": False, "asynchronous": True, "layout": LayoutStated()}

    def carried(**changes: Any) -> bool:
        found = reinforce_record(changed(**(pools | changes)), RecordRegistry())
        return found.sized.reinforcement.settings.asked.carried

    assert carried(stack="areal")
    areal = reinforce_record(changed(**(pools | {"stack": "areal"})), RecordRegistry())
    assert "rollout.partial on: default of the stack" in areal.assumed
    assert not carried(stack="areal", rollout=Rollout(engine="vllm", partial=False))
    assert not carried(stack="verl")
    assert carried(stack="nemo-rl", framework="NeMo RL v0.5 (Megatron Core, vLLM)")
    assert not carried(stack="nemo-rl", framework="NeMo RL v0.3 (Megatron Core, vLLM)")
