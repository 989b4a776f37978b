"""What a time, a price and a limit rest on where nobody gave it: said beside them."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable

from .conftest import Ran

Cli = Callable[..., Ran]
OPEN = "--model llama-3.1-8b --server xe9680-h100 --job lora --max-hours 24"
DATA = "--samples 50000 --mean-tokens 600 --max-tokens 4096"
SAID = "for 1,000 steps, assumed: no data was given"


def out(cli: Cli, command: str) -> str:
    return cli(*shlex.split(command)).out


def test_a_deadline_judged_on_assumed_steps_says_so(cli: Cli) -> None:
    for command in (
        f"plan {OPEN} --max-gpus 8 --brief",
        f"sensitivity {OPEN} --gpus 8 --brief",
        f"compare {OPEN} --gpus 8 job=lora job=sft --brief",
        f"plan {OPEN} --max-gpus 8 --grid job=lora,qlora --brief",
    ):
        assert SAID in out(cli, command), command
        assert "assumed: no data" not in out(cli, f"{command} --steps 1000"), command


def test_one_epoch_that_nobody_asked_for_is_said(cli: Cli) -> None:
    plan = f"plan {OPEN} {DATA} --max-gpus 8 --brief"
    time = next(line for line in out(cli, plan).splitlines() if line.startswith("Time"))
    assert time.endswith("for 1 epoch, assumed")
    assert "epoch" not in out(cli, f"{plan} --epochs 1").split("Next")[0]


def test_alternatives_of_different_length_say_which_is_assumed(cli: Cli) -> None:
    lines = out(cli, f"compare {OPEN} --gpus 8 steps=10 job=sft --brief").splitlines()
    assert [line.split("  ")[0] for line in lines if SAID in line] == ["as asked", "job=sft"]


def test_a_sweep_says_how_sure_each_plan_is(cli: Cli) -> None:
    """The limit of each row is the end of its range, which one run in ten passes; then far beyond it."""
    plan = f"plan {OPEN} {DATA} --epochs 3 --gpus 8 --format json"
    span = json.loads(cli(*shlex.split(plan)).out)["candidates"][0]["total_s"]
    hours = f"{span['expected'] * 1.001 / 3600:.6f},{span['high'] * 20 / 3600:.6f}"
    sweep = f"plan {OPEN.replace(' --max-hours 24', '')} {DATA} --epochs 3 --gpus 8 --grid max-hours={hours}"
    rows = json.loads(out(cli, f"{sweep} --format json"))["rows"]
    chances = [min(row["verdict"]["limits"][0]["probability"], row["verdict"]["fit_probability"]) for row in rows]
    assert 0.45 < chances[0] < 0.6 < chances[1]
    table = out(cli, sweep)
    assert table.startswith("SWEEP  2 plans, 2 fit and meet their limits, 1 unsure")
    first, second = (line for line in table.splitlines() if line.startswith(tuple(hours.split(","))))
    assert "met, unsure" in first
    assert f"{100 * chances[0]:.0f} %" in first
    assert "unsure" not in second
    assert "80 % range" in table
    lines = list(csv.DictReader(io.StringIO(out(cli, f"{sweep} --format csv"))))
    assert float(lines[0]["total_high_s"]) == span["high"]
    assert float(lines[0]["probability"]) == chances[0]
    assert out(cli, f"{sweep} --format github").count("::warning") == 1


def test_a_comparison_warns_once_of_what_its_figures_rest_on(cli: Cli) -> None:
    both = f"compare {OPEN} --gpus 8 gpu=h100-sxm-80gb gpu=b200 --price-per-gpu-hour 2.5".replace(
        "--server xe9680-h100", ""
    )
    said = out(cli, both)
    assert said.count("every kind of hardware is charged the same 2.5 per GPU-hour; --price NAME=2.5") == 1
    assert said.count("1,000 steps assumed") == 1
    assert "b200: generic-8x-b200: no server named" in said
    alike = out(cli, f"compare {OPEN} --gpus 8 job=lora job=sft --price-per-gpu-hour 2.5")
    assert "charged the same" not in alike


def test_alternatives_that_differ_in_the_job_alone_are_called_by_it(cli: Cli) -> None:
    lines = out(cli, f"compare {OPEN} --gpus 8 job=lora job=sft").splitlines()
    assert next(lines[place + 1].split() for place, line in enumerate(lines) if line == "Side by side") == [
        "LoRA",
        "SFT",
    ]
    other = out(cli, f"compare {OPEN} job=lora,gpus=8 job=sft,gpus=16").splitlines()
    assert any("job=lora,gpus=8" in line for line in other)
    answer = json.loads(out(cli, f"compare {OPEN} --gpus 8 job=lora job=sft --format json"))
    assert [one["name"] for one in answer["alternatives"]] == ["job=lora", "job=sft"]
