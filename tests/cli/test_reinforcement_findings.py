"""Reinforcement learning as an engineer asks about it with files of verl, TRL and OpenRLHF at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Cli, read_answer

GIB = 2.0**30
A100 = ("--gpu", "a100-sxm-80gb")
VERL = """\
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B \\
  data.train_batch_size=64 data.max_prompt_length=256 data.max_response_length=512 \\
  actor_rollout_ref.rollout.n=5 actor_rollout_ref.rollout.name=vllm \\
  actor_rollout_ref.actor.ppo_mini_batch_size=32 \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=10 \\
  trainer.n_gpus_per_node=4 trainer.nnodes=1 trainer.total_epochs=40
"""
TRL = """\
from trl import GRPOConfig, GRPOTrainer
args = GRPOConfig(use_vllm=True, vllm_mode="colocate", num_generations=8, per_device_train_batch_size=8,
    gradient_accumulation_steps=4, max_completion_length=1024, max_prompt_length=512, bf16=True,
    gradient_checkpointing=True, max_steps=50, beta=0.0)
GRPOTrainer(model="Qwen/Qwen2.5-7B", args=args).train()
"""
SHARDED = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("verl.sh").write_text(VERL)
    Path("grpo.py").write_text(TRL)
    Path("fsdp.yaml").write_text(SHARDED)
    Path("run.sh").write_text("accelerate launch --config_file fsdp.yaml grpo.py\n")


def with_setting(*settings: str) -> None:
    """The script with further overrides of verl."""
    Path("verl.sh").write_text(VERL.rstrip() + "".join(f" \\\n  {setting}" for setting in settings) + "\n")


# How often the prompts are read.


def test_prompts_are_counted_where_passes_over_them_are_told(cli: Cli) -> None:
    """640 prompts fill 10 iterations of 64 a pass; 5 responses to each of them are no further passes."""
    few = read_answer(cli, "estimate", "verl.sh", "--samples", "640", "--epochs", "20", *A100)
    assert (few["time"]["steps"], few["data"]["epochs"]) == (200, 20)
    assert not [each for each in few["warnings"] if "times" in each]
    many = read_answer(cli, "estimate", "verl.sh", "--samples", "640", *A100)
    told = "400 iterations read the 640 prompts 40 times; --epochs 3 sizes three passes"
    assert [each for each in many["warnings"] if "times" in each] == [told]
    assert read_answer(cli, "estimate", "verl.sh", "--samples", "640", "--epochs", "3", *A100)["data"]["epochs"] == 3


# The file that was asked about, and values in it that follow from others.


@pytest.mark.parametrize("question", ["estimate", "plan"])
def test_commands_name_the_launch_script_that_was_asked_about(cli: Cli, question: str) -> None:
    """The launch script has the GPUs and FSDP: a command that named what it starts would drop them."""
    ran = cli(question, "run.sh", "--gpu", "h100-sxm-80gb")  # whose fp8 is advised for responses
    named = [line.split()[2] for line in ran.out.splitlines() if line.strip().startswith("xe-sizer ")]
    assert named
    assert set(named) == {"run.sh"}


@pytest.mark.parametrize("asked", ["", "--micro-batch 5", "--asynchronous", "--rollout-gpus 4 --gpus 8", "--gpus 2"])
def test_accumulation_follows_from_what_is_asked(cli: Cli, asked: str) -> None:
    """verl has no accumulation: 32 prompts x 5 responses = micro-batch x accumulation x GPUs that train."""
    layout = read_answer(cli, "estimate", "verl.sh", "--samples", "640", *asked.split(), *A100)["layout"]
    assert layout["micro_batch"] == (5 if "micro" in asked else 10)
    assert layout["micro_batch"] * layout["grad_accum"] * layout["dp"] == 32 * 5


def test_accumulation_that_follows_is_told_and_left_open(cli: Cli) -> None:
    [line] = [each for each in cli("import", "verl.sh").out.splitlines() if "grad_accum" in each]
    assert line.strip().startswith("# grad_accum: 4 ")
    assert line.endswith("(micro-batch 10 x 4 data-parallel ranks): left open, as it follows from them")


# What releases of verl do by themselves.


@pytest.mark.parametrize(
    ("stack", "most"), [("verl", 256), ("verl@0.9", 256), ("verl@0.8", 1024), ("verl@0.6.1", 1024), ("verl@0.5", 1024)]
)
@pytest.mark.parametrize("trainer", ["", "-megatron"])
def test_responses_at_once_are_those_of_the_release(cli: Cli, stack: str, most: int, trainer: str) -> None:
    """max_num_seqs of trainer/config/rollout/rollout.yaml: 1024 in v0.5.0 to 0.8.0, 256 in 0.9.0."""
    named = stack.replace("verl", f"verl{trainer}")
    found = read_answer(cli, "estimate", "--job", "grpo", "--model", "gpt2", "--gpus", 4, "--stack", named, *A100)
    assert found["scenario"]["rollout"]["max_sequences"] == most


# What passes without a backward hold.


def test_passes_for_log_probabilities_hold_their_logits(cli: Cli) -> None:
    """16-bit logits of all responses of a pass (verl's compute_log_prob, which divides them where they stand)."""
    held = {}
    for count in (10, 40):
        name = "log_prob_micro_batch_size_per_gpu"
        with_setting(*(f"actor_rollout_ref.{role}.{name}={count}" for role in ("rollout", "ref")))
        found = read_answer(cli, "estimate", "verl.sh", "--samples", "640", *A100)
        assert found["scenario"]["rollout"].get("log_prob_micro_batch", 10) == count  # 10 as the training has it
        [phase] = [each for each in found["phases"] if each["name"] == "log-probabilities"]
        held[count] = {each["name"]: each["bytes"] for each in phase["holds"]}
        assert sum(held[count].values()) == pytest.approx(phase["peak_bytes"], abs=10)
    vocabulary, mean, longest = 151_936, 192 + 256, 256 + 512
    tokens = {count: parts["logits and loss"] / (count * vocabulary * 2) for count, parts in held.items()}
    assert mean < tokens[40] < tokens[10] < longest  # of a response in the longest pass: few together may all be long


def test_passes_that_do_not_fit_are_told_with_what_mends_them(cli: Cli) -> None:
    """1,000 responses with prompts, of 448 tokens in the mean, have 136 GB of logits; 80 GB are there."""
    with_setting("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1000")
    Path("verl.sh").write_text(Path("verl.sh").read_text().replace("train_batch_size=64", "train_batch_size=1024"))
    ran = cli("estimate", "verl.sh", "--samples", "640", *A100)
    assert "DOES NOT FIT" in ran.out
    assert "(log-probabilities)" in ran.out.splitlines()[0]
    command = next(line.split() for line in ran.out.splitlines() if "xe-sizer estimate verl.sh" in line)
    assert "--rollout-log-prob-micro-batch" in command
    assert cli(*command[1:]).out.startswith("FITS")


# What is told, and what is written.


def test_prompts_that_are_assumed_are_told_with_the_longest(cli: Cli) -> None:
    """256 tokens pass beside responses of 512; a quarter of the sequence is assumed."""
    [told] = [
        each for each in read_answer(cli, "estimate", "verl.sh", *A100)["warnings"] if each.startswith("prompts of")
    ]
    setting = "--rollout-input-tokens 256"
    assert told == f"prompts of 192 tokens are assumed, though up to 256 pass; {setting} sizes those"
    stated = read_answer(cli, "estimate", "verl.sh", "--rollout-input-tokens", 256, *A100)["warnings"]
    assert not [each for each in stated if each.startswith("prompts of")]


def test_memory_beside_an_engine_says_how_it_is_made_of(cli: Cli) -> None:
    found = read_answer(cli, "estimate", "verl.sh", *A100)
    assert found["memory"]["phase"] == "rollout"
    made = {each["name"]: each["formula"] for each in found["memory"]["components"]}
    assert made["engine: weights"] == "elements of the rank's shards x bytes of the format"
    assert "weights + optimizer states" in made["trainer between its steps"]
    told = cli("estimate", "verl.sh", "--explain", "memory", *A100).out
    assert "serving memory" not in told
    assert "training ledger" not in told


@pytest.mark.parametrize("estimator", ["grpo", "gae"])
def test_written_scripts_have_what_verl_does_not_start_without(cli: Cli, estimator: str) -> None:
    """check_mutually_exclusive of verl/utils/config.py: each role names the micro-batch of its passes."""
    Path("verl.sh").write_text(VERL.replace("adv_estimator=grpo", f"adv_estimator={estimator}"))
    with_reference = "actor_rollout_ref.actor.use_kl_loss=True"
    Path("verl.sh").write_text(f"{Path('verl.sh').read_text().rstrip()} {with_reference} trainer.test_freq=5\n")
    written = cli("export", "verl.sh", "--to", "verl", *A100).out
    for role in ("rollout", "ref"):
        assert f"actor_rollout_ref.{role}.log_prob_micro_batch_size_per_gpu=10 " in written
    assert "actor_rollout_ref.ref.fsdp_config.param_offload=True " in written
    assert "data.val_files=" in written
    assert ("critic.ppo_micro_batch_size_per_gpu=10 " in written) == (estimator == "gae")
