"""TorchTitan's and MaxText's keys in experiments of Primus, with the values that Primus fills in.

Primus primus/configs/modules/{torchtitan,maxtext}/pre_trainer.yaml; MaxText configs/base.yml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.optimizers import state_optimizer
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import plain, positive, positive_or_open, whole, word_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft

_MODES: Mapping[str, object] = {"none": "none", "full": "full", "selective": "selective"}
_SCHEDULES: Mapping[str, object] = {
    "1F1B": "1f1b", "Interleaved1F1B": "1f1b-interleaved", "GPipe": "gpipe", "ZBVZeroBubble": "zb-v",
    "InterleavedZeroBubble": None, "DualPipeV": None,
}  # fmt: skip
_NODE = 8  # GPUs that the axes of one node share

TORCHTITAN = Table(
    keys=(
        Key(("training.local_batch_size",), "train.micro_batch", positive, default=8),
        Key(("training.global_batch_size",), "train.global_batch", positive_or_open),
        Key(("training.seq_len",), "train.seq_len", positive, default=2048),
        Key(("training.steps",), "train.steps", positive, default=10_000),
        Key(("parallelism.tensor_parallel_degree",), "layout.tp", positive, default=1),
        Key(("parallelism.pipeline_parallel_degree",), "layout.pp", positive, default=1),
        Key(("parallelism.context_parallel_degree",), "layout.cp", positive, default=1),
        Key(("parallelism.expert_parallel_degree",), "layout.ep", positive, default=1),
        Key(("parallelism.expert_tensor_parallel_degree",), "layout.expert_tp", positive),
        Key(("parallelism.pipeline_parallel_schedule",), "layout.schedule", word_of(_SCHEDULES)),
        Key(("activation_checkpoint.mode",), "layout.recompute", word_of(_MODES), default="none"),
    ),
    losses=(
        Loss(("compile.enable", "compile.components"), "compiles the model"),
        Loss(("training.enable_cpu_offload",), "moves states to host memory"),
        Loss(("parallelism.enable_async_tensor_parallel",), "hides tensor-parallel exchanges behind products"),
        Loss(("primus_turbo.use_turbo_*", "primus_turbo.use_moe_fp8", "primus_turbo.enable_attention_float8"),
             "takes AMD's own kernels"),
        Loss(("debug.moe_force_load_balance",), "gives every expert the same number of tokens"),
        Loss(("validation.enable",), "evaluates on a data set of its own"),
        Loss(("quantize.*",), "says which layers multiply in 8 bit"),
    ),
    silent=names("""
        metrics.* lr_scheduler.* optimizer.* training.* checkpoint.* profiling.* debug.* parallelism.* comm.*
        activation_checkpoint.* compile.* memory_estimation.* fault_tolerance.* experimental.* validation.*
        primus_turbo.* job.* model.*
    """),
)  # fmt: skip
MAXTEXT = Table(
    keys=(
        Key(("max_target_length",), "train.seq_len", positive, default=2048),
        Key(("steps",), "train.steps", positive_or_open, default=1000),
        Key(("gradient_accumulation_steps",), "train.grad_accum", positive, default=1),
    ),
    losses=(
        Loss(("remat_policy",), "says which operators are recomputed", ("full",)),
        Loss(("capacity_factor",), "drops or pads the tokens of an expert", (-1, -1.0)),
        Loss(("sparse_matmul", "megablox"), "chooses the kernels of experts", unless=True),
        Loss(("optimizer_memory_host_offload",), "moves the optimizer to host memory"),
        Loss(("scan_layers",), "unrolls the layers", unless=True),
        Loss(("moe_dispatch_no_expert_sharding",), "chooses how tokens reach their experts"),
        Loss(("dcn_*", "ici_sequence_parallelism", "ici_tensor_sequence_parallelism", "ici_context_parallelism"),
             "sets an axis that is not modelled", (1, -1)),
        Loss(("logits_dot_in_fp32",), "multiplies the head in float32"),
    ),
    silent=names("""
        run_name base_output_directory profiler dataset_type hf_* enable_checkpointing async_checkpointing log_period
        skip_first* profiler_steps max_segments* shardy param_scan_axis quantize_kvcache kv_quant_* checkpoint_is*
        upload_all* sharding_tolerance use_iota_embed pure_nnx* hardware model_name override_model* tokenizer_path
        learning_rate* ici_* packing
    """),
)  # fmt: skip


def state_torchtitan(draft: Draft) -> None:
    """State what TorchTitan's keys say."""
    draft.apply(Table(keys=TORCHTITAN.keys))
    reshard, shards = (
        draft.take("parallelism.fsdp_reshard_after_forward"),
        draft.take("parallelism.data_parallel_shard_degree"),
    )
    stage = 2 if reshard is not None and plain(reshard.value) == "never" else 3
    if shards is not None and draft.value(shards, positive_or_open) == 1:
        draft.state("layout.zero", 0, shards)
    elif shards is not None:
        draft.state("layout.zero", stage, shards)
    draft.default("layout.zero", stage, "FSDP over all data-parallel ranks")
    found = draft.peek("optimizer.name")
    state_optimizer(draft, "optimizer.name", found)
    draft.default("optimizer", "adamw")
    eight = draft.peek("quantize.linear.float8.filter_fqns", "quantize.linear.mx.filter_fqns")
    if eight is not None:
        draft.state("precision", "fp8", eight)
    draft.default("precision", "bf16", "mixed_precision_param bfloat16")
    draft.default("train.weights_dtype", "fp32", "FSDP keeps float32 weights")
    draft.default("train.padding", "packed", "documents fill every sequence")
    if "train.global_batch" not in draft.facts:
        draft.default("train.grad_accum", 1, "the global batch is one local batch of each rank")


def state_maxtext(draft: Draft) -> None:
    """State what MaxText's keys say; -1 of an axis is what the others leave of a node."""
    draft.apply(Table(keys=MAXTEXT.keys))
    batch = draft.take("per_device_batch_size")
    draft.state("train.micro_batch", draft.value(batch, positive), batch)
    axes = {name: draft.take(f"ici_{name}_parallelism") for name in ("tensor", "expert", "fsdp", "data", "pipeline")}
    sizes = {name: int(str(draft.value(each, whole) or 1)) for name, each in axes.items() if each is not None}
    rest = _NODE
    for size in sizes.values():
        rest //= max(size, 1)
    for name, key in (("tensor", "layout.tp"), ("expert", "layout.ep"), ("pipeline", "layout.pp")):
        written = axes[name]
        if written is not None:
            size = sizes[name]
            note = "what the other axes leave of 8 GPUs" if size < 0 else ""
            draft.state(key, max(rest, 1) if size < 0 else size, written, note)
        draft.default(key, 1)
    sharded = axes["fsdp"]
    if sharded is not None:
        draft.state("layout.zero", 3 if sizes["fsdp"] != 1 else 0, sharded)
    _maxtext_formats(draft)


def _maxtext_formats(draft: Draft) -> None:
    quantised = draft.on("quantization")
    if quantised is not None:
        draft.state("precision", "fp8" if "fp8" in plain(quantised.value) else None, quantised)
    for name, key in (("dtype", "precision"), ("weight_dtype", "train.weights_dtype")):
        written = draft.take(name)
        word = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}.get(plain(written.value)) if written else None
        draft.state(key, word, written)
        draft.default(key, "bf16")
    policy = draft.peek("remat_policy")
    if policy is None or plain(policy.value) == "full":
        draft.state("layout.recompute", "full", draft.take("remat_policy")) if policy else None
        draft.default("layout.recompute", "full")
    draft.take("attention")
    draft.default("attention", "flash", "cudnn_flash_te")
    draft.default("optimizer", "adamw")
    draft.default("train.padding", "packed")
