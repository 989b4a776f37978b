"""Whatever is advised holds: over examples, stacks and cards each command is taken, and answers what was claimed.

The claims are read from the words of the advice: GiB of a GPU, hours, and the data, which stay what they were.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from xe_sizer.profiles.finder import BUILT_IN

from .conftest import Ran

Cli = Callable[..., Ran]
ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    str(file.relative_to(ROOT))
    for file in (ROOT / "examples").rglob("*.yaml")
    if file.parent.name not in ("serve", "plan", "calendar")
)
STACKS = BUILT_IN.names("stack")
CARDS = ("rtx-4090", "t4", "a100-sxm-40gb", "h100-sxm-80gb", "mi300x")
ON_STACKS = [
    f"--model llama-3.1-8b --gpu {CARDS[number % len(CARDS)]} --gpus 1 --job {('sft', 'lora')[number % 2]} "
    f"--stack {stack} --dataset alpaca --epochs 3 --seq-len 2048"
    for number, stack in enumerate(STACKS)
]
ODD = (
    "--model llama-3.1-8b --gpu rtx-4090 --gpus 1 --job lora --steps 100",
    "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --job sft --steps 1000 --dataset alpaca --max-hours 0.1",
    "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --steps 500 --dataset alpaca --padding to-seq-len",
    "--model llama-2-13b --gpu a100-sxm-40gb --gpus 3 --job qlora --steps 200 --samples 9000 --mean-tokens 300",
    "--model qwen2.5-14b --gpu l40s --gpus 6 --steps 1000 --max-hours 3 --padding packed",
    "--model llama-2-7b --gpu rtx-4090 --gpus 1 --stack deepspeed --zero 3 --offload params --host-memory-gib 64",
    "--model llama-3.1-70b --gpu h100-sxm-80gb --gpus 8 --stack torchtitan --tp 8 --pp 1 --no-sequence-parallel",
)  # fmt: skip
QUESTIONS = (*EXAMPLES, *ON_STACKS, *ODD)
MEMORY = re.compile(r"^([\d.,]+) of ([\d.,]+) GiB per GPU")
TIME = re.compile(r", ([\d.,]+)(?:e[+-]\d+)? (ms|s|min|h|d)(?: instead of | \(|$|,)")
UNIT_S = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def ask(cli: Cli, command: str) -> tuple[int, dict[str, Any]]:
    ran = cli("estimate", *shlex.split(command), "--format", "json")
    assert ran.code in (0, 1), ran.err
    return ran.code, json.loads(ran.out)


def tokens(result: dict[str, Any]) -> float:
    """Of the samples that are read, before they are cut: their number times their mean, where that is known."""
    return float(result["data"]["samples_read"])


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_advised_command_answers_what_it_claims(cli: Cli, question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, before = ask(cli, question)
    if code:
        assert before["advice"] or not before["verdict"]["fits"]
    for advice in before["advice"]:
        program, command, *words = shlex.split(advice["command"])
        assert (program, command) == ("xe-sizer", "estimate")
        found, after = ask(cli, shlex.join(words))
        assert found == 0, advice
        check_claims(advice["effect"], after)
        check_data(advice, before, after)


def check_claims(effect: str, after: dict[str, Any]) -> None:
    """The figures that the words give, to the digits that they give."""
    memory = MEMORY.search(effect)
    assert memory, effect
    assert float(memory[1].replace(",", "")) == pytest.approx(after["memory"]["peak_bytes"] / 2**30, rel=0.006)
    assert float(memory[2].replace(",", "")) == pytest.approx(after["memory"]["usable_bytes"] / 2**30, rel=0.006)
    time = TIME.search(effect)
    assert time, effect
    told_s = float(time[1].replace(",", "")) * UNIT_S[time[2]]
    assert told_s == pytest.approx(after["time"]["total_s"]["expected"], rel=0.006)
    assert ("(tight)" in effect) <= (after["verdict"]["margin"] == "tight")


def check_data(advice: dict[str, str], before: dict[str, Any], after: dict[str, Any]) -> None:
    """The same data: as many epochs, or as many tokens where nobody knows how large the data set is.

    A step more or less of whole batches is not counted.
    """
    one_step = 1.0 / after["time"]["steps"] + 1.0 / before["time"]["steps"]
    if before["data"]["epochs"] is not None:
        assert after["data"]["epochs"] == pytest.approx(before["data"]["epochs"], rel=one_step + 1e-9), advice
    else:
        assert after["data"]["real_tokens"] == pytest.approx(before["data"]["real_tokens"], rel=one_step + 1e-9), advice


def test_the_hero_is_told_to_pack_the_same_data(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """12,012 samples of 114.5 tokens, 10.7 times, in batches of 128 sequences of 4,096: 28 steps."""
    monkeypatch.chdir(ROOT)
    _, before = ask(cli, "examples/lora-llama-2-70b.yaml")
    packed = [advice for advice in before["advice"] if "--padding packed" in advice["command"]]
    assert len(packed) == 1
    assert "--steps 28" in packed[0]["command"]
    assert packed[0] == before["advice"][0]  # what gains most comes first
    _, after = ask(cli, shlex.join(shlex.split(packed[0]["command"])[2:]))
    assert after["data"]["epochs"] == pytest.approx(before["data"]["epochs"], rel=0.02)
    assert after["time"]["total_s"]["expected"] < 0.2 * before["time"]["total_s"]["expected"]
    (told,) = [text for text in before["warnings"] if "padding" in text]
    assert told.startswith("91 % of the processed tokens are padding")
    flags = re.search(r"\((--padding [^)]*)\)", told)
    assert flags
    _, after = ask(cli, f"examples/lora-llama-2-70b.yaml {flags[1]}")
    assert after["data"]["processed_tokens"] < 0.2 * before["data"]["processed_tokens"]


def test_the_warning_packs_into_sequences_that_memory_holds_now(cli: Cli) -> None:
    question = (
        "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --samples 50000 --mean-tokens 60 --max-tokens 900 "
        "--seq-len 4096 --stack nemo --epochs 2"
    )
    _, before = ask(cli, question)
    (told,) = [text for text in before["warnings"] if "padding" in text]
    assert "(--padding packed --seq-len 912)" in told  # padded to multiples of 16
    _, after = ask(cli, f"{question} --padding packed --seq-len 912")
    assert after["data"]["processed_tokens"] < 0.5 * before["data"]["processed_tokens"]
    assert after["memory"]["peak_bytes"] <= 1.01 * before["memory"]["peak_bytes"]
    assert after["data"]["epochs"] == pytest.approx(before["data"]["epochs"], rel=0.02)


def test_a_stack_that_does_not_pack_is_said_not_to(cli: Cli) -> None:
    _, result = ask(
        cli,
        "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --dataset dell-design-guide --stack nemo-2023 --job lora",
    )
    (told,) = [text for text in result["warnings"] if "padding" in text]
    assert "a stack that packs samples" in told
    assert "--padding" not in told
    assert not any("--padding" in advice["command"] for advice in result["advice"])


ROW_15 = "--gpu rtx-4090 --model qwen2.5-32b --job qlora --stack unsloth --seq-len 4096 --lora-rank 64 --gpus 1"


def test_the_nearest_change_is_on_the_very_card(cli: Cli) -> None:
    """First what changes least on the card at hand, then the next larger cards of its kind; never a second GPU."""
    code, result = ask(cli, ROW_15)
    assert code == 1
    commands = [advice["command"] for advice in result["advice"]]
    assert "--lora-rank " in commands[0]
    cards = [command for command in commands if "--gpu rtx-4090" not in command]
    assert "--gpu rtx-5090" in cards[0]
    assert "--gpu rtx-a6000" in cards[1]
    assert all("--gpus 1" in command for command in commands)


def test_a_stack_on_one_gpu_is_never_advised_two(cli: Cli) -> None:
    for limit in ("", " --max-hours 2"):
        _, result = ask(cli, f"--gpu rtx-4090 --model llama-3.1-8b --job qlora --stack unsloth --gpus 1{limit}")
        assert not any(re.search(r"--gpus ([2-9]|1\d)", advice["command"]) for advice in result["advice"])
    _, result = ask(cli, "--gpu rtx-4090 --model llama-3.1-8b --job qlora --stack unsloth --gpus 2 --zero 0")
    assert any("unsloth trains on one GPU" in text for text in result["warnings"])


def test_offloading_is_tried_with_another_small_change(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, result = ask(cli, "examples/dell-table-9/llama-2-70b-sft-8-gpus.yaml")
    assert code == 1
    assert "--offload optimizer" in result["advice"][0]["command"]
    found, after = ask(cli, shlex.join(shlex.split(result["advice"][0]["command"])[2:]))
    assert (found, after["verdict"]["margin"]) == (0, "headroom")


def test_what_packing_cannot_keep_is_not_advised(cli: Cli) -> None:
    """10 batches of 128 short samples fill less than one packed batch."""
    question = (
        "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --samples 1000 --mean-tokens 40 --max-tokens 8000 "
        "--seq-len 8192 --steps 10 --stack nemo --padding longest-in-global-batch"
    )
    code, result = ask(cli, question)
    assert code == 0
    (told,) = [text for text in result["warnings"] if "padding" in text]
    assert "fill less than one batch of 128" in told
    assert not any("packed" in advice["command"] for advice in result["advice"])


def test_a_cut_of_the_samples_is_said_and_is_another_training(cli: Cli) -> None:
    """Shorter sequences cut what is said, and less of it where few samples are long."""
    question = (
        "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --stack hf-trainer --zero 3 --seq-len 131072 --epochs 1"
    )
    shares = []
    for mean in (50000, 500):
        _, asked = ask(cli, f"{question} --samples 5000 --mean-tokens {mean} --max-tokens 131072")
        (advice,) = (advice for advice in asked["advice"] if "sequences of 16,384 tokens" in advice["change"])
        said = re.search(r"which cuts (\d+) % of the tokens", advice["change"])
        assert said
        _, after = ask(cli, shlex.join(shlex.split(advice["command"])[2:]))
        shares.append(100 * (1 - after["data"]["real_tokens"] / asked["data"]["real_tokens"]))
        assert shares[-1] == pytest.approx(int(said[1]), abs=1.0)
    assert shares[1] < 0.5 * shares[0]


def test_a_service_that_fits_and_is_still_overloaded_is_advised_in_words(cli: Cli) -> None:
    """Requests that arrive faster than they are taken wait without bound, which is no number of seconds."""
    load = "--request-rate 20 --input-tokens 30000 --output-tokens 1000 --gpus 8"
    ran = cli("serve", *shlex.split(f"--model llama-3.1-70b --gpu rtx-a4500 {load}"))
    assert ran.code == 1
    assert "unbounded time to the first token" in ran.out
