"""The first screen of a plan as an architect buys by it: memory, what was assumed, what was left out."""

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
JOB = (
    "--model llama-3.1-70b --job sft --samples 50000 --mean-tokens 600 --max-tokens 4096 --epochs 3 --max-hours 24 "
    "--price-per-gpu-hour 2.5 --max-gpus 64"
)
H100, H200 = f"plan {JOB} --server dell-xe9680-h100", f"plan {JOB} --server dell-xe9680-h200"
DGX = f"plan {JOB} --server nvidia-dgx-h100"  # of which no source gives the memory of the host


def ask(cli: Cli, command: str) -> Any:
    return json.loads(cli(*shlex.split(command), "--format", "json").out)


def screen(cli: Cli, command: str) -> dict[str, str]:
    """The lines of a brief report by their labels."""
    lines = cli(*shlex.split(command), "--brief").out.splitlines()
    assert len(lines) <= 14
    return {line.split("  ")[0]: line.split("  ", 1)[1].strip() for line in lines if line[:1].isalpha()}


def test_a_plan_is_as_sure_of_memory_as_the_estimate_of_it(cli: Cli) -> None:
    """Its line, its candidates and the word of its verdict; the joint probability is the product."""
    tight = f"{H100} --tp 8 --pp 2 --gpus 16 --recompute none --micro-batch 4"
    answer = ask(cli, tight)
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    estimate = ask(cli, chosen["command"].removeprefix("xe-sizer "))
    memory, limit = estimate["verdict"]["fit_probability"], answer["verdict"]["limits"][0]["probability"]
    assert chosen["fit_probability"] == memory == answer["verdict"]["fit_probability"] < 0.9
    ran = cli(*shlex.split(tight), "--brief").out
    assert f"probability that it fits {memory * 100:.0f} %" in screen(cli, tight)["Memory"]
    met = f"{limit * 100:.0f}" if limit < 0.995 else ">99"
    joint = f"with {memory * 100:.0f} % probability, max_hours {met} %, both {memory * limit * 100:.0f} %"
    assert f"memory suffices {joint}" in ran


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 4])
def test_the_word_of_a_plan_is_that_of_the_estimate_of_it(cli: Cli, micro_batch: int) -> None:
    """A plan that fits inside the error of the model alone is tight, as its estimate; what only may fit is no plan."""
    job = "--model llama-3.1-8b --gpu l40s --job lora --seq-len 4096 --gpus 1 --global-batch 12 --steps 10"
    asked = f"{job} --micro-batch {micro_batch} --recompute none"
    plan, estimate = (cli(*shlex.split(f"{command} {asked}")).out for command in ("plan", "estimate"))
    assert plan.split("  ")[0] == estimate.split("  ")[0].replace("TIGHT, OVER", "DOES NOT FIT")


def test_host_memory_of_a_plan_that_offloads(cli: Cli, tmp_path: Path) -> None:
    """Sixteen bytes a parameter in one server of 2,048 GiB, and 4 GiB for the system; other sizes are sold."""
    needed = "1,051 + 4 for the system (assumed) of"
    assert screen(cli, H100)["Host memory"] == f"{needed} 2,048 GiB in the server's profile; order 1,056 GiB or more"
    given = f"{H100} --host-memory-gib 1500"
    assert screen(cli, given)["Host memory"] == f"{needed} 1,500 GiB per node, 445 GiB free"
    answer = ask(cli, H100)
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    assert (chosen["host_available_bytes"], chosen["host_most_bytes"]) == (2199e9, 4398e9)
    assert chosen["host_bytes"] == pytest.approx(70.6e9 * 16, rel=0.01)
    page = tmp_path / "plan.html"
    cli(*shlex.split(H100), "-o", page)
    assert "order 1,056 GiB or more" in page.read_text(encoding="utf-8")


def test_a_host_of_which_nobody_knows_the_memory_is_said_first(cli: Cli) -> None:
    """Offloading is not tried there, so that more servers may be named; not so where the scenario says how much."""
    told = "host memory of nvidia-dgx-h100 unknown: plans that offload are left out; give --host-memory-gib"
    assert screen(cli, DGX)["Notes"].startswith(told)
    assert screen(cli, f"{H100} --among nvidia-dgx-h100")["Notes"].startswith(told)
    known = f"{DGX} --host-memory-gib 1907"
    assert "host memory" not in screen(cli, known).get("Notes", "")
    assert ask(cli, known)["candidates"][0]["nodes"] == 1 < ask(cli, DGX)["candidates"][0]["nodes"]


def test_what_was_assumed_and_noted_stays_in_a_brief_report(cli: Cli, tmp_path: Path) -> None:
    assert screen(cli, H100)["Assumed"] == "stack generic, global batch 128, 4,096 tokens"
    assert "Assumed" not in screen(cli, f"{H100} --stack nemo --global-batch 64 --seq-len 4k")
    page = tmp_path / "brief.html"
    cli(*shlex.split(DGX), "--brief", "-o", page)
    text = page.read_text(encoding="utf-8")
    assert text.count("<figure>") == 1
    assert "host memory of nvidia-dgx-h100 unknown" in text
    assert "stack generic, global batch 128" in text
    assert "The command that repeats this report" in text
    assert "<footer>" in text


def test_the_headline_counts_servers(cli: Cli) -> None:
    """The same chassis has the same host memory, whatever its GPUs, and offloading takes one server."""
    for command, server in ((H100, "dell-xe9680-h100"), (H200, "dell-xe9680-h200")):
        title = cli(*shlex.split(command)).out.splitlines()[0]
        assert title == f"FITS  SFT of llama-3.1-70b: 1 server ({server}, 8 GPUs) meets the limits"
    assert re.search(
        r": \d servers \(nvidia-dgx-h100, \d+ GPUs\) are the fewest that meet the limits", cli(*shlex.split(DGX)).out
    )


def test_which_way_runs_of_the_stack_were_off_is_said_of_a_plan_too(cli: Cli) -> None:
    """The sentence of the estimate, as both rest on the same runs."""
    job = "--model llama-3.1-8b --gpu h100-sxm-80gb --gpus 8 --job sft --stack hf-trainer --steps 100"
    ran = cli(*shlex.split(f"plan {job}")).out
    estimate = ask(cli, f"estimate {job}")
    bias = estimate["time"]["basis"]["bias"]
    assert f"Published runs with the hf-trainer stack took {bias['fastest']:.1f} to {bias['slowest']:.1f} times" in ran


def test_numbers_of_gpus_that_only_the_global_batch_rules_out_are_named(cli: Cli) -> None:
    """Three servers need a multiple of three, which neither 128 nor the layers and heads of the model have."""
    job = "plan --model llama-3.1-70b --job sft --server dell-xe9680-h100 --max-gpus 64 --objective time"

    def named(batch: str) -> list[str]:
        return [text for text in ask(cli, f"{job} {batch}")["warnings"] if text.startswith("not tried")]

    told = "not tried on 24, 48 and 56 GPUs: the global batch of 128 cannot be split over them"
    assert named("") == []  # what is assumed fits itself to the GPUs, and costs none
    assert named("--global-batch 128") == [f"{told}; there may be a smaller plan among them"]
    assert named("--global-batch 168") == []  # 2^3 x 3 x 7


TRILLION = "plan --model llama-2-7b --job pretrain --tokens 1T --seq-len 4096 --max-hours 720 --server dell-xe9680-h100"


def test_an_assumed_batch_costs_no_server(cli: Cli) -> None:
    """Five servers do with a batch of 160, as they do where they are asked for; the plan says what it searched."""
    answer = ask(cli, TRILLION)
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    assert chosen["gpus"] == 40
    assert "--global-batch 160" in chosen["command"]
    alone = ask(cli, f"{TRILLION} --gpus 40")["candidates"][0]
    assert chosen["total_s"] == alone["total_s"]
    (numbers,) = answer["search"]["numbers"]
    assert {8, 16, 32, 40, 64} <= set(numbers["tried"])
    assert {tuple(one["gpus"]) for one in numbers["skipped"] if one["code"] == "too-few"} == {(24,)}
    assert not ask(cli, f"{TRILLION} --gpus 32")["verdict"]["meets_limits"]
    shown = screen(cli, TRILLION)
    assert "not 24 (fewer than 32, which are not enough)" in shown["Searched"]
    assert "global batch 128 to 192, as it splits over the GPUs" in shown["Assumed"]


def test_the_fewest_is_said_of_what_was_searched_alone(cli: Cli) -> None:
    """A batch of the user's rules numbers out, and a number of his all others."""
    title = cli(*shlex.split(f"{TRILLION} --global-batch 1024")).out.splitlines()[0]
    assert title.endswith(
        "8 servers (dell-xe9680-h100, 64 GPUs) are the fewest that meet the limits, "
        "of those over which your global batch of 1,024 can be split"
    )
    asked = cli(*shlex.split(f"{TRILLION} --gpus 64")).out.splitlines()[0]
    assert asked.endswith(": 8 servers (dell-xe9680-h100, 64 GPUs) meet the limits")
    assert "Searched" not in screen(cli, f"{TRILLION} --gpus 64")


def test_one_replica_that_offloads_shares_nothing(cli: Cli) -> None:
    """With one replica there is no ZeRO; its stage says what of the states is offloaded."""
    job = "plan --model llama-3.1-70b --job sft --server dell-xe9680-h100 --gpus 8 --tp 8 --steps 100"
    gpus = screen(cli, job)["GPUs"]
    assert re.search(r"tp 8, micro-batch \d+.*, (optimizer|params) offloaded as in ZeRO [23]", gpus)
    assert not re.search(r"ZeRO \d,", gpus)


def test_what_the_file_fixes_is_said(cli: Cli, tmp_path: Path) -> None:
    """Of a file, perhaps another tool's, one may not know it; an option was just typed."""
    job = tmp_path / "job.yaml"
    job.write_text("model: llama-3.1-8b\nserver: dell-xe9680-h100\ngpus: 16\nlayout: {tp: 4, pp: 2}\n")
    told = "your file fixes gpus 16, tp 4, pp 2: no other was tried; --free gpus,layout tries others"
    assert screen(cli, f"plan {job} --job sft --steps 100")["Fixed"] == told
    assert "Fixed" not in screen(cli, "plan --model llama-3.1-8b --gpu h100-sxm-80gb --gpus 16 --tp 4 --steps 100")


def test_memory_and_limits_that_are_both_unsure_have_a_joint_probability(cli: Cli) -> None:
    """The product, also where memory alone would be likely enough."""
    job = JOB.replace("--samples 50000", "--samples 500000").replace("--job sft", "--job lora")
    command = f"plan {job} --server dell-xe9680-h100 --max-gpus 8"
    verdict = ask(cli, command)["verdict"]
    memory, hours = verdict["fit_probability"], verdict["limits"][0]["probability"]
    assert verdict["fit_certainty"] in ("sure", "likely")
    assert verdict["limits"][0]["certainty"] != "sure"
    assert f"both {100 * memory * hours:.0f} %" in cli(*shlex.split(command), "--brief").out.splitlines()[1]


def test_two_terabytes_of_modules_are_the_same_in_a_profile_and_on_the_command_line(cli: Cli) -> None:
    for given in ("", " --host-memory-gib 2TB"):
        assert "of 2,048 GiB " in screen(cli, f"{H100}{given}")["Host memory"]


def test_a_price_without_a_name_is_told_how_prices_are_written(cli: Cli) -> None:
    ran = cli(*shlex.split(H100.replace("--price-per-gpu-hour 2.5", "--price 2.50")))
    assert ran.code == 2
    assert "write NAME=PRICE, or use --price-per-gpu-hour 2.50" in ran.err
