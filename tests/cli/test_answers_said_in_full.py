"""What decides an answer stands on the first screen: assumed steps, the layout, choices that cost most, packing."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli, read_answer

LORA = ("--model", "llama-3.1-8b", "--gpu", "a100-sxm-80gb", "--gpus", 4, "--job", "lora", "--stack", "trl")
OFFLOADED = ("--model", "qwen3-30b-a3b", "--gpu", "h100-sxm-80gb", "--gpus", 8, "--dataset", "alpaca", "--epochs", 3,
             "--job", "sft", "--stack", "deepspeed", "--zero", 3, "--offload", "optimizer")  # fmt: skip
ALPACA_TOKENS = 52_002 * 121.7
LONGEST = 1044  # tokens of its longest sample, with the template


def brief(cli: Cli, *words: object) -> str:
    ran = cli("estimate", *words, "--brief")
    assert ran.code in (0, 1), ran.err
    return " ".join(ran.out.split())


def answer(cli: Cli, *words: object) -> dict[str, Any]:
    return read_answer(cli, "estimate", *words)


def test_assumed_steps_are_said_beside_the_time(cli: Cli) -> None:
    said = brief(cli, *LORA, "--seq-len", "4k")
    assert re.search(r"for 1,000 steps, assumed: no data was given \(1,000 steps of [\d.]+ s\)", said)
    for given in (("--steps", 1000), ("--samples", 128000)):
        assert "assumed: no data" not in brief(cli, *LORA, *given)


def test_epochs_without_data_are_not_dropped_in_silence(cli: Cli) -> None:
    said = brief(cli, *LORA, "--epochs", 3)
    assert "--epochs 3 has no effect without the data: --samples 50000, for example, or --dataset says" in said
    assert "no effect" not in brief(cli, *LORA, "--epochs", 3, "--dataset", "alpaca")
    assert any("--epochs 3 has no effect" in text for text in answer(cli, *LORA, "--epochs", 3)["cautions"])


def test_a_file_that_says_epochs_is_asked_for_its_samples(cli: Cli, tmp_path: Path) -> None:
    """Nobody typed --epochs."""
    job = tmp_path / "job.yaml"
    job.write_text("model: gpt2\ngpu: a100-sxm-80gb\ngpus: 1\njob: lora\ntrain: {epochs: 2}\n")
    assert "the file says 2 epochs; how many samples? --samples 50000, for example" in brief(cli, str(job))
    foreign = tmp_path / "sft.yaml"
    foreign.write_text("model_name_or_path: gpt2\npacking: true\n")
    assert "3 epochs by default of the tool; how many samples?" in brief(cli, str(foreign), "--gpus", 1)


def test_the_first_advice_is_to_drop_the_offloading_that_the_job_does_not_need(cli: Cli) -> None:
    result = answer(cli, *OFFLOADED)
    first = result["advice"][0]
    parts = {part["name"]: part["share"] for part in result["time"]["components"]}
    assert first["change"] == f"no offload, as offloading takes {100 * parts['offload']:.0f} % of a step"
    assert first["command"].endswith("--offload none")
    without = answer(cli, *OFFLOADED, "--offload", "none")
    assert without["verdict"]["fits"]
    less, more = (one["time"]["total_s"]["expected"] / 3600 for one in (without, result))
    assert f"{less:.3g} h instead of {more:.3g} h" in first["effect"]


def test_offloading_is_no_part_of_the_ideal(cli: Cli) -> None:
    time = answer(cli, *OFFLOADED)["time"]
    ideal = time["ideal_step_s"] / time["step_s"]["expected"]
    assert ideal < 0.1
    assert time["losses"][0]["name"] == "offload"
    assert time["losses"][0]["share"] > 0.85


@pytest.mark.parametrize(
    ("chosen", "dropped"),
    [(("--recompute", "full", "--zero", 0), "recompute none instead of full"), (("--zero", 3), "ZeRO stage 1 instead")],
)
def test_other_choices_that_cost_time_for_memory_come_first(cli: Cli, chosen: tuple[object, ...], dropped: str) -> None:
    asked = ("--model", "qwen2.5-0.5b", "--gpu", "l40s", "--gpus", 8, "--job", "sft", "--stack", "hf-trainer",
             "--dataset", "alpaca", "--global-batch", 64, "--micro-batch", 1)  # fmt: skip
    assert answer(cli, *asked, *chosen)["advice"][0]["change"].startswith(dropped)


def test_packing_says_how_many_steps_it_leaves_and_the_batch_that_keeps_them(cli: Cli) -> None:
    """1,219 steps of 128 samples; packed into sequences as long as the longest, three epochs are 143 batches."""
    steps = math.ceil(3 * ALPACA_TOKENS / LONGEST / 128)
    advice = [one["change"] for one in answer(cli, *OFFLOADED)["advice"] if "packing" in one["change"]]
    assert f"the same data in {steps} optimizer steps instead of 1,219" in advice[0]
    assert "; a global batch of 16 keeps the number of steps)" in advice[0]
    packed = answer(cli, *OFFLOADED, "--padding", "packed", "--seq-len", LONGEST)
    assert packed["time"]["steps"] == steps


def test_the_batch_that_keeps_the_steps_keeps_them(cli: Cli) -> None:
    """One GPU: as many packed sequences in a batch as padded steps leave."""
    asked = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--gpus", 1, "--job", "lora", "--stack", "trl",
             "--dataset", "alpaca", "--epochs", 2, "--global-batch", 128)  # fmt: skip
    before = answer(cli, *asked)["time"]["steps"]
    batch = round(2 * ALPACA_TOKENS / LONGEST / before)
    advice = [one["change"] for one in answer(cli, *asked)["advice"] if "packing" in one["change"]]
    assert f"; a global batch of {batch} keeps the number of steps)" in advice[0]
    packed = ("--padding", "packed", "--seq-len", LONGEST, "--global-batch", batch)
    after = answer(cli, *asked, *packed)["time"]["steps"]
    assert abs(after - before) <= 0.1 * before


def test_the_warning_of_padding_says_the_steps_too(cli: Cli) -> None:
    asked = (*LORA, "--dataset", "alpaca", "--epochs", 3, "--padding", "longest-in-global-batch", "--global-batch", 128)
    steps = math.ceil(3 * ALPACA_TOKENS / 1044 / 128)
    text = next(one for one in answer(cli, *asked)["warnings"] if "are padding" in one)
    assert f"in {steps} instead of 1,219 optimizer steps; a global batch of " in text


def test_sequences_that_no_sample_fills_are_said(cli: Cli) -> None:
    told = "the longest sample has 1,044 tokens: memory is for that, not for 8,192"
    assert told in answer(cli, *LORA, "--dataset", "alpaca", "--seq-len", "8k")["warnings"]
    for other in (("--seq-len", 1500), ("--seq-len", "8k", "--padding", "to-seq-len"), ()):
        assert not [text for text in answer(cli, *LORA, "--dataset", "alpaca", *other)["warnings"] if "longest" in text]


@pytest.mark.parametrize(("named", "stack"), [(("--stack", "nemo"), "stack nemo"), ((), "stack generic, chosen")])
def test_the_layout_stands_on_the_first_screen(cli: Cli, named: tuple[str, ...], stack: str) -> None:
    asked = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--gpus", 8, "--tp", 8, "--micro-batch", 1,
             "--recompute", "selective", "--steps", 10, *named)  # fmt: skip
    assert f"Layout tp 8, micro-batch 1, selective recompute, {stack}" in brief(cli, *asked)


def test_a_change_of_what_cannot_run_gains_no_time(cli: Cli) -> None:
    asked = ("--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--gpus", 1, "--job", "sft", "--steps", 10)
    result = answer(cli, *asked)
    assert not result["verdict"]["fits"]
    assert result["advice"]
    for one in result["advice"]:
        assert "time)" not in one["effect"]
        assert not re.search(r"(h|min|s) instead of", one["effect"])


def test_words_without_a_pipeline_name_none(cli: Cli) -> None:
    shown = cli("estimate", *LORA, "--steps", 10).out
    assert "stage 1 of 1" not in shown
    assert "start-up, not included" in shown
    assert "no server named: assuming 8 GPUs per node on nvswitch" in shown


def test_the_memory_of_a_job_without_a_pipeline_is_headed_by_its_moment(cli: Cli) -> None:
    ran = cli("estimate", *LORA, "--tp", 1, "--pp", 1)
    phase = answer(cli, *LORA, "--tp", 1, "--pp", 1)["memory"]["phase"]
    assert f"Memory of the worst GPU ({phase})\n" in ran.out


@pytest.mark.parametrize("job", ["lora", "sft"])
def test_weights_that_are_published_in_4_bit_are_said_to_be_held_in_16(cli: Cli, job: str) -> None:
    asked = ("--model", "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "--gpu", "b200-sxm-180gb", "--gpus", 1,
             "--steps", 10)  # fmt: skip
    assert "which are taken as 16-bit ones here; --job qlora keeps them in 4 bit" in brief(cli, *asked, "--job", job)
    assert "4-bit weights" not in brief(cli, *asked, "--job", "qlora")


def test_a_stack_of_one_gpu_is_said_on_the_first_screen_and_in_a_comparison(cli: Cli) -> None:
    asked = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--gpus", 8, "--job", "lora", "--steps", 10,
             "--zero", 0)  # fmt: skip
    told = "unsloth trains on one GPU; the times of 8 are those of plain data parallelism"
    assert told in brief(cli, *asked, "--stack", "unsloth")
    compared = cli("compare", *asked, "stack=unsloth", "stack=hf-trainer")
    assert " ".join(compared.out.split()).count(told) == 1


def test_advice_names_only_recomputation_that_the_stack_has(cli: Cli) -> None:
    asked = ("--model", "llama-2-13b", "--gpu", "a100-sxm-40gb", "--gpus", 8, "--job", "sft", "--zero", 3,
             "--recompute", "none", "--micro-batch", 8, "--steps", 10)  # fmt: skip
    for stack in ("hf-trainer", "deepspeed"):
        said = json.dumps(answer(cli, *asked, "--stack", stack)["advice"])
        assert "recompute full" in said or "full recomputation" in said
        assert "selective" not in said


def test_advice_calls_a_setting_as_the_stack_does(cli: Cli) -> None:
    asked = ("--model", "llama-2-13b", "--gpu", "a100-sxm-40gb", "--gpus", 8, "--job", "sft", "--stack", "hf-trainer",
             "--zero", 3, "--recompute", "full", "--micro-batch", 1, "--steps", 10)  # fmt: skip
    changes = [one["change"] for one in answer(cli, *asked)["advice"]]
    assert any("gradients reduced in every micro-batch (sync_each_batch of accelerate" in text for text in changes)


def test_advice_says_where_the_micro_batch_changes_too(cli: Cli) -> None:
    result = answer(cli, *OFFLOADED, "--dataset", "alpaca")
    for one in result["advice"]:
        if "--padding packed" in one["command"]:
            before = result["layout"]["micro_batch"]
            after = answer(cli, *OFFLOADED, "--dataset", "alpaca", "--padding", "packed")["layout"]["micro_batch"]
            assert (f"micro-batch {after} instead of {before}" in one["effect"]) == (after != before)


FOREIGN = """model: llama-3.1-8b
gpu: h100-sxm-80gb
bf16: true
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
lora_r: 16
train: {num_train_epochs: 3, learning_rate: 1}
tp: 2
"""


def test_keys_of_other_tools_are_told_what_to_write(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(FOREIGN)
    ran = cli("estimate", tmp_path / "job.yaml")
    assert ran.code == 2
    hints = [line.removeprefix("  hint: ") for line in ran.err.splitlines() if line.startswith("  hint: ")]
    assert hints == [
        "write 'precision: bf16' at the top level",
        "write 'micro_batch' under 'train'",
        "write 'grad_accum' under 'train'",
        "write 'rank' under 'lora'",
        "write 'epochs' under 'train'",
        "it changes neither memory nor time: leave it out",
        "'tp' belongs under layout: or under rollout:",
    ]


def test_values_of_other_tools_are_told_what_to_write(cli: Cli) -> None:
    ran = cli("estimate", "--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--offload", "cpu")
    assert ran.code == 2
    assert "'params' the weights too (FSDP's CPU offload)" in ran.err


def test_targets_may_be_a_plain_string_in_a_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    head = "model: llama-3.1-8b\ngpu: h100-sxm-80gb\ngpus: 1\njob: lora\ntrain: {steps: 10}\n"
    found = []
    for targets in ("all-linear", "[all-linear]", "'q, v'", "[q, v]"):
        file.write_text(f"{head}lora: {{targets: {targets}}}\n")
        found.append(answer(cli, file)["memory"]["trainable_parameters"])
    assert found[0] == found[1] > found[2] == found[3]
