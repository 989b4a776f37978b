"""What an answer supposes because nobody gave it, in words for the first screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xe_sizer.report.format import number, plural
from xe_sizer.report.iterations import round_noun

ASSUMED = "default"  # origin of a value that neither the user nor the stack gave


def assumed_run(scenario: Mapping[str, Any]) -> str:
    """How long the run is where nobody said it: `for 1,000 steps, assumed: no data was given`; else empty.

    A time, a price and the limits on them mean as much as that.
    """
    origin, train = scenario.get("origin") or {}, scenario.get("train") or {}
    if origin.get("train.steps") == ASSUMED and "steps" in train:
        return f"for {plural(train['steps'], round_noun(scenario))}, assumed: no data was given"
    if origin.get("train.epochs") == ASSUMED and "epochs" in train:
        return f"for {number(train['epochs'])} epoch, assumed"
    return ""
