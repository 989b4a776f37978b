"""A desktop with llama.cpp: the context that it is started with, layers on the CPU, and what a step takes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
CARD = "--gpu rtx-4090 --gpus 1 --concurrency 1"
LAUNCH = "llama-server -m Qwen2.5-32B-Instruct-Q4_K_M.gguf -ngl 99"
# Qwen2.5 32B: 64 layers with 8 heads of 128 keys and 128 values, 2 bytes each.
TOKEN = 64 * 2 * 8 * 128 * 2


def served(cli: Cli, *words: str, card: str = CARD) -> tuple[int, dict[str, Any]]:
    ran = cli("serve", *words, *shlex.split(card), "--format", "json")
    return ran.code, json.loads(ran.out)


def part(result: dict[str, Any], name: str) -> float:
    return float(next(one["bytes"] for one in result["memory"]["components"] if one["name"] == name))


@pytest.mark.parametrize(("words", "tokens"), [("-c 8192 -np 1", 8192), ("-c 16384 -np 4", 16384), ("-c 16384", 16384)])
def test_the_whole_context_is_allocated(cli: Cli, words: str, tokens: int) -> None:
    """Its cache has all cells of the context from the start, whatever a request needs of them."""
    code, result = served(cli, f"{LAUNCH} {words}")
    assert (code, result["verdict"]["fits"]) == (0, True)
    assert part(result, "KV cache") == pytest.approx(tokens * TOKEN, abs=1)
    assert result["kv_cache"]["pool_tokens"] == pytest.approx(tokens)
    assert result["memory"]["headroom_bytes"] > 2**28  # beside it the card is free


@pytest.mark.parametrize("slots", ["", " -np 1", " -np 2"])
def test_a_context_that_the_card_cannot_hold_is_refused(cli: Cli, slots: str) -> None:
    """18.2 GiB of weights and 32,768 x 0.25 MiB of cache are more than 23.6 GiB; more slots share the context."""
    code, result = served(cli, f"{LAUNCH} -c 32768{slots}")
    assert (code, result["verdict"]["fits"]) == (1, False)
    assert part(result, "KV cache") == pytest.approx(32_768 * TOKEN, abs=1)
    (reason,) = result["verdict"]["reasons"]
    held = "2 contexts of 16,384" if "2" in slots else "a context of 32,768"
    assert f"KV cache of {held} tokens 8.00" in reason["message"]
    assert result["advice"][0]["change"].startswith("max_model_len ")


def test_the_advised_context_fits_and_a_longer_one_does_not(cli: Cli) -> None:
    _, refused = served(cli, f"{LAUNCH} -c 32768 -np 1")
    advised = int(refused["advice"][0]["change"].split()[1].replace(",", ""))
    _, result = served(cli, f"{LAUNCH} -c {advised} -np 1")
    assert result["verdict"]["fits"]
    _, result = served(cli, f"{LAUNCH} -c {advised + 2048} -np 1")
    assert not result["verdict"]["fits"]


def test_the_longest_context_can_be_started_with(cli: Cli) -> None:
    asked = ("--model", "qwen2.5-32b", "--engine", "llama.cpp", "--weights", "q4_k_m")
    _, found = served(cli, *asked, "--fit", "context")
    longest = found["fit"]["tokens"]
    for tokens, fits in ((longest - 256, True), (longest + 256, False)):
        _, result = served(cli, *asked, "--max-model-len", str(tokens))
        assert result["verdict"]["fits"] is fits


def test_a_step_takes_no_more_than_its_tokens(cli: Cli) -> None:
    """Prompts are read 512 tokens at a time, so that their length adds nothing but cache."""
    sizes = [served(cli, f"{LAUNCH} -c 16384 -np 1 -fa on", "--input-tokens", n)[1] for n in ("1000", "16000")]
    assert part(sizes[0], "activations") == part(sizes[1], "activations") < 0.3 * 2**30
    assert sizes[1]["verdict"]["fits"]
    asked = shlex.split("--model qwen2.5-32b --weights q4_k_m --input-tokens")
    grown = [served(cli, *asked, n)[1] for n in ("1000", "8000")]
    assert part(grown[0], "activations") == part(grown[1], "activations")


def test_attention_without_its_kernel_is_told(cli: Cli) -> None:
    """On is the default since 2025, where the card can."""
    for words, told in (("", False), (" -fa on", False), (" -fa auto", False), (" -fa off", True)):
        ran = cli("serve", f"{LAUNCH} -c 4096 -np 1{words}", *shlex.split(CARD), "--brief")
        assert ("keeps the scores of a step" in ran.err + ran.out) is told, words


def test_one_request_runs_beside_layers_on_the_cpu(cli: Cli) -> None:
    asked = "--model llama-3.3-70b --weights q4_k_m --cpu-layers auto --host-memory-gib 64"
    ran = cli("serve", *shlex.split(f"{asked} {CARD}"))
    assert "wait in the queue" not in ran.out
    assert "1 in flight" in ran.out


@pytest.mark.parametrize("more", ["", " --max-model-len 8192"])
def test_the_cache_beside_layers_on_the_cpu_adds_up(cli: Cli, more: str) -> None:
    """40 of 80 layers keep 0.156 MiB of a token on the card, of 0.312 in all."""
    asked = f"--model llama-3.3-70b --weights q4_k_m --cpu-layers 40 --host-memory-gib 64{more}"
    cache = served(cli, *shlex.split(asked))[1]["kv_cache"]
    assert cache["bytes_per_token"] == 80 * 2 * 8 * 128 * 2
    assert cache["gpu_bytes_per_token"] == cache["bytes_per_token"] / 2
    assert cache["pool_tokens"] * cache["gpu_bytes_per_token"] == pytest.approx(cache["pool_bytes"], rel=0.01)
    ran = cli("serve", *shlex.split(f"{asked} {CARD}"))
    assert "tokens at 0.156 MiB on the GPU, 0.312 MiB with the layers on the CPU" in ran.out


def test_more_layers_on_the_cpu_come_before_another_card(cli: Cli) -> None:
    launch = "llama-server -m Llama-3.3-70B-Instruct-Q4_K_M.gguf -ngl 50 -c 8192 -np 1"
    code, result = served(cli, launch)
    assert code == 1
    first = result["advice"][0]["change"]
    assert first.endswith("of 80 layers on the CPU instead of 30")
    assert 30 < int(first.split()[0]) < 42
