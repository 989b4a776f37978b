"""The foot of a report: assumptions, prices, and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.report.blocks import scenario_values
from xe_sizer.report.document import Fact, Foot
from xe_sizer.report.format import amount, clean
from xe_sizer.report.verdict import profile_name
from xe_sizer.result.serving import ServeResult
from xe_sizer.result.studies import Comparison, PlanResult
from xe_sizer.result.training import Result

if TYPE_CHECKING:
    from xe_sizer.result.common import Answer

ASSUMED = ("stack", "default")  # origins of what nobody gave


def foot_of(answer: Answer) -> Foot:
    """What stands below any answer."""
    written = answer.written
    version = getattr(answer, "tool_version", "") or (written.tool_version if written else "")
    return Foot(
        assumptions=tuple(_assumed(_scenarios(answer))),
        prices=tuple(Fact(gpu, price) for gpu, price in dict.fromkeys(_prices(answer))),
        command=clean(written.command) if written else "",
        version=clean(f"xe-sizer {version}") if version else "xe-sizer",
        date=clean(written.date) if written else "",
    )


def _scenarios(answer: Answer) -> Sequence[Mapping[str, Any]]:
    """The resolved scenarios that it is about."""
    if isinstance(answer, Comparison):
        return [one.result.scenario for one in answer.alternatives]
    scenario = getattr(answer, "scenario", None)
    return [scenario] if scenario else []


def _assumed(scenarios: Sequence[Mapping[str, Any]]) -> Iterator[Fact]:
    """Keys that nobody gave, and their values; of several scenarios what they have in common."""
    assumed = [
        {fact.label: fact for fact in scenario_values(scenario) if fact.origin in ASSUMED} for scenario in scenarios
    ]
    for key, fact in assumed[0].items() if assumed else ():
        if all(key in other and other[key].value == fact.value for other in assumed):
            yield fact


def _prices(answer: Answer) -> Iterator[tuple[str, str]]:
    """What an hour of each kind of GPU costs, as the answer was priced."""
    if isinstance(answer, Result):
        yield from _of_result(answer)
    elif isinstance(answer, Comparison):
        for one in answer.alternatives:
            yield from _of_result(one.result)
    elif isinstance(answer, ServeResult) and answer.cost.per_hour is not None and answer.gpus.count:
        yield _price(profile_name(answer, "gpu"), answer.cost.per_hour / answer.gpus.count, answer.cost.currency)
    elif isinstance(answer, PlanResult):
        for each in answer.candidates:
            if each.price is not None and each.gpu_hours > 0:
                yield _price(each.gpu, each.price / each.gpu_hours, each.currency)


def _of_result(result: Result) -> Iterator[tuple[str, str]]:
    price, hours = result.cost.price, result.cost.gpu_hours.expected
    if price is not None and hours > 0:
        yield _price(profile_name(result, "gpu"), price.expected / hours, price.currency)


def _price(gpu: str, per_hour: float, currency: str | None) -> tuple[str, str]:
    return clean(gpu), f"{amount(per_hour)} {clean(currency or '')} an hour".replace("  ", " ")
