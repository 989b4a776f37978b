"""`--explain operators`: the step operator by operator, by the functions that price the step."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
KERNELS_AND_EXCHANGES = {
    "forward", "backward", "recompute", "tensor-parallel communication", "context-parallel communication",
    "expert-parallel communication",
}  # fmt: skip
BESIDE_SERVING = {"host", "pipeline communication"}
JOBS = {
    "selective recompute, tp, pp": "--model llama-2-7b --stack nemo --gpus 8 --tp 4 --pp 2 --recompute selective",
    "full recompute, tp, cp": "--model llama-2-7b --job sft --gpus 8 --tp 2 --cp 2 --recompute full --micro-batch 1",
    "adapters": "--model llama-2-7b --job lora --gpus 2 --zero 3",
    "quantised": "--model llama-2-7b --job qlora --gpus 1 --stack unsloth",
    "experts": "--model mixtral-8x7b --job lora --gpus 16 --ep 4",
    "fixed fractions": "--model llama-2-7b --job sft --gpus 8 --flops-efficiency 0.5 --memory-efficiency 0.8",
}
SERVICES = {
    "steady": "--model llama-3.1-8b --request-rate 2",
    "tensor parallel": "--model llama-3.1-70b --concurrency 16 --tp 4 --gpus 4",
    "a static batch": "--model llama-2-7b --batch 8 --engine hf-transformers",
    "pipeline stages": "--model llama-3.1-70b --concurrency 16 --tp 2 --pp 3 --gpus 6",
    "narrow weights": "--model llama-3.1-8b --request-rate 2 --weights int4",
}


def asked(cli: Cli, command: str) -> dict[str, Any]:
    ran = cli(*command.split(), "--gpu", "h100-sxm-80gb", "--explain", "operators", "--format", "json")
    assert ran.code in (0, 1), ran.err
    return json.loads(ran.out)


def sums(operators: list[dict[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in operators:
        for part, seconds in one["parts"].items():
            found[part] = found.get(part, 0.0) + seconds
    return found


@pytest.mark.parametrize("job", JOBS)
def test_operators_sum_to_the_parts_of_a_step(cli: Cli, job: str) -> None:
    time = asked(cli, f"estimate {JOBS[job]}")["time"]
    parts = {one["name"]: one["seconds"] for one in time["components"] if one["name"] in KERNELS_AND_EXCHANGES}
    assert sums(time["operators"]) == pytest.approx(parts, rel=1e-9)
    for one in time["operators"]:
        assert one["seconds"] == pytest.approx(sum(one["parts"].values()), rel=1e-12)
        assert one["share"] == pytest.approx(one["seconds"] / time["step_s"]["expected"], rel=1e-12)


@pytest.mark.parametrize("service", SERVICES)
def test_operators_sum_to_the_parts_of_both_kinds_of_step(cli: Cli, service: str) -> None:
    phases = asked(cli, f"serve {SERVICES[service]}")["phases"]
    for phase in phases.values():
        parts = {one["name"]: one["seconds"] for one in phase["components"] if one["name"] not in BESIDE_SERVING}
        assert sums(phase["operators"]) == pytest.approx(parts, rel=1e-9)


def test_a_matrix_product_is_counted_as_by_hand(cli: Cli) -> None:
    """Llama 2 7B, 8 GPUs of data parallelism: 32 layers of 4096 x 11008 twice, 4 micro-batches of 4,096 tokens."""
    command = "estimate --model llama-2-7b --job sft --gpus 8 --dp 8 --zero 3 --micro-batch 1 --global-batch 32"
    time = asked(cli, f"{command} --recompute none --padding packed --seq-len 4096")["time"]
    gate_up = next(one for one in time["operators"] if one["name"] == "gate and up")
    assert gate_up["sizes"] == {"m": 4096, "n": 2 * 11008, "k": 4096}
    assert gate_up["times"] == 32 * 4
    # Forward, and as much again for each of both gradients.
    assert gate_up["flops"] == pytest.approx(3 * 2 * 4096 * 22016 * 4096 * 128, rel=1e-9)
    # 16 bit: input, weight and output of each of the three products.
    assert gate_up["bytes"] == pytest.approx(3 * 2 * (4096 * 4096 + 4096 * 22016 + 4096 * 22016) * 128, rel=1e-9)
    assert gate_up["bound"] == "compute"
    norm = next(one for one in time["operators"] if one["name"] == "mlp norm")
    assert (norm["flops"], norm["bound"]) == (0, "memory")


def test_decoding_reads_weights_and_prompts_compute(cli: Cli) -> None:
    phases = asked(cli, "serve --model llama-3.1-8b --concurrency 4 --input-tokens 4000")["phases"]
    bounds = {
        name: {one["bound"] for one in phase["operators"] if one["name"] == "gate and up"}
        for name, phase in phases.items()
    }
    assert bounds == {"decode": {"memory"}, "prefill": {"compute"}}


def test_the_table_says_what_bounds_each_operator(cli: Cli) -> None:
    command = "estimate --model llama-2-7b --gpu h100-sxm-80gb --gpus 8 --tp 2"
    shown = cli(*command.split(), "--explain", "operators").out
    lines = shown.split("Operators of a step\n")[1].split("\n\n")[0].splitlines()
    assert lines[0].split() == ["operator", "shape", "times", "FLOPs", "bytes", "time", "share", "bound", "by"]
    bounds = {line.split()[-1] for line in lines[2:] if "all operators" not in line and line}
    assert {"compute", "memory", "network"} <= bounds <= {"compute", "memory", "launch", "network"}
    assert "Operators of a step" not in cli(*command.split()).out
    assert json.loads(cli(*command.split(), "--format", "json").out)["time"]["operators"] == []


def test_a_result_that_was_saved_without_operators_says_so(cli: Cli, tmp_path: Any) -> None:
    saved = tmp_path / "saved.json"
    cli("estimate", "--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--gpus", "8", "-o", saved)
    assert "run the command again with --explain operators" in cli("render", saved, "--explain", "operators").out
