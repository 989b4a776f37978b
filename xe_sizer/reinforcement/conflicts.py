"""What a reinforcement-learning scenario asks that its method or its stack cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.scenario.provenance import problem_at

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.reinforcement.settings import Settings
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.methods import Rollout


def conflicts(given: Given, method: Rollout, settings: Settings, stack: Stack) -> Iterator[Problem]:
    """Every conflict, each with the place of the key and what to write instead."""
    yield from _answers(given, method, settings)
    yield from _pools(given, stack)
    yield from _batches(given, settings)


def _answers(given: Given, method: Rollout, settings: Settings) -> Iterator[Problem]:
    """Groups that cannot be compared, and answers that are longer than they may be."""
    rollout, job = given.values.rollout, given.values.job
    if settings.asked.group < method.least_group:
        message = f"{job} compares the answers to a prompt, and there is {settings.asked.group}"
        yield problem_at(given, "rollout.group", message, f"give at least {method.least_group}, as {method.group}")
    most = rollout.max_output_tokens
    if most is not None and (rollout.output_tokens or 0) > most:
        message = f"'output_tokens' ({rollout.output_tokens:,.0f}) is above 'max_output_tokens' ({most:,})"
        yield problem_at(given, "rollout.output_tokens", message, "answers are cut there: the mean is after the cut")
    if rollout.verifier_workers is not None and not rollout.verifier_s:
        message = "'verifier_workers' needs 'verifier_s'"
        yield problem_at(given, "rollout.verifier_workers", message, "say how long rating one answer takes")
    seq_len, needed = given.values.train.seq_len, settings.asked.inputs + settings.answers.longest
    if seq_len is not None and seq_len < needed:
        message = f"'seq_len' ({seq_len:,}) cuts prompts with their answers, of up to {needed:,.0f} tokens"
        yield problem_at(given, "train.seq_len", message, "leave it out, or lower rollout.max_output_tokens")


def _pools(given: Given, stack: Stack) -> Iterator[Problem]:
    """GPUs of the pools that contradict each other, and ways to share them that the stack does not have."""
    rollout, gpus = given.values.rollout, given.values.gpus
    if rollout.colocated and rollout.gpus is not None:
        message = "'colocated' answers are written on the GPUs that train, but 'gpus' names others"
        yield problem_at(given, "rollout.gpus", message, "remove one of them")
    if rollout.colocated and rollout.asynchronous:
        message = "colocated answers are written in turn with the training, never 'asynchronous'"
        yield problem_at(given, "rollout.asynchronous", message, "remove one of them")
    if rollout.max_staleness is not None and not rollout.asynchronous:
        message = "'max_staleness' needs 'asynchronous'"
        both = given.caller.setting("rollout.asynchronous", True)
        hint = f"without it training waits for answers of the newest weights: write {both} too, or leave it out"
        yield problem_at(given, "rollout.max_staleness", message, hint)
    if rollout.gpus is not None and gpus is not None and rollout.gpus >= gpus:
        message = f"'gpus' of the rollout ({rollout.gpus}) leave none of the {gpus} to train"
        yield problem_at(
            given, "rollout.gpus", message, "'gpus' counts those of both; give fewer that only write answers"
        )
    if rollout.asynchronous and not stack.rollout.asynchronous:
        message = f"the stack {stack.name} does not write answers while it trains"
        yield problem_at(given, "rollout.asynchronous", message, "leave it out, or choose a stack that does")
    if (rollout.gpus is not None or rollout.colocated is False) and not stack.rollout.apart:
        key = "rollout.gpus" if rollout.gpus is not None else "rollout.colocated"
        yield problem_at(given, key, f"the stack {stack.name} writes answers on the GPUs that train", "leave it out")
    for size in ("tp", "pp"):
        degree = getattr(rollout, size)
        if degree and rollout.gpus and rollout.gpus % degree:
            message = f"{rollout.gpus} GPUs hold no whole replicas of {size} {degree}"
            yield problem_at(given, f"rollout.{size}", message)


def _batches(given: Given, settings: Settings) -> Iterator[Problem]:
    """An optimizer step of more answers than an iteration has."""
    batch, answers = given.values.train.global_batch, settings.trained
    if batch is not None and batch > answers:
        message = f"'global_batch' ({batch:,}) is more than the {answers:,.0f} answers of an iteration"
        yield problem_at(given, "train.global_batch", message, "prompts x group answers are trained on in whole steps")
