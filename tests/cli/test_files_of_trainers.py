"""Files that people train with: DeepSpeed's engine below trainers, launch scripts, several files, a card's formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli, read_answer

GIB = 2.0**30
RUN = (
    "deepspeed --num_gpus 2 train.py --deepspeed ds.json --model_name_or_path mistralai/Mistral-7B-v0.1 "
    "--per_device_train_batch_size 4 --gradient_accumulation_steps 4 --bf16 True --model_max_length 2048 "
    "--max_steps 100 --gradient_checkpointing True\n"
)
AXOLOTL = """\
base_model: meta-llama/Llama-3.1-8B
sequence_len: 4096
micro_batch_size: 1
gradient_accumulation_steps: 4
max_steps: 100
bf16: auto
gradient_checkpointing: true
"""
TRL = """\
from trl import SFTConfig, SFTTrainer
args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, max_length=2048, max_steps=10)
SFTTrainer(model="Qwen/Qwen2.5-0.5B", args=args).train()
"""
SHARDED = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: true}
mixed_precision: bf16
num_machines: 1
num_processes: 4
"""
SCRIPT = "trl/scripts/sft.py --model_name_or_path gpt2 --dataset_name x"
A100 = ("--gpu", "a100-sxm-80gb")


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}
    Path("ds.json").write_text(json.dumps(settings))
    Path("run.sh").write_text(RUN)
    Path("axolotl.yml").write_text(AXOLOTL)
    Path("sft.py").write_text(TRL)
    Path("fsdp.yaml").write_text(SHARDED)
    Path("launch.sh").write_text("accelerate launch --config_file fsdp.yaml sft.py\n")


def parts(found: dict[str, Any]) -> dict[str, float]:
    return {one["name"]: one["bytes"] / GIB for one in found["memory"]["components"]}


def test_states_below_the_trainer_are_those_of_the_deepspeed_file_that_it_names(cli: Cli) -> None:
    """7.24 billion weights on two cards: 2 bytes each, 12 in the optimizer and 2 of the gradient over both."""
    found = read_answer(cli, "estimate", "run.sh", *A100)
    held = parts(found)
    weights = 7.2417e9 / GIB
    assert held["weights"] == pytest.approx(2 * weights, rel=0.01)
    assert held["optimizer states"] == pytest.approx(12 * weights / 2, rel=0.01)
    assert held["gradients"] == pytest.approx(2 * weights / 2, rel=0.01)
    assert found["verdict"]["fits"] is False
    assert "sync_each_batch" not in json.dumps(found["advice"])
    itself = read_answer(cli, "estimate", "run.sh", *A100, "--stack", "deepspeed", "--recompute", "full")
    assert found["memory"]["peak_bytes"] == pytest.approx(itself["memory"]["peak_bytes"], rel=0.001)
    assert read_answer(cli, "estimate", "run.sh", *A100, "--backend", "fsdp")["verdict"]["fits"] is True
    assert "stack hf-trainer on deepspeed" in cli("estimate", "run.sh", *A100, "--brief").out


def test_a_backend_is_chosen_without_a_file_too(cli: Cli) -> None:
    asked = ("--model", "gpt2", *A100, "--gpus", 2, "--job", "sft", "--zero", 2, "--seq-len", 1024, "--steps", 9)
    there = parts(read_answer(cli, "estimate", *asked, "--stack", "trl", "--backend", "deepspeed"))
    here = parts(read_answer(cli, "estimate", *asked, "--stack", "trl"))
    assert there["optimizer states"] == pytest.approx(
        1.5 * here["optimizer states"]
    )  # a float32 copy beside the moments
    ran = cli("estimate", *asked, "--stack", "nemo", "--backend", "deepspeed")
    assert ran.code == 2
    assert "--backend: the stack nemo has no backend 'deepspeed'" in ran.err


def test_another_stack_is_not_forbidden_by_what_a_file_says_of_its_own(cli: Cli) -> None:
    Path("axolotl.yml").write_text(f"{AXOLOTL}deepspeed: ds.json\n")
    assert cli("import", "axolotl.yml", "--gpus", 8, "-o", "job.yaml").code == 0
    for file in ("axolotl.yml", "job.yaml"):
        for stack in ("deepspeed", "nemo"):
            found = read_answer(cli, "estimate", file, "--gpus", 8, "--stack", stack)
            assert found["scenario"]["stack"] == stack
    said = read_answer(cli, "estimate", "job.yaml", "--stack", "nemo")["warnings"]
    assert "the stack nemo has no backend deepspeed, which the file says: it shares states out itself" in said
    Path("job.yaml").write_text("model: gpt2\ngpu: t4\ngpus: 1\nstack: nemo\ntrain: {backend: deepspeed}\n")
    assert "job.yaml:5:18: the stack nemo has no backend 'deepspeed'" in cli("estimate", "job.yaml").err


def test_the_type_that_is_loaded_changes_nothing_under_deepspeed(cli: Cli) -> None:
    asked = ("--model", "gpt2", *A100, "--gpus", 2, "--job", "sft", "--stack", "deepspeed", "--steps", 9)
    found = read_answer(cli, "estimate", *asked, "--weights-dtype", "fp32")
    assert found["memory"] == read_answer(cli, "estimate", *asked)["memory"]
    assert any(one.startswith("--weights-dtype fp32 has no effect: deepspeed keeps") for one in found["warnings"])


@pytest.mark.parametrize("more", [(), ("sft.py", "fsdp.yaml")])
def test_a_launch_script_leads_to_the_python_file_that_it_starts(cli: Cli, more: tuple[str, ...]) -> None:
    facts = json.loads(cli("import", "launch.sh", *more, "--format", "json").out)["scenario"]
    keys = ("stack", "gpus", "layout.zero", "train.global_batch")
    assert [facts[key]["value"] for key in keys] == ["trl", 4, 3, 32]
    assert facts["gpus"]["where"] == "fsdp.yaml:6:16"
    assert read_answer(cli, "estimate", "launch.sh", *A100)["gpus"]["count"] == 4


def test_a_python_file_that_is_not_there_is_asked_for(cli: Cli) -> None:
    Path("sft.py").unlink()
    ran = cli("import", "launch.sh")
    assert ran.code == 2
    assert "sft.py, which it starts, says what is trained: name that file too" in ran.err


@pytest.mark.parametrize("command", ["estimate", "sensitivity"])
def test_several_files_are_told_how_to_become_one(cli: Cli, command: str) -> None:
    ran = cli(command, "sft.py", "fsdp.yaml", *A100)
    assert ran.code == 2
    assert "one file is taken, not 2" in ran.err
    assert "xe-sizer import sft.py fsdp.yaml -o job.yaml" in ran.err


def test_files_of_other_tools_are_compared(cli: Cli) -> None:
    found = read_answer(cli, "compare", "sft.py", "axolotl.yml", "--gpus", 8, *A100)
    assert [one["name"] for one in found["alternatives"]] == ["sft", "axolotl"]


def test_what_a_tool_leaves_to_the_card_is_float16_where_it_has_no_bfloat16(cli: Cli) -> None:
    """`bf16: auto`, also where only a variable or an alternative names the card; bf16 itself is refused with a hint."""
    asked = ("--gpu", "t4", "--gpus", 1)
    found = read_answer(cli, "estimate", "axolotl.yml", *asked)
    assert (found["scenario"]["precision"], found["scenario"]["train"]["weights_dtype"]) == ("fp16", "fp16")
    assert "t4 has no bf16: the run computes in fp16 instead" in found["warnings"]
    assert "precision: fp16" in cli("import", "axolotl.yml", *asked).out
    pair = read_answer(cli, "compare", "axolotl.yml", "gpu=t4", *A100, "--gpus", 1)["alternatives"]
    assert [one["result"]["scenario"]["precision"] for one in pair] == ["bf16", "fp16"]
    Path("axolotl.yml").write_text(AXOLOTL.replace("bf16: auto", "bf16: true"))
    ran = cli("estimate", "axolotl.yml", *asked)
    assert ran.code == 2
    assert "t4 has no bf16" in ran.err
    assert "write --precision fp16; it has fp32, fp16" in ran.err


def test_weights_follow_the_precision_that_the_card_leaves(cli: Cli) -> None:
    asked = ("--model", "gpt2", "--gpu", "t4", "--gpus", 1, "--job", "lora", "--stack", "hf-trainer", "--steps", 9)
    said = read_answer(cli, "estimate", *asked)["scenario"]
    assert (said["precision"], said["train"]["weights_dtype"]) == ("fp16", "fp16")


@pytest.mark.parametrize(("gpu", "precision"), [("t4", "fp16"), ("a100-sxm-80gb", "bf16")])
def test_a_script_that_asks_the_card(cli: Cli, gpu: str, precision: str) -> None:
    switches = "bf16=is_bfloat16_supported(), fp16=not is_bfloat16_supported(), max_steps=9"
    Path("tune.py").write_text(
        "from unsloth import FastLanguageModel, is_bfloat16_supported\n"
        'model, t = FastLanguageModel.from_pretrained("unsloth/Llama-3.2-1B", dtype=None, load_in_4bit=True)\n'
        "model = FastLanguageModel.get_peft_model(model, r=16)\n"
        f"trainer = SFTTrainer(model=model, args=TrainingArguments(per_device_train_batch_size=2, {switches}))\n"
    )
    said = read_answer(cli, "estimate", "tune.py", "--gpu", gpu)["scenario"]
    assert (said["precision"], said["train"]["weights_dtype"]) == (precision, precision)


@pytest.mark.parametrize("stack", ["trl", "unsloth"])
def test_a_batch_that_nobody_gives_is_the_tools_own(cli: Cli, stack: str) -> None:
    """8 on a card: 8 x 1 by TRL's defaults, 2 x 4 in Unsloth's notebooks."""
    asked = ("--model", "gpt2", *A100, "--gpus", 1, "--job", "lora", "--stack", stack, "--steps", 9)
    assert read_answer(cli, "estimate", *asked)["scenario"]["train"]["global_batch"] == 8


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --use_deepspeed --deepspeed_config_file ds.json --num_processes 8 sft.py",
        f"accelerate launch --deepspeed_config_file ds.json --num_processes 8 {SCRIPT}",
        "deepspeed --num_gpus 8 sft.py --deepspeed ds.json",
    ],
)
def test_a_launcher_names_the_file_of_deepspeed(cli: Cli, command: str) -> None:
    Path("launch.sh").write_text(f"{command}\n")
    facts = json.loads(cli("import", "launch.sh", "--format", "json").out)["scenario"]
    keys = ("stack", "gpus", "train.backend", "layout.zero")
    assert [facts[key]["value"] for key in keys] == ["trl", 8, "deepspeed", 2]


def test_fsdp_says_why_it_keeps_more_than_zero_would(cli: Cli) -> None:
    asked = ("--model", "gpt2", *A100, "--gpus", 2, "--job", "sft", "--stack", "hf-trainer", "--zero", 3, "--steps", 9,
             "--micro-batch", 1, "--grad-accum", 2)  # fmt: skip
    (said,) = [one for one in read_answer(cli, "estimate", *asked)["warnings"] if "runs FSDP" in one]
    assert "gradients stay whole until the last micro-batch of a step" in said
    assert "float32 though bf16 is loaded; not so with --backend deepspeed" in said
    assert not any("FSDP" in one for one in read_answer(cli, "estimate", *asked, "--backend", "deepspeed")["warnings"])
