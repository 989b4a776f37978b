"""A plan in Megatron-LM's arguments: the model's shape, the layout, batches and precision.

Names: megatron/training/arguments.py, core 0.19.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.exporters.exporter import LEARNING_RATE
from xe_sizer.exporters.parts.sharding import shard_sizes

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan
    from xe_sizer.graph.model import ModelShape

SAYS = (
    "job", "gpus", "layout.tp", "layout.pp", "layout.cp", "layout.cp_kind", "layout.ep", "layout.expert_tp",
    "layout.vpp", "layout.stages", "layout.first_stage_layers", "layout.last_stage_layers", "layout.zero",
    "layout.zero_group", "layout.account_for_embedding", "layout.account_for_loss",
    "layout.recompute", "layout.recompute_modules", "layout.recompute_layers", "layout.sequence_parallel",
    "layout.offload", "precision", "optimizer", "attention", "train.seq_len", "train.micro_batch",
    "train.global_batch", "train.batch_ramp_up", "train.steps", "train.padding", "train.dropout",
    "train.checkpoint_every", "train.evaluate_every", "train.async_checkpoint",
)  # fmt: skip
"""Scenario keys that the arguments state, beside the model."""
SCHEDULE = "--lr, --min-lr, --lr-decay-style, --lr-warmup-fraction"
_SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
_OPTIMIZERS = {"adamw": "adam", "sgd": "sgd", "muon": "muon"}
_ATTENTION = {"flash": "flash", "eager": "unfused"}
_ACTIVATIONS = {"swiglu": "swiglu", "geglu": "quick-geglu", "relu2": "squared-relu", "gelu": None, "gelu-new": None}
_NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm1p": "LayerNorm"}
_CONTEXT_KINDS = {"ring": "p2p", "all-gather": "all_gather", "ulysses": "a2a", "hybrid": "a2a+p2p"}
_PADDING = 128


def megatron_flags(plan: Plan) -> dict[str, Any]:
    """The arguments of a plan. Raises InputError: a model or a length that Megatron-LM has no arguments for."""
    flags = _shape(plan) | _length(plan) | _layout(plan) | _numbers(plan)
    if plan.peek("job") in ("pretrain", "sft"):
        flags["sft"] = plan.take("job") == "sft"
    if plan.peek("train.padding", "packed") == "packed":
        plan.said("train.padding")
    return flags | _tokenizer(plan) | {"mock-data": True}


def _tokenizer(plan: Plan) -> dict[str, Any]:
    """The tokenizer of the model; for a shape without a name numbers alone, which are as many as its embedding has."""
    if plan.has_own_shape:
        return {"tokenizer-type": "NullTokenizer", "vocab-size": plan.shape.vocab - 1}
    return {"tokenizer-type": "HuggingFaceTokenizer", "tokenizer-model": plan.peek("model")}


def megatron_lacks(plan: Plan) -> tuple[str, ...]:
    """What no profile says of a model and Megatron-LM would take from its own defaults."""
    if plan.shape.position != "rope" or plan.shape.rotary_base is not None:
        return ()
    return ("the wavelengths of the rotary positions (--rotary-base, --rope-type, --use-rope-scaling)",)


def _refused(message: str, hint: str) -> InputError:
    return InputError(Problem(message, Location("--to"), hint))


def _shape(plan: Plan) -> dict[str, Any]:
    shape = plan.shape
    plan.said("model", "model.layers")
    other = shape.state_space or shape.vision or shape.layer_pattern or shape.global_attention
    if other or shape.activation not in _ACTIVATIONS or shape.norm not in _NORMS or shape.embedding_size:
        raise _refused(f"Megatron-LM has no arguments for the layers of {shape.name}", "choose another tool")
    flags: dict[str, Any] = {
        "num-layers": shape.layers, "hidden-size": shape.hidden, "ffn-hidden-size": shape.ffn or None,
        "num-attention-heads": shape.heads, "max-position-embeddings": max(shape.max_positions, plan.peek(
            "train.seq_len", 0
        )),
        "normalization": _NORMS[shape.norm], "apply-layernorm-1p": shape.norm == "layernorm1p",
        "position-embedding-type": {"learned": "learned_absolute", "rope": "rope"}.get(shape.position, "none"),
        "untie-embeddings-and-output-weights": not shape.tied_embeddings, "disable-bias-linear": not shape.mlp_bias,
        "add-qkv-bias": shape.qkv_bias and not shape.mlp_bias, "qk-layernorm": shape.qk_norm is not None,
        "make-vocab-size-divisible-by": _PADDING,
    }  # fmt: skip
    if shape.position == "rope":
        flags |= {
            "rotary-base": int(shape.rotary_base) if shape.rotary_base else None,
            "rotary-percent": shape.rotary_fraction if shape.rotary_fraction < 1 else None,
            "use-rope-scaling": shape.rotary_scaling is not None,
            "rope-scaling-factor": shape.rotary_scaling,
        }
    activation = _ACTIVATIONS[shape.activation]
    return flags | ({activation: True} if activation else {}) | _attention(shape) | _experts(shape)


def _attention(shape: ModelShape) -> dict[str, Any]:
    latent = shape.latent_attention
    if latent is not None:
        return {
            "multi-latent-attention": True, "q-lora-rank": latent.query_rank, "kv-lora-rank": latent.kv_rank,
            "qk-head-dim": latent.qk_nope_head_dim, "qk-pos-emb-head-dim": latent.qk_rope_head_dim,
            "v-head-dim": latent.v_head_dim,
        }  # fmt: skip
    grouped = shape.kv_heads != shape.heads
    return {
        "kv-channels": shape.head_dim, "group-query-attention": grouped,
        "num-query-groups": shape.kv_heads if grouped else None,
    }  # fmt: skip


def _experts(shape: ModelShape) -> dict[str, Any]:
    experts = shape.experts
    if experts is None:
        return {}
    dense = experts.first_dense_layers
    order = f"[0]*{dense}+[1]*{shape.layers - dense}" if dense else experts.every_n_layers
    return {
        "num-experts": experts.count, "moe-router-topk": experts.per_token, "moe-ffn-hidden-size": experts.ffn,
        "moe-shared-expert-intermediate-size": experts.shared_ffn or None, "moe-layer-freq": order,
        "moe-token-dispatcher-type": "alltoall", "moe-grouped-gemm": True,
    }  # fmt: skip


def _length(plan: Plan) -> dict[str, Any]:
    saved, evaluated = plan.take("train.checkpoint_every"), plan.take("train.evaluate_every")
    steps, ramp = plan.steps, plan.take("train.batch_ramp_up")
    if steps is None:
        raise _refused("Megatron-LM counts steps, and the scenario does not", "give --steps, or --epochs and --samples")
    plan.said("train.steps", "train.epochs")
    plan.said("train.grad_accum", "train.global_batch", "train.micro_batch", "train.seq_len")
    return {
        "seq-length": plan.peek("train.seq_len"), "micro-batch-size": plan.peek("train.micro_batch"),
        "global-batch-size": plan.peek("train.global_batch"),
        "train-iters": None if ramp else steps,
        "train-samples": steps * plan.peek("train.global_batch") if ramp else None,
        "rampup-batch-size": ramp, "lr": LEARNING_RATE,
        "save": "checkpoints" if saved else None, "save-interval": saved,
        "async-save": plan.take("train.async_checkpoint"), "eval-interval": evaluated,
        "eval-iters": None if evaluated else 0,
    }  # fmt: skip


def _layout(plan: Plan) -> dict[str, Any]:
    zero, recompute = plan.take("layout.zero", 0), plan.take("layout.recompute", "none")
    chunks, blocks = plan.take("layout.vpp", 1), plan.take("layout.recompute_layers")
    flags: dict[str, Any] = {
        "tensor-model-parallel-size": plan.take("layout.tp", 1),
        "pipeline-model-parallel-size": plan.take("layout.pp", 1),
        "pipeline-model-parallel-layout": _stages(plan, chunks),
        "decoder-first-pipeline-num-layers": plan.take("layout.first_stage_layers"),
        "decoder-last-pipeline-num-layers": plan.take("layout.last_stage_layers"),
        "account-for-embedding-in-pipeline-split": plan.take("layout.account_for_embedding", False),
        "account-for-loss-in-pipeline-split": plan.take("layout.account_for_loss", False),
        "context-parallel-size": plan.take("layout.cp", 1),
        "cp-comm-type": _CONTEXT_KINDS.get(plan.take("layout.cp_kind")),
        "expert-model-parallel-size": plan.take("layout.ep", 1),
        "expert-tensor-parallel-size": plan.take("layout.expert_tp") or None,
        "num-virtual-stages-per-pipeline-rank": chunks if chunks > 1 and not plan.peek("layout.stages") else None,
        "sequence-parallel": plan.take("layout.sequence_parallel", False),
        "use-distributed-optimizer": zero > 0,
        "num-distributed-optimizer-instances": _copies(plan),
        "use-megatron-fsdp": zero in _SHARDED, "data-parallel-sharding-strategy": _SHARDED.get(zero),
        "ckpt-format": "fsdp_dtensor" if zero in _SHARDED else None,
        "recompute-granularity": None if recompute == "none" else recompute,
    }  # fmt: skip
    if recompute == "selective":
        flags["recompute-modules"] = plan.take("layout.recompute_modules")
    if recompute == "full":
        flags |= {
            "recompute-method": "block" if blocks else "uniform",
            "recompute-num-layers": max(blocks // chunks, 1) if blocks else 1,
        }
    if plan.peek("layout.offload") == "activations":
        plan.said("layout.offload", "layout.offload_layers")
        flags["cpu-offloading-num-layers"] = plan.peek("layout.offload_layers") or _layers_of_a_stage(plan)
    if plan.peek("layout.offload") in ("optimizer", "none"):
        flags["optimizer-cpu-offload"] = plan.take("layout.offload") == "optimizer"
    return flags


def _copies(plan: Plan) -> int | None:
    """Copies of the sharded optimizer: data-parallel ranks over those that share one."""
    sizes = shard_sizes(plan)
    return sizes[0] if sizes is not None and sizes[0] > 1 else None


def _layers_of_a_stage(plan: Plan) -> int:
    """All layers of a stage, of which Megatron-LM leaves the last one on the accelerator."""
    layers = plan.shape.layers
    return max(int(layers // plan.peek("layout.pp", 1)) - 1, 1)


def _stages(plan: Plan, chunks: int) -> str | None:
    """The layers of every stage as Megatron-LM writes them, with the embedding first and the loss last.

    The layers of a stage are spread over its chunks, the first ones first; the embedding takes a layer's place.
    """
    layers = plan.take("layout.stages")
    if not layers:
        return None
    each = [[divmod(count, chunks)[0] + (chunk < count % chunks) for count in layers] for chunk in range(chunks)]
    for row, count in zip(each, sorted(row[0] for row in each), strict=True):
        row[0] = count
    words = ["t" * count for row in each for count in row]
    words[0], words[-1] = f"E{words[0]}", f"{words[-1]}L"
    return "|".join(words)


def _numbers(plan: Plan) -> dict[str, Any]:
    precision = plan.take("precision", "bf16")
    flags: dict[str, Any] = {"bf16": precision in ("bf16", "fp8", "fp4"), "fp16": precision == "fp16"}
    if precision == "fp8":
        flags |= {"fp8-format": "hybrid", "fp8-recipe": plan.take("train.fp8_recipe")}
    if precision == "fp4":
        flags["fp4-format"] = "e2m1"
    if plan.peek("train.weights_dtype") in (precision, "bf16" if flags["bf16"] else None):
        plan.said("train.weights_dtype")
    if plan.peek("optimizer", "adamw") in _OPTIMIZERS:
        flags["optimizer"] = _OPTIMIZERS[plan.take("optimizer", "adamw")]
    if plan.peek("attention", "flash") in _ATTENTION:
        flags["attention-backend"] = _ATTENTION[plan.take("attention", "flash")]
    if plan.peek("loss") == "flash":
        flags |= {"cross-entropy-loss-fusion": True, "cross-entropy-fusion-impl": "te"}
    if plan.peek("loss") in ("flash", "vocab-parallel"):
        plan.said("loss")
    dropout = plan.take("train.dropout", 0.0)
    return flags | {"hidden-dropout": str(dropout), "attention-dropout": str(dropout)}
