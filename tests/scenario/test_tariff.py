"""Prices of GPUs, and which of them are paid for."""

import numpy as np
from cases import REGISTRY
from msgspec.structs import replace

from xe_sizer.laws.hardware import Offer
from xe_sizer.result.common import GIVEN_PRICE, HourlyPrice
from xe_sizer.scenario.provenance import Tariff, whole_servers

SERVER = replace(REGISTRY.server("dell-xe9680-h100"), price_per_hour=24.0, price_currency="EUR")


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
    assert list(whole_servers(16, 9, SERVER)) == ["the price counts whole servers: 16 GPUs are paid for, 9 used"]
    assert list(whole_servers(16, 16, SERVER)) == []


def test_a_price_by_gpu_says_what_it_leaves_out_of_the_servers() -> None:
    said = ["the price by GPU counts the 12 GPUs used, not all 16 of the servers"]
    assert list(whole_servers(12, 12, SERVER)) == said
    assert list(whole_servers(12, 12, replace(SERVER, name="generic-h100-sxm-80gb"))) == []


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
