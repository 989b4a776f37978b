"""A scenario of inference to its result: the conductor beside `estimate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from xe_sizer.choices import collect, with_further
from xe_sizer.errors import Problem
from xe_sizer.profiles.registry import Registry
from xe_sizer.result import with_advice
from xe_sizer.scenario.scenario import Given
from xe_sizer.serve_result import ServeResult
from xe_sizer.service.advice import advise
from xe_sizer.service.fleet import fleet, one_price, option, pareto
from xe_sizer.service.question import resolve_serving
from xe_sizer.service.summary import summarise


def serve(
    given: Given, registry: Registry, hardware: Sequence[Mapping[str, object]] = ({},), front: bool = False
) -> ServeResult:
    """Size one service, on the best of the kinds of hardware.

    hardware : keys (`gpu` or `server`) that name each kind, {} for the scenario's own
    front : with the ways to run a replica that nothing beats

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    found = fleet(given, registry, hardware)
    served = found.chosen
    result = summarise(served)
    if len(hardware) > 1:
        compared = tuple(option(one) for one in found.answers)
        warnings = (*result.warnings, *one_price(given))
        result = msgspec.structs.replace(result, fleet=compared, left_out=found.left_out, warnings=warnings)
    if front:
        result = msgspec.structs.replace(result, pareto=pareto(served.question))
    return with_advice(result, result.verdict, advise(served, registry))


def with_further_problems(problems: Iterable[Problem], rest: Given, registry: Registry) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model, hardware and engine have against the rest of it."""
    further: list[Problem] = []
    collect(further, resolve_serving, rest, registry)
    return with_further(problems, further, rest)
