"""Errors of many predictions in a few numbers: by group, and with every source weighted alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xe_sizer.result.accuracy import QUANTITIES, Confusion, FixedEfficiency, Summary
from xe_sizer.result.common import DOES_NOT_FIT, FITS

if TYPE_CHECKING:
    from xe_sizer.result.accuracy import Prediction

ALL = "all"
WEIGHTED = "all (sources weighted alike)"
GUESSED = "guessed"
KINDS = ("stratum", "stack", "job", "gpu", "metric", "phase", "source")
TRIED = 400  # constants of the rule, evenly in the logarithm from the least to the largest share of the peak
LEAST_RUNS = 4  # of fewer, the best constant says nothing


def summaries(predictions: Sequence[Prediction]) -> tuple[Summary, ...]:
    """Every quantity over all records that are known, and by stack, job, GPU, metric, phase and source; guesses apart.

    Sources are weighted alike, except in the group `all`.
    """
    found: list[Summary] = []
    for quantity in QUANTITIES:
        mine = [one for one in predictions if one.quantity == quantity and not one.guessed]
        guessed = [one for one in predictions if one.quantity == quantity and one.guessed]
        if mine:
            found += _of_known(quantity, mine)
        if guessed:
            found.append(_summary(GUESSED, quantity, guessed, _weights(guessed)))
    return tuple(found)


def _of_known(quantity: str, mine: Sequence[Prediction]) -> Iterator[Summary]:
    yield _summary(ALL, quantity, mine, np.ones(len(mine)))
    yield _summary(WEIGHTED, quantity, mine, _weights(mine))
    by_group: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in mine:
        for group in prediction.groups:
            by_group[group].append(prediction)
    for group in sorted(by_group, key=_order):
        yield _summary(group, quantity, by_group[group], _weights(by_group[group]))


def _weights(predictions: Iterable[Prediction]) -> NDArray[np.float64]:
    return source_weights([prediction.source for prediction in predictions])


def _order(group: str) -> tuple[int, str]:
    kind, _, name = group.partition(":")
    return (KINDS.index(kind), name)


def source_weights(sources: Sequence[str]) -> NDArray[np.float64]:
    """1 / (records of the same source): every source counts once [-]."""
    counts = Counter(sources)
    return np.array([1.0 / counts[source] for source in sources])


def cluster_weights(sources: Sequence[str], alike: float) -> NDArray[np.float64]:
    """Weight of each record where those of a source are correlated by `alike` [-].

        w = 1 / (1 + (n - 1) r)    with n records of the source

    1 makes every source count once, 0 every record.

    Source: design effect of clusters, L. Kish, Survey Sampling (1965), section 5.4.
    """
    counts = Counter(sources)
    return np.array([1.0 / (1.0 + (counts[source] - 1) * alike) for source in sources])


def _summary(group: str, quantity: str, predictions: Sequence[Prediction], weights: NDArray[np.float64]) -> Summary:
    publications = len({prediction.source for prediction in predictions})
    if quantity == "oom":
        counts = _confusion(predictions)
        return Summary(group=group, quantity=quantity, n=len(predictions), publications=publications, oom=counts)
    errors = np.array([(prediction.ratio or 0.0) - 1.0 for prediction in predictions])
    median = weighted_quantile(np.abs(errors), weights, 0.5)
    return Summary(
        group=group,
        quantity=quantity,
        n=len(predictions),
        publications=publications,
        median_abs_error=median,
        p90_abs_error=weighted_quantile(np.abs(errors), weights, 0.9),
        bias=weighted_quantile(errors, weights, 0.5),
        interval_coverage=_coverage(predictions, weights),
        fixed_efficiency=_fixed_efficiency(predictions, weights, median),
    )


def _fixed_efficiency(
    predictions: Sequence[Prediction], weights: NDArray[np.float64], median_error: float
) -> FixedEfficiency | None:
    """The rule on the same runs; None where some are no times of training, or few."""
    seconds = [prediction.at_peak_s for prediction in predictions if prediction.at_peak_s]
    if len(predictions) < LEAST_RUNS or len(seconds) < len(predictions):
        return None
    shares = np.array(seconds) / np.array([float(prediction.measured) for prediction in predictions])
    return best_fixed_efficiency(shares, weights, median_error)


def best_fixed_efficiency(
    shares: NDArray[np.float64], weights: NDArray[np.float64], median_error: float
) -> FixedEfficiency:
    """The rule t = seconds at peak / c with the constant that does best on the very runs that it is judged on.

        c = argmin over c of the weighted median of |share / c - 1|,   share = seconds at peak / measured seconds

    Parameters
    ----------
    shares : of the peak that each run reached, shape (run,) [-]
    weights : of the runs, shape (run,) [-]
    median_error : of the predictions of the same runs [-]

    Returns
    -------
    FixedEfficiency

    Source: definition. The constant has seen the runs, so that the rule is shown better than it is.
    """
    tried = np.geomspace(shares.min(), shares.max(), TRIED)
    errors = [weighted_quantile(np.abs(shares / constant - 1.0), weights, 0.5) for constant in tried]
    best = float(tried[int(np.argmin(errors))])
    found = np.abs(shares / best - 1.0)
    middle, high = (weighted_quantile(found, weights, share) for share in (0.5, 0.9))
    return FixedEfficiency(efficiency=best, median_abs_error=middle, p90_abs_error=high, gain=middle - median_error)


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


def _confusion(predictions: Sequence[Prediction]) -> Confusion:
    counts = Counter((bool(p.predicted), bool(p.measured)) for p in predictions)
    words = Counter((p.memory, bool(p.measured)) for p in predictions)
    return Confusion(
        true_fit=counts[False, False],
        true_oom=counts[True, True],
        false_fit=counts[False, True],
        false_oom=counts[True, False],
        said_to_fit=words[FITS, True] + words[FITS, False],
        failed=words[FITS, True],
        said_not_to_fit=words[DOES_NOT_FIT, True] + words[DOES_NOT_FIT, False],
        ran=words[DOES_NOT_FIT, False],
    )
