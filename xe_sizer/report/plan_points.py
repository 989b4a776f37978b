"""The first screen of the report on a plan: what was chosen, what it takes, and what else would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import spanned
from xe_sizer.report.document import Point
from xe_sizer.report.first_screen import evidence_point, fit_words, host_point, limits_points, memory_of
from xe_sizer.report.format import clean, money, number, offer_words, plural, price_words
from xe_sizer.report.iterations import split_words
from xe_sizer.report.plan_words import (
    asks_for_gpus,
    cheapest_of,
    fixed_by_file,
    hardware_words,
    layout_words,
    premises,
    searched_words,
)
from xe_sizer.report.premises import assumed_run

if TYPE_CHECKING:
    from xe_sizer.result.studies import Candidate, PlanResult

MOST_KINDS = 2  # of hardware whose numbers of GPUs the first screen lists
CHEAPEST = "Cheapest"
ROOM = 160  # characters of notes that the first screen has room for


def plan_points(result: PlanResult) -> Iterator[Point]:
    """The chosen plan: time, cost, hardware, memory, limits; then the other answers, and its command."""
    if result.answers.chosen is None:
        yield from limits_points(result.verdict, None)
        if result.search.complete:
            yield Point("Next", "what it needs, and the nearest change that fits", command=result.command)
        return
    chosen = result.candidates[result.answers.chosen]
    yield Point("Time", " ".join(filter(None, (spanned(chosen.total_s), assumed_run(result.scenario)))))
    yield from evidence_point(result.basis)
    yield Point("Cost", ", ".join(_cost_words(chosen)))
    yield Point("GPUs", f"{chosen.gpus:,} x {clean(chosen.gpu)}: {layout_words(chosen.layout)}")
    if split := split_words(chosen.pools):
        yield Point("Rollout", f"training and answers: {split}")
    usable_bytes = chosen.peak_bytes + chosen.headroom_bytes
    yield memory_of(chosen.peak_bytes, usable_bytes, chosen.headroom_bytes, fit_words(result.verdict))
    host = chosen.host_bytes, chosen.host_available_bytes, chosen.host_reserve_bytes
    yield from host_point(*host, chosen.host_most_bytes)
    yield from limits_points(result.verdict, chosen.currency)
    yield from _others(result, chosen)
    yield from _search(result)
    yield from _premises(result)
    yield Point("Next", "the full estimate of this plan", command=chosen.command, spare=6)


def _search(result: PlanResult) -> Iterator[Point]:
    """What was searched, and what the file leaves no choice in."""
    if not asks_for_gpus(result):
        told = list(searched_words(result))
        shown, more = told[:MOST_KINDS], len(told) - MOST_KINDS
        shown += [f"{plural(more, 'more kind')} of hardware"] if more > 0 else []
        yield Point("Searched", "; ".join(shown))
    if fixed := fixed_by_file(result):
        yield Point("Fixed", f"your file fixes {', '.join(fixed)}: no other was tried")


def _premises(result: PlanResult) -> Iterator[Point]:
    """What may change the purchase: what nobody gave, and the warnings, as far as there is room for them."""
    known = premises(result)
    assumed = [text for key, (text, given) in known.items() if not given and key != "train.padding"]
    if assumed:
        yield Point("Assumed", ", ".join(assumed), spare=1)
    notes = [clean(text) for text in result.warnings]
    shown = [text for place, text in enumerate(notes) if not place or sum(map(len, notes[: place + 1])) <= ROOM]
    if len(shown) < len(notes):
        shown.append(f"{plural(len(notes) - len(shown), 'more note')} in the full report")
    if shown:
        yield Point("Notes", "; ".join(shown))


def _cost_words(one: Candidate) -> Iterator[str]:
    if one.price is not None:
        yield money(one.price, one.currency)
    yield f"{number(one.gpu_hours)} GPU-hours"
    if one.energy_kwh is not None:
        yield f"{number(one.energy_kwh)} kWh"
    yield from price_words(one.hourly_price)


def _others(result: PlanResult, chosen: Candidate) -> Iterator[Point]:
    """The fewest, the cheapest and the fastest, where they are not the chosen one."""
    answers = result.answers
    named = {"Fewest": (answers.smallest, 3), CHEAPEST: (answers.cheapest, 2), "Fastest": (answers.fastest, 5)}
    for label, (place, spare) in named.items():
        if place is None or result.candidates[place] == chosen:
            continue
        one = result.candidates[place]
        price = f", {money(one.price, one.currency)}" if one.price is not None else ""
        if one.hourly_price is not None and one.hourly_price != chosen.hourly_price:
            price += f" ({offer_words(one.hourly_price)})"
        figures = f"{spanned(one.total_s)}, {number(one.gpu_hours)} GPU-hours{price}"
        of = f"{cheapest_of(result)}, " if label == CHEAPEST and cheapest_of(result) else ""
        yield Point(label, f"{of}{clean(hardware_words(one))}: {figures}", spare=spare)
