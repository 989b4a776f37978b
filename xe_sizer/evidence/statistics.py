"""Errors of many predictions in a few numbers: by group, and with every source weighted alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.result.accuracy import QUANTITIES, Confusion, Summary

if TYPE_CHECKING:
    from xe_sizer.result.accuracy import Prediction

ALL = "all"
WEIGHTED = "all (sources weighted alike)"
KINDS = ("stack", "job", "gpu", "metric", "source")


def summaries(predictions: Sequence[Prediction]) -> tuple[Summary, ...]:
    """Every quantity over all records, with sources weighted alike, and by stack, job, GPU, metric and source."""
    found = []
    for quantity in QUANTITIES:
        mine = [prediction for prediction in predictions if prediction.quantity == quantity]
        if not mine:
            continue
        found.append(_summary(ALL, quantity, mine))
        found.append(_summary(WEIGHTED, quantity, mine, source_weights([prediction.source for prediction in mine])))
        by_group: dict[str, list[Prediction]] = defaultdict(list)
        for prediction in mine:
            for group in prediction.groups:
                by_group[group].append(prediction)
        found += [_summary(group, quantity, by_group[group]) for group in sorted(by_group, key=_order)]
    return tuple(found)


def _order(group: str) -> tuple[int, str]:
    kind, _, name = group.partition(":")
    return (KINDS.index(kind), name)


def source_weights(sources: Sequence[str]) -> NDArray[np.float64]:
    """1 / (records of the same source): every source counts once [-]."""
    counts = Counter(sources)
    return np.array([1.0 / counts[source] for source in sources])


def _summary(
    group: str, quantity: str, predictions: Sequence[Prediction], weights: NDArray[np.float64] | None = None
) -> Summary:
    if quantity == "oom":
        return Summary(group=group, quantity=quantity, n=len(predictions), oom=_confusion(predictions))
    errors = np.array([(prediction.ratio or 0.0) - 1.0 for prediction in predictions])
    weights = np.ones(errors.size) if weights is None else weights
    return Summary(
        group=group,
        quantity=quantity,
        n=len(predictions),
        median_abs_error=weighted_quantile(np.abs(errors), weights, 0.5),
        p90_abs_error=weighted_quantile(np.abs(errors), weights, 0.9),
        bias=weighted_quantile(errors, weights, 0.5),
        interval_coverage=_coverage(predictions, weights),
    )


def weighted_quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """The value below which a share of the weight lies, linear between the weights' middles.

    With equal weights and an odd number of values the 0.5 quantile is their median.
    """
    order = np.argsort(values)
    ordered = weights[order]
    middles = (np.cumsum(ordered) - ordered / 2) / ordered.sum()
    return float(np.interp(share, middles, values[order]))


def _coverage(predictions: Sequence[Prediction], weights: NDArray[np.float64]) -> float | None:
    """Weighted share of measurements inside the predicted range; None where no range was predicted [-]."""
    inside = [
        (p.low <= p.measured <= p.high, weight)
        for p, weight in zip(predictions, weights, strict=True)
        if p.low is not None and p.high is not None
    ]
    total = sum(weight for _, weight in inside)
    return float(sum(weight for ok, weight in inside if ok) / total) if inside else None


def _confusion(predictions: Iterable[Prediction]) -> Confusion:
    counts = Counter((bool(p.predicted), bool(p.measured)) for p in predictions)
    return Confusion(
        true_fit=counts[False, False],
        true_oom=counts[True, True],
        false_fit=counts[False, True],
        false_oom=counts[True, False],
    )
