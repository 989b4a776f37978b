"""Results side by side, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.result.common import SCHEMA_VERSION, USERS_OWN
from xe_sizer.result.studies import (
    Alternative,
    Comparison,
    Difference,
)
from xe_sizer.result.training import Result
from xe_sizer.scenario.provenance import collect
from xe_sizer.scenario.read import changed
from xe_sizer.studies.estimate import job_wing
from xe_sizer.studies.hardware import one_price

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.scenario.scenario import Scenario

DIFFERENCES = 6
Estimated = Callable[["Scenario", "Registry"], Result]


def on_equal_gpus(
    asked: Sequence[tuple[str, Scenario | Result]], registry: Registry, estimate: Estimated
) -> list[tuple[str, Result]]:
    """Every alternative estimated, or as it is; those that leave the GPUs open on as many as the others.

    That is the largest number that another alternative names, else the largest that one of them needs.

    estimate : the result of a scenario

    Raises
    ------
    InputError : every problem of every alternative
    """
    problems: list[Problem] = []
    results = {place: one for place, (_, one) in enumerate(asked) if isinstance(one, Result)}
    scenarios = {place: one for place, (_, one) in enumerate(asked) if not isinstance(one, Result)}
    open_ = [place for place, one in scenarios.items() if one.values.gpus is None and one.values.nodes is None]
    needed = {place: collect(problems, gpus_needed, one, registry) for place, one in scenarios.items()}
    needed |= {place: one.gpus.count for place, one in results.items()}
    named = [count for place, count in needed.items() if count and place not in open_]
    gpus = max(named or [count for count in needed.values() if count], default=None)
    for place, scenario in scenarios.items() if not problems else ():
        on_gpus = gpus if place in open_ else None
        if (result := collect(problems, _estimated, scenario, on_gpus, registry, estimate)) is not None:
            results[place] = result
    if problems:
        raise InputError(list(dict.fromkeys(problems)))
    return [(name, results[place]) for place, (name, _) in enumerate(asked)]


def gpus_needed(scenario: Scenario, registry: Registry) -> int:
    """The GPUs that a scenario names, or needs. Raises InputError."""
    wing = job_wing(scenario)
    resolved = wing.resolve(scenario, registry)
    gpus: int | None = resolved.gpus
    return gpus or wing.size(resolved).gpus


def _estimated(scenario: Scenario, gpus: int | None, registry: Registry, estimate: Estimated) -> Result:
    """A scenario on so many GPUs where they are said, as it is where it cannot run on those."""
    if gpus is not None:
        try:
            return estimate(changed(scenario, {"gpus": gpus}), registry)
        except InputError:
            pass
    return estimate(scenario, registry)


def compare(alternatives: Sequence[tuple[str, Result]], asked: Sequence[Scenario | Result] = ()) -> Comparison:
    """Results side by side, and the parts of a step in which they differ most from the first.

    asked : the scenarios of the results, for what to warn of
    """
    entries = tuple(Alternative(name=name, result=result) for name, result in alternatives)
    return Comparison(
        schema_version=SCHEMA_VERSION,
        alternatives=entries,
        differences=tuple(_differences(entries)),
        warnings=tuple(_prices(asked, entries)),
    )


def _prices(asked: Sequence[Scenario | Result], entries: Sequence[Alternative]) -> Iterator[str]:
    """Warnings where one price of the user's is charged for GPUs of several kinds, or prices are of several kinds."""
    kinds = {(entry.result.scenario.get("names") or {}).get("gpu") for entry in entries}
    if len(kinds) > 1:
        yield from dict.fromkeys(text for one in asked if not isinstance(one, Result) for text in one_price(one))
    priced = [entry.result.cost.hourly_price for entry in entries if entry.result.cost.hourly_price is not None]
    terms = sorted({price.kind or "kind unknown" for price in priced if price.kind not in USERS_OWN})
    if len(terms) > 1:
        yield f"prices of different kinds do not compare: {', '.join(terms)}"


def _differences(entries: Sequence[Alternative]) -> Iterator[Difference]:
    """Parts of the whole job's time, those with the widest spread first: over what fits, where two or more do."""
    totals = [
        {part.name: part.seconds * entry.result.time.steps for part in entry.result.time.components}
        for entry in entries
    ]
    names = list(dict.fromkeys(name for parts in totals for name in parts))
    spread = {name: [parts.get(name, 0.0) for parts in totals] for name in names}
    fitting = [place for place, entry in enumerate(entries) if entry.result.verdict.fits]
    places = fitting if len(fitting) > 1 else range(len(entries))
    reach = {name: [seconds[place] for place in places] for name, seconds in spread.items()}
    widest = sorted(names, key=lambda name: min(reach[name]) - max(reach[name]))
    for name in widest[:DIFFERENCES]:
        yield Difference(name=name, total_s=tuple(spread[name]))
