"""Which of the remedies to take: what mends the job, what gives it headroom, or what makes it faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.scenario.options import OPTION_OF
from xe_sizer.scenario.read import Change, changed
from xe_sizer.scenario.trials import MOST_ADVICE, Option, Trials, advice_of, key_of, mildest
from xe_sizer.training.advice_words import effect
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.fewest import Fewest
from xe_sizer.training.layout import SWITCHES, WORDS
from xe_sizer.training.packing import kept_steps_words
from xe_sizer.training.remedies import (
    DROPPED,
    FOR_LIMITS,
    GENTLE,
    HARDWARE,
    LESS_OFFLOAD,
    ON_THE_CARD,
    OTHER_HARDWARE,
    OTHER_METHOD,
    better_checkpoints,
    dropped_choices,
    packed_samples,
)
from xe_sizer.training.remedies_beside import OTHER_TRAINING, reference_elsewhere
from xe_sizer.training.resolve import rearranged, resolve
from xe_sizer.training.sizing import size, size_each
from xe_sizer.units import HOUR_S

if TYPE_CHECKING:
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.result.common import Advice
    from xe_sizer.training.resolved import ResolvedTraining

MOST_FOR_HEADROOM = 2
MOST_ON_THE_CARD = MOST_OTHER_HARDWARE = 2  # of the advice to a job that does not fit: there is room for each kind
WORTH_SAYING = 0.05  # a faster layout is mentioned from this share of the time on
LAYOUT_EFFORT = 3  # a layout of several new degrees, as many as a user may know how to set
SAME_JOB_KEYS = ("gpus", "train.micro_batch", "train.global_batch")  # beside those of the layout
BATCH_KEYS = frozenset(
    {
        "gpus",
        "gpu",
        "server",
        "stack",
        "layout.tp",
        "layout.pp",
        "layout.cp",
        "layout.dp",
        "train.micro_batch",
    }
)  # that change the global batch which an accumulation makes
DATA_KEYS = frozenset({"train.padding", "train.global_batch", "train.seq_len"})  # that change what a step reads
MUCH_MORE = 1.5  # times the data: what whole steps may add where there are few
ROOM = 0.02  # no change is suggested that leaves less than this share of the card free

Options = list[Option[TrainingEstimate]]
Training = Trials[TrainingEstimate]


def advise(estimate: TrainingEstimate, registry: Registry, most: int = MOST_ADVICE) -> tuple[Advice, ...]:
    """Up to five changes, the ones a user would rather make first, then the faster; each was estimated.

    most : 1 for the first of them alone, which takes fewer trials, 0 for none
    """
    if not most:
        return ()
    trials = Trials(
        before=estimate,
        given=estimate.resolved.given,
        registry=registry,
        size=lambda given: size(resolve(given, registry)),
        mends=lambda after: _mends(estimate, after),
        keeping=lambda change: with_the_same_data(estimate, with_the_same_batch(estimate, change), registry),
        hopeless=lambda change: beyond_the_speed_of_light(estimate, change, registry),
        together=lambda changes: _together(estimate, changes, registry),
    )
    options = sorted(_options(trials, most), key=_by_gain if estimate.ok else _rank)[:most]
    return advice_of(trials, options, "estimate", lambda option: effect(estimate, option))


def _mends(before: TrainingEstimate, after: TrainingEstimate) -> bool:
    """Whether the answer is yes with a little room; a host of unknown memory is taken to have that of ours."""
    if not _reads_no_more(before, after):
        return False
    if not after.choice.fits_with_headroom or after.peak_bytes > after.usable_bytes * (1.0 - ROOM):
        return False
    asked_bytes = before.resolved.job.server.host_usable_bytes
    host_bytes = after.resolved.job.server.host_usable_bytes or asked_bytes
    if host_bytes is not None and float(after.ledger.host_bytes[0]) > host_bytes:
        return False
    return after.ok


def _together(
    before: TrainingEstimate, changes: Sequence[Change], registry: Registry
) -> dict[str, TrainingEstimate | None]:
    """Changes of the layout or the number of GPUs alone, estimated as one array: the job stays what it is."""
    estimates: dict[str, TrainingEstimate | None] = {}
    same_job: dict[str, ResolvedTraining] = {}
    for change in changes:
        if all(key in SAME_JOB_KEYS or key.startswith("layout.") for key in change.values):
            try:
                resolved = rearranged(before.resolved, changed(before.resolved.given, change.values), registry)
            except InputError:
                estimates[key_of(change)] = None
                continue
            if resolved is not None:
                same_job[key_of(change)] = resolved
    return estimates | dict(zip(same_job, size_each(list(same_job.values())), strict=True))


def with_the_same_batch(before: TrainingEstimate, change: Change) -> Change:
    """The change with the global batch of before, where that is given by an accumulation which may not go with it."""
    resolved = before.resolved
    says = {"train.grad_accum", "train.global_batch"} & change.values.keys()
    if "train.grad_accum" not in resolved.given.origin or says or BATCH_KEYS.isdisjoint(change.values):
        return change
    return replace(change, values={**change.values, "train.global_batch": resolved.job.global_batch})


def with_the_same_data(before: TrainingEstimate, change: Change, registry: Registry) -> Change:
    """The change with the number of steps that reads as many tokens as before, where steps read another number of them.

    Steps that follow from passes over the data do so by themselves; it is said where there are more or fewer of them.
    """
    resolved, job = before.resolved, before.resolved.job
    usual_batch = resolved.fixed_steps and "train.global_batch" not in resolved.given.origin
    reads_otherwise = not DATA_KEYS.isdisjoint(change.values) or usual_batch
    if not reads_otherwise or "train.steps" in change.values:
        return change
    try:
        after = resolve(changed(resolved.given, change.values), registry).job
    except InputError:
        return change  # which its estimate will find
    fixed = resolved.fixed_steps
    steps = max(round(job.read_tokens / (after.read_tokens / after.steps)), 1) if fixed else after.steps
    if steps == job.steps:
        return change
    words = f"{change.words}, in {steps:,} instead of {job.steps:,} optimizer steps for the same data"
    if "train.padding" in change.values:
        words += f" ({kept_steps_words(before, after.seq_len)})"
    return replace(change, words=words, values={**change.values, **({"train.steps": steps} if fixed else {})})


def beyond_the_speed_of_light(before: TrainingEstimate, change: Change, registry: Registry) -> bool:
    """Whether other GPUs or shorter sequences would miss max_hours even at peak rates and without padding.

    Such a change needs no estimate. Products grow with the tokens and attention with their square, so that a part of
    the tokens takes at least the square of that part.
    """
    resolved, values = before.resolved, change.values
    limits, job = resolved.given.values.limits, resolved.job
    if limits.max_hours is None or not values.keys() <= {"gpus", "gpu", "train.seq_len"}:
        return False
    gpu = registry.accelerator(str(values["gpu"])) if "gpu" in values else job.server.accelerator
    peak_flops_per_s = gpu.peak_flops_per_s.get(job.precision, max(gpu.peak_flops_per_s.values()))
    gpus = values.get("gpus") or resolved.gpus or limits.max_gpus
    if gpus is None:
        return False
    real = 1.0 - float(before.choice.sequences.padding_share[0])
    kept = real * min(int(str(values.get("train.seq_len", job.seq_len))) / job.seq_len, 1.0)
    flops = float(before.timeline.flops[0]) * before.gpus * job.steps * kept**2
    return flops / (peak_flops_per_s * int(str(gpus))) > limits.max_hours * HOUR_S


def _options(trials: Training, most: int) -> Options:
    before = trials.before
    if not before.choice.fits_with_headroom:
        return _made_to_fit(trials, most)
    if before.ok:
        faster = _with(_dropped(trials), _quicker(trials))
        return faster if before.roomy else [*faster, *_given_headroom(trials)]
    if before.resolved.given.values.limits.max_cost is not None and before.resolved.tariff.per_gpu_hour is None:
        return []  # nothing can be said about a price that nobody knows
    return _made_to_meet_limits(trials, most)


def _rank(option: Option[TrainingEstimate]) -> tuple[int, bool, int, int, float]:
    """The card at hand comes before other hardware, and that before another training; what is tight comes last there.

    Then what asks least of the user, fewest GPUs, least time.
    """
    effort, after = option.change.effort, option.after
    stage = (effort >= HARDWARE) + (effort >= OTHER_TRAINING)
    return stage, not after.roomy, effort, after.gpus, after.total_s


def _by_gain(option: Option[TrainingEstimate]) -> tuple[bool, bool, bool, float]:
    """To a job that needs no mending: what has room, on the card at hand, and takes the least time.

    A choice that costs time for memory that the job has is left out before anything else is changed.
    """
    effort, after = option.change.effort, option.after
    return not after.roomy, effort >= HARDWARE, effort > DROPPED, after.total_s


def _made_to_fit(trials: Training, most: int) -> Options:
    """What brings memory down on the card at hand; on other hardware; another training; several of them together."""
    found = sorted(_on_the_card(trials, most), key=_rank)[:MOST_ON_THE_CARD]
    if found and most == 1:
        return found
    other = [*trials.try_each(OTHER_HARDWARE, most, []), *_more_gpus_freely(trials)]
    hardware = sorted(other, key=_rank)[:MOST_OTHER_HARDWARE]
    found = trials.try_each(OTHER_METHOD, most, [*found, *hardware])
    limited = bool(trials.before.resolved.given.values.limits.max_hours)
    every = ON_THE_CARD + (FOR_LIMITS if limited else OTHER_HARDWARE + OTHER_METHOD)
    return found or trials.combination(trials.strongest(every))


def _on_the_card(trials: Training, most: int) -> Options:
    """One remedy, another layout, or two together, first of those that cost no quality; else as many as it takes."""
    before = trials.before
    first = (LESS_OFFLOAD,) if before.host_share > 1.0 else ()
    gentle, every = first + GENTLE, first + ON_THE_CARD
    found = trials.try_each(gentle, most, [])
    if len(found) < MOST_ADVICE:
        found = _with(found, _another_layout(trials))
    if not _any_roomy(found):
        found = _with(found, trials.pairs(gentle))
    found = trials.try_each(ON_THE_CARD[len(GENTLE) :], most, found)
    if not _any_roomy(found):
        found = _with(found, trials.pairs(every))
    return found or trials.combination(trials.strongest(every))


def _any_roomy(found: Options) -> bool:
    return any(option.after.roomy for option in found)


def _with(found: Options, more: Options) -> Options:
    """Both, but for changes that come to the same as one that was found."""
    known = [option.change.values for option in found]
    return [*found, *(option for option in more if option.change.values not in known)]


def _given_headroom(trials: Training) -> Options:
    """For a job that fits inside the error of the model: what moves it out of there."""
    found: Options = []
    for remedy in ON_THE_CARD + OTHER_HARDWARE + OTHER_METHOD:
        if len(found) < MOST_FOR_HEADROOM:
            changes = remedy.changes(trials.before, trials.registry)
            found += [option for option in mildest(trials.kept(changes)) if option.after.roomy]
    return found


def _made_to_meet_limits(trials: Training, most: int) -> Options:
    """What changes time and price: a faster layout, other GPU counts, other GPUs, a smaller job."""
    faster = [option for option in _faster(trials) if trials.mends(option.after)]
    found = trials.try_each(FOR_LIMITS, most, faster)
    return found or trials.combination(trials.strongest(FOR_LIMITS))


def _dropped(trials: Training) -> Options:
    """The choice of the user's own that costs most, where the job fits and is faster without it."""
    changes = dropped_choices(trials.before, trials.registry)
    found = trials.kept(changes, lambda after: _is_faster(trials.before, after))
    return sorted(found, key=_by_gain)[:1]


def _packed(trials: Training) -> Options:
    """Packing, where the same data take less time with it."""
    changes = packed_samples(trials.before, trials.registry)
    return list(trials.kept(changes, lambda after: _is_faster(trials.before, after)))


def _quicker(trials: Training) -> Options:
    """What makes a job that fits take less time, with the layout left open, packing, and what is done between steps."""
    return [*_faster(trials), *_packed(trials), *_referenced(trials), *_saved_otherwise(trials)]


def _referenced(trials: Training) -> Options:
    """A reference's log-probabilities from elsewhere, where the run takes less time so."""
    changes = reference_elsewhere(trials.before, trials.registry)
    return list(trials.kept(changes, lambda after: _is_faster(trials.before, after)))


def _saved_otherwise(trials: Training) -> Options:
    """Other checkpoints, where the run takes less time with them."""
    changes = better_checkpoints(trials.before, trials.registry)
    return list(trials.kept(changes, lambda after: _is_faster(trials.before, after)))


def _faster(trials: Training) -> Options:
    """Leaving the layout open, where that is faster than what the user fixed."""
    changes = _layout_changes(trials.before, "a faster layout", 1)
    return list(trials.kept(changes, lambda after: _is_faster(trials.before, after)))


def _is_faster(before: TrainingEstimate, after: TrainingEstimate) -> bool:
    holds = after.fits and (after.ok or not before.ok) and _reads_no_more(before, after)
    return holds and after.total_s < before.total_s * (1.0 - WORTH_SAYING)


def _reads_no_more(before: TrainingEstimate, after: TrainingEstimate) -> bool:
    """Whether it is the same job: a batch that has grown beyond the data of all fixed steps makes it another."""
    more = after.resolved.job.read_tokens / before.resolved.job.read_tokens
    return not before.resolved.fixed_steps or more < MUCH_MORE


def _another_layout(trials: Training) -> Options:
    """The fastest layout that fits on the same GPUs, where it is not the one that the user fixed."""
    return list(trials.kept(_layout_changes(trials.before, "another layout", LAYOUT_EFFORT)))


def _open_layout(sized: TrainingEstimate) -> TrainingEstimate | None:
    """The same job with its layout left to the search; None where the user left it open already."""
    if not sized.resolved.fixed:
        return None
    try:
        return size(sized.resolved.without_layout())
    except InputError:  # the search's own choices may not divide a count that the user's do
        return None


def _layout_changes(sized: TrainingEstimate, what: str, effort: int) -> Iterator[Change]:
    """The layout that an open search chooses, as the flags that ask for it: those of the user's that have to change."""
    after = _open_layout(sized)
    if after is None:
        return
    values = _other_settings(sized, after)
    if values:
        yield Change(f"{what}: {_settings_words(values)}", values, effort)


def _more_gpus_freely(trials: Training) -> Options:
    """More GPUs under another layout, where the one that the user fixed fits on no number of them."""
    before, resolved = trials.before, trials.before.resolved
    if not resolved.fixed or before.fewest.that_fit_unasked is not None:
        return []
    open_layout = replace(resolved.without_layout(), gpus=None)
    enough, most = Fewest(open_layout).that_fit_unasked, resolved.given.values.limits.max_gpus
    if enough is None or enough <= before.gpus or (most is not None and enough > most):
        return []
    values = _other_settings(before, size(replace(open_layout, gpus=enough)))
    if not values:
        return []
    words = f"{enough} GPUs instead of {before.gpus} with {_settings_words(values)}"
    return list(trials.kept([Change(words, {"gpus": enough, **values}, HARDWARE + 1)]))


def _other_settings(sized: TrainingEstimate, after: TrainingEstimate) -> dict[str, object]:
    """Keys of the layout that the user fixed, as another layout has them; none where the stack lacks a switch."""
    fixed = sized.resolved.fixed
    chosen = {name: int(getattr(after.layouts, name)[0]) for name in fixed}
    values = {_key(name): _value(name, code) for name, code in chosen.items() if fixed[name] != code}
    has_switch = values.get("layout.recompute", "none") in sized.resolved.job.stack.supports.recompute
    return values if has_switch and all(key in OPTION_OF for key in values) else {}


def _settings_words(values: Mapping[str, object]) -> str:
    return ", ".join(_setting_words(key, value) for key, value in values.items())


def _setting_words(key: str, value: object) -> str:
    name = key.rpartition(".")[2].replace("_", "-")
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def _key(name: str) -> str:
    return f"{'train' if name in ('micro_batch', 'grad_accum') else 'layout'}.{name}"


def _value(name: str, code: int) -> object:
    """A coded field of a layout as a scenario writes it: a word, a switch or a number."""
    if name in SWITCHES:
        return bool(code)
    return WORDS[name][code] if name in WORDS else code
