"""The MLP half of a layer: dense, or router, experts and shared experts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.blocks import (
    enter_parallel,
    exchange,
    leave_parallel,
    linear,
    memory_bound,
    narrow_product,
    norm,
    residual,
    visited_places,
)
from xe_sizer.graph.experts import (
    MODULES,
    SLICED,
    after_experts,
    before_experts,
    busiest_load,
    expert_bias,
    expert_rows,
    expert_weights,
    find_loop,
    held_experts,
    padded_sides,
    replicated,
    reserved_rows,
    touched_experts,
    turns,
)
from xe_sizer.graph.inputs import MASK, Place, adapters_on, narrowing, waiting_input_bytes
from xe_sizer.graph.operators import Matmul, MemoryBound, Picks, attention_groups
from xe_sizer.graph.weights import OWN_NORMS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.model import Experts
    from xe_sizer.graph.operators import Array, Collective, Operator

# Gated activation over the MLP width: act(gate) * up in one kernel, or as two.
GATED_PASSES = {"fused": (3.0, 5.0), "native": (5.0, 9.0), "eager": (5.0, 9.0)}
DROPOUT_PASSES = (2.5, 2.5)  # of 16-bit elements: read and write them, and a mask of one byte each
PLAIN_PASSES = (2.0, 3.0)  # read x, write y; read dy and x, write dx
# 0.5 x (1 + tanh(c (x + 0.044715 x^3))) as eight kernels; autograd keeps x and three of their results.
WRITTEN_OUT_WIDENED = 3.0  # under autocast the power leaves three of the four in float32
WRITTEN_OUT_PASSES, WRITTEN_OUT_KEPT, WRITTEN_OUT_LAUNCHES = (20.0, 32.0), 4.0, (8.0, 16.0)
TIMES_PASSES = (3.0, 5.0)  # a product of two tensors: read both, write one; read it and both, write two
# Activations that are several kernels where nothing fuses them: passes, launches, and tensors that autograd keeps.
# clamped: min(gate, 7) sigmoid(1.702 gate) (clip(up, -7, 7) + 1), seven kernels or six; gate and up, and four results.
# Fused, the limits are kernels in front all the same: both limited and joined (8), gradients masked and joined (10);
# gate and up, before and after (Megatron-Core fusions/fused_bias_geglu.py, weighted_bias_quick_geglu_impl).
# quick: x sigmoid(1.702 x), three kernels; x and the sigmoid.
STEPS = {
    ("swiglu-clamped", "fused"): ((11.0, 15.0), (4.0, 6.0), 4.0),
    ("swiglu-clamped", "native"): ((14.0, 24.0), (6.0, 11.0), 6.0),
    ("swiglu-clamped", "eager"): ((16.0, 26.0), (7.0, 12.0), 6.0),
    ("gelu-quick", "native"): ((7.0, 14.0), (3.0, 5.0), 2.0),
    ("gelu-quick", "eager"): ((7.0, 14.0), (3.0, 5.0), 2.0),
}
# Fused: read and write every token copy once, in each direction. Eager, as grouped_mm of transformers 5: two gathers
# in front, whose gradients are zeros and indexed additions; behind, weights, a gather, a sum, and all their gradients.
DISPATCH_PASSES = {"eager": (4.0, 7.0), "fused": (2.0, 2.0)}
COMBINE_PASSES = {"eager": (5.0, 10.0), "fused": (2.0, 2.0)}
# Fused, choosing, sorting and summing up are three kernels. Eager, 30 and 41 of a layer (Qwen3MoE of transformers 5.17
# with torch 2.11 on one H100, by the profiler): softmax, top-k, sorts, histogram and cumulated sum of several kernels
# each, gathers; gradients of what is gathered are sorted and added.
DISPATCH_LAUNCHES = {"eager": (20.0, 24.0), "fused": (2.0, 2.0)}
COMBINE_LAUNCHES = {"eager": (10.0, 17.0), "fused": (1.0, 1.0)}
INDEX_BYTES = 4.0  # counted: an int32 says which token a row is, where products read rows by their index


def mlp_half(block: Block, own_norm: bool) -> Iterator[Operator]:
    """Operators of the MLP half, in order; without a norm of its own it reads what the attention reads.

        FLOPs = 2 tokens hidden ffn / tp x matrices      3 matrices with a gate, else 2

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    own_norm : whether a norm stands before the MLP

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: reference implementations in Hugging Face transformers; Megatron-LM's column- and row-parallel layers
    (arXiv:1909.08053).
    """
    rank, model = block.inputs.rank, block.inputs.model
    if own_norm:
        yield norm(block, "mlp norm", model.hidden, rank.resident_tokens)
    unfused = model.gated and not block.inputs.fused_gate_up
    yield enter_parallel(block, "mlp", "mlp", readers=2 if unfused else 1)
    yield from _tiled(block) if block.inputs.kernels.mlp == "tiled" else _dense(block)
    if model.norms_per_layer == 4:
        yield norm(block, "post-mlp norm", model.hidden, rank.resident_tokens)
    yield leave_parallel(block, "mlp", "mlp")
    yield residual(block, "mlp residual")
    if model.post_norm:
        # The sum is normalised inside the module that holds what the down projection reads and returns.
        result = 0.0 if block.inputs.keeps_input("down") else rank.tokens * (model.hidden + model.ffn / rank.tp)
        made = norm(block, "mlp norm", model.hidden, rank.resident_tokens)
        yield replace(made, forward_temporary_bytes=result * block.inputs.element_bytes + block.inputs.residual_bytes)


def activation(block: Block, name: str, module: str, elements: Array) -> MemoryBound:
    """The activation of an MLP.

        bytes = GATED_PASSES or PLAIN_PASSES x elements x element that linear layers return
        kept = 2 tensors, or 3 step by step (gate, up, act(gate)), clamped 4 or 6; plain: 1, its input; quick 2

    ReLU keeps its output instead, which the next product keeps anyway when it learns. A GELU that is written out
    returns float32 under autocast, which lives until the next product has cast it, and is a factor of the gate.

    Parameters
    ----------
    block : a kind of layer
    name, module : of the operator
    elements : tokens x width of the rank's shard, shape (rank shape,) [-]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: the modules of Hugging Face transformers and fused kernels, counting what each reads and writes; traced.
    """
    inputs, kind = block.inputs, block.inputs.kernels.activation
    gated = inputs.model.gated
    passes = GATED_PASSES[kind] if gated else PLAIN_PASSES
    tensors: ArrayLike = (2.0 if kind == "fused" else 3.0) if gated else 1.0
    temporaries: ArrayLike = 3.0 if gated else 2.0
    if inputs.model.activation == "relu" and inputs.keeps_input("down") and not inputs.drops("mlp"):
        # The next product's backward lets go of the output, which that of the ReLU still reads.
        tensors, temporaries = 0.0, 3.0
    steps = 2.0 if gated and kind != "fused" else 1.0
    launches = (steps, 1.5 * steps)
    returned: ArrayLike = 1.0
    if inputs.model.activation in ("gelu-new", "geglu-new") and kind == "eager":
        passes, launches = WRITTEN_OUT_PASSES, WRITTEN_OUT_LAUNCHES
        widened = np.asarray(inputs.returned_bytes) <= inputs.element_bytes
        wide = widened * float(inputs.autocast)
        tensors = WRITTEN_OUT_KEPT + WRITTEN_OUT_WIDENED * wide
        returned = 1.0 + 2.0 * wide  # two for each element of float32, and the cast
        temporaries = 3.0 + 3.0 * wide  # the gradients of a product and of both its factors
        if gated:
            passes, launches = (passes[0] + TIMES_PASSES[0], passes[1] + TIMES_PASSES[1]), (launches[0] + 1.0, 18.0)
            tensors = tensors + 2.0 + wide  # both factors
    if steps_of := STEPS.get((inputs.model.activation, kind)):
        passes, launches, tensors = steps_of
    tensor_bytes = elements * inputs.returned_bytes
    kept = np.asarray(tensors) * tensor_bytes
    if inputs.kernels.activation_input == "narrow":
        kept = waiting_input_bytes(block, kept)
    made = memory_bound(block, name, module, tensor_bytes, passes, launches, kept, temporaries)
    return replace(made, forward_temporary_bytes=np.asarray(returned) * tensor_bytes)


def _dense(block: Block) -> Iterator[Operator]:
    inputs, tokens = block.inputs, block.inputs.rank.tokens
    # Beside the attention, behind the same norm, the MLP reads what the projections of the attention keep.
    one_input = inputs.model.parallel_block and inputs.model.norms_per_layer == 1 and inputs.keeps_input("q", "k", "v")
    hidden_bytes = inputs.hidden_bytes * (inputs.casts_inputs if one_input else 1.0)
    if inputs.fused_gate_up or not inputs.model.gated:
        name = "gate and up" if inputs.model.gated else "up"
        yield from linear(block, name, ("gate", "up"), tokens, hidden_bytes)
    else:
        yield from linear(block, "gate", ("gate",), tokens, hidden_bytes)
        up_bytes = hidden_bytes * (inputs.casts_inputs if inputs.keeps_input("gate") else 1.0)
        # The gate's output is there when the up projection runs, and its activation where that is a kernel of its own
        # (LlamaMLP.forward).
        there = 1.0 if inputs.kernels.activation == "fused" else 2.0
        waiting = there * tokens * inputs.model.ffn / inputs.rank.tp * inputs.returned_bytes
        for op in linear(block, "up", ("up",), tokens, up_bytes):
            yield replace(op, forward_temporary_bytes=op.forward_temporary_bytes + waiting)
    if inputs.model.shared_blocks:
        yield from narrow_product(block, "own", "own", inputs.model.shared_blocks.mlp_rank)
    width = tokens * inputs.model.ffn / inputs.rank.tp
    # In place the backward computes what the down projection has read once more, and the gradients of gate and up, in
    # the gradient of that and in gate and up (Unsloth kernels/swiglu.py, _DWf_DW_dfg_kernel).
    joined = inputs.joins("gate", "up", "down")
    made = activation(block, "activation", "mlp", width)
    yield replace(made, temporary_bytes=width * inputs.returned_bytes) if joined else made
    if drops := inputs.drops("mlp"):
        dropped = width * inputs.returned_bytes
        yield memory_bound(block, "mlp dropout", "mlp", dropped, DROPOUT_PASSES, (1.0, 1.0), drops * MASK * width)
    # What a ReLU keeps is the input of the down projection, which is no other tensor while that and its adapter run.
    same = float(inputs.model.activation == "relu" and not inputs.drops("mlp")) * width * inputs.returned_bytes
    for op in linear(block, "down", ("down",), tokens, width * inputs.element_bytes * float(not joined)):
        yield replace(op, forward_temporary_bytes=np.maximum(op.forward_temporary_bytes - same, 0.0))
    yield from linear(block, "own out", ("own_out",), tokens, inputs.hidden_bytes)


def _tiled(block: Block) -> Iterator[Operator]:
    """The dense MLP by slices of as many tokens as the hidden size: its input is kept, the rest is computed again.

    DeepSpeed's TiledMLP (deepspeed/runtime/sequence_parallel/ulysses_sp.py); ALST, arXiv:2506.13996, section 3.1.
    """
    inputs, operators = block.inputs, tuple(_dense(block))
    tiles = np.ceil(inputs.rank.tokens / inputs.model.hidden)
    first = next(op for op in operators if isinstance(op, Matmul))
    inside = sum(op.saved_bytes for op in operators if op is not first)
    for op in operators:
        kept = inputs.hidden_bytes if op is first else inputs.zeros
        if isinstance(op, Matmul):
            yield replace(op, saved_bytes=kept, tiles=tiles)
        elif isinstance(op, MemoryBound):
            yield replace(
                op,
                saved_bytes=kept,
                backward_bytes=op.backward_bytes + op.forward_bytes,
                backward_launches=op.backward_launches + op.forward_launches,
                temporary_bytes=(op.temporary_bytes + inside) / tiles,
            )
        else:
            yield op


def experts_half(block: Block, experts: Experts) -> Iterator[Operator]:
    """Router, dispatch, grouped expert products, combine and shared experts of a mixture-of-experts layer.

        token copies of a rank = tokens x expert_tp / tp x experts per token x busiest_load

    A rank of an expert-parallel group holds count / ep experts and gets, when balanced, as many token copies as it
    sends; the others wait for the busiest. Ranks that split an expert give each other their tokens: all tensor ranks,
    or where norms are sharded those of the expert alone. Where tokens are gathered, ranks that attend to sequences of
    their own give each other all tokens, and get back the sum of what the experts of all of them say.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph; sizes of shape (rank shape,)
    experts : how many there are, how many see a token, and their size

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: Megatron-LM's token dispatcher; to-all: the all-gather and reduce-scatter of vLLM
    (AgRsAll2AllManager), TensorRT-LLM (fused_moe_cutlass.py, use_dp) and SGLang (dp_gather, dp_scatter), and their
    all-reduce over tensor ranks; own derivation of what each rank sends and multiplies.
    """
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    yield norm(block, "mlp norm", model.hidden, rank.resident_tokens)
    in_region, part = _regions(block, experts)
    yield enter_parallel(block, "experts", "experts", in_region)
    if np.any(part > 0):
        yield enter_parallel(block, "split experts", "experts", part, group="etp")
    yield from _routed(block, experts)
    yield from _shared(block, experts, rank.tokens)
    for name in OWN_NORMS if experts.own_norms else ():
        yield norm(block, name.replace("_", " "), model.hidden, rank.resident_tokens)
    if model.norms_per_layer == 4:
        yield norm(block, "post-mlp norm", model.hidden, rank.resident_tokens)
    yield leave_parallel(block, "experts", "experts", in_region)
    if np.any(part > 0):
        yield leave_parallel(block, "split experts", "experts", part, group="etp")
    # Whole experts gave each tensor rank its own tokens back; without sequence parallelism all ranks need all of them.
    apart = (1.0 - in_region) * (1.0 - rank.sequence_parallel) * rank.tokens * model.hidden * inputs.element_bytes
    yield exchange(block, "expert output", "experts", "tp", (("all_gather", apart),), (("reduce_scatter", apart),))
    yield residual(block, "mlp residual")


def _regions(block: Block, experts: Experts) -> tuple[Array, Array]:
    """Whether all tensor ranks need all tokens and their sum back; else the share that ranks of one expert gather.

    Shared experts need all, and so do experts that are split over all tensor ranks. Where norms are sharded, those of
    an expert that is split over some of them gather theirs alone.
    """
    rank, gathered = block.inputs.rank, block.inputs.kernels.dispatch == "to-all"
    shared = np.asarray((experts.shared_ffn > 0) | gathered)
    split = (rank.expert_tp > 1) & (_gathered_copies(block) == 0)
    some = ~shared & split & (rank.sequence_parallel > 0) & (rank.expert_tp < rank.tp)
    every = (shared | split) & ~some
    return np.where(every, 1.0, 0.0), np.where(some, rank.expert_tp / rank.tp, 0.0)


def _gathered_copies(block: Block) -> Array:
    """1 where tokens go to one rank of an expert, and those that split it gather them there, else 0 [-].

    Only where norms are sharded does every tensor rank have tokens of its own to send.
    """
    rank = block.inputs.rank
    after = block.inputs.kernels.split_experts == "gather-copies"
    return np.where((rank.sequence_parallel > 0) & (rank.expert_tp > 1), float(after), 0.0)


def _routed(block: Block, experts: Experts) -> Iterator[Operator]:
    """From the router to the weighted sum of what the routed experts return."""
    inputs, rank, e = block.inputs, block.inputs.rank, block.inputs.element_bytes
    # Every tensor-parallel rank routes its own share; the ranks that split an expert gather their tokens.
    own = rank.tokens / rank.tp
    routed = rank.tokens * rank.expert_tp / rank.tp * experts.per_token
    yield from linear(block, "router", ("router",), own, inputs.hidden_bytes)
    yield from linear(block, "latent down", ("latent_down",), own, inputs.zeros)
    width, loop = experts.latent or inputs.model.hidden, find_loop(inputs.kernels, experts)
    permuted, local = routed * width * e, touched_experts(block, experts)
    visited = turns(inputs.kernels, held_experts(block, experts), local)
    # Among ranks the busiest counts; within one rank a crowded expert leaves another idle.
    load = busiest_load(rank.ep, routed, experts.count, inputs.kernels)
    kept, received = float(inputs.keeps_input("expert_gate", "expert_up")), permuted * load
    saved_bytes = (received if loop else waiting_input_bytes(block, received)) * kept
    routing, possible, reserves = inputs.kernels.routing, *_possible_rows(block, experts, routed * load)
    # vLLM and SGLang fused_moe.py: rows are offs_token // top_k, and moe_sum reads the copies and writes tokens.
    indexed = inputs.kernels.expert_input == "indexed"
    if inputs.kernels.masks_experts:
        yield from _mask_product(block, experts, "dispatch", width, saved_bytes)
    elif loop:
        yield before_experts(block, loop, routed, width, visited, saved_bytes)
    else:
        passes, launched = DISPATCH_PASSES[routing], DISPATCH_LAUNCHES[routing]
        gathered = permuted
        if indexed:
            gathered = np.where(0.0 if reserves is None else reserves, permuted, routed * INDEX_BYTES)
        yield memory_bound(block, "dispatch", "experts", gathered, passes, launched, saved_bytes)
    there, back = _token_exchanges(block, experts, received)
    yield from there
    yield from _products(block, experts, routed * load, local, possible, reserves)
    yield from back
    if inputs.kernels.masks_experts:
        yield from _mask_product(block, experts, "combine", width, permuted)
    elif loop:
        yield after_experts(block, loop, routed, width, visited, permuted)
    else:
        passes, launched = COMBINE_PASSES[routing], COMBINE_LAUNCHES[routing]
        if indexed:
            passes = (1.0 + 1.0 / experts.per_token, passes[1])
        returned = np.where(_gathered_copies(block) > 0, permuted / rank.expert_tp, permuted)
        kept_bytes = returned * float(inputs.kernels.combine == "weighted")
        yield memory_bound(block, "combine", "experts", returned, passes, launched, kept_bytes)
    yield from linear(block, "latent up", ("latent_up",), own, own * (experts.latent or 0) * e)


MASK_PASSES = (1.0, 1.0)  # a mask is written, and its gradient read; what products move of it is in theirs


def _mask_product(block: Block, experts: Experts, name: str, width: float, saved_bytes: Array) -> Iterator[Operator]:
    """A product with a mask of every token and every place that experts have for tokens of its sequence.

        places = capacity per_token S              of S tokens of a sequence
        [places, S] [S, width] dispatch, [S, places] [places, width] combine, once a sequence

    Dispatch has the gradient of the tokens alone, as its mask is of yes and no.

    Source: Switch Transformer (arXiv:2101.03961, appendix F); MaxText layers/moe.py (dense_matmul, generate_masks).
    """
    inputs, rank = block.inputs, block.inputs.rank
    sequence = rank.sequence / rank.cp
    places, sequences = inputs.kernels.expert_capacity * experts.per_token * sequence, rank.batch / rank.tp
    combines = name == "combine"
    m, k = (sequence, places) if combines else (places, sequence)
    mask_bytes = sequences * sequence * places * inputs.element_bytes
    yield memory_bound(block, f"{name} mask", "experts", mask_bytes, MASK_PASSES, (1.0, 1.0), mask_bytes)
    yield Matmul(
        name=name, module="experts", layers=block.layers, saved_bytes=saved_bytes, m=m, n=width * rank.ones, k=k,
        copies=sequences, input_gradient=combines, weight_gradient=True, learns=True,
    )  # fmt: skip


def _token_exchanges(
    block: Block, experts: Experts, permuted: Array
) -> tuple[tuple[Collective, ...], tuple[Collective, ...]]:
    """How tokens get to their experts, and what these say back.

    permuted : token copies that the busiest rank gets, shape (rank shape,) [bytes]
    """
    inputs, rank = block.inputs, block.inputs.rank
    if inputs.kernels.dispatch == "to-all":
        groups = attention_groups(rank)
        all_tokens = (groups > 1.0) * groups * rank.tokens * inputs.model.hidden * inputs.element_bytes
        spread, summed = (("all_gather", all_tokens),), (("reduce_scatter", all_tokens),)
        return (
            (exchange(block, "expert dispatch", "experts", "dp", spread, summed),),
            (exchange(block, "expert combine", "experts", "dp", summed, spread),),
        )
    after = _gathered_copies(block)
    picks, sent = None, np.where(after > 0, permuted / rank.expert_tp, permuted)
    if inputs.kernels.dispatch == "per-place":
        picks = Picks(experts.per_token, experts.groups, experts.groups_per_token)
        sent = sent * visited_places(picks, rank.ep) / experts.per_token
    narrow, start_s = inputs.kernels.dispatched_bytes, inputs.kernels.exchange_start_s
    copies = (("all_to_all", sent),)
    narrowed = copies if narrow is None else (("all_to_all", sent * narrow / inputs.element_bytes),)
    there = exchange(block, "expert dispatch", "experts", "ep", narrowed, copies, picks, start_s)
    back = exchange(block, "expert combine", "experts", "ep", copies, copies, picks, start_s)
    if not np.any(after):
        return (there,), (back,)
    whole, parts = (("all_gather", after * permuted),), (("reduce_scatter", after * permuted),)
    return (
        (there, exchange(block, "split experts input", "experts", "etp", whole, parts)),
        (exchange(block, "split experts output", "experts", "etp", parts, whole), back),
    )


def _possible_rows(block: Block, experts: Experts, routed: Array) -> tuple[Array, Array | None]:
    """Token copies that a rank could get, of `routed` that it does, and where rows are reserved for them all."""
    inputs, rank = block.inputs, block.inputs.rank
    # Where every rank has all tokens, all of them could have picked its experts.
    gathered = inputs.kernels.dispatch == "to-all"
    possible = rank.tokens * attention_groups(rank) * experts.per_token if gathered else routed
    hidden = (experts.latent or inputs.model.hidden) * np.ones_like(routed)
    width = experts.ffn / rank.expert_tp * np.ones_like(routed)
    return possible, reserved_rows(inputs.kernels, possible / experts.per_token, width, hidden, rank.expert_tp)


def _products(
    block: Block, experts: Experts, routed: Array, local: Array, possible: Array, reserves: Array | None
) -> Iterator[Operator]:
    """The products of `local` experts, together or one after the other; `routed` token copies are shared evenly.

    possible, reserves : as of `_possible_rows`
    """
    inputs, model, rank = block.inputs, block.inputs.model, block.inputs.rank
    one = np.ones_like(local)
    held = held_experts(block, experts)
    ffn, hidden = experts.ffn / rank.expert_tp * one, (experts.latent or model.hidden) * one
    rows, passing = expert_rows(inputs.kernels, routed, possible, local, held, reserves)
    padding = padded_sides(inputs.kernels, hidden, ffn)
    matrices = 2.0 if model.gated else 1.0
    width = passing * experts.ffn / rank.expert_tp
    learning, loop = inputs.learning, find_loop(inputs.kernels, experts)
    together = loop is None and inputs.kernels.experts != "in-turn" and not inputs.kernels.masks_experts
    apart = (not together and not inputs.kernels.masks_experts) or inputs.kernels.experts == "products"

    # vLLM and SGLang fused_moe.py quantise before each product: tokens, and then their copies.
    indexed, shared = inputs.kernels.expert_input == "indexed", np.maximum(local, 1e-9)
    tokens_cast, copies_cast = possible / experts.per_token / shared, routed / shared

    def product(name: str, n: Array, k: Array, saved_bytes: Array, cast: Array | None = None) -> Matmul:
        return Matmul(
            name=name,
            module="experts",
            layers=block.layers,
            saved_bytes=saved_bytes,
            m=rows,
            n=n,
            k=k,
            copies=local,
            input_gradient=True,
            weight_gradient=learning.weight_gradients,
            learns=learning.base,
            grouped=together,
            apart=apart,
            reserved=reserves,
            alone=together & (held == 1.0),
            accumulated_bytes=inputs.accumulated_bytes,
            padding=padding,
            cast_rows=cast if indexed else None,
        )

    # The dispatched tokens, which the first product reads, are kept by the dispatch.
    if loop == MODULES and model.gated and not inputs.fused_gate_up:
        another = inputs.casts_inputs * float(inputs.keeps_input("expert_gate", "expert_up"))
        yield product("expert gate", ffn, hidden, np.zeros_like(width))
        yield product("expert up", ffn, hidden, another * routed * hidden * inputs.element_bytes)
    else:
        yield product("expert gate and up", matrices * ffn, hidden, np.zeros_like(width), tokens_cast)
    yield from _beside_experts(block, ("expert_gate", "expert_up"), rows, local, ffn, hidden)
    acted = activation(block, "expert activation", "experts", width)
    yield replicated(acted, turns(inputs.kernels, held, local)) if loop in (MODULES, SLICED) else acted
    if experts.expert_bias:
        yield expert_bias(block, loop, width * matrices, routed * hidden)
    kept = float(inputs.keeps_input("expert_down"))
    waiting_bytes = waiting_input_bytes(block, width * inputs.element_bytes) * kept
    yield product("expert down", hidden, ffn, waiting_bytes, copies_cast)
    yield from _beside_experts(block, ("expert_down",), rows, local, hidden, ffn)
    elements = (matrices + 1.0) * local * hidden * ffn
    yield from expert_weights(block, loop, elements, (matrices + 1.0) * local, local)
    read, written = passing * (hidden + ffn), passing * (matrices * ffn + hidden)
    for casts in narrowing(block, "experts", "experts", read, elements, written):
        yield replicated(casts, 2.0 * local) if apart else casts


def _beside_experts(
    block: Block, names: tuple[str, ...], rows: Array, local: Array, n: Array, k: Array
) -> Iterator[Operator]:
    """Adapters of each of `local` experts on weights of n by k, grouped (GroupedExpertsLoRA of NeMo AutoModel)."""
    weights = [block.weights[name] for name in names if name in block.weights]
    for adapter in adapters_on(weights, block.inputs.learning.adapters):
        first = adapter.members[0]
        yield from adapter.form.operators(Place(block, first.name, first.module, rows, n, k, local))


def _shared(block: Block, experts: Experts, tokens: Array) -> Iterator[Operator]:
    if not experts.shared_ffn:
        return
    inputs, parts = block.inputs, ("shared_expert_gate", "shared_expert_up")
    yield from linear(block, "shared expert gate and up", parts, tokens, inputs.hidden_bytes)
    width = tokens * experts.shared_ffn / inputs.rank.tp
    yield activation(block, "shared expert activation", "mlp", width)
    yield from linear(block, "shared expert down", ("shared_expert_down",), tokens, width * inputs.element_bytes)
