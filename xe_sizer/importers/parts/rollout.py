"""How reinforcement learning writes its answers: keys of the section `rollout` that tools state as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.values import above_zero, is_on, positive

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.values import Converter

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


_TRL: Mapping[str, Stated] = {
    "group": (("num_generations",), positive, 8),
    "max_output_tokens": (("max_completion_length",), positive, None),
    "updates": (("num_iterations",), positive, 1),
}
_TRL_ENGINE: Mapping[str, Stated] = {
    "tp": (("vllm_tensor_parallel_size",), positive, None),
    "gpu_memory_utilization": (("vllm_gpu_memory_utilization", "gpu_memory_utilization"), above_zero, None),
}


def state_group_answers(draft: Draft) -> None:
    """How GRPOConfig of TRL, and what builds on it, writes answers.

    A generation batch has `steps_per_generation` micro-batches of each GPU, those of an optimizer step unless told so,
    and `num_generations` answers to each prompt (GRPOConfig.__post_init__). A reference is kept where beta is above 0.
    """
    state_rollout(draft, _TRL)
    engine = draft.on("use_vllm", "fast_inference")
    if engine is not None:
        draft.state("rollout.engine", "vllm", engine)
        state_rollout(draft, _TRL_ENGINE)
    beta = draft.take("beta")
    adapted = "adapters-off" if draft.fact("lora.rank") is not None else "copy"
    if beta is not None:
        draft.state("train.reference", adapted if draft.value(beta, above_zero) else "none", beta)
    whole = draft.take("generation_batch_size")
    if whole is not None:
        answers, group = draft.value(whole, positive), draft.fact("rollout.group")
        if isinstance(answers, int) and isinstance(group, int):
            draft.state("rollout.prompts", max(answers // group, 1), whole, f"{answers} answers in groups of {group}")
    draft.following.append(_prompts)


def _prompts(draft: Draft) -> None:
    """Prompts of an iteration: its micro-batches have whole groups of answers."""
    names = ("train.micro_batch", "train.grad_accum", "rollout.group")
    micro, accum, group = (draft.fact(key) for key in names)
    steps, gpus = draft.value(draft.take("steps_per_generation"), positive) or accum or 1, draft.trainers
    if all(isinstance(size, int) for size in (micro, steps, group, gpus)):
        answers = int(str(micro)) * int(str(steps)) * int(str(gpus))
        used = [name for name in (*names, "gpus") if name in draft.facts]
        note = f"{answers} answers in groups of {group}"
        draft.derive("rollout.prompts", max(answers // int(str(group)), 1), used, note)
