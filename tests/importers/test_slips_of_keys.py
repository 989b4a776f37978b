"""A key of a tool that nobody knows and that is a slip of one that is known: the note says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from xe_sizer.cli.main import main
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked


def test_a_pasted_command_with_slips(capsys: pytest.CaptureFixture[str]) -> None:
    command = "vllm serve meta-llama/Llama-3.1-8B --tensr-parallel-size 8 --max-model-ln 4096 --dance 5"
    assert main(["serve", command, "--gpu", "h100-sxm-80gb", "--users", "10", "--brief"]) == 0
    notes = capsys.readouterr().err.splitlines()
    (unknown,) = (note for note in notes if note.startswith("note: not known and not read: "))
    assert unknown.endswith(": tensr_parallel_size (tensor_parallel_size?), max_model_ln (max_model_len?), dance")


@pytest.mark.parametrize(
    ("key", "near"),
    [("lora_dropot", "lora_dropout"), ("micro_batchsize", "micro_batch_size"), ("dance_steps", ""), ("lora_q", "")],
)
def test_only_what_differs_by_a_letter_is_taken_for_a_slip(tmp_path: Path, key: str, near: str) -> None:
    file = tmp_path / "axolotl.yml"
    file.write_text(f"base_model: NousResearch/Meta-Llama-3.1-8B\nadapter: lora\nlora_r: 16\n{key}: 2\n")
    ignored = json.loads(read_foreign([file], Asked(hardware={"gpus": 1})).as_json())["ignored"]
    (why,) = (each["why"] for each in ignored if each["key"] == key)
    assert why == ("unknown key: not read" + (f"; did you mean {near}?" if near else ""))
