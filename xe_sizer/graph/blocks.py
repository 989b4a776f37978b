"""Operators that every layer is built of: norms, products, elementwise kernels, and the exchanges between ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.inputs import MASK, Place, adapters_on, narrowing, waiting_input_bytes
from xe_sizer.graph.operators import Collective, Matmul, MemoryBound, group_sizes
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.inputs import Adapter, Block
    from xe_sizer.graph.operators import Array, Operator, Picks, RankShape
    from xe_sizer.graph.weights import Weight

# Products, norms, residuals and elementwise kernels.

# Passes over the tensor, in elements read or written, forward and backward, of fused and step-by-step kernels.
# Fused norm: read x, write y; backward reads dy and x, writes dx. Step by step: the eight kernels of the Hugging Face
# RMSNorm (cast up, square, mean, epsilon, root, scale, cast down, weight) in float32, counted in 16-bit elements.
NORM_PASSES = {"fused": (2.0, 3.0), "eager": (18.0, 30.0)}
RESCALED = "rmsnorm-t5"  # kind of norm that multiplies the state itself by the factor of its float32 copy
NORM_LAUNCHES = {"fused": (1.0, 2.0), "eager": (8.0, 16.0)}
# Read both, write the sum; in the next norm's kernel the norm reads the sum already.
RESIDUAL_PASSES = {"apart": (3.0, 2.0), "in-norm": (2.0, 1.0)}


def shard(weight: Weight, rank: RankShape) -> tuple[Array, Array]:
    """Outputs and inputs of the rank's shard of a linear weight.

        n = outputs / tp      column-parallel; never below a share of the heads of keys and values
        k = inputs / tp       row-parallel

    Parameters
    ----------
    weight : outputs, inputs, and how tensor parallelism splits it
    rank : tp of shape (rank shape,) [-]

    Returns
    -------
    (n, k), ndarrays of float, shape (rank shape,) [-]

    Source: Megatron-LM's column- and row-parallel layers (arXiv:1909.08053).
    """
    return shard_outputs(weight, rank), weight.inputs / rank.tp if weight.split == "row" else weight.inputs * rank.ones


def shard_outputs(weight: Weight, rank: RankShape) -> Array:
    """Outputs of the rank's shard of a linear weight.

        n = outputs / min(tp, shards)      column-parallel or over the vocabulary, else outputs

    Parameters
    ----------
    weight : outputs, most shards, and how tensor parallelism splits it
    rank : tp of shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: Megatron-LM's column- and row-parallel layers (arXiv:1909.08053).
    """
    if weight.split in ("column", "vocabulary"):
        return weight.outputs / weight.output_shards(rank.tp)
    return weight.outputs * rank.ones


def _side_by_side(weights: Sequence[Weight], rank: RankShape) -> tuple[Array, Array]:
    """Outputs of all the weights together, and the inputs that they share (n, k)."""
    n, k = shard(weights[0], rank)
    for weight in weights[1:]:
        n = n + shard_outputs(weight, rank)
    return n, k


def linear(block: Block, name: str, parts: tuple[str, ...], tokens: Array, input_bytes: Array) -> Iterator[Operator]:
    """One matrix product (of one or several weights side by side), its weight traffic and the adapters on it.

        C[m,n] = A[m,k] B[k,n],  m = tokens, (n, k) = shard of the weights

    Parameters
    ----------
    block : a kind of layer with its weights, and the inputs of the graph
    name, parts : of the product, and of the weights that it joins; those that the layer lacks are passed over
    tokens : rows of the product, shape (rank shape,) [-]
    input_bytes : the input that autograd keeps for the weight gradient, where the weight learns and nothing before it
        keeps the same tensor, shape (rank shape,) [bytes]

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: Megatron-LM's column- and row-parallel layers (arXiv:1909.08053); what autograd keeps is traced.
    """
    inputs, one = block.inputs, block.inputs.rank.ones
    weights = [block.weights[part] for part in parts if part in block.weights]
    if not weights:
        return
    learning = inputs.learning
    n, k = _side_by_side(weights, inputs.rank)
    adapters = tuple(adapters_on(weights, learning.adapters))
    wide = inputs.stays_float32(*parts)
    keeps = inputs.keeps_input(*parts) and not (wide and not inputs.learning.reads_input(*parts))
    # Autocast keeps the copy of a float32 weight for the gradient of the input.
    copy = n * k * inputs.element_bytes * float(wide and inputs.autocast)
    product = Matmul(
        name=name,
        module=weights[0].module,
        layers=block.layers,
        saved_bytes=waiting_input_bytes(block, input_bytes) * float(keeps) + copy,
        # An input that nothing keeps is there until the result is.
        forward_temporary_bytes=0.0 if keeps else tokens * (n + k) * inputs.element_bytes,
        m=tokens * one,
        n=n,
        k=k,
        copies=one,
        input_gradient=True,
        weight_gradient=learning.weight_gradients,
        learns=learning.base,
        accumulated_bytes=inputs.accumulated_bytes,
    )
    if not any(adapter.form.replaces for adapter in adapters):
        yield product
    if wide:
        cast = (FLOAT32 + inputs.element_bytes) * n * k * float(inputs.autocast)
        yield memory_bound(block, f"{name} weight traffic", weights[0].module, cast, (1.0, 0.0), (1.0, 0.0))
    else:
        yield from weight_traffic(block, name, weights[0].module, n * k, tokens * k, tokens * n)
    yield from narrowing(block, name, weights[0].module, tokens * k, n * k, tokens * n)
    for adapter in adapters:
        yield from beside(block, adapter, tokens)


def narrow_product(block: Block, name: str, weights: str, rank: int) -> Iterator[Operator]:
    """A product through a narrow width: two products, whose input another one keeps.

        C = (A D) U,  D: inputs x rank, U: rank x outputs

    Parameters
    ----------
    block : a kind of layer with its weights, and the inputs of the graph
    name : of the operators, before `down` and `up`
    weights : their name, without `_down` and `_up`; those that the layer lacks are passed over
    rank : width between the two [-]

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: Zamba2Attention and Zamba2MLP of transformers, what layers add to weights that they share; Kimi delta
    attention.
    """
    inputs, tokens = block.inputs, block.inputs.rank.tokens
    yield from linear(block, f"{name} down", (f"{weights}_down",), tokens, inputs.zeros)
    narrow_bytes = tokens * rank * inputs.element_bytes
    yield from linear(block, f"{name} up", (f"{weights}_up",), tokens, narrow_bytes)


def beside(block: Block, adapter: Adapter, tokens: Array) -> Iterator[Operator]:
    """Build the operators that an adapter runs beside the product of its weight.

        operators = those of the adapter's form on m = tokens, n and k of the rank's shard of its weights side by side

    Parameters
    ----------
    block : a kind of layer
    adapter : of one weight or of several that are read side by side
    tokens : rows of the product, shape (rank shape,) [-]

    Returns
    -------
    iterator of Operator; FLOPs and bytes of shape (rank shape,) [FLOP, bytes]

    Source: the equations of each form (`operators` of its class).
    """
    n, k = _side_by_side(adapter.members, block.inputs.rank)
    name = "+".join(weight.name for weight in adapter.members)
    return adapter.form.operators(Place(block, name, adapter.members[0].module, tokens, n, k))


def weight_traffic(
    block: Block, name: str, module: str, elements: Array, inputs_read: ArrayLike = 0.0, outputs: ArrayLike = 0.0
) -> Iterator[MemoryBound]:
    """Casting, dequantising and gradient accumulation of a weight, once a micro-batch and direction.

        bytes = bytes per element of the direction x elements + input bytes x inputs + output bytes x outputs

    Inputs and outputs count in the forward, where the product itself runs on quantised values (LLM.int8); in both
    directions, where the product casts them (bitsandbytes Linear4bit.forward in a float32 model).

    Parameters
    ----------
    block : a kind of layer; the inputs of the graph say the bytes per element, forward and backward
    name, module : of the product
    elements : of the rank's shard, shape (rank shape,) [-]
    inputs_read, outputs : elements of the product's input and output, shape (rank shape,) [-]

    Returns
    -------
    iterator of MemoryBound, none where nothing moves; bytes broadcast to shape (rank shape,) [bytes]

    Source: PyTorch autocast, the files of quantisers and Megatron-LM's accumulation of gradients, as the training job
    counts them.
    """
    expansion = block.inputs.expansion
    forward, backward = block.inputs.weight_forward_bytes, block.inputs.weight_backward_bytes
    moves_forward, moves_backward = block.inputs.moves_weights
    moves_forward = moves_forward or expansion.input_bytes > 0 or expansion.output_bytes > 0
    casts = expansion.cast_bytes * (np.asarray(inputs_read) + np.asarray(outputs))
    if not (moves_forward or moves_backward):
        return
    activations = expansion.input_bytes * np.asarray(inputs_read) + expansion.output_bytes * np.asarray(outputs)
    yield MemoryBound(
        name=f"{name} weight traffic",
        module=module,
        layers=block.layers,
        saved_bytes=block.inputs.zeros,
        forward_bytes=forward * elements + activations + casts,
        backward_bytes=backward * elements + casts,
        forward_launches=expansion.launches[0] * float(moves_forward),
        backward_launches=expansion.launches[1] * float(moves_backward),
        temporary_bytes=block.inputs.zeros,
    )


def memory_bound(
    block: Block,
    name: str,
    module: str,
    tensor_bytes: Array,
    passes: tuple[float, float],
    launches: tuple[float | Array, float | Array],
    saved_bytes: Array | None = None,
    temporaries: ArrayLike = 2.0,
) -> MemoryBound:
    """Kernels that pass over a tensor once or more, forward and backward.

        bytes = passes x bytes of the tensor

    Parameters
    ----------
    block : a kind of layer
    name, module : of the operator
    tensor_bytes : shape (rank shape,) [bytes]
    passes, launches : reads and writes of the tensor, and kernels, forward and backward [-]
    saved_bytes : what autograd keeps; None: nothing, shape (rank shape,) [bytes]
    temporaries : gradients of the tensor's size that are alive together, at least those of input and output [-]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: own derivation, counting what each kernel reads and writes.
    """
    return MemoryBound(
        name=name,
        module=module,
        layers=block.layers,
        saved_bytes=np.zeros_like(tensor_bytes) if saved_bytes is None else saved_bytes,
        forward_bytes=passes[0] * tensor_bytes,
        backward_bytes=passes[1] * tensor_bytes,
        forward_launches=launches[0],
        backward_launches=launches[1],
        temporary_bytes=np.asarray(temporaries) * tensor_bytes,
    )


def norm(block: Block, name: str, width: float, tokens: Array, inner: bool = False, apart: int = 1) -> MemoryBound:
    """One norm: one kernel, or several where the stack's RMS norm is written out in Python.

        bytes = NORM_PASSES x tokens width element
        kept = tokens width element                    fused: the input; of a layer norm under autocast in float32
        kept = tokens width (4 + element learns)       step by step: float32, and the normalised value if it learns

    T5's scales what it has read, not the copy: it keeps both where the state is narrower (T5LayerNorm of transformers).
    The normalised value is float32 too where the model applies the weight there (Gemma, OLMo 2, gpt-oss). Layer norms
    with mean are one kernel in every stack, in float32 under autocast; but Cohere's are written out, and keep what is
    left of the mean twice. Models with code of their own around mamba-ssm bring its kernel.

    Parameters
    ----------
    block : a kind of layer
    name : of the operator
    width : elements that are normalised together [-]
    tokens : rows, shape (rank shape,) [-]
    inner : whether the norm stands inside a block and reads what linear layers return, not the hidden state
    apart : norms that these elements are where they are written out, one after the other (of queries and keys) [-]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: the kernels of the Hugging Face RMSNorm, traced; fused kernels read x and write y; mamba-ssm
    ops/triton/layer_norm.py.
    """
    inputs = block.inputs
    rms = inputs.model.norm.startswith("rms")
    written_out = (rms or inputs.model.wide_norm) and not inputs.model.fused_norms
    kind = inputs.kernels.norm if written_out else "fused"
    elements = tokens * width
    size = inputs.returned_bytes if inner else inputs.residual_element_bytes
    normalised = FLOAT32 if inputs.model.wide_norm else size
    adapted = inputs.learning.norms and not inner
    learns = inputs.learning.base or adapted
    kept = size if kind == "fused" else (1.0 if rms else 2.0) * FLOAT32 + normalised * float(learns)
    if kind == "fused" and inputs.autocast:
        # Autocast runs PyTorch's layer norm in float32, on a copy where the hidden state is narrower; the fused kernels
        # of RMS norms (Liger's, Unsloth's) are none of its own.
        kept = size if rms else FLOAT32
    if inputs.model.norm == RESCALED and kind == "eager" and written_out:
        kept = kept + np.where(np.asarray(size) < FLOAT32, size, 0.0)
    tensor_bytes = elements * size
    times = 1 if kind == "fused" else apart
    launched = (times * NORM_LAUNCHES[kind][0], times * NORM_LAUNCHES[kind][1])
    made = memory_bound(block, name, "norm", tensor_bytes, NORM_PASSES[kind], launched, elements * kept)
    return replace(made, adapter=adapted)


def residual(block: Block, name: str) -> MemoryBound:
    """Adds a block's output to the hidden state; dropout before it keeps a mask and moves the output once more.

        bytes = (RESIDUAL_PASSES + 2.5 drops) x hidden states, of which there are several in hyper-connections
        kept = drops x MASK x resident tokens hidden

    Parameters
    ----------
    block : a kind of layer
    name : of the operator

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: own derivation, counting what each kernel reads and writes; masks take one byte (arXiv:2205.05198, section
    4).
    """
    inputs = block.inputs
    drops = inputs.drops("hidden")
    masks = drops * MASK * inputs.rank.resident_tokens * inputs.model.hidden
    kind = "in-norm" if inputs.model.fused_norms else inputs.kernels.residual
    passes = (RESIDUAL_PASSES[kind][0] + 2.5 * drops, RESIDUAL_PASSES[kind][1] + 2.5 * drops)
    own = float(kind == "apart")
    return memory_bound(block, name, "norm", inputs.residual_bytes, passes, (own + drops, own + drops), masks)


# Counted: read for the weights and for the sum; backward for both again, and their gradient written.
STREAM_PASSES, STREAM_LAUNCHES = (2.0, 3.0), (2.0, 4.0)


def mixed_streams(block: Block, name: str) -> Iterator[Operator]:
    """Weighs the residual streams and sums them up to what a block reads; none where there is one hidden state.

        bytes = STREAM_PASSES x streams, once for the weights and once for the sum;  kept = streams
        FLOPs = 2 tokens n hidden (2 rank + n)      with a `stream_rank`, n streams

    Parameters
    ----------
    block : a kind of layer
    name : of the operator

    Returns
    -------
    iterator of Operator; sizes [-] and bytes of shape (rank shape,) [bytes]

    Source: own derivation, of fused kernels that keep what they read and compute the float32 copy anew
    (DeepseekV4HyperConnection of transformers writes it out); Qwen4ExpTextGatedResidual for the products.
    """
    inputs, model = block.inputs, block.inputs.model
    if model.residual_streams > 1:
        streams = inputs.residual_bytes
        yield memory_bound(block, name, "norm", streams, STREAM_PASSES, STREAM_LAUNCHES, streams)
        tokens, narrow = inputs.rank.resident_tokens, model.stream_rank * inputs.element_bytes
        # The streams are kept once; the down projection and the shares read the same.
        yield from linear(block, f"{name} down", ("stream_down", "stream_shares"), tokens, inputs.zeros)
        yield from linear(block, f"{name} up", ("stream_up",), tokens, tokens * narrow)


# Exchanges: into and out of tensor-parallel regions, and between context-parallel ranks.

if TYPE_CHECKING:
    Messages = tuple[tuple[str, Array], ...]  # operations with what they exchange


def enter_parallel(
    block: Block, name: str, module: str, share: Array | float = 1.0, readers: int = 1, group: str = "tp"
) -> Collective:
    """Into a tensor-parallel region: all-gather under sequence parallelism; else all-reduce of the gradient.

        message = share x tokens hidden element

    The backward of the gather is a reduce-scatter; a learning weight gathers its sharded input once more.

    Parameters
    ----------
    block : a kind of layer
    name, module : of the exchange
    share : 0 for layouts that have no such region, shape (rank shape,) [-]
    readers : products that are not fused; each reduces its own gradient of the shared input [-]
    group : tp, or etp: those that split an expert

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: Megatron-LM (arXiv:1909.08053); sequence parallelism: Korthikanti et al. 2022 (arXiv:2205.05198).
    """
    message = share * _message_bytes(block)
    sharded = block.inputs.rank.sequence_parallel * message
    regathered = sharded * float(block.inputs.learning.base)
    backward = (("reduce_scatter", sharded), *[("all_reduce", message - sharded)] * readers, ("all_gather", regathered))
    return exchange(block, f"{name} input", module, group, (("all_gather", sharded),), backward)


def leave_parallel(block: Block, name: str, module: str, share: Array | float = 1.0, group: str = "tp") -> Collective:
    """Out of a tensor-parallel region: reduce-scatter under sequence parallelism, else all-reduce.

        message = share x tokens hidden element

    Parameters
    ----------
    block : a kind of layer
    name, module : of the exchange
    share : 0 for layouts that have no such region, shape (rank shape,) [-]
    group : tp, or etp: those that split an expert

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: Megatron-LM (arXiv:1909.08053); sequence parallelism: Korthikanti et al. 2022 (arXiv:2205.05198).
    """
    message = share * _message_bytes(block)
    sharded = block.inputs.rank.sequence_parallel * message
    forward = (("reduce_scatter", sharded), ("all_reduce", message - sharded))
    return exchange(block, f"{name} output", module, group, forward, (("all_gather", sharded),))


def _message_bytes(block: Block) -> Array:
    return block.inputs.rank.tokens * block.inputs.model.hidden * block.inputs.element_bytes


def context_exchanges(block: Block, keys_and_values: Array) -> Iterator[Collective]:
    """Build the exchanges around attention between ranks that share sequences.

        all-gather, ring = keys and values of the whole sequence; backward once more, and their gradients
        heads = element tokens (heads + kv_heads) head sizes of queries, keys and values; then of the output
                kv_heads at least one for each of the ranks that share heads out

    A gather ends before attention starts; a ring passes one rank's part on behind attention to the one before. For
    heads every rank sends its part of the sequence of all heads, and gets the whole sequence of its own.

    Parameters
    ----------
    block : a kind of layer
    keys_and_values : of the heads of a rank and the whole sequences, shape (rank shape,) [bytes]

    Returns
    -------
    iterator of Collective; messages of shape (rank shape,) [bytes]

    Source: Llama 3 (arXiv:2407.21783, section 3.3.2) for gathers; Ring Attention (arXiv:2310.01889); DeepSpeed-Ulysses
    (arXiv:2309.14509); both together: USP (arXiv:2405.07719), cp_comm_type a2a+p2p of Transformer Engine.
    """
    inputs, rank, model = block.inputs, block.inputs.rank, block.inputs.model
    forward: Messages = (("all_gather", keys_and_values),)
    backward: Messages = (*forward, ("reduce_scatter", keys_and_values))
    if inputs.kernels.context in ("ring", "hybrid"):
        forward, backward = (("ring", keys_and_values),), (("ring", 2.0 * keys_and_values),)
    yield exchange(block, "context exchange", "attention", "cp", forward, backward)
    shared = rank.head_ranks * rank.ones
    if np.any(shared > 1):
        kv_heads = np.maximum(model.kv_heads / rank.tp, shared)
        queries, keys, values = (
            rank.tokens * heads * size * inputs.element_bytes
            for heads, size in (
                (model.heads / rank.tp, model.qk_head_dim),
                (kv_heads, model.qk_head_dim),
                (kv_heads, model.v_head_dim),
            )
        )
        output = rank.tokens * model.heads / rank.tp * model.v_head_dim * inputs.element_bytes
        there = (("all_to_all", queries + keys + values),)
        back = (("all_to_all", output),)
        yield exchange(block, "sequence for heads", "attention", "heads", there, there)
        yield exchange(block, "heads for sequence", "attention", "heads", back, back)


def exchange(
    block: Block,
    name: str,
    module: str,
    group: str,
    forward: tuple[tuple[str, Array], ...],
    backward: tuple[tuple[str, Array], ...],
    picks: Picks | None = None,
    start_s: float | None = None,
) -> Collective:
    """A collective of the layer; it keeps nothing, and exchanges nothing where its group is a single rank.

        bytes = whole messages, in the convention of `laws.collectives`

    Parameters
    ----------
    block : a kind of layer
    name, module, group : of the exchange; the group is one of those of `Collective`
    forward, backward : operations with their messages, shape (rank shape,) [bytes]
    picks : of tokens that go once to each place that holds experts which they picked; None: to every expert
    start_s : as `Collective` has it [s]

    Returns
    -------
    Collective; messages of shape (rank shape,) [bytes]

    Source: nccl-tests for the convention.
    """
    several = group_sizes(block.inputs.rank)[group] != 1.0
    sent, sent_back = (
        tuple((operation, np.where(several, message, 0.0)) for operation, message in side)
        for side in (forward, backward)
    )
    return Collective(name, module, block.layers, block.inputs.zeros, group, sent, sent_back, picks, start_s)


def visited_places(picks: Picks, places: Array) -> Array:
    """Places (nodes, or ranks) of an expert group that hold at least one of the experts that a token picked.

        reached = n (1 - (1 - g / G)^(G / n))   n <= G;   n g / G   n > G
        visited = reached (1 - (1 - 1 / reached)^k)

    The experts' groups lie side by side over the places; a token picks g of G groups, then k experts inside them,
    evenly. Without groups every place can be reached: of 8 nodes 8 experts meet 5.2.

    Parameters
    ----------
    picks : k, G and g [-]
    places : n, among which the experts are divided, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation, the expectation for independent picks; who sends a token once: DeepEP
    (csrc/kernels/internode.cu, is_token_in_rank and one RDMA message a node); node-limited routing:
    DeepSeek-V3 (arXiv:2412.19437), section 2.1.2.
    """
    n, groups, chosen = np.maximum(places, 1.0), float(picks.groups), float(picks.chosen_groups)
    shared = n * (1.0 - (1.0 - chosen / groups) ** (groups / n))
    reached = np.maximum(np.where(n > groups, n * chosen / groups, shared), 1.0)
    return np.asarray(reached * (1.0 - (1.0 - 1.0 / reached) ** picks.per_token))
