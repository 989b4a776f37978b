"""Which of the remedies to take: what makes an iteration fit, what keeps the limits, or what makes it faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xe_sizer.reinforcement.remedies import FASTER, FOR_LIMITS, HARDWARE, MENDING, QUALITY
from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.sizing import size
from xe_sizer.scenario.trials import MOST_ADVICE, Option, Trials, advice_of
from xe_sizer.training.advice_words import memory_words
from xe_sizer.units import HOUR_S, three_digits

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate
    from xe_sizer.result.common import Advice
    from xe_sizer.scenario.trials import Remedy

WORTH_SAYING = 0.05  # chosen: a faster way is mentioned from this share of the time on

Options = list[Option["ReinforcementEstimate"]]


def advise(estimate: ReinforcementEstimate, registry: Registry, most: int = MOST_ADVICE) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first, then the faster; each was estimated.

    most : 1 for the first of them alone, 0 for none
    """
    if not most:
        return ()
    trials = Trials(
        before=estimate,
        given=estimate.resolved.given,
        registry=registry,
        size=lambda given: size(resolve(given, registry), fewest=False),
        mends=lambda after: after.ok,
    )
    options = _faster(trials) if estimate.ok else _mended(trials, most)
    order = _by_gain if estimate.ok else _by_effort
    return advice_of(trials, sorted(options, key=order)[:most], "estimate", lambda one: _effect(estimate, one))


def _mended(trials: Trials[ReinforcementEstimate], most: int) -> Options:
    """What makes a job fit or keep its limits: one change, or as few together as it takes."""
    remedies: Sequence[Remedy[ReinforcementEstimate]] = FOR_LIMITS if trials.before.fits else MENDING
    found = trials.try_each(remedies, most, [])
    return found or trials.combination(trials.strongest(remedies))


def _faster(trials: Trials[ReinforcementEstimate]) -> Options:
    """What takes less time on the same GPUs."""
    before = trials.before
    found: Options = []
    for remedy in FASTER:
        changes = remedy.changes(before, trials.registry)
        found += sorted(trials.kept(changes, lambda after: _is_faster(before, after)), key=_by_gain)[:1]
    return found


def _is_faster(before: ReinforcementEstimate, after: ReinforcementEstimate) -> bool:
    return after.ok and after.total_s < before.total_s * (1.0 - WORTH_SAYING)


def _by_gain(option: Option[ReinforcementEstimate]) -> tuple[bool, bool, float]:
    """What has room and leaves the training what it is, then what takes the least time."""
    return not option.after.roomy, option.change.effort >= QUALITY, option.after.total_s


def _by_effort(option: Option[ReinforcementEstimate]) -> tuple[bool, bool, int, float]:
    """The GPUs at hand before others; what is tight comes last there; then what asks least."""
    effort, after = option.change.effort, option.after
    return effort >= HARDWARE, not after.roomy, effort, after.total_s


def _effect(before: ReinforcementEstimate, option: Option[ReinforcementEstimate]) -> str:
    """What an iteration and the run come to."""
    after = option.after
    words = memory_words(after)
    if after.gpus != before.gpus:
        words += f", on {after.gpus:,} GPUs"
    words += f", {_seconds(after.step_s)} an iteration, {_hours(after.total_s)}"
    if not before.fits:
        return words
    gain = round(100.0 * (after.total_s / before.total_s - 1.0))
    return f"{words} instead of {_hours(before.total_s)} ({gain:+d} % time)"


def _seconds(seconds: float) -> str:
    return f"{three_digits(seconds)} s"


def _hours(seconds: float) -> str:
    return f"{three_digits(seconds / HOUR_S)} h"
