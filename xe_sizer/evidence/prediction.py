"""One prediction beside what was measured, in the form that validation reports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.result.accuracy import Prediction

if TYPE_CHECKING:
    from xe_sizer.errors import InputError
    from xe_sizer.evidence.records import Record


def prediction_of(
    record: Record, quantity: str, measured: float, predicted: float, assumed: tuple[str, ...],
    span: tuple[float, float] | None, groups: tuple[str, ...] = (), guessed: bool = False,
    at_peak_s: float | None = None,
) -> Prediction:  # fmt: skip
    low, high = span or (None, None)
    return Prediction(
        id=record.id,
        quantity=quantity,
        measured=measured,
        predicted=predicted,
        ratio=predicted / measured,
        low=low,
        high=high,
        assumed=assumed,
        groups=(*groups_of(record), *groups),
        guessed=guessed,
        at_peak_s=at_peak_s,
    )


def groups_of(record: Record) -> tuple[str, ...]:
    return (
        f"stack:{record.stack or 'unstated'}",
        f"job:{record.job}",
        f"gpu:{record.gpu or 'unstated'}",
        f"source:{record.title}",
    )


def oom_prediction(
    record: Record, measured: bool, fits: bool, assumed: tuple[str, ...], guessed: bool = False
) -> Prediction:
    """Whether a run goes out of memory, beside whether it did."""
    return Prediction(
        id=record.id,
        quantity="oom",
        measured=measured,
        predicted=not fits,
        assumed=assumed,
        groups=groups_of(record),
        guessed=guessed,
    )


def reason_of(error: InputError) -> str:
    return re.sub(r"\s+", " ", "; ".join(problem.message for problem in error.problems)) or "cannot be predicted"
