"""The load of a service through the command line: what is asked, how it is judged, what the headline says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
CHAT = "--model llama-3.1-70b --server dell-xe9680-h100 --input-tokens 1000 --output-tokens 300"
USERS = Path(__file__).parents[2] / "examples" / "serve" / "llama-3.1-70b-500-users.yaml"


def ask(cli: Cli, arguments: str) -> tuple[int, dict[str, Any]]:
    ran = cli("serve", *shlex.split(arguments), "--format", "json")
    answer: dict[str, Any] = json.loads(ran.out)
    return ran.code, answer


def first_line(cli: Cli, arguments: str) -> str:
    return cli("serve", *shlex.split(arguments)).out.splitlines()[0]


def met(answer: dict[str, Any]) -> dict[str, bool]:
    return {limit["name"]: limit["ok"] for limit in answer["verdict"]["limits"]}


# 500 requests at once


def test_the_obvious_command_is_a_service_that_people_can_use(cli: Cli) -> None:
    """No limits given: the fewest GPUs on which 500 requests in flight keep the default objectives."""
    code, answer = ask(cli, f"{CHAT} --concurrency 500")
    assert (code, met(answer)) == (0, {"max_ttft_s": True, "max_tpot_s": True})
    assert answer["latency"]["ttft_s"]["expected"] < 10
    assert answer["latency"]["tpot_s"]["expected"] <= 0.1
    gpus = answer["gpus"]["count"]
    for fewer in range(2, gpus):
        assert ask(cli, f"{CHAT} --concurrency 500 --gpus {fewer}")[0] == 1, fewer


def test_the_answer_names_the_objectives_that_nobody_gave(cli: Cli) -> None:
    line = first_line(cli, f"{CHAT} --concurrency 500")
    assert line.startswith(
        "FITS, SERVES  500 concurrent requests of llama-3.1-70b on 8 GPUs: 2 replicas of 4 x h100-sxm-80gb"
    )
    objectives = "default objectives: first token within 10 s, 10 tokens/s for each user"
    for format_ in ("table", "markdown", "github", "junit"):
        said = " ".join(cli("serve", *shlex.split(f"{CHAT} --concurrency 500 --gpus 4 --format {format_}")).out.split())
        assert objectives in said, format_
    one = cli("serve", *shlex.split(f"{CHAT} --concurrency 500 --ttft 5")).out
    assert "default objectives: 10 tokens/s for each user" in one
    assert "max_tpot_s (default)" in one
    assert "max_ttft_s (default)" not in one
    assert "default objectives" not in cli("serve", *shlex.split(f"{CHAT} --concurrency 500 --ttft 5 --tpot 0.2")).out


def test_requests_that_wait_for_minutes_are_no_success(cli: Cli, tmp_path: Path) -> None:
    """One replica of two GPUs runs 17 of 500: 500 / 1.57 per second are five minutes."""
    asked = f"{CHAT} --concurrency 500 --gpus 2"
    code, answer = ask(cli, asked)
    (queues, *_) = answer["verdict"]["reasons"]
    assert (code, queues["code"], answer["verdict"]["meets_limits"]) == (1, "queues", False)
    assert queues["message"] == "16 of the 500 requests in flight run at once, the others wait in the queue"
    assert answer["latency"]["ttft_s"]["expected"] > 120
    assert first_line(cli, asked).startswith("FITS, QUEUES  ")
    file = tmp_path / "queue.yaml"
    file.write_text(
        "model: llama-3.1-70b\nserver: dell-xe9680-h100\ngpus: 2\n"
        "serve: {concurrency: 500, input_tokens: 1000, output_tokens: 300}\n"
    )
    ran = cli("check", file)
    assert ran.code == 1
    assert "QUEUES" in ran.out
    assert "PASS" not in ran.out


def test_gpus_that_are_there_share_the_load(cli: Cli) -> None:
    """500 on 16 GPUs are 125 on each of four replicas, which answer as one does with 125."""
    _, answer = ask(cli, f"{CHAT} --concurrency 500 --gpus 16")
    each = answer["per_replica"]
    assert (answer["replicas"]["count"], each["gpus"], each["concurrency"]) == (4, 4, pytest.approx(125))
    _, one = ask(cli, f"{CHAT} --concurrency 125 --gpus 4")
    for name in ("ttft_s", "tpot_s", "request_s"):
        assert answer["latency"][name]["expected"] == pytest.approx(one["latency"][name]["expected"])
    assert answer["throughput"]["requests_per_s"] == pytest.approx(4 * one["throughput"]["requests_per_s"])
    assert answer["throughput"]["requests_in_flight"] == pytest.approx(500)
    table = cli("serve", *shlex.split(f"{CHAT} --concurrency 500 --gpus 16")).out
    assert "125 per replica" in table
    assert "concurrent requests per replica" in table


def test_tight_limits_take_more_replicas_and_not_a_longer_pipeline(cli: Cli) -> None:
    """Before, one replica of tp 8 x pp 4; the same load as a rate took 28 GPUs."""
    code, answer = ask(cli, f"{CHAT} --concurrency 500 --ttft 2 --tpot 0.05")
    assert (code, answer["layout"]["pp"]) == (0, 1)
    assert answer["gpus"]["count"] < 32
    _, rated = ask(cli, f"{CHAT} --request-rate {answer['throughput']['requests_per_s']:.3f} --ttft 2 --tpot 0.05")
    assert answer["gpus"]["count"] <= rated["gpus"]["count"]


def test_a_users_own_limit_may_be_as_long_as_it_likes(cli: Cli) -> None:
    assert ask(cli, f"{CHAT} --concurrency 500 --gpus 2 --ttft 600s")[0] == 0


# Users


def test_users_come_to_a_rate_and_to_requests_in_flight(cli: Cli) -> None:
    """500 = rate x (time of a request + 30 s)."""
    code, answer = ask(cli, str(USERS))
    made, request_s = answer["throughput"], answer["latency"]["request_s"]["expected"]
    assert code == 0
    assert made["requests_per_s"] * (request_s + 30) == pytest.approx(500)
    assert made["requests_in_flight"] == pytest.approx(made["requests_per_s"] * request_s)
    assert answer["latency"]["percentiles"]
    assert first_line(cli, str(USERS)).startswith("FITS, SERVES  500 users (think time 30 s) of llama-3.1-70b on ")


def test_the_time_to_think_is_30_s_and_said_to_be_a_default(cli: Cli) -> None:
    _, answer = ask(cli, f"{CHAT} --users 500")
    scenario = answer["scenario"]
    assert (scenario["serve"]["think_time_s"], scenario["origin"]["serve.think_time_s"]) == (30, "default")
    _, hurried = ask(cli, f"{CHAT} --users 500 --think-time 5")
    assert hurried["gpus"]["count"] > answer["gpus"]["count"]


def test_more_users_than_the_gpus_take_wait_for_each_other(cli: Cli) -> None:
    code, answer = ask(cli, f"{CHAT} --users 2000 --think-time 1 --gpus 4")
    made = answer["throughput"]
    assert (code, answer["verdict"]["reasons"][0]["code"]) == (1, "queues")
    assert made["requests_in_flight"] + made["requests_per_s"] * 1 == pytest.approx(2000)


def test_another_load_takes_the_place_of_users_and_their_thoughts(cli: Cli) -> None:
    code, answer = ask(cli, f"{USERS} --concurrency 8")
    assert code == 0
    assert {"users", "think_time_s"}.isdisjoint(answer["scenario"]["serve"])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--users 5 --think-time 0", "'think_time_s' must be greater than 0"),
        ("--concurrency 5 --think-time 3", "'think_time_s' needs 'users'"),
        ("--users 5 --batch 3", "'users' and 'batch' are both given"),
        ("--users 5 --max-model-len 1000", "more than max_model_len (1,000)"),
        ("--users 5 --engine hf-transformers", "takes no users"),
    ],
)
def test_bad_loads_are_told(cli: Cli, flags: str, told: str) -> None:
    ran = cli("serve", *shlex.split(f"{CHAT} {flags}"))
    assert (ran.code, ran.out) == (2, "")
    assert told in " ".join(ran.err.split())


# Advice


QUESTIONS = {
    "queues": f"{CHAT} --concurrency 500 --gpus 2",
    "users in a queue": f"{CHAT} --users 500 --think-time 1 --gpus 4",
    "a pipeline": f"{CHAT} --concurrency 100 --gpus 8 --tp 2 --pp 4 --tpot 0.036",
    "too few GPUs allowed": f"{CHAT} --concurrency 500 --max-gpus 4",
    "a rate": f"{CHAT} --request-rate 30 --gpus 8",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_advice_on_a_load_does_what_it_says(cli: Cli, name: str) -> None:
    """Each command answers yes, with the GPUs, the replicas and the latency that its effect names."""
    code, answer = ask(cli, QUESTIONS[name])
    assert code == 1
    assert answer["advice"]
    for advice in answer["advice"]:
        code, after = ask(cli, advice["command"].removeprefix("xe-sizer serve "))
        assert code == 0, advice
        replicas, size = after["replicas"]["count"], after["per_replica"]["gpus"]
        shape = f"{replicas} replica{'s' if replicas > 1 else ''} of {size} GPU{'s' if size > 1 else ''}"
        assert shape in advice["effect"]
        if advice["change"].endswith(" GPUs instead of 2"):
            assert advice["change"].startswith(f"{after['gpus']['count']} ")


def test_a_queue_is_mended_by_more_replicas(cli: Cli) -> None:
    _, answer = ask(cli, QUESTIONS["queues"])
    assert answer["advice"][0]["change"] == "8 GPUs instead of 2"
    assert answer["verdict"]["reasons"][0]["fix"] == "8 GPUs instead of 2"


def test_a_yes_says_what_would_take_fewer_gpus(cli: Cli) -> None:
    _, answer = ask(cli, f"{CHAT} --users 500")
    first = answer["advice"][0]
    code, after = ask(cli, first["command"].removeprefix("xe-sizer serve "))
    assert (code, after["gpus"]["count"] < answer["gpus"]["count"]) == (0, True)
    assert f"{after['gpus']['count']} instead of {answer['gpus']['count']} GPUs" in first["effect"]


# Layouts, the longest sequence, hardware


def test_the_smallest_layout_is_that_of_any(cli: Cli) -> None:
    """70.6e9 parameters in 16 bit fit on two cards of 80 GB, though tp 8 was asked for."""
    asked = f"{CHAT} --tp 8 --concurrency 8"
    _, answer = ask(cli, asked)
    assert (answer["gpus"]["count"], answer["gpus"]["minimum_that_fits"]) == (8, 2)
    table = cli("serve", *shlex.split(asked)).out
    assert "2 GPUs would hold the model" in table
    assert re.search(r"minimum that fits +2 GPUs\s", table)
    assert "with this tp" not in table


def test_what_would_not_start_is_told_with_the_flag_to_pass(cli: Cli) -> None:
    """A little more than 18,432 tokens fit in the cache of two H100s, 131,072 are the model's."""
    asked = f"{CHAT} --gpus 2 --concurrency 4"
    code, answer = ask(cli, asked)
    (warning,) = (one for one in answer["warnings"] if "refuses to start" in one)
    assert code == 0
    assert warning.startswith("vllm refuses to start for sequences of 131,072 tokens (the model's maximum)")
    assert warning.endswith("--max-model-len 18432")
    _, started = ask(cli, f"{asked} --max-model-len 18432")
    assert not any("refuses to start" in one for one in started["warnings"])
    assert started["scenario"]["serve"]["max_model_len"] == 18432


def test_a_longest_sequence_that_the_cache_does_not_hold_is_a_no(cli: Cli) -> None:
    """32,768 tokens x 160 KiB (80 layers, 4 of 8 heads, 128 wide, keys and values, 2 bytes) are 5 GiB of each GPU."""
    asked = f"{CHAT} --gpus 2 --concurrency 4 --max-model-len"
    code, answer = ask(cli, f"{asked} 32768")
    assert (code, answer["verdict"]["fits"]) == (1, False)
    held = next(part["bytes"] for part in answer["memory"]["components"] if part["name"] == "KV cache")
    assert held == 32768 * 80 * 4 * 128 * 2 * 2
    (reason,) = answer["verdict"]["reasons"]
    assert "KV cache of one sequence of 32,768 tokens 5.00" in reason["message"]
    assert reason["fix"] == "max_model_len 18,432 instead of 32,768"
    assert answer["advice"][0]["change"] == "max_model_len 18,432 instead of 32,768"
    assert ask(cli, f"{asked} 18432")[0] == 0
    _, free = ask(cli, f"{CHAT} --concurrency 4 --max-model-len 32768")
    assert free["verdict"]["fits"]
    assert free["gpus"]["count"] > 2


def test_a_longest_sequence_beyond_the_positions_is_a_no(cli: Cli) -> None:
    asked = f"{CHAT} --gpus 8 --concurrency 4 --max-model-len"
    code, answer = ask(cli, f"{asked} 200000")
    (reason,) = answer["verdict"]["reasons"]
    assert (code, reason["code"], answer["verdict"]["fits"]) == (1, "too-long", True)
    assert "200,000 is more than the 131,072 positions of llama-3.1-70b: vllm refuses to start" in reason["message"]
    assert answer["advice"][0]["change"] == "max_model_len 131,072 instead of 200,000"
    assert cli("serve", *shlex.split(f"{asked} 200000"), "--brief").out.startswith("FITS, DOES NOT START")
    assert ask(cli, f"{asked} 131072")[0] == 0


def test_nothing_is_the_cheapest_where_a_price_is_missing(cli: Cli) -> None:
    """A cloud's server with a price beside one without: the order is that of power, and is called so."""
    asked = f"{CHAT} --concurrency 64 --among aws-p5.48xlarge"
    _, answer = ask(cli, asked)
    assert answer["fleet_order"] == "power"
    warned = "no price is known for dell-xe9680-h100: hardware is sorted by GPU design power"
    assert any(one.startswith(warned) for one in answer["warnings"])
    table = cli("serve", *shlex.split(asked)).out
    assert "lowest GPU design power first, since not all prices are known" in table
    assert "cheapest" not in table
    _, charged = ask(cli, f"{asked} --price-per-gpu-hour 2")
    assert charged["fleet_order"] == "price"


def test_replicas_are_packed_into_servers(cli: Cli) -> None:
    """A server of 8 holds two replicas of 3 GPUs: two servers hold four, though 15 GPUs are five times 3."""
    asked = f"{CHAT} --tp 1 --pp 3 --concurrency 8"
    _, two = ask(cli, f"{asked} --gpus 15")
    assert (two["replicas"]["count"], two["gpus"]["nodes"]) == (4, 2)
    assert "3 of the 15 GPUs stay idle: replicas have 3" in two["warnings"]
    _, three = ask(cli, f"{asked} --gpus 18")
    assert (three["replicas"]["count"], three["gpus"]["nodes"]) == (6, 3)


def test_a_replica_across_servers_is_a_warning(cli: Cli) -> None:
    asked = "--model llama-3.1-405b --server dell-xe9680-h100 --users 100"
    _, answer = ask(cli, asked)
    assert answer["gpus"]["count"] == 16
    assert "the only replica spans 2 servers: one failure stops it all" in answer["warnings"]
    _, inside = ask(cli, f"{asked} --weights fp8")
    assert not any("spans" in one for one in inside["warnings"])


def test_a_replica_across_servers_is_said_on_the_first_screen(cli: Cli) -> None:
    lines = cli("serve", *shlex.split("--model llama-3.1-405b --server dell-xe9680-h100 --users 100 --brief")).out
    assert "the only replica spans 2 servers: one failure stops it all" in lines.splitlines()[1]


CHAT_500 = "--server dell-xe9680-h100 --users 500 --ttft 1 --tpot 0.05"


@pytest.mark.parametrize("more", ["", " --gpus 16"])
def test_of_as_many_gpus_replicas_inside_a_server_come_first(cli: Cli, more: str) -> None:
    """Replicas of up to 8 keep the limits on the 16 GPUs of one that spans both servers."""
    load = CHAT_500.replace("500", "550")
    _, answer = ask(cli, f"--model llama-3.3-70b {load} --input-tokens 2000 --output-tokens 400{more}")
    assert (answer["gpus"]["count"], answer["layout"]["pp"]) == (16, 1)
    assert answer["per_replica"]["gpus"] <= 8
    assert not any("spans" in one for one in answer["cautions"])


def test_users_who_come_back_are_served_by_the_fewest_gpus(cli: Cli) -> None:
    """No fewer where the layout is given, never more with more host memory, and not on a replica less."""
    asked = f"--model qwen3-32b {CHAT_500} --input-tokens 32000 --output-tokens 500 --prefix-hit-share 0.9"
    found = []
    for gib in (0, 500, 1500):
        code, answer = ask(cli, f"{asked} --kv-host-gib {gib}")
        assert code == 0
        found.append(answer["gpus"]["count"])
    assert found == sorted(found, reverse=True)
    code, pinned = ask(cli, f"{asked} --kv-host-gib 500 --pp 1")
    assert (code, pinned["gpus"]["count"]) == (0, found[1])
    each = pinned["gpus"]["count"] // pinned["replicas"]["count"]
    assert ask(cli, f"{asked} --kv-host-gib 500 --gpus {found[1] - each}")[0] == 1


def test_answers_of_one_token_have_no_time_for_further_ones(cli: Cli) -> None:
    for name in ("table", "html", "markdown"):
        ran = cli("serve", *shlex.split("--model llama-3.1-8b --gpu l40s --gpus 1 --output-tokens 1"), "--format", name)
        assert ran.code == 0
        assert "to the first token (TTFT) for 95 % of requests" in ran.out
    ran = cli("serve", *shlex.split("--model llama-3.1-8b --gpu l40s --output-tokens 0.5"))
    said = "--output-tokens: an answer has at least one token\n  hint: 0 is for embeddings and scores\n"
    assert (ran.code, ran.err) == (2, said)


def test_answers_too_long_for_every_replica_are_no_defect(cli: Cli, tmp_path: Path) -> None:
    """Answers that spread so widely that no decode replica beside prefill ones ends any."""
    file = tmp_path / "long.yaml"
    file.write_text(
        "{model: llama-3.1-8b, job: inference, gpu: h20-96gb, gpus: 13, limits: {max_gpus: 32},\n"
        "serve: {concurrency: 4, input_tokens: 46810, output_tokens: 47210, output_spread: 20}}\n",
        encoding="utf-8",
    )
    assert cli("serve", str(file)).code == 1


def test_the_longest_context_is_that_of_the_weights_that_the_name_says(cli: Cli) -> None:
    """Qwen2.5's -Instruct configurations stop at 32,768 positions, those of the base models at 131,072."""
    asked = "--gpu b200 --gpus 1 --fit context --model Qwen/Qwen2.5-14B"
    assert ask(cli, f"{asked}-Instruct")[1]["fit"] == ask(cli, f"{asked}-Instruct-AWQ")[1]["fit"]
    assert ask(cli, f"{asked}-Instruct")[1]["fit"]["tokens"] == 32_768
    assert ask(cli, asked)[1]["fit"]["tokens"] == 131_072


def test_engines_are_called_as_people_call_them(cli: Cli) -> None:
    assert cli("serve", *shlex.split("--model llama-3.1-8b --gpu rtx-4090 --engine lmstudio")).code == 0


def test_replicas_stay_within_a_server_where_no_fewer_gpus_do(cli: Cli) -> None:
    """Two replicas of eight, of which a failure leaves one, and not one of sixteen over two servers."""
    load = "--users 550 --input-tokens 2000 --output-tokens 400 --ttft 1 --tpot 0.05"
    asked = f"--model llama-3.3-70b --server dell-xe9680-h100 {load}"
    answer = ask(cli, asked)[1]
    assert (answer["gpus"]["count"], answer["replicas"]["count"]) == (16, 2)
    assert (answer["layout"]["tp"], answer["layout"]["pp"]) == (8, 1)
    assert ask(cli, f"{asked} --pp 2")[1]["gpus"]["count"] >= 16
    brief = cli("serve", *shlex.split(asked), "--brief").out
    assert "if one fails, the other takes" in " ".join(brief.splitlines()[:3])
