"""DeepSpeed configurations: what its engine shares out, offload, precision, buckets, batches and optimizer.

`auto` leaves a value to the trainer. Keys: DeepSpeed's configuration reference, deepspeed.ai/docs/config-json; what
`auto` becomes: transformers src/transformers/integrations/deepspeed.py, HfTrainerDeepSpeedConfig.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.importers.parts.offload import NONE, OPTIMIZER, PARAMS
from xe_sizer.importers.parts.optimizers import ADAMW, state_optimizer
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import above_zero_or_off, is_on, number, plain, positive, positive_or_open, switch, whole
from xe_sizer.profiles.registry import Registry
from xe_sizer.software.stack import DEEPSPEED
from xe_sizer.units import FLOAT32, GIB, SIXTEEN_BIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.table import Effect
    from xe_sizer.importers.values import Converter
    from xe_sizer.importers.written import Written

_STAGE = re.compile(r"(?:zero|stage|ds|_z)[\s_-]*([0-3])")
_AUTO = "auto"
_SHARDED = "zero_optimization."
_STATES, _WEIGHTS = f"{_SHARDED}offload_optimizer.", f"{_SHARDED}offload_param."
_BUCKET = f"{_SHARDED}reduce_bucket_size"
_IN_HOST_MEMORY = "cpu"
_LEAST_SHARDED = 2  # up to this stage overlap_comm takes a second bucket (runtime/zero/stage_1_and_2.py, ipg_buckets)
_ADAM = ("adam", "adamw", "onebitadam", "zerooneadam", "fusedadam", "cpuadam")


def _unless_auto(read: Converter) -> Converter:
    """A value that DeepSpeed is given, or None where it is left to the trainer."""
    return lambda value: None if plain(value) == _AUTO else read(value)


def _unless_own(elements: float) -> Converter:
    """A count of elements, or None where it is the one that DeepSpeed has unasked, or is left to the trainer."""

    def read(value: object) -> object:
        told = number(value)
        return None if told == elements else told

    return _unless_auto(read)


def _computes_in(precision: str) -> Converter:
    """A number format where its section is enabled."""
    return _unless_auto(lambda value: precision if switch(value) else None)


TABLE = Table(
    keys=(
        Key(("bf16.enabled", "bfloat16.enabled"), "precision", _computes_in("bf16")),
        Key(("fp16.enabled",), "precision", _computes_in("fp16")),
        Key((f"{_SHARDED}stage",), "layout.zero", _unless_auto(whole), default=0),
        Key((f"{_SHARDED}mics_shard_size",), "layout.zero_group", _unless_auto(positive_or_open)),
        Key(("train_micro_batch_size_per_gpu",), "train.micro_batch", _unless_auto(positive)),
        Key(("gradient_accumulation_steps",), "train.grad_accum", _unless_auto(positive)),
        Key(("train_batch_size",), "train.global_batch", _unless_auto(positive)),
        Key((f"{_STATES}ratio",), "layout.offload_fraction", _unless_auto(number)),
        Key((f"{_SHARDED}stage3_prefetch_bucket_size",), "layout.prefetch_elements", _unless_own(5e7)),
        Key((f"{_SHARDED}stage3_max_live_parameters",), "layout.live_elements", _unless_own(1e9)),
        Key((f"{_SHARDED}stage3_max_reuse_distance",), "layout.reuse_elements", _unless_own(1e9)),
        Key((f"{_SHARDED}stage3_param_persistence_threshold",), "layout.persistent_elements", _unless_own(1e5)),
    ),
    losses=(
        Loss((f"{_SHARDED}zero_hpz_partition_size",), "ZeRO++, which is not modelled: it keeps a second copy of the "
             "weights in every node", harmless=(1,), effect="refused"),
        Loss((f"{_SHARDED}zero_quantized_weights", f"{_SHARDED}zero_quantized_nontrainable_weights"),
             "ZeRO++, which is not modelled: it gathers weights in 8 bit", effect="refused"),
        Loss((f"{_SHARDED}zero_quantized_gradients",), "ZeRO++, which is not modelled: it reduces gradients in 4 bit",
             effect="refused"),
        Loss((f"{_SHARDED}round_robin_gradients",), "spreads gradients that go to host memory"),
        Loss((f"{_SHARDED}sub_group_size",), "steps the optimizer in groups of parameters", harmless=(1e9,)),
        Loss((f"{_SHARDED}overlap_comm",), "hides the gradient exchange behind the backward pass"),
        Loss(("communication_data_type",), "sets the number format of the gradient exchange"),
        Loss(("data_types.grad_accum_dtype",), "sets the number format in which gradients are accumulated"),
        Loss(("activation_checkpointing.partition_activations",), "splits checkpoints over tensor-parallel ranks"),
        Loss(("activation_checkpointing.cpu_checkpointing",), "keeps checkpoints in host memory"),
        Loss(("compile.deepcompile",), "compiles the model"),
        Loss(("tensor_parallel.autotp_size",), "splits the model by tensor parallelism"),
        Loss(("amp.enabled", "torch_autocast.enabled"), "computes by autocast, and keeps other states"),
        Loss(("sparse_gradients",), "exchanges rows of embedding tables alone"),
    ),
    silent=names("""
        zero_optimization zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size
        zero_optimization.reduce_scatter zero_optimization.contiguous_gradients zero_optimization.elastic_checkpoint
        zero_optimization.load_from_fp32_weights zero_optimization.ignore_unused_parameters
        zero_optimization.legacy_stage1 zero_optimization.stage3_gather_* zero_optimization.stage3_module_granularity*
        zero_optimization.memory_efficient_linear zero_optimization.log_trace* zero_optimization.*.pin_memory
        zero_optimization.*.buffer_* zero_optimization.*.max_in_cpu zero_optimization.*.nvme_path
        zero_optimization.*.pipeline_* zero_optimization.*.fast_init zero_optimization.offload_optimizer
        zero_optimization.offload_param zero_optimization.mics_hierarchical_params_gather
        fp16.loss_scale* fp16.initial_scale_power fp16.hysteresis fp16.min_loss_scale fp16.auto_cast optimizer.params*
        scheduler* gradient_clipping
        gradient_predivide_factor prescale_gradients steps_per_print wall_clock_breakdown zero_allow_untested_optimizer
        zero_force_ds_cpu_optimizer activation_checkpointing* aio* amp* torch_autocast* data_types* compile*
        tensor_parallel* flops_profiler* tensorboard* wandb* csv_monitor* comms_logger* checkpoint* dump_state
        seq_parallel_communication_data_type disable_allgather memory_breakdown monitor_config* elasticity* autotuning*
    """),
)  # fmt: skip
"""Its keys. Harmless values are those that DeepSpeed has unasked."""


def read_deepspeed(draft: Draft, named: Written, source: Source) -> None:
    """State what the DeepSpeed configuration says that a key names; where it is not found, what its name says."""
    if isinstance(named.value, dict):
        return  # it stands in the file itself; `state_deepspeed` reads its keys
    draft.state("train.backend", DEEPSPEED, named)
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
    draft.state("train.backend", DEEPSPEED, next(iter(own.values()), None))
    _offload(draft, own, prefix)
    for row in TABLE.keys:
        stated = next((own[name] for name in row.names if name in own), None)
        if row.to != "layout.offload_fraction" or draft.fact("layout.offload") is not None:
            draft.state(row.to, draft.value(stated, row.read), stated)
    if f"{_SHARDED}stage" not in own:
        draft.default("layout.zero", 0, "DeepSpeed without a ZeRO stage")
    _optimizer(draft, own)
    draft.following.append(partial(_bucket, own=own))
    for key, written in own.items():
        loss = TABLE.loss(key)
        if loss is not None and _said(written) and is_on(written.value) and written.value not in loss.harmless:
            _lose(draft, f"{prefix}{key}", written, loss.why, loss.effect)


def _lose(draft: Draft, name: str, written: Written, why: str, effect: Effect = "memory or time") -> None:
    """A key that sets nothing, which may stand in another file than the draft's."""
    draft.keys.setdefault(name, written)
    draft.lose(name, why, effect)


def _said(written: Written) -> bool:
    """Whether a value is there and is not left to the trainer."""
    return written.value is not None and plain(written.value) != _AUTO


def _offload(draft: Draft, own: Mapping[str, Written], prefix: str) -> None:
    """State what is kept in host memory: scenarios move the optimizer along with the weights."""
    params, states = _moved(own.get(f"{_WEIGHTS}device")), _moved(own.get(f"{_STATES}device"))
    states = states or _moved(own.get(f"{_SHARDED}cpu_offload"))
    for written, what, key in ((params, PARAMS, f"{_WEIGHTS}device"), (states, OPTIMIZER, f"{_STATES}device")):
        if written is not None:
            draft.state("layout.offload", what, written)
            if plain(written.value) not in (_IN_HOST_MEMORY, "true"):
                _lose(draft, f"{prefix}{key}", written, f"keeps them on {written.value}; counted in host memory")
    if params is not None and states is None:
        draft.following.append(_weights_alone)


def _moved(written: Written | None) -> Written | None:
    """A device that is named, or a switch that is on."""
    return written if written is not None and plain(written.value) not in ("none", "false") else None


def _weights_alone(draft: Draft) -> None:
    """Where all weights learn, states that stay on the card are most of it: weights are counted there too then."""
    if draft.fact("layout.offload") == PARAMS and not any(key.startswith("lora.") for key in draft.facts):
        note = "the weights alone wait in host memory; they are counted on the card, where the optimizer stays"
        draft.narrow("layout.offload", NONE, note)


def _optimizer(draft: Draft, own: Mapping[str, Written]) -> None:
    """The engine's own optimizer, which takes the place of the trainer's."""
    written = own.get("optimizer.type")
    if written is None or not _said(written):
        return
    if plain(written.value) in _ADAM:
        draft.state("optimizer", ADAMW, written)
    else:
        state_optimizer(draft, "optimizer.type", written)


def _bucket(draft: Draft, own: Mapping[str, Written]) -> None:
    """The buffer in which gradients are reduced: elements, of which `auto` is the square of the hidden size."""
    written = own.get(_BUCKET)
    if written is None:
        return
    elements = draft.value(written, _unless_auto(above_zero_or_off))
    note = ""
    if plain(written.value) == _AUTO:
        elements, note = _square_of_hidden(draft.fact("model")), "the square of the hidden size"
    if not isinstance(elements, int | float):
        return
    stage, overlaps = draft.fact("layout.zero"), own.get(f"{_SHARDED}overlap_comm")
    doubled = overlaps is not None and _said(overlaps) and is_on(overlaps.value)
    buckets = 2 if doubled and isinstance(stage, int) and stage <= _LEAST_SHARDED else 1
    size = FLOAT32 if draft.fact("precision") == "fp32" else SIXTEEN_BIT
    draft.state("layout.bucket_gib", round(buckets * float(elements) * size / GIB, 4), written, note)


def _square_of_hidden(model: object) -> float | None:
    try:
        return float(Registry().model(str(model)).hidden) ** 2 if model is not None else None
    except InputError:
        return None
