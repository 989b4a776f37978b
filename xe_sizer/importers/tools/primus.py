"""AMD's Primus: experiments in YAML, with Megatron-LM, Megatron Bridge, TorchTitan or MaxText underneath.

Defaults: Primus primus/configs/modules and primus/configs/models, which are not among an experiment's files.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.importers.parts.base_values import filled_in
from xe_sizer.importers.parts.megatron import Arguments, state_megatron
from xe_sizer.importers.parts.megatron_arguments import TABLE as MEGATRON
from xe_sizer.importers.parts.primus_frameworks import MAXTEXT, TORCHTITAN, state_maxtext, state_torchtitan
from xe_sizer.importers.readers.interpolation import resolved
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.tool import Tool
from xe_sizer.importers.values import is_on, listed, number, plain, positive
from xe_sizer.profiles.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty
    from xe_sizer.importers.written import Keys, Written

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
    silent=names("""
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
_FRAMEWORKS = ("megatron", "megatron_bridge", "torchtitan", "maxtext")


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
