"""A model's layers as operators of one rank and one micro-batch.

Per layer, in order: norm, QKV, rotary, attention, output projection, residual, norm, MLP or experts, residual;
with the collectives of tensor, context and expert parallelism between them. What autograd saves is stated per
operator, following what the eager Hugging Face modules and Megatron-LM keep (Korthikanti et al. 2022,
arXiv:2205.05198, section 4, for the fused and sharded variants).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from xe_sizer.graph.model import ModelShape
from xe_sizer.graph.operators import (
    Array,
    Attention,
    Collective,
    Kernels,
    Matmul,
    MemoryBound,
    Operator,
    RankShape,
    as_array,
    attended_positions,
)
from xe_sizer.graph.parameters import Weight, embedding_weights, head_weights, layer_weights

FLOAT32 = 4.0
# Passes over the tensor, in elements read or written, forward and backward, of fused and step-by-step kernels.
# Fused norm: read x, write y; backward reads dy and x, writes dx. Step by step: the seven kernels of the Hugging
# Face RMSNorm (cast up, square, mean, scale, cast down, weight) in float32, counted in 16-bit elements.
NORM_PASSES = {"fused": (2.0, 3.0), "eager": (18.0, 30.0)}
NORM_LAUNCHES = {"fused": (1.0, 2.0), "eager": (7.0, 14.0)}
# Rotary over Q and K: one fused pass, or two products, a negation, a concatenation and a sum.
ROTARY_PASSES = {"fused": (2.0, 2.0), "eager": (10.0, 12.0)}
ROTARY_LAUNCHES = {"fused": (1.0, 1.0), "eager": (10.0, 12.0)}
# Gated activation over the MLP width: act(gate) * up in one kernel, or as two.
GATED_PASSES = {"fused": (3.0, 5.0), "eager": (5.0, 9.0)}
PLAIN_PASSES = (2.0, 3.0)
RESIDUAL_PASSES = (3.0, 2.0)
# Cross-entropy, bytes per logit forward and backward. Eager: cast to float32, log-softmax, their gradients and
# the cast back. Vocab-parallel: float32 in place. Fused: chunked, the logits are read and rewritten once.
LOSS_BYTES = {"eager": (14.0, 22.0), "vocab-parallel": (14.0, 10.0), "fused": (6.0, 4.0)}


@dataclass(frozen=True)
class Learning:
    """What learns: all base weights (`base`), or adapters of a rank on named weights.

    An adapter name is a weight's (`q`, `down`, ...) or `qkv`, one adapter on the fused projection.
    """

    base: bool
    adapters: Mapping[str, int] = field(default_factory=dict)
    adapter_element_bytes: float = 4.0


@dataclass(frozen=True)
class GraphInputs:
    """All that shapes a rank's operators.

    element_bytes : size of an activation element [bytes]
    weight_forward_bytes, weight_backward_bytes : memory traffic per element of a linear weight beside the product
    itself: casts of float32 weights, expansion of quantised ones, accumulation of gradients [bytes]
    """

    model: ModelShape
    rank: RankShape
    kernels: Kernels
    learning: Learning
    element_bytes: float = 2.0
    weight_forward_bytes: Array = field(default_factory=lambda: np.zeros(1))
    weight_backward_bytes: Array = field(default_factory=lambda: np.zeros(1))


@dataclass(frozen=True)
class _Block:
    """One half of a layer under construction: how often it occurs and which weights it has."""

    inputs: GraphInputs
    weights: Mapping[str, Weight]
    layers: float

    def has(self, *names: str) -> bool:
        return any(name in self.weights for name in names)


def _split(weight: Weight, tp: Array) -> tuple[Array, Array]:
    """Outputs and inputs of the rank's shard of a linear weight (n, k)."""
    n, k = as_array(weight.outputs), as_array(weight.inputs)
    if weight.split in ("column", "vocabulary"):
        return n / tp, k * np.ones_like(tp)
    if weight.split == "row":
        return n * np.ones_like(tp), k / tp
    return n * np.ones_like(tp), k * np.ones_like(tp)


def _learns(inputs: GraphInputs, *names: str) -> bool:
    fused = "qkv" in inputs.learning.adapters and any(name in ("q", "k", "v") for name in names)
    return inputs.learning.base or fused or any(name in inputs.learning.adapters for name in names)


def _linear(block: _Block, name: str, parts: tuple[str, ...], tokens: Array, saves_input: Array) -> Iterator[Operator]:
    """One matrix product (of one or several weights side by side) and the adapters on it."""
    inputs = block.inputs
    weights = [block.weights[part] for part in parts if part in block.weights]
    if not weights:
        return
    tp = inputs.rank.tp
    n = np.sum([_split(weight, tp)[0] for weight in weights], axis=0)
    k = _split(weights[0], tp)[1]
    saved = saves_input if _learns(inputs, *parts) else np.zeros_like(saves_input)
    one = np.ones_like(tp)
    module = weights[0].module
    yield Matmul(name, module, block.layers, saved, tokens * one, n, k, one, True, inputs.learning.base)
    yield _weight_traffic(block, name, module, n * k)
    yield from _adapters(block, weights, parts, tokens)


def _weight_traffic(block: _Block, name: str, module: str, elements: Array) -> MemoryBound:
    """Casting, dequantising and gradient accumulation of a weight, once a micro-batch and direction."""
    forward, backward = block.inputs.weight_forward_bytes, block.inputs.weight_backward_bytes
    kernels = (float(np.any(forward > 0)), float(np.any(backward > 0)))
    return MemoryBound(
        f"{name} weight traffic", module, block.layers, np.zeros_like(elements), forward * elements, backward * elements, *kernels
    )


def _adapters(block: _Block, weights: list[Weight], parts: tuple[str, ...], tokens: Array) -> Iterator[Operator]:
    """LoRA (Hu et al. 2021, arXiv:2106.09685): x A^T B^T beside x W^T, A with r rows, B with r columns.

    A column-split weight keeps A whole and splits B, a row-split one splits A, as Megatron's parallel adapters do.
    """
    learning, tp = block.inputs.learning, block.inputs.rank.tp
    fused = learning.adapters.get("qkv") if set(parts) & {"q", "k", "v"} else None
    targets = [(fused, weights)] if fused else [(learning.adapters.get(w.name), [w]) for w in weights]
    one = np.ones_like(tp)
    for rank, members in targets:
        if not rank:
            continue
        n = np.sum([_split(weight, tp)[0] for weight in members], axis=0)
        k = _split(members[0], tp)[1]
        low = rank * tokens * learning.adapter_element_bytes
        name = "+".join(weight.name for weight in members)
        module = members[0].module
        tokens_m, r = tokens * one, rank * one
        yield Matmul(f"{name} adapter A", module, block.layers, np.zeros_like(low), tokens_m, r, k, one, True, True, True)
        yield Matmul(f"{name} adapter B", module, block.layers, low, tokens_m, n, r, one, True, True, True)
        passes = 3.0 * block.inputs.element_bytes * tokens * n  # scale and add to the frozen output
        yield MemoryBound(f"{name} adapter add", module, block.layers, np.zeros_like(low), passes, passes / 3.0, 2.0, 2.0)


def _norm(block: _Block, name: str, width: float, tokens: Array, weight: str) -> Iterator[Operator]:
    """One norm. Fused: keeps its 16-bit input. Step by step: a float32 copy, and the normalised value if it learns."""
    inputs, kind = block.inputs, block.inputs.kernels.norm
    rms = inputs.model.norm.startswith("rms")
    kind = kind if rms else "fused"  # torch's LayerNorm is one kernel in every stack
    forward, backward = NORM_PASSES[kind]
    elements = tokens * width
    kept = inputs.element_bytes if kind == "fused" else FLOAT32 + inputs.element_bytes * float(inputs.learning.base)
    e = inputs.element_bytes
    yield MemoryBound(
        name, "norm", block.layers, elements * kept, forward * e * elements, backward * e * elements, *NORM_LAUNCHES[kind]
    )


def _residual(block: _Block, name: str) -> Iterator[Operator]:
    inputs = block.inputs
    elements = inputs.rank.resident_tokens * inputs.model.hidden * inputs.element_bytes
    forward, backward = RESIDUAL_PASSES
    yield MemoryBound(
        name, "norm", block.layers, np.zeros_like(elements), forward * elements, backward * elements, 1.0, 1.0
    )


def _enter_parallel(block: _Block, name: str, module: str) -> Iterator[Operator]:
    """Into a tensor-parallel region: all-gather under sequence parallelism; else all-reduce of the gradient.

    The backward of the gather is a reduce-scatter; a learning weight gathers its sharded input once more.
    """
    rank, inputs = block.inputs.rank, block.inputs
    message = rank.tokens * inputs.model.hidden * inputs.element_bytes
    sharded = rank.sequence_parallel * message
    whole = message - sharded
    regather = sharded if inputs.learning.base else np.zeros_like(sharded)
    yield Collective(
        f"{name} input", module, block.layers, np.zeros_like(message), "tp",
        (("all_gather", sharded),), (("reduce_scatter", sharded), ("all_reduce", whole), ("all_gather", regather)),
    )  # fmt: skip


def _leave_parallel(block: _Block, name: str, module: str) -> Iterator[Operator]:
    """Out of a tensor-parallel region: reduce-scatter under sequence parallelism, else all-reduce."""
    rank, inputs = block.inputs.rank, block.inputs
    message = rank.tokens * inputs.model.hidden * inputs.element_bytes
    sharded = rank.sequence_parallel * message
    yield Collective(
        f"{name} output", module, block.layers, np.zeros_like(message), "tp",
        (("reduce_scatter", sharded), ("all_reduce", message - sharded)), (("all_gather", sharded),),
    )  # fmt: skip


def _attention_half(block: _Block) -> Iterator[Operator]:
    inputs, rank, model = block.inputs, block.inputs.rank, block.inputs.model
    tokens, resident, e = rank.tokens, rank.resident_tokens, inputs.element_bytes
    hidden_bytes = resident * model.hidden * e
    yield from _norm(block, "input norm", model.hidden, resident, "input_norm")
    yield from _enter_parallel(block, "attention", "qkv")
    yield from _query_key_value(block, tokens, hidden_bytes)
    yield from _rotary(block, tokens)
    yield from _attention_core(block)
    # The projection's input is the attention's output, which the attention core already keeps.
    yield from _linear(block, "output projection", ("o",), tokens, np.zeros_like(hidden_bytes))
    yield from _leave_parallel(block, "attention", "output_projection")
    yield from _residual(block, "attention residual")


def _query_key_value(block: _Block, tokens: Array, input_bytes: Array) -> Iterator[Operator]:
    inputs = block.inputs
    e = inputs.element_bytes
    if inputs.model.latent_attention is None:
        if inputs.kernels.fused_qkv:
            yield from _linear(block, "qkv", ("q", "k", "v"), tokens, input_bytes)
        else:
            yield from _linear(block, "q", ("q",), tokens, input_bytes)
            yield from _linear(block, "k", ("k",), tokens, np.zeros_like(input_bytes))
            yield from _linear(block, "v", ("v",), tokens, np.zeros_like(input_bytes))
    else:
        mla = inputs.model.latent_attention
        yield from _linear(block, "q", ("q",), tokens, input_bytes)
        yield from _linear(block, "q down", ("q_down",), tokens, input_bytes)
        if mla.query_rank:
            yield from _norm(block, "q latent norm", mla.query_rank, tokens, "q_down_norm")
            yield from _linear(block, "q up", ("q_up",), tokens, tokens * mla.query_rank * e)
        yield from _linear(block, "kv down", ("kv_down",), tokens, np.zeros_like(input_bytes))
        yield from _norm(block, "kv latent norm", mla.kv_rank, tokens, "kv_down_norm")
        yield from _linear(block, "kv up", ("kv_up",), tokens, tokens * mla.kv_rank * e)
    if inputs.model.qk_norm:
        width = (inputs.model.heads + inputs.model.kv_heads) * inputs.model.head_dim
        yield from _norm(block, "qk norm", width, tokens / inputs.rank.tp, "q_norm")


def kv_heads_per_rank(model: ModelShape, tp: Array) -> Array:
    """Key-value heads of a rank: never less than one, they are replicated when there are fewer than ranks."""
    return np.maximum(model.kv_heads / tp, 1.0)


def _rotary(block: _Block, tokens: Array) -> Iterator[Operator]:
    inputs, model = block.inputs, block.inputs.model
    if model.position != "rope":
        return
    kind, e = inputs.kernels.rotary, inputs.element_bytes
    heads = model.heads / inputs.rank.tp + kv_heads_per_rank(model, inputs.rank.tp)
    elements = tokens * heads * model.qk_head_dim * model.rotary_fraction * e
    forward, backward = ROTARY_PASSES[kind]
    yield MemoryBound(
        "rotary", "qkv", block.layers, np.zeros_like(elements), forward * elements, backward * elements, *ROTARY_LAUNCHES[kind]
    )


def _attention_core(block: _Block) -> Iterator[Operator]:
    """Full and windowed layers apart; under context parallelism the rank holds 1/cp of the queries and sees all keys."""
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    windowed = block.layers * model.windowed_layers / model.layers if model.sliding_window else 0.0
    for layers, window in ((block.layers - windowed, None), (windowed, model.sliding_window)):
        if layers <= 0:
            continue
        heads, kv_heads = model.heads / rank.tp, kv_heads_per_rank(model, rank.tp)
        pairs = attended_positions(rank.sequence, rank.sequence, window) / rank.cp
        core = Attention(
            "attention" if window is None else "windowed attention", "attention", layers, np.zeros_like(pairs),
            rank.batch, heads, kv_heads, rank.sequence / rank.cp, rank.sequence, pairs,
            model.qk_head_dim, model.v_head_dim, inputs.kernels.attention,
        )  # fmt: skip
        yield _with_saved(core, _attention_saved_bytes(core, inputs))
    kv_bytes = 2.0 * rank.batch * rank.sequence * kv_heads_per_rank(model, rank.tp) * model.head_dim * inputs.element_bytes
    yield Collective(
        "context exchange", "attention", block.layers, np.zeros_like(kv_bytes), "cp",
        (("all_gather", kv_bytes),), (("all_gather", kv_bytes), ("reduce_scatter", kv_bytes)),
    )  # fmt: skip


def _with_saved(core: Attention, saved: Array) -> Attention:
    from dataclasses import replace

    return replace(core, saved_bytes=saved)


def _attention_saved_bytes(core: Attention, inputs: GraphInputs) -> Array:
    """Flash and sdpa: Q, K, V, output and the float32 log-sum-exp. Eager: Q, K, V, output and the probabilities,
    once in float32 (softmax) and once in the compute type (the product's operand)."""
    kv = core.heads if inputs.kernels.repeats_kv else core.kv_heads
    local_keys = core.query  # each rank keeps its own keys; the gathered ones are dropped
    d = core.qk_head_dim + core.v_head_dim
    operands = core.batch * (core.heads * core.query + kv * local_keys) * d * inputs.element_bytes
    if inputs.kernels.attention == "eager":
        return operands + core.batch * core.heads * core.query * core.key * (FLOAT32 + inputs.element_bytes)
    return operands + core.batch * core.heads * core.query * FLOAT32


def _mlp_half(block: _Block) -> Iterator[Operator]:
    inputs, rank, model = block.inputs, block.inputs.rank, block.inputs.model
    tokens, e = rank.tokens, inputs.element_bytes
    hidden_bytes = rank.resident_tokens * model.hidden * e
    if model.norms_per_layer >= 2:
        yield from _norm(block, "mlp norm", model.hidden, rank.resident_tokens, "pre_mlp_norm")
    yield from _enter_parallel(block, "mlp", "mlp")
    if inputs.kernels.fused_gate_up:
        yield from _linear(block, "gate and up" if model.gated else "up", ("gate", "up"), tokens, hidden_bytes)
    else:
        yield from _linear(block, "gate", ("gate",), tokens, hidden_bytes)
        up_input = np.zeros_like(hidden_bytes) if model.gated else hidden_bytes
        yield from _linear(block, "up", ("up",), tokens, up_input)
    width = tokens * model.ffn / rank.tp
    yield _activation(block, "activation", "mlp", width)
    yield from _linear(block, "down", ("down",), tokens, width * e)
    yield from _leave_parallel(block, "mlp", "mlp")
    yield from _residual(block, "mlp residual")


def _activation(block: _Block, name: str, module: str, elements: Array) -> MemoryBound:
    """Gated: keeps gate, up and (step by step) act(gate); plain: keeps its input. ReLU keeps its output instead,
    which the next product keeps anyway when it learns."""
    inputs = block.inputs
    kind, e = inputs.kernels.activation, inputs.element_bytes
    if inputs.model.gated:
        forward, backward = GATED_PASSES[kind]
        tensors = 2.0 if kind == "fused" else 3.0
    else:
        forward, backward = PLAIN_PASSES
        tensors = 0.0 if inputs.model.activation == "relu" and inputs.learning.base else 1.0
    steps = 1.0 if kind == "fused" or not inputs.model.gated else 2.0
    moved = elements * e
    return MemoryBound(
        name, module, block.layers, tensors * moved, forward * moved, backward * moved, steps, steps * 1.5
    )


def _experts_half(block: _Block) -> Iterator[Operator]:
    """Router, dispatch, grouped expert products, combine and shared experts of a mixture-of-experts layer.

    A rank of an expert-parallel group holds count / ep experts and gets, when balanced, as many token copies as
    it sends; `expert_imbalance` scales the busiest rank's share.
    """
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    experts = model.experts
    assert experts is not None
    tokens, e = rank.tokens, inputs.element_bytes
    hidden_bytes = rank.resident_tokens * model.hidden * e
    yield from _norm(block, "mlp norm", model.hidden, rank.resident_tokens, "pre_mlp_norm")
    # Every tensor-parallel rank routes its own share; the ranks that split an expert gather their tokens.
    routed = tokens * rank.expert_tp / rank.tp * experts.per_token
    yield from _linear(block, "router", ("router",), tokens / rank.tp, hidden_bytes)
    permuted = routed * model.hidden * e
    yield MemoryBound("dispatch", "experts", block.layers, permuted, 2 * permuted, 2 * permuted, 6.0, 6.0)
    exchange = (("all_to_all", permuted),)
    yield Collective("expert dispatch", "experts", block.layers, np.zeros_like(permuted), "ep", exchange, exchange)
    yield from _grouped_experts(block, routed * inputs.kernels.expert_imbalance)
    yield Collective("expert combine", "experts", block.layers, np.zeros_like(permuted), "ep", exchange, exchange)
    yield MemoryBound("combine", "experts", block.layers, permuted, 2 * permuted, 2 * permuted, 4.0, 4.0)
    yield from _shared_expert(block, tokens, hidden_bytes)
    yield from _residual(block, "mlp residual")


def _grouped_experts(block: _Block, routed: Array) -> Iterator[Operator]:
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    experts = model.experts
    assert experts is not None
    local = as_array(experts.count) / rank.ep
    one = np.ones_like(local)
    per_expert = routed / local
    base, e = inputs.learning.base, inputs.element_bytes
    width = routed * experts.ffn / rank.expert_tp
    matrices = 2.0 if model.gated else 1.0
    adapted = any(name.startswith("expert_") for name in inputs.learning.adapters)
    kept = float(base or adapted)
    yield Matmul(
        "expert gate and up", "experts", block.layers, np.zeros_like(width), per_expert * one,
        matrices * experts.ffn / rank.expert_tp * one, model.hidden * one, local, True, base,
    )  # fmt: skip
    matrix = local * model.hidden * experts.ffn / rank.expert_tp
    yield _weight_traffic(block, "experts", "experts", (matrices + 1.0) * matrix)
    yield _activation(block, "expert activation", "experts", width)
    yield Matmul(
        "expert down", "experts", block.layers, kept * width * e, per_expert * one,
        model.hidden * one, experts.ffn / rank.expert_tp * one, local, True, base,
    )  # fmt: skip


def _shared_expert(block: _Block, tokens: Array, hidden_bytes: Array) -> Iterator[Operator]:
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    if model.experts is None or not model.experts.shared_ffn:
        return
    parts = ("shared_expert_gate", "shared_expert_up")
    yield from _linear(block, "shared expert gate and up", parts, tokens, hidden_bytes)
    width = tokens * model.experts.shared_ffn / rank.tp
    yield _activation(block, "shared expert activation", "experts", width)
    yield from _linear(block, "shared expert down", ("shared_expert_down",), tokens, width * inputs.element_bytes)


def layer_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Operators of all layers of the model, each with the number of layers that contain it."""
    model = inputs.model
    moe = model.moe_layers
    dense = model.layers - moe
    kinds = [(dense, False)] * (dense > 0) + [(moe, True)] * (moe > 0)
    operators: list[Operator] = []
    for layers, is_moe in kinds:
        weights = {weight.name: weight for weight in layer_weights(model, is_moe)}
        block = _Block(inputs, weights, float(layers))
        operators.extend(_attention_half(block))
        operators.extend(_experts_half(block) if is_moe else _mlp_half(block))
    return tuple(operators)


def embedding_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Token (and position) lookup; the backward of a learning table scatters into a dense gradient."""
    rank, model, e = inputs.rank, inputs.model, inputs.element_bytes
    tables = [weight for weight in embedding_weights(model) if weight.kind == "embedding"]
    row_bytes = rank.resident_tokens * model.hidden * e
    table_bytes = sum(weight.parameters for weight in tables) / rank.tp * e * float(inputs.learning.base)
    backward = 3.0 * row_bytes + table_bytes if inputs.learning.base else np.zeros_like(row_bytes)
    lookup = MemoryBound(
        "embedding", "embedding", 1.0, np.zeros_like(row_bytes), 2.0 * row_bytes * len(tables), backward,
        float(len(tables)), 2.0 * float(inputs.learning.base),
    )  # fmt: skip
    return (lookup,)


def head_operators(inputs: GraphInputs) -> tuple[Operator, ...]:
    """Final norm, output head and cross-entropy."""
    rank, model, e = inputs.rank, inputs.model, inputs.element_bytes
    block = _Block(inputs, {weight.name: weight for weight in head_weights(model)}, 1.0)
    one = np.ones_like(rank.tp)
    logits = rank.tokens * model.vocab / rank.tp
    forward, backward = LOSS_BYTES[inputs.kernels.loss]
    width = model.embedding_size or model.hidden
    hidden_bytes = rank.resident_tokens * width * e * float(inputs.learning.base)
    head = Matmul(
        "head", "head", 1.0, hidden_bytes, rank.tokens * one, model.vocab / rank.tp, width * one, one,
        True, inputs.learning.base,
    )  # fmt: skip
    steps = (2.0, 2.0) if inputs.kernels.loss == "fused" else (6.0, 5.0)
    loss = MemoryBound("loss", "head", 1.0, np.zeros_like(logits), forward * logits, backward * logits, *steps)
    norm = tuple(_norm(block, "final norm", model.hidden, rank.resident_tokens, "final_norm"))
    return (*norm, head, loss)
