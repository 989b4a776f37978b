"""TorchTitan's flavours of models by the catalogue's names, and its keys of all releases.

Flavours: torchtitan/models/*/__init__.py; keys and defaults: torchtitan/config/job_config.py (TOML, to February 2026)
and config/configs.py, trainer.py (Python registries).
"""

from __future__ import annotations

import re

from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import positive, positive_or_open, word_of

_LLAMA3 = {
    "1b": "llama-3.2-1b", "3b": "llama-3.2-3b", "8b": "llama-3.1-8b", "70b": "llama-3.1-70b", "405b": "llama-3.1-405b",
}  # fmt: skip
_FLAVORS = {
    "llama3": _LLAMA3, "llama3_ft": _LLAMA3, "llama3_simple_fsdp": _LLAMA3, "simple_fsdp.llama3": _LLAMA3,
    "llama2": {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"},
    "llama4": {"17bx16e": "llama-4-scout-17b-16e", "17bx128e": "llama-4-maverick-17b-128e"},
    "deepseek_v3": {"16b": "deepseek-v2-lite", "236b": "deepseek-v2", "671b": "deepseek-v3"},
    "qwen3": {
        size: f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b", "30b-a3b", "235b-a22b")
    },
    "qwen3_5": {
        size: f"qwen3.5-{size}"
        for size in ("0.8b", "2b", "4b", "9b", "27b", "35b-a3b", "122b-a10b", "397b-a17b")
    },
    "qwen3_vl": {
        size: f"qwen3-vl-{size}" for size in ("2b", "4b", "8b", "32b", "30b-a3b", "235b-a22b")
    },
    "gpt_oss": {"20b": "gpt-oss-20b", "120b": "gpt-oss-120b"},
    "kimi_k2_7": {"kimi-k2.5": "kimi-k2.5", "moonlight-16b-a3b": "moonlight-16b-a3b"},
    "muse_glimmer": {"30b": "muse-glimmer-30b", "30b_mm": "muse-glimmer-30b"},
}  # fmt: skip
_TINY: dict[str, object] = {
    "hidden": 256, "heads": 16, "vocab": 2048, "tied_embeddings": False, "norm": "rmsnorm", "activation": "swiglu",
    "position": "rope",
}  # fmt: skip
_QWEN3_TINY: dict[str, object] = {
    **_TINY, "layers": 8, "kv_heads": 8, "head_dim": 128, "ffn": 3072, "qk_norm": "perhead", "max_positions": 4096,
}  # fmt: skip
SHAPES: dict[str, dict[str, object]] = {
    "llama3": {**_TINY, "layers": 6, "kv_heads": 16, "ffn": 768, "max_positions": 131_072},
    "qwen3": {**_QWEN3_TINY, "tied_embeddings": True},
    "qwen3 moe": {**_QWEN3_TINY, "experts.count": 64, "experts.per_token": 8, "experts.ffn": 768},
    "deepseek_v3": {
        **_TINY, "layers": 6, "ffn": 1024, "max_positions": 16_384, "experts.count": 8, "experts.per_token": 3,
        "experts.ffn": 256, "experts.shared_ffn": 512, "experts.first_dense_layers": 1, "latent_attention.kv_rank": 512,
        "latent_attention.qk_nope_head_dim": 128, "latent_attention.qk_rope_head_dim": 64,
        "latent_attention.v_head_dim": 128,
    },
}  # fmt: skip
"""Shapes of flavours for debugging, by family."""
_ATTENTION = re.compile(r"_(flex|varlen)(_attn|_flash)?$|_irope$")


def catalogue_name(family: str, flavor: str) -> str | None:
    """What the catalogue calls a flavour of a family; None where it has none."""
    size = _ATTENTION.sub("", flavor.lower())
    return _FLAVORS.get(family, {}).get(size)


def family_in(text: str) -> str | None:
    """The family that a path or the name of a function tells."""
    words = text.lower()
    return max((family for family in _FLAVORS if family in words), key=len, default=None)


def tiny_shape(family: str, flavor: str) -> dict[str, object] | None:
    """The shape of a flavour for debugging; None where it is none, or is not known."""
    if not flavor.startswith("debugmodel"):
        return None
    start = "llama3" if family.startswith("llama3") else family
    return SHAPES.get(f"{start} moe" if flavor == "debugmodel_moe" else start)


def _was(*words: str) -> tuple[str, ...]:
    """Names of a degree of parallelism: first of `parallelism`, in older releases of other sections."""
    return tuple(f"{section}.{word}" for word in words for section in ("parallelism", "training", "experimental"))


TABLE = Table(
    keys=(
        Key(("training.seq_len", "training.max_context_length"), "train.seq_len", positive, default=2048),
        Key(("training.local_batch_size", "training.batch_size"), "train.micro_batch", positive, default=8),
        Key(("training.steps",), "train.steps", positive, default=10_000),
        Key(("training.global_batch_size",), "train.global_batch", positive_or_open),
        Key(_was("tensor_parallel_degree"), "layout.tp", positive, default=1),
        Key(_was("pipeline_parallel_degree"), "layout.pp", positive, default=1),
        Key(_was("context_parallel_degree"), "layout.cp", positive, default=1),
        Key(_was("context_parallel_rotate_method"), "layout.cp_kind",
            word_of({"allgather": "all-gather", "alltoall": "ring"})),
        Key(_was("expert_parallel_degree"), "layout.ep", positive, default=1),
        Key(_was("expert_tensor_parallel_degree"), "layout.expert_tp", positive),
    ),
    losses=(
        Loss(("fault_tolerance.semi_sync_method", "fault_tolerance.sync_steps", "fault_tolerance.num_fragments"),
             "exchanges gradients or weights only every so many steps"),
        Loss(("fault_tolerance.enable",), "replicates the job in groups that may fail"),
        Loss((*_was("enable_async_tensor_parallel"), "compile.enable_async_tensor_parallel"),
             "overlaps the exchange of tensor parallelism with products"),
        Loss(_was("enable_compiled_autograd"), "compiles the backward pass"),
        Loss(_was("disable_loss_parallel", "enable_loss_parallel"), "gathers the logits over tensor parallel ranks",
             harmless=(True,)),
        Loss(("parallelism.pipeline_parallel_schedule_csv",), "reads the order of a pipeline's passes from a file"),
        Loss(("parallelism.module_fqns_per_model_part*", *_was("pipeline_parallel_split_points")),
             "says which modules are in which pipeline stage"),
        Loss(("parallelism.enable_fsdp_symm_mem",), "gathers weights through symmetric memory"),
        Loss(("parallelism.expert_parallel_comm_backend",), "exchanges tokens by another library",
             harmless=("standard",)),
        Loss(("optimizer.early_step_in_backward",), "updates weights during the backward pass"),
        Loss(("optimizer.implementation",), "steps the optimizer tensor by tensor", harmless=("fused",)),
        Loss(("activation_checkpoint.memory_budget",), "recomputes as much as fits a budget of memory"),
        Loss(("model_spec.moe_comm_backend", "moe_comm_backend"), "exchanges tokens by another library",
             harmless=("standard",)),
        Loss(("debug.detect_anomaly", "debug.batch_invariant", "debug.deterministic", "training.deterministic"),
             "runs slower kernels"),
        Loss(("model_spec.attn_backend", "model.attn_type"), "runs another attention kernel", harmless=("sdpa",)),
        Loss(("float8.enable_fsdp_float8_all_gather",), "gathers weights in 8 bit"),
        Loss(("memory_estimation.enable",), "estimates memory and does not train"),
        Loss(("override.imports",), "replaces modules of the model"),
    ),
    silent=names("""
        job.* profiling.* profiler* metrics* model.* lr_scheduler* training.* parallelism.* experimental.* checkpoint*
        activation_checkpoint* compile.* quantize.* float8.* mx.* comm.* memory_estimation.* fault_tolerance.*
        validation.* validator* debug.* optimizer.* dataloader* tokenizer* hf_assets_path dump_folder loss loss.*
        model_spec* _target_ override* hf_transformers.* data.* encoder.* inference.* _args_* hf_* simple_fsdp.*
        print_config
        module config ft.* tensorboard.* processor* preprocess* eval.* activation_offload.* special_tokens.*
    """),
)  # fmt: skip
