"""Model profiles: from a name, an alias or a path to the shape of a model.

Besides the profiles (`<name>.yaml`), a folder `model_profiles/` may hold `aliases.yaml` (other names of the
profiles).
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.drafter import mtp_parameters
from xe_sizer.graph.model import (
    ATTENDING,
    ENTRIES,
    RECURRING,
    CompressedAttention,
    Experts,
    Generator,
    GlobalAttention,
    LatentAttention,
    LayerEmbedding,
    ModelShape,
    NgramTables,
    Projector,
    SharedBlocks,
    SparseIndexer,
    SparseKind,
    StateSpace,
    StateType,
    VisionTower,
)
from xe_sizer.graph.vision import vision_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.convert import KeyPath, Locate, convert
from xe_sizer.profiles.yaml_reader import load_yaml, name_problems

# Annotations are no text here (`from __future__`): that of every key would be compiled in each start of the command.

# What a model profile may say: the schema of `model_profiles/<name>.yaml`.

Count = Annotated[int, Meta(gt=0, le=10**9)]
Layers = Annotated[int, Meta(gt=0, le=10**5)]
CountOrZero = Annotated[int, Meta(ge=0, le=10**9)]
ParameterTotal = Annotated[int, Meta(gt=0, le=10**17)]
Text = Annotated[str, Meta(min_length=1)]
ModelName = Annotated[
    str,
    Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$", extra={"must": "have no control characters"}),
]


class SlidingWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: Annotated[int, Meta(gt=0, le=10**9, description="tokens that a windowed layer looks back")]
    layers: Annotated[str, Meta(description="layers that have it: all, alternate, or a share such as 5-of-6")] = "all"


class LatentAttentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query_rank: Annotated[
        Count | None, Meta(description="width that queries are compressed to; default: they are not")
    ] = None
    kv_rank: Annotated[Count, Meta(description="width that keys and values are compressed to")]
    qk_nope_head_dim: Annotated[Count, Meta(description="width of a head of queries and keys without positions")]
    qk_rope_head_dim: Annotated[
        CountOrZero, Meta(description="width of a head of queries and keys with rotary positions")
    ]
    v_head_dim: Annotated[Count, Meta(description="width of a head of values")]
    joint_gate: Annotated[bool, Meta(description="one product yields queries and the output's gate")] = False


class CompressedAttentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query_rank: Annotated[Count, Meta(description="width that queries are compressed to")]
    output_groups: Annotated[Count, Meta(description="groups of heads whose outputs are projected apart")]
    output_rank: Annotated[Count, Meta(description="width that the output of a group is projected to")]
    sparse_tokens: Annotated[Count, Meta(description="tokens of an entry in layers with letters C and c")]
    dense_tokens: Annotated[Count, Meta(description="tokens of an entry in layers with letters H, T, t and i")]


class NgramTablesSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rows: Annotated[tuple[Count, ...], Meta(min_length=1, description="rows of the table of each layer that has one")]
    width: Annotated[Count, Meta(description="width of a row")]
    lookups: Annotated[Count, Meta(description="rows that a token reads of each table")]
    conv_kernel: Annotated[CountOrZero, Meta(description="width of the convolution behind the gate")] = 0
    gated: Annotated[bool, Meta(description="a gate adds what is read to layers; else the embedding takes it")] = True


class GlobalAttentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kv_heads: Annotated[Count, Meta(description="heads of keys and values")]
    head_dim: Annotated[Count, Meta(description="width of a head")]
    rotary_fraction: Annotated[float, Meta(gt=0, le=1, description="share of a head that positions rotate")] = 1.0
    values_are_keys: Annotated[bool, Meta(description="one projection yields keys and values")] = False
    heads: Annotated[Count | None, Meta(description="heads of queries; default: those of windowed layers")] = None
    latent: Annotated[
        LatentAttentionSection | None, Meta(description="its latent attention; default: that of windowed layers")
    ] = None


class IndexerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    heads: Annotated[Count, Meta(description="heads that score tokens")]
    head_dim: Annotated[Count, Meta(description="width of such a head")]
    top_k: Annotated[Count, Meta(description="tokens that a query attends to")]
    kind: Annotated[
        SparseKind,
        Meta(
            description="sparse attention of DeepSeek: heads are weighted to one ranking; of MiniMax: a ranking for "
            "each group of query heads; InfLLM v2: queries of the attention score means of its keys; of Qwen: heads "
            "are summed to one ranking"
        ),
    ] = "dsa"
    block_tokens: Annotated[Count, Meta(description="tokens that are picked together")] = 1
    key_tokens: Annotated[Count, Meta(description="tokens that one scored key stands for")] = 1
    dense_tokens: Annotated[CountOrZero, Meta(description="sequences of no more attend to all tokens")] = 0


class ExpertsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(gt=0, le=10**6, description="routed experts of a layer")]
    per_token: Annotated[int, Meta(gt=0, le=10**6, description="routed experts that a token visits")]
    ffn: Annotated[int, Meta(gt=0, le=10**9, description="width of one expert")]
    shared_ffn: Annotated[int, Meta(ge=0, le=10**9, description="width of all shared experts together")] = 0
    shared_gate: Annotated[bool, Meta(description="shared experts have a gate of their own")] = False
    first_dense_layers: Annotated[
        CountOrZero, Meta(description="layers with a dense MLP before the first with experts")
    ] = 0
    every_n_layers: Annotated[Count, Meta(description="every how many layers have experts")] = 1
    router_bias: Annotated[bool, Meta(description="the router has a bias")] = False
    expert_bias: Annotated[bool, Meta(description="experts have biases")] = False
    own_norms: Annotated[bool, Meta(description="norms around routed and around shared experts")] = False
    groups: Annotated[Count, Meta(description="groups that routed experts are divided into, side by side")] = 1
    groups_per_token: Annotated[Count, Meta(description="groups that a token's experts may lie in")] = 1
    loop: Annotated[
        Literal["modules", "sliced", "split"],
        Meta(description="how the reference implementation of transformers computes one expert after the other"),
    ] = "modules"
    latent: Annotated[Count | None, Meta(description="narrower width that routed experts work in; default: hidden")] = (
        None
    )


class LayerEmbeddingSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A second embedding of every token, with a row for each layer (Gemma 4)."""

    size: Annotated[Count, Meta(description="width of the row of one layer")]
    vocab: Annotated[Count, Meta(description="rows of the table")]


class StateSpaceSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Annotated[
        Literal[
            "mamba-1", "mamba-2", "gated-delta-net", "kimi-delta-attention", "lightning-attention", "short-convolution"
        ],
        Meta(description="the recurrence"),
    ]
    inner: Annotated[int, Meta(gt=0, le=10**9, description="channels that are mixed")]
    state: Annotated[int, Meta(ge=0, le=10**6, description="rows of each head's state; a short convolution has none")]
    conv_kernel: Annotated[Count, Meta(description="width of the convolution before it")] = 4
    heads: Annotated[CountOrZero, Meta(description="heads of the state")] = 0
    head_dim: Annotated[CountOrZero, Meta(description="channels of a head")] = 0
    groups: Annotated[int, Meta(gt=0, le=10**6, description="heads of a group share projections (mamba-2)")] = 1
    gate_norm: Annotated[bool, Meta(description="a norm behind the gate, of all channels (mamba-2)")] = True
    dt_rank: Annotated[int, Meta(ge=0, le=10**9, description="rank of the step size (mamba-1)")] = 0
    inner_norms: Annotated[bool, Meta(description="norms on step size, input and output (Jamba)")] = False
    key_heads: Annotated[int, Meta(ge=0, le=10**6, description="heads of queries and keys (delta nets)")] = 0
    key_head_dim: Annotated[CountOrZero, Meta(description="width of a head of queries and keys (delta nets)")] = 0
    input_parts: Annotated[
        int, Meta(ge=1, le=2, description="products that the input is projected in, and decay and step (delta nets)")
    ] = 1
    decay_rank: Annotated[CountOrZero, Meta(description="width that the decay passes (Kimi delta attention)")] = 0
    gate_rank: Annotated[CountOrZero, Meta(description="width that the gate passes (Kimi delta attention)")] = 0
    state_dtype: Annotated[
        StateType | None,
        Meta(description="that the configuration asks to keep states in (mamba_ssm_dtype, mamba_ssm_cache_dtype)"),
    ] = None


class SharedBlocksSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Layers with attention, and MLPs, that take turns at fewer sets of weights (ALBERT, Zamba2)."""

    sets: Annotated[Count, Meta(description="sets of weights that layers of a kind take turns at")]
    mlp_rank: Annotated[CountOrZero, Meta(description="width that each layer's own part of gate and up passes")] = 0
    attention_rank: Annotated[
        CountOrZero, Meta(description="width that each layer's own part of queries, keys and values passes")
    ] = 0
    projection: Annotated[bool, Meta(description="each MLP has a product of its own behind it")] = False
    tied: Annotated[bool, Meta(description="each layer has a module of its own, and so adapters of its own")] = False


class ProjectorSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    widths: Annotated[tuple[Count, ...], Meta(min_length=2, description="from the merged patches to `hidden`")]
    bias: Annotated[bool, Meta(description="its products have biases")] = False
    norm: Annotated[Literal["layernorm", "rmsnorm"] | None, Meta(description="norm before the first product")] = None
    queries: Annotated[
        CountOrZero, Meta(description="that read a piece of an image and are its tokens, in place of products")
    ] = 0
    query_positions: Annotated[bool, Meta(description="queries have learned positions")] = False
    over: Annotated[Literal["patch", "merged"], Meta(description="width that the norm has")] = "patch"


class VisionWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    patches: Annotated[Count, Meta(description="patches of a window")]
    layers: Annotated[Count, Meta(description="layers that have windows")]


class VisionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The encoder of images, which is no part of `parameters`."""

    layers: Annotated[Layers, Meta(description="layers of the encoder")]
    hidden: Annotated[Count, Meta(description="width of a patch")]
    heads: Annotated[Count, Meta(description="attention heads")]
    ffn: Annotated[Count, Meta(description="width of the MLP")]
    norm: Annotated[Literal["rmsnorm", "layernorm"], Meta(description="kind of norm")]
    activation: Annotated[Literal["swiglu", "geglu", "gelu", "gelu-quick"], Meta(description="activation of the MLP")]
    biases: Annotated[tuple[Literal["qkv", "output", "mlp"], ...], Meta(description="products with a bias")] = ()
    fused: Annotated[
        tuple[Literal["qkv", "gate_up"], ...], Meta(description="projections stored as one matrix in transformers")
    ] = ()
    learned_positions: Annotated[CountOrZero, Meta(description="rows of the position table; 0: rotary alone")] = 0
    rotary: Annotated[bool, Meta(description="positions rotate queries and keys")] = False
    qk_norm: Annotated[
        Literal["perhead", "full"] | None, Meta(description="norm on queries and keys, of each head or of all")
    ] = None
    first_norm: Annotated[bool, Meta(description="a norm before the first layer")] = False
    final_norm: Annotated[bool, Meta(description="a norm after the last layer")] = False
    window: Annotated[VisionWindow | None, Meta(description="attention within windows")] = None
    projector: Annotated[ProjectorSection, Meta(description="from patches to tokens of the language model")]
    patch: Annotated[Count, Meta(description="side of a patch, in pixels")]
    merge: Annotated[Count, Meta(description="patches along a side that become one token")] = 1
    frames: Annotated[Count, Meta(description="frames that a patch spans")] = 1
    patch_bias: Annotated[bool, Meta(description="the product that embeds a patch has a bias")] = False
    class_token: Annotated[bool, Meta(description="one token beside the patches")] = False
    layer_scale: Annotated[bool, Meta(description="outputs of blocks are scaled")] = False
    further_projectors: Annotated[CountOrZero, Meta(description="projectors of other layers (deepstack)")] = 0
    resize: Annotated[
        Literal["native", "square", "closest", "canvas", "slices", "longest"],
        Meta(description="the image's own shape, one square, or tiles (nearest shape, least change, or by area)"),
    ]
    side: Annotated[CountOrZero, Meta(description="of a square or a tile, in pixels")] = 0
    max_tiles: Annotated[Count, Meta(description="most tiles that an image is cut into")] = 1
    min_pixels: Annotated[CountOrZero, Meta(description="of a native image, which is enlarged to them")] = 0
    max_pixels: Annotated[CountOrZero, Meta(description="of a native image")] = 0
    max_side: Annotated[CountOrZero, Meta(description="longest side of a native image, in pixels")] = 0
    row_tokens: Annotated[CountOrZero, Meta(description="tokens behind each row of a native image, or each tile")] = 0
    image_tokens: Annotated[CountOrZero, Meta(description="tokens around an image")] = 0
    parameters: Annotated[ParameterTotal, Meta(description="of the encoder and its projectors")]


class Prediction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    layers: Annotated[Count, Meta(description="layers that predict further tokens")]
    parameters: Annotated[
        ParameterTotal | None, Meta(description="of these layers, without the embedding and head that they share")
    ] = None


class Parameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    total: Annotated[ParameterTotal, Meta(description="all parameters")]
    active: Annotated[int, Meta(gt=0, le=10**17, description="used by one token, with embeddings")]


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Annotated[Text, Meta(description="document that the shape was read from")]
    url: Annotated[str | None, Meta(description="its address")] = None
    parameters: Annotated[str | None, Meta(description="what the counts were checked against")] = None
    read_on: Annotated[str | None, Meta(description="date")] = None


class GeneratorSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A narrower encoder that is pre-trained beside the model and replaces tokens, which is no part of `parameters`."""

    layers: Annotated[Layers, Meta(description="layers")]
    hidden: Annotated[Count, Meta(description="width; rows of the embedding are as wide as the model's")]
    heads: Annotated[Count, Meta(description="attention heads")]
    ffn: Annotated[Count, Meta(description="width of the MLP")]


LETTERS = (
    "a letter a layer: * attention, G global attention, S attention to what another layer picked, D attention to all "
    "tokens beside an indexer, C sparse and H dense compressed attention, T with picked entries of dense tokens, c and "
    "t with entries and picks of another layer, i with its entries alone, M state-space, P attention beside "
    "state-space, - dense MLP, E experts"
)
Pattern = Annotated[str, Meta(pattern=r"^[*GSDCHTctiMPE-]+$", description=LETTERS, extra={"must": f"have {LETTERS}"})]


class ModelKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a model, and what is said of it. Sizes are numbers of elements."""

    released: Annotated[str | None, Meta(description="date of release")] = None
    hugging_face: Annotated[str | None, Meta(description="owner/repository of the weights")] = None
    layers: Annotated[Layers, Meta(description="layers")]
    hidden: Annotated[int, Meta(gt=0, le=10**9, description="width of the residual stream")]
    heads: Annotated[Count | None, Meta(description="query heads; may be left out without attention")] = None
    kv_heads: Annotated[Count | None, Meta(description="default: as many as heads")] = None
    head_dim: Annotated[Count | None, Meta(description="default: hidden / heads")] = None
    ffn: Annotated[Count | None, Meta(description="width of a dense MLP; may be left out without one")] = None
    vocab: Annotated[int, Meta(gt=0, le=10**9, description="rows of the token embedding")]
    max_positions: Annotated[int, Meta(gt=0, le=10**9, description="longest sequence, in tokens")]
    instruct_positions: Annotated[
        Annotated[int, Meta(gt=0, le=10**9)] | None,
        Meta(description="the same of the -Instruct weights, where it is another"),
    ] = None
    tied_embeddings: Annotated[bool, Meta(description="the head uses the weight of the token embedding")]
    norm: Annotated[
        Literal["rmsnorm", "rmsnorm-t5", "layernorm", "layernorm-nobias", "layernorm-nonparam", "layernorm1p"],
        Meta(description="kind of norm"),
    ]
    norms_per_layer: Annotated[
        Literal[1, 2, 4], Meta(description="1: attention and MLP are layers of their own; 4: also behind each block")
    ] = 2
    embedding_norm: Annotated[bool, Meta(description="a norm behind the token embedding")] = False
    final_norm: Annotated[bool, Meta(description="a norm before the head")] = True
    activation: Annotated[
        Literal["swiglu", "swiglu-clamped", "geglu", "gegelu", "geglu-new", "gelu", "gelu-new", "relu", "relu2"],
        Meta(description="activation of the MLP"),
    ]
    biases: Annotated[
        tuple[Literal["qkv", "output", "mlp", "head"], ...], Meta(description="products with a bias")
    ] = ()
    position: Annotated[
        Literal["rope", "learned", "alibi", "relative", "none"], Meta(description="how positions are told apart")
    ]
    rotary_fraction: Annotated[float, Meta(gt=0, le=1, description="share of a head that positions rotate")] = 1.0
    rotary_base: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="base of the wavelengths of rotary positions; for files of other tools"),
    ] = None
    rotary_scaling: Annotated[
        Annotated[float, Meta(gt=1)] | None,
        Meta(description="factor by which Llama 3.1 and later stretch long wavelengths"),
    ] = None
    learned_positions: Annotated[int, Meta(ge=0, le=10**9, description="rows of the position table")] = 0
    embedding_size: Annotated[Count | None, Meta(description="default: hidden")] = None
    parallel_block: Annotated[bool, Meta(description="attention and MLP read the same input")] = False
    fused: Annotated[
        tuple[Literal["qkv", "gate_up"], ...], Meta(description="projections stored as one matrix in transformers")
    ] = ()
    dropout: Annotated[
        tuple[Literal["embedding", "attention", "hidden", "mlp"], ...],
        Meta(description="where the published model drops"),
    ] = ()
    soft_caps: Annotated[tuple[Literal["scores", "logits"], ...], Meta(description="values that pass a tanh")] = ()
    held_scores: Annotated[
        tuple[Literal["unmasked", "returned"], ...],
        Meta(description="scores that eager attention holds beside the masked ones, or into the next layer"),
    ] = ()
    float32_weights: Annotated[
        tuple[Literal["down"], ...],
        Meta(description="weights of layers that stay float32 where the others are held in few bits (T5)"),
    ] = ()
    narrow_softmax: Annotated[bool, Meta(description="eager attention without a float32 softmax")] = False
    fused_norms: Annotated[
        bool, Meta(description="its own code has norms in one kernel with the sum before them (mamba-ssm)")
    ] = False
    wide_norm: Annotated[bool, Meta(description="norms apply their weight before they leave float32")] = False
    math_attention: Annotated[bool, Meta(description="sdpa falls back to its unfused kernels")] = False
    checkpoint_format: Annotated[
        str | None, Meta(description="number format of the published weights; default: 16 bit")
    ] = None
    fp8_checkpoint: Annotated[
        str | None, Meta(description="number format of the weights published in 8 bit beside them; default: fp8")
    ] = None
    int8_checkpoint: Annotated[
        str | None, Meta(description="number format of the weights published in 8-bit integers; default: int8")
    ] = None
    qk_norm: Annotated[
        Literal["perhead", "full"] | None, Meta(description="norm on queries and keys, of each head or of all")
    ] = None
    sliding_window: Annotated[SlidingWindow | None, Meta(description="attention that looks back a window only")] = None
    attention_sinks: Annotated[bool, Meta(description="heads with a learned sink")] = False
    kv_layers: Annotated[Count | None, Meta(description="layers with keys and values; default: all")] = None
    borrowing_layers: Annotated[
        CountOrZero, Meta(description="last layers, which attend to keys and values of a layer before them")
    ] = 0
    borrowing_ffn: Annotated[Count | None, Meta(description="width of their MLP; default: that of the others")] = None
    layer_embedding: Annotated[
        LayerEmbeddingSection | None, Meta(description="a row of each token for every layer (Gemma 4)")
    ] = None
    global_attention: Annotated[
        GlobalAttentionSection | None, Meta(description="of the layers with letter G, where it differs")
    ] = None
    latent_attention: Annotated[
        LatentAttentionSection | None, Meta(description="keys and values from a compressed latent (MLA)")
    ] = None
    indexer: Annotated[IndexerSection | None, Meta(description="chooses the tokens that are attended to")] = None
    compressed_attention: Annotated[
        CompressedAttentionSection | None, Meta(description="attention to a window and to entries of many tokens")
    ] = None
    residual_streams: Annotated[
        int, Meta(ge=1, le=64, description="hidden states that layers carry side by side (hyper-connections)")
    ] = 1
    stream_rank: Annotated[
        CountOrZero, Meta(description="rank of the product that mixes the residual streams; 0: another way")
    ] = 0
    ngram_tables: Annotated[NgramTablesSection | None, Meta(description="tables of hashed n-grams (Engram)")] = None
    experts: Annotated[ExpertsSection | None, Meta(description="mixture of experts")] = None
    multi_token_prediction: Annotated[Prediction | None, Meta(description="layers that predict further tokens")] = None
    layer_pattern: Annotated[Pattern | None, Meta(description=LETTERS)] = None
    state_space: Annotated[StateSpaceSection | None, Meta(description="layers without attention")] = None
    shared_blocks: Annotated[
        SharedBlocksSection | None, Meta(description="layers that have their weights in common")
    ] = None
    doubled_input: Annotated[
        bool, Meta(description="attention reads the token's embedding beside the state (Zamba2, EAGLE-3)")
    ] = False
    output_gate: Annotated[bool, Meta(description="attention's output is gated by half of the query projection")] = (
        False
    )
    head_vocab: Annotated[Count | None, Meta(description="tokens that the head tells apart; default: vocab")] = None
    vision: Annotated[VisionSection | None, Meta(description="encoder of images")] = None
    bidirectional: Annotated[bool, Meta(description="every token attends to every other, as in encoders")] = False
    encoder_layers: Annotated[
        CountOrZero, Meta(description="of the layers, those of the encoder of an encoder-decoder")
    ] = 0
    post_norm: Annotated[bool, Meta(description="norms behind the sums, not before the blocks")] = False
    token_types: Annotated[CountOrZero, Meta(description="rows of the table of segments")] = 0
    relative_buckets: Annotated[CountOrZero, Meta(description="rows of the table of biases added to scores (T5)")] = 0
    disentangled_positions: Annotated[
        CountOrZero, Meta(description="rows of the table that queries and keys are compared with (DeBERTa)")
    ] = 0
    bare_first_layer: Annotated[bool, Meta(description="no norm before the first attention")] = False
    narrow_loss: Annotated[bool, Meta(description="the loss is computed on logits as they are (BERT, T5)")] = False
    whole_targets: Annotated[
        bool, Meta(description="pre-training answers with the whole text (BART), not its missing spans (T5)")
    ] = False
    head_transform: Annotated[
        Literal["biased", "unbiased"] | None, Meta(description="product, activation and norm before the head (BERT)")
    ] = None
    generator: Annotated[
        GeneratorSection | None, Meta(description="what replaces tokens in its pre-training (ELECTRA)")
    ] = None
    assumed: Annotated[
        tuple[str, ...], Meta(description="what the source leaves open or this file cannot say; answers repeat it")
    ] = ()
    parameters_note: Annotated[str | None, Meta(description="why the shape counts differently")] = None
    notes: Annotated[str | None, Meta(description="remarks")] = None


class ModelProfile(ModelKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of `model_profiles/`."""

    name: Text
    family: Text
    parameters: Parameters
    source: Source


class InlineModel(ModelKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model whose shape a scenario writes out, with the keys of a model profile."""

    name: Annotated[ModelName | None, Meta(description="what reports call it")] = None
    family: Annotated[Text, Meta(description="models of one family are compared")] = "custom"
    parameters: Annotated[Parameters | None, Meta(description="stated counts, which the shape must come to")] = None
    source: Annotated[Source | None, Meta(description="where the shape was read")] = None


# The section `vision` of a model profile: the encoder of images that the operator graph is built from.


def tower_of(section: VisionSection) -> VisionTower:
    """The encoder with nothing left open: its layers as a model without a vocabulary, and how images are cut."""
    same = set(VisionTower.__struct_fields__) - {"encoder", "projector"}
    values: dict[str, Any] = {key: value for key, value in msgspec.structs.asdict(section).items() if key in same}
    projector = Projector(**msgspec.structs.asdict(section.projector))
    return VisionTower(encoder=_encoder(section), projector=projector, **values)


def _encoder(section: VisionSection) -> ModelShape:
    window = section.window
    return ModelShape(
        name="vision",
        family="vision",
        layers=section.layers,
        hidden=section.hidden,
        heads=section.heads,
        kv_heads=section.heads,
        head_dim=section.hidden // section.heads,
        ffn=section.ffn,
        vocab=0,
        max_positions=0,
        tied_embeddings=True,
        norm=section.norm,
        norms_per_layer=2,
        activation=section.activation,
        position="rope" if section.rotary else "learned",
        qkv_bias="qkv" in section.biases,
        output_bias="output" in section.biases,
        mlp_bias="mlp" in section.biases,
        qk_norm=section.qk_norm,
        fused=section.fused,
        learned_positions=section.learned_positions,
        embedding_norm=section.first_norm,
        final_norm=section.final_norm,
        sliding_window=window.patches if window else None,
        windowed_layers=window.layers if window else 0,
        bidirectional=True,
    )


def vision_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """What cannot be true together of the encoder of images, each with the key to point at."""
    vision = profile.vision
    if vision is None:
        return
    if vision.hidden % vision.heads:
        text = f"'hidden' ({vision.hidden}) is not a multiple of 'heads' ({vision.heads})"
        yield ("vision", "heads"), text
    if vision.projector.widths[-1] != profile.hidden:
        yield ("vision", "projector"), f"the last width must be the 'hidden' of the model ({profile.hidden})"
    native = vision.resize == "native"
    if native and not vision.max_pixels and not vision.max_side:
        yield ("vision", "resize"), "native images need 'max_pixels' or 'max_side'"
    if not native and not vision.side:
        yield ("vision", "resize"), "squares and tiles need 'side'"
    counted = vision_parameters(tower_of(vision)) if vision.hidden % vision.heads == 0 else vision.parameters
    if counted != vision.parameters:
        text = f"the encoder has {counted:,} parameters, not {vision.parameters:,}"
        yield ("vision", "parameters"), text


COUNT_TOLERANCE = 0.005
# Folders that hold the checkpoints of whatever model: of trainers, of converters, and of download caches.
_ANY_MODELS = re.compile(
    r"(checkpoint|ckpt|iter|global_?step|step|epoch)s?([-_]?\d+)*|final|last|best|latest|original|merged|models?|weights"
    r"|hf|huggingface|hf_model|safetensors|snapshots|[0-9a-f]{40}|actor|critic|policy|output|mcore|torch_dist|dist_ckpt"
    r"|release|main",
    re.IGNORECASE,
)
_SHARE = re.compile(r"([0-9]{1,3})-of-([0-9]{1,3})")


def load_model_profile(path: Path, *, instructed: bool = False) -> ModelShape:
    """The shape that a profile describes; its parameter counts are recomputed from the shape.

    instructed : whether the weights are those tuned to follow instructions, whose longest sequence may be another

    Raises
    ------
    InputError    unreadable or wrong profile (every problem), or counts that are off by more than 0.5 %
                  without a `parameters_note` that says why
    """
    document = load_yaml(path)
    profile = convert(document.value, ModelProfile, document.locate)
    problems = [Problem(text, document.locate(key)) for key, text in _contradictions(profile)]
    problems += name_problems(profile.name, document)
    if instructed and profile.instruct_positions:
        profile = msgspec.structs.replace(profile, max_positions=profile.instruct_positions)
    shape = None if problems else shape_of(profile)
    if shape and not profile.parameters_note:
        problems = list(_wrong_counts(profile.parameters, shape, document.locate))
    if shape and profile.multi_token_prediction:
        problems += _wrong_mtp_count(profile.multi_token_prediction, shape, document.locate)
    if problems or not shape:
        raise InputError(problems)
    return shape


def inline_model(model: InlineModel, locate: Locate) -> ModelShape:
    """The shape that a scenario writes out; without a name it is called by its size.

    locate : says where a key of the model stands

    Raises
    ------
    InputError    figures that cannot be true together; stated counts that are off by more than 0.5 % without a
                  `parameters_note` that says why
    """
    problems = [Problem(text, locate(key)) for key, text in _contradictions(model)]
    shape = None if problems else _inline_shape(model)
    if shape and model.parameters and not model.parameters_note:
        problems = list(_wrong_counts(model.parameters, shape, locate))
    if shape and model.multi_token_prediction:
        problems += _wrong_mtp_count(model.multi_token_prediction, shape, locate)
    if problems or not shape:
        raise InputError(problems)
    return shape


@lru_cache(maxsize=64)
def _inline_shape(model: InlineModel) -> ModelShape:
    """The same object for the same keys: what is computed of a model is kept with it."""
    name = model.name or f"custom ({model.layers} layers, hidden {model.hidden})"
    return shape_of(msgspec.structs.replace(model, name=name))


def shape_of(profile: ModelKeys) -> ModelShape:
    """A profile with nothing left open: the model that the operator graph is built from."""
    same = set(ModelShape.__struct_fields__)
    stated = msgspec.structs.asdict(profile)
    values: dict[str, Any] = {key: value for key, value in stated.items() if key in same}
    window = profile.sliding_window
    values |= {
        "heads": _heads(profile),
        "kv_heads": profile.kv_heads or _heads(profile),
        "ffn": profile.ffn or 0,
        "head_dim": _head_dim(profile),
        "qkv_bias": "qkv" in profile.biases,
        "output_bias": "output" in profile.biases,
        "mlp_bias": "mlp" in profile.biases,
        "head_bias": "head" in profile.biases,
        "sliding_window": window.tokens if window else None,
        "windowed_layers": windowed_layers(window.layers, profile.layers) if window else 0,
        "global_attention": _global_attention(profile.global_attention),
        "latent_attention": _section(profile.latent_attention, LatentAttention),
        "indexer": _section(profile.indexer, SparseIndexer),
        "compressed_attention": _section(profile.compressed_attention, CompressedAttention),
        "ngram_tables": _section(profile.ngram_tables, NgramTables),
        "experts": _section(profile.experts, Experts),
        "state_space": _section(profile.state_space, StateSpace),
        "shared_blocks": _section(profile.shared_blocks, SharedBlocks),
        "layer_embedding": _section(profile.layer_embedding, LayerEmbedding),
        "generator": _section(profile.generator, Generator),
        "mtp_layers": profile.multi_token_prediction.layers if profile.multi_token_prediction else 0,
        "vision": tower_of(profile.vision) if profile.vision else None,
        "assumptions": (*profile.assumed, *((profile.parameters_note,) if profile.parameters_note else ())),
    }
    return ModelShape(**values)


def windowed_layers(pattern: str, layers: int) -> int:
    """Layers that look back a window only. The last layer of each period of "5-of-6" sees everything."""
    if pattern == "all":
        return layers
    windowed, period = (1, 2) if pattern == "alternate" else map(int, pattern.split("-of-"))
    return layers - layers // period * (period - windowed)


def _section(section: msgspec.Struct | None, shape_type: Any) -> Any:
    return shape_type(**msgspec.structs.asdict(section)) if section else None


def _global_attention(section: GlobalAttentionSection | None) -> GlobalAttention | None:
    stated = msgspec.structs.asdict(section) if section else {}
    return GlobalAttention(**stated | {"latent": _section(stated["latent"], LatentAttention)}) if section else None


def _head_dim(profile: ModelKeys) -> int:
    latent = profile.latent_attention
    if latent:
        return latent.qk_nope_head_dim + latent.qk_rope_head_dim
    return profile.head_dim or profile.hidden // _heads(profile)


def _heads(profile: ModelKeys) -> int:
    """Attention heads; without attention what tensor parallelism splits instead, heads or channels of the state."""
    space = profile.state_space
    return profile.heads or (space.heads or space.inner if space else 1)


def _contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """Figures of a profile that cannot be true together, each with the key to point at."""
    heads, window = _heads(profile), profile.sliding_window
    if profile.kv_heads and heads % profile.kv_heads:
        yield ("kv_heads",), f"'heads' ({heads}) must be a multiple of 'kv_heads' ({profile.kv_heads})"
    if not profile.head_dim and not profile.latent_attention and profile.heads and profile.hidden % heads:
        text = f"'hidden' ({profile.hidden}) is not a multiple of 'heads' ({heads}); give 'head_dim'"
        yield ("heads",), text
    if profile.kv_layers and profile.kv_layers > profile.layers:
        yield ("kv_layers",), f"'kv_layers' ({profile.kv_layers}) is more than 'layers' ({profile.layers})"
    if profile.borrowing_layers >= profile.layers:
        yield ("borrowing_layers",), f"'borrowing_layers' must leave some of the {profile.layers} layers their own keys"
    if profile.position == "learned" and not profile.learned_positions:
        yield ("position",), "learned positions need 'learned_positions', the rows of their table"
    if profile.stream_rank and profile.residual_streams < 2:
        yield ("stream_rank",), "a 'stream_rank' needs more than one of 'residual_streams'"
    share = _SHARE.fullmatch(window.layers) if window else None
    valid = share is not None and 0 < int(share[1]) < int(share[2])
    if window and window.layers not in ("all", "alternate") and not valid:
        text = f"'layers' must be all, alternate or a share such as 5-of-6, not '{window.layers}'"
        yield ("sliding_window", "layers"), text
    yield from _expert_contradictions(profile)
    yield from vision_contradictions(profile)
    yield from _pattern_contradictions(profile)
    yield from _half_contradictions(profile)


def _half_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """What cannot be true together of an encoder, and of the halves of an encoder-decoder."""
    if profile.encoder_layers >= profile.layers:
        text = (
            f"'encoder_layers' ({profile.encoder_layers}) must leave some of the {profile.layers} layers to the decoder"
        )
        yield ("encoder_layers",), text
    if profile.encoder_layers and (profile.bidirectional or profile.layer_pattern or profile.experts):
        yield ("encoder_layers",), "an encoder-decoder has neither 'bidirectional', 'layer_pattern' nor 'experts' here"
    if profile.generator and not profile.bidirectional:
        yield ("generator",), "a 'generator' replaces tokens for an encoder, which is 'bidirectional'"
    if profile.generator and profile.generator.hidden % profile.generator.heads:
        text = f"'hidden' ({profile.generator.hidden}) is not a multiple of 'heads' ({profile.generator.heads})"
        yield ("generator", "heads"), text
    if profile.position == "relative" and not (profile.relative_buckets or profile.disentangled_positions):
        yield (
            ("position",),
            "relative positions need 'relative_buckets' or 'disentangled_positions', rows of their table",
        )


def _expert_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """A token picks no more experts and groups than there are, in layers that there are."""
    experts = profile.experts
    if experts is None:
        return
    if experts.per_token > experts.count:
        text = f"'per_token' ({experts.per_token}) is more than the 'count' of experts ({experts.count})"
        yield ("experts", "per_token"), text
    if experts.groups_per_token > experts.groups:
        text = f"'groups_per_token' ({experts.groups_per_token}) is more than the 'groups' ({experts.groups})"
        yield ("experts", "groups_per_token"), text
    if experts.first_dense_layers > profile.layers:
        text = f"'first_dense_layers' ({experts.first_dense_layers}) is more than 'layers' ({profile.layers})"
        yield ("experts", "first_dense_layers"), text


def _pattern_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """What a layer pattern, or attention with a dense MLP in every layer, needs besides."""
    pattern, single = profile.layer_pattern, profile.norms_per_layer == 1
    letters = set(pattern or "*")
    if pattern and len(pattern) != profile.layers:
        yield ("layer_pattern",), f"'layer_pattern' has {len(pattern)} letters for {profile.layers} layers"
    if letters & {"-", "E"} and not single:
        yield ("layer_pattern",), "layers of a single block (- and E) need 'norms_per_layer: 1'"
    if letters & RECURRING and not profile.state_space:
        yield ("layer_pattern",), f"layers with letter {min(letters & RECURRING)} need a 'state_space' section"
    if ("G" in letters) != (profile.global_attention is not None):
        yield ("layer_pattern",), "layers with letter G and a 'global_attention' section need each other"
    if "G" in letters and not profile.sliding_window:
        yield ("layer_pattern",), "beside layers with letter G all others need a 'sliding_window'"
    yield from _compressed_contradictions(profile, letters)
    yield from _indexer_contradictions(profile)
    if letters & ATTENDING and not profile.heads:
        yield ("layers",), "layers with attention need 'heads'"
    if "E" in letters and not profile.experts:
        yield ("layer_pattern",), "layers with letter E need an 'experts' section"
    dense = "-" in letters if pattern and single else not profile.experts or profile.experts.first_dense_layers > 0
    if dense and not profile.ffn:
        yield ("layers",), "layers with a dense MLP need 'ffn'"


def _compressed_contradictions(profile: ModelKeys, letters: set[str]) -> Iterator[tuple[KeyPath, str]]:
    """What layers with compressed attention need besides."""
    if bool(letters & ENTRIES.keys()) != (profile.compressed_attention is not None):
        named = f"one of the letters {', '.join(ENTRIES)}"
        yield ("layer_pattern",), f"layers with {named} and a 'compressed_attention' section need each other"
    for letter, entries in ENTRIES.items():
        before, _, _ = (profile.layer_pattern or "").partition("C" if entries.sparse else "T")
        if entries.lent and letter in before:
            yield ("layer_pattern",), f"layers with letter {letter} need one before them that lends them entries"
    if profile.compressed_attention and not profile.sliding_window:
        yield ("compressed_attention",), "'compressed_attention' needs a 'sliding_window'"
    for letter in sorted(letters & (ENTRIES.keys() - {"H"} | {"D", "S"})):
        if not profile.indexer:
            yield ("layer_pattern",), f"layers with letter {letter} need an 'indexer'"


def _indexer_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """What an indexer says must fit its blocks, and the attention that it picks tokens for."""
    indexer = profile.indexer
    if indexer is None:
        return
    for part, whole in (("block_tokens", "top_k"), ("key_tokens", "block_tokens")):
        if getattr(indexer, whole) % getattr(indexer, part):
            figures = f"'{whole}' ({getattr(indexer, whole)}) must be a multiple of '{part}' ({getattr(indexer, part)})"
            yield ("indexer", whole), figures
    if indexer.kind == "dsa":
        return
    if profile.compressed_attention or profile.latent_attention:
        yield ("indexer", "kind"), f"'{indexer.kind}' does not pick from a compressed cache; 'dsa' does"
    if indexer.kind == "infllm-v2" and (indexer.heads, indexer.head_dim) != (_heads(profile), _head_dim(profile)):
        yield ("indexer", "heads"), "queries of the attention score: 'heads' and 'head_dim' are those of the model"


def _wrong_counts(stated_counts: Parameters, shape: ModelShape, locate: Locate) -> Iterator[Problem]:
    counted = count_parameters(shape)
    for key in ("total", "active"):
        stated, found = getattr(stated_counts, key), getattr(counted, key)
        if abs(found - stated) > COUNT_TOLERANCE * stated:
            off = f"{found / stated - 1:+.2%} against the stated {stated:,}"
            text = f"the shape has {found:,} parameters ({key}), {off}"
            hint = "correct the shape or the count, or say why they differ in 'parameters_note'"
            yield Problem(text, locate(("parameters", key)), hint)


def _wrong_mtp_count(stated: Prediction, shape: ModelShape, locate: Locate) -> Iterator[Problem]:
    counted = stated.layers * mtp_parameters(shape)
    if stated.parameters and abs(counted - stated.parameters) > COUNT_TOLERANCE * stated.parameters:
        text = f"the layers that predict further tokens have {counted:,} parameters, not {stated.parameters:,}"
        hint = "correct the shape or the count, or leave the count out"
        yield Problem(text, locate(("multi_token_prediction", "parameters")), hint)
