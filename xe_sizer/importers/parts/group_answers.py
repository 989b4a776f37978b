"""How TRL, and the tools whose trainers are TRL's, write the answers of GRPO and PPO.

Keys and defaults: trl/trainer/grpo_config.py and trl/experimental/ppo/ppo_config.py (read at 1.16), and the arguments
of ms-swift (swift/rlhf_trainers/args_mixin.py, read at 4.2), which follow them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.rollout import state_rollout
from xe_sizer.importers.values import above_zero, above_zero_or_off, is_on, plain, positive, positive_or_open, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.parts.rollout import Stated

COPY, ADAPTERS_OFF, NONE = "copy", "adapters-off", "none"
_ANSWER = 512  # tokens at which an answer is cut, unasked
_PPO_ANSWER, _PPO_EPOCHS = 53, 4
_SLEEPS = {0: "none", 1: "weights-to-host", 2: "weights-dropped"}
_GROUP: Mapping[str, Stated] = {
    "group": (("num_generations",), positive, 8),
    "max_output_tokens": (("max_completion_length",), positive, None),
    "updates": (("num_iterations",), positive, 1),
}
_PPO: Mapping[str, Stated] = {
    "max_output_tokens": (("response_length", "max_completion_length", "max_new_tokens"), positive, None),
    "updates": (("num_ppo_epochs", "ppo_epochs"), positive, _PPO_EPOCHS),
}
_ENGINE: Mapping[str, Stated] = {
    "tp": (("vllm_tensor_parallel_size",), positive, 1),
    "pp": (("vllm_pipeline_parallel_size",), positive, None),
    "max_sequences": (("vllm_max_num_seqs",), positive_or_open, None),
    "gpu_memory_utilization": (("vllm_gpu_memory_utilization", "gpu_memory_utilization"), above_zero, None),
}


def state_group_answers(draft: Draft, prefix: str = "", beta: float = 0.0, share: float | None = None) -> None:
    """How GRPOConfig of TRL, and what builds on it, writes answers.

    A generation batch has `steps_per_generation` micro-batches of each GPU, those of an optimizer step unless told so,
    and `num_generations` answers to each prompt (GRPOConfig.__post_init__). A reference is kept where beta is above 0.

    prefix : of the names of the settings; beta : where nobody says; share : of the card that the engine takes then
    """
    state_rollout(draft, _prefixed(_GROUP, prefix))
    _length(draft, f"{prefix}max_completion_length", _ANSWER)
    _engine(draft, prefix, share)
    _reference(draft, f"{prefix}beta", beta)
    whole_batch = draft.take(f"{prefix}generation_batch_size")
    if whole_batch is not None:
        answers, group = draft.value(whole_batch, positive), draft.fact("rollout.group")
        if isinstance(answers, int) and isinstance(group, int):
            note = f"{answers} answers in groups of {group}"
            draft.state("rollout.prompts", max(answers // group, 1), whole_batch, note)
    draft.following.append(lambda known: _prompts(known, prefix))


def state_scored_answers(draft: Draft, answer: int = _PPO_ANSWER, buffers: int = 1) -> None:
    """How PPOConfig of TRL writes answers: one to each prompt, and as many prompts as optimizer steps have samples.

    answer : tokens at which an answer is cut, unasked; buffers : optimizer steps that a pass over the answers has
    """
    state_rollout(draft, _PPO)
    _length(draft, "response_length", answer)
    draft.default("rollout.engine", "hf-transformers", "the trainer's own model writes")
    draft.default("rollout.group", 1)
    draft.following.append(lambda known: _prompts(known, "", buffers))


def _prefixed(settings: Mapping[str, Stated], prefix: str) -> Mapping[str, Stated]:
    return {
        key: (tuple(f"{prefix}{name}" for name in names), read, usual) for key, (names, read, usual) in settings.items()
    }


def _length(draft: Draft, name: str, usual: int) -> None:
    """Tokens at which an answer is cut where nobody says, unless no such sequence has room for it."""
    limit = draft.fact("train.seq_len")
    if (
        "rollout.max_output_tokens" not in draft.facts
        and draft.peek(name) is None
        and name not in draft.unread
        and (not isinstance(limit, int) or limit > usual)
    ):
        draft.default("rollout.max_output_tokens", usual)


def _engine(draft: Draft, prefix: str, share: float | None) -> None:
    """The engine, where it is vLLM; on GPUs of its own where it is a server."""
    names = f"{prefix}use_vllm", "fast_inference"
    engine = draft.on(*names)
    if engine is None:
        if draft.unread.keys().isdisjoint(names):
            draft.default("rollout.engine", "hf-transformers", "the trainer's own model writes")
        return
    draft.state("rollout.engine", "vllm", engine)
    state_rollout(draft, _prefixed(_ENGINE, prefix))
    mode = draft.take(f"{prefix}vllm_mode")
    if mode is not None:
        draft.state("rollout.colocated", plain(mode.value) == "colocate", mode)
    if share is not None:
        draft.default("rollout.gpu_memory_utilization", share)
    asleep, level = draft.take(f"{prefix}vllm_enable_sleep_mode", "unsloth_vllm_standby"), draft.take("sleep_level")
    if asleep is not None and draft.fact("rollout.colocated") is not False:
        draft.state("rollout.sleep", _SLEEPS[2] if is_on(asleep.value) else _SLEEPS[0], asleep)
    if level is not None and draft.fact("rollout.colocated") is not False:
        draft.state("rollout.sleep", _SLEEPS.get(int(str(draft.value(level, whole) or 0))), level)


def _reference(draft: Draft, name: str, usual: float) -> None:
    """A reference where the penalty for straying from it counts: a copy, or the model with its adapters off."""
    beta = draft.take(name)
    counts = draft.value(beta, above_zero_or_off) if beta is not None else usual

    def settle(known: Draft) -> None:
        kept = ADAPTERS_OFF if known.fact("lora.rank") is not None else COPY
        if beta is not None:
            known.state("train.reference", kept if counts else NONE, beta)
        elif name not in known.unread:
            known.default("train.reference", kept if counts else NONE)

    draft.following.append(settle)


def _prompts(draft: Draft, prefix: str, buffers: int = 1) -> None:
    """Prompts of an iteration: its micro-batches have whole groups of answers."""
    names = ("train.micro_batch", "train.grad_accum", "rollout.group")
    micro, accum, group = (draft.fact(key) for key in names)
    chosen = draft.value(draft.take(f"{prefix}steps_per_generation"), positive)
    batch = draft.fact("train.global_batch")
    if accum is None and isinstance(batch, int) and isinstance(group, int):  # Megatron is told the global batch
        answers = batch * (chosen if isinstance(chosen, int) else 1)
        used = ["train.global_batch", *(["rollout.group"] if "rollout.group" in draft.facts else [])]
        draft.derive("rollout.prompts", math.ceil(answers / group), used, f"{answers} answers in groups of {group}")
        return
    steps = chosen or accum or 1
    split = [draft.fact(f"layout.{key}") for key in ("tp", "pp", "cp")]
    ranks = math.prod(size for size in split if isinstance(size, int))
    if all(isinstance(size, int) for size in (micro, steps, group, draft.trainers)):
        answers = buffers * int(str(micro)) * int(str(steps)) * max(int(str(draft.trainers)) // ranks, 1)
        each = int(str(group))
        used = [name for name in (*names, "gpus") if name in draft.facts]
        if answers % each:
            why = f"{answers} answers of an iteration are no whole groups of {each}: the trainer refuses them"
            draft.lose(f"{prefix}num_generations", why)
        draft.derive("rollout.prompts", math.ceil(answers / each), used, f"{answers} answers in groups of {each}")
