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


# A job that must offload on few GPUs, so that every sample costs a step of its own; servers that are bought or rented.

LARGE = (
    "plan --model llama-3.3-70b --job sft --samples 200000 --mean-tokens 900 --epochs 2 --max-hours 24 --max-gpus 64 "
    "--max-kw 60"
)
B200 = "dell-xe9680l-b200"
BOUGHT = {H100: 290_000, H200: 340_000, B200: 480_000}
SURE = f"{LARGE} --confidence 0.9 " + " ".join(f"--among {name}" for name in (P5, *BOUGHT))
OWNED = f"{SURE} --kwh-price 0.22 " + " ".join(f"--capex-per-server {name}={price}" for name, price in BOUGHT.items())


def test_packing_is_named_where_fewer_servers_do_though_nothing_is_padded(cli: Cli) -> None:
    """A micro-batch of one sample has no padding, and a step that moves the optimizer's states for each 128 of them."""
    answer = ask(cli, f"{LARGE} --server {H100}")
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    assert (chosen["nodes"], chosen["layout"]["micro_batch"], chosen["layout"]["offload"]) == (2, 1, "optimizer")
    (packed,) = [way for way in answer["ways"] if "packing" in way["change"]]
    assert packed["candidate"]["nodes"] == 1
    assert packed["candidate"]["meets_limits"]
    again = ask(cli, packed["command"].removeprefix("xe-sizer "))
    best = again["candidates"][again["answers"]["chosen"]]
    assert (best["nodes"], best["total_s"]) == (1, packed["candidate"]["total_s"])
    as_many = ask(cli, f"{packed['command'].removeprefix('xe-sizer ')} --gpus {chosen['gpus']}")
    same = as_many["candidates"][as_many["answers"]["fastest"]]["total_s"]["expected"]
    assert packed["time_ratio"] == pytest.approx(same / chosen["total_s"]["expected"], rel=0.02)
    assert packed["time_ratio"] < 0.95
    out = " ".join(cli(*shlex.split(f"{LARGE} --server {H100}")).out.split())
    assert f"1 x {H100} (8 GPUs) would do, in " in out


def test_estimate_advises_packing_where_nothing_is_padded(cli: Cli) -> None:
    job = LARGE.replace("plan ", "estimate ").replace(" --max-gpus 64", "")
    answer = ask(cli, f"{job} --server {H100} --gpus 16 --offload optimizer --micro-batch 1")
    (packed,) = [one for one in answer["advice"] if "packing" in one["change"]]
    then = ask(cli, packed["command"].removeprefix("xe-sizer "))
    assert then["time"]["total_s"]["expected"] < 0.95 * answer["time"]["total_s"]["expected"]


def test_of_as_many_servers_the_lower_sum_to_buy_is_recommended(cli: Cli) -> None:
    """And why: what the faster ones would cost more."""
    answer = ask(cli, OWNED)
    rows = kinds(answer)
    assert answer["kinds"][0]["hardware"] == H200
    assert rows[H200]["nodes"] == rows[B200]["nodes"] == 2
    assert rows[B200]["total_s"]["expected"] < rows[H200]["total_s"]["expected"]
    assert {name: rows[name]["capex"] for name in BOUGHT} == {
        name: rows[name]["nodes"] * price for name, price in BOUGHT.items()
    }
    assert rows[P5]["capex"] is None
    out = " ".join(cli(*shlex.split(OWNED)).out.split())
    assert "of as many the lowest sum to buy, 680,000 USD; 2 x dell-xe9680l-b200 (16 GPUs, liquid-cooled) take " in out
    assert " and 960,000 USD" in out


def test_an_objective_for_the_sum_to_buy(cli: Cli) -> None:
    """Three cheap servers may be less to buy than two dear ones; without prices nobody can say."""
    cheap = OWNED.replace(f"{H100}=290000", f"{H100}=200000")
    answer = ask(cli, f"{cheap} --objective capex")
    assert answer["kinds"][0]["hardware"] == H100
    bought = [one["capex"] for one in answer["candidates"] if one["meets_limits"] and one["capex"] is not None]
    assert answer["candidates"][answer["answers"]["chosen"]]["capex"] == min(bought)
    assert "the lowest sum to buy" in cli(*shlex.split(f"{cheap} --objective capex")).out.splitlines()[0]
    fewest = " ".join(cli(*shlex.split(cheap)).out.split())
    assert f"the lowest sum to buy is that of 3 x {H100} (24 GPUs): 600,000 USD instead of 680,000 USD" in fewest
    ran = cli(*shlex.split(f"{SURE} --objective capex"))
    assert ran.code == 2
    assert "--objective: nobody says what the servers cost to buy" in ran.err
    assert "--capex-per-server" in ran.err


@pytest.mark.parametrize("width", [100, 120])
def test_the_sum_to_buy_outlasts_electricity_where_the_terminal_is_narrow(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out = cli(*shlex.split(OWNED)).out
    table = out[out.index("Kinds of hardware") : out.index("Answers")]
    assert "680,000 USD" in table
    assert max(len(line) for line in table.splitlines()) <= width


def test_prices_say_whether_servers_are_rented_or_owned(cli: Cli) -> None:
    """A rented kind has its cheapest plan too, and the use from which own servers cost less."""
    answer = ask(cli, OWNED)
    rows = kinds(answer)
    rented, own = rows[P5], answer["candidates"][answer["answers"]["chosen"]]
    cheapest = answer["candidates"][rented["cheapest"]]
    p5 = [one for one in answer["candidates"] if one["server"] == P5 and one["meets_limits"]]
    assert cheapest["price"] <= 1.08 * min(one["price"] for one in p5)
    assert cheapest["price"] < rented["price"]
    assert cheapest["nodes"] > rented["nodes"]
    assert all(rows[name]["cheapest"] is None and rows[name]["own"] is None for name in BOUGHT)
    use = rented["own_from_utilisation"]
    assert answer["candidates"][rented["own"]] == own
    asked = ask(cli, f"{OWNED} --utilisation {use}")  # at that use both cost the same
    same = asked["candidates"][asked["answers"]["chosen"]]
    assert same["price"] == pytest.approx(cheapest["price"], rel=1e-6)
    out = " ".join(cli(*shlex.split(OWNED), "--brief").out.split())
    assert " USD owned (960,000 USD to buy)" in out
    assert f" USD rented, cheapest 4 x {P5} (32 GPUs) in " in out
    assert f"owned {H200} costs less from {100 * use:.0f} % use" in out


def test_all_limits_stand_on_the_first_screen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = " ".join(cli(*shlex.split(f"{OWNED} --max-cost 5000"), "--brief").out.split())
    for limit in ("max_hours 24 h", "max_kw 60 kW", "max_cost 5,000 USD"):
        assert limit in out


def test_liquid_cooling_is_said_of_what_is_recommended(cli: Cli) -> None:
    first = cli(*shlex.split(f"{LARGE} --server {B200}")).out
    assert f"({B200}, 8 GPUs, liquid-cooled)" in " ".join(first.split())
    assert "liquid" not in cli(*shlex.split(f"{LARGE} --server {H200}")).out


@pytest.mark.parametrize("sum_to_buy", ["340,000", "340k", "340000"])
def test_a_sum_is_read_as_people_write_it(cli: Cli, sum_to_buy: str) -> None:
    job = "estimate --model llama-3.1-8b --job sft --samples 1,000 --mean-tokens 900 --gpus 8"
    for price in (sum_to_buy, f"{H200}={sum_to_buy}"):
        answer = ask(cli, f"{job} --server {H200} --capex-per-server {price}")
        assert answer["cost"]["hourly_price"]["own"]["capex"] == 340_000
        assert answer["scenario"]["data"]["samples"] == 1000
    for unclear in ("34,00", "340,000,0"):
        assert cli(*shlex.split(f"{job} --server {H200} --capex-per-server {unclear}")).code == 2


def test_samples_beyond_the_assumed_sequence_are_said_to_be_cut(cli: Cli) -> None:
    """Log-normal lengths of 900 tokens on average, sigma 0.8: 1.1 % are longer than 4,096, 1.8 % of the tokens beyond.

    By hand, mu = ln 900 - 0.32: P(x > 4096) = F(-2.294); E[(x - 4096)+] / 900 = F(-1.494) - 4.551 F(-2.294).
    """
    warnings = ask(cli, f"{LARGE} --server {H200}")["warnings"]
    assert any("samples longer than 4,096 tokens (1.1 % of them, the longest has " in text for text in warnings)
    assert any(text.endswith("are cut: 1.8 % of the tokens") for text in warnings)
    assert not any("are cut" in text for text in ask(cli, f"{LARGE} --server {H200} --seq-len 16384")["warnings"])


def test_sensitivity_moves_what_the_price_of_own_servers_rests_on(cli: Cli) -> None:
    job = f"sensitivity --model llama-3.1-8b --job sft --samples 20000 --mean-tokens 900 --server {H200} --gpus 8"
    asked = f"{job} --capex-per-server 340000 --utilisation 0.4 --years 4 --kwh-price 0.2"
    answer = ask(cli, asked)
    (owned,) = [factor for factor in answer["factors"] if factor["name"] == "own servers"]
    base = answer["base"]["price"]

    def price(step: str) -> float:
        (found,) = [one["outcome"]["price"] for one in owned["effects"] if step in one["step"]]
        return float(found)

    dear, cheap = price("20 % use instead of 40 %"), price("half the price of electricity (0.1 a kWh)")
    assert price("half the years of use (2)") == pytest.approx(dear)
    capital, electricity = dear - base, 2 * (base - cheap)  # half the use costs the capital once more
    assert capital + electricity == pytest.approx(base)
    assert capital == pytest.approx(answer["base"]["gpu_hours"] / 8 * 340_000 / (4 * 8766 * 0.4))
    assert all(effect["time_ratio"] == 1.0 for effect in owned["effects"])
    assert "own servers" not in {one["name"] for one in ask(cli, f"{job} --price-per-gpu-hour 2")["factors"]}
    assert "Own servers" in cli(*shlex.split(asked)).out
