"""`--explain memory` and `--explain time`: the formulas with their numbers put in."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
JOBS = {
    "sft, ZeRO 3": "--model llama-2-7b --job sft --gpus 8 --zero 3",
    "sft, tp and pp": "--model llama-2-7b --job sft --stack nemo --gpus 8 --tp 2 --pp 2 --dp 2",
    "recomputed": "--model llama-2-7b --job sft --gpus 8 --recompute full --zero 2",
    "lora": "--model llama-2-7b --job lora --gpus 2",
    "qlora": "--model llama-2-7b --job qlora --gpus 1",
    "experts": "--model mixtral-8x7b --job sft --gpus 64 --ep 4",
}
SERVICES = {
    "fp8": "--model llama-3.1-70b --gpus 4 --tp 4 --weights fp8 --concurrency 8",
    "int4": "--model llama-3.1-8b --weights int4 --concurrency 8",
    "not one request": "--model llama-3.1-405b --gpus 4 --concurrency 8",
    "a cache that grows": "--model llama-2-7b --batch 4 --engine hf-transformers",
}


def answered(cli: Cli, command: str) -> dict[str, Any]:
    ran = cli(*command.split(), "--gpu", "h100-sxm-80gb", "--format", "json")
    assert ran.code in (0, 1), ran.err
    return json.loads(ran.out)


def value(terms: list[list[dict[str, Any]]]) -> float:
    return sum(math.prod(1 / one["value"] if one["divides"] else one["value"] for one in term) for term in terms)


@pytest.mark.parametrize(
    "command", [*(f"estimate {job}" for job in JOBS.values()), *(f"serve {each}" for each in SERVICES.values())]
)
def test_the_product_shown_is_the_row(cli: Cli, command: str) -> None:
    memory = answered(cli, command)["memory"]
    shown = {one["name"]: one for one in memory["components"] if one["terms"]}
    for one in shown.values():
        assert value(one["terms"]) == pytest.approx(one["bytes"], rel=1e-9, abs=1)
    assert {"weights", "CUDA context"} <= set(shown)


@pytest.mark.parametrize("job", JOBS)
def test_every_large_row_of_a_job_has_its_numbers(cli: Cli, job: str) -> None:
    memory = answered(cli, f"estimate {JOBS[job]}")["memory"]
    without = sum(one["bytes"] for one in memory["components"] if not one["terms"])
    walked = ("layer in its backward", "cast weights")  # the worst of many moments, and no product
    backward = sum(one["bytes"] for one in memory["components"] if one["name"] in walked)
    assert without <= backward + 1


@pytest.mark.parametrize("job", JOBS)
def test_bytes_are_whole_and_sum_to_the_peak(cli: Cli, job: str) -> None:
    memory = answered(cli, f"estimate {JOBS[job]}")["memory"]
    sizes = [one["bytes"] for one in memory["components"]]
    assert sum(sizes) == memory["peak_bytes"]
    assert memory["usable_bytes"] - memory["peak_bytes"] == memory["headroom_bytes"]
    assert all(size == int(size) for size in (*sizes, memory["headroom_bytes"], memory["usable_bytes"]))


def test_weights_by_hand(cli: Cli) -> None:
    """Llama 2 7B: 6,738,415,616 parameters of 2 bytes over 8 ranks."""
    command = "estimate --model llama-2-7b --gpu h100-sxm-80gb --gpus 8 --zero 3 --explain memory"
    shown = cli(*command.split()).out
    row = next(line for line in shown.splitlines() if line.startswith("weights ") and " elements x " in line)
    assert "6.7 B elements x 2 B / 8 ZeRO ranks" in row
    assert row.split()[1] == f"{6_738_415_616 * 2 / 8 / 1024**3:.2f}"


def test_time_in_numbers(cli: Cli) -> None:
    time = answered(cli, f"estimate {JOBS['lora']}")["time"]
    for one in time["components"]:
        if one["terms"]:
            assert value(one["terms"]) == pytest.approx(one["seconds"], rel=1e-12)
    assert {"forward", "backward"} <= {one["name"] for one in time["components"] if one["terms"]}
    assert " micro-batches x " in cli(*f"estimate {JOBS['lora']} --gpu h100-sxm-80gb --explain time".split()).out
