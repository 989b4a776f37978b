"""Megatron's arguments, read and written, and those of the tools on top of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.graph.recompute import RECOMPUTE_MODULES
from xe_sizer.immutable import Immutable
from xe_sizer.interop.draft import TOOL_DEFAULT, Fact, Table
from xe_sizer.interop.huggingface import ACTIVATIONS, ADAMW, MUON, NO_OFFLOAD, OPTIMIZER, shard_sizes, state_optimizer
from xe_sizer.interop.launch import Shape, state_overlap, state_shape, vocabulary_of
from xe_sizer.interop.values import (
    Written,
    interval,
    inverse,
    is_on,
    listed,
    number,
    plain,
    positive,
    positive_or_open,
    whole,
)
from xe_sizer.interop.write import LEARNING_RATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.launch import Stated
    from xe_sizer.interop.write import Plan

# A plan in Megatron-LM's arguments: the model's shape, the layout, batches and precision.
#
# Names: megatron/training/arguments.py, core 0.19.

SAYS = (
    "job", "gpus", "layout.tp", "layout.pp", "layout.cp", "layout.cp_kind", "layout.ep", "layout.expert_tp",
    "layout.vpp", "layout.stages", "layout.first_stage_layers", "layout.last_stage_layers", "layout.zero",
    "layout.zero_group", "layout.account_for_embedding", "layout.account_for_loss",
    "layout.recompute", "layout.recompute_modules", "layout.recompute_layers", "layout.sequence_parallel",
    "layout.offload", "precision", "train.gradient_dtype", "optimizer", "attention", "train.seq_len",
    "train.micro_batch", "train.global_batch", "train.batch_ramp_up", "train.steps", "train.padding", "train.dropout",
    "train.checkpoint_every", "train.evaluate_every", "train.async_checkpoint",
    "train.overlap", "train.capacity_factor", "train.pad_to_capacity", "train.mtp_layers",
)  # fmt: skip
"""Scenario keys that the arguments state, beside the model."""
SCHEDULE = "--lr, --min-lr, --lr-decay-style, --lr-warmup-fraction"
_OPTIMIZERS = {"adamw": "adam", "sgd": "sgd", "muon": "muon"}
# --use-precision-aware-optimizer by what has 16 bits: master weights, and both moments.
_NARROW = {
    (True, False): "adamw-precision-aware",
    (True, True): "adamw-precision-aware-bf16",
    (False, True): "adamw-bf16-moments",
    (False, False): "adamw",
}
_MOMENTS = ("exp_avg_dtype", "exp_avg_sq_dtype")
ATTENTION: Mapping[str, object] = {
    "auto": None, "flash": "flash", "fused": "flash", "unfused": "eager", "local": "eager",
}  # fmt: skip
"""Backends of attention; cuDNN's fused kernel is priced as FlashAttention."""
_ACTIVATIONS = {"swiglu": "swiglu", "geglu": "quick-geglu", "relu2": "squared-relu", "gelu": None, "gelu-new": None}
_NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm1p": "LayerNorm"}
CONTEXT_KINDS: Mapping[str, object] = {
    "p2p": "ring", "all_gather": "all-gather", "a2a": "ulysses", "a2a+p2p": "hybrid",
}  # fmt: skip
_OVERLAP = {
    "tensor-parallel": ("tp_comm_overlap", "ub_tp_comm_overlap"),
    "expert-parallel": ("overlap_moe_expert_parallel_comm", "moe_a2a_overlap"),
    "pipeline": ("overlap_p2p_comm",),
    "data-parallel": ("overlap_grad_reduce", "overlap_grad_sync"),
    "updated-weights": ("overlap_param_gather", "overlap_param_sync"),
}
"""Switches by the exchange that they hide: Megatron-LM's, and what NeMo calls them."""
_SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
_FSDP_STAGES = (2, 3)  # for which plans are written with Megatron's FSDP
COMPILED = "vocab-parallel-compiled"  # the loss of --cross-entropy-loss-fusion unless Transformer Engine's is asked for
_FUSED_LOSSES = {"flash": "te", COMPILED: "native"}
"""Losses of --cross-entropy-loss-fusion, with what --cross-entropy-fusion-impl calls them."""
_PADDING = 128
_POSITIONED = (
    "max-position-embeddings", "rotary-base", "rotary-percent", "use-rope-scaling", "rope-scaling-factor",
)  # fmt: skip


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


def megatron_tells(plan: Plan) -> tuple[str, ...]:
    """What the arguments say of positions, which a command that a scenario was read from may say otherwise."""
    if plan.has_own_shape:
        return ()
    flags = {name: value for name, value in _shape(plan).items() if name in _POSITIONED and value not in (None, False)}
    written = (f"--{name}" if value is True else f"--{name} {value}" for name, value in flags.items())
    return (f"positions are written as the profile of {plan.shape.name} has them: {', '.join(written)}",)


def one_connection(plan: Plan) -> str:
    """The variable that Megatron-LM wants set where tensor or context ranks work together, but not with its FSDP.

    Before Blackwell it refuses to start without (training/arguments.py).
    """
    together = plan.peek("layout.tp", 1) > 1 or plan.peek("layout.cp", 1) > 1
    wanted = together and plan.peek("layout.zero", 0) not in _FSDP_STAGES
    return "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" if wanted else ""


def _refused(message: str, hint: str) -> InputError:
    return InputError(Problem(message, Location("--to"), hint))


def _shape(plan: Plan) -> dict[str, Any]:
    shape = plan.shape
    plan.said("model", "model.layers")
    other = shape.state_space or shape.vision or shape.layer_pattern or shape.global_attention or shape.shared_blocks
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
    return flags | ({activation: True} if activation else {}) | _attention_flags(shape) | _expert_flags(shape)


def _attention_flags(shape: ModelShape) -> dict[str, Any]:
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


def _expert_flags(shape: ModelShape) -> dict[str, Any]:
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
        "cp-comm-type": inverse(CONTEXT_KINDS).get(plan.take("layout.cp_kind")),
        "expert-model-parallel-size": plan.take("layout.ep", 1),
        "expert-tensor-parallel-size": plan.take("layout.expert_tp") or None,
        "num-virtual-stages-per-pipeline-rank": chunks if chunks > 1 and not plan.peek("layout.stages") else None,
        "moe-expert-capacity-factor": plan.take("train.capacity_factor"),
        "mtp-num-layers": plan.take("train.mtp_layers") or None,
        "moe-pad-expert-input-to-capacity": plan.take("train.pad_to_capacity", False),
        "sequence-parallel": plan.take("layout.sequence_parallel", False),
        "use-distributed-optimizer": zero > 0,
        "num-distributed-optimizer-instances": _copies(plan),
        "use-megatron-fsdp": zero in _FSDP_STAGES,
        "data-parallel-sharding-strategy": inverse(_SHARDING)[zero] if zero in _FSDP_STAGES else None,
        "ckpt-format": "fsdp_dtensor" if zero in _FSDP_STAGES else None,
        "recompute-granularity": None if recompute == "none" else recompute,
    }  # fmt: skip
    hidden = plan.take("train.overlap")
    if hidden is not None:
        switches = {exchange: names[0] for exchange, names in _OVERLAP.items() if exchange != "pipeline"}
        flags |= {name.replace("_", "-"): bool({"on", each} & set(hidden)) for each, name in switches.items()}
        flags["no-overlap-p2p-communication"] = not {"on", "pipeline"} & set(hidden)
    if recompute == "selective":
        flags["recompute-modules"] = plan.take("layout.recompute_modules")
    if recompute == "full":
        flags |= {
            "recompute-method": "block" if blocks else "uniform",
            "recompute-num-layers": max(blocks // chunks, 1) if blocks else 1,
        }
    if plan.peek("layout.offload") == "activations":
        plan.said("layout.offload", "layout.offload_layers")
        most = max(int(plan.shape.layers // plan.peek("layout.pp", 1)) - 1, 1)  # the last one stays on the accelerator
        flags["cpu-offloading-num-layers"] = plan.peek("layout.offload_layers") or most
    if plan.peek("layout.offload") in ("optimizer", "none"):
        offloads = plan.take("layout.offload") == "optimizer"
        # Megatron-LM refuses the one without the other (training/arguments.py).
        flags |= {"optimizer-cpu-offload": offloads, "use-precision-aware-optimizer": offloads}
    return flags


def _copies(plan: Plan) -> int | None:
    """Copies of the sharded optimizer: data-parallel ranks over those that share one."""
    sizes = shard_sizes(plan)
    return sizes[0] if sizes is not None and sizes[0] > 1 else None


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


def _optimizer_flags(plan: Plan) -> dict[str, Any]:
    """The optimizer, and the types of its states where a 16-bit run keeps few bits of them."""
    name = plan.peek("optimizer", ADAMW)
    if name in _OPTIMIZERS:
        return {"optimizer": _OPTIMIZERS[plan.take("optimizer", ADAMW)]}
    kept = next((kept for kept, known in _NARROW.items() if known == name), (False, False))
    if not kept[0] or plan.peek("precision", "bf16") != "bf16":
        return {}
    plan.take("optimizer")
    types = dict.fromkeys((each.replace("_", "-") for each in _MOMENTS), "bf16") if kept[1] else {}
    return {"optimizer": _OPTIMIZERS[ADAMW], "use-precision-aware-optimizer": True, **types}


def _gradient_flags(plan: Plan, precision: str) -> dict[str, Any]:
    """What gradients are kept and exchanged in, where that is not what Megatron does unasked."""
    kept = plan.take("train.gradient_dtype")
    if kept == "bf16":
        return {"grad-reduce-in-bf16": True}
    return {"accumulate-allreduce-grads-in-fp32": True} if (kept, precision) == ("fp32", "fp16") else {}


def _numbers(plan: Plan) -> dict[str, Any]:
    precision = plan.take("precision", "bf16")
    flags: dict[str, Any] = {"bf16": precision in ("bf16", "fp8", "fp4"), "fp16": precision == "fp16"}
    if precision == "fp8":
        flags |= {"fp8-format": "hybrid", "fp8-recipe": plan.take("train.fp8_recipe")}
    if precision == "fp4":
        flags["fp4-format"] = "e2m1"
    if plan.peek("train.weights_dtype") in (precision, "bf16" if flags["bf16"] else None):
        plan.said("train.weights_dtype")
    flags |= _gradient_flags(plan, precision) | _optimizer_flags(plan)
    backends = inverse(ATTENTION)
    if plan.peek("attention", "flash") in backends:
        flags["attention-backend"] = backends[plan.take("attention", "flash")]
    loss = plan.peek("loss")
    if loss in _FUSED_LOSSES:
        flags |= {"cross-entropy-loss-fusion": True, "cross-entropy-fusion-impl": _FUSED_LOSSES[loss]}
    if loss in (*_FUSED_LOSSES, "vocab-parallel"):
        plan.said("loss")
    dropout = plan.take("train.dropout", 0.0)
    return flags | {"hidden-dropout": str(dropout), "attention-dropout": str(dropout)}


# Megatron-LM's arguments: what each sets, what is lost, and what changes nothing.
#
# Names are those of the command line in snake case, as megatron/training/arguments.py and the configuration classes
# have
# them from core 0.6 to 0.19; Megatron Bridge, NeMo, Primus, ms-swift and verl use the same ones. What needs more than
# one argument is read in `parts.megatron`.

TABLE = Table(file="megatron_lm/arguments")


# Arguments that a tool fills in itself, before Megatron's own defaults.


@contextmanager
def filled_in(draft: Draft, base: Mapping[str, object], source: str) -> Iterator[None]:
    """Inside, the draft has these arguments where a file does not; what they state are defaults of the tool.

    source : where the tool has them, for what is said of their facts
    """
    here = Location(source)
    added = {name: Written(value, here) for name, value in base.items() if name not in {**draft.keys, **draft.unread}}
    before = {name: draft.keys.get(name) for name in added}
    draft.keys.update(added)
    try:
        yield
    finally:
        for key, fact in draft.facts.items():
            if fact.where is here:
                draft.replace(key, Fact(fact.value, TOOL_DEFAULT, None, fact.note))
        draft.ignored = [each for each in draft.ignored if each.where is not here]
        for name, written in before.items():
            if written is None:
                del draft.keys[name]
            else:
                draft.keys[name] = written


# The shape of a model in Megatron's arguments.
#
# Names and defaults: megatron/training/arguments.py, core/transformer/transformer_config.py and
# core/tokenizers/utils/build_tokenizer.py of Megatron-LM, core 0.19.

_VOCABULARIES: Mapping[str, int] = {
    "gpt2bpetokenizer": 50_257, "bertwordpiecelowercase": 30_522, "bertwordpiececase": 28_996,
    "llama2tokenizer": 32_000, "tiktokenizer": 131_072,
}  # fmt: skip
"""Tokens of tokenizers whose type says them."""
_OWN_SIZE = ("nulltokenizer", "nullmultimodaltokenizer", "tiktokenizer")  # --vocab-size is theirs alone
_SIZES = (
    ("layers", ("num_layers", "encoder_num_layers", "decoder_num_layers")),
    ("hidden", ("hidden_size",)),
    ("heads", ("num_attention_heads",)),
    ("head_dim", ("kv_channels",)),
    ("max_positions", ("max_position_embeddings",)),
)
_LATENT = (
    ("query_rank", "q_lora_rank", None), ("kv_rank", "kv_lora_rank", 32), ("qk_nope_head_dim", "qk_head_dim", 128),
    ("qk_rope_head_dim", "qk_pos_emb_head_dim", 64), ("v_head_dim", "v_head_dim", 128),
)  # fmt: skip
_STATE_SPACE = (
    ("state", "mamba_state_dim", 128), ("head_dim", "mamba_head_dim", 64), ("groups", "mamba_num_groups", 8),
    ("heads", "mamba_num_heads", None),
)  # fmt: skip
_POSITIONS = {"learnedabsolute": "learned", "rope": "rope", "yarn": "rope", "mrope": "rope", "none": "none"}
_ROTARY_BASE, _ROTARY_SCALING = 10_000, 8
_FLEXIBLE = 64  # the width of a gated MLP is rounded down to a multiple of it
_LONGEST = 10_000


def state_model(arguments: Arguments) -> None:
    """State the model that the arguments describe; nothing where a checkpoint is to say its shape."""
    copied = arguments.on("use_checkpoint_args")
    values: dict[str, Stated] = {}
    for key, names in _SIZES:
        _put(values, key, arguments.read(positive, *names))
    if copied is not None and not values:
        arguments.draft.miss("model", "its shape is in the checkpoint (--use-checkpoint-args)", "--model NAME")
        return
    _pattern(arguments, values)
    _attention_of_shape(arguments, values)
    _mlp(arguments, values)
    _experts(arguments, values)
    _vectors(arguments, values)
    _wavelengths(arguments, values)
    padding = _vocabulary(arguments, values)
    if "layers" in values or "hidden" in values:
        tokenizer = arguments.peek("tokenizer_model", "tokenizer_name_or_path")
        state_shape(arguments.draft, Shape(values, padding, (str(tokenizer.value),) if tokenizer else ()))


def _put(values: dict[str, Stated], key: str, read: Stated | None) -> None:
    if read is not None:
        values[key] = read


def _read(arguments: Arguments, name: str, default: int | None) -> Stated | None:
    """A size, else what Megatron takes without it; None where neither is known."""
    found = arguments.read(positive, name)
    return found or (None if default is None or arguments.open(name) else (default, None))


def _size(values: Mapping[str, Stated], key: str) -> int | None:
    return int(str(values[key][0])) if key in values else None


def _pattern(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Layers of hybrid models, a letter each; what stands behind `/` predicts further tokens, `|` parts stages."""
    found = arguments.take("hybrid_layer_pattern", "hybrid_override_pattern")
    if found is None:
        return
    letters = str(found.value).partition("/")[0].replace("|", "")
    if not letters or set(letters) - set("M*-E") or len(letters) > _LONGEST:
        arguments.lose("hybrid_layer_pattern", "has kinds of layers that are not known here")
        arguments.lose("hybrid_override_pattern", "has kinds of layers that are not known here")
        return
    values["layer_pattern"] = (letters, found)
    values["layers"] = (len(letters), found)
    values["norms_per_layer"] = (1, None)
    if "M" in letters:
        _state_space(arguments, values, found)


def _state_space(arguments: Arguments, values: dict[str, Stated], found: Written) -> None:
    values["state_space.kind"] = ("mamba-2", found)
    for key, name, default in _STATE_SPACE:
        _put(values, f"state_space.{key}", _read(arguments, name, default))
    hidden, head_dim = _size(values, "hidden"), _size(values, "state_space.head_dim")
    if hidden and head_dim:
        values.setdefault("state_space.heads", (2 * hidden // head_dim, None))
        inner = (_size(values, "state_space.heads") or 0) * head_dim
        values["state_space.inner"] = (inner, None)


def _attention_of_shape(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Latent attention, else query groups: as many as heads without them."""
    latent = arguments.on("multi_latent_attention")
    grouped = arguments.on("group_query_attention")
    groups = arguments.read(positive_or_open, "num_query_groups", "num_key_value_heads")
    if latent is not None:
        for key, name, default in _LATENT:
            _put(values, f"latent_attention.{key}", _read(arguments, name, default))
        values.pop("head_dim", None)
    elif grouped is not None:
        _put(values, "kv_heads", groups or _read(arguments, "num_query_groups", 1))
    elif groups is not None and arguments.peek("group_query_attention") is None and int(str(groups[0])) > 1:
        values["kv_heads"] = groups
    elif "heads" in values and not arguments.open("num_query_groups"):
        values["kv_heads"] = (values["heads"][0], None)


def _mlp(arguments: Arguments, values: dict[str, Stated]) -> None:
    for name, word in (("swiglu", "swiglu"), ("quick_geglu", "geglu"), ("squared_relu", "relu2"),
                       ("openai_gelu", "gelu-new"), ("gated_linear_unit", "swiglu")):  # fmt: skip
        found = arguments.on(name)
        if found is not None:
            values.setdefault("activation", (word, found))
    values.setdefault("activation", ("gelu", None))
    _put(values, "ffn", arguments.read(positive_or_open, "ffn_hidden_size"))
    hidden = _size(values, "hidden")
    if hidden is not None and not arguments.open("ffn_hidden_size"):
        gated = values["activation"][0] in ("swiglu", "geglu")
        width = hidden * 8 // 3 // _FLEXIBLE * _FLEXIBLE if gated else 4 * hidden
        values.setdefault("ffn", (width, None))


def _experts(arguments: Arguments, values: dict[str, Stated]) -> None:
    count = arguments.read(positive_or_open, "num_experts", "num_moe_experts")
    if count is None:
        return
    values["experts.count"] = count
    _put(values, "experts.per_token", _read(arguments, "moe_router_topk", 2))
    own = arguments.read(positive_or_open, "moe_ffn_hidden_size")
    _put(values, "experts.ffn", own or (None if arguments.open("moe_ffn_hidden_size") else values.get("ffn")))
    _put(values, "experts.shared_ffn", arguments.read(positive_or_open, "moe_shared_expert_intermediate_size"))
    gate = arguments.on("moe_shared_expert_gate")
    if gate is not None:
        values["experts.shared_gate"] = (True, gate)
    _put(values, "experts.latent", arguments.read(positive_or_open, "moe_latent_size"))
    written = arguments.take("moe_layer_freq")
    if written is None:
        return
    layers = layers_with_experts(written.value)
    if isinstance(layers, int):
        values["experts.every_n_layers"] = (layers, written)
    elif layers is None or 1 not in layers or not all(layers[layers.index(1) :]):
        arguments.lose("moe_layer_freq", "says which layers have experts, in an order that is not modelled")
    elif layers.index(1):
        values["experts.first_dense_layers"] = (layers.index(1), written)


def _vectors(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Norms, biases, positions and the head, with what Megatron does without an argument."""
    norm, one = arguments.take("normalization"), arguments.on("apply_layernorm_1p", "layernorm_zero_centered_gamma")
    if norm is not None and plain(norm.value) == "rmsnorm":
        values["norm"] = ("rmsnorm", norm)
    else:
        values["norm"] = ("layernorm1p", one) if one is not None else ("layernorm", norm)
    values["biases"] = _biases(arguments)
    values["position"] = _position(arguments)
    if values["position"][0] == "learned" and "max_positions" in values:
        values["learned_positions"] = values["max_positions"]
    normed = arguments.on("qk_layernorm")
    if normed is not None and not any(key.startswith("latent_attention.") for key in values):
        values["qk_norm"] = ("perhead", normed)
    untied = arguments.on("untie_embeddings_and_output_weights")
    shared = arguments.take("share_embeddings_and_output_weights")
    if shared is not None:
        values["tied_embeddings"] = (plain(shared.value) != "false", shared)
    else:
        values["tied_embeddings"] = (untied is None, untied)


def _biases(arguments: Arguments) -> Stated:
    off = arguments.on("disable_bias_linear")
    stated = arguments.take("add_bias_linear")
    queries = arguments.on("add_qkv_bias")
    if off is None and (stated is None or plain(stated.value) != "false"):
        return ("qkv", "output", "mlp"), stated
    return (("qkv",) if queries is not None else ()), queries or off or stated


def _position(arguments: Arguments) -> Stated:
    named = arguments.take("position_embedding_type")
    rotary, none = arguments.on("use_rotary_position_embeddings"), arguments.on("no_position_embedding")
    if rotary is not None:
        return "rope", rotary
    if named is not None and plain(named.value) in _POSITIONS:
        return _POSITIONS[plain(named.value)], named
    return ("none", none) if none is not None else ("learned", None)


def _wavelengths(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Base of the rotary positions, and how Llama 3.1 stretches them."""
    if values.get("position", ("", None))[0] != "rope":
        return
    _put(values, "rotary_base", _read(arguments, "rotary_base", _ROTARY_BASE))
    if arguments.on("use_rope_scaling") is not None:
        _put(values, "rotary_scaling", _read(arguments, "rope_scaling_factor", _ROTARY_SCALING))


def _vocabulary(arguments: Arguments, values: dict[str, Stated]) -> int:
    """The vocabulary, and what it is padded to a multiple of."""
    padded = arguments.read(positive, "padded_vocab_size")
    size = arguments.read(positive, "vocab_size")
    kind = arguments.take("tokenizer_type")
    model = arguments.take("tokenizer_model", "tokenizer_name_or_path")
    merges = arguments.take("merge_file")
    word = plain(kind.value) if kind is not None else ("gpt2bpetokenizer" if merges is not None else "")
    known = vocabulary_of(str(model.value)) if model is not None else None
    if padded is not None:
        values["vocab"] = padded
    elif size is not None and (known is None or word in _OWN_SIZE):
        values["vocab"] = size
    elif known is not None and model is not None:
        values["vocab"] = (known, model)
    elif word in _VOCABULARIES:
        values["vocab"] = (_VOCABULARIES[word], kind or merges)
    multiple = arguments.size("make_vocab_size_divisible_by") or _PADDING
    return 1 if padded is not None else multiple * int(str(arguments.draft.fact("layout.tp") or 1))


def layers_with_experts(value: object) -> int | list[int] | None:
    """A frequency, or for each layer 1 where it has experts; None where it is neither.

    Lists are written as Python has them: `[0]*3+[1]*58`, `([0]+[1]*26)*1`.
    """
    if isinstance(value, list | tuple):
        return [int(bool(each)) for each in value]
    text = str(value).strip()
    if text.isdecimal():
        return int(text[:9]) or None
    if len(text) > _LONGEST:
        return None
    try:
        return _listed(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _listed(node: ast.expr) -> list[int]:
    """The list that an expression of lists, `+` and `*` says. Raises ValueError: another expression, a long list."""
    if isinstance(node, ast.List):
        found = [each.value for each in node.elts if isinstance(each, ast.Constant) and each.value in (0, 1)]
        if len(found) == len(node.elts):
            return [int(bool(each)) for each in found]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _bounded(_listed(node.left) + _listed(node.right))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        times = number(node.right.value)
        if isinstance(times, int) and 0 <= times <= _LONGEST:
            return _bounded(_listed(node.left), times) * times
    raise ValueError


def _bounded(layers: list[int], times: int = 1) -> list[int]:
    if len(layers) * times > _LONGEST:
        raise ValueError
    return layers


# What Megatron's arguments say together: stages, recomputation, sharding, precision, batches, checkpoints.
#
# Rules: `validate_args` of Megatron-LM's megatron/training/arguments.py, core 0.19.

DROPOUT = 0.1  # transformer_config.py, hidden_dropout and attention_dropout
_MUON = ("muon", "distmuon", "adaptivemuon")
_RAMP = 3  # numbers of --rampup-batch-size
_SPLIT = ("layout.tp", "layout.pp", "layout.cp")


class Arguments(Immutable):
    """Megatron's arguments in a draft.

    prefixes : groups that a tool keeps them in, as `model.` and `train.`; the first that has an argument wins
    """

    draft: Draft
    prefixes: tuple[str, ...] = ("",)

    def named(self, *names: str) -> list[str]:
        """All keys that such arguments may have."""
        return [f"{prefix}{name}" for name in names for prefix in self.prefixes]

    def peek(self, *names: str) -> Written | None:
        """The first of the arguments that is there and is not empty; it stays to be read."""
        return self.draft.peek(*self.named(*names))

    def take(self, *names: str) -> Written | None:
        """The first of the arguments that is there and is not empty; all of them count as read."""
        return self.draft.take(*self.named(*names))

    def on(self, *names: str) -> Written | None:
        """`take`, where the value turns something on; None otherwise."""
        return self.draft.on(*self.named(*names))

    def lose(self, name: str, why: str) -> None:
        """An argument that sets nothing, and why."""
        for key in self.named(name):
            self.draft.lose(key, why)

    def read(self, convert: Callable[[object], object], *names: str) -> tuple[object, Written] | None:
        """The first of the arguments as a value; one that cannot be read is lost."""
        found = self.take(*names)
        value = self.draft.value(found, convert)
        return None if found is None or value is None else (value, found)

    def open(self, *names: str) -> bool:
        """Whether the files leave the value of one of the arguments to what was not passed."""
        return not self.draft.unread.keys().isdisjoint(self.named(*names))

    def default(self, key: str, value: object, note: str, *names: str) -> None:
        """What Megatron does without the arguments of these names."""
        if not self.open(*names):
            self.draft.default(key, value, note)

    def size(self, *names: str) -> int | None:
        """A whole number above zero."""
        found = self.read(positive_or_open, *names)
        return int(str(found[0])) if found else None


def state_megatron(arguments: Arguments) -> None:
    """State all of a job but its model, kind and hardware, and fill in what Megatron does without an argument."""
    draft = arguments.draft
    draft.apply(replace(TABLE, prefixes=arguments.prefixes))
    state_stages(arguments)
    _precision(arguments)
    _gradients(arguments)
    _sharding(arguments)
    _overlap(arguments)
    _offload(arguments)
    _recompute(arguments)
    _optimizer(arguments)
    _attention(arguments)
    _dropout(arguments)
    _batches(arguments)
    _ramp_up(arguments)
    _saving(arguments)
    _loss(arguments)
    if draft.fact("layout.ep") not in (None, 1):
        draft.default("layout.expert_tp", draft.fact("layout.tp") or 1, "as tensor parallelism")


def _precision(arguments: Arguments) -> None:
    draft = arguments.draft
    for names, word in ((("fp4_format", "fp4"), "fp4"), (("fp8_format", "fp8"), "fp8")):
        found = arguments.on(*names)
        if found is not None:
            draft.state("precision", word, found)
    if draft.fact("precision") == "fp8":
        arguments.default("train.fp8_recipe", "delayed", "", "fp8_recipe")
    else:
        draft.drop("train.fp8_recipe")
    for name in ("bf16", "fp16"):
        found = arguments.on(name)
        if found is not None:
            draft.state("precision", name, found)
            draft.default("train.weights_dtype", name, "weights have the type of the run")
    draft.default("precision", "fp32", "neither bf16 nor fp16")
    if draft.fact("precision") == "fp32":
        draft.default("train.weights_dtype", "fp32", "weights have the type of the run")


def _gradients(arguments: Arguments) -> None:
    """State what gradients are kept and exchanged in: float32, or the 16-bit type of the weights.

    Source: Megatron-LM training/arguments.py (core 0.19); Megatron Bridge training/mixed_precision.py, NeMo's plugin,
    whose word takes the place of that of the exchange.
    """
    draft = arguments.draft
    precision = draft.fact("precision")
    half = precision if precision in ("fp16", "fp32") else "bf16"
    narrow, wide = arguments.on("grad_reduce_in_bf16"), arguments.on("accumulate_allreduce_grads_in_fp32")
    said = draft.take(*reversed(arguments.named("grad_reduce_in_fp32")))
    states = arguments.take("main_grads_dtype") if arguments.on("use_precision_aware_optimizer") else None
    for found, wider in (
        (narrow, False), (wide, True), (said, said is not None and is_on(said.value)),
        (states, _type(states) == "float32"),
    ):  # fmt: skip
        if found is not None:
            draft.state("train.gradient_dtype", "fp32" if wider else half, found)


def _sharding(arguments: Arguments) -> None:
    draft = arguments.draft
    strategy = arguments.take("data_parallel_sharding_strategy")
    fsdp = arguments.on("use_megatron_fsdp", "use_custom_fsdp")
    torch = arguments.on("use_torch_fsdp2")
    kept = arguments.on("torch_fsdp2_no_reshard_after_forward")
    optimizer = arguments.on("use_distributed_optimizer")
    if fsdp is not None:
        stages = {plain(word): stage for word, stage in _SHARDING.items()}
        stage = stages.get(plain(strategy.value)) if strategy is not None else 3
        draft.state("layout.zero", stage, strategy or fsdp)
    elif torch is not None:
        draft.state("layout.zero", 2 if kept is not None else 3, kept or torch)
    elif optimizer is not None:
        draft.state("layout.zero", 1, optimizer)
    arguments.default("layout.zero", 0, "no distributed optimizer", "data_parallel_sharding_strategy")
    _instances(arguments)


def _instances(arguments: Arguments) -> None:
    """Copies of the sharded optimizer: a group has the data-parallel ranks over their number."""
    draft = arguments.draft
    copies = arguments.size("num_distributed_optimizer_instances")
    if copies is None or copies == 1:
        return
    gpus, split = draft.fact("gpus"), 1
    for key in _SPLIT:
        split *= int(str(draft.fact(key) or 1))
    if isinstance(gpus, int) and gpus % (split * copies) == 0:
        group = gpus // split * int(str(draft.fact("layout.cp") or 1)) // copies
        draft.derive("layout.zero_group", group, ("gpus", *_SPLIT), f"{copies} copies of the optimizer")
    else:
        arguments.lose("num_distributed_optimizer_instances", "keeps several copies of the optimizer")


def _overlap(arguments: Arguments) -> None:
    stated = ((exchange, arguments.take(*names)) for exchange, names in _OVERLAP.items())
    switches = {exchange: (written, is_on(written.value)) for exchange, written in stated if written is not None}
    off = arguments.on("no_overlap_p2p_communication")
    state_overlap(arguments.draft, switches | ({"pipeline": (off, False)} if off is not None else {}))


def _offload(arguments: Arguments) -> None:
    optimizer = arguments.on("optimizer_cpu_offload")
    layers = arguments.take("cpu_offloading_num_layers")
    activations = arguments.on("fine_grained_activation_offloading", "cpu_offloading")
    if activations is None and layers is not None and is_on(layers.value):
        activations = layers
    fine = arguments.on("fine_grained_activation_offloading")
    if fine is None and layers is not None and is_on(layers.value):
        arguments.draft.state("layout.offload_layers", arguments.draft.value(layers, whole), layers)
    words = [OPTIMIZER] * (optimizer is not None) + [ACTIVATIONS] * (activations is not None)
    arguments.draft.state("layout.offload", "+".join(words) or None, optimizer or activations)
    arguments.draft.default("layout.offload", NO_OFFLOAD)
    share = arguments.take("optimizer_offload_fraction")
    if optimizer is not None and share is not None:
        arguments.draft.state("layout.offload_fraction", arguments.draft.value(share, number), share)


def _recompute(arguments: Arguments) -> None:
    """Granularity full runs the layers again that the method says, selective the modules that are listed."""
    draft = arguments.draft
    granularity = arguments.take("recompute_granularity", "activations_checkpoint_granularity")
    method = arguments.take("recompute_method", "activations_checkpoint_method")
    modules = arguments.take("recompute_modules")
    briefly, old = arguments.on("recompute_activations"), arguments.on("checkpoint_activations")
    if granularity is None and briefly is not None:
        draft.state("layout.recompute", "selective", briefly)
    elif granularity is None and (old is not None or (method is not None and is_on(method.value))):
        draft.state("layout.recompute", "full", old or method)
    elif granularity is not None:
        word = plain(granularity.value)
        draft.state("layout.recompute", word if word in ("full", "selective") else "none", granularity)
    arguments.default("layout.recompute", "none", "", "recompute_granularity", "recompute_method")
    if draft.fact("layout.recompute") == "full":
        _recomputed_layers(arguments, method)
    else:
        arguments.take("recompute_num_layers", "activations_checkpoint_num_layers")
    if modules is not None and draft.fact("layout.recompute") == "selective":
        words = [str(word) for word in listed(modules.value) or ()]
        known = [word for word in words if word in RECOMPUTE_MODULES]
        draft.state("layout.recompute_modules", tuple(known) or None, modules)
        if others := [word for word in words if word not in known]:
            arguments.lose("recompute_modules", f"recomputes {', '.join(others)} too")


def _recomputed_layers(arguments: Arguments, method: Written | None) -> None:
    """With method block the first layers of every chunk of a stage, with uniform all, checkpointed in groups."""
    draft = arguments.draft
    layers = arguments.read(whole, "recompute_num_layers", "activations_checkpoint_num_layers")
    if method is None or layers is None:
        return
    count, written = int(str(layers[0])), layers[1]
    if plain(method.value) == "block" and count == 0:
        draft.drop("layout.recompute")
        draft.state("layout.recompute", "none", written, "no layer is recomputed")
    elif plain(method.value) == "block" and count > 0:
        chunks = int(str(draft.fact("layout.vpp") or 1))
        note = f"{count} of each of {chunks} chunks" if chunks > 1 else ""
        draft.state("layout.recompute_layers", count * chunks, written, note)
    elif count > 1:
        arguments.lose("recompute_num_layers", "keeps one checkpoint for a group of layers")


def _optimizer(arguments: Arguments) -> None:
    draft = arguments.draft
    found = arguments.peek("optimizer")
    if found is not None and plain(found.value) in _MUON:
        draft.state("optimizer", MUON, arguments.take("optimizer"))
    _narrow_states(arguments, found)
    for key in arguments.named("optimizer"):
        if draft.keys.get(key) is found:
            state_optimizer(draft, key, found)
    arguments.default("optimizer", "adamw", "adam with decoupled weight decay", "optimizer")


def _narrow_states(arguments: Arguments, optimizer: Written | None) -> None:
    """State AdamW with states in the types that arguments name; on the host they are float32 all the same.

    Float32 masters stay whole where products are scaled by another recipe than delayed, which Megatron Bridge hands
    over in 16-bit training too (core/optimizer/optimizer_config.py, use_precision_aware_optimizer_no_fp8_or_ds_fp8).
    """
    draft = arguments.draft
    if arguments.peek("use_precision_aware_optimizer") is None or arguments.peek("optimizer_cpu_offload") is not None:
        return
    adam = optimizer is None or _OPTIMIZERS.get(ADAMW) == plain(optimizer.value)
    moments = {name: _type(arguments.peek(name)) for name in _MOMENTS}
    if not adam or len(set(moments.values())) > 1 or not set(moments.values()) <= {"float32", "bfloat16"}:
        return
    aware = arguments.on("use_precision_aware_optimizer")
    masters = arguments.take("main_params_dtype")
    if aware is None:
        return
    arguments.take(*_MOMENTS)
    recipe = arguments.peek("fp8_recipe")
    whole = draft.fact("stack") == "megatron-bridge" or (recipe is not None and plain(recipe.value) != "delayed")
    narrow = _type(masters) == "float16" or not whole
    if optimizer is not None:
        arguments.take("optimizer")
    draft.state("optimizer", _NARROW[narrow, set(moments.values()) == {"bfloat16"}], aware)


def _type(written: Written | None) -> str:
    """Type of an optimizer state, as PyTorch calls it; float32 unless said."""
    word = "fp32" if written is None else plain(written.value).removeprefix("torch").lstrip(".")
    return {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}.get(word, word)


def _attention(arguments: Arguments) -> None:
    draft = arguments.draft
    flash = arguments.on("use_flash_attn", "use_flash_attention")
    local = arguments.peek("transformer_impl")
    if flash is not None:
        draft.state("attention", "flash", flash)
    elif local is not None and plain(local.value) == "local":
        draft.state("attention", "eager", local, "local layers without flash attention")
    arguments.default("attention", "flash", "Transformer Engine's choice", "attention_backend", "transformer_impl")


def _dropout(arguments: Arguments) -> None:
    """One rate stands for both; where they differ it is the larger one."""
    found = [arguments.read(number, name) for name in ("hidden_dropout", "attention_dropout")]
    said = [each for each in found if each is not None]
    if not said:
        arguments.default("train.dropout", DROPOUT, "", "hidden_dropout", "attention_dropout")
        return
    hidden, attention = (float(str(each[0])) if each else DROPOUT for each in found)
    note = "" if hidden == attention else f"{hidden:g} of hidden states, {attention:g} of attention"
    arguments.draft.state("train.dropout", max(hidden, attention), said[0][1], note)


def _ramp_up(arguments: Arguments) -> None:
    """The first batch, what it grows by, and samples until it is whole."""
    draft = arguments.draft
    found = arguments.take("rampup_batch_size")
    words = listed(found.value) if found is not None else None
    if words is None or not is_on(words[0]):
        return
    sizes = tuple(int(word) for word in words if word.isdecimal())
    whole = int(str(draft.fact("train.global_batch") or 0))
    growing = len(sizes) == len(words) == _RAMP and min(sizes) > 0
    if growing and sizes[0] < whole and (whole - sizes[0]) % sizes[1] == 0:
        draft.state("train.batch_ramp_up", sizes, found)
    elif not growing or sizes[0] != whole:
        arguments.lose("rampup_batch_size", "starts with smaller batches, which do not lead to the global one")


def _batches(arguments: Arguments) -> None:
    draft = arguments.draft
    schedule = arguments.peek("step_batch_size_schedule")
    if schedule is not None and "train.global_batch" not in draft.facts:
        last = str(schedule.value).split()[-1:] or [""]
        size = last[0].rpartition(":")[2]
        draft.state("train.global_batch", int(size) if size.isdecimal() else None, schedule, "in the end")
    if "train.global_batch" not in draft.facts:
        note = "the global batch is one micro-batch of each replica"
        arguments.default("train.grad_accum", 1, note, "global_batch_size", "step_batch_size_schedule")
    samples = arguments.read(positive_or_open, "train_samples")
    batch = draft.fact("train.global_batch")
    if samples is None or "train.steps" in draft.facts:
        return
    if isinstance(batch, int):
        draft.state("train.steps", int(str(samples[0])) // batch, samples[1], f"{samples[0]} samples / {batch}")
    else:
        arguments.lose("train_samples", "says steps only together with the global batch")


def _saving(arguments: Arguments) -> None:
    """Checkpoints are written where a folder is named; evaluations take a number of global batches."""
    draft = arguments.draft
    every = arguments.read(interval, "save_interval", "persistent_save_interval")
    if every is not None:
        draft.state("train.checkpoint_every", every[0], every[1])
    if "train.checkpoint_every" not in draft.facts:
        draft.drop("train.async_checkpoint")
    iterations = arguments.read(whole, "eval_iters")
    between = arguments.read(interval, "eval_interval")
    if between is None or (iterations is not None and iterations[0] == 0):
        return
    draft.state("train.evaluate_every", between[0], between[1])
    batch = draft.fact("train.global_batch")
    if iterations is not None and isinstance(batch, int):
        samples = int(str(iterations[0])) * batch
        draft.state("train.evaluate_samples", samples, iterations[1], f"{iterations[0]} global batches")


def _loss(arguments: Arguments) -> None:
    fused, kernel = arguments.take("cross_entropy_loss_fusion"), arguments.take("cross_entropy_fusion_impl")
    if fused is None or not is_on(fused.value):
        return
    if kernel is not None and plain(kernel.value) == "te":
        arguments.draft.state("loss", "flash", kernel, "Transformer Engine's kernel rewrites the logits in place")
    else:
        arguments.draft.state("loss", COMPILED, kernel or fused, "exponentials beside the float32 logits")


# Pipeline stages of Megatron: chunks of a stage, layers of the first and the last one, written layouts.
#
# Rules: megatron/training/arguments.py (`validate_args`) and core/transformer/pipeline_parallel_layer_layout.py.

_MOST = 10_000  # letters of a written layout
_REPEATED = re.compile(r"\(([^()]*)\)\*(\d+)|([A-Za-z|])\*(\d+)")
_DECODER = "t"
_ENDS = ("embedding", "loss")


def state_stages(arguments: Arguments) -> None:
    """State the chunks of a stage and how many layers the first and the last stage have."""
    draft = arguments.draft
    layout = arguments.take("pipeline_model_parallel_layout")
    pp = int(str(draft.fact("layout.pp") or 1))
    if layout is not None and str(layout.value).lower() not in ("none", "null", ""):
        stages = parse_stages(layout.value)
        if stages is None or len(stages) % pp:
            arguments.lose("pipeline_model_parallel_layout", "lists the layers of stages in a form that is not read")
            return
        chunks = len(stages) // pp
        arguments.take("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")  # the same again
        layers = [sum(stages[chunk * pp + stage] for chunk in range(chunks)) for stage in range(pp)]
        draft.state("layout.vpp", chunks, layout)
        if len(set(layers)) > 1 or layers[0] % chunks:
            draft.state("layout.stages", tuple(layers), layout)
        return
    _chunks(arguments, pp)
    _counted_as_layers(arguments, pp)


def _chunks(arguments: Arguments, pp: int) -> None:
    draft = arguments.draft
    stated = arguments.take("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    chunks = arguments.size("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    if chunks is not None:
        draft.state("layout.vpp", chunks, stated)
        return
    written = arguments.take("num_layers_per_virtual_pipeline_stage")
    of_chunk = arguments.size("num_layers_per_virtual_pipeline_stage")
    if of_chunk is None:
        arguments.default(
            "layout.vpp", 1, "", "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank"
        )
        return
    layers = arguments.size("num_layers", "encoder_num_layers")
    if layers is None or (layers + _extra(arguments)) % (pp * of_chunk):
        arguments.lose("num_layers_per_virtual_pipeline_stage", "says chunks only together with the number of layers")
        return
    count = (layers + _extra(arguments)) // pp // of_chunk
    draft.state("layout.vpp", count, written, f"{layers} layers / {pp} stages / {of_chunk}")


def _extra(arguments: Arguments) -> int:
    """Layers that the embedding and the loss count as where stages are made even."""
    return sum(arguments.on(f"account_for_{end}_in_pipeline_split") is not None for end in _ENDS)


def _counted_as_layers(arguments: Arguments, pp: int) -> None:
    """The embedding and the loss take a layer's place where they count as one; a single stage holds all anyway."""
    for end in _ENDS:
        counted = arguments.on(f"account_for_{end}_in_pipeline_split")
        if counted is not None and pp > 1:
            arguments.draft.state(f"layout.account_for_{end}", True, counted)


def parse_stages(value: object) -> list[int] | None:
    """Transformer layers of each stage of a written layout, in the order of the chunks; None where it is not read.

    `Et*3|(tt|)*29,m|L` says a stage with the embedding and three layers, 29 of two layers, and so on.
    """
    if isinstance(value, list | tuple):
        stages = [stage if isinstance(stage, list | tuple) else [stage] for stage in value]
        return [sum(str(word) in ("decoder", _DECODER) for word in stage) for stage in stages]
    text = re.sub(r"[\s,'\"]", "", str(value))
    for _ in range(8):
        text, changes = _REPEATED.subn(_repeated, text)
        if not changes or len(text) > _MOST:
            break
    if len(text) > _MOST or not re.fullmatch(r"[A-Za-z|]+", text):
        return None
    return [stage.count(_DECODER) for stage in text.split("|")]


def _repeated(match: re.Match[str]) -> str:
    text, times = (match[1], match[2]) if match[2] else (match[3], match[4])
    return text * min(int(times[:6]), _MOST)
