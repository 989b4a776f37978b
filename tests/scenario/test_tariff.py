"""Prices of GPUs, and which of them are paid for."""

from dataclasses import replace

import numpy as np
from cases import REGISTRY

from xe_sizer.scenario.tariff import Tariff, whole_servers

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
