"""Scripts and notebooks of Unsloth."""

from __future__ import annotations

import json
from pathlib import Path

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

SCRIPT = """
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
length = 2 * 1024
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Qwen3-8B-bnb-4bit", max_seq_length = length, load_in_4bit = True,
)
model = FastLanguageModel.get_peft_model(
    model, r = 32, target_modules = ["q_proj", "v_proj"], use_gradient_checkpointing = "unsloth",
)
trainer = SFTTrainer(
    model = model, tokenizer = tokenizer,
    args = SFTConfig(per_device_train_batch_size = 2, gradient_accumulation_steps = 4, max_steps = 60,
                     optim = "adamw_8bit", learning_rate = 2e-4),
)
trainer.train()
"""


def read(folder: Path, text: str, name: str = "train.py") -> Imported:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_foreign([file], Asked())


SAID = {
    "model": "unsloth/Qwen3-8B-bnb-4bit", "job": "qlora", "train.seq_len": 2048, "train.micro_batch": 2,
    "train.grad_accum": 4, "train.steps": 60, "optimizer": "adamw-8bit", "lora.rank": 32, "train.bits": 4,
    "lora.targets": ("q_proj", "v_proj"), "layout.recompute": "full", "layout.offload": "activations",
}  # fmt: skip


def test_a_script_says_its_calls_arguments(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT)
    assert {key: found.fact_of(key) for key in SAID} == SAID
    assert {found.facts[key].origin for key in SAID} == {"read"}
    assert not found.unknown
    assert not found.missing


def test_one_gpu_trains_unless_more_are_passed(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT)
    assert found.fact_of("gpus") == 1
    assert found.facts["gpus"].origin == "tool-default"
    assert found.fact_of("train.global_batch") == 8


def test_a_notebook_is_read_as_its_code(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": part.splitlines(keepends=True)} for part in SCRIPT.split("\n\n") if part]
    found = read(tmp_path, json.dumps({"cells": cells, "nbformat": 4, "metadata": {}}), "train.ipynb")
    assert {key: found.fact_of(key) for key in SAID} == SAID


def test_without_adapters_all_weights_are_trained(tmp_path: Path) -> None:
    text = """
from unsloth import FastModel
FastModel.from_pretrained("google/gemma-3-4b-it", full_finetuning=True, load_in_4bit=False)
"""
    found = read(tmp_path, text)
    assert found.fact_of("job") == "sft"
    assert found.fact_of("model") == "google/gemma-3-4b-it"
    assert found.fact_of("lora.rank") is None


def test_how_answers_are_written_is_read(tmp_path: Path) -> None:
    text = SCRIPT.replace("SFTConfig(", "GRPOConfig(num_generations=8, steps_per_generation=16, ").replace(
        "SFTConfig,", "GRPOConfig,"
    )
    found = read(tmp_path, text)
    assert found.fact_of("job") == "grpo"
    micro = found.fact_of("train.micro_batch")
    assert (found.fact_of("rollout.group"), found.fact_of("rollout.prompts")) == (8, micro * 16 // 8)


def test_a_micro_batch_becomes_a_group_of_answers(tmp_path: Path) -> None:
    text = SCRIPT.replace("SFTConfig(", "GRPOConfig(num_generations=6, ").replace("SFTConfig,", "GRPOConfig,")
    found = read(tmp_path, text)
    assert found.fact_of("train.micro_batch") == 6
    assert found.facts["rollout.engine"].origin == "tool-default"
