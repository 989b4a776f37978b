"""Prices of GPUs, and which of them are paid for."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace

from xe_sizer.laws.hardware import Capex, Offer, Server
from xe_sizer.result.common import GIVEN_PRICE, OWN, HourlyPrice
from xe_sizer.scenario.options import COMMAND_LINE
from xe_sizer.scenario.provenance import Provenance
from xe_sizer.scenario.read import scenario_of_call
from xe_sizer.scenario.tariff import Tariff, tariff_of, tariff_sources, what_is_paid

SERVER = replace(REGISTRY.server("dell-xe9680-h100"), price_per_hour=24.0, price_currency="EUR")
RENTED = Tariff.of(None, None, SERVER)
XE9680 = REGISTRY.server("dell-xe9680-h100")


def tariff(cost: Mapping[str, Any], server: Server = XE9680, power_share: float = 0.85) -> tuple[Tariff, Provenance]:
    """What the GPUs of a server cost in training, and the keys that this notes."""
    keys = {f"cost.{name}": value for name, value in cost.items()}
    scenario = scenario_of_call(None, {"model": "llama-2-7b", "server": server.name, **keys}, COMMAND_LINE)
    provenance = Provenance(scenario, REGISTRY)
    return tariff_of(provenance, server, power_share, 0.8), provenance


def test_a_server_is_paid_for_as_a_whole() -> None:
    tariff = Tariff.of(None, None, SERVER)
    assert (tariff.per_gpu_hour, tariff.currency) == (3.0, "EUR")
    assert [tariff.billed_gpus(gpus) for gpus in (1, 8, 9)] == [8, 8, 16]
    assert tariff.billed_gpus(np.array([1, 8, 9])).tolist() == [8, 8, 16]


def test_a_price_by_gpu_pays_for_those_that_are_used() -> None:
    tariff = Tariff.of(2.5, "USD", SERVER)
    assert (tariff.per_gpu_hour, tariff.currency, tariff.billed_gpus(9)) == (2.5, "USD", 9)


def test_without_a_price_whole_servers_are_counted_all_the_same() -> None:
    tariff = Tariff.of(None, None, replace(SERVER, price_per_hour=None))
    assert (tariff.per_gpu_hour, tariff.billed_gpus(9)) == (None, 16)


def test_gpus_that_are_paid_for_and_not_used_are_told() -> None:
    said = ["the price counts whole servers: 16 GPUs are paid for, 9 used"]
    assert list(what_is_paid(RENTED, 16, 9, SERVER, COMMAND_LINE)) == said
    assert list(what_is_paid(RENTED, 16, 16, SERVER, COMMAND_LINE)) == []


def test_a_price_by_gpu_says_what_it_leaves_out_of_the_servers() -> None:
    said = ["the price by GPU counts the 12 GPUs used, not all 16 of the servers"]
    assert list(what_is_paid(RENTED, 12, 12, SERVER, COMMAND_LINE)) == said
    assert list(what_is_paid(RENTED, 12, 12, replace(SERVER, name="generic-h100-sxm-80gb"), COMMAND_LINE)) == []


def test_a_price_says_what_it_is_of_and_how_it_is_meant() -> None:
    """The server's with its kind, date, region and source; that of a user is of a GPU, and his."""
    offer = Offer("capacity-block", "2026-08-01", "us-east-2", "a list")
    listed = Tariff.of(None, None, replace(SERVER, offer=offer)).hourly(SERVER)
    assert listed == HourlyPrice(
        hardware="dell-xe9680-h100", per_hour=24.0, currency="EUR", kind="capacity-block", date="2026-08-01",
        region="us-east-2", source="a list",
    )  # fmt: skip
    own = Tariff.of(2.5, "USD", replace(SERVER, offer=offer)).hourly(SERVER)
    assert own == HourlyPrice(hardware="h100-sxm-80gb", per_hour=2.5, currency="USD", kind=GIVEN_PRICE)
    assert Tariff.of(None, None, replace(SERVER, price_per_hour=None)).hourly(SERVER) is None


def test_own_servers_cost_capital_electricity_and_staff() -> None:
    """300,000 over 4 years of 8,766 h at 50 %, 7.84 kW at a PUE of 1.2 and 0.25 a kWh, 10 % on both."""
    keys = {"capex_per_server": 300e3, "years": 4, "utilisation": 0.5, "kwh_price": 0.25, "pue": 1.2}
    found, _ = tariff({**keys, "staff_share": 0.1})
    capital, power = 300e3 / (4 * 8766 * 0.5), 7.84 * 1.2 * 0.25
    assert found.parts(8, 8) == pytest.approx(
        {"capital": capital, "electricity": power, "staff": 0.1 * (capital + power)}
    )
    assert found.hour(8, 8) == pytest.approx(1.1 * (capital + power))
    first, *_ = found.cost_parts(10.0, 8, 8)
    assert first.name == "capital"
    assert first.value == pytest.approx(10 * capital)
    hourly = found.hourly(XE9680)
    assert hourly is not None
    assert hourly.kind == OWN
    assert hourly.per_hour == pytest.approx(1.1 * (capital + power))


def test_capital_and_what_is_beside_the_gpus_are_of_whole_servers_and_the_rest_of_the_gpus_at_work() -> None:
    found, _ = tariff({"capex_per_server": 87660, "years": 1, "utilisation": 1, "kwh_price": 1, "pue": 1})
    assert found.billed_gpus(9) == 16
    assert found.parts(16, 9) == pytest.approx({"capital": 20.0, "electricity": 9 * 0.7 * 0.85 + 16 * 0.7 * 0.55})
    many = found.hour(np.array([8.0, 16.0]), np.array([8.0, 9.0]))
    assert np.asarray(many).tolist() == pytest.approx([10 + 7.84, 20 + 9 * 0.7 * 0.85 + 16 * 0.7 * 0.55])


def test_what_is_assumed_of_own_servers_is_noted_with_what_it_follows() -> None:
    _, provenance = tariff({"capex_per_server": 300e3, "kwh_price": 0.2, "years": 3})
    assert provenance.origins == {"cost.pue": "default", "cost.years": "flag", "cost.utilisation": "default"}
    told = {source.name: source.source for source in tariff_sources(provenance.origins)}
    assert set(told) == {"cost.pue", "cost.utilisation"}
    assert "Uptime Institute" in told["cost.pue"]


def test_a_price_of_electricity_alone_is_no_price_of_the_hardware() -> None:
    """Nor is it added to a rent, which includes it."""
    alone, _ = tariff({"kwh_price": 0.2, "pue": 1.5})
    assert (alone.per_gpu_hour, alone.hour(8, 8), alone.parts(8, 8)) == (None, None, {})
    assert alone.electricity is not None
    assert alone.electricity.hour(8) == pytest.approx(7.84 * 1.5 * 0.2)
    rented, _ = tariff({"kwh_price": 0.2, "pue": 1.5, "price_per_gpu_hour": 2.0})
    assert (rented.hour(8, 8), rented.parts(8, 8), rented.electricity) == (16.0, {}, alone.electricity)


def test_a_price_to_buy_may_be_of_each_kind_of_hardware() -> None:
    both = {"capex_per_server": {"dell-xe9680-h200": 350e3, "h100-sxm-80gb": 87660}, "years": 1, "utilisation": 1}
    assert tariff(both)[0].hour(8, 8) == pytest.approx(10.0)
    assert tariff(both, REGISTRY.server("dell-xe9680-h200"))[0].hour(8, 8) == pytest.approx(350e3 / 8766)
    assert tariff({"capex_per_server": {"dell-xe9680-h200": 350e3}})[0].per_gpu_hour is None


def test_a_price_by_name_takes_the_place_of_one_for_all() -> None:
    named = {"capex_per_server": 300e3, "price_per_gpu_hour": {"dell-xe9680-h100": 2.5}}
    assert tariff(named)[0].own is None
    assert tariff(named, REGISTRY.server("dell-xe9680-h200"))[0].own is not None
    other_way = {"capex_per_server": {"dell-xe9680-h100": 300e3}, "price_per_gpu_hour": 2.5}
    assert tariff(other_way)[0].own is not None


def test_a_profile_may_say_what_a_server_costs_to_buy() -> None:
    bought = replace(XE9680, capex=Capex(87660.0, "EUR", "2026-10-01", "our offer"))
    found, _ = tariff({"years": 1, "utilisation": 1}, bought)
    hourly = found.hourly(bought)
    assert hourly is not None
    assert found.currency == "EUR"
    assert found.hour(8, 8) == pytest.approx(10.0)
    assert (hourly.date, hourly.source) == ("2026-10-01", "our offer")
    rented = replace(bought, price_per_hour=24.0)
    assert tariff({}, rented)[0].own is None  # its price by the hour, unless somebody says how long it is used
    assert tariff({"years": 5}, rented)[0].own is not None


def test_a_cost_without_electricity_says_so() -> None:
    found, _ = tariff({"capex_per_server": 300e3})
    assert list(what_is_paid(found, 8, 8, XE9680, COMMAND_LINE)) == [
        "the cost leaves electricity out: give --kwh-price"
    ]


def test_cards_named_alone_stand_in_a_host_that_holds_as_many_as_are_asked_for() -> None:
    gpu = REGISTRY.accelerator("rtx-4090")
    server = REGISTRY.bare_server(gpu)
    keys = {"model": "llama-2-7b", "gpu": "rtx-4090", "gpus": 2, "cost.capex_per_server": 8766.0, "cost.years": 1.0}
    provenance = Provenance(scenario_of_call(None, keys, COMMAND_LINE), REGISTRY)
    found = tariff_of(provenance, server, 0.85, 1.0)
    assert found.sold_together == 2
    assert found.hour(2, 2) == pytest.approx(1.0)
