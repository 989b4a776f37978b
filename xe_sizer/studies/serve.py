"""A scenario of inference to its result: the conductor beside `estimate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from xe_sizer.profiles.registry import Registry
from xe_sizer.result.common import with_advice
from xe_sizer.result.serving import ServeResult
from xe_sizer.scenario.read import Given
from xe_sizer.scenario.trials import MOST_ADVICE
from xe_sizer.serving.advice import advise
from xe_sizer.serving.summary import summarise
from xe_sizer.studies.fleet import fleet, one_price, option, pareto


def serve(
    given: Given,
    registry: Registry,
    hardware: Sequence[Mapping[str, object]] = ({},),
    front: bool = False,
    details: bool = True,
) -> ServeResult:
    """Size one service, on the best of the kinds of hardware.

    hardware : keys (`gpu` or `server`) that name each kind, {} for the scenario's own
    front : with the ways to run a replica that nothing beats
    details : False for the verdict alone, with the one change that mends a no

    Raises
    ------
    InputError : what the user can mend, all at once
    """
    found = fleet(given, registry, hardware)
    sized = found.chosen
    result = summarise(sized, details)
    if len(hardware) > 1:
        compared = tuple(option(one) for one in found.answers)
        warnings = (*result.warnings, *one_price(given))
        result = msgspec.structs.replace(result, fleet=compared, left_out=found.left_out, warnings=warnings)
    if front:
        result = msgspec.structs.replace(result, pareto=pareto(sized.resolved))
    advice = advise(sized, registry, MOST_ADVICE if details else 1) if details or not sized.ok else ()
    return with_advice(result, result.verdict, advice)
