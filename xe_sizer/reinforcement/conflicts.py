"""What a scenario of reinforcement learning asks that its method or its stack cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from xe_sizer.scenario.conflicts import Keys

if TYPE_CHECKING:
    from xe_sizer.reinforcement.resolved import Settings
    from xe_sizer.scenario.conflicts import Found
    from xe_sizer.scenario.read import Scenario
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.methods import Rollout


class AskedRollout(Keys):
    """A scenario of a method that learns from its own answers, with its stack and its settings."""

    def __init__(self, scenario: Scenario, method: Rollout, settings: Settings, stack: Stack) -> None:
        super().__init__(scenario.values, scenario.locate)
        self.scenario = scenario
        self.rollout = scenario.values.rollout
        self.method = method
        self.settings = settings
        self.defaults = stack.rollout
        self.stack = stack.name


def groups_compare(asked: AskedRollout) -> Found:
    """Groups of answers that cannot be compared."""
    group, least = asked.settings.asked.group, asked.method.least_group
    if group < least:
        message = f"{asked.scenario.values.job} compares the answers to a prompt, and there is {group}"
        yield "rollout.group", message, f"give at least {least}, as {asked.method.group}"


def answers_end(asked: AskedRollout) -> Found:
    """Answers that are longer than they may be, alone or with their prompts."""
    mean, most = asked.rollout.output_tokens, asked.rollout.max_output_tokens
    if most is not None and (mean or 0) > most:
        message = f"'output_tokens' ({mean:,.0f}) is above 'max_output_tokens' ({most:,})"
        yield "rollout.output_tokens", message, "answers are cut there: the mean is after the cut"
    seq_len = asked.scenario.values.train.seq_len
    needed = asked.settings.asked.inputs + asked.settings.answers.longest
    if seq_len is not None and seq_len < needed:
        message = f"'seq_len' ({seq_len:,}) cuts prompts with their answers, of up to {needed:,.0f} tokens"
        yield "train.seq_len", message, "leave it out, or lower rollout.max_output_tokens"


def workers_rate(asked: AskedRollout) -> Found:
    """Workers that rate answers in no time."""
    if asked.rollout.verifier_workers is not None and not asked.rollout.verifier_s:
        message, hint = "'verifier_workers' needs 'verifier_s'", "say how long rating one answer takes"
        yield "rollout.verifier_workers", message, hint


def pools_agree(asked: AskedRollout) -> Found:
    """GPUs that train and GPUs that write answers, in turn or at once."""
    rollout, gpus = asked.rollout, asked.scenario.values.gpus
    if rollout.colocated and rollout.gpus is not None:
        message = "'colocated' answers are written on the GPUs that train, but 'gpus' names others"
        yield "rollout.gpus", message, "remove one of them"
    if rollout.colocated and rollout.asynchronous:
        message = "colocated answers are written in turn with the training, never 'asynchronous'"
        yield "rollout.asynchronous", message, "remove one of them"
    if rollout.max_staleness is not None and not rollout.asynchronous:
        both = asked.scenario.caller.setting("rollout.asynchronous", True)
        hint = f"without it training waits for answers of the newest weights: write {both} too, or leave it out"
        yield "rollout.max_staleness", "'max_staleness' needs 'asynchronous'", hint
    if rollout.gpus is not None and gpus is not None and rollout.gpus >= gpus:
        message = f"'gpus' of the rollout ({rollout.gpus}) leave none of the {gpus} to train"
        yield "rollout.gpus", message, "'gpus' counts those of both; give fewer that only write answers"


def stack_shares_gpus(asked: AskedRollout) -> Found:
    """Ways to share the GPUs that the stack does not have."""
    rollout = asked.rollout
    if rollout.asynchronous and not asked.defaults.asynchronous:
        message = f"the stack {asked.stack} does not write answers while it trains"
        yield "rollout.asynchronous", message, "leave it out, or choose a stack that does"
    if (rollout.gpus is not None or rollout.colocated is False) and not asked.defaults.apart:
        key = "rollout.gpus" if rollout.gpus is not None else "rollout.colocated"
        yield key, f"the stack {asked.stack} writes answers on the GPUs that train", "leave it out"


def replicas_are_whole(asked: AskedRollout) -> Found:
    """GPUs that are no whole replicas of the engine."""
    for size in ("tp", "pp"):
        degree = asked.value(f"rollout.{size}")
        if degree and asked.rollout.gpus and asked.rollout.gpus % degree:
            yield f"rollout.{size}", f"{asked.rollout.gpus} GPUs hold no whole replicas of {size} {degree}", None


def steps_have_answers(asked: AskedRollout) -> Found:
    """An optimizer step of more answers than an iteration has."""
    batch, answers = asked.scenario.values.train.global_batch, asked.settings.trained
    if batch is not None and batch > answers:
        message = f"'global_batch' ({batch:,}) is more than the {answers:,.0f} answers of an iteration"
        yield "train.global_batch", message, "prompts x group answers are trained on in whole steps"


RULES: tuple[Callable[[AskedRollout], Found], ...] = (
    groups_compare,
    answers_end,
    workers_rate,
    pools_agree,
    stack_shares_gpus,
    replicas_are_whole,
    steps_have_answers,
)
"""What method and stack rule out, in the order in which it is told."""
