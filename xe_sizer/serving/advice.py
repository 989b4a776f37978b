"""What to change about a service: what mends it, the nearest load and limits that it keeps, what makes it cheaper."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.result.common import CERTAINTIES, SURE, certainty_of
from xe_sizer.scenario.read import together
from xe_sizer.scenario.trials import MOST_ADVICE, Option, Trials, advice_of
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.fitting import what_fits
from xe_sizer.serving.remedies import (
    TO_FIT,
    TO_GAIN,
    TO_MEET_LIMITS,
    less_load,
    looser_limits,
    narrower_cache,
    narrower_weights,
    same_certainty,
    wider_limits,
)
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.resolved import LONGEST_S
from xe_sizer.units import rounded, three_digits

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.result.common import Advice
    from xe_sizer.scenario.read import Change
    from xe_sizer.scenario.trials import Remedy

MOST_GAINS = 2
MUCH_FEWER = 0.5  # GPUs with a limit a little wider, against those with the limit as it was asked
WORTH_SAYING = 0.95  # GPUs for a unit of load, against those of the service as it was asked

Options = list[Option[ServingEstimate]]
Serving = Trials[ServingEstimate]


def advise(estimate: ServingEstimate, registry: Registry, most: int = MOST_ADVICE) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first; each was sized again.

    most : 1 for the first of them alone, which takes fewer trials, 0 for none
    """
    if not most:
        return ()
    trials = Trials(
        before=estimate,
        given=estimate.resolved.given,
        registry=registry,
        size=lambda given: estimate.size(resolve(given, registry)),
        mends=lambda one: one.ok,
    )
    gains = estimate.ok
    options = [*_gains(trials)[:MOST_GAINS], *_cheaper_limit(trials)] if gains else _mended(trials, most)
    return advice_of(trials, options[:most], "serve", lambda option: _effect(estimate, option, gains))


def _mended(trials: Serving, most: int) -> Options:
    """What turns the no into a yes, the mildest of each remedy; else what at least fits."""
    before, limits = trials.before, trials.before.resolved.limits
    if before.fits and limits.max_cost_per_million_tokens is not None and before.cost is None:
        return []  # nothing can be said about a price that nobody knows
    found: Options = []
    for remedy in TO_MEET_LIMITS if before.fits else TO_FIT:
        if len(found) < most:
            found += _first(trials, remedy)
    if not before.fits and all("gpus" in option.change.values for option in found):
        found += _less_and_narrower(trials)
    return found or ([] if before.fits else list(_fitting(trials)))


def _first(trials: Serving, remedy: Remedy[ServingEstimate]) -> Options:
    """The mildest of one remedy's changes with which the answer is yes."""
    kept = trials.kept(remedy.changes(trials.before, trials.registry))
    if remedy.changes is not wider_limits or trials.before.resolved.gpus is not None:
        return _one_of(kept)
    return sorted(kept, key=lambda option: option.after.gpus * _widening(trials.before, option.change))[:1]


def _widening(before: ServingEstimate, change: Change) -> float:
    """Times a limit that a change makes wider: a limit twice as wide is worth half of the GPUs [-]."""
    limits = {f"limits.{name}": getattr(before.resolved.limits, name) for name in LONGEST_S}
    return max(float(str(value)) / float(limits[key]) for key, value in change.values.items() if key in limits)


def _one_of(options: Iterable[Option[ServingEstimate]]) -> Options:
    first = next(iter(options), None)
    return [] if first is None else [first]


def _less_and_narrower(trials: Serving) -> Options:
    """What the GPUs that are there take with the narrowest weights and cache that they need."""
    formats = [*narrower_weights(trials.before), *narrower_cache(trials.before)]
    found: Options = []
    for change in (*formats, *([together(formats[-2:])] if len(formats) > 1 else ())):
        after = trials.estimate(change)
        if after is not None and after.fits:
            found += _one_of(trials.kept(together([change, fewer]) for fewer in less_load(after)))
    return sorted(found, key=lambda option: -option.after.requests_per_s)[:1]


def _fitting(trials: Serving) -> Iterator[Option[ServingEstimate]]:
    """Changes that fit and still miss a limit, the mildest of each remedy."""
    for remedy in TO_FIT:
        changes = remedy.changes(trials.before, trials.registry)
        yield from _one_of(trials.kept(changes, lambda after: after.fits))


def _gains(trials: Serving) -> Options:
    """Changes that serve the same with fewer GPUs, or more on the same."""
    changes: list[Change] = [change for remedy in TO_GAIN for change in remedy.changes(trials.before, trials.registry)]
    most = WORTH_SAYING * _gpus_per_load(trials.before)
    better = [option for option in trials.kept(changes) if _gpus_per_load(option.after) <= most]
    risky = [option.change for option in better if _less_sure(trials.before, option.after)]
    safer = [
        together([change, *same_certainty(trials.before)]) for change in risky if any(same_certainty(trials.before))
    ]
    better += [option for option in trials.kept(safer) if _gpus_per_load(option.after) <= most]
    return sorted(
        better,
        key=lambda option: (
            _less_sure(trials.before, option.after), _gpus_per_load(option.after), option.change.effort
        ),
    )  # fmt: skip


def _cheaper_limit(trials: Serving) -> Options:
    """The limit that costs most of the GPUs, as little wider as takes less than half of them."""
    before = trials.before
    if before.resolved.load in (None, "batch") or before.resolved.gpus is not None:
        return []
    kept = trials.kept(looser_limits(before))
    return _one_of(option for option in kept if option.after.gpus < MUCH_FEWER * before.gpus)


def _less_sure(before: ServingEstimate, after: ServingEstimate) -> bool:
    """Whether a limit is less sure after a change than the least sure one before, unless it is sure all the same."""
    now, then = before.least_sure, after.least_sure
    if before.confidence is not None or now is None or then is None:
        return False
    return then < min(now, CERTAINTIES[SURE])


def _gpus_per_load(sized: ServingEstimate) -> float:
    """GPUs for a unit of the load that is asked, or for a request per second that can be taken."""
    if sized.resolved.fit is not None:
        return sized.gpus / what_fits(sized)[0]
    if sized.resolved.load not in (None, "batch") and sized.resolved.gpus is None:
        return sized.gpus / sized.resolved.amount
    rate = sized.most_per_s if sized.resolved.load == "request_rate" else 0.0
    return sized.gpus / max(rate or sized.requests_per_s, 1e-12)


def _effect(before: ServingEstimate, option: Option[ServingEstimate], gains: bool) -> str:
    """GPUs, latencies at the percentile of the limits, what is taken against before, and what is still missed."""
    after = option.after
    replicas, size_ = after.replicas, int(after.placement.gpus[0])
    words = f"{replicas} replica{'s' if replicas > 1 else ''} of {size_} GPU{'s' if size_ > 1 else ''}"
    if prefills := after.choice.prefills:
        words = f"{prefills.replicas} prefill of {prefills.placement.gpus[0]} + {replicas} decode of {size_} GPUs"
    if before.fits and after.gpus != before.gpus and "gpus" not in option.change.values:
        words = f"{after.gpus} instead of {before.gpus} GPUs ({words})"
    if gains and before.resolved.fit is not None:
        most, unit = what_fits(after)
        return f"{most:,.0f} instead of {what_fits(before)[0]:,.0f} {unit} ({words})"
    words += f", {_time(after.ttft_s)} to the first token (TTFT)"
    words += f", {_time(after.tpot_s)} per token (TPOT)" if after.tpot_s else ""
    if after.resolved.load == "request_rate":
        words += f", up to {rounded(after.most_per_s, down=True):g} requests/s"
        words += f" instead of {rounded(before.most_per_s, down=True):g}" if gains else ""
    else:
        words += f", {after.taken_per_s * after.resolved.traffic.outputs:,.0f} output tokens/s in all"
        more = gains and after.gpus == before.gpus
        words += f" instead of {before.requests_per_s * before.resolved.traffic.outputs:,.0f}" if more else ""
    words += _certainty(before, after)
    missed = [limit.name for limit in after.limits if not limit.ok]
    return f"{words}; still misses {', '.join(missed)}" if missed else words


def _certainty(before: ServingEstimate, after: ServingEstimate) -> str:
    """How sure the least sure limit on latency is met, where it is not sure: `; met, unsure: 50 %, now 65 %`."""
    then, now = after.least_sure, before.least_sure
    if then is None or not after.keeps_limits or certainty_of(then) == SURE:
        return ""
    known = f", now {100 * now:.0f} %" if before.ok and now is not None else ""
    return f"; met, {certainty_of(then)}: {100 * then:.0f} %{known}"


def _time(seconds: float) -> str:
    """A latency as people read it; where more arrives than is taken, nothing bounds it."""
    if math.isinf(seconds):
        return "unbounded time"
    return f"{three_digits(1e3 * seconds)} ms" if seconds < 0.9995 else f"{three_digits(seconds)} s"
