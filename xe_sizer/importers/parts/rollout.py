"""How reinforcement learning writes its answers: keys of the section `rollout` that tools state as they stand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.importers.values import is_on, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.values import Converter
    from xe_sizer.importers.written import Written

Stated = tuple[tuple[str, ...], "Converter", object]
"""What a tool calls a setting, how its value is read, and what it is where nobody says; None: nothing."""


def state_rollout(draft: Draft, settings: Mapping[str, Stated]) -> None:
    """State each setting of the rollout that the files have, or the tool's default.

    settings : key of the section `rollout` -> how the tool has it
    """
    for key, (names, read, usual) in settings.items():
        found = draft.take(*names)
        if found is not None:
            draft.state(f"rollout.{key}", draft.value(found, read), found)
        elif draft.unread.keys().isdisjoint(names) and usual is not None:
            draft.default(f"rollout.{key}", usual)


def state_reference(draft: Draft, names: Sequence[str], usual: bool) -> None:
    """State whether a reference stands beside the policy: where one of the switches or weights is on.

    usual : whether one does where nobody says
    """
    found = [written for name in names if (written := draft.take(name)) is not None]
    on = next((written for written in found if is_on(written.value)), None)
    adapters = draft.fact("lora.rank") is not None
    kept = "adapters-off" if adapters else "copy"
    if on is not None:
        draft.state("train.reference", kept, on)
    elif found:
        draft.state("train.reference", "none", found[0])
    else:
        draft.default("train.reference", kept if usual else "none")


def state_models(draft: Draft, names: Mapping[str, tuple[str, ...]], *, beside: bool = True) -> None:
    """State the models beside the policy that the files name otherwise than the policy itself.

    names : scenario key -> the tool's keys; `beside`: whether the job has such models
    """
    for key, keys in names.items():
        found = draft.take(*keys) if beside else None
        if found is not None:
            draft.state(key, draft.value(found, text), found)


def state_pools(draft: Draft, writing: object, written: Written | None) -> None:
    """State that answers are written on GPUs of their own, beside those that are known to train."""
    training = draft.fact("gpus")
    if isinstance(training, int) and isinstance(writing, int):
        draft.state("rollout.gpus", writing, written)
        draft.drop("gpus")
        draft.drop("nodes")
        draft.state("gpus", training + writing, written, f"{training} that train and {writing} that write answers")


def pair_single_answers(draft: Draft) -> None:
    """Write single answers to prompts, whose baseline is no group, as half as many prompts with two answers each."""
    prompts = draft.fact("rollout.prompts")
    if draft.fact("rollout.group") == 1 and isinstance(prompts, int):
        draft.narrow("rollout.group", 2, "a pair stands for single answers to two prompts")
        draft.narrow("rollout.prompts", max(math.ceil(prompts / 2), 1), f"as pairs: {prompts} answers")


def state_oversampling(draft: Draft, written: Written | None, generated: object, trained: object) -> None:
    """State how many answers are written for each that is trained on, where more prompts are answered than are kept."""
    if isinstance(generated, int) and isinstance(trained, int) and generated > trained:
        note = f"{generated} prompts are answered and {trained} trained on"
        draft.state("rollout.oversampling", round(generated / trained, 4), written, note)
