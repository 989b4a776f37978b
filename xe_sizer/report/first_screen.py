"""The first screen of a report on one scenario: what people ask first, in the order in which they ask it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.certainty import (
    CLOSE_WORDS,
    bias_words,
    is_close,
    limit_words,
    probability_words,
    says_nothing,
    unseen_words,
)
from xe_sizer.report.document import Point
from xe_sizer.report.format import clean, gib, percent, plural, whole
from xe_sizer.units import GIB

if TYPE_CHECKING:
    from xe_sizer.result.common import Advice, Basis, Gpus, Ledger, Limit, Verdict


def evidence_point(basis: Basis | None) -> Iterator[Point]:
    """Which way the runs behind a range were off, or whose they are; nothing where neither is worth a line.

    It is never spared: without it the expected value says more than is known.
    """
    if words := unseen_words(basis) or bias_words(basis):
        yield Point("", words)


def memory_point(memory: Ledger, verdict: Verdict, on_card: bool = True) -> Point:
    """The fullest GPU against its card, as a bar, and how sure it fits.

    on_card : whether a tight verdict is so for the card's memory, not for the host's
    """
    words = fit_words(verdict, on_card)
    return memory_of(memory.peak_bytes, memory.usable_bytes, memory.headroom_bytes, words)


def fit_words(verdict: Verdict, on_card: bool = True) -> str:
    """What stands behind the memory: whether it is tight, how sure it fits, and whether a no is a close one."""
    tight = ", tight" if verdict.fits and verdict.margin == "tight" and on_card else ""
    close = f" ({CLOSE_WORDS})" if is_close(verdict) else ""
    chance = verdict.fit_probability
    return tight if chance is None else f"{tight}; probability that it fits {probability_words(chance)}{close}"


def memory_of(used_bytes: float, usable_bytes: float, free_bytes: float, further: str = "") -> Point:
    """What is used of a GPU's memory, as a bar."""
    of_usable = f" ({percent(free_bytes / usable_bytes)})" if usable_bytes else ""
    left = f"{gib(free_bytes)} GiB free{of_usable}" if free_bytes >= 0 else f"{gib(-free_bytes)} GiB missing"
    text = f"{gib(used_bytes)} of {gib(usable_bytes)} GiB per GPU, {left}{further}"
    return Point("Memory", text, used_bytes / usable_bytes if usable_bytes else None)


def host_point(
    needed_bytes: float,
    available_bytes: float | None,
    reserve_bytes: float,
    most_bytes: float | None = None,
    tight: bool = False,
) -> Iterator[Point]:
    """Host memory that a node needs for the job, with what its system keeps; nothing where it is next to none.

    most_bytes : that the server can be ordered with, where what it has is one configuration of several
    """
    if needed_bytes < GIB:
        return
    kept = f" + {whole(reserve_bytes / GIB)} for the system (assumed)" if reserve_bytes else ""
    needed = f"{gib(needed_bytes)}{kept}"
    order = f"{whole(math.ceil((needed_bytes + reserve_bytes) / GIB))} GiB or more"
    if available_bytes is None:
        text = f"{needed} GiB per node; how much it has is unknown, {order} will do"
    elif most_bytes is not None:
        text = f"{needed} of {gib(available_bytes)} GiB in the server's profile; order {order}"
    else:
        free_bytes = available_bytes - reserve_bytes - needed_bytes
        left = f"{gib(free_bytes)} GiB free" if free_bytes >= 0 else f"{gib(-free_bytes)} GiB missing"
        text = f"{needed} of {gib(available_bytes)} GiB per node, {left}{', tight' if tight else ''}"
    yield Point("Host memory", text)


def gpus_point(gpus: Gpus, more: str = "", kept: str = "", why_more: str = "") -> Point:
    """How many GPUs, in how many nodes, and the fewest that would do.

    kept : under which choices of the user's the fewest were looked for
    why_more : what a GPU has less of where there are more
    """
    least = gpus.minimum_that_fits
    offloading = " with offloading (slower: see plan)" if gpus.minimum_offloads else ""
    fewest = "" if least is None or least == gpus.count else f"; the fewest that fit{kept}: {least:,}{offloading}"
    if least is not None and least > gpus.count and why_more:
        fewest += f", as more GPUs leave each {why_more}"
    nodes = f" in {plural(gpus.nodes, 'node')}" if gpus.count > 1 else ""
    return Point("GPUs", f"{gpus.count:,}{nodes}{more}{fewest}", spare=1)


def limits_points(verdict: Verdict, currency: str | None) -> Iterator[Point]:
    """Every limit with what became of it, a line each: those that are missed first, then the least sure."""
    for place, limit in enumerate(sorted(verdict.limits, key=_doubtful)):
        spare = place + 1 if place or says_nothing(verdict, limit) else 0
        yield Point("" if place else "Limits", limit_words(verdict, limit, currency), spare=spare)


def _doubtful(limit: Limit) -> tuple[bool, float]:
    return limit.ok, 1.0 if limit.probability is None else limit.probability


def change_point(advice: tuple[Advice, ...]) -> Iterator[Point]:
    """The one thing to change, with its command; nothing where no change is worth a word."""
    for first in advice[:1]:
        effect = f": {clean(first.effect)}" if first.effect else ""
        yield Point("Change", f"{clean(first.change)}{effect}", command=clean(first.command))
