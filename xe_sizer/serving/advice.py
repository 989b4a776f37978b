"""What to change about a service: what mends it, the nearest load and limits that it keeps, what makes it cheaper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from xe_sizer.errors import InputError
from xe_sizer.profiles.registry import Registry
from xe_sizer.result.common import Advice
from xe_sizer.scenario.change import Change, changed, command, together
from xe_sizer.serving.remedies import (
    Lever,
    less_load,
    memory_share,
    more_gpus,
    narrower_cache,
    narrower_weights,
    placement,
    shorter_prompts,
    wider_limits,
)
from xe_sizer.serving.resolve import resolve_serving
from xe_sizer.serving.sizing import ServingEstimate, size
from xe_sizer.serving.summary import judged, meets, summarise
from xe_sizer.units import rounded

MOST_ADVICE = 5
MOST_GAINS = 2
WORTH_SAYING = 0.95  # GPUs for a unit of load, against those of the service as it was asked
TO_FIT: tuple[Lever, ...] = (
    memory_share, narrower_weights, narrower_cache, placement, more_gpus, less_load, shorter_prompts,
)  # fmt: skip
TO_MEET_LIMITS: tuple[Lever, ...] = (
    placement, memory_share, narrower_weights, narrower_cache, more_gpus, less_load, wider_limits,
)  # fmt: skip
TO_GAIN: tuple[Lever, ...] = (placement, narrower_weights, narrower_cache)


@dataclass(frozen=True, eq=False)
class Option:
    """A change that was sized, with what it comes to."""

    change: Change
    after: ServingEstimate


def advise(sized: ServingEstimate, registry: Registry) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first; each was sized again."""
    given = sized.resolved.given
    gains = meets(sized)
    options = _gains(sized, registry)[:MOST_GAINS] if gains else _mended(sized, registry)[:MOST_ADVICE]
    return tuple(
        Advice(
            change=option.change.words,
            effect=_effect(sized, option, gains),
            command=command(given, option.change.values, registry.user_folders, "serve"),
        )
        for option in options
    )


def _mended(sized: ServingEstimate, registry: Registry) -> list[Option]:
    """What turns the no into a yes, the mildest of each lever; else what at least fits."""
    limits = sized.resolved.given.values.limits
    if sized.fits and limits.max_cost_per_million_tokens is not None and sized.cost_per_hour is None:
        return []  # nothing can be said about a price that nobody knows
    levers = TO_MEET_LIMITS if sized.fits else TO_FIT
    found = [option for lever in levers for option in _first(sized, registry, lever(sized))]
    if not sized.fits and all("gpus" in option.change.values for option in found):
        found += _less_and_narrower(sized, registry)
    return found or ([] if sized.fits else list(_fitting(sized, registry)))


def _less_and_narrower(sized: ServingEstimate, registry: Registry) -> list[Option]:
    """What the GPUs that are there take with the narrowest weights and cache that they need."""
    formats = [*narrower_weights(sized), *narrower_cache(sized)]
    found: list[Option] = []
    for change in (*formats, *([together(formats[-2:])] if len(formats) > 1 else ())):
        after = _answer(sized, registry, change)
        if after is not None and after.fits:
            found += _first(sized, registry, [together([change, fewer]) for fewer in less_load(after)])
    return sorted(found, key=lambda option: -option.after.requests_per_s)[:1]


def _first(sized: ServingEstimate, registry: Registry, changes: Iterable[Change]) -> list[Option]:
    """The mildest of one lever's changes with which the answer is yes."""
    tried = ((change, _answer(sized, registry, change)) for change in changes)
    return next(([Option(change, after)] for change, after in tried if after is not None and meets(after)), [])


def _fitting(sized: ServingEstimate, registry: Registry) -> Iterator[Option]:
    """Changes that fit and still miss a limit, the mildest of each lever."""
    for lever in TO_FIT:
        tried = ((change, _answer(sized, registry, change)) for change in lever(sized))
        yield from next(([Option(change, after)] for change, after in tried if after and after.fits), [])


def _gains(sized: ServingEstimate, registry: Registry) -> list[Option]:
    """Changes that serve the same with fewer GPUs, or more on the same."""
    tried = ((change, _answer(sized, registry, change)) for lever in TO_GAIN for change in lever(sized))
    kept = [Option(change, after) for change, after in tried if after is not None and meets(after)]
    better = [option for option in kept if _gpus_per_load(option.after) <= WORTH_SAYING * _gpus_per_load(sized)]
    return sorted(better, key=lambda option: (_gpus_per_load(option.after), option.change.cost))


def _answer(sized: ServingEstimate, registry: Registry, change: Change) -> ServingEstimate | None:
    """The changed question sized; None where the change is not legal."""
    try:
        return size(resolve_serving(changed(sized.resolved.given, change.values), registry))
    except InputError:
        return None


def _gpus_per_load(sized: ServingEstimate) -> float:
    """GPUs for a request per second, of what is asked or can be taken [GPU s]."""
    if sized.resolved.load == "request_rate" and sized.resolved.gpus is None:
        return sized.gpus / sized.resolved.amount
    rate = sized.top_rate * sized.working_replicas if sized.resolved.load == "request_rate" else 0.0
    return sized.gpus / max(rate or sized.requests_per_s, 1e-12)


def _effect(before: ServingEstimate, option: Option, gains: bool) -> str:
    """GPUs, latencies at the percentile of the limits, what is taken against before, and what is still missed."""
    after, result = option.after, summarise(option.after)
    replicas, size_ = after.replicas, int(after.placement.gpus[0])
    words = f"{replicas} replica{'s' if replicas > 1 else ''} of {size_} GPU{'s' if size_ > 1 else ''}"
    if before.fits and after.gpus != before.gpus and "gpus" not in option.change.values:
        words = f"{after.gpus} instead of {before.gpus} GPUs ({words})"
    ttft_s, tpot_s, _ = judged(after)
    words += f", {_time(ttft_s)} to the first token, {_time(tpot_s)} per token"
    if after.resolved.load == "request_rate":
        words += f", up to {rounded(result.replicas.max_requests_per_s, down=True):g} requests/s"
        words += f" instead of {rounded(before.top_rate * before.working_replicas, down=True):g}" if gains else ""
    else:
        words += f", {result.throughput.output_tokens_per_s:,.0f} tokens/s"
        words += f" instead of {before.requests_per_s * before.resolved.traffic.outputs:,.0f}" if gains else ""
    missed = [limit.name for limit in result.verdict.limits if not limit.ok]
    return f"{words}; still misses {', '.join(missed)}" if missed else words


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1.0 else f"{seconds:.3g} s"
