"""What to buy: one plan over several kinds of servers has a row for each, as alone, and says why one is recommended."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = (
    "plan --model llama-3.1-8b --job sft --stack nemo --samples 400000 --mean-tokens 1000 --epochs 3 --max-hours 12 "
    "--max-gpus 64 --precision bf16"
)
H100, H200, P5, CANNOT = "dell-xe9680-h100", "dell-xe9680-h200", "aws-p5.48xlarge", "k80"
AMONG = " ".join(f"--among {name}" for name in (H100, H200, P5, CANNOT))


def ask(cli: Cli, command: str) -> Any:
    return json.loads(cli(*shlex.split(command), "--format", "json").out)


def kinds(answer: Any) -> dict[str, Any]:
    """The rows by their hardware, each with its plan."""
    return {
        kind["hardware"]: kind | ({} if kind["candidate"] is None else answer["candidates"][kind["candidate"]])
        for kind in answer["kinds"]
    }


def test_every_kind_has_the_row_that_it_has_alone(cli: Cli) -> None:
    """The fewest servers of each that meet the deadline, and what they take, as a plan for that kind says it."""
    answer = ask(cli, f"{JOB} {AMONG}")
    rows = kinds(answer)
    assert rows.keys() == {H100, H200, P5, CANNOT}
    for name in (H100, H200, P5):
        alone = ask(cli, f"{JOB} --server {name}")
        plan = alone["candidates"][alone["answers"]["chosen"]]
        shared = ("server", "nodes", "gpus", "total_s", "gpu_hours", "price", "power_w", "fit_probability", "layout")
        assert {key: rows[name][key] for key in shared} == {key: plan[key] for key in shared}
        assert rows[name]["meets_limits"]
        assert rows[name]["limits_probability"] == alone["verdict"]["limits"][0]["probability"]
    first = answer["kinds"][0]
    assert [kind["recommended"] for kind in answer["kinds"]] == [True, False, False, False]
    assert first["candidate"] == answer["answers"]["chosen"]
    assert rows[first["hardware"]]["nodes"] == min(rows[name]["nodes"] for name in (H100, H200, P5))


def test_kilowatts_times_hours_are_the_energy(cli: Cli) -> None:
    """And a server of eight H100 draws what was measured: 7.75 and 7.92 kW (arXiv 2506.14551, 2412.08602)."""
    rows = kinds(ask(cli, f"{JOB} {AMONG}"))
    for name in (H100, H200, P5):
        hours = rows[name]["total_s"]["expected"] / 3600
        assert rows[name]["power_w"] / 1000 * hours == pytest.approx(rows[name]["energy_kwh"])
    assert rows[H100]["power_w"] / rows[H100]["nodes"] == pytest.approx(7835, rel=0.02)


def test_what_cannot_has_a_row_with_the_reason(cli: Cli) -> None:
    rows = kinds(ask(cli, f"{JOB} {AMONG}"))
    assert rows[CANNOT]["candidate"] is None
    assert rows[CANNOT]["reason"] == "k80 has no bf16"
    late = kinds(ask(cli, f"{JOB} {AMONG} --max-gpus 8 --max-hours 1"))
    assert not any(row["recommended"] or row["meets_limits"] for row in late.values())
    for name in (H100, H200, P5):
        assert late[name]["reason"].startswith("max_hours is 1 h, the nearest plan takes ")
    out = cli(*shlex.split(f"{JOB} {AMONG} --max-gpus 8 --max-hours 1"), "--exit-zero").out
    assert "none of 4 kinds meets the limits; " in out
    assert "k80: k80 has no bf16" in out


def test_the_first_screen_says_why_and_what_the_others_come_to(cli: Cli) -> None:
    out = " ".join(cli(*shlex.split(f"{JOB} {AMONG}"), "--brief").out.split())
    assert "Why the fewest servers of 3 kinds that meet the limits" in out
    assert f"{P5} (" in out
    assert "USD" in out


def test_the_cheapest_is_of_those_with_a_price_that_meet_the_limits(cli: Cli) -> None:
    """Alone p5 has a price; under --objective cost it is recommended, and the sentence says of what."""
    answer = ask(cli, f"{JOB} {AMONG} --objective cost")
    assert (answer["kinds"][0]["hardware"], answer["kinds"][0]["recommended"]) == (P5, True)
    out = " ".join(cli(*shlex.split(f"{JOB} {AMONG} --objective cost")).out.split())
    assert "Why the cheapest of those with a price, of 3 kinds that meet the limits" in out
    prices = "--price dell-xe9680-h100=4 --price dell-xe9680-h200=4 --price aws-p5.48xlarge=4"
    cheapest = ask(cli, f"{JOB} {AMONG} {prices} --max-gpus 16")
    place = cheapest["answers"]["cheapest"]
    met = [one["price"] for one in cheapest["candidates"] if one["meets_limits"]]
    assert cheapest["candidates"][place]["meets_limits"]
    assert cheapest["candidates"][place]["price"] <= 1.08 * min(met)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_the_terminal(cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = cli(*shlex.split(f"{JOB} {AMONG}")).out
    table = out[out.index("Kinds of hardware") : out.index("Answers")]
    for name in (H100, H200, P5, CANNOT):
        assert name in table
    assert "recommended" in table


def test_rows_of_a_spreadsheet_name_the_kinds(cli: Cli) -> None:
    text = cli(*shlex.split(f"{JOB} {AMONG}"), "--format", "csv").out
    rows = list(csv.DictReader(io.StringIO(text)))
    best = [(row["server"], row["best_of_kind"]) for row in rows if row["best_of_kind"]]
    assert sorted(word for _, word in best) == ["best", "best", "recommended"]
    assert {server for server, _ in best} == {H100, H200, P5}
    (cannot,) = [row for row in rows if row["server"] == CANNOT]
    assert (cannot["gpus"], cannot["meets_limits"]) == ("", "false")
    assert cannot["reason"] == "k80 has no bf16"


def test_one_kind_needs_no_table(cli: Cli) -> None:
    out = cli(*shlex.split(f"{JOB} --server {H100}")).out
    assert "Kinds of hardware" not in out
    assert "Why " not in out
    assert len(ask(cli, f"{JOB} --server {H100}")["kinds"]) == 1


def test_what_is_recommended_to_be_bought_likely_fits(cli: Cli) -> None:
    """A server whose memory suffices with less than 75 % is no purchase, unless somebody asks for no more."""
    job = "plan --model llama-3.1-70b --job sft --samples 100000 --mean-tokens 1000 --epochs 3 --max-hours 24"
    answer = ask(cli, f"{job} --among {H100} --among {H200} --among dell-xe9680l-b200")
    for kind in kinds(answer).values():
        assert kind["fit_probability"] >= 0.75
    assert kinds(answer)[answer["kinds"][0]["hardware"]]["fit_probability"] == answer["verdict"]["fit_probability"]
    less = ask(cli, f"{job} --among {H100} --among {H200} --among dell-xe9680l-b200 --confidence 0.5")
    assert all(one["nodes"] <= kinds(answer)[name]["nodes"] for name, one in kinds(less).items())
