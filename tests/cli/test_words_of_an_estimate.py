"""What a report on a training job calls things: data, energy, transfers; the same where it is rendered later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Cli, read_answer


def answer(cli: Cli, *words: object) -> dict[str, Any]:
    return read_answer(cli, "estimate", *words)


ROOT = Path(__file__).parents[2]
OFFLOADED = ("--model", "llama-2-7b", "--gpu", "rtx-4090", "--gpus", 1, "--stack", "deepspeed", "--zero", 3,
             "--offload", "params", "--recompute", "full", "--steps", 10)  # fmt: skip


def test_one_gpu_with_weights_on_the_host_transfers_and_does_not_communicate(cli: Cli) -> None:
    parts = {part["name"]: part for part in answer(cli, *OFFLOADED)["time"]["components"]}
    assert "transfers to and from host memory" in parts
    assert "data-parallel communication" not in parts


@pytest.mark.parametrize("gpu", ["rtx-4090", "h100-sxm-80gb"])
@pytest.mark.parametrize("batch", [1, 16, 128])
def test_what_is_lost_and_the_share_of_the_ideal_add_up(cli: Cli, gpu: str, batch: int) -> None:
    time = answer(cli, *OFFLOADED, "--gpu", gpu, "--global-batch", batch)["time"]
    ideal = time["ideal_step_s"] / time["step_s"]["expected"]
    assert ideal + sum(loss["share"] for loss in time["losses"]) == pytest.approx(1.0, abs=1e-9)
    assert sum(part["share"] for part in time["components"]) == pytest.approx(1.0)


def test_a_price_says_what_it_rests_on(cli: Cli) -> None:
    """The hour of a server with kind, region and date; of a GPU where the user gave its price."""
    job = ["--model", "llama-3.1-8b", "--job", "lora", "--steps", "100", "--server", "aws-p5.48xlarge", "--gpus", "8"]
    cost = answer(cli, *job)["cost"]
    assert cost["price"]["expected"] == pytest.approx(cost["gpu_hours"]["expected"] / 8 * 55.04)
    kept = {name: cost["hourly_price"][name] for name in ("hardware", "per_hour", "kind", "date", "region")}
    assert kept == {
        "hardware": "aws-p5.48xlarge", "per_hour": 55.04, "kind": "on-demand", "date": "2026-09-24",
        "region": "us-east-1",
    }  # fmt: skip
    listed = "aws-p5.48xlarge at 55.04 USD an hour (on-demand, us-east-1, 2026-09-24)"
    assert listed in cli("estimate", *job, "--brief").out
    page = cli("estimate", *job, "--format", "html").out
    assert "55.04 USD an hour (on-demand, us-east-1, 2026-09-24); source: AWS Price List" in page
    own = cli("estimate", *job, "--price-per-gpu-hour", 2.5, "--brief").out
    assert "USD an hour" not in own  # who gave the price knows it


def test_energy_says_what_it_counts(cli: Cli) -> None:
    """A 4090 of 450 W at 85 %, a fifth of its design power for the server around it."""
    cost = answer(cli, *OFFLOADED)["cost"]
    assert cost["energy_kwh"] == pytest.approx(cost["gpu_hours"]["expected"] * 0.45 * (0.85 + 0.20))
    assert cost["energy_formula"].endswith("for the rest of it, as measured on 4 x RTX 4090")
    assert "85 % of design power" in cost["energy_formula"]
    assert cost["energy_formula"] in cli("estimate", *OFFLOADED).out


def test_a_histogram_is_numbers_direct_and_rendered_alike(cli: Cli, tmp_path: Path) -> None:
    file, saved = tmp_path / "job.yaml", tmp_path / "job.json"
    counted = "{lengths: [100, 500, 900], counts: [2, 1, 1]}"
    file.write_text(f"model: gpt2\ngpu: t4\ngpus: 1\ntrain: {{steps: 10}}\ndata: {{histogram: {counted}}}\n")
    saved.write_text(json.dumps(answer(cli, file)))
    for shape in ("table", "markdown", "html"):
        direct, rendered = cli("estimate", file, "--format", shape).out, cli("render", saved, "--format", shape).out
        assert "3 bins, mean 400, longest 900 tokens" in direct
        assert "Histogram(" not in direct
        assert rendered == direct


@pytest.mark.parametrize("name", ["./data.csv", "data.csv", "samples"])
def test_a_file_that_is_not_counted_is_told_what_to_give(cli: Cli, name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text('{"text": "a"}\n')
    ran = cli("estimate", "--model", "gpt2", "--gpu", "t4", "--dataset", name)
    assert ran.code == 2
    assert f"--dataset: '{name}' is no data set profile (.yaml) and no file of samples" in ran.err
    assert "--samples 50000 --mean-tokens 350 --max-tokens 2048" in ran.err
    assert "no data set is called" not in ran.err


def test_a_file_of_samples_that_is_not_there_is_said_so(cli: Cli) -> None:
    ran = cli("estimate", "--model", "gpt2", "--gpu", "t4", "--dataset", "nowhere/data.jsonl")
    assert (ran.code, "--dataset: no such file: nowhere/data.jsonl" in ran.err) == (2, True)


@pytest.mark.parametrize(("flags", "problem"), [(("--tp", "x"), "--tp: "), (("--steps", "0"), "--steps: ")])
def test_inference_beside_another_problem_is_told_both(cli: Cli, flags: tuple[str, ...], problem: str) -> None:
    ran = cli("estimate", "--model", "gpt2", "--gpu", "t4", "--job", "inference", *flags)
    assert ran.code == 2
    assert problem in ran.err
    assert "--job: the job is inference" in ran.err


HERO = "examples/lora-llama-2-70b.yaml"


def test_steps_say_how_often_they_read_the_data_set(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """12,012 samples in 1,000 batches of 128."""
    monkeypatch.chdir(ROOT)
    data = answer(cli, HERO)["data"]
    assert (data["samples"], data["samples_read"]) == (12012, 128000)
    assert data["epochs"] == pytest.approx(128000 / 12012)
    shown = " ".join(cli("estimate", HERO).out.split())
    assert "steps 1,000 10.7 epochs" in shown
    assert "samples read 128,000 of 12,012 in the data set" in shown
    assert "samples per second" in shown


def test_packed_steps_read_more_and_are_warned_of(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 batches of 128 sequences of 4,096 tokens, samples of 114.5: 381 times 12,012."""
    monkeypatch.chdir(ROOT)
    result = answer(cli, HERO, "--padding", "packed")
    assert result["data"]["epochs"] == pytest.approx(1000 * 128 * 4096 / 114.5 / 12012, rel=1e-3)
    assert any("1,000 steps read the 12,012 samples 381 times; --epochs 3" in text for text in result["warnings"])
    assert "sequences per second" in cli("estimate", HERO, "--padding", "packed").out


def test_epochs_that_are_asked_for_are_those_that_are_said(cli: Cli) -> None:
    asked = (
        "--model",
        "gpt2",
        "--gpu",
        "t4",
        "--gpus",
        1,
        "--samples",
        12800,
        "--mean-tokens",
        100,
        "--max-tokens",
        900,
    )
    assert answer(cli, *asked, "--epochs", 3)["data"]["epochs"] == 3.0
    assert answer(cli, *asked)["data"]["epochs"] == 1.0
    packed = answer(cli, *asked, "--epochs", 3, "--padding", "packed")["data"]
    assert packed["epochs"] == pytest.approx(3.0, rel=0.05)  # whole batches
    assert packed["samples"] == 12800


def test_data_of_unknown_size_have_no_epochs(cli: Cli) -> None:
    data = answer(cli, "--model", "gpt2", "--gpu", "t4", "--gpus", 1, "--steps", 10, "--global-batch", 4)["data"]
    assert (data["epochs"], data["samples_read"]) == (None, 40)


@pytest.mark.parametrize("question", ["estimate", "serve"])
def test_one_gpu_is_told_nothing_of_servers_nodes_and_networks(cli: Cli, question: str) -> None:
    asked = ("--steps", 10, "--gpus", 1) if question == "estimate" else ("--concurrency", 4)
    shown = cli(question, "--model", "gpt2", "--gpu", "rtx-4090", *asked).out
    for word in ("no server named", "network", "generic-8x", "1 node"):
        assert word not in shown


@pytest.mark.parametrize(("gpus", "fabric", "network"), [(1, 0, 0), (8, 1, 0), (16, 1, 1)])
def test_what_joins_gpus_is_assumed_only_of_several(cli: Cli, gpus: int, fabric: int, network: int) -> None:
    warnings = answer(cli, "--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--gpus", gpus, "--steps", 10)["warnings"]
    assert sum("no server named" in text for text in warnings) == fabric
    assert sum("network: " in text for text in warnings) == network


def test_a_minimum_under_a_fixed_layout_says_so(cli: Cli) -> None:
    asked = ("estimate", "--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--gpus", 8, "--steps", 10)
    assert "with this" not in cli(*asked).out
    assert "with this" not in cli(*asked, "--dp", 8).out  # what follows from the GPUs is left open
    assert "4 GPUs with this tp" in cli(*asked, "--tp", 4).out
