"""How verl writes and rates the answers of an iteration, in turn with the training or on GPUs of their own.

Rules: verl/trainer/config/rollout/rollout.yaml and data/legacy_data.yaml, and the configurations of
verl/experimental/fully_async_policy and one_step_off_policy (read at 0.8).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.offload import OPTIMIZER, PARAMS
from xe_sizer.importers.parts.rollout import state_models, state_oversampling, state_pools, state_rollout
from xe_sizer.importers.parts.verl_keys import ACTOR, ROLLOUT
from xe_sizer.importers.values import above_zero, is_on, number, positive, positive_or_open, word_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.parts.rollout import Stated
    from xe_sizer.importers.written import Written

_ENGINES = {"vllm": "vllm", "sglang": "sglang", "hf": "hf-transformers", "trtllm": "tensorrt-llm"}
_WEIGHTS = {"fp8": "fp8", "null": None, "none": None}
_ANSWERS: Mapping[str, Stated] = {
    "prompts": (("data.train_batch_size",), positive_or_open, 1024),
    "group": ((f"{ROLLOUT}n",), positive, 1),
    "max_output_tokens": (("data.max_response_length",), positive, 512),
    "updates": ((f"{ACTOR}ppo_epochs",), positive, 1),
    "engine": ((f"{ROLLOUT}name",), word_of(_ENGINES), None),
    "tp": ((f"{ROLLOUT}tensor_model_parallel_size", f"{ROLLOUT}tensor_parallel_size"), positive, 2),
    "pp": ((f"{ROLLOUT}pipeline_model_parallel_size",), positive, None),
    "ep": ((f"{ROLLOUT}expert_parallel_size",), positive, None),
    "gpu_memory_utilization": ((f"{ROLLOUT}gpu_memory_utilization",), above_zero, 0.5),
    "max_sequences": ((f"{ROLLOUT}max_num_seqs",), positive_or_open, None),
    "weights": ((f"{ROLLOUT}quantization",), word_of(_WEIGHTS), None),
}
_POOLS = (("rollout.nnodes", "rollout.n_gpus_per_node"), (f"{ROLLOUT}nnodes", f"{ROLLOUT}n_gpus_per_node"))
_PER_NODE = 8
_STALE = 0.1  # share of answers of an earlier iteration, unasked
_SYNCHRONISED = 4  # steps of the trainer between two transfers of weights, unasked


def state_other_pool(draft: Draft) -> None:
    """State the GPUs that only write answers while others train, where the files have a section of them."""
    for nodes, each in _POOLS:
        number_of, gpus = draft.take(nodes), draft.take(each)
        found = gpus or number_of
        count = draft.value(number_of, positive_or_open) if number_of is not None else 1
        if found is None or not isinstance(count, int):
            continue
        size = draft.value(gpus, positive_or_open) or _PER_NODE
        if isinstance(size, int):
            state_pools(draft, count * size, found)
            draft.state("rollout.asynchronous", True, found)
            _stale(draft)
        return


def _stale(draft: Draft) -> None:
    """How much older than the weights answers may be: a share of those of an iteration, so the next whole number."""
    share = draft.take("async_training.staleness_threshold")
    if share is not None:
        draft.state("rollout.max_staleness", max(math.ceil(float(str(draft.value(share, number) or _STALE))), 1), share)
    goes_on = draft.take("async_training.partial_rollout")
    if goes_on is not None:
        draft.state("rollout.partial", is_on(goes_on.value), goes_on)


def state_answers(draft: Draft) -> None:
    """How answers are written, and what waits in host memory meanwhile."""
    _between_transfers(draft)
    group = draft.take("rollout.n") if draft.peek(f"{ROLLOUT}n") is None else None
    if group is not None:
        draft.state("rollout.group", draft.value(group, positive), group)
    state_rollout(draft, _ANSWERS)
    generated, filters = draft.take("data.gen_batch_size"), draft.on("algorithm.filter_groups.enable")
    if filters is not None and draft.fact("rollout.gpus") is None:
        state_oversampling(draft, generated, draft.value(generated, positive_or_open), draft.fact("rollout.prompts"))
    kept = draft.take(f"{ROLLOUT}free_cache_engine")
    if kept is not None and draft.fact("rollout.gpus") is None:
        draft.state("rollout.sleep", "weights-dropped" if is_on(kept.value) else "none", kept)
    _waiting(draft)


def _between_transfers(draft: Draft) -> None:
    """Prompts between two transfers of weights, where the trainer takes mini-batches from a queue."""
    names = ("async_training.trigger_parameter_sync_step", "async_training.require_batches")
    if draft.fact("rollout.gpus") is None or draft.peek(*names) is None:
        return
    steps, batches = (draft.take(name) for name in names)
    mini = draft.value(draft.peek(f"{ACTOR}ppo_mini_batch_size"), positive)
    sizes = mini, draft.value(batches, positive_or_open) or 1, draft.value(steps, positive_or_open) or _SYNCHRONISED
    if all(isinstance(size, int) for size in sizes):
        prompts = math.prod(int(str(size)) for size in sizes)
        note = f"{sizes[2]} steps of {sizes[1]} x {mini} between transfers of weights"
        draft.state("rollout.prompts", prompts, steps or batches, note)
        whole = draft.take("rollout.total_rollout_steps")
        total = draft.value(whole, positive_or_open)
        if isinstance(total, int):
            draft.state("train.steps", max(total // prompts, 1), whole, f"{total:,} prompts in iterations of {prompts}")


def _waiting(draft: Draft) -> None:
    """What waits in host memory while answers are written."""
    groups = (f"{ACTOR}fsdp_config.", f"{ACTOR}megatron.")
    weights = draft.on(*(f"{group}param_offload" for group in groups))
    states = draft.on(*(f"{group}optimizer_offload" for group in groups))
    for moved, found in ((PARAMS, weights), (OPTIMIZER, states)):
        if found is not None:
            draft.state("rollout.offload", moved, found)
    draft.default("rollout.offload", "none")


def state_other_models(draft: Draft, *, scored: bool) -> None:
    """Critic and reward model by name; a function rates answers unless there is a reward model.

    scored : whether a critic rates every token
    """
    rated: Written | None = draft.on("reward_model.enable", "reward.reward_model.enable")
    state_models(draft, {"train.critic_model": ("critic.model.path",)}, beside=scored)
    paths = ("reward_model.model.path", "reward.reward_model.model_path")
    state_models(draft, {"train.reward_model": paths}, beside=rated is not None)
    if rated is None:
        draft.default("train.reward_model", "none", "a function rates answers")
