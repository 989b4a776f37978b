"""`sensitivity` as users run it, on real jobs."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import jsonschema
import pytest

from .conftest import Ran
from .questions import JOB, ask

Cli = Callable[..., Ran]


def test_sensitivity_ranks_seven_factors(cli: Cli) -> None:
    answer = ask(cli, f"sensitivity {JOB} --gpus 16 --model llama-2-13b")
    jsonschema.validate(answer, json.loads(cli("profiles", "schema", "sensitivity").out))
    factors = {factor["name"]: factor["effects"] for factor in answer["factors"]}
    assert set(factors) == {
        "data size", "model size", "training method", "batch size", "GPUs and links", "parallelism", "deadline",
    }  # fmt: skip
    data = {effect["step"]: effect["time_ratio"] for effect in factors["data size"]}
    assert data == {"half the data": pytest.approx(0.5), "twice the data": pytest.approx(2.0)}
    deadline = {effect["step"]: effect["gpus_ratio"] for effect in factors["deadline"]}
    assert deadline["half the time"] > 1 >= deadline["twice the time"]
    assert any("network between nodes" in effect["step"] for effect in factors["GPUs and links"])


def test_steps_that_come_to_one_layout_appear_once(cli: Cli) -> None:
    """tp 4 of 8 GPUs leaves pp 2 as the plainest, and the other way round."""
    answer = ask(cli, "sensitivity --model llama-2-70b --server dell-xe9680-h100 --gpus 16 --job lora --stack nemo"
                 " --dataset alpaca --steps 100")  # fmt: skip
    steps = next(factor["effects"] for factor in answer["factors"] if factor["name"] == "parallelism")
    outcomes = [(step["outcome"]["total_s"], step["outcome"]["peak_bytes"]) for step in steps]
    assert len(set(outcomes)) == len(outcomes)


def test_the_tornado_marks_what_does_not_fit_and_leaves_the_deadline_out(cli: Cli) -> None:
    out = cli("sensitivity", "examples/plan/sft-70b.yaml", "--gpus", "32").out
    tornado = out[out.index("Effect of each factor") : out.index("All variations")]
    assert "model size *" in tornado
    assert "* does not fit: llama-3.1-405b" in tornado
    assert "deadline" not in tornado
    assert "deadline" in out[out.index("All variations") :]


def test_sensitivity_with_epochs_keeps_its_factors(cli: Cli) -> None:
    job = "--model llama-2-7b --server dell-xe9680-h100 --gpus 8 --job sft --dataset alpaca --epochs 2"
    answer = ask(cli, f"sensitivity {job}")
    assert {"data size", "batch size"} <= {factor["name"] for factor in answer["factors"]}


def test_sensitivity_of_what_does_not_fit_says_so(cli: Cli) -> None:
    job = shlex.split("sensitivity --model llama-3-70b --gpu h100-sxm-80gb --job sft --gpus 1 --dataset alpaca")
    ran = cli(*job)
    assert ran.code == 1
    assert ran.out.startswith("DOES NOT FIT")
    for format_ in ("github", "junit"):
        text = cli(*job, "--format", format_).out
        assert re.search(r"[0-9] GiB used \(does not fit\)", text)
        assert ") GiB used" not in text
