"""Which of the levers to pull: what mends the job, what gives it headroom, or what makes it faster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xe_sizer.errors import InputError
from xe_sizer.profiles.registry import Registry
from xe_sizer.result.common import Advice
from xe_sizer.scenario.change import Change, command
from xe_sizer.scenario.read import OPTION_OF
from xe_sizer.training.layout import WORDS
from xe_sizer.training.remedies import FOR_LIMITS, OTHER_JOB, SAME_JOB, Lever, less_offload
from xe_sizer.training.sizing import TrainingEstimate, meets_limits, size
from xe_sizer.training.trials import Option, Trials
from xe_sizer.units import GIB, HOUR_S

MOST_ADVICE = 5
MOST_FOR_HEADROOM = 2
WORTH_SAYING = 0.05  # a faster layout is mentioned from this share of the time on
LAYOUT_COST = 3  # a layout of several new degrees, as many as a user may know how to set


def advise(sized: TrainingEstimate, registry: Registry) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first, then the faster; each was estimated."""
    given = sized.resolved.given
    trials = Trials(sized, registry)
    options = sorted(_options(trials), key=_rank)
    return tuple(
        Advice(
            change=option.change.words,
            effect=_effect(sized, option.after),
            command=command(given, option.change.values, registry.user_folders),
        )
        for option in options[:MOST_ADVICE]
    )


def _options(trials: Trials) -> list[Option]:
    sized = trials.before
    if not sized.choice.fits:
        return _made_to_fit(trials)
    if meets_limits(sized):
        faster = _faster(sized) if sized.resolved.fixed else []
        return [*faster, *_given_headroom(trials)] if sized.margin == "tight" else faster
    if sized.resolved.given.values.limits.max_cost is not None and sized.resolved.price_per_gpu_hour is None:
        return []  # nothing can be said about a price that nobody knows
    return _made_to_meet_limits(trials)


def _rank(option: Option) -> tuple[bool, int, int, float]:
    """What leaves the job tight comes last; then what asks least of the user, fewest GPUs, least time."""
    return option.after.margin == "tight", option.change.cost, option.after.gpus, option.after.total_s


def _pull(trials: Trials, levers: Iterable[Lever]) -> Iterator[Option]:
    for lever in levers:
        yield from trials.first(lever(trials.before, trials.registry))


def _made_to_fit(trials: Trials) -> list[Option]:
    """What brings memory down: one lever, else several together; other hardware; a smaller job."""
    before = trials.before
    host = before.resolved.job.server.host_memory_bytes
    short_of_host = host is not None and float(before.ledger.host_bytes[0]) > host
    same_job = ((less_offload,) if short_of_host else ()) + SAME_JOB
    found = _up_to(MOST_ADVICE, [], _pull(trials, same_job))
    if len(found) < MOST_ADVICE:
        found = _with(found, _another_layout(trials))
    found = found or trials.combination(_strongest(trials, same_job))
    found = _up_to(MOST_ADVICE, found, _pull(trials, OTHER_JOB))
    all_levers = same_job + (FOR_LIMITS if before.resolved.given.values.limits.max_hours else OTHER_JOB)
    return found if len(found) > 1 else _with(found, trials.combination(_strongest(trials, all_levers)))


def _strongest(trials: Trials, levers: Iterable[Lever]) -> list[Change]:
    """The strongest change of each lever, to be combined."""
    return [change for lever in levers for change in list(lever(trials.before, trials.registry))[-1:]]


def _with(found: list[Option], more: list[Option]) -> list[Option]:
    """Both, but for changes that come to the same as one that was found."""
    known = [option.change.values for option in found]
    return [*found, *(option for option in more if option.change.values not in known)]


def _up_to(most: int, found: list[Option], more: Iterator[Option]) -> list[Option]:
    """The found ones and more, no more estimated than are wanted."""
    while len(found) < most and (option := next(more, None)) is not None:
        found = [*found, option]
    return found


def _given_headroom(trials: Trials) -> list[Option]:
    """For a job that fits inside the error of the model: what moves it out of there."""
    found: list[Option] = []
    for lever in SAME_JOB + OTHER_JOB:
        if len(found) < MOST_FOR_HEADROOM:
            found += trials.first(lever(trials.before, trials.registry), only_with_headroom=True)
    return found


def _made_to_meet_limits(trials: Trials) -> list[Option]:
    """What changes time and price: a faster layout, other GPU counts, other GPUs, a smaller job."""
    faster = [option for option in _faster(trials.before) if trials.mends(option.after)]
    found = _up_to(MOST_ADVICE, faster, _pull(trials, FOR_LIMITS))
    return found or trials.combination(_strongest(trials, FOR_LIMITS))


def _faster(sized: TrainingEstimate) -> list[Option]:
    """Leaving the layout open, where that is faster than what the user fixed."""
    after = _open_layout(sized)
    if after is None or not after.fits or after.total_s >= sized.total_s * (1.0 - WORTH_SAYING):
        return []
    return _as_flags(sized, after, "a faster layout", 1)


def _another_layout(trials: Trials) -> list[Option]:
    """The fastest layout that fits on the same GPUs, where it is not the one that the user fixed."""
    after = _open_layout(trials.before) if trials.before.resolved.fixed else None
    return _as_flags(trials.before, after, "another layout", LAYOUT_COST) if after and trials.mends(after) else []


def _open_layout(sized: TrainingEstimate) -> TrainingEstimate | None:
    try:
        return size(sized.resolved.without_layout(), look_for_minimum=False)
    except InputError:  # the search's own choices may not divide a count that the user's do
        return None


def _as_flags(sized: TrainingEstimate, after: TrainingEstimate, what: str, cost: int) -> list[Option]:
    """A chosen layout as the flags that ask for it: those of the user's that have to change."""
    fixed = sized.resolved.fixed
    chosen = {name: int(getattr(after.layouts, name)[0]) for name in fixed}
    values = {_key(name): _value(name, code) for name, code in chosen.items() if fixed[name] != code}
    if not values or any(key not in OPTION_OF for key in values):
        return []
    words = ", ".join(f"{key.rpartition('.')[2].replace('_', '-')} {value}" for key, value in values.items())
    return [Option(Change(f"{what}: {words}", values, cost), after)]


def _key(name: str) -> str:
    return "train.micro_batch" if name == "micro_batch" else f"layout.{name}"


def _value(name: str, code: int) -> object:
    return WORDS[name][code] if name in WORDS else code


def _effect(before: TrainingEstimate, after: TrainingEstimate) -> str:
    """Memory and time that the change leads to, with the price in time against the job as it was asked."""
    words = f"{after.peak_bytes / GIB:.1f} of {after.usable_bytes / GIB:.1f} GiB per GPU"
    words += " (tight)" if after.margin == "tight" else ""
    host, has = float(after.ledger.host_bytes[0]), after.resolved.job.server.host_memory_bytes
    if host >= GIB:
        words += f", {host / GIB:,.0f}{f' of {has / GIB:,.0f}' if has else ''} GiB of host memory a node"
    if before.resolved.gpus is None and after.gpus != before.gpus:
        words += f", on {after.gpus} instead of {before.gpus} GPUs"
    words += f", {_hours(after)} h"
    words += f" instead of {_hours(before)} h" if before.fits else ""
    words += f" ({_difference(before.total_s, after.total_s)} time"
    if after.gpus != before.gpus:
        words += f", {_difference(before.total_s * before.gpus, after.total_s * after.gpus)} GPU-hours"
    return f"{words})"


def _difference(before: float, after: float) -> str:
    """A change as people say it: +18 %; no more than a factor where a share would be hard to read."""
    if after >= 2.95 * before:
        return f"{after / before:.3g} x the"
    share = round(100.0 * (after / before - 1.0))
    return f"{share:+d} %" if share else "same"


def _hours(sized: TrainingEstimate) -> str:
    hours = sized.total_s / HOUR_S
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}"
