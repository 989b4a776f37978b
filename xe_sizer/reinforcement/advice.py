"""What to change about reinforcement learning: what makes an iteration fit, keeps the limits, or makes it faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xe_sizer.laws.device import FP8
from xe_sizer.profiles.catalogue import default_engine
from xe_sizer.reinforcement.iteration import RATING, ROLLOUT
from xe_sizer.reinforcement.resolve import resolve
from xe_sizer.reinforcement.search import size
from xe_sizer.scenario.read import Change
from xe_sizer.scenario.trials import MOST_ADVICE, Option, Remedy, Trials, advice_of
from xe_sizer.training.advice import buys_nothing, memory_words
from xe_sizer.training.advice import settle as settle_training
from xe_sizer.training.methods.preferences import ADAPTERS_OFF, NONE
from xe_sizer.units import HOUR_S, SIXTEEN_BIT, three_digits

if TYPE_CHECKING:
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.reinforcement.estimate import ReinforcementEstimate
    from xe_sizer.result.common import Advice

# Remedies: each proposes changes of one kind, the mildest first.
#
# Efforts order what a user would rather do first: 1 and 2 change how the GPUs are shared, 3 and 4 what an engine or the
# trainer keeps on a card, 6 and 7 what is learnt, 8 and 9 the hardware.

SHARING, STATES, QUALITY, ANSWERS, HARDWARE = 1, 3, 6, 7, 8
SHARES = (0.8, 0.6, 0.4)  # of the card, tried for the engine where it was given more or less
DOUBLINGS = 4  # of the GPUs that are tried
SHORTEST = 512  # tokens below which answers are no longer what the user trains on


def open_sharing(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """The other way to share the GPUs that are there."""
    one, stack = sized.iteration, sized.reinforcement.settings.defaults
    if one.colocated and stack.apart and one.gpus > 1:
        half = max(one.gpus // 2, 1)
        yield Change(f"{half} GPUs that only generate", {"rollout.gpus": half}, SHARING + 1)
    elif not one.colocated:
        yield Change("generation colocated on the GPUs that train", {"rollout.colocated": True}, SHARING)


def other_split(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Another number of GPUs that only write answers."""
    one = sized.iteration
    if one.colocated:
        return
    node = sized.resolved.job.server.accelerators
    for gpus in sorted({one.gpus // 4, one.gpus // 2, one.gpus * 3 // 4} - {one.rollout.gpus, 0, one.gpus}):
        if gpus % node == 0 or one.gpus <= node:
            yield Change(
                f"{gpus} instead of {one.rollout.gpus} GPUs generate responses", {"rollout.gpus": gpus}, SHARING
            )


def at_the_same_time(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Answers of the next iteration while this one is learnt from."""
    return iter(()) if sized.iteration.colocated else asynchronous(sized)


def asynchronous(sized: ReinforcementEstimate) -> Iterator[Change]:
    """The same, whether or not answers are written on GPUs of their own now."""
    settings = sized.reinforcement.settings
    if settings.staleness or not settings.defaults.asynchronous:
        return
    words = (
        "responses are generated while the trainer learns from the previous ones, one iteration older than the weights"
    )
    yield Change(words, {"rollout.asynchronous": True}, SHARING + 1)


def interrupted_answers(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Long answers that go on in the next iteration, where the stack trains on answers of older weights at all."""
    settings = sized.reinforcement.settings
    if settings.defaults.asynchronous and not settings.asked.carried and not writes_itself(sized):
        words = "long responses go on in the next iteration (partial rollouts), in part from older weights"
        yield Change(words, {"rollout.partial": True}, QUALITY)


def writes_itself(sized: ReinforcementEstimate) -> bool:
    """Whether the trainer's own model writes the answers, without an engine beside it."""
    return sized.iteration.rollout.job.engine.memory.grows


def engine_of_its_own(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """An inference engine in place of the trainer's own model."""
    engine = default_engine()
    if writes_itself(sized) and sized.iteration.phase_s[ROLLOUT] > 0:
        yield Change(f"{engine} generates the responses", {"rollout.engine": engine}, SHARING)


def other_share(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Another share of the card for the engine, where somebody chose one."""
    asked = sized.reinforcement.settings.share(sized.iteration.colocated)
    for share in SHARES:
        if asked is not None and abs(share - asked) > 0.05:
            words = f"the engine may use {100 * share:.0f} % of the GPU's memory instead of {100 * asked:.0f} %"
            yield Change(words, {"rollout.gpu_memory_utilization": share}, STATES)


def smaller_passes(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Fewer answers at once where log-probabilities are computed, down to the micro-batch of the training."""
    asked = sized.reinforcement.settings.log_prob_micro_batch
    if asked is None or sized.iteration.peaks[RATING] <= sized.usable_bytes:
        return
    least = max(int(sized.layouts.micro_batch[0]), 1)
    while asked > least:
        asked = max(asked // 2, least)
        words = f"log-probabilities of {asked} responses at once"
        yield Change(words, {"rollout.log_prob_micro_batch": asked}, SHARING)


def deeper_sleep(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """An engine that gives all of the card back while the trainer works."""
    if sized.iteration.colocated and sized.reinforcement.settings.sleep in ("none", "cache"):
        words = "the engine gives its cache and weights back while the trainer works (sleep)"
        yield Change(words, {"rollout.sleep": "weights-dropped"}, SHARING)


def narrow_weights(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Answers written by weights in 8 bit."""
    one = sized.iteration.rollout.job
    wide = one.scheme.weights.element_bytes == SIXTEEN_BIT and not one.engine.memory.grows
    if wide and FP8 in one.server.accelerator.peak_flops_per_s:
        yield Change("responses generated by weights in fp8", {"rollout.weights": FP8}, QUALITY)


def no_reference(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """No reference model, as most recipes since DAPO."""
    resolved = sized.reinforcement
    method = resolved.actor.method.kind.rollout
    if resolved.reference is None or (method is not None and method.critic):
        return
    yield Change("no reference model, as recipes since DAPO", {"train.reference": NONE}, QUALITY)


def adapters(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Adapters in place of all weights."""
    method = sized.resolved.job.method
    if method.adapter is None and "adapter" not in sized.resolved.scenario.origin:
        values: dict[str, object] = {"adapter": "lora"}
        if sized.resolved.scenario.values.train.reference is not None:
            values["train.reference"] = ADAPTERS_OFF
        yield Change("adapters of LoRA instead of all weights", values, ANSWERS)


def shorter_answers(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Answers that are cut earlier, with as much of their mean."""
    settings = sized.reinforcement.settings
    most, mean = settings.max_output_tokens, settings.answers.mean
    for part in (2, 4):
        cut = int(most // part)
        if cut >= max(SHORTEST, settings.asked.inputs / 4) and sized.iteration.phase_s[ROLLOUT] > 0:
            values: dict[str, object] = {"rollout.max_output_tokens": cut}
            if mean > cut / 2 and settings.logged is None:
                values["rollout.output_tokens"] = cut // 2
            yield Change(f"responses truncated at {cut:,} instead of {most:,.0f} tokens", values, ANSWERS)


def larger_pools(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """More of the GPUs for a model on GPUs of its own that does not fit there: twice as many, and twice that."""
    one = sized.iteration
    for other in one.others:
        if other.peak_bytes <= sized.usable_bytes:
            continue
        for power in range(1, DOUBLINGS + 2):
            gpus = other.gpus * 2**power
            if gpus - other.gpus < one.gpus:
                words = f"{gpus} instead of {other.gpus} GPUs for the {other.asked.name}"
                yield Change(words, {f"{other.asked.section}.gpus": gpus}, SHARING)


def more_gpus(sized: ReinforcementEstimate, _: Registry) -> Iterator[Change]:
    """Twice the GPUs, and twice that; pools grow alike."""
    resolved, one = sized.resolved, sized.iteration
    most = resolved.scenario.values.limits.max_gpus
    if resolved.gpus is None:
        return
    for power in range(1, DOUBLINGS + 1):
        gpus = one.gpus * 2**power
        if most is not None and gpus > most:
            return
        values: dict[str, object] = {"gpus": gpus}
        if resolved.scenario.values.rollout.gpus is not None:
            values["rollout.gpus"] = one.rollout.gpus * 2**power
        yield Change(f"{gpus:,} instead of {one.gpus:,} GPUs", values, HARDWARE)


FASTER = (
    Remedy(SHARING, engine_of_its_own),
    Remedy(SHARING, open_sharing),
    Remedy(SHARING, other_split),
    Remedy(SHARING, deeper_sleep),
    Remedy(SHARING + 1, at_the_same_time),
    Remedy(STATES, other_share),
    Remedy(QUALITY, interrupted_answers),
    Remedy(QUALITY, narrow_weights),
)
"""What takes time off an iteration on the GPUs at hand."""
MENDING = (
    Remedy(SHARING, smaller_passes),
    Remedy(SHARING, larger_pools),
    Remedy(SHARING, deeper_sleep),
    Remedy(SHARING, open_sharing),
    Remedy(SHARING, other_split),
    Remedy(STATES, other_share),
    Remedy(QUALITY, no_reference),
    Remedy(ANSWERS, adapters),
    Remedy(HARDWARE, more_gpus),
)
"""What brings memory down."""
FOR_LIMITS = (*FASTER, Remedy(QUALITY, no_reference), Remedy(ANSWERS, shorter_answers), Remedy(HARDWARE, more_gpus))
"""What brings time and price down."""


def ways(sized: ReinforcementEstimate, registry: Registry) -> Iterator[Change]:
    """Other ways to run the job on the same GPUs that no search tries by itself: `plan` searches each of them."""
    yield from asynchronous(sized)
    for remedy in (engine_of_its_own, deeper_sleep, interrupted_answers, narrow_weights):
        yield from remedy(sized, registry)


# The choice of remedies.

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
        scenario=estimate.resolved.scenario,
        registry=registry,
        size=lambda scenario: size(resolve(scenario, registry)),
        mends=lambda after: after.ok and (buys_nothing(estimate, after) or after.roomy),
    )
    options = _faster(trials) if estimate.ok else _mended(trials, most)
    order = _by_gain if estimate.ok else _by_effort
    return advice_of(trials, sorted(options, key=order)[:most], "estimate", lambda one: _effect(estimate, one))


def settle(estimate: ReinforcementEstimate, registry: Registry) -> tuple[str, ...]:
    """What would settle whether memory suffices, as of any training."""
    return settle_training(estimate, registry, lambda scenario: size(resolve(scenario, registry)))


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
        faster = trials.kept(changes, lambda after: after.ok and after.total_s < before.total_s * (1.0 - WORTH_SAYING))
        found += sorted(faster, key=_by_gain)[:1]
    return found


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
