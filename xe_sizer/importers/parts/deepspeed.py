"""DeepSpeed configurations: ZeRO stage, offload, precision and batches; `auto` leaves a value to the trainer.

Keys: DeepSpeed's configuration reference, deepspeed.ai/docs/config-json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.offload import OPTIMIZER, PARAMS
from xe_sizer.importers.values import is_on, number, plain, positive, switch, whole

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.values import Converter
    from xe_sizer.importers.written import Written

_STAGE = re.compile(r"(?:zero|stage|ds|_z)[\s_-]*([0-3])")
_AUTO = "auto"
_NO_GROUPS = "-1"  # of mics_shard_size
_SHARDED = "zero_optimization."
_LOST: Mapping[str, tuple[str, tuple[object, ...]]] = {
    f"{_SHARDED}zero_hpz_partition_size": ("keeps a second copy of the weights in every node", (1,)),
    f"{_SHARDED}zero_quantized_weights": ("gathers weights in 8 bit", ()),
    f"{_SHARDED}zero_quantized_gradients": ("reduces gradients in 4 bit", ()),
    f"{_SHARDED}round_robin_gradients": ("spreads gradients that go to host memory", ()),
    f"{_SHARDED}sub_group_size": ("steps the optimizer in groups of parameters", (1e9,)),
    f"{_SHARDED}reduce_bucket_size": ("sizes the buffer of the gradient exchange", (5e8,)),
    f"{_SHARDED}allgather_bucket_size": ("sizes the buffer of the weight gathers", (5e8,)),
    f"{_SHARDED}stage3_prefetch_bucket_size": ("sizes the buffer of weights gathered ahead", (5e7,)),
    f"{_SHARDED}stage3_max_live_parameters": ("bounds the gathered weights", (1e9,)),
    f"{_SHARDED}stage3_max_reuse_distance": ("keeps gathered weights that are used again soon", (1e9,)),
    f"{_SHARDED}stage3_param_persistence_threshold": ("keeps small weights unsharded", (1e5,)),
    f"{_SHARDED}overlap_comm": ("hides the gradient exchange behind the backward pass, with a second buffer", ()),
    "communication_data_type": ("sets the number format of the gradient exchange", ()),
    "data_types.grad_accum_dtype": ("sets the number format in which gradients are accumulated", ()),
    "activation_checkpointing.partition_activations": ("splits checkpoints over tensor-parallel ranks", ()),
    "activation_checkpointing.cpu_checkpointing": ("keeps checkpoints in host memory", ()),
    "compile.deepcompile": ("compiles the model", ()),
    "tensor_parallel.autotp_size": ("splits the model by tensor parallelism", ()),
}
"""Settings that change memory or time: what each does, and the values that DeepSpeed has unasked."""


def read_deepspeed(draft: Draft, named: Written, source: Source) -> None:
    """State what the DeepSpeed configuration says that a key names; where it is not found, what its name says."""
    if isinstance(named.value, Mapping):
        return  # it stands in the file itself; `state_deepspeed` reads its keys
    found = source.companion(named.value)
    if found is not None:
        state_deepspeed(draft, found.keys)
        return
    stage = _STAGE.search(str(named.value).lower())
    if stage is None:
        draft.miss("layout.zero", f"{named.value} was not found", "--zero N, or name the DeepSpeed file too")
        return
    draft.assume("layout.zero", int(stage[1]), f"from the name of {named.value}, which was not found", named.where)
    offload = "offload" in str(named.value).lower()
    if offload:
        what = OPTIMIZER if "optim" in str(named.value).lower() or int(stage[1]) < 3 else PARAMS
        draft.assume("layout.offload", what, f"from the name of {named.value}, which was not found", named.where)


def state_deepspeed(draft: Draft, keys: Mapping[str, Written], prefix: str = "") -> None:
    """State what a DeepSpeed configuration says; batches only where the trainer did not.

    keys : its dotted keys, below `prefix` where it stands in another file
    """
    own = {key.removeprefix(prefix): written for key, written in keys.items() if key.startswith(prefix)}
    draft.take(*(f"{prefix}{key}" for key in own))
    stage = own.get("zero_optimization.stage")
    _state(draft, "layout.zero", stage, whole)
    if stage is None:
        draft.default("layout.zero", 0, "DeepSpeed without a ZeRO stage")
    _offload(draft, own)
    _state(draft, "train.micro_batch", own.get("train_micro_batch_size_per_gpu"), positive)
    _state(draft, "train.grad_accum", own.get("gradient_accumulation_steps"), positive)
    _state(draft, "train.global_batch", own.get("train_batch_size"), positive)
    for name in ("bf16", "fp16"):
        written = own.get(f"{name}.enabled")
        if written is not None and _said(written) and draft.value(written, switch):
            draft.state("precision", name, written)
    group = own.get(f"{_SHARDED}mics_shard_size")
    if group is not None and _said(group) and str(group.value) != _NO_GROUPS:
        _state(draft, "layout.zero_group", group, positive)
    for key, (why, usual) in _LOST.items():
        written = own.get(key)
        if written is not None and _said(written) and is_on(written.value) and written.value not in usual:
            draft.keys.setdefault(f"{prefix}{key}", written)
            draft.lose(f"{prefix}{key}", why)


def _state(draft: Draft, key: str, written: Written | None, read: Converter) -> None:
    if written is not None and _said(written):
        draft.state(key, draft.value(written, read), written)


def _said(written: Written) -> bool:
    """Whether a value is there and is not left to the trainer."""
    return written.value is not None and plain(written.value) != _AUTO


def _offload(draft: Draft, own: Mapping[str, Written]) -> None:
    params = own.get("zero_optimization.offload_param.device")
    states = own.get("zero_optimization.offload_optimizer.device") or own.get("zero_optimization.cpu_offload")
    for written, what in ((params, PARAMS), (states, OPTIMIZER)):
        if written is not None and plain(written.value) not in ("none", "false"):
            draft.state("layout.offload", what, written)
            ratio = own.get("zero_optimization.offload_optimizer.ratio")
            if ratio is not None:
                draft.state("layout.offload_fraction", number(ratio.value), ratio)
            return
