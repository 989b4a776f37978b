"""AMD's Primus: experiments in YAML, with Megatron-LM, Megatron Bridge, TorchTitan or MaxText underneath.

Defaults: Primus primus/configs/modules and primus/configs/models, which are not among an experiment's files.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.interop.draft import Key, Loss, Table, globs
from xe_sizer.interop.huggingface import state_optimizer
from xe_sizer.interop.megatron import TABLE as MEGATRON
from xe_sizer.interop.megatron import Arguments, filled_in, state_megatron
from xe_sizer.interop.readers.documents import resolved
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import is_on, listed, number, plain, positive, positive_or_open, whole, word_of
from xe_sizer.profiles.catalogue import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys, Written

# TorchTitan's and MaxText's keys in experiments of Primus, with the values that Primus fills in.
#
# Primus primus/configs/modules/{torchtitan,maxtext}/pre_trainer.yaml; MaxText configs/base.yml.

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
    silent=globs("""
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
    silent=globs("""
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


_MODULE = re.compile(r"modules\.([^.]+)\.framework")
_CARD = re.compile(r"mi\d{3}x", re.IGNORECASE)
_MODELS: Mapping[str, str] = {
    "deepseek-v3-16b": "deepseek-v2-lite", "deepseek-v2-16b": "deepseek-v2-lite", "deepseek-v3-236b": "deepseek-v2",
    "deepseek-v3-671b": "deepseek-v3", "llama4-17bx16e": "llama-4-scout-17b-16e",
    "llama4-17b16e": "llama-4-scout-17b-16e", "llama4-17bx128e": "llama-4-maverick-17b-128e",
    "llama4-17b128e": "llama-4-maverick-17b-128e", "gemma4-26b": "gemma-4-26b-a4b", "llama31-70b": "llama-3.1-70b",
    "llama31-8b": "llama-3.1-8b", "llama31-405b": "llama-3.1-405b", "qwen3-5-35b-a3b": "qwen3.5-35b-a3b",
    "llama2-70b-lora-mxfp4": "llama-2-70b",
}  # fmt: skip
"""Model files of Primus whose names are those of no profile."""
PRETRAINING: Mapping[str, object] = {
    "train_iters": 1000, "micro_batch_size": 2, "global_batch_size": 16, "seq_length": 1024, "bf16": True,
    "use_distributed_optimizer": True, "use_flash_attn": True, "sequence_parallel": True, "hidden_dropout": 0.0,
    "attention_dropout": 0.0, "eval_iters": 0, "data_parallel_sharding_strategy": "no_shard",
}  # fmt: skip
TUNING: Mapping[str, object] = {
    **PRETRAINING, "micro_batch_size": 1, "global_batch_size": 128, "seq_length": 2048, "eval_iters": 10,
    "eval_interval": 50, "save_interval": 100,
}  # fmt: skip
_LORA = (
    Key(("lora.dim", "peft_dim"), "lora.rank", positive),
    Key(("lora.dropout",), "lora.dropout", number),
    Key(("lora.target_modules",), "lora.targets", listed),
)
_OWN = Table(
    keys=_LORA,
    losses=(
        Loss(("use_turbo_*", "enable_turbo_*", "turbo_*"), "takes AMD's own kernels"),
        Loss(("torch_compile.enable",), "compiles the model"),
        Loss(("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "num_experts",
              "moe_layer_freq", "moe_ffn_hidden_size", "moe_router_topk", "moe_shared_expert*", "moe_latent_size"),
             "changes the shape of the model"),
        Loss(("patch_zero_bubble", "enable_zero_bubble", "zero_bubble_v_schedule*", "enable_1f1b_v", "pp_algorithm",
              "patch_primus_pipeline"),
             "orders the passes of a pipeline in another way", ("1f1b", "1f1b-interleaved")),
        Loss(("recompute_layer_ids",), "recomputes single layers"),
        Loss(("moe_router_force_load_balancing*",), "gives every expert the same number of tokens", ("even",)),
        Loss(("comm_overlap_config", "enable_odc*", "patch_moe_overlap", "overlap_grad_norm"), "hides exchanges"),
        Loss(("use_fsdp2_*", "fsdp_prefetch_depth", "data_parallel_replicate_degree"), "sets how FSDP shards", (1,)),
        Loss(("fused_ce_*", "enable_fused_linear_ce", "moe_use_fused_router*"), "fuses kernels"),
        Loss(("gradient_accumulation_fusion", "apply_rope_fusion", "bias_swiglu_fusion", "masked_softmax_fusion"),
             "runs kernels one by one that are otherwise fused", unless=True),
        Loss(("use_sink_attention", "sink_*", "use_fla_*", "use_v4_*", "lfm_layer_types"),
             "is a kind of attention that the shape does not say"),
    ),
    silent=globs("""
        disable_* auto_continue_train stderr_sink_level file_sink_level sink_level no_fp8_weight* stage model_type
        activation_func sft_* max_samples* enable_packed* use_packed* wall_clock* fp8_wgrad torch_profiler* pp_warmup
        lora.* peft* flavor wandb* mock* skip_save dataset* data_paths packed_* finetune_lr comm_* conv_* kda_*
        trainable use_rocm_mem* mlflow_* dump_pp* odc_* weight_deosc* torch_compile.* mlperf_* target_* lb_mini*
        precision_config packed_sequence optimizer_foreach warmup_train* work_group user_name exp_name workspace
        platform.* modules.* extends HSA_* NVTE_* GPU_* CLEAN_* TURBO_* LEGACY_* PRIMUS_* USING_* params* swiglu_limit
        timestep_* cfg_dropout* vae_* nemo_* per_step* adaln_* empty_cache* prefetch_factor mock_dataset.*
        multi_latent_attention _trainer_class env.* runtime.* data.* _maxdiffusion* output_dir _trainable
        torch_fsdp2_reshard* use_dual* step_scheduler.* add_qkv_bias window_size enable_profiler checkpoint_every
        enable_primus_turbo overrides.* _framework _model _config
    """),
)  # fmt: skip
TABLE = Table(
    keys=(*_LORA,),
    losses=(*_OWN.losses, *TORCHTITAN.losses, *MAXTEXT.losses, *MEGATRON.losses),
    silent=(*_OWN.silent, *TORCHTITAN.silent, *MAXTEXT.silent, *MEGATRON.silent),
)


def _recognises(source: Source) -> Certainty:
    return 95 if source.kind == "yaml" and any(map(_MODULE.fullmatch, source.keys)) else 0


def _keys(source: Source) -> Keys:
    """The overrides of the first module under their own names, and what chooses them; references are filled in."""
    keys = resolved(source.keys, source.given)
    module = next((match[1] for match in map(_MODULE.fullmatch, keys) if match), "")
    inside = f"modules.{module}."
    found: dict[str, Written] = {}
    for name, written in keys.items():
        if name.startswith(f"{inside}overrides."):
            found[name.removeprefix(f"{inside}overrides.")] = written
        elif name.startswith(inside):
            found[f"_{name.removeprefix(inside)}"] = written
    return {**{name: each for name, each in keys.items() if not name.startswith(inside)}, **found}


def _read(draft: Draft, source: Source) -> None:
    framework = draft.take("_framework")
    word = str(framework.value) if framework is not None else ""
    tuning = "post" in str(getattr(draft.peek("_config"), "value", "")) or "sft" in str(
        getattr(draft.peek("_config"), "value", "")
    )
    draft.state("stack", {"torchtitan": "torchtitan", "maxtext": "maxtext"}.get(word, "primus"), framework)
    _model(draft)
    _job(draft, framework, tuning=tuning)
    if word == "torchtitan":
        _eight_bit(draft)
        state_torchtitan(draft)
    elif word == "maxtext":
        state_maxtext(draft)
    elif word in ("megatron", "megatron_bridge"):
        with filled_in(draft, TUNING if tuning else PRETRAINING, "Primus"):
            state_megatron(Arguments(draft))
    elif framework is not None:
        draft.lose("_framework", f"{word} is not read")
    draft.default("train.padding", "longest-in-micro-batch" if tuning else "packed")
    card = _CARD.search(source.path.name) or _CARD.search(source.path.parent.name)
    if card is not None:
        draft.assume("gpu", card[0].lower(), "from the name of the file or its folder")


def _model(draft: Draft) -> None:
    """The model by the name of its file, which Primus has."""
    written = draft.take("_model")
    if written is None:
        draft.miss("model", "no module names one", "--model NAME")
        return
    stem = PurePath(str(written.value)).name.removesuffix(".yaml")
    draft.state("model", catalogue_name(stem), written, f"read from {stem}.yaml")


def catalogue_name(stem: str) -> str:
    """The catalogue's model that a file of Primus is called after, else the name of the file."""
    word = re.sub(r"-(fp8|bf16|mxfp\d)$", "", stem.lower().replace("_", "-"))
    named = _MODELS.get(word, word)
    try:
        return Registry().model(named).name
    except (InputError, OSError):
        return stem


def _eight_bit(draft: Draft) -> None:
    """Model files of TorchTitan that end in -fp8 turn the conversion of its linear layers on."""
    written = draft.keys.get("_model")
    if written is not None and "fp8" in str(written.value).lower():
        draft.state("precision", "fp8", written)


def _job(draft: Draft, framework: Written | None, *, tuning: bool) -> None:
    adapters, kind = draft.on("lora.enabled"), draft.take("peft")
    if kind is not None and is_on(kind.value) and plain(kind.value) != "none":
        adapters = adapters or kind
    if adapters is not None:
        draft.state("job", "lora", adapters)
    draft.state("job", "sft" if tuning else "pretrain", draft.take("_config") or framework)


TOOL = Tool(
    name="primus",
    title="Primus",
    reads="YAML experiments of Megatron-LM, Megatron Bridge, TorchTitan and MaxText",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
