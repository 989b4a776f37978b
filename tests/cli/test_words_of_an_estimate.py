"""What a report on a training job calls things: data, energy, transfers; the same where it is rendered later."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]


def answer(cli: Cli, *words: object) -> dict[str, Any]:
    ran = cli("estimate", *words, "--format", "json")
    assert ran.code in (0, 1), ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


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


def test_energy_says_what_it_counts(cli: Cli) -> None:
    """A 4090 of 450 W at 85 %, a quarter more for the server."""
    cost = answer(cli, *OFFLOADED)["cost"]
    assert cost["energy_kwh"] == pytest.approx(cost["gpu_hours"]["expected"] * 0.45 * 0.85 * 1.25)
    assert cost["energy_formula"] == "GPUs at 85 % of design power plus 25 % for the rest of the server"
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


@pytest.mark.parametrize("name", ["./data.jsonl", "data.jsonl", "samples"])
def test_a_file_of_samples_is_told_what_to_give_instead(cli: Cli, name: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text('{"text": "a"}\n')
    ran = cli("estimate", "--model", "gpt2", "--gpu", "t4", "--dataset", name)
    assert ran.code == 2
    assert f"--dataset: '{name}' holds samples" in ran.err
    assert "--samples 50000 --mean-tokens 350 --max-tokens 2048" in ran.err
    assert "no data set is called" not in ran.err


def test_a_file_of_samples_that_is_not_there_is_said_so(cli: Cli) -> None:
    ran = cli("estimate", "--model", "gpt2", "--gpu", "t4", "--dataset", "nowhere/data.jsonl")
    assert (ran.code, "--dataset: no such file: nowhere/data.jsonl" in ran.err) == (2, True)


@pytest.mark.parametrize("question", ["estimate", "plan", "compare", "sensitivity"])
@pytest.mark.parametrize(("flags", "problem"), [(("--tp", "x"), "--tp: "), (("--steps", "0"), "--steps: ")])
def test_inference_beside_another_problem_is_told_both(
    cli: Cli, question: str, flags: tuple[str, ...], problem: str
) -> None:
    alternatives = ("gpus=1", "gpus=2") if question == "compare" else ()
    ran = cli(question, "--model", "gpt2", "--gpu", "t4", "--job", "inference", *flags, *alternatives)
    assert ran.code == 2
    assert problem in ran.err
    assert "--job: the job is inference" in ran.err
