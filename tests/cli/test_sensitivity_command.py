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


def test_packing_is_a_factor_where_samples_are_padded(cli: Cli) -> None:
    """As much as the estimate of the packed job, in fewer steps for the same data."""
    job = "--model llama-3.1-8b --job sft --stack nemo --server dell-xe9680-h100 --gpus 16 --samples 50000"
    job += " --mean-tokens 600 --max-tokens 4096 --epochs 1"
    factors = {one["name"]: one["effects"] for one in ask(cli, f"sensitivity {job}")["factors"]}
    (packed,) = factors["packing"]
    assert packed["step"] == "packed in 58 instead of 391 steps"
    alone = ask(cli, f"estimate {job} --padding packed --global-batch 128")["time"]["total_s"]["expected"]
    assert packed["outcome"]["total_s"] == pytest.approx(alone)
    assert packed["time_ratio"] < 0.5
    assert "packing" not in {one["name"] for one in ask(cli, f"sensitivity {job} --padding packed")["factors"]}


def test_steps_that_come_to_one_layout_appear_once(cli: Cli) -> None:
    """tp 4 of 8 GPUs leaves pp 2 as the plainest, and the other way round."""
    answer = ask(cli, "sensitivity --model llama-2-70b --server dell-xe9680-h100 --gpus 16 --job lora --stack nemo"
                 " --dataset alpaca --steps 100")  # fmt: skip
    steps = next(factor["effects"] for factor in answer["factors"] if factor["name"] == "parallelism")
    outcomes = [(step["outcome"]["total_s"], step["outcome"]["peak_bytes"]) for step in steps]
    assert len(set(outcomes)) == len(outcomes)


def test_the_tornado_marks_what_does_not_fit_and_leaves_the_deadline_out(cli: Cli) -> None:
    out = cli("sensitivity", "examples/plan/sft-70b.yaml", "--gpus", "32", "--offload", "none").out
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


ARCHITECT = (
    "--model llama-3.1-70b --server dell-xe9680-h100 --samples 50000 --mean-tokens 600 --max-tokens 4096 --epochs 3 "
    "--max-hours 24 --price-per-gpu-hour 2.5 --gpus 8"
)


def test_a_job_that_does_not_fit_has_a_change_and_no_time(cli: Cli) -> None:
    """It will never run: no time, no cost, no factors of either; the change is that of the estimate."""
    job = f"{ARCHITECT} --job sft --offload none"
    out = cli(*shlex.split(f"sensitivity {job}")).out
    screen = out[: out.index("All variations")]
    assert "takes" not in screen
    assert "Cost" not in screen
    assert "x1.00" not in out
    estimated, moved = (
        json.loads(cli(*shlex.split(f"{command} {job}"), "--format", "json").out)
        for command in ("estimate", "sensitivity")
    )
    advised = estimated["advice"][0]
    assert advised["change"] in screen
    assert moved["advice"][0]["command"] == advised["command"]
    assert cli(*shlex.split(advised["command"].removeprefix("xe-sizer "))).code == 0


def test_a_step_says_how_sure_the_limits_are_met(cli: Cli) -> None:
    """The probability is that of the estimate of twice the data; the fewest GPUs are those of the job."""
    job = f"{ARCHITECT} --job sft --offload optimizer"
    answer = ask(cli, f"sensitivity {job}")
    factors = {
        factor["name"]: {one["step"]: one["outcome"] for one in factor["effects"]} for factor in answer["factors"]
    }
    limit = ask(cli, f"estimate {job.replace('50000', '100000')}")["verdict"]["limits"][0]
    assert factors["data size"]["twice the data"]["limits_probability"] == pytest.approx(limit["probability"], abs=0.01)
    assert re.search(r"twice the data .* met, 5\d %", cli(*shlex.split(f"sensitivity {job}")).out)
    assert factors["GPUs and links"]["half the GPUs"]["minimum"] == answer["base"]["minimum"]


def test_a_price_for_all_gpus_is_charged_to_the_others_too(cli: Cli) -> None:
    answer = ask(cli, f"sensitivity {ARCHITECT} --job lora")
    steps = {one["step"]: one["outcome"] for factor in answer["factors"] for one in factor["effects"]}
    other = steps["b200"]
    assert other["price"] == pytest.approx(2.5 * other["gpu_hours"])
    assert "every kind of hardware is charged the same 2.5 per GPU-hour" in answer["warnings"][0]
    named = ask(cli, f"sensitivity {ARCHITECT.replace('--price-per-gpu-hour 2.5', '--price b200=5')} --job lora")
    steps = {one["step"]: one["outcome"] for factor in named["factors"] for one in factor["effects"]}
    assert steps["b200"]["price"] == pytest.approx(5 * steps["b200"]["gpu_hours"])
    assert steps["h200-sxm-141gb"]["price"] is None
