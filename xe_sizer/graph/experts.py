"""Experts of a mixture: the rows that each gets, and kernels that go through them one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.blocks import weight_traffic
from xe_sizer.graph.operators import MemoryBound, as_array

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import Block
    from xe_sizer.graph.model import Experts
    from xe_sizer.graph.operators import Array, Kernels, Operator

# Rows: the busiest expert, how many a rank touches, and what grouped products compute.

EXPERTS = "experts"  # module of the operators and weights of routed experts
SMALLEST_TILE = 16.0  # rows of the smallest tile of grouped products
# What DeepGEMM's grouped products take where scales are no powers of two: tokens, width of an expert's part, alignment.
LEAST_TOKENS, WIDEST_REFUSED, ALIGNED = 128.0, 512.0, 128.0
SURELY = 1.0 - 1e-12  # share of the experts that a token picks where it picks them all


def held_experts(block: Block, experts: Experts) -> Array:
    """Experts that a rank holds, with copies of busy ones.

        held = (E + R) / ep

    Parameters
    ----------
    block : a kind of layer; R of its kernels [-]
    experts : E of them [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: DeepSeek's EPLB, whose ranks all hold as many.
    """
    kernels = block.inputs.kernels
    return (as_array(experts.count) + (kernels.redundant_experts or 0)) / block.inputs.rank.ep


def busiest_load(ranks: Array, copies: Array, experts: int, kernels: Kernels) -> Array:
    """Tokens of the busiest rank of an expert group over their mean.

        load = imbalance W(n, s^2 n / E + 1 / m)                      at most n and the capacity; 1 alone
        load = balanced W(n, (d s)^2 n / (E + R) + 1 / m)             experts are placed by their load
        load = skew                                                   where it is known
        load = capacity                                               every expert's tokens are padded to it

    A rank adds up the loads of its experts, which vary by s around their mean in what texts ask for, and by chance
    where a step has few tokens; W is the largest of n such sums (`largest_load`). Where s is 0 the imbalance has all of
    it. Placed by the load that was counted before, experts differ by what has changed since. Tokens beyond an expert's
    capacity are dropped.

    Parameters
    ----------
    ranks : n, of the expert group, shape (rank shape,) [-]
    copies : m, token copies that a rank gets in the mean, shape (rank shape,) [-]
    experts : E [-]
    kernels : imbalance, spread s, skew, redundant experts R and capacity of an expert [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation for loads that do not depend on each other; capacity: Switch Transformer (arXiv:2101.03961),
    Megatron-Core transformer/moe/moe_utils.py (topk_routing_with_score_function, drop_and_pad).
    """
    if kernels.pads_experts:
        return np.full_like(ranks, kernels.expert_capacity)
    spread, redundant = kernels.expert_spread, kernels.redundant_experts
    if kernels.expert_skew is not None:
        load = np.full_like(ranks, kernels.expert_skew)
    elif spread == 0:
        load = np.full_like(ranks, kernels.expert_imbalance)
    else:
        chance = 1.0 / np.maximum(copies, 1.0)
        if redundant is None:
            load = kernels.expert_imbalance * largest_load(ranks, spread**2 * ranks / experts + chance)
        else:
            drifted = (DRIFT * spread) ** 2 * ranks / (experts + redundant)
            sizes, places = np.unique(ranks, return_inverse=True)
            placed = np.array([balanced_load(experts, redundant, int(size), spread) for size in sizes])
            load = placed[places].reshape(ranks.shape) * largest_load(ranks, drifted + chance)
    return np.where(ranks > 1, np.minimum(np.minimum(load, kernels.expert_capacity), ranks), 1.0)


# Fitted: with 288 experts on 32 ranks, placed by the load of earlier traffic of the same kind, SGLang reads prompts of
# 4,096 tokens in 1.18 times what it takes with balanced experts (DeepSeek-V3, LMSYS, 96 H100), which is 0.42 of the
# spread; runs of shorter prompts are 0.27 and 0.34, decodes on 48, 72 and 96 ranks 0.28 to 0.41. Of the very steps that
# experts were placed by 0.1 is left (ranks differ by 0.051 of their mean, TensorRT-LLM blog 4, table 1).
DRIFT = 0.3


def largest_load(ranks: Array, variance: Array) -> Array:
    """Expected largest of n loads around 1 that follow a gamma distribution.

        W = (1 - v / 9 + z(n) sqrt(v) / 3)^3

    Parameters
    ----------
    ranks : n, shape (rank shape,) [-]
    variance : v of a load, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,), at least 1 [-]

    Source: Wilson and Hilferty 1931 for quantiles of a gamma distribution; z as in `largest_of`. Of 32 ranks with 8 of
    256 experts each that differ by 1.28, 2.15; the busiest had 2.56 of the mean (TensorRT-LLM blog 4, table 1).
    """
    return np.maximum(1.0 - variance / 9.0 + largest_of(ranks) * np.sqrt(variance) / 3.0, 1.0) ** 3


@cache
def balanced_load(experts: int, redundant: int, ranks: int, spread: float) -> float:
    """Load of the busiest rank over the mean, where busy experts have copies and all are placed by their load.

    Each further copy goes to the expert with the most for each of its copies, then the copies one after the other, the
    heaviest first, to the rank with the least that has room. Experts are as loaded as the quantiles of a gamma
    distribution.

    Parameters
    ----------
    experts, redundant : of the model, and copies beside [-]
    ranks : that all hold as many; they divide both together [-]
    spread : standard deviation of the loads of experts over their mean [-]

    Returns
    -------
    float, at least 1 [-]

    Source: DeepSeek's EPLB, replicate_experts and balanced_packing (eplb.py), as vLLM and SGLang have them.
    """
    from statistics import NormalDist

    places = (np.arange(experts) + 0.5) / experts
    cube_roots = np.array([1.0 - spread**2 / 9.0 + NormalDist().inv_cdf(place) * spread / 3.0 for place in places])
    loads = np.maximum(cube_roots, 0.0) ** 3
    copies = np.ones(experts)
    for _ in range(redundant):
        copies[np.argmax(loads / copies)] += 1.0
    room = (experts + redundant) // ranks
    sums, held = np.zeros(ranks), np.zeros(ranks)
    for load in np.sort(np.repeat(loads / copies, copies.astype(int)))[::-1][: room * ranks]:
        rank = int(np.argmin(np.where(held < room, sums, np.inf)))
        sums[rank] += load
        held[rank] += 1.0
    return float(sums.max() / sums.mean())


def largest_of(ranks: Array) -> Array:
    """Expected maximum of so many normal values, in standard deviations above their mean [-].

        z(n) = Phi^-1((n - 0.375) / (n + 0.25))      0 for one

    Parameters
    ----------
    ranks : n, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: Blom 1958 for the largest of n normal values.
    """
    from statistics import NormalDist  # dense models need none

    sizes, places = np.unique(ranks, return_inverse=True)
    largest = np.array([NormalDist().inv_cdf((size - 0.375) / (size + 0.25)) for size in sizes])[places]
    return np.asarray(largest.reshape(ranks.shape))


def touched_experts(block: Block, experts: Experts) -> Array:
    """Experts of the busiest rank that at least one token is routed to.

        q = 1 - (1 - k / E) (1 + s^2 l)^(-1 / s^2),  l = -(T - 1) ln(1 - k / E)      1 - (1 - k / E)^T where s = 0
        touched = n q + z(ep) sqrt(n q (1 - q)),  n of `held_experts`                z(1) = 0

    Each of T tokens picks k of E experts. How often they pick one varies around the mean by s, as a gamma distribution
    does: the popular ones are picked again and again, so that fewer are touched than if all were picked evenly. With
    thousands of tokens that is nearly all of them, with a few it is not.

    Parameters
    ----------
    block : a kind of layer; T, the tokens of the expert group, from its rank, shape (rank shape,) [-]; s of its kernels
    experts : E of them, k for each token [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation: the expectation for tokens that do not depend on each other, whose counts follow a negative
    binomial distribution; z as in `busiest_load`.
    """
    rank, spread = block.inputs.rank, block.inputs.kernels.expert_spread
    tokens = rank.tokens * rank.expert_tp / rank.tp * rank.ep
    each = -np.log1p(-min(experts.per_token / experts.count, SURELY))  # of one token
    first, further = each * np.minimum(tokens, 1.0), each * np.maximum(tokens - 1.0, 0.0)
    missed = np.exp(-first - (np.log1p(spread**2 * further) / spread**2 if spread else further))
    own = held_experts(block, experts)
    varied = largest_of(rank.ep) * np.sqrt(own * missed * (1.0 - missed))
    return np.asarray(np.minimum(own * (1.0 - missed) + varied, own))


def reserved_rows(kernels: Kernels, tokens: Array, width: Array, hidden: Array, ranks: Array) -> Array | None:
    """Whether grouped products run over rows that are reserved for the worst case; None where they never do.

        reserved = ranks < reserved_below
        reserved = ranks < reserved_below, M >= 128, N > 512, N mod 128 = K mod 128 = 0      where they are gated

    Parameters
    ----------
    kernels : reserved_below and reserved_gated
    tokens : M, of all ranks whose tokens the products see, shape (rank shape,) [-]
    width : N, of the rank's part of an expert, shape (rank shape,) [-]
    hidden : K, shape (rank shape,) [-]
    ranks : that split each expert, shape (rank shape,) [-]

    Returns
    -------
    ndarray of bool, shape (rank shape,) [-]; or None

    Source: vLLM fused_moe/deep_gemm_moe.py (_valid_deep_gemm) and triton_deep_gemm_moe.py (apply): other sizes run in
    Triton, unless scales are powers of two (is_deep_gemm_e8m0_used).
    """
    if not kernels.reserved_below:
        return None
    reserves = ranks < kernels.reserved_below
    if not kernels.reserved_gated:
        return np.asarray(reserves)
    aligned = (width % ALIGNED == 0) & (hidden % ALIGNED == 0)
    return np.asarray(reserves & aligned & (tokens >= LEAST_TOKENS) & (width > WIDEST_REFUSED))


def expert_rows(
    kernels: Kernels, routed: Array, possible: Array, local: Array, held: Array, reserves: Array | None
) -> tuple[Array, Array]:
    """Rows of one expert's product in a grouped kernel, and rows of all experts that pass what stands around it.

        m = r + clip(r, 16, tile) / 2,  r = routed / local      rounded up to tiles; r alone without any
        m = r + tile - 1                                        where rows begin anywhere: tiles that they touch
        all = routed

    Where the host does not know how many tokens each expert gets, rows are reserved for the worst case: each expert
    that the rank holds could leave a tile but for one row empty. Those that nobody needs are computed too.

        all = possible + held (tile - 1),  m = all / local        where they are reserved

    Parameters
    ----------
    kernels : expert_tile and expert_starts
    routed : token copies of the rank, shape (rank shape,) [-]
    possible : those that it would have if all tokens that it sees picked its experts, shape (rank shape,) [-]
    local : experts of the rank that get any, shape (rank shape,) [-]
    held : experts that the rank holds, shape (rank shape,) [-]
    reserves : as `reserved_rows` says, shape (rank shape,); None: nowhere [-]

    Returns
    -------
    (m, all), ndarrays of float, shape (rank shape,) [-]

    Source: own derivation, the mean of shares rounded up to tiles; vLLM 0.12 compute_aligned_M and
    deepgemm_moe_permute (model_executor/layers/fused_moe/deep_gemm_utils.py), which gives empty rows to expert 0.
    """
    tile, shared = 0.0 if kernels.masks_experts else kernels.expert_tile, np.maximum(local, 1e-9)
    each = routed / shared
    tiled = each + np.clip(each, SMALLEST_TILE, tile) / 2.0 if tile else each
    if tile and kernels.expert_starts == "anywhere":
        tiled = each + tile - 1.0
    if reserves is None:
        return tiled, routed
    reserved = possible + held * (tile - 1.0)
    return np.where(reserves, reserved / shared, tiled), np.where(reserves, reserved, routed)


def padded_sides(kernels: Kernels, rows: Array, columns: Array) -> Array | None:
    """What grouped products compute of an expert's weight over what it has [-].

        f = g(rows) g(columns),  g(x) = ceil(x / side) side / x      1 for a side that is no longer than a tile

    Parameters
    ----------
    kernels : expert_side
    rows, columns : of the weight, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]; None where sizes divide the sides

    Source: MaxText kernels/megablox/backend.py (_calculate_irregular_num_tiles) and layers/moe.py, min(tile, side).
    """
    side = kernels.expert_side
    if not side or kernels.masks_experts:
        return None
    each = [np.where(long > side, np.ceil(long / side) * side / np.maximum(long, 1.0), 1.0) for long in (rows, columns)]
    return np.asarray(each[0] * each[1])


# Experts in a loop, as the eager classes of Hugging Face transformers compute them.

MODULES, SLICED, SPLIT = "modules", "sliced", "split"
# Kernels for each expert, forward and backward (own count). Before its products: which tokens picked it (where, of one
# count, one selection and three around them), the pick and the gather; backward, zeros like the hidden state, the
# sort and sum of an indexed addition, and the sum of both. After them: its share of the weights, the multiplication and
# the indexed addition; backward, the gather, two multiplications, a sum, and the same indexed addition for the shares.
# With products and activation the forward has 14, a quarter of a millisecond at 18 us each: 960 experts took 0.21 s
# longer in a loop than in grouped products (transformers pull request 42697, A100, 16 tokens).
BEFORE_LAUNCHES = (7.0, 8.0)
AFTER_LAUNCHES = (3.0, 12.0)
# A slice of one tensor of all experts has a gradient like the whole: zeros, the copy, and the sum with that so far.
SLICE_LAUNCHES = 3.0
# Elements that a kernel reads or writes, of the token copies unless it says otherwise.
GATHER, SCALE, ADD, SUM = 2.0, 2.0, 3.0, 4.0
SPLIT_LAUNCHES = (8.0, 6.0)
# Biases: gathered rows are written (1) and added (3), or a row is added to all (2); backward rows of the gradient are
# read and added to their expert's (2), or read and summed (1).
BIAS_PASSES = {"sorted": (4.0, 2.0), "loop": (2.0, 1.0)}
# Bytes an element of bias x weight in float32: written 4, added 10, joined 8, cast 6; backward cast 6, cast back and
# joined 10, times weight and bias 16, sums of both 8.
WEIGHTED_BIAS = (28.0, 40.0)


def find_loop(kernels: Kernels, experts: Experts) -> str | None:
    """Return how experts are computed one after the other: modules, sliced or split; None where they are grouped.

        loop = that of the model's reference implementation      where the stack loops
        loop = split                                              unsplit, where that splits sorted tokens; else none

    Parameters
    ----------
    kernels : of the stack
    experts : of the model, with the loop of its reference implementation

    Returns
    -------
    str, or None

    Source: transformers 4 modeling_mixtral.py, modeling_gpt_oss.py, modeling_granitemoe.py; transformers 5
    integrations/moe.py, whose grouped products modeling_granitemoe.py and modeling_jetmoe.py do not take.
    """
    if kernels.experts in ("loop", "loop-all") or (kernels.experts == "unsplit" and experts.loop == SPLIT):
        return experts.loop
    return None


def turns(kernels: Kernels, held: Array, touched: Array) -> Array:
    """Experts of a rank that a loop comes to.

        turns = E / ep      where it goes over all of them; else those that any token picked

    Parameters
    ----------
    kernels : of the stack or engine
    held, touched : E / ep, experts of the rank, and those that any token picked, shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: transformers 4.51 modeling_mixtral.py (range(self.num_experts)); 4.57 modeling_qwen3_moe.py (expert_hit).
    """
    return np.asarray(held if kernels.experts == "loop-all" else touched)


def replicated(operator: MemoryBound, local: Array) -> MemoryBound:
    """The operator where each expert launches its kernels: as many bytes, `local` times the launches.

        launches = local x launches

    Parameters
    ----------
    operator : for all experts together
    local : experts that the loop comes to, or weights of theirs, shape (rank shape,) [-]

    Returns
    -------
    MemoryBound; launches of shape (rank shape,) [-]

    Source: the loops of transformers, which call an activation or a cast for every expert.
    """
    forward, backward = operator.forward_launches * local, operator.backward_launches * local
    return replace(operator, forward_launches=forward, backward_launches=backward)


def before_experts(
    block: Block, loop: str, copies: Array, width: float, local: Array, saved_bytes: Array
) -> MemoryBound:
    """Finding and gathering the tokens of each expert.

        forward bytes  = 2 x token copies x width x hidden state's element      gathered; cast where the state is wider
        backward bytes = 3 x token copies + 4 x experts x tokens, each x width x hidden state's element

    The gradient of what an expert gathers is as large as all tokens: zeros, an indexed addition, and the sum with that
    of the experts before. Tokens that are sorted once and split are gathered once, and have one gradient.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : modules, sliced or split
    copies : tokens times experts of each, shape (rank shape,) [-]
    width : elements of a token [-]
    local : experts that the loop comes to, shape (rank shape,) [-]
    saved_bytes : what the products keep of it, shape (rank shape,) [bytes]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: transformers 4.57 modeling_qwen3_moe.py and modeling_gpt_oss.py, 4.46 modeling_granitemoe.py; PyTorch
    index_put_ with accumulation.
    """
    inputs = block.inputs
    wide, cast = np.asarray(inputs.residual_element_bytes), inputs.element_bytes
    readers = 2.0 if loop == MODULES and not inputs.fused_gate_up else 1.0
    casts = inputs.casts_inputs * readers * (wide + cast) * copies * width
    together = loop == SPLIT
    gathered = (ADD + (2.0 * GATHER if together else 0.0)) * copies * width
    gradients = SUM * inputs.rank.tokens / inputs.rank.tp * width * (1.0 if together else local)
    return MemoryBound(
        name="dispatch",
        module=EXPERTS,
        layers=block.layers,
        saved_bytes=saved_bytes,
        forward_bytes=GATHER * copies * width * wide + casts,
        backward_bytes=(gathered + gradients) * wide + casts,
        forward_launches=SPLIT_LAUNCHES[0] if together else BEFORE_LAUNCHES[0] * local,
        backward_launches=SPLIT_LAUNCHES[1] if together else BEFORE_LAUNCHES[1] * local,
        temporary_bytes=2.0 * copies * width * wide,
    )


def after_experts(
    block: Block, loop: str, copies: Array, width: float, local: Array, saved_bytes: Array
) -> MemoryBound:
    """Weighting what each expert gives and adding it to its tokens.

        forward bytes  = (2 element + 3 hidden state's element) x token copies x width
        backward bytes = (6 element + 2 hidden state's element) x token copies x width

    Outputs of experts that are cut from one tensor are put together again before (2 more each way).

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : modules, sliced or split
    copies : tokens times experts of each, shape (rank shape,) [-]
    width : elements of a token [-]
    local : experts that the loop comes to, shape (rank shape,) [-]
    saved_bytes : what autograd keeps of it, shape (rank shape,) [bytes]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: transformers 4.57 modeling_qwen3_moe.py (index_add_), 4.46 modeling_granitemoe.py.
    """
    inputs, together = block.inputs, loop == SPLIT
    wide, size = np.asarray(inputs.residual_element_bytes), inputs.element_bytes
    joined = GATHER * size if together else 0.0
    return MemoryBound(
        name="combine",
        module=EXPERTS,
        layers=block.layers,
        saved_bytes=saved_bytes,
        forward_bytes=(SCALE * size + ADD * wide + joined) * copies * width,
        backward_bytes=((SCALE + SUM) * size + GATHER * wide + joined) * copies * width,
        forward_launches=SPLIT_LAUNCHES[0] if together else AFTER_LAUNCHES[0] * local,
        backward_launches=SPLIT_LAUNCHES[1] if together else AFTER_LAUNCHES[1] * local,
        temporary_bytes=2.0 * copies * width * size,
    )


def expert_bias(block: Block, loop: str | None, inner: Array, outer: Array) -> MemoryBound:
    """Adding each expert's biases to what its two products give.

        bytes = passes x (inner + outer) x element         rows of biases are gathered and added; loops: added
        bytes = 28 forward, 40 backward x outer            side by side: in float32, weighted, expert by expert

    Products side by side add the first bias themselves. Backward the rows that an expert got are summed.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : how experts are computed one after the other; None: they are not
    inner, outer : elements that the first and the second product give, shape (rank shape,) [-]

    Returns
    -------
    MemoryBound; bytes of shape (rank shape,) [bytes]

    Source: Megatron-Core transformer/moe/experts.py TEGroupedMLP._apply_bias; torchtitan models/gpt_oss/moe.py
    (repeat_interleave); transformers 5 integrations/moe.py (gate_up_proj_bias[expert_ids]).
    """
    inputs = block.inputs
    if loop is None and inputs.kernels.experts == "products":
        forward, backward = WEIGHTED_BIAS[0] * outer, WEIGHTED_BIAS[1] * outer
    else:
        forward, backward = (
            passes * (inner + outer) * inputs.element_bytes
            for passes in BIAS_PASSES["sorted" if loop is None else "loop"]
        )
    return MemoryBound(
        name="expert bias",
        module=EXPERTS,
        layers=block.layers,
        saved_bytes=inputs.zeros,
        forward_bytes=forward,
        backward_bytes=backward * float(inputs.learning.base),
        forward_launches=2.0,
        backward_launches=2.0 * float(inputs.learning.base),
        temporary_bytes=inputs.zeros,
    )


def slice_gradients(block: Block, loop: str, elements: Array, tensors: float, local: Array) -> Iterator[Operator]:
    """Gradients of weights that are slices of one tensor: each expert makes one like the tensor of all.

        bytes = 4 x experts x elements of all experts x weight's element      zeros, and the sum of two into one

    Weights are float32 under autocast, unless FSDP gathers them in 16 bit.

    Parameters
    ----------
    block : a kind of layer, with the inputs of the graph
    loop : modules, sliced or split
    elements : weights of all experts of the rank, shape (rank shape,) [-]
    tensors : that hold them [-]
    local : experts that any token picked, shape (rank shape,) [-]

    Returns
    -------
    iterator of one MemoryBound, none where weights are frozen or modules of their own; bytes of shape (rank shape,)
    [bytes]

    Source: PyTorch select_backward and the sum of gradients (InputBuffer::add) of self.weight[i] and
    self.gate_up_proj[expert_idx] in transformers.
    """
    inputs = block.inputs
    if loop == MODULES or not inputs.learning.base:
        return
    whole = elements * np.asarray(inputs.residual_element_bytes)
    yield MemoryBound(
        name="expert slices",
        module=EXPERTS,
        layers=block.layers,
        saved_bytes=inputs.zeros,
        forward_bytes=inputs.zeros,
        backward_bytes=SUM * local * whole,
        forward_launches=0.0,
        backward_launches=SLICE_LAUNCHES * tensors * local,
        temporary_bytes=2.0 * whole,
    )


def expert_weights(
    block: Block, loop: str | None, elements: Array, matrices: Array, local: Array
) -> Iterator[Operator]:
    """Traffic of the matrices of `local` experts, which loops have one by one, and gradients of their slices.

        bytes = weight_traffic of the elements

    Parameters
    ----------
    block : a kind of layer
    loop : how the experts run one by one; None: together
    elements : of the matrices on the rank, shape (rank shape,) [-]
    matrices, local : matrices, and experts of the rank, shape (rank shape,) [-]

    Returns
    -------
    iterator of Operator; bytes of shape (rank shape,) [bytes]

    Source: `weight_traffic` and `slice_gradients`.
    """
    for traffic in weight_traffic(block, "experts", "experts", elements):
        yield replicated(traffic, matrices) if loop else traffic
    if loop:
        yield from slice_gradients(block, loop, elements, 2.0, local)
