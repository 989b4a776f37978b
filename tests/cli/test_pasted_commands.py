"""A launch command of a server or a trainer, pasted where a scenario file could stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
VLLM = "vllm serve meta-llama/Llama-3.1-70B-Instruct"
DOCKER = """docker run --runtime nvidia --gpus all -v ~/.cache/huggingface:/cache/huggingface -p 8000:8000 \\
  vllm/vllm-openai:latest --model mistralai/Mistral-7B-v0.1 --quantization fp8"""


def asked(cli: Cli, *words: str) -> dict[str, Any]:
    ran = cli("serve", *words, "--server", "dell-xe9680-h100", "-f", "json")
    assert ran.code == 0, ran.err
    scenario: dict[str, Any] = json.loads(ran.out)["scenario"]
    return scenario


@pytest.mark.parametrize(
    ("command", "engine", "model", "tp", "weights"),
    [
        (f"{VLLM} --tensor-parallel-size 8", "vllm", "llama-3.1-70b", 8, "bf16"),
        ("vllm serve meta-llama/Llama-3.1-8B-Instruct", "vllm", "llama-3.1-8b", 1, "bf16"),
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4", "sglang", "qwen3-32b", 4, "bf16"),
        ("trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2", "tensorrt-llm", "llama-3.1-8b", 2, "bf16"),
        (DOCKER, "vllm", "mistral-7b-v0.1", 1, "fp8"),
    ],
)  # fmt: skip
def test_a_pasted_command_is_served(cli: Cli, command: str, engine: str, model: str, tp: int, weights: str) -> None:
    scenario = asked(cli, command)
    assert (scenario["serve"]["engine"], scenario["names"]["model"]) == (engine, model)
    assert scenario["layout"]["tp"] == tp
    assert scenario["serve"]["weights"] == weights


def test_options_win_over_the_command_and_advice_repeats_it(cli: Cli) -> None:
    command = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 8"
    ran = cli("serve", command, "--gpu", "h100-sxm-80gb", "--weights", "fp8", "-f", "json")
    found = json.loads(ran.out)
    assert found["scenario"]["serve"]["weights"] == "fp8"
    assert found["scenario"]["origin"]["serve.weights"] == "flag"
    assert all(f"'{command}'" in advice["command"] for advice in found["advice"])
    assert "vllm serve meta-llama/Llama-3.1-70B-Instruct ... is read as a command of vLLM" in ran.err


def test_what_no_tool_starts_is_no_file(cli: Cli) -> None:
    ran = cli("serve", "vllm serv meta-llama/Llama-3.1-8B --tensor-parallel-size 8")
    assert (ran.code, ran.out) == (2, "")
    assert "no such file, and no command that is known here" in ran.err
    assert "hint: launch commands of servers and trainers are read" in ran.err
    assert "Traceback" not in ran.err
    assert cli("serve", "my service.yaml").err == "my service.yaml: no such file\n"


def test_a_command_longer_than_a_file_name_is_read(cli: Cli) -> None:
    scenario = asked(cli, f"vllm serve meta-llama/Llama-3.1-8B --served-model-name {'x' * 300}")
    assert scenario["names"]["model"] == "llama-3.1-8b"


def test_a_trainer_is_pasted_too(cli: Cli) -> None:
    command = (
        "torchrun --nproc-per-node 8 sft.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 "
        "--per_device_train_batch_size 2 --max_steps 100"
    )
    ran = cli("import", command, "--gpu", "h100-sxm-80gb")
    assert ran.code == 0
    assert "gpus: 8" in ran.out
    assert "micro_batch: 2" in ran.out
    assert cli("estimate", command, "--gpu", "h100-sxm-80gb", "--brief").code in (0, 1)


# A service without a load.


def test_a_service_without_a_load_is_not_judged(cli: Cli) -> None:
    one = (
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "l40s",
        "--gpus",
        "1",
        "--input-tokens",
        "2000",
        "--output-tokens",
        "300",
    )
    ran = cli("serve", *one, "--brief")
    assert ran.code == 0
    headline, told = ran.out.splitlines()[:2]
    assert headline == "FITS  llama-3.1-8b at full load on 1 x l40s (capacity, not judged)"
    assert "no load is given: " in told
    kept = json.loads(cli("serve", *one, "-f", "json").out)["kept_load"]
    assert (kept["max_ttft_s"], kept["max_tpot_s"]) == (1.0, 0.1)
    # The load that it names is kept, and a fifth more is not.
    for factor, met in ((0.99, 0), (1.2, 1)):
        rate = f"{factor * kept['requests_per_s']}"
        assert cli("serve", *one, "--request-rate", rate, "--ttft", "1", "--tpot", "0.1").code == met


def test_prompts_too_long_for_a_second_are_told_what_ten_seconds_keep(cli: Cli) -> None:
    one = ("--model", "llama-3.1-8b", "--gpu", "l40s", "--gpus", "1", "--input-tokens", "30720")
    kept = json.loads(cli("serve", *one, "-f", "json").out)["kept_load"]
    assert kept["max_ttft_s"] == 10.0
    assert 0 < kept["requests_per_s"] < 0.1
    none = json.loads(cli("serve", *one[:-1], "120000", "-f", "json").out)["kept_load"]
    assert none["requests_per_s"] == 0.0
    assert "no load is given, and none keeps" in cli("serve", *one[:-1], "120000").out


def test_a_load_or_a_limit_is_judged(cli: Cli) -> None:
    one = ("--model", "llama-3.1-8b", "--gpu", "l40s", "--gpus", "1")
    for judged in (("--request-rate", "1"), ("--ttft", "5"), ("--requests", "32"), ("--batch", "4")):
        ran = cli("serve", *one, *judged, "-f", "json")
        assert json.loads(ran.out)["kept_load"] is None
        assert "not judged" not in cli("serve", *one, *judged).out


# Fewest GPUs, and replicas inside a server.

WORDS = "--model qwen3-32b --server dell-xe9680-h100 --users 500 --input-tokens 32000 --output-tokens 500 --ttft 1"
CHAT = (*WORDS.split(), "--tpot", "0.05", "--prefix-hit-share", "0.9")


@pytest.mark.parametrize("host_gib", ["0", "500", "1500"])
def test_no_stages_are_forced_upon_a_service_to_save_gpus(cli: Cli, host_gib: str) -> None:
    """Without a word on stages the answer needs no more GPUs than with `--pp 1`."""
    gpus = [
        json.loads(cli("serve", *CHAT, "--kv-host-gib", host_gib, *more, "-f", "json").out)["gpus"]["count"]
        for more in ((), ("--pp", "1"))
    ]
    assert gpus[0] <= gpus[1]


def test_of_as_many_gpus_replicas_inside_a_server_are_taken(cli: Cli) -> None:
    ran = cli(
        "serve", "--model", "llama-3.3-70b", "--server", "dell-xe9680-h100", "--users", "550", "--input-tokens", "2000",
        "--output-tokens", "400", "--ttft", "1", "--tpot", "0.05", "--brief",
    )  # fmt: skip
    first_screen = "\n".join(ran.out.splitlines()[:4])
    assert "16 GPUs: 2 replicas of 8" in first_screen
    assert "the 2 replicas are in servers of their own: if one fails, the other takes" in first_screen.replace(
        "\n  ", " "
    )
    assert "2 GPUs would hold the model" in ran.out
