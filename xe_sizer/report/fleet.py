"""A service on other hardware: the kinds compared, and the Pareto-optimal ways to run a replica."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.report.blocks import left_out
from xe_sizer.report.document import Column, Picture, Table
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    clean,
    count,
    duration,
    money,
    number,
    offer_words,
    percent,
)
from xe_sizer.report.picture import Axis, Chart
from xe_sizer.report.picture import Point as PicturePoint
from xe_sizer.report.service import fit_words
from xe_sizer.report.text_charts import chart
from xe_sizer.result.serving import BY_POWER, BY_PRICE
from xe_sizer.units import BARE_SERVER, WATT_PER_KW

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Figure
    from xe_sizer.result.serving import (
        FleetOption,
        ParetoPoint,
        ReplicaLayout,
        ServeResult,
    )


def front(points: Sequence[ParetoPoint], sizes: Sequence[str], title: str, figure: Figure | None) -> Picture:
    """Tokens for a user against tokens of a GPU. sizes : the layout of each point in words"""
    shown = tuple(
        PicturePoint(
            point.tokens_per_s_per_user,
            point.output_tokens_per_s_per_gpu,
            f"{clean(size)}, {number(point.running_requests)} concurrent requests",
            clean(size) if place == 0 or size != sizes[place - 1] else "",
            kind=tuple(dict.fromkeys(sizes)).index(size),
            rank=1,
        )
        for place, (point, size) in enumerate(zip(points, sizes, strict=True))
    )
    across = Axis("tokens per second per user", logarithmic=True)
    drawing = Chart(across, Axis("tokens per second per GPU", logarithmic=True), shown, ("", "replica configuration"))
    says = f"{len(points)} replica configurations: {', '.join(dict.fromkeys(sizes))}"
    return Picture(title, says, drawing, "Both axes are logarithmic.", figure)


ORDERS = {
    BY_PRICE: "cheapest per hour first",
    BY_POWER: "lowest GPU design power first, since not all prices are known",
    "": "by price per hour, or by GPU design power where prices are unknown",
}
SHOWN = 16  # kinds of hardware in the table; JSON has all


def fleet_blocks(result: ServeResult, width: int | None) -> Iterator[Block]:
    """The comparison, the front and its figure, and what was left out; nothing where none was asked for."""
    if result.fleet:
        yield _fleet(result.fleet, ORDERS.get(result.fleet_order, ORDERS[""]), result.writes)
    yield from left_out(result.left_out)
    if result.pareto:
        yield _front(result.pareto)
        yield _picture(result.pareto, width)


def _fleet(options: Sequence[FleetOption], order: str, writes: bool) -> Table:
    """The kinds of hardware, one a line; writes : answers have tokens, else a request has one latency"""
    shown = options[:SHOWN]
    sized = any(one.cost_per_hour is not None for one in shown)
    price = (Column("per hour", True), Column("per million", True)) if sized else ()
    powered = any(one.electricity_per_hour is not None for one in shown)
    price = (*price, Column("electricity per hour", True)) if powered else price
    fits = (Column("fits", True),) if any(one.fit is not None for one in shown) else ()
    by_power = order == ORDERS[BY_POWER]
    columns = (
        Column("hardware", least=max(len(_hardware(one)) for one in shown)), Column("GPUs", True), Column("replicas"),
        *((Column("TTFT", True), Column("TPOT", True)) if writes else (Column("request", True),)),
        Column("tokens/s/GPU", True, spare=1),
        Column("utilisation", True, spare=3 if by_power else 2),
        Column("GPU design power", True, spare=2 if by_power else 3), *fits, *price, Column("outcome"),
    )  # fmt: skip
    rows = tuple(
        (
            *_option_cells(one, writes),
            *((fit_words(one.fit),) if fits else ()),
            *(
                (money(one.cost_per_hour, one.currency), money(one.cost_per_million_tokens, one.currency))
                if sized
                else ()
            ),
            *((money(one.electricity_per_hour, one.currency),) if powered else ()),
            _outcome(one),
        )
        for one in shown
    )
    more = f"{len(shown)} of {len(options)} kinds of hardware; " if len(options) > len(shown) else ""
    note = f"{more}those within the limits first, {order}{_priced(shown)}"
    return Table("On other hardware", columns, tuple(rows), note=note)


def _priced(options: Sequence[FleetOption]) -> str:
    """What the prices are, each offer with the hardware that it is of where they differ; nothing without prices."""
    offers: dict[str, list[str]] = {}
    for one in options:
        if one.hourly_price is not None:
            offers.setdefault(offer_words(one.hourly_price), []).append(clean(_hardware(one)))
    if not offers:
        return ""
    alike = len(offers) == 1 and all(one.hourly_price for one in options)
    said = "; ".join(words if alike else f"{', '.join(names)} {words}" for words, names in offers.items())
    return f"; per million: tokens of prompts and answers; prices: {said}"


def _option_cells(one: FleetOption, writes: bool) -> tuple[str, ...]:
    power = NOT_A_NUMBER if one.power_w is None else f"{number(one.power_w / WATT_PER_KW)} kW"
    times = (one.ttft_s, one.tpot_s) if writes else (one.ttft_s,)
    latencies = [NOT_A_NUMBER if value is None else duration(value) for value in times]
    rate = one.output_tokens_per_s_per_gpu if writes else one.total_tokens_per_s_per_gpu or 0.0
    return (
        clean(_hardware(one)), count(one.gpus), f"{one.replicas} x {_sizes(one.layout)}", *latencies,
        number(rate), percent(one.utilisation), power,
    )  # fmt: skip


def _hardware(one: FleetOption) -> str:
    """The server where one was named, else the GPU."""
    return one.gpu if one.server.startswith(BARE_SERVER) else one.server


def _price_cells(one: FleetOption) -> tuple[str, str]:
    return money(one.cost_per_hour, one.currency), money(one.cost_per_million_tokens, one.currency)


def _outcome(one: FleetOption) -> str:
    if not one.fits:
        return "DOES NOT FIT"
    return "met" if one.meets_limits else "MISSED"


def _sizes(layout: ReplicaLayout) -> str:
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "pp", "ep", "dp") if getattr(layout, name) > 1]
    return ", ".join(sizes) or "1 GPU"


def _front(points: Sequence[ParetoPoint]) -> Table:
    columns = (
        Column("replica"), Column("concurrent requests", True), Column("tokens/s/user", True),
        Column("tokens/s/GPU", True), Column("TTFT", True),
    )  # fmt: skip
    rows = tuple(
        (
            _sizes(point.layout),
            number(point.running_requests),
            number(point.tokens_per_s_per_user),
            number(point.output_tokens_per_s_per_gpu),
            NOT_A_NUMBER if point.ttft_s is None else duration(point.ttft_s),
        )
        for point in points
    )
    note = (
        "Pareto-optimal: no other layout and load is better in both tokens/s/user and tokens/s/GPU; means, no queueing"
    )
    return Table("Latency against throughput, one replica", columns, rows, note=note)


def _picture(points: Sequence[ParetoPoint], width: int | None) -> Picture:
    pairs = [(point.tokens_per_s_per_user, point.output_tokens_per_s_per_gpu, True) for point in points]
    label = "tokens/s/user to the right, both axes logarithmic"
    title = "Tokens/s/GPU against tokens/s/user"
    figure = chart(title, pairs, number, number, label, width)
    return front(points, [_sizes(point.layout) for point in points], title, figure)
