"""What is advised works: every printed command, run as it stands, answers yes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
SERVER = "--server dell-xe9680-h100"
H100 = "--gpu h100-sxm-80gb"

# Jobs that do not fit, with the layout fixed or open, on large and small cards, with every method and stack.
TOO_BIG = {
    "sft 70b": f"--model llama-2-70b {SERVER} --gpus 8 --job sft --stack nemo",
    "sft 7b on one": f"--model llama-2-7b {H100} --gpus 1",
    "sft 8b on gaming cards": "--model llama-3.1-8b --gpu rtx-4090 --gpus 8 --stack deepspeed --zero 1",
    "lora 70b on one": "--model llama-2-70b --gpu a100-sxm-80gb --gpus 1 --job lora --stack hf-trainer --zero 0",
    "lora 13b on l4": "--model llama-2-13b --gpu l4 --gpus 1 --job lora --stack hf-trainer",
    "qlora 70b on a gaming card": "--model llama-2-70b --gpu rtx-4090 --gpus 1 --job qlora --stack hf-trainer",
    "pretrain without stages": (
        "--model gpt3-175b --gpu a100-sxm-80gb --gpus 64 --job pretrain --stack megatron-lm --tp 8 --pp 1 "
        "--tokens 3e11 --global-batch 1536 --seq-len 2048"
    ),
    "large micro-batch": (
        f"--model mistral-7b-v0.1 {H100} --gpus 8 --stack hf-trainer --zero 3 --recompute none --micro-batch 32 "
        "--global-batch 512 --seq-len 8192"
    ),
    "no model parallelism": "--model qwen2.5-32b --server dell-xe9680-h200 --gpus 8 --tp 1 --pp 1 --stack megatron-lm",
    "experts": f"--model mixtral-8x7b {H100} --gpus 8 --stack megatron-lm --tp 2 --ep 4",
    "latent attention": f"--model deepseek-v3 {SERVER} --gpus 16 --job lora",
    "eager attention": (
        f"--model opt-30b {SERVER} --gpus 8 --stack hf-trainer --attention eager --zero 3 --recompute none "
        "--micro-batch 4 --seq-len 512 --global-batch 256"
    ),
    "gaudi": "--model llama-3.1-70b --server dell-xe9680-gaudi3 --gpus 8 --stack deepspeed",
    "long sequences": f"--model llama-3.1-8b {H100} --gpus 8 --seq-len 131072 --stack hf-trainer --zero 3",
    "volta": "--model gpt-neox-20b --server lambda-gpu_8x_v100 --gpus 8 --stack deepspeed --zero 2",
    "p-tuning": "--model falcon-40b --gpu a10 --gpus 4 --job p-tuning --stack nemo",
    "offloaded already": (
        "--model llama-2-70b --gpu a800-sxm-80gb --gpus 8 --stack deepspeed --zero 3 --offload params "
        "--micro-batch 16 --recompute none"
    ),
    "turing": "--model phi-3-mini-4k --gpu t4 --gpus 1 --stack hf-trainer",
    "float32": "--model bloom-7b1 --gpu a100-sxm-40gb --gpus 8 --precision fp32 --stack hf-trainer --zero 0",
    "405b": "--model llama-3.1-405b --server dell-xe9680l-b200 --gpus 8 --job sft --stack nemo",
    "qlora of long sequences": (
        "--model gemma-2-27b --gpu l40s --gpus 2 --job qlora --stack hf-trainer --micro-batch 8 --seq-len 8192"
    ),
    "at most one server": f"--model llama-2-70b {SERVER} --job sft --max-gpus 8",
    "at most four": f"--model qwen2.5-72b {H100} --max-gpus 4 --job sft --stack hf-trainer",
    "two nodes": f"--model llama-3.1-70b {SERVER} --nodes 2 --job sft --stack nemo --seq-len 8192",
}
# Jobs that fit and miss a limit.
MISSES = {
    "hours of sft": f"--model llama-2-13b {SERVER} --gpus 8 --stack nemo --steps 5000 --max-hours 8",
    "hours of lora": (
        f"--model llama-2-70b {SERVER} --gpus 8 --job lora --stack nemo --tp 8 --pp 1 --dataset dell-design-guide "
        "--steps 1000 --max-hours 3"
    ),
    "hours of pre-training": (
        "--model llama-7b --gpu a100-sxm-80gb --gpus 512 --job pretrain --stack megatron-lm --tokens 1e12 "
        "--global-batch 2048 --seq-len 2048 --max-hours 50"
    ),
    "hours with few GPUs": f"--model llama-2-13b {SERVER} --max-gpus 16 --gpus 8 --steps 1000 --max-hours 2",
    "price": (
        f"--model llama-3.1-8b {H100} --gpus 16 --samples 50000 --mean-tokens 500 --epochs 3 "
        "--price-per-gpu-hour 3 --max-cost 30"
    ),
    "price with a slow layout": (
        "--model qwen2.5-14b --gpu a100-sxm-80gb --gpus 8 --job lora --samples 20000 --mean-tokens 800 "
        "--price-per-gpu-hour 2 --max-cost 15 --tp 8"
    ),
    "headroom": f"--model llama-2-7b {H100} --gpus 8 --tp 1 --pp 1 --zero 1 --min-headroom-gib 40",
    "headroom of lora": (
        "--model llama-2-13b --gpu a100-sxm-40gb --gpus 4 --job lora --min-headroom-gib 20 --stack hf-trainer --zero 0"
    ),
    "hours and headroom": (
        "--model llama-3.1-8b --gpu l40s --gpus 8 --stack deepspeed --max-hours 1 --min-headroom-gib 5 "
        "--samples 40000 --mean-tokens 400"
    ),
}
FAILING = {**TOO_BIG, **MISSES}


def ask(cli: Cli, command: str) -> tuple[int, dict[str, Any]]:
    words = shlex.split(command)
    ran = cli("estimate", *words, "--format", "json")
    assert ran.err == ""
    return ran.code, json.loads(ran.out)


def follow(cli: Cli, advice: dict[str, str]) -> int:
    """Exit code of an advised command, run as it is printed."""
    program, *words = shlex.split(advice["command"])
    assert program == "xe-sizer"
    assert advice["change"]
    assert advice["effect"]
    return cli(*words, "--format", "csv").code


@pytest.mark.parametrize("command", FAILING.values(), ids=FAILING)
def test_every_advised_command_answers_yes(cli: Cli, command: str) -> None:
    code, result = ask(cli, command)
    assert code == 1
    assert result["advice"]
    assert {follow(cli, advice) for advice in result["advice"]} == {0}
    assert result["verdict"]["reasons"][0]["fix"] == result["advice"][0]["change"]


def test_there_are_failing_jobs_of_every_kind() -> None:
    assert len(TOO_BIG) >= 20
    assert len(FAILING) >= 30


def test_advice_keeps_file_variables_profiles_and_odd_names(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "my profiles"
    folder.mkdir()
    shipped = Path(__file__).parents[2] / "gpu_profiles" / "h100-sxm-80gb.yaml"
    (folder / "my-h100.yaml").write_text(shipped.read_text().replace("name: h100-sxm-80gb", "name: my-h100"))
    file = tmp_path / "it's a job.yaml"
    file.write_text("model: llama-2-13b\ngpu: my-h100\ngpus: 2\ntrain: {steps: 10}\n")
    monkeypatch.setenv("XE_SIZER_STACK", "hf-trainer")
    monkeypatch.setenv("XE_SIZER_PROFILES", str(folder))
    code, result = ask(cli, f"{shlex.quote(str(file))} --mean-tokens 1234.56789 --max-tokens 4096")
    assert code == 1
    monkeypatch.delenv("XE_SIZER_STACK")
    monkeypatch.delenv("XE_SIZER_PROFILES")
    for advice in result["advice"]:
        assert "--stack hf-trainer" in advice["command"]
        assert "--mean-tokens 1234.56789" in advice["command"]
        assert follow(cli, advice) == 0


def test_no_other_card_is_advised_against_a_price(cli: Cli) -> None:
    """The price that the user gave is that of the card that the user named."""
    _, result = ask(cli, MISSES["price"])
    assert result["advice"]
    assert not any("--gpu b" in advice["command"] or "h200" in advice["command"] for advice in result["advice"])


def test_without_a_price_the_reason_says_what_to_give(cli: Cli) -> None:
    code, result = ask(cli, f"--model llama-2-7b {H100} --gpus 8 --max-cost 5")
    assert code == 1
    assert "--price-per-gpu-hour" in result["verdict"]["reasons"][0]["fix"]


def test_a_faster_layout_is_advised_to_a_job_that_fits(cli: Cli) -> None:
    code, result = ask(cli, f"--model llama-2-7b {H100} --gpus 8 --tp 8 --stack megatron-lm")
    assert code == 0
    (advice,) = result["advice"]
    _, faster = ask(cli, shlex.join(shlex.split(advice["command"])[2:]))
    assert faster["time"]["total_s"]["expected"] < result["time"]["total_s"]["expected"]


def test_a_count_that_only_the_given_layout_divides_gets_no_advice_and_no_error(cli: Cli) -> None:
    code, _ = ask(cli, f"--model llama-2-7b {H100} --gpus 24 --cp 3 --seq-len 6144")
    assert code == 0
