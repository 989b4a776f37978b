"""Checkpoints, evaluations and failures through the command line: time, price, limits, words and advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = ("--model", "llama-2-7b", "--server", "dell-xe9680-h100", "--gpus", 8, "--job", "sft", "--stack", "nemo",
       "--tp", 2, "--pp", 1, "--zero", 1, "--micro-batch", 1, "--steps", 1000, "--price-per-gpu-hour", 2)  # fmt: skip
SIZE = 14 * 6_738_415_616  # 16-bit weights, float32 masters and two moments


def ask(cli: Cli, *more: object) -> tuple[int, dict[str, Any]]:
    ran = cli("estimate", *JOB, *more, "--format", "json")
    return ran.code, json.loads(ran.out)


def test_every_result_has_the_size_of_a_checkpoint(cli: Cli) -> None:
    code, result = ask(cli)
    assert code == 0
    assert result["checkpoint"]["bytes"] == SIZE
    assert result["checkpoint"]["weights_bytes"] == SIZE / 7
    assert (result["checkpoint"]["every_steps"], result["checkpoint"]["count"]) == (None, 0)
    assert (result["time"]["run"], result["time"]["goodput"]) == ([], None)
    assert "size of a checkpoint" in cli("estimate", *JOB).out


def test_checkpoints_and_evaluations_count_in_time_and_price(cli: Cli) -> None:
    """10 synchronous checkpoints at 1 GB/s take 94.3 s each, and the copies over PCIe."""
    plain = ask(cli)[1]
    result = ask(cli, "--checkpoint-every", 100, "--storage-write-gb-per-s", 1, "--evaluate-every", 500,
                 "--evaluate-samples", 12800)[1]  # fmt: skip
    seconds = {part["name"]: part["seconds"] for part in result["time"]["run"]}
    assert list(seconds) == ["steps", "checkpoints", "evaluation"]
    total_s = result["time"]["total_s"]["expected"]
    assert sum(seconds.values()) == pytest.approx(total_s)
    assert seconds["steps"] == pytest.approx(plain["time"]["total_s"]["expected"])
    assert seconds["checkpoints"] == pytest.approx(10 * SIZE / 1e9, rel=0.01)
    assert result["time"]["goodput"] == pytest.approx(seconds["steps"] / total_s)
    assert result["cost"]["price"]["expected"] == pytest.approx(total_s / 3600 * 8 * 2)


def test_a_limit_on_time_is_that_of_the_whole_run(cli: Cli) -> None:
    hours = ask(cli)[1]["time"]["total_s"]["expected"] / 3600
    limit = ("--max-hours", 1.05 * hours)
    assert ask(cli, *limit)[0] == 0
    assert ask(cli, *limit, "--checkpoint-every", 10, "--storage-write-gb-per-s", 1)[0] == 1


def test_the_samples_of_an_evaluation_are_those_asked_for(cli: Cli) -> None:
    """Twice as many take twice as long; where nobody says, a twentieth of the data."""
    few, many = (
        ask(cli, "--evaluate-every", 1000, "--evaluate-samples", samples)[1]["time"]["run"][1]["seconds"]
        for samples in (6400, 12800)
    )
    assert many == pytest.approx(2 * few, rel=1e-6)
    usual = ask(cli, "--evaluate-every", 1000, "--samples", 256_000)[1]
    assert usual["time"]["run"][1]["seconds"] == pytest.approx(many, rel=1e-6)
    assert usual["scenario"]["train"]["evaluate_samples"] == 12800
    assert usual["scenario"]["origin"]["train.evaluate_samples"] == "default"


def test_an_evaluation_of_unknown_size_is_left_out_and_named(cli: Cli) -> None:
    plain, asked = ask(cli)[1], ask(cli, "--evaluate-every", 100)[1]
    assert asked["time"]["total_s"] == plain["time"]["total_s"]
    assert "evaluate_samples" not in asked["scenario"]["train"]
    told = "evaluation every 100 steps is left out: its number of samples is not known; --evaluate-samples 1000 adds it"
    assert told in cli("estimate", *JOB, "--evaluate-every", 100, "--brief").out


def test_failures_choose_an_interval_and_are_told(cli: Cli) -> None:
    result = ask(cli, "--failures-per-gpu-day", 1, "--async-checkpoint")[1]
    saved = result["checkpoint"]
    assert saved["asynchronous"]
    assert saved["mean_time_between_failures_s"] == 86400 / 8
    assert saved["every_steps"] == saved["best_every_steps"] < 1000
    assert [part["name"] for part in result["time"]["run"]] == ["steps", "checkpoints", "failures"]
    shown = cli("estimate", *JOB, "--failures-per-gpu-day", 1, "--explain", "time").out
    assert ", of which checkpoints " in shown
    assert "goodput" in shown
    assert "How the time of the whole job adds up" in shown


def test_the_advice_says_how_often_to_save(cli: Cli) -> None:
    asked = ("--failures-per-gpu-day", 1, "--checkpoint-every", 5, "--storage-write-gb-per-s", 1)
    advice = ask(cli, *asked)[1]["advice"]
    best = ask(cli, *asked)[1]["checkpoint"]["best_every_steps"]
    changes = [one["change"] for one in advice]
    assert f"a checkpoint every {best} steps (Young/Daly) instead of every 5" in changes
    assert "asynchronous checkpoints" in changes
    assert any(f"--checkpoint-every {best}" in one["command"] for one in advice)


def test_a_plan_counts_them(cli: Cli) -> None:
    question = ("plan", "--model", "llama-2-7b", "--server", "dell-xe9680-h100", "--max-gpus", 8, "--job", "lora",
                "--steps", 100, "--format", "json")  # fmt: skip
    plain, saved = (
        json.loads(cli(*question, *more).out)["candidates"][0]
        for more in ((), ("--evaluate-every", 10, "--evaluate-samples", 1000))
    )
    assert saved["step_s"] == plain["step_s"]
    assert saved["total_s"]["expected"] > plain["total_s"]["expected"]


def test_every_format_has_them(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    cli("estimate", *JOB, "--checkpoint-every", 100, "-o", page)
    assert "size of a checkpoint" in page.read_text(encoding="utf-8")
    assert "checkpoint,pause_s," in cli("estimate", *JOB, "--checkpoint-every", 100, "--format", "csv").out


def test_values_out_of_range_are_refused(cli: Cli) -> None:
    for wrong in (("--checkpoint-every", 0), ("--storage-write-gb-per-s", -1), ("--failures-per-gpu-day", -1)):
        assert cli("estimate", *JOB, *wrong).code == 2
