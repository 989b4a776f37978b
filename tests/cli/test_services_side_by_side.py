"""Services in the studies of jobs: `compare`, `sensitivity` and `plan` take them, and answer as `serve` does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import xe_sizer
from xe_sizer.cli.main import main

from .conftest import Ran

Cli = Callable[..., Ran]
ON_H100 = ("--server", "dell-xe9680-h100")
CHAT = ("--model", "llama-3.1-70b", "--users", "500", "--input-tokens", "2000", "--output-tokens", "300", "--ttft", "1")
SERVED = (*CHAT, *ON_H100)


def ask(cli: Cli, *words: str | Path) -> dict[str, Any]:
    ran = cli(*words, "-f", "json")
    assert ran.code in (0, 1), ran.err
    answer: dict[str, Any] = json.loads(ran.out)
    return answer


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """What `compare` and `sensitivity` answer to SERVED. `render` shows it as they would (test_every_format.py)."""
    folder = tmp_path_factory.mktemp("answers")
    for command, *changes in (("compare", "weights=bf16", "weights=fp8"), ("sensitivity",)):
        assert main([command, *SERVED, *changes, "-o", str(folder / f"{command}.json")]) == 0
    return lambda command: folder / f"{command}.json"


Saved = Callable[[str], Path]


def read(answer: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    return found


# compare


def test_alternatives_are_answered_as_serve_answers_them(cli: Cli) -> None:
    changes = {"weights=fp8": ("--weights", "fp8"), "engine=sglang,kv_cache=fp8": ("--engine", "sglang")}
    compared = ask(cli, "compare", *SERVED, "weights=bf16", *changes)
    assert [one["name"] for one in compared["alternatives"]] == ["weights=bf16", *changes]
    fp8 = ask(cli, "serve", *SERVED, "--weights", "fp8")
    assert compared["alternatives"][1]["result"]["replicas"] == fp8["replicas"]
    assert compared["alternatives"][1]["result"]["latency"] == fp8["latency"]
    third = compared["alternatives"][2]["result"]["scenario"]["serve"]
    assert (third["engine"], third["kv_cache"], third["weights"]) == ("sglang", "fp8", "bf16")


def test_a_load_has_the_gpus_that_it_needs(saved: Saved) -> None:
    """Jobs are compared on equal GPUs; a service's GPUs are its answer."""
    compared = read(saved("compare"))
    counts = [one["result"]["gpus"]["count"] for one in compared["alternatives"]]
    assert counts[1] < counts[0]
    assert all(one["result"]["scenario"]["origin"].get("gpus") is None for one in compared["alternatives"])


def test_the_parts_that_differ_most_are_of_both_steps(saved: Saved) -> None:
    compared = read(saved("compare"))
    steps = [one["result"]["phases"] for one in compared["alternatives"]]
    names = {"decode step": "decode", "step with prefill": "prefill"}
    for difference in compared["differences"]:
        step, _, part = difference["name"].partition(": ")
        found = [
            {each["name"]: each["seconds"] for each in phases[names[step]]["components"]}.get(part, 0.0)
            for phases in steps
        ]
        assert difference["total_s"] == found
    assert {each["name"].partition(": ")[0] for each in compared["differences"]} == set(names)


def test_a_table_has_what_people_choose_by(cli: Cli, saved: Saved) -> None:
    out = cli("compare", *SERVED, "weights=bf16", "weights=fp8").out
    assert "weights=fp8 takes the fewest GPUs" in out.splitlines()[0]
    for label in ("replicas", "TTFT", "TPOT", "most it sustains", "KV pool per replica", "price per hour"):
        assert f"\n{label}" in out
    csv = cli("render", saved("compare"), "-f", "csv").out.splitlines()
    assert len(csv) == 3
    assert csv[0].startswith("alternative,model,gpu,server,engine,weights")


def test_what_names_no_job_is_served_beside_services(cli: Cli) -> None:
    """`gpus=16` alone says no load; the options do, and a file's alternatives are of its kind."""
    compared = ask(cli, "compare", "--model", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "gpus=2", "weights=fp8")
    assert [one["result"]["scenario"]["job"] for one in compared["alternatives"]] == ["inference"] * 3


def test_files_commands_and_saved_answers_are_alternatives(cli: Cli, tmp_path: Path) -> None:
    saved = tmp_path / "now.json"
    cli("serve", *SERVED, "-o", str(saved))
    command = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 8"
    compared = ask(cli, "compare", *ON_H100, saved, command)
    assert [one["result"]["layout"]["tp"] for one in compared["alternatives"]] == [4, 8]
    again = tmp_path / "compared.json"
    again.write_text(json.dumps(compared), encoding="utf-8")
    assert cli("render", again).code == cli("compare", *ON_H100, saved, command).code


def test_a_job_is_not_compared_with_a_service(cli: Cli) -> None:
    ran = cli(
        "compare",
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "h100-sxm-80gb",
        "--gpus",
        "8",
        "job=lora",
        "weights=fp8,job=inference",
    )
    assert (ran.code, ran.out) == (2, "")
    assert "job=lora: this is a job that trains, and others are services" in ran.err


@pytest.mark.parametrize("alternative", ["weigths=fp8", "engin=sglang", "kv-cach=fp8"])
def test_a_typo_has_a_hint(cli: Cli, alternative: str) -> None:
    ran = cli("compare", *SERVED, "weights=bf16", alternative)
    assert ran.code == 2
    assert "did you mean" in ran.err


@pytest.mark.parametrize("columns", ["60", "80", "120"])
@pytest.mark.parametrize("command", ["compare", "sensitivity"])
def test_tables_fit_the_terminal(
    cli: Cli, saved: Saved, monkeypatch: pytest.MonkeyPatch, command: str, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    ran = cli("render", saved(command))
    assert (ran.code, [line for line in ran.out.splitlines() if len(line) > int(columns)]) == (0, [])


def test_a_page_of_services_has_pictures(cli: Cli, saved: Saved) -> None:
    page = cli("render", saved("compare"), "-f", "html").out
    assert "Time to the first token" in page
    assert page.count("<svg") == 3
    assert "<svg" in cli("render", saved("sensitivity"), "-f", "html").out


# sensitivity


def test_a_service_is_moved_factor_by_factor(cli: Cli, saved: Saved) -> None:
    found = read(saved("sensitivity"))
    factors = {factor["name"]: factor["effects"] for factor in found["factors"]}
    assert {
        "load",
        "prompt length",
        "number formats",
        "engine",
        "GPUs",
        "parallelism",
        "limits on latency",
    } <= factors.keys()
    assert found["ranked_by"] == "gpu_hours_ratio"
    steps = {effect["step"]: effect for effects in factors.values() for effect in effects}
    narrow = steps["fp8 weights instead of bf16"]["outcome"]
    fp8 = ask(cli, "serve", *SERVED, "--weights", "fp8")
    assert (narrow["gpus"], narrow["replicas"]) == (fp8["gpus"]["count"], fp8["replicas"]["count"])
    assert narrow["requests_per_s"] == pytest.approx(fp8["replicas"]["max_requests_per_s"])
    # GPU time of a request: GPUs over what they sustain.
    assert narrow["gpu_hours"] * 3600 == pytest.approx(narrow["gpus"] / narrow["requests_per_s"])
    most = next(effect for effect in factors["limits on latency"] if effect["step"].startswith("half the TPOT"))
    assert most["gpu_hours_ratio"] > 1.0


def test_the_widest_effect_comes_first(saved: Saved) -> None:
    found = read(saved("sensitivity"))

    def width(factor: dict[str, Any]) -> float:
        ratios = [each["gpu_hours_ratio"] for each in factor["effects"] if each["outcome"]["fits"]]
        return float(max(max(ratio, 1.0 / ratio) for ratio in ratios))

    widths = [width(factor) for factor in found["factors"]]
    assert widths == sorted(widths, reverse=True)


def test_a_service_that_does_not_fit_says_what_would(cli: Cli) -> None:
    ran = cli("sensitivity", "--model", "llama-3.1-405b", "--gpu", "h100-sxm-80gb", "--gpus", "1", "--users", "5")
    assert ran.code == 1
    assert ran.out.startswith("DOES NOT FIT")


def test_more_load_than_given_gpus_take_is_no_question_of_factors(cli: Cli) -> None:
    ran = cli("sensitivity", "--model", "llama-3.1-70b", *ON_H100, "--gpus", "8", "--request-rate", "500")
    assert (ran.code, ran.out) == (2, "")
    assert "more requests come than these GPUs take" in ran.err


# plan


def test_plan_of_a_service_is_the_answer_of_serve(cli: Cli) -> None:
    among = ("--among", "dell-xe9680-h100", "--among", "dell-xe9680-h200")
    planned, served = (ask(cli, command, *CHAT, *among) for command in ("plan", "serve"))
    for answer in (planned, served):
        answer.pop("written")
    assert planned == served
    assert {one["server"] for one in planned["fleet"]} == {"dell-xe9680-h100", "dell-xe9680-h200"}


def test_plan_refuses_what_a_service_has_not(cli: Cli) -> None:
    ran = cli("plan", *SERVED, "--objective", "cost")
    assert (ran.code, "--objective cannot go with a service" in ran.err) == (2, True)


def test_a_job_stays_a_job(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of the environment stands for every command, and makes no job a service."""
    monkeypatch.setenv("XE_SIZER_USERS", "5")
    job = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm-80gb", "--gpus", "8", "--job", "lora")
    assert "candidates" in ask(cli, "plan", *job)
    assert "candidates" in ask(cli, "plan", *job[:-2])


# From Python.


def test_python_compares_services_too() -> None:
    load: Any = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "serve": {"users": 100, "input_tokens": 1000}}
    compared = xe_sizer.compare({"serve": {"weights": "bf16"}}, {"serve": {"weights": "fp8"}}, **load)
    assert [one.result.scenario["serve"]["weights"] for one in compared.alternatives] == ["bf16", "fp8"]
    assert xe_sizer.sensitivity(**load).ranked_by == "gpu_hours_ratio"


# Sessions of several turns.

AGENT = (
    "--model",
    "llama-3.1-70b",
    *ON_H100,
    "--request-rate",
    "4",
    "--input-tokens",
    "2000",
    "--output-tokens",
    "300",
)
GROWING = (*AGENT, "--turns", "10", "--turn-tokens", "500", "--tool-seconds")


def test_turns_are_told_by_their_prompts_and_first_tokens(cli: Cli) -> None:
    ran = cli("serve", *GROWING, "60", "--gpus", "8", "--tp", "8")
    assert ran.code == 0
    assert "Sessions by turn" in ran.out
    assert "10 turns, " in ran.out
    found = ask(cli, "serve", *GROWING, "60", "--gpus", "8", "--tp", "8")["session_turns"]
    assert [turn["prompt_tokens"] for turn in found["by_turn"]] == [2000, 5200, 9200]
    assert 0 < found["found_share"] < found["history_share"]


def test_turns_go_with_host_memory_under_any_load(cli: Cli) -> None:
    for load in (("--request-rate", "4"), ("--concurrency", "30"), ("--users", "300")):
        words = (*AGENT[:4], *load, *AGENT[6:], "--turns", "10", "--kv-host-gib", "500", "--gpus", "8")
        assert ask(cli, "serve", *words)["session_cache"]["host_gib"] == 500


def test_a_tool_that_takes_longer_is_a_factor(cli: Cli) -> None:
    factors = {one["name"]: one["effects"] for one in ask(cli, "sensitivity", *GROWING, "20")["factors"]}
    assert {each["step"] for each in factors["turns"]} >= {"twice the turns", "half the turns"}
    assert [each["step"] for each in factors["prefix cache"]] == ["no prefix cache"]


def test_turns_that_say_nothing_are_refused(cli: Cli) -> None:
    ran = cli("serve", *AGENT, "--tool-seconds", "5")
    assert (ran.code, "'tool_seconds' needs 'turns'" in ran.err) == (2, True)
    ran = cli("serve", *AGENT, "--turn", "5")
    assert (ran.code, "--turns" in ran.err) == (2, True)
    ran = cli("serve", *AGENT, "--turns", "0")
    assert (ran.code, "Traceback" in ran.err) == (2, False)
