"""What users read of jobs that compare answers or learn from a teacher: pairs, what stands beside, what to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.cli.main import main

JOB = (
    "--model", "llama-3.1-8b", "--job", "dpo", "--gpu", "h100-sxm-80gb", "--stack", "trl", "--seq-len", "2048",
)  # fmt: skip
DATA = ("--samples", "60000", "--mean-tokens", "500", "--max-tokens", "2048", "--global-batch", "64")
PARAMETERS = 8_030_261_248


def answer(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(each) for each in arguments]) == code, capsys.readouterr().err
    return capsys.readouterr().out


def result(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    return json.loads(answer(capsys, "estimate", *JOB, *arguments, "--format", "json", code=code))


def test_pairs_and_the_reference_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "estimate", *JOB, *DATA, "--gpus", 8, "--color", "never")
    assert text.startswith("FITS  DPO of llama-3.1-8b on 8 x h100-sxm-80gb")
    for words in ("pairs per step", "both answers with their prompts", "pairs read", "pairs per second"):
        assert words in text
    assert "Frozen models" in text
    assert "reference model   llama-3.1-8b" in text


def test_the_result_names_what_stands_beside(capsys: pytest.CaptureFixture[str]) -> None:
    """Float32 as TRL loads it, a share of 8 ranks; a pass of every sequence, not faster than the frozen forward."""
    found = result(capsys, *DATA, "--gpus", 8, "--zero", 3)
    (reference,) = found["beside"]
    assert (reference["name"], reference["copies"], reference["passes"]) == ("reference model", 1, 1)
    assert reference["bytes"] == pytest.approx(4 * PARAMETERS / 8, rel=1e-9)
    forward_s = next(part["seconds"] for part in found["time"]["components"] if part["name"] == "frozen forward")
    assert forward_s <= reference["seconds"] < 1.2 * forward_s
    assert found["data"]["sequences_per_sample"] == 2


def test_passes_beforehand_are_part_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, *DATA, "--gpus", 8, "--epochs", 3, "--reference", "precomputed")
    parts = {part["name"]: part["seconds"] for part in found["time"]["run"]}
    assert set(parts) == {"steps", "passes beforehand"}
    (reference,) = found["beside"]
    assert (reference["beforehand"], reference["bytes"]) == (True, 0)
    assert reference["seconds"] == pytest.approx(parts["passes beforehand"], rel=1e-9)
    assert found["time"]["total_s"]["expected"] == pytest.approx(sum(parts.values()), rel=1e-9)


def test_what_does_not_fit_is_mended_by_adapters_among_others(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, "--gpus", 1, code=1)
    commands = {advice["change"]: advice["command"] for advice in found["advice"]}
    assert commands["LoRA instead of all weights"].endswith("--adapter lora")


def test_several_epochs_are_faster_with_log_probabilities_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, *DATA, "--gpus", 8, "--epochs", 3)
    assert [advice["change"] for advice in found["advice"]] == ["reference log-probabilities computed beforehand"]
    once = result(capsys, *DATA, "--gpus", 8, "--model", "qwen3-0.6b")  # which has room for the copy
    assert all("beforehand" not in advice["change"] for advice in once["advice"])


def test_a_copy_beside_adapters_is_not_needed(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(capsys, "--model", "llama-3.1-70b", "--gpus", 8, "--adapter", "lora", "--reference", "copy", code=1)
    assert any("adapters off" in advice["change"] for advice in found["advice"])


def test_a_teacher_is_needed_and_a_key_without_effect_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *JOB, "--job", "distill", "--gpus", "8"]) == 2
    assert "the job 'distill' needs a teacher" in capsys.readouterr().err
    text = answer(capsys, "estimate", *JOB, "--job", "sft", "--gpus", 8, "--reference", "copy")
    assert "--reference has no effect on the job sft" in text


def test_keys_that_nobody_knows_are_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("model: llama-3.1-8b\njob: distill\ngpu: b200\ntrain: {teacher_model: llama-3.1-80b}\n")
    assert main(["estimate", str(file)]) == 2
    assert f"{file}:4:24: unknown model 'llama-3.1-80b'" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "sensitivity"])
def test_other_commands_answer_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ("--max-gpus", 8) if command == "plan" else ("--gpus", 8)
    assert "DPO" in answer(capsys, command, *JOB, *DATA, *more)


@pytest.mark.parametrize(
    ("more", "step"),
    [((), "LoRA instead of all weights"), (("--adapter", "lora"), "all weights instead of LoRA")],
)
def test_what_learns_is_a_factor(more: tuple[str, ...], step: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "sensitivity", *JOB, *DATA, "--gpus", 8, *more, "--format", "json")
    (method,) = [factor for factor in json.loads(text)["factors"] if factor["name"] == "training method"]
    assert step in json.dumps(method)
