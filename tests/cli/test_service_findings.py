"""What first users of services found: what a failing server leaves, and what the answers say of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
ON_H100 = ("--server", "dell-xe9680-h100")
CHAT = (*ON_H100, "--think-time", "30", "--input-tokens", "1000", "--output-tokens", "300", "--ttft", "1")
LLAMA = ("--model", "llama-3.3-70b", *CHAT, "--tpot", "0.05", "--users", "500")
OWN = ("--capex-per-server", "290000", "--years", "4", "--kwh-price", "0.22", "--pue", "1.4")


def ask(cli: Cli, *words: object) -> dict[str, Any]:
    ran = cli(*words, "-f", "json")
    assert ran.code in (0, 1), ran.err
    answer: dict[str, Any] = json.loads(ran.out)
    return answer


def failing(answer: dict[str, Any]) -> str:
    """What is said of a server that fails; empty where the service survives it."""
    return next((text for text in answer["cautions"] if "fails" in text), "")


def advised(words: str) -> list[str]:
    """The option and the number that keep the service up."""
    found = re.search(r"\((--[a-z-]+) (\d+)( on \d+ servers)? keeps the service up\)", words)
    assert found, words
    return [found[1], found[2]]


# What a failing server leaves.

SERVICES = (
    ("--model", "llama-3.3-70b", "--weights", "fp8", "--users", "500"),
    ("--model", "llama-3.3-70b", "--weights", "fp8", "--users", "500", "--confidence", "0.9"),
    ("--model", "llama-3.3-70b", "--users", "500"),
    ("--model", "qwen3-32b", "--weights", "fp8", "--users", "200"),
    ("--model", "qwen3-32b", "--weights", "fp8", "--users", "500"),
    ("--model", "llama-3.1-8b", "--users", "9000"),
    ("--model", "llama-3.1-8b", "--request-rate", "20", "--gpus", "8"),
    ("--model", "llama-3.1-70b", "--users", "500", "--nodes", "1"),
    ("--model", "llama-3.1-70b", "--users", "500", "--tp", "8", "--engine", "sglang"),
    ("--model", "llama-3.1-405b", "--weights", "fp8", "--users", "500"),
)


def loaded(words: tuple[str, ...]) -> tuple[str, ...]:
    """The question, with a think time where there are users."""
    return words + (CHAT if "--users" in words else (*ON_H100, *CHAT[4:])) + ("--tpot", "0.05")


@pytest.mark.parametrize("words", SERVICES, ids=" ".join)
def test_the_number_named_holds_when_it_is_followed(cli: Cli, words: tuple[str, ...]) -> None:
    before = ask(cli, "serve", *loaded(words))
    option, number = advised(failing(before))
    kept = tuple(word for word in words if word not in ("--nodes", "1")) if option == "--gpus" else words
    after = ask(cli, "serve", *loaded(kept), option, number)
    assert failing(after) == ""
    assert after["verdict"]["meets_limits"]
    assert after["gpus"]["nodes"] > before["gpus"]["nodes"]
    if option == "--spare-replicas" and int(number) > 1:
        assert advised(failing(ask(cli, "serve", *loaded(words), option, int(number) - 1))) == [option, number]


def test_replicas_are_spread_evenly_over_their_servers(cli: Cli) -> None:
    """Six replicas of two GPUs in two servers are three in each, of which three are enough."""
    answer = ask(cli, "serve", *LLAMA, *OWN, "--weights", "fp8", "--confidence", "0.9", "--spare-replicas", "3")
    assert (answer["replicas"]["count"], answer["gpus"]["nodes"], failing(answer)) == (6, 2, "")


def test_spare_replicas_stay_on_the_gpus_that_were_asked_for(cli: Cli) -> None:
    """Eight GPUs are one server; where the number is open, spares take one server more, with its power and price."""
    fp8 = (*LLAMA, *OWN, "--weights", "fp8", "--spare-replicas", "2")
    given, open_ = ask(cli, "serve", *fp8, "--gpus", "8"), ask(cli, "serve", *fp8)
    assert (given["gpus"]["nodes"], open_["gpus"]["nodes"]) == (1, 2)
    assert failing(given).startswith("all 4 replicas are in one server: if it fails, nothing serves (--gpus 16")
    assert failing(open_) == ""
    assert open_["cost"]["power_w"] > given["cost"]["power_w"]
    assert open_["cost"]["billed_gpus"] == 16


def test_the_most_fragile_service_is_warned_of(cli: Cli) -> None:
    words = "the only replica is in one server: if it fails, nothing serves"
    qwen = ("--model", "qwen3-32b", *CHAT, "--users", "200", "--weights", "fp8")
    assert failing(ask(cli, "serve", *qwen)).startswith(words)
    pasted = "vllm serve meta-llama/Llama-3.3-70B-Instruct --tensor-parallel-size 2 --quantization fp8"
    h200 = ("--server", "dell-xe9680-h200", "--users", "50", "--input-tokens", "1000", "--output-tokens", "300")
    assert failing(ask(cli, "serve", pasted, *h200)).startswith(words)
    apart = ask(cli, "serve", *LLAMA, "--prefill-replicas", "1")
    assert failing(apart) == "there is one prefill and one decode replica: if its server fails, nothing serves"
    compared = cli("compare", *qwen[:-2], "weights=fp8", "weights=bf16,tp=1").out
    assert f"- {words}" in compared


def test_nothing_is_said_of_one_request_at_a_time(cli: Cli) -> None:
    alone = ask(cli, "serve", "--model", "qwen3-4b", "--gpu", "rtx-4090", "--concurrency", "1")
    assert failing(alone) == ""
    bare = ask(cli, "serve", "--model", "qwen3-4b", "--gpu", "rtx-4090", "--gpus", "1", "--users", "20")
    assert failing(bare) == "the only replica is in one server: if it fails, nothing serves"


# Side by side.


def names(cli: Cli, *words: object) -> list[str]:
    return [one["name"] for one in ask(cli, "compare", *words)["alternatives"]]


def test_one_change_is_compared_with_what_was_asked(cli: Cli) -> None:
    assert names(cli, *LLAMA, "weights=fp8") == ["as asked", "weights=fp8"]


def test_what_was_asked_is_compared_by_one_rule(cli: Cli) -> None:
    """Unless all set what the options leave open, or one of them comes to the same."""
    assert names(cli, *LLAMA, "kv_cache=fp8", "engine=sglang") == ["as asked", "kv_cache=fp8", "engine=sglang"]
    assert names(cli, *LLAMA, "weights=bf16", "weights=fp8") == ["weights=bf16", "weights=fp8"]
    assert names(cli, *LLAMA, "weights=bf16", "engine=sglang") == ["weights=bf16", "engine=sglang"]
    given = (*LLAMA, "--weights", "bf16", "weights=int4", "weights=fp8")
    assert names(cli, *given) == ["as asked", "weights=int4", "weights=fp8"]
    open_ = ("--model", "llama-3.1-8b", "--users", "50", "server=dell-xe9680-h100", "gpu=b200")
    assert names(cli, *open_) == ["server=dell-xe9680-h100", "gpu=b200"]


def test_how_surely_limits_are_met_stands_beside_the_latencies(cli: Cli) -> None:
    out = cli("compare", *LLAMA, "weights=fp8").out
    served = ask(cli, "serve", *LLAMA, "--weights", "fp8")
    least = min(served["verdict"]["limits"], key=lambda limit: limit["probability"])
    words = f"{least['name']} met ({100 * least['probability']:.0f} %)"
    line = next(line for line in out.splitlines() if line.startswith("weights=fp8 "))
    row = next(line for line in out.splitlines() if line.startswith("least sure limit "))
    assert words in line
    assert row.endswith(words)
    batch = ("--model", "llama-3.1-8b", *ON_H100, "--batch", "4")
    assert "least sure limit" not in cli("compare", *batch, "weights=fp8").out


# Sessions of several turns without a prefix cache.

TURNS = ("--request-rate", "4", "--input-tokens", "2000", "--output-tokens", "300", "--turns", "10", *ON_H100)


def test_turns_go_with_an_engine_whose_prefix_cache_is_off(cli: Cli) -> None:
    """By an option, and by a pasted command; the other way is sized as if it had been asked for."""
    llama = ("--model", "llama-3.1-8b", *TURNS)
    on, off = ask(cli, "serve", *llama), ask(cli, "serve", *llama, "--prefix-hit-share", "0")
    assert (on["session_turns"]["cached"], off["session_turns"]["cached"]) == (True, False)
    assert off["session_turns"]["found_share"] == 0.0 < on["session_turns"]["found_share"]
    assert off["latency"]["ttft_s"]["expected"] > on["latency"]["ttft_s"]["expected"]
    for one, other in ((on, off), (off, on)):
        assert one["session_turns"]["otherwise_gpus"] == other["gpus"]["count"]
        assert one["session_turns"]["otherwise_requests_per_s"] == pytest.approx(
            other["replicas"]["max_requests_per_s"]
        )
    pasted = "vllm serve meta-llama/Llama-3.1-8B-Instruct --no-enable-prefix-caching"
    assert ask(cli, "serve", pasted, *TURNS, "--gpus", "1")["session_turns"]["found_share"] == 0.0


def test_what_the_prefix_cache_saves_is_said(cli: Cli) -> None:
    lines = cli("serve", "--model", "llama-3.1-70b", *TURNS, "--brief").out.splitlines()
    place = next(place for place, line in enumerate(lines) if line.startswith("Sessions "))
    assert re.search(r"without prefix caching: \d+ GPUs instead of \d+$", lines[place + 1])
    assert re.search(r"later turns: the history of .* is on the GPU, .* compute it again", lines[place + 2])


def test_a_share_that_turns_compute_is_still_refused(cli: Cli) -> None:
    llama = ("--model", "llama-3.1-8b", *TURNS)
    ran = cli("serve", *llama, "--prefix-hit-share", "0.5")
    assert (ran.code, "'turns' and 'prefix_hit_share' are both given" in ran.err) == (2, True)
    ran = cli("serve", *llama, "--prefix-hit-share", "0", "--kv-host-gib", "100")
    assert (ran.code, "'kv_host_gib' needs 'prefix_hit_share'" in ran.err) == (2, True)


# The first lines.


def test_a_limit_that_looks_mistaken_stands_under_the_verdict(cli: Cli) -> None:
    lines = cli(
        "serve", "--model", "llama-3.3-70b", *CHAT, "--users", "500", "--tpot", "50", "--brief"
    ).out.splitlines()
    assert lines[1].startswith("  - max_tpot_s 50 is read as 50 s per token: for milliseconds write --tpot 50ms")
    assert sum("is read as 50 s" in line for line in lines) == 1


def test_failure_and_doubt_have_a_line_each(cli: Cli) -> None:
    lines = cli("serve", *LLAMA, "--weights", "fp8", "--brief").out.splitlines()
    assert lines[1].startswith("  - both replicas are in one server: ")
    assert lines[1].endswith(" keeps the service up)")
    assert lines[2].startswith("  - max_ttft_s met, likely ")


def test_a_change_says_what_it_saves(cli: Cli) -> None:
    """Servers that are paid for whole stay the same; GPUs that are rented cost less."""
    own, rented = (ask(cli, "serve", *LLAMA, *price) for price in (OWN, ("--price-per-gpu-hour", "3")))
    (own_effect, *_), (rented_effect, *_) = ([each["effect"] for each in one["advice"]] for one in (own, rented))
    assert re.search(r"; [\d.]+ instead of [\d.]+ USD an hour for the same servers", own_effect)
    gpus = re.match(r"(\d+) instead of (\d+) GPUs", rented_effect)
    assert gpus
    assert f"; {3 * int(gpus[1]):.2f} instead of {3 * int(gpus[2]):.2f} USD an hour" in rented_effect
    assert "same servers" not in rented_effect
    bought = ask(cli, "serve", *LLAMA, *OWN[:4])["advice"][0]["effect"]
    assert "; the same servers at the same price" in bought
    assert "an hour" not in ask(cli, "serve", *LLAMA)["advice"][0]["effect"]
