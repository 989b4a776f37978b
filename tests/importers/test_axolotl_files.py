"""Adapters, quantised weights and batches in configurations of axolotl."""

from pathlib import Path

import pytest

from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked

BASE = "base_model: org/Llama-7B\ndatasets:\n  - path: x\nsequence_len: 2048\nmicro_batch_size: 2\nnum_epochs: 1\n"


def read(folder: Path, text: str) -> Imported:
    path = folder / "job.yml"
    path.write_text(BASE + text)
    return read_foreign([path], Asked(hardware={"gpus": 2}))


@pytest.mark.parametrize(
    ("text", "job", "bits", "quantiser"),
    [
        ("adapter: qlora\nload_in_4bit: true\n", "qlora", 4, "bitsandbytes"),
        ("adapter: lora\nload_in_8bit: true\n", "qlora", 8, "bitsandbytes"),
        ("adapter: lora\ngptq: true\n", "qlora", 4, "auto-gptq"),
        ("adapter: lora\nload_in_8bit: false\n", "lora", None, None),
    ],
)
def test_quantised_weights(tmp_path: Path, text: str, job: str, bits: int | None, quantiser: str | None) -> None:
    facts = {key: fact.value for key, fact in read(tmp_path, text).facts.items()}
    assert (facts["job"], facts.get("train.bits"), facts.get("train.quantiser")) == (job, bits, quantiser)


def test_a_pattern_of_modules_is_read_as_the_modules(tmp_path: Path) -> None:
    pattern = r"model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj"
    found = read(tmp_path, f"adapter: lora\nlora_target_modules: '{pattern}'\n")
    assert found.facts["lora.targets"].value == ("up_proj", "down_proj", "q_proj")


def test_a_pattern_without_modules_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, "adapter: lora\nlora_target_modules: '^blocks.*$'\n")
    assert "lora.targets" not in found.facts
    assert "lora_target_modules" in {each.key for each in found.lost}


def test_samples_of_a_step_make_the_accumulation(tmp_path: Path) -> None:
    assert read(tmp_path, "batch_size: 8\n").facts["train.grad_accum"].value == 4


def test_a_run_of_so_many_steps_has_no_epochs(tmp_path: Path) -> None:
    facts = read(tmp_path, "max_steps: 100\n").facts
    assert facts["train.steps"].value == 100
    assert "train.epochs" not in facts
