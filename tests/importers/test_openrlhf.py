"""OpenRLHF: commands of its trainers, with the flags of today and those before them."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

MODEL = "meta-llama/Llama-3.1-8B"
SFT = f"deepspeed --num_gpus 4 --module openrlhf.cli.train_sft --model.model_name_or_path {MODEL}"
BEFORE = f"deepspeed --num_gpus 4 --module openrlhf.cli.train_sft --pretrain {MODEL}"
RAY = f"""\
ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray \\
  --actor.num_nodes 2 --actor.num_gpus_per_node 8 --vllm.num_engines 4 --actor.model_name_or_path {MODEL}"""
RAY_BEFORE = f"python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 4 --pretrain {MODEL}"


def imported(tmp_path: Path, text: str) -> Imported:
    path = tmp_path / "run.sh"
    path.write_text(text)
    return read_foreign([path], Asked())


def facts(tmp_path: Path, text: str) -> dict[str, object]:
    return {key: fact.value for key, fact in imported(tmp_path, text).facts.items()}


@pytest.mark.parametrize(
    "text",
    [
        f"{SFT} --ds.zero_stage 3 --train.batch_size 64 --train.micro_batch_size 2 --ds.adam_offload",
        f"{BEFORE} --zero_stage 3 --train_batch_size 64 --micro_train_batch_size 2 --adam_offload",
    ],
)
def test_flags_of_today_and_before_say_the_same(tmp_path: Path, text: str) -> None:
    said = facts(tmp_path, text)
    assert (said["model"], said["job"], said["gpus"], said["stack"]) == (MODEL, "sft", 4, "openrlhf")
    assert (said["layout.zero"], said["layout.offload"]) == (3, "optimizer")
    assert (said["train.global_batch"], said["train.micro_batch"], said["train.grad_accum"]) == (64, 2, 8)
    assert said["train.seq_len"] == 2048


def test_what_the_trainer_fills_in(tmp_path: Path) -> None:
    found = imported(tmp_path, SFT)
    said = {key: fact.value for key, fact in found.facts.items() if fact.origin == "tool-default"}
    assert (said["layout.zero"], said["train.micro_batch"], said["train.epochs"]) == (2, 8, 2)
    assert (said["layout.recompute"], said["train.padding"]) == ("none", "longest-in-micro-batch")
    assert (said["precision"], said["attention"], said["optimizer"]) == ("bf16", "flash", "adamw")


@pytest.mark.parametrize(
    ("trainer", "job", "length"), [("dpo", "dpo", 512), ("rm", "reward", 512), ("kto", "kto", 2048)]
)
def test_trainers_have_jobs_and_lengths_of_their_own(tmp_path: Path, trainer: str, job: str, length: int) -> None:
    said = facts(tmp_path, SFT.replace("train_sft", f"train_{trainer}"))
    assert (said["job"], said["train.seq_len"]) == (job, length)


def test_adapters(tmp_path: Path) -> None:
    said = facts(tmp_path, f"{SFT} --ds.lora.rank 64 --ds.load_in_4bit --ds.lora.target_modules q_proj v_proj")
    assert (said["job"], said["lora.rank"], said["train.bits"]) == ("qlora", 64, 4)
    assert said["lora.targets"] == ("q_proj", "v_proj")


def test_reinforcement_runs_on_the_gpus_of_the_actor(tmp_path: Path) -> None:
    found = imported(tmp_path, f"{RAY} --algo.advantage.estimator group_norm --train.num_episodes 3")
    said = {key: fact.value for key, fact in found.facts.items()}
    assert (said["job"], said["train.epochs"], said["train.micro_batch"]) == ("grpo", 3, 1)
    assert (said["gpus"], said["rollout.gpus"], said["rollout.tp"]) == (16 + 4 + 8, 4, 1)  # four engines of one GPU
    assert (found.facts["reference.gpus"].value, found.facts["reference.gpus"].origin) == (8, "tool-default")
    assert (said["rollout.prompts"], said["rollout.group"], said["train.reference"]) == (1024, 1, "copy")


def test_answers_are_written_in_turn_where_all_models_share_the_gpus(tmp_path: Path) -> None:
    said = facts(tmp_path, f"{RAY} --train.colocate_all --rollout.n_samples_per_prompt 8 --algo.kl.init_coef 0")
    assert (said["gpus"], said["rollout.colocated"], said["rollout.group"]) == (16, True, 8)
    assert said["train.reference"] == "none"
    assert "rollout.gpus" not in said


def test_prompts_and_answers_of_earlier_releases_make_a_sequence(tmp_path: Path) -> None:
    said = facts(tmp_path, f"{RAY_BEFORE} --prompt_max_len 1024 --generate_max_len 3072 --packing_samples --flash_attn")
    assert (said["job"], said["gpus"], said["train.seq_len"]) == ("ppo", 4 + 8 + 8, 4096)  # with reference and critic
    assert (said["train.micro_batch"], said["train.padding"]) == (4, "none")


def test_micro_batches_filled_by_tokens_are_assumed(tmp_path: Path) -> None:
    found = imported(tmp_path, f"{RAY} --train.dynamic_batch_enable --train.max_tokens_per_gpu 8192")
    fact = found.facts["train.micro_batch"]
    assert (fact.value, fact.origin) == (4, "assumed")


def test_values_that_something_else_fills_in_set_nothing(tmp_path: Path) -> None:
    assert facts(tmp_path, f"{SFT} --train.batch_size '$(rm -rf x)'").get("train.global_batch") in (None, 128)


@pytest.mark.parametrize("value", ["many", "-3", "1e400"])
def test_values_that_are_no_numbers_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match=r"train.batch_size: .* is not a"):
        facts(tmp_path, f"{SFT} --train.batch_size '{value}'")


def test_what_sleeps_between_the_phases(tmp_path: Path) -> None:
    shared = f"{RAY} --train.colocate_all"
    asleep = facts(tmp_path, f"{shared} --vllm.enable_sleep --ds.enable_sleep")
    assert (asleep["rollout.sleep"], asleep["rollout.offload"]) == ("weights-to-host", "optimizer")
    awake = facts(tmp_path, shared)
    assert (awake["rollout.sleep"], awake["rollout.offload"]) == ("none", "none")


def test_engines_that_write_while_the_models_train_have_other_gpus(tmp_path: Path) -> None:
    said = facts(tmp_path, f"{RAY} --train.colocate_all --train.async_enable --train.async_queue_size 3")
    assert (said["gpus"], said["rollout.gpus"], said["rollout.asynchronous"]) == (20, 4, True)
    assert said["rollout.max_staleness"] == 3
    assert "rollout.colocated" not in said


def test_the_critic_begins_as_the_reward_model(tmp_path: Path) -> None:
    said = facts(tmp_path, f"{RAY_BEFORE} --reward_pretrain Qwen/Qwen2.5-7B")
    assert (said["train.critic_model"], said["train.reward_model"]) == ("Qwen/Qwen2.5-7B",) * 2
    groups = facts(tmp_path, f"{RAY} --algo.advantage.estimator group_norm --reward.model_name_or_path Qwen/Qwen2.5-7B")
    assert groups["train.reward_model"] == "Qwen/Qwen2.5-7B"
    assert "train.critic_model" not in groups


@pytest.mark.parametrize(("text", "cut"), [(RAY, None), (RAY_BEFORE, 1024)])
def test_what_the_engine_is_given_unless_told(tmp_path: Path, text: str, cut: int | None) -> None:
    """Flags of today cut an answer at what data.max_len leaves of the prompt, those before at 1,024 tokens."""
    said = facts(tmp_path, text)
    assert (said["rollout.gpu_memory_utilization"], said["rollout.tp"]) == (0.95, 1)
    assert said.get("rollout.max_output_tokens") == cut


PPO = f"{RAY_BEFORE} --reward_pretrain Qwen/Qwen2.5-7B"


@pytest.mark.parametrize(
    ("flags", "pools", "gpus"),
    [
        (
            "--critic_num_nodes 2 --critic_num_gpus_per_node 4 --reward_num_gpus_per_node 2 --ref_num_gpus_per_node 1",
            {"critic.gpus": 8, "reward.gpus": 2, "reference.gpus": 1},
            15,
        ),
        ("--colocate_actor_ref --critic_num_gpus_per_node 4 --reward_num_gpus_per_node 2", {"reward.gpus": 2}, 10),
        (
            "--colocate_critic_reward --critic_num_gpus_per_node 4 --reward_num_gpus_per_node 4 --colocate_actor_ref",
            {"critic.gpus": 4, "reward.with_critic": True},
            8,
        ),
        ("--colocate_all_models --critic_num_gpus_per_node 4", {}, 4),
    ],
)
def test_critic_reward_model_and_reference_have_the_gpus_of_their_flags(
    tmp_path: Path, flags: str, pools: dict[str, object], gpus: int
) -> None:
    said = facts(tmp_path, f"{PPO} {flags}")
    assert said["gpus"] == gpus
    assert pools.items() <= said.items()
    assert ("reference.gpus" in said) == ("reference.gpus" in pools)
    assert ("reward.gpus" in said) == ("reward.gpus" in pools)


def test_passes_over_answers_are_no_passes_over_the_data(tmp_path: Path) -> None:
    said = facts(tmp_path, f"{RAY} --train.max_epochs 2 --train.num_episodes 3 --data.max_samples 64000")
    assert (said["rollout.updates"], said["train.epochs"], said.get("train.steps")) == (2, 3, None)
    found = imported(tmp_path, f"{RAY} --data.max_samples 64000 --rollout.batch_size 128")
    steps = found.facts["train.steps"]
    assert (steps.value, steps.origin) == (500, "assumed")  # the data may have less
    assert "train.overlap" not in found.facts
    assert facts(tmp_path, f"{RAY} --ds.overlap_comm")["train.overlap"] == ("data-parallel",)
