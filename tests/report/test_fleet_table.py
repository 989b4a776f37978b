"""A service on other hardware as a table: within 120 columns with its prices, and whose they are below it."""

from __future__ import annotations

from typing import Any

import pytest

import xe_sizer
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render

SERVICE: dict[str, Any] = {"model": "llama-3.1-70b", "serve": {"users": 500}}
RENTED = ("aws-p5.48xlarge", "lambda-gpu_8x_h100_sxm5")


def shown(servers: tuple[str, ...], width: int, **keys: Any) -> str:
    text = render(xe_sizer.serve(among=servers, **SERVICE, **keys), "table", Options(width=width))
    return text.partition("On other hardware\n")[2].partition("\n\n")[0]


@pytest.mark.parametrize("cost", [{}, {"kwh_price": 0.2}])
def test_prices_stand_in_rows_within_120_columns(cost: dict[str, float]) -> None:
    head, _, *rows = shown(RENTED, 120, cost=cost).splitlines()
    assert {"hardware", "GPUs", "TTFT", "TPOT", "per", "outcome"} <= set(head.split())
    assert "per hour" in head
    assert [row.split()[0] for row in rows[: len(RENTED)]] == ["lambda-gpu_8x_h100_sxm5", "aws-p5.48xlarge"]
    assert ("electricity" in head) is bool(cost)
    assert max(map(len, rows)) <= 120


def test_a_wide_terminal_has_all_columns_and_a_narrow_one_all_lines() -> None:
    for width in (200, 80):
        said = shown(RENTED, width)
        assert all(name in said for name in ("utilisation", "GPU design power", "tokens/s/GPU", "per million"))


def test_offers_that_differ_are_named_with_their_hardware() -> None:
    note = " ".join(shown(RENTED, 160).splitlines()[4:])
    assert "prices: lambda-gpu_8x_h100_sxm5 on-demand, " in note
    assert "; aws-p5.48xlarge on-demand, " in note


def test_one_offer_for_all_is_told_once_and_hardware_without_prices_has_none() -> None:
    given = " ".join(shown(("h100-sxm-80gb", "h200-sxm-141gb"), 160, cost={"price_per_gpu_hour": 3}).splitlines())
    assert given.endswith("; per million: tokens of prompts and answers; prices: as given")
    assert "price" not in shown(("h100-sxm-80gb", "h200-sxm-141gb"), 160).partition("not all prices are known")[2]
