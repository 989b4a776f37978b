"""The shape of a decoder-only transformer: everything that decides parameters, FLOPs and bytes."""

from __future__ import annotations

from dataclasses import dataclass

GATED_ACTIVATIONS = frozenset({"swiglu", "geglu", "gegelu"})


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): low-rank queries, compressed KV cache."""

    query_rank: int | None
    kv_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class SparseIndexer:
    """Scorer of DeepSeek sparse attention (V3.2): a query attends to the `top_k` tokens it ranks highest."""

    heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True)
class Experts:
    """Mixture of experts: `per_token` of `count` experts of size `ffn`; all shared ones: `shared_ffn`."""

    count: int
    per_token: int
    ffn: int
    shared_ffn: int = 0
    shared_gate: bool = False
    first_dense_layers: int = 0
    every_n_layers: int = 1
    router_bias: bool = False
    expert_bias: bool = False


@dataclass(frozen=True)
class ModelShape:
    """One model. Sizes are counts of elements [-]; biases and norms say which vectors exist.

    `sliding_window` tokens apply to `windowed_layers` of the layers; the others attend to everything.
    `parallel_block`: attention and MLP read the same input and share one residual addition (GPT-J, Falcon).
    `kv_layers`: layers with keys and values of their own; the others reuse a neighbour's (None: all have).
    `fused`: projections that the reference implementation stores as one matrix (qkv, gate_up). `dropout`: where
    its published configuration drops (embedding, attention, hidden). `soft_caps`: where values pass a tanh (scores,
    logits). `narrow_softmax`: its eager attention has no float32 softmax. `wide_norm`: its norms apply their weight
    before they leave float32. `math_attention`: its keys and values are broadcast to the query heads, which sdpa's
    fused kernels refuse. Activation `gelu-new` is the tanh form that it writes out step by step.
    `layer_pattern` is room for hybrid models (one letter a layer); None means attention in every layer.
    `assumptions`: what the source of the shape left open, or what this shape cannot express, in words.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int
    tied_embeddings: bool
    norm: str
    norms_per_layer: int
    activation: str
    position: str
    rotary_fraction: float = 1.0
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: str | None = None
    learned_positions: int = 0
    embedding_size: int | None = None
    embedding_norm: bool = False
    final_norm: bool = True
    parallel_block: bool = False
    fused: tuple[str, ...] = ()
    dropout: tuple[str, ...] = ()
    soft_caps: tuple[str, ...] = ()
    narrow_softmax: bool = False
    wide_norm: bool = False
    math_attention: bool = False
    sliding_window: int | None = None
    windowed_layers: int = 0
    attention_sinks: bool = False
    kv_layers: int | None = None
    latent_attention: LatentAttention | None = None
    indexer: SparseIndexer | None = None
    experts: Experts | None = None
    mtp_layers: int = 0
    mtp_parameters: int = 0
    layer_pattern: str | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def gated(self) -> bool:
        """Whether the MLP has a gate matrix beside the up matrix (SwiGLU and its kin)."""
        return self.activation in GATED_ACTIVATIONS

    @property
    def qk_head_dim(self) -> int:
        mla = self.latent_attention
        return mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else self.head_dim

    @property
    def v_head_dim(self) -> int:
        return self.latent_attention.v_head_dim if self.latent_attention else self.head_dim

    @property
    def moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        if self.experts is None:
            return 0
        return (self.layers - self.experts.first_dense_layers) // self.experts.every_n_layers
