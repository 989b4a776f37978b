"""verl: overrides of its commands, what its trainers fill in, and what is lost."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

FSDP = """\
SIZE=${SIZE:-64}
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  data.max_prompt_length=512 data.max_response_length=1536 \\
  actor_rollout_ref.model.path=$HOME/models/Qwen2.5-7B-Instruct \\
  actor_rollout_ref.actor.ppo_mini_batch_size=$SIZE actor_rollout_ref.rollout.n=4 \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\
  actor_rollout_ref.actor.fsdp_config.param_offload=True \\
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \\
  trainer.n_gpus_per_node=8 trainer.nnodes=2 trainer.total_epochs=3 trainer.save_freq=-1
"""
MEGATRON = """\
python3 -m verl.trainer.main_ppo --config-path=config --config-name=ppo_megatron_trainer.yaml \\
  actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B actor_rollout_ref.actor.use_dynamic_bsz=True \\
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096 \\
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 \\
  actor_rollout_ref.actor.megatron.expert_model_parallel_size=4 \\
  +actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full \\
  trainer.n_gpus_per_node=8 trainer.nnodes=1
"""
SFT = """\
torchrun --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=32 \\
  model.partial_pretrain=google/gemma-2b-it model.lora_rank=16 trainer.total_training_steps=100
"""


def imported(tmp_path: Path, text: str, name: str = "run.sh", **given: str) -> Imported:
    path = tmp_path / name
    path.write_text(text)
    return read_foreign([path], Asked(given=given))


def facts(found: Imported) -> dict[str, object]:
    return {key: fact.value for key, fact in found.facts.items()}


def test_a_command_says_prompts_answers_and_gpus(tmp_path: Path) -> None:
    found = imported(tmp_path, FSDP)
    said = facts(found)
    assert (said["model"], said["job"], said["gpus"]) == ("Qwen2.5-7B-Instruct", "grpo", 16)
    assert said["train.global_batch"] == 64 * 4
    assert (said["train.seq_len"], said["train.micro_batch"], said["train.grad_accum"]) == (2048, 2, 8)
    assert (said["layout.zero"], said["train.weights_dtype"], said["layout.offload"]) == (3, "fp32", "none")
    assert "train.checkpoint_every" not in said


def test_what_writes_answers_is_read(tmp_path: Path) -> None:
    said = facts(imported(tmp_path, FSDP))
    rollout = {key.removeprefix("rollout."): value for key, value in said.items() if key.startswith("rollout.")}
    assert rollout == {
        "prompts": 1024, "group": 4, "max_output_tokens": 1536, "updates": 1, "tp": 2, "gpu_memory_utilization": 0.6,
        "offload": "params",
    }  # fmt: skip
    assert (said["train.reference"], said["train.reward_model"]) == ("none", "none")
    with_reference = FSDP.replace("algorithm.adv_estimator=grpo", "actor_rollout_ref.actor.use_kl_loss=True")
    assert facts(imported(tmp_path, with_reference))["train.reference"] == "copy"


def test_a_variable_that_is_passed_changes_the_batch(tmp_path: Path) -> None:
    assert facts(imported(tmp_path, FSDP, SIZE="128"))["train.global_batch"] == 512


def test_megatron_actors_are_split_and_filled_by_tokens(tmp_path: Path) -> None:
    found = imported(tmp_path, MEGATRON)
    said = facts(found)
    assert (said["stack"], said["job"], said["layout.tp"], said["layout.ep"]) == ("verl-megatron", "ppo", 2, 4)
    assert (said["layout.recompute"], said["layout.zero"]) == ("full", 1)
    assert said["layout.sequence_parallel"] is True
    assert (said["train.micro_batch"], found.facts["train.micro_batch"].origin) == (4, "assumed")


def test_supervised_training_takes_its_gpus_from_the_launcher(tmp_path: Path) -> None:
    said = facts(imported(tmp_path, SFT))
    assert (said["gpus"], said["job"], said["lora.rank"], said["train.steps"]) == (4, "lora", 16, 100)
    assert (said["train.micro_batch"], said["train.grad_accum"]) == (4, 2)
    assert said["train.padding"] == "to-seq-len"


def test_a_configuration_refers_to_its_own_keys(tmp_path: Path) -> None:
    text = """\
actor_rollout_ref:
  model: {path: Qwen/Qwen3-8B, lora_rank: 32}
  actor: {strategy: fsdp2, ppo_mini_batch_size: "${data.train_batch_size}", ppo_micro_batch_size: 16}
data: {train_batch_size: 128}
trainer: {n_gpus_per_node: 4, nnodes: 1}
"""
    said = facts(imported(tmp_path, text, "ppo.yaml"))
    assert (said["train.global_batch"], said["train.micro_batch"], said["gpus"]) == (128, 4, 4)
    assert (said["lora.rank"], said["lora.targets"]) == (32, ("all-linear",))


ODD = FSDP.replace("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2", "x.y=1").replace(
    "trainer.save_freq=-1", "'actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=VALUE'"
)


def test_values_that_something_else_fills_in_are_told(tmp_path: Path) -> None:
    assert "train.micro_batch" not in facts(imported(tmp_path, ODD.replace("VALUE", "$(rm -rf x)")))


@pytest.mark.parametrize("value", ["abc", "[[[", "-1", "1e400"])
def test_values_that_are_no_numbers_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match=r"ppo_micro_batch_size_per_gpu: .* is not a"):
        imported(tmp_path, ODD.replace("VALUE", value))


def test_a_comment_between_the_lines_cuts_nothing_off(tmp_path: Path) -> None:
    text = FSDP.replace("  trainer.n_gpus", "  # how long\n  trainer.n_gpus")
    assert facts(imported(tmp_path, text))["train.epochs"] == 3


def test_null_says_nothing_and_groups_of_gpus_share_the_shards(tmp_path: Path) -> None:
    text = FSDP.replace(
        "trainer.save_freq=-1", "actor_rollout_ref.actor.fsdp_config.fsdp_size=8 trainer.save_freq=null"
    )
    said = facts(imported(tmp_path, text))
    assert said["layout.zero_group"] == 8
    assert "train.checkpoint_every" not in said


def test_micro_batches_of_tokens_divide_what_a_rank_has(tmp_path: Path) -> None:
    text = FSDP.replace(
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=15000",
    )
    said = facts(imported(tmp_path, text))  # 7 sequences of 2048 tokens go in; a rank has 16
    assert (said["train.micro_batch"], said["train.grad_accum"]) == (4, 4)


def test_the_newer_trainer_fills_micro_batches_unasked(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node=4 -m verl.trainer.sft_trainer model.path=Qwen/Qwen3-8B data.train_batch_size=64\n"
    said = facts(imported(tmp_path, text))
    assert (said["train.micro_batch"], said["train.padding"], said["layout.recompute"]) == (8, "none", "full")


def test_checkpoints_after_each_epoch_are_no_number_of_steps(tmp_path: Path) -> None:
    found = imported(tmp_path, SFT.rstrip() + " trainer.save_freq=after_each_epoch\n")
    assert "train.checkpoint_every" not in facts(found)
    assert not [each for each in found.ignored if each.key == "trainer.save_freq" and each.effect == "unknown"]


def test_numbers_beyond_all_bounds_take_no_time(tmp_path: Path) -> None:
    text = FSDP.replace(
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        f"actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu={10**30}",
    )
    said = facts(imported(tmp_path, text, SIZE=str(16 * (10**20 + 39))))
    assert str(said["train.micro_batch"]).isdecimal()


STREAMING = """\
python -m verl.experimental.fully_async_policy.fully_async_main algorithm.adv_estimator=grpo \\
  actor_rollout_ref.model.path=Qwen/Qwen2.5-7B actor_rollout_ref.hybrid_engine=False \\
  data.max_prompt_length=2048 data.max_response_length=8192 data.train_batch_size=0 data.gen_batch_size=1 \\
  actor_rollout_ref.rollout.n=16 actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 actor_rollout_ref.rollout.name=vllm \\
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 trainer.nnodes=1 trainer.n_gpus_per_node=4 \\
  rollout.nnodes=1 rollout.n_gpus_per_node=12 rollout.total_rollout_steps=51200 \\
  async_training.staleness_threshold=0.5 async_training.trigger_parameter_sync_step=4 \\
  async_training.require_batches=2 async_training.partial_rollout=True
"""


def test_answers_are_written_on_other_gpus_while_these_train(tmp_path: Path) -> None:
    said = facts(imported(tmp_path, STREAMING))
    assert (said["gpus"], said["rollout.gpus"]) == (4 + 12, 12)
    assert (said["rollout.asynchronous"], said["rollout.max_staleness"], said["rollout.partial"]) == (True, 1, True)
    assert said["rollout.prompts"] == 4 * 2 * 32  # steps x batches x prompts of a mini-batch
    assert said["train.steps"] == 51_200 // 256
    assert said["train.grad_accum"] == 32 * 16 // (2 * 4)  # of the four that train


def test_gpus_that_only_write_answers_leave_none_to_train(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(STREAMING.replace("ppo_micro_batch_size_per_gpu=2", "use_dynamic_bsz=True"))
    for gpus in (4, 12):
        said = facts(read_foreign([file], Asked(hardware={"gpus": gpus})))
        assert (said["gpus"], said["rollout.gpus"]) == (gpus, 12)
        assert "train.grad_accum" not in said


def test_models_that_rate_are_named(tmp_path: Path) -> None:
    text = FSDP.replace(
        "algorithm.adv_estimator=grpo",
        "critic.model.path=Qwen/Qwen2.5-1.5B reward_model.enable=True reward_model.model.path=some/unknown-model",
    )
    found = imported(tmp_path, text)
    assert found.facts["train.critic_model"].value == "Qwen/Qwen2.5-1.5B"
    assert "not known" in found.facts["train.reward_model"].aside
    assert "train.critic_model" not in facts(imported(tmp_path, FSDP))


def test_single_answers_are_written_as_pairs_where_groups_are_compared(tmp_path: Path) -> None:
    found = imported(tmp_path, FSDP.replace("rollout.n=4", "rollout.n=1"))
    assert (found.facts["rollout.group"].written, found.facts["rollout.prompts"].written) == (2, 512)
    assert (found.facts["rollout.group"].value, found.facts["rollout.prompts"].value) == (1, 1024)


def test_filtered_prompts_are_written_beside_those_that_train(tmp_path: Path) -> None:
    more = "algorithm.filter_groups.enable=True data.train_batch_size=512 data.gen_batch_size=1536 trainer.nnodes=2"
    assert facts(imported(tmp_path, FSDP.replace("trainer.nnodes=2", more)))["rollout.oversampling"] == 3


def test_stages_count_embedding_and_loss_of_a_model_that_is_named(tmp_path: Path) -> None:
    transformer = "+actor_rollout_ref.actor.megatron.override_transformer_config"
    text = MEGATRON.replace("Qwen3-30B-A3B", "Qwen3-235B-A22B").replace(
        f"{transformer}.recompute_granularity=full",
        f"actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=8 "
        f"{transformer}.account_for_embedding_in_pipeline_split=True "
        f"{transformer}.account_for_loss_in_pipeline_split=True",
    )
    said = facts(imported(tmp_path, text))
    assert (said["layout.account_for_embedding"], said["layout.account_for_loss"]) == (True, True)


def test_a_reward_model_with_a_pool_of_its_own_has_its_gpus_and_engine(tmp_path: Path) -> None:
    rated = f"{FSDP.rstrip()} reward_model.enable=True reward_model.model.path=Qwen/Qwen2.5-7B "
    apart = "reward_model.enable_resource_pool=True reward_model.n_gpus_per_node=4 reward_model.nnodes=2 "
    served = "reward_model.rollout.name=vllm reward_model.rollout.tensor_model_parallel_size=2"
    said = facts(imported(tmp_path, rated + apart + served))
    assert (said["gpus"], said["reward.gpus"], said["reward.engine"], said["reward.tp"]) == (16 + 8, 8, "vllm", 2)
    assert said["train.grad_accum"] == 8  # of the 16 GPUs that train
    assert not {"reward.gpus", "reward.engine"} & facts(imported(tmp_path, rated + served)).keys()


def test_a_trainer_of_streams_has_its_own_defaults(tmp_path: Path) -> None:
    own = " ".join(word for word in STREAMING.split() if not word.startswith(("async_training.", "rollout.n")))
    said = facts(imported(tmp_path, own.replace("\\", "") + "\n"))
    assert (said["gpus"], said["rollout.gpus"], said["rollout.partial"]) == (4 + 8, 8, True)
    assert said["rollout.prompts"] == 4 * 1 * 32  # a mini-batch in each of four steps
    one_step = own.replace("fully_async_policy.fully_async_main", "one_step_off_policy.main_ppo")
    said = facts(imported(tmp_path, one_step.replace("\\", "") + "\n"))
    assert (said["rollout.gpus"], said["rollout.asynchronous"], "rollout.partial" in said) == (8, True, False)


def test_without_staleness_the_pools_take_turns(tmp_path: Path) -> None:
    said = facts(imported(tmp_path, STREAMING.replace("staleness_threshold=0.5", "staleness_threshold=0")))
    assert (said["rollout.gpus"], said["rollout.asynchronous"]) == (12, False)
    assert not {"rollout.partial", "rollout.max_staleness"} & said.keys()


TURNS = f"{FSDP.rstrip()} actor_rollout_ref.rollout.multi_turn.enable=True"


def test_turns_of_an_answer_are_those_that_it_may_have(tmp_path: Path) -> None:
    group = "actor_rollout_ref.rollout.multi_turn."
    found = imported(
        tmp_path, f"{TURNS} {group}max_assistant_turns=6 {group}max_user_turns=3 {group}tool_config_path=t\n"
    )
    said = {key: found.facts[key].written for key in found.facts}
    assert (said["environment.turns"], said["environment.turn_tokens"]) == (4, 64)  # 3 calls of 256 characters
    assert said["rollout.max_output_tokens"] == 1536 - 3 * 64
    assert {found.facts[key].origin for key in ("environment.turns", "environment.turn_tokens")} == {"assumed"}
    assert [each.why for each in found.lost if each.key.endswith("tool_config_path")]
    long = imported(tmp_path, f"{TURNS} {group}max_assistant_turns=99 {group}max_tool_response_length=1024\n").facts
    assert (long["environment.turns"].value, long["rollout.max_output_tokens"].written) == (1 + 3, 1536 - 3 * 256)


def test_turns_without_a_limit_are_to_be_passed(tmp_path: Path) -> None:
    found = imported(tmp_path, TURNS + "\n")
    assert "environment.turns" not in found.facts
    assert any("--environment-turns" in each.why for each in found.lost)
    assert "environment.turns" not in imported(tmp_path, TURNS.replace("enable=True", "enable=False") + "\n").facts


def test_a_teacher_has_its_gpus_and_engine(tmp_path: Path) -> None:
    own = "distillation.teacher_models.teacher_model."
    text = (
        f"{FSDP.rstrip()} distillation.enabled=True distillation.nnodes=1 distillation.n_gpus_per_node=4 "
        f"{own}model_path=Qwen/Qwen3-32B {own}inference.name=sglang {own}inference.tensor_model_parallel_size=4 "
    )
    said = facts(imported(tmp_path, f"{text}distillation.distillation_loss.loss_mode=forward_kl_topk\n"))
    assert (said["job"], said["train.teacher_model"], said["gpus"]) == ("distill-on-policy", "Qwen/Qwen3-32B", 16 + 4)
    assert (said["teacher.gpus"], said["teacher.tp"], said["teacher.engine"]) == (4, 4, "sglang")
    assert said["train.teacher_top_k"] == 128
    assert facts(imported(tmp_path, f"{text}distillation.distillation_loss.loss_mode=k1\n"))["train.teacher_top_k"] == 1


def test_kernels_of_the_loss_are_those_of_fsdp(tmp_path: Path) -> None:
    fused = "actor_rollout_ref.model.use_fused_kernels=True actor_rollout_ref.model.use_liger="
    kernels = [
        facts(imported(tmp_path, f"{FSDP.rstrip()} {fused}{on}\n"))["train.fused_kernels"] for on in (True, False)
    ]
    assert kernels[1] == ("linear-log-probabilities",)
    assert kernels[0] == ("rotary", "norm", "activation", "linear-log-probabilities")
