"""How OpenRLHF writes and rates the answers of an iteration. Rules: openrlhf/cli/train_ppo_ray.py (read at 0.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.offload import NONE, OPTIMIZER
from xe_sizer.importers.parts.openrlhf_keys import called
from xe_sizer.importers.parts.rollout import pair_single_answers, state_models, state_pools, state_rollout
from xe_sizer.importers.values import above_zero, above_zero_or_off, positive, positive_or_open

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.parts.rollout import Stated

_ANSWERS: Mapping[str, Stated] = {
    "prompts": (called("rollout.batch_size"), positive, 1024),
    "group": (called("rollout.n_samples_per_prompt"), positive, 1),
    "max_output_tokens": (called("rollout.max_new_tokens"), positive, None),
    "tp": (called("vllm.tensor_parallel_size"), positive, 1),
    "gpu_memory_utilization": (called("vllm.gpu_memory_utilization"), above_zero, 0.95),
}

_ANSWER_BEFORE = 1024  # tokens at which an answer was cut unasked, before flags had dots


def state_answers(draft: Draft, *, scored: bool) -> None:
    """How answers are written: in turn with the training where all models share the GPUs, else on GPUs of their own.

    Of models that share the GPUs, the engine has others where it writes while they train. scored : there is a critic
    """
    state_rollout(draft, _ANSWERS)
    if not any("." in name for name in draft.keys):  # since flags have dots: what the prompt leaves of data.max_len
        draft.default("rollout.max_output_tokens", _ANSWER_BEFORE)
    shared, asynchronous = draft.on(*called("train.colocate_all")), draft.on(*called("train.async_enable"))
    if shared is not None and asynchronous is None:
        draft.state("rollout.colocated", True, shared)
        draft.take(*called("vllm.num_engines"))
        _asleep(draft)
    else:
        _replicas(draft)
    if asynchronous is not None:
        draft.state("rollout.asynchronous", True, asynchronous)
        ahead = draft.take(*called("train.async_queue_size"))
        draft.state("rollout.max_staleness", draft.value(ahead, positive_or_open), ahead)
    if (partial := draft.on(*called("train.partial_rollout_enable"))) is not None:
        draft.state("rollout.partial", True, partial)
    if not scored:
        draft.following.append(pair_single_answers)
    _reference(draft)
    _rated(draft, scored=scored)


def _replicas(draft: Draft) -> None:
    """GPUs that only write answers beside those of the actor: engines times the GPUs of each."""
    found, size = draft.take(*called("vllm.num_engines")), draft.fact("rollout.tp")
    engines = draft.value(found, positive_or_open)
    if isinstance(engines, int):
        state_pools(draft, engines * (size if isinstance(size, int) else 1), found)


def _asleep(draft: Draft) -> None:
    """What engine and trainer give back of the cards that they share; neither does unless told to."""
    engine, trainer = draft.on(*called("vllm.enable_sleep")), draft.on(*called("ds.enable_sleep"))
    if engine is not None:
        draft.state("rollout.sleep", "weights-to-host", engine)
    if trainer is not None:
        draft.state("rollout.offload", OPTIMIZER, trainer, "DeepSpeed keeps the weights on the card")
    draft.default("rollout.sleep", NONE)
    draft.default("rollout.offload", NONE)


def _reference(draft: Draft) -> None:
    """A reference, unless straying from it costs nothing."""
    kept = draft.take(*called("algo.kl.init_coef"))
    draft.count(*called("algo.kl.use_loss"))
    none = kept is not None and not draft.value(kept, above_zero_or_off)
    draft.state("train.reference", "none" if none else None, kept)
    draft.default("train.reference", "adapters-off" if draft.fact("lora.rank") is not None else "copy")


def _rated(draft: Draft, *, scored: bool) -> None:
    """Critic and reward model by name; the critic begins as the reward model where nobody says."""
    reward = called("reward.model_name_or_path")
    critic = {"train.critic_model": (*called("critic.model_name_or_path"), *reward)}
    state_models(draft, critic, beside=scored)
    remote = draft.take(*called("reward.remote_url"))
    if remote is not None:
        draft.state("train.reward_model", "none", remote, "a function rates answers")
    state_models(draft, {"train.reward_model": reward})
