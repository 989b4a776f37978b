"""Money and power as users ask for them: rented and owned servers, electricity, limits on power, an API to compare."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran
from .questions import ask

Cli = Callable[..., Ran]
JOB = "--model llama-3.1-8b --job sft --samples 100000 --mean-tokens 1000 --epochs 3"
OWN = "--server dell-xe9680-h100 --gpus 8 --capex-per-server 290000"
GRPO = "--model qwen2.5-7b --job grpo --server dell-xe9680-h100 --gpus 8 --samples 7473 --epochs 1"
SERVICE = "--model llama-3.1-8b --request-rate 20 --input-tokens 1000 --output-tokens 200"


def test_what_a_job_costs_on_own_servers(cli: Cli) -> None:
    """290,000 over 3 years of 8,766 h at 70 %; 7.84 kW of 8 x H100 at a PUE of 1.3 and 0.2 a kWh; 15 % for staff."""
    keys = "--years 3 --utilisation 70% --kwh-price 0.2 --pue 1.3 --staff-share 0.15"
    cost = ask(cli, f"estimate {JOB} {OWN} {keys}")["cost"]
    hours = cost["gpu_hours"]["expected"] / 8
    capital, power = 290e3 / (3 * 8766 * 0.7) * hours, 7.84 * 1.3 * 0.2 * hours
    parts = {part["name"]: part["value"] for part in cost["parts"]}
    assert parts == pytest.approx({"capital": capital, "electricity": power, "staff": 0.15 * (capital + power)})
    assert sum(parts.values()) == pytest.approx(cost["price"]["expected"])
    assert cost["electricity"]["expected"] == pytest.approx(cost["energy_kwh"] * 1.3 * 0.2)
    assert cost["hourly_price"]["kind"] == "own servers"
    own = {"capex": 290e3, "years": 3, "utilisation": 0.7, "kwh_price": 0.2, "pue": 1.3, "staff_share": 0.15}
    assert cost["hourly_price"]["own"].items() >= own.items()


def test_what_is_assumed_of_own_servers_is_said_with_its_source(cli: Cli) -> None:
    answer = ask(cli, f"estimate {JOB} {OWN} --kwh-price 0.2")
    cost, origin = answer["scenario"]["cost"], answer["scenario"]["origin"]
    assert (cost["years"], cost["utilisation"], cost["pue"]) == (5, 0.8, 1.54)
    assert {origin[f"cost.{name}"] for name in ("years", "utilisation", "pue")} == {"default"}
    sources = {source["name"]: source["source"] for source in answer["sources"]}
    assert "Amazon" in sources["cost.years"]
    assert "Uptime Institute" in sources["cost.pue"]
    assert "2410.21680" in sources["cost.utilisation"]
    brief = cli("estimate", *shlex.split(f"{JOB} {OWN} --brief"))
    assert "own servers, 290,000 USD each over 5 years at 80 % use, without electricity" in brief.out
    warned = ask(cli, f"estimate {JOB} {OWN}")["warnings"]
    assert "the cost leaves electricity out: give --kwh-price" in warned


@pytest.mark.parametrize("question", ["estimate", "plan", "compare", "check"])
def test_every_command_counts_own_servers(cli: Cli, question: str, tmp_path: Path) -> None:
    more = "--kwh-price 0.2 --max-cost 1000"
    wanted = ask(cli, f"estimate {JOB} {OWN} {more}")["cost"]["price"]["expected"]
    if question == "plan":
        answer = ask(cli, f"plan {JOB} {OWN} {more}")
        chosen = answer["candidates"][answer["answers"]["chosen"]]
        assert chosen["price"] == pytest.approx(wanted)
        assert sum(part["value"] for part in chosen["cost_parts"]) == pytest.approx(wanted)
    elif question == "compare":
        prices = "--capex-per-server dell-xe9680-h100=290000 --capex-per-server dell-xe9680-h200=330000"
        kinds = "server=dell-xe9680-h100 server=dell-xe9680-h200 --gpus 8"
        answer = ask(cli, f"compare {JOB} {kinds} {more} {prices}")
        first, second = (one["result"]["cost"] for one in answer["alternatives"])
        assert first["price"]["expected"] == pytest.approx(wanted)
        assert second["hourly_price"]["own"]["capex"] == 330e3
    elif question == "check":
        job = tmp_path / "job.yaml"
        job.write_text(
            "model: llama-3.1-8b\njob: sft\nserver: dell-xe9680-h100\ngpus: 8\n"
            "data: {samples: 100000, mean_tokens: 1000}\ntrain: {epochs: 3}\nlimits: {max_cost: 1000}\n"
            "cost: {capex_per_server: {dell-xe9680-h100: 290000}, kwh_price: 0.2}\n"
        )
        answer = ask(cli, f"check {job}")
        (limit,) = answer["scenarios"][0]["result"]["verdict"]["limits"]
        assert limit["value"] == pytest.approx(wanted)
    else:
        assert wanted > 0


def test_reinforcement_learning_counts_own_servers(cli: Cli) -> None:
    cost = ask(cli, f"estimate {GRPO} --capex-per-server 290000 --kwh-price 0.2")["cost"]
    hours = cost["gpu_hours"]["expected"] / 8
    assert cost["price"]["expected"] == pytest.approx(hours * (290e3 / (5 * 8766 * 0.8) + 7.84 * 1.54 * 0.2))


def test_a_service_on_own_servers_holds_them_day_and_night(cli: Cli) -> None:
    """Capital of one server at full use; electricity of the GPUs at work, at 70 %, and of all else in the server."""
    answer = ask(cli, f"serve {SERVICE} --server dell-xe9680-h100 --capex-per-server 290000 --kwh-price 0.2 --pue 1.3")
    cost, gpus = answer["cost"], answer["gpus"]["count"]
    drawn_kw = gpus * 0.7 * 0.7 + 8 * 0.7 * 0.55
    power = drawn_kw * 1.3 * 0.2
    assert cost["power_w"] == pytest.approx(1000 * drawn_kw)
    assert cost["energy_kwh_per_million_tokens"] == pytest.approx(drawn_kw / (20 * 1200 * 3600 / 1e6))
    parts = {part["name"]: part["value"] for part in cost["parts"]}
    assert parts == pytest.approx({"capital": 290e3 / (5 * 8766), "electricity": power})
    assert cost["per_hour"] == pytest.approx(sum(parts.values()))
    tokens = 20 * (1000 + 200) * 3600 / 1e6
    assert cost["per_million_tokens"] == pytest.approx(cost["per_hour"] / tokens)


def test_a_price_of_electricity_gives_its_cost_on_every_kind_of_server(cli: Cli) -> None:
    """The price of the hardware stays unknown, so that nothing is called the cheapest."""
    kinds = ("dell-xe9680-h100", "dell-xe9680-h200", "dell-xe9680l-b200")
    among = " ".join(f"--among {name}" for name in kinds)
    ask_for = f"plan {JOB} {among} --max-gpus 16 --kwh-price 0.3 --pue 1.2"
    answer = ask(cli, ask_for)
    assert {one["server"] for one in answer["candidates"]} == set(kinds)
    for one in answer["candidates"]:
        assert one["electricity"] == pytest.approx(one["energy_kwh"] * 1.2 * 0.3)
        assert (one["price"], one["currency"]) == (None, "USD")
    assert answer["answers"]["cheapest"] is None
    said = cli(*shlex.split(ask_for)).out
    assert "(hardware not priced)" in said
    assert "electricity" in next(line for line in said.splitlines() if line.startswith("plan "))


def test_a_rent_includes_electricity(cli: Cli) -> None:
    rented = f"estimate {JOB} --server aws-p5.48xlarge --gpus 8"
    without, with_ = ask(cli, rented)["cost"], ask(cli, f"{rented} --kwh-price 0.3")["cost"]
    assert with_["price"] == without["price"]
    assert with_["electricity"]["expected"] == pytest.approx(with_["energy_kwh"] * 1.54 * 0.3)
    assert "(in the price)" in cli(*shlex.split(f"{rented} --kwh-price 0.3 --brief")).out


def test_a_limit_on_power_counts_servers_whole_and_says_how_sure(cli: Cli) -> None:
    """Two servers of 7.84 kW, which may be 12 % off."""
    job = f"estimate {JOB} --server dell-xe9680-h100 --gpus 16"
    (met,) = ask(cli, f"{job} --max-kw 17")["verdict"]["limits"]
    assert (met["name"], met["ok"], met["value"]) == ("max_kw", True, pytest.approx(15.68))
    assert 0.8 < met["probability"] < 1.0
    ran = cli(*shlex.split(f"{job} --max-kw 15kW"))
    assert ran.code == 1
    assert "misses max_kw (limit 15 kW, estimate 15.7 kW)" in ran.out
    ran = cli(*shlex.split(f"{job} --max-kw 16 --confidence 0.9"))
    assert ran.code == 1
    assert "90 % required" in ran.out


def test_a_plan_keeps_a_limit_on_power(cli: Cli) -> None:
    answer = ask(cli, f"plan {JOB} --server dell-xe9680-h100 --max-gpus 32 --objective time --max-kw 16")
    assert answer["candidates"][answer["answers"]["chosen"]]["gpus"] == 16
    assert [one["gpus"] for one in answer["candidates"] if one["meets_limits"]] == [16, 8]


def test_a_service_keeps_a_limit_on_power(cli: Cli) -> None:
    """One server, of which 2 GPUs are at work: 2 x 0.7 x 0.7 kW, and 3.08 kW for the rest of it."""
    answer = ask(cli, f"serve {SERVICE} --server dell-xe9680-h100 --gpus 2 --max-kw 4", 1)
    (limit,) = (one for one in answer["verdict"]["limits"] if one["name"] == "max_kw")
    assert (limit["ok"], limit["value"]) == (False, pytest.approx(2 * 0.49 + 3.08))


def test_when_a_service_is_cheaper_than_an_api(cli: Cli) -> None:
    """A request costs 0.1 x 1000 + 0.4 x 200 millionths; the service 8 x 2 an hour at any load."""
    api = "--price-per-gpu-hour 2 --api-price-per-million 0.1,0.4"
    answer = ask(cli, f"serve {SERVICE} --server dell-xe9680-h100 --gpus 2 {api}")
    found, per_hour = answer["cost"]["api"], answer["cost"]["per_hour"]
    a_request = (0.1 * 1000 + 0.4 * 200) / 1e6
    enough = per_hour / 3600 / a_request
    assert found["per_million_tokens"] == pytest.approx(a_request / 1200 * 1e6)
    assert found["per_hour"] == pytest.approx(20 * 3600 * a_request)
    assert found["break_even_requests_per_s"] == pytest.approx(enough)
    assert found["break_even_tokens_per_day"] == pytest.approx(enough * 1200 * 86400)
    assert found["break_even_utilisation"] == pytest.approx(enough / answer["replicas"]["max_requests_per_s"])
    assert found["cheaper"] is True
    # At the break-even itself both cost the same.
    even = ask(cli, f"serve {SERVICE} --request-rate {enough} --server dell-xe9680-h100 --gpus 2 {api}")["cost"]
    assert even["api"]["per_hour"] == pytest.approx(even["per_hour"])
    assert even["per_million_tokens"] == pytest.approx(even["api"]["per_million_tokens"])


def test_an_api_that_is_always_cheaper_and_one_without_a_price_beside_it(cli: Cli) -> None:
    dear = f"serve {SERVICE} --server dell-xe9680-h100 --gpus 2 --price-per-gpu-hour 50 --api-price-per-million 0.1"
    assert ask(cli, dear)["cost"]["api"]["cheaper"] is False
    assert "the service never is cheaper" in cli(*shlex.split(dear)).out
    alone = f"serve {SERVICE} --server dell-xe9680-h100 --gpus 2 --api-price-per-million 0.1"
    assert ask(cli, alone)["cost"]["api"]["break_even_requests_per_s"] is None
    assert "give a price of the service too" in cli(*shlex.split(alone)).out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--capex-per-server 290000 --price-per-gpu-hour 2", "'price_per_gpu_hour' and 'capex_per_server' are both"),
        ("--capex-per-server h100-sxm-80gb=1 --price h100-sxm-80gb=2", "has a price by the hour and one to buy"),
        ("--years 4", "'years' needs 'capex_per_server'"),
        ("--staff-share 0.1 --kwh-price 0.2", "'staff_share' needs 'capex_per_server'"),
        ("--pue 1.3", "'pue' needs 'kwh_price'"),
        ("--pue 0.9 --kwh-price 0.2", "'pue' must be at least 1"),
        ("--capex-per-server nosuch=290000", "no GPU or server is called 'nosuch'"),
        ("--capex-per-server =290000", "'=290000' is a price without a name"),
        ("--capex-per-server dell-xe9680-h100", "must be a number"),
        ("--capex-per-server 290000 --capex-per-server dell-xe9680-h100=1", "'290000' is a price without a name"),
        ("--utilization 0.7", "write --utilisation"),
        ("--capex 290000", "write --capex-per-server"),
        ("--electricity-price 0.2", "write --kwh-price"),
    ],
)
def test_what_does_not_go_together(cli: Cli, options: str, message: str) -> None:
    ran = cli(*shlex.split(f"estimate {JOB} --server dell-xe9680-h100 --gpus 8 {options}"))
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_a_file_that_calls_prices_otherwise_is_told_the_name(cli: Cli, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("model: llama-3.1-8b\nserver: dell-xe9680-h100\ntariff: {years: 4}\n")
    ran = cli("estimate", str(job))
    assert (ran.code, ran.out) == (2, "")
    assert "job.yaml:3:1: unknown key 'tariff'" in ran.err
    assert "hint: write 'cost:'" in ran.err


def test_prices_by_name_may_be_written_with_either_option(cli: Cli) -> None:
    job = f"estimate {JOB} --server dell-xe9680-h100 --gpus 8"
    named = ask(cli, f"{job} --price-per-gpu-hour h100-sxm-80gb=2.5 --price-per-gpu-hour dell-xe9680-h200=3")
    assert named["cost"]["price"] == ask(cli, f"{job} --price h100-sxm-80gb=2.5")["cost"]["price"]


# What first users found of prices and power.


@pytest.mark.parametrize(("server", "per_hour"), [("aws-p5.48xlarge", 55.04), ("aws-p4d.24xlarge", 21.9576)])
def test_a_price_of_a_cloud_is_that_after_the_cut_and_says_its_kind_and_day(
    cli: Cli, server: str, per_hour: float
) -> None:
    """AWS's on-demand prices of October 2025: p5.48xlarge 55.04 USD, p4d.24xlarge 21.96 USD."""
    command = f"estimate {JOB} --server {server} --gpus 8"
    hourly = ask(cli, command)["cost"]["hourly_price"]
    assert (hourly["hardware"], hourly["per_hour"], hourly["kind"]) == (server, per_hour, "on-demand")
    assert hourly["date"].startswith("2026-")
    said = f"{server} at {per_hour:.2f} USD an hour (on-demand, us-east-1, {hourly['date']})"
    assert said in cli(*shlex.split(command)).out
    page = cli(*shlex.split(f"{command} --format html")).out
    assert "on-demand, us-east-1" in page


def test_prices_of_different_kinds_are_not_ranked_with_each_other(cli: Cli) -> None:
    among = "--among aws-p5.48xlarge --among aws-p5e.48xlarge --max-gpus 8"
    answer = ask(cli, f"plan {JOB} {among} --objective cost")
    assert answer["candidates"][answer["answers"]["cheapest"]]["server"] == "aws-p5.48xlarge"
    said = "prices of different kinds do not compare: only on-demand ones are ranked, not that of aws-p5e.48xlarge"
    assert any(text.startswith(said) for text in answer["warnings"])


def test_a_server_draws_what_nodes_of_its_kind_were_measured_to_draw(cli: Cli) -> None:
    """4 x XE9680 for 11 h: 341 to 370 kWh by the measured 7.75 to 8.4 kW of 8 x H100 in training."""
    cost = ask(cli, f"estimate {JOB} --server dell-xe9680-h100 --gpus 32")["cost"]
    assert 341 / (11 * 32) <= cost["energy_kwh"] / cost["gpu_hours"]["expected"] <= 370 / (11 * 32)
    assert "as measured on 8 x H100 in training" in cost["energy_formula"]


def test_a_profile_of_ones_own_says_what_a_server_costs_to_buy(cli: Cli, tmp_path: Path) -> None:
    """Its day is printed with it, and an hour of it needs no option."""
    (tmp_path / "our-server.yaml").write_text(
        "name: our-server\nvendor: ACME\ngpu: h100-sxm-80gb\ngpus: 8\nscale_up: {kind: nvswitch}\n"
        'capex: {price: 350640, currency: EUR, date: "2026-10-01", source: our offer}\nsource: {title: our offer}\n'
    )
    command = f"estimate {JOB} --profiles {tmp_path} --server our-server --gpus 8"
    hourly = ask(cli, command)["cost"]["hourly_price"]
    assert hourly["per_hour"] == pytest.approx(350640 / (5 * 8766 * 0.8))
    assert (hourly["currency"], hourly["date"], hourly["source"]) == ("EUR", "2026-10-01", "our offer")
    said = "own servers, 350,640 EUR each over 5 years at 80 % use, without electricity, priced 2026-10-01"
    assert said in cli(*shlex.split(command)).out


def test_an_api_is_compared_over_the_day_that_is_given(cli: Cli) -> None:
    """A third of the day at full load: what the service costs all day stands against a third of the requests."""
    hours = ",".join(["0"] * 9 + ["1"] * 8 + ["0"] * 7)
    rate = "serve --model llama-3.1-8b --request-rate 2 --input-tokens 1000 --output-tokens 200 --gpus 1"
    rate += " --gpu h100-sxm-80gb --price-per-gpu-hour 2"
    whole = ask(cli, f"{rate} --api-price-per-million 0.6,0.8")
    hourly = whole["cost"]["per_hour"]
    a_request = whole["cost"]["api"]["per_hour"] / 7200
    price = hourly / 3600 / 2 / a_request  # of the API at which a day of 24 such hours is even
    dear = ",".join(f"{1.5 * price * one:.6f}" for one in (0.6, 0.8))
    day, always = (
        ask(cli, f"{rate} --api-price-per-million {dear}{more}")["cost"]["api"]
        for more in (f" --hourly-load {hours}", "")
    )
    assert (always["cheaper"], day["cheaper"]) == (True, False)
    assert day["tokens_per_day"] == pytest.approx(always["tokens_per_day"] / 3, rel=0.01)
    assert day["service_per_day"] == pytest.approx(24 * hourly, rel=0.02)
    said = cli(*f"{rate} --api-price-per-million {dear} --hourly-load {hours} --brief".split()).out
    assert "dearer than the API over this day" in " ".join(said.split())
