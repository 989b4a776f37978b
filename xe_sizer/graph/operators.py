"""Operators of one rank and one micro-batch: sizes and bytes, no seconds.

Every size is a numpy array that broadcasts over layouts, so that one graph describes one layout or a million.
`layers` says how many of the model's layers contain the operator (a model may mix dense and expert layers).
"""

from __future__ import annotations

from dataclasses import field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xe_sizer.frozen import frozen
from xe_sizer.graph.losses import VOCABULARY_PARALLEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.graph.losses import Loss

Array = NDArray[np.float64]
ContextKind = Literal["all-gather", "ring", "ulysses", "hybrid"]
CONTEXT_KINDS: tuple[ContextKind, ...] = get_args(ContextKind)
IntArray = NDArray[np.int64]


def as_array(value: ArrayLike) -> Array:
    """The value as an array of float64; a number becomes an array without dimensions."""
    return np.asarray(value, dtype=np.float64)


def attended_positions(query: ArrayLike, key: ArrayLike, window: ArrayLike | None = None) -> Array:
    """Query-key pairs per head and sample under a causal mask, or under a sliding window.

        pairs = q (k - (q - 1) / 2)                                     causal: s (s + 1) / 2 for q = k = s
        pairs = q w - u (u - 1) / 2,  u = min(max(w - (k - q), 0), q)    window: every query sees at most w < k keys

    Parameters
    ----------
    query : q, queries of a sequence, the last of its tokens [-]
    key : k, keys of it, cached ones included [-]
    window : w, tokens that a query sees at most; None: all [-]

    Returns
    -------
    ndarray of float, shape that query and key broadcast to [-]

    Source: own derivation, counting what the mask leaves; u are the queries that see fewer than w keys.
    """
    q = np.asarray(query, dtype=np.float64)
    k = np.asarray(key, dtype=np.float64)
    if window is None:
        return np.asarray(q * (k - (q - 1.0) / 2.0))
    w = np.minimum(np.asarray(window, dtype=np.float64), k)
    unmasked_prefix = np.clip(w - (k - q), 0.0, q)
    return np.asarray(q * w - unmasked_prefix * (unmasked_prefix - 1.0) / 2.0)


@frozen
class RankShape:
    """What one rank sees of one micro-batch.

    batch : sequences of the micro-batch [-]
    sequence : tokens of one sequence before context parallelism cuts it [-]
    tp, cp, ep : tensor, context and expert parallel sizes [-]
    expert_tp : tensor-parallel size of each expert: tp, part of it, or 1 where tensor ranks hold whole experts [-]
    sequence_parallel : 1 where norms and residuals are sharded over the tensor-parallel ranks, else 0
    head_ranks : ranks of a context group that hold whole sequences of a part of the heads [-]; the others hold parts of
        the sequences
    past : tokens of each sequence whose keys and values are cached already [-]; 0 in training
    """

    batch: Array
    sequence: Array
    tp: Array
    cp: Array
    ep: Array
    expert_tp: Array
    sequence_parallel: Array
    past: Array | float = 0.0
    head_ranks: Array | float = 1.0

    @cached_property
    def ring_ranks(self) -> Array:
        """Ranks of a context group that hold different parts of the same sequences and heads."""
        return np.asarray(self.cp / self.head_ranks)

    @cached_property
    def keys(self) -> Array:
        """Keys that the last query of a sequence may attend to."""
        return self.sequence + self.past

    @cached_property
    def ones(self) -> Array:
        return np.ones_like(self.tp)

    @cached_property
    def tokens(self) -> Array:
        return self.batch * self.sequence / self.cp

    @cached_property
    def resident_tokens(self) -> Array:
        """Tokens whose hidden state the rank holds between the tensor-parallel regions."""
        return self.tokens / np.where(self.sequence_parallel > 0, self.tp, 1.0)


def attention_groups(rank: RankShape) -> Array:
    """Groups of tensor ranks that attend to sequences of their own and share the experts.

        groups = max(expert_tp ep / tp, 1)

    Parameters
    ----------
    rank : of shape (rank shape,) [-]

    Returns
    -------
    ndarray of float, shape (rank shape,) [-]

    Source: own derivation: experts are spread over all ranks of all groups.
    """
    return np.maximum(rank.expert_tp * rank.ep / rank.tp, 1.0)


def group_sizes(rank: RankShape) -> dict[str, Array]:
    """Ranks of each parallel group that exchanges something inside the layers.

        dp = attention_groups

    Parameters
    ----------
    rank : of shape (rank shape,) [-]

    Returns
    -------
    dict of the groups of `Collective`, shape (rank shape,) [-]

    Source: definition.
    """
    return {
        "tp": rank.tp, "cp": rank.ring_ranks, "ep": rank.ep, "dp": attention_groups(rank), "etp": rank.expert_tp,
        "heads": np.asarray(rank.head_ranks * rank.ones),
    }  # fmt: skip


@frozen
class Kernels:
    """Which kernels a stack runs; `eager` means one kernel per arithmetic step.

    norm, rotary, activation : fused or eager; an activation may be native: PyTorch's own kernel, its gate apart;
        rotary in-attention: the attention kernel turns queries and keys itself
    residual : apart, or in-norm: the next norm's kernel adds it
    attention : flash, sdpa or eager; decode: a few queries on a long cache, one kernel split over the keys
    cache : none; paged: one kernel writes the new keys and values in place; in-attention: the attention kernel
        does; concatenated: every layer copies its whole cache to make room (DynamicCache of transformers)
    loss : the cross-entropy, see `graph.losses`
    fused_qkv, fused_gate_up : one matrix product instead of three or two
    repeats_kv : keys and values are copied to the number of query heads before attention
    softmax : of eager attention: float32 (kept so, and cast) or fused (kept in the compute type)
    dropout : masks are drawn where the model has dropout
    mixer : fused: convolution, scan and gate of a state-space layer read what the projection returned; copied: each of
        its parts is copied out and turned around first
    routing : eager, or fused: choosing, sorting and summing up in three kernels
    dispatch : per-expert: a token goes to every expert that it picked; per-place: once to each node and rank that
        holds some of them, and on from there; to-all: all tokens go to all ranks, which sum up what theirs say
    context : what ranks that share sequences exchange: all-gather: keys and values, before attention; ring: the same,
        block after block behind attention; ulysses: parts of the sequences for heads; hybrid: ulysses among as many
        ranks as keys and values have heads, a ring of such groups
    split_experts : gather-tokens: ranks that split an expert give each other all tokens, and each sends them on;
        gather-copies: a token goes to one of them, and they gather what has come
    experts : grouped: one kernel for all experts of a product; products: one for each, side by side; in-turn: one for
        each after the other, on tokens sorted before; loop: one expert after the other, as the model's reference
        implementation does; loop-all: so, those that no token picked too; unsplit: grouped, but for models whose
        implementation splits sorted tokens, whose loop nothing replaces
    expert_imbalance : the busiest rank's load over the mean, however experts are spread [-]
    expert_spread : standard deviation of the loads of experts over their mean [-]
    expert_tile : rows that an expert's share is rounded up to in grouped products, half of which is wasted on average
    reserved_below : ranks that split an expert, below which grouped products run over as many rows as could be needed
        wherever tokens go, `expert_tile` - 1 for each of the rank's experts beside its tokens; 0: never
    reserved_gated : so they do for sizes alone that their kernel is good at
    sparse_heads : of a rank, to which kernels pad in which each query picks its keys from a cache
    attention_mask : of sdpa: none, as the kernel knows windows and labels hide padding; padded: where sequences of a
        micro-batch are padded, or longer than a window; always
    windows : layers with a sliding window keep and read no more than it; else all tokens
    selective : what selective recomputation runs again, see `graph.selective`: attention (its core), alternate (every
        other matrix product and all that only moves memory, but not the attention core), or names of modules
    predicted : of a model of masked tokens, what the head works on: all tokens, or those that are masked
    gathered_inputs : with sequence parallelism, products that are split by columns keep their input whole
    mlp : whole; tiled: slices of the tokens one after the other, each once more in the backward
    adapters : modules beside the projections; in-place: in one function with projections that read the same, and with
        all of the MLP, which writes gradients over what it has read
    """

    norm: Literal["fused", "eager"] = "fused"
    rotary: Literal["fused", "eager", "in-attention"] = "fused"
    activation: Literal["fused", "native", "eager"] = "fused"
    attention: Literal["flash", "sdpa", "eager", "decode"] = "flash"
    loss: Loss = VOCABULARY_PARALLEL
    fused_qkv: bool = True
    fused_gate_up: bool = True
    repeats_kv: bool = False
    softmax: Literal["float32", "fused"] = "float32"
    dropout: bool = False
    expert_imbalance: float = 1.0
    expert_spread: float = 0.0
    selective: str | tuple[str, ...] = "attention"
    mlp: Literal["whole", "tiled"] = "whole"
    adapters: Literal["modules", "in-place"] = "modules"
    predicted: Literal["all", "masked"] = "all"
    gathered_inputs: bool = False
    residual: Literal["apart", "in-norm"] = "apart"
    cache: Literal["none", "paged", "concatenated", "in-attention"] = "none"
    mixer: Literal["fused", "copied"] = "fused"
    routing: Literal["eager", "fused"] = "eager"
    dispatch: Literal["per-expert", "per-place", "to-all"] = "per-expert"
    context: ContextKind = "all-gather"
    split_experts: Literal["gather-tokens", "gather-copies"] = "gather-tokens"
    experts: Literal["grouped", "products", "in-turn", "unsplit", "loop", "loop-all"] = "grouped"
    attention_mask: Literal["none", "padded", "always"] = "none"
    expert_tile: float = 0.0
    reserved_below: float = 0.0
    reserved_gated: bool = False
    sparse_heads: float = 0.0
    windows: bool = True

    @classmethod
    def chosen(cls, choice: object, **further: Any) -> Kernels:
        """The kernels that a stack or an engine names, field by field; `further` fields over them."""
        named = {one.name: getattr(choice, one.name) for one in fields(cls) if hasattr(choice, one.name)}
        return cls(**named | further)


@frozen
class Operator:
    """What all operators share. `saved_bytes` is what autograd keeps of one layer until its backward.

    `forward_temporary_bytes` is what lives while its forward runs, beside all that is kept by then.
    Of selective recomputation: `again` is the share of its forward that runs again, `dropped_bytes` what of the saved
    is not kept for it.
    """

    name: str
    module: str
    layers: float
    saved_bytes: Array
    again: float = field(default=0.0, kw_only=True)
    dropped_bytes: Array | float = field(default=0.0, kw_only=True)
    forward_temporary_bytes: Array | float = field(default=0.0, kw_only=True)


@frozen
class Matmul(Operator):
    """C[m,n] = A[m,k] B[k,n], `copies` times. Backward: dA (if `input_gradient`) and dB (if `weight_gradient`).

    `learns` is false where a stack computes the gradient of a frozen weight and throws it away. `grouped`: of experts
    whose rows differ in number, all at once. `apart`: every copy is a kernel of its own. `tiles`: so many slices of the
    rows one after the other, each of which runs its forward once more before its backward; None: all rows at once.
    `computed`: B is made from what learns in every forward, and its gradient goes on to that; `operand_bytes` of the
    saved ones are B itself, which only the gradient of A needs. `reserved`: true where rows of experts are reserved for
    the worst case, in a persistent kernel with a law of its own; None: nowhere.
    """

    m: Array
    n: Array
    k: Array
    copies: Array
    input_gradient: bool
    weight_gradient: bool
    learns: bool
    adapter: bool = False
    grouped: bool = False
    apart: bool = False
    tiles: Array | None = None
    computed: bool = False
    operand_bytes: Array | None = None
    reserved: Array | None = None

    @property
    def forward_flops(self) -> Array:
        return 2.0 * self.m * self.n * self.k * self.copies

    @property
    def backward_flops(self) -> Array:
        """FLOPs that the training needs, whatever the stack wastes."""
        return self.forward_flops * (float(self.input_gradient) + float(self.learns))


@frozen
class Attention(Operator):
    """softmax(Q K^T) V of `heads` heads over `pairs` query-key pairs per head and sequence.

    `statistics_bytes` is the part of `saved_bytes` that recomputing the core avoids: probabilities, log-sum-exp.
    `score_temporary_bytes`: per score, what the backward of unfused attention holds beside what is saved.
    `cached_element_bytes`: size of a key's or value's element where a cache keeps it in a format of its own.
    `values_in_keys`: the values are part of the keys and not read again.
    `loaded_keys`: keys that are read per sequence, fewer than `key` under a sliding window (None: all).
    `masked`: share of micro-batches whose kernel is given a mask and works on all pairs (None: none).
    `blocks`: the keys come in so many blocks of a ring one after the other, each in a kernel of its own (None: one).
    """

    batch: Array
    heads: Array
    kv_heads: Array
    query: Array
    key: Array
    pairs: Array
    qk_head_dim: int
    v_head_dim: int
    kernel: str
    statistics_bytes: Array
    score_temporary_bytes: float = 0.0
    cached_element_bytes: float | None = None
    loaded_keys: Array | None = None
    masked: Array | None = None
    values_in_keys: bool = False
    blocks: Array | None = None

    @property
    def forward_flops(self) -> Array:
        return 2.0 * self.batch * self.heads * self.pairs * (self.qk_head_dim + self.v_head_dim)

    @property
    def query_elements(self) -> Array:
        """Elements of Q and the output."""
        return self.batch * self.heads * self.query * (self.qk_head_dim + self.v_head_dim)

    @property
    def key_value_elements(self) -> Array:
        """Elements of K and V that are read."""
        keys = self.key if self.loaded_keys is None else self.loaded_keys
        width = self.qk_head_dim + (0 if self.values_in_keys else self.v_head_dim)
        return self.batch * self.kv_heads * keys * width

    def operand_bytes(self, element_bytes: float) -> Array:
        """Q, K, V and the output, read or written once; of a ring in each of its blocks [bytes]."""
        cached = element_bytes if self.cached_element_bytes is None else self.cached_element_bytes
        blocks = 1.0 if self.blocks is None else self.blocks
        return self.query_elements * element_bytes * blocks + self.key_value_elements * cached

    def resident_bytes(self, element_bytes: float) -> Array:
        """Of these what the rank holds at a time: of a ring the block at work and the one that comes [bytes]."""
        if self.blocks is None:
            return self.operand_bytes(element_bytes)
        held = np.minimum(2.0 / self.blocks, 1.0)
        return (self.query_elements + self.key_value_elements * held) * element_bytes


@frozen
class Scan(Operator):
    """Chunked scan of a state-space mixer: small products of activations (m, n, k, copies), and states that pass on.

    The backward computes both gradients of each product, and runs the forward once more inside its kernels.
    """

    products: tuple[tuple[Array, Array, Array, Array], ...]
    state_bytes: Array

    @property
    def forward_flops(self) -> Array:
        return np.asarray(sum(2.0 * m * n * k * copies for m, n, k, copies in self.products))


@frozen
class MemoryBound(Operator):
    """Kernels that only move memory; `temporary_bytes` live only while its backward runs. `adapter`: of an adapter."""

    forward_bytes: Array
    backward_bytes: Array
    forward_launches: float | Array
    backward_launches: float | Array
    temporary_bytes: Array
    adapter: bool = False


@frozen(eq=True)
class Picks:
    """How the tokens of a mixture of experts choose: `per_token` experts out of `chosen_groups` of `groups`."""

    per_token: int
    groups: int = 1
    chosen_groups: int = 1


@frozen
class Collective(Operator):
    """Exchange inside the layer. Message sizes in the convention of `laws.collectives`.

    `group` is tp, cp, ep, etp: ranks that split an expert, or dp: ranks that attend to sequences of their own and share
    experts.
    `picks` where a token goes once to each node and rank that holds experts which it picked; None: to every expert.
    """

    group: str
    forward: tuple[tuple[str, Array], ...]
    backward: tuple[tuple[str, Array], ...]
    picks: Picks | None = None


def stacked(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Several arrays along a new first axis, each broadcast to the shape.

        rows[i] = arrays[i]

    Parameters
    ----------
    arrays : each of a shape that broadcasts to the common one [-]
    shape : the common one [-]

    Returns
    -------
    ndarray of float, shape (array, ...) with the common one behind [-]

    Source: definition.
    """
    rows = np.empty((len(arrays), *shape))
    for row, array in enumerate(arrays):
        rows[row] = array
    return rows
