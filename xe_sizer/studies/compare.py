"""Results side by side, and where they differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.result.common import SCHEMA_VERSION, USERS_OWN
from xe_sizer.result.studies import (
    Alternative,
    Comparison,
    Difference,
)
from xe_sizer.scenario.provenance import collect
from xe_sizer.scenario.read import changed
from xe_sizer.scenario.scenario import Scenario, serves
from xe_sizer.scenario.schema import INFERENCE
from xe_sizer.studies.estimate import wing_of
from xe_sizer.studies.hardware import one_price

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.common import Sized

DIFFERENCES = 6
Estimated = Callable[["Scenario", "Registry"], "Sized"]


def on_equal_gpus(
    asked: Sequence[tuple[str, Scenario | Sized]], registry: Registry, estimate: Estimated
) -> list[tuple[str, Sized]]:
    """Every alternative estimated, or as it is; those that leave the GPUs open on as many as the others.

    That is the largest number that another alternative names, else the largest that one of them needs. Services are as
    they are asked: a load has the GPUs that it needs.

    estimate : the result of a scenario

    Raises
    ------
    InputError : every problem of every alternative
    """
    problems: list[Problem] = []
    asked = _of_one_kind(asked)
    results = {place: one for place, (_, one) in enumerate(asked) if not isinstance(one, Scenario)}
    scenarios = {place: one for place, (_, one) in enumerate(asked) if isinstance(one, Scenario)}
    even = {place: one for place, one in scenarios.items() if wing_of(one).evens}
    open_ = [place for place, one in even.items() if one.values.gpus is None and one.values.nodes is None]
    needed = {place: collect(problems, gpus_needed, one, registry) for place, one in even.items()}
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


def _of_one_kind(asked: Sequence[tuple[str, Scenario | Sized]]) -> list[tuple[str, Scenario | Sized]]:
    """Services all, where one is a service and the others name no job. Raises InputError: some are jobs."""
    kinds = [_serves(one) for _, one in asked]
    if not any(kinds):
        return list(asked)
    found: list[tuple[str, Scenario | Sized]] = []
    problems: list[Problem] = []
    for (name, one), is_service in zip(asked, kinds, strict=True):
        if not is_service and isinstance(one, Scenario) and one.values.job is None:
            found.append((name, changed(one, {"job": INFERENCE})))
        elif is_service:
            found.append((name, one))
        else:
            hint = "compare jobs with jobs, and services with services"
            problems.append(Problem("this is a job that trains, and others are services", Location(name), hint))
    if problems:
        raise InputError(problems)
    return found


def _serves(one: Scenario | Sized) -> bool:
    return serves(one) if isinstance(one, Scenario) else one.scenario.get("job") == INFERENCE


def gpus_needed(scenario: Scenario, registry: Registry) -> int:
    """The GPUs that a scenario names, or needs. Raises InputError."""
    wing = wing_of(scenario)
    resolved = wing.resolve(scenario, registry)
    gpus: int | None = resolved.gpus
    return gpus or wing.size(resolved).gpus


def _estimated(scenario: Scenario, gpus: int | None, registry: Registry, estimate: Estimated) -> Sized:
    """A scenario on so many GPUs where they are said, as it is where it cannot run on those."""
    if gpus is not None:
        try:
            return estimate(changed(scenario, {"gpus": gpus}), registry)
        except InputError:
            pass
    return estimate(scenario, registry)


def compare(alternatives: Sequence[tuple[str, Sized]], asked: Sequence[Scenario | Sized] = ()) -> Comparison:
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


def _prices(asked: Sequence[Scenario | Sized], entries: Sequence[Alternative]) -> Iterator[str]:
    """Warnings where one price of the user's is charged for GPUs of several kinds, or prices are of several kinds."""
    kinds = {(entry.result.scenario.get("names") or {}).get("gpu") for entry in entries}
    if len(kinds) > 1:
        yield from dict.fromkeys(text for one in asked if isinstance(one, Scenario) for text in one_price(one))
    priced = [entry.result.hourly_prices[0] for entry in entries]
    terms = sorted({price.kind or "kind unknown" for price in priced if price and price.kind not in USERS_OWN})
    if len(terms) > 1:
        yield f"prices of different kinds do not compare: {', '.join(terms)}"


def _differences(entries: Sequence[Alternative]) -> Iterator[Difference]:
    """Parts of the time, those with the widest spread over it first: over what fits, where two or more do."""
    each = [entry.result.parts_s for entry in entries]
    fitting = [place for place, entry in enumerate(entries) if entry.result.verdict.fits]
    places = fitting if len(fitting) > 1 else range(len(entries))
    widths: dict[str, float] = {}
    spread: dict[str, tuple[float, ...]] = {}
    for kind in dict.fromkeys(kind for parts in each for kind in parts):
        of_kind = [parts.get(kind, {}) for parts in each]
        longest = max(sum(of_kind[place].values()) for place in places) or 1.0
        for part in dict.fromkeys(name for parts in of_kind for name in parts):
            seconds = tuple(parts.get(part, 0.0) for parts in of_kind)
            reach = [seconds[place] for place in places]
            name = f"{kind}: {part}" if kind else part
            spread[name], widths[name] = seconds, (max(reach) - min(reach)) / longest
    for name in sorted(spread, key=lambda name: -widths[name])[:DIFFERENCES]:
        yield Difference(name=name, total_s=spread[name])
