"""What a model profile may say: the schema of `model_profiles/<name>.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(gt=0, le=10**9)]
Layers = Annotated[int, Meta(gt=0, le=10**5)]
CountOrZero = Annotated[int, Meta(ge=0, le=10**9)]
ParameterTotal = Annotated[int, Meta(gt=0, le=10**17)]
Text = Annotated[str, Meta(min_length=1)]


class SlidingWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: Annotated[int, Meta(gt=0, le=10**9, description="tokens that a windowed layer looks back")]
    layers: Annotated[str, Meta(description="layers that have it: all, alternate, or a share such as 5-of-6")] = "all"


class LatentAttentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    query_rank: Count | None = None
    kv_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


class GlobalAttentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kv_heads: Count
    head_dim: Count
    rotary_fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    values_are_keys: Annotated[bool, Meta(description="one projection yields keys and values")] = False


class IndexerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    heads: Count
    head_dim: Count
    top_k: Count


class ExpertsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Annotated[int, Meta(gt=0, le=10**6, description="routed experts of a layer")]
    per_token: Annotated[int, Meta(gt=0, le=10**6, description="routed experts that a token visits")]
    ffn: Annotated[int, Meta(gt=0, le=10**9, description="width of one expert")]
    shared_ffn: Annotated[int, Meta(ge=0, le=10**9, description="width of all shared experts together")] = 0
    shared_gate: bool = False
    first_dense_layers: CountOrZero = 0
    every_n_layers: Count = 1
    router_bias: bool = False
    expert_bias: bool = False
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


class StateSpaceSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Literal["mamba-1", "mamba-2", "gated-delta-net"]
    inner: Annotated[int, Meta(gt=0, le=10**9, description="channels that are mixed")]
    state: Annotated[int, Meta(gt=0, le=10**6, description="rows of each head's state")]
    conv_kernel: Count = 4
    heads: CountOrZero = 0
    head_dim: CountOrZero = 0
    groups: Annotated[int, Meta(gt=0, le=10**6, description="heads of a group share projections (mamba-2)")] = 1
    dt_rank: Annotated[int, Meta(ge=0, le=10**9, description="rank of the step size (mamba-1)")] = 0
    inner_norms: Annotated[bool, Meta(description="norms on step size, input and output (Jamba)")] = False
    key_heads: Annotated[int, Meta(ge=0, le=10**6, description="heads of queries and keys (delta nets)")] = 0
    key_head_dim: CountOrZero = 0
    input_parts: Annotated[
        int, Meta(ge=1, le=2, description="products that the input is projected in, and decay and step (delta nets)")
    ] = 1


class ProjectorSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    widths: Annotated[tuple[Count, ...], Meta(min_length=2, description="from the merged patches to `hidden`")]
    bias: bool = False
    norm: Literal["layernorm", "rmsnorm"] | None = None
    over: Annotated[Literal["patch", "merged"], Meta(description="width that the norm has")] = "patch"


class VisionWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    patches: Annotated[Count, Meta(description="patches of a window")]
    layers: Annotated[Count, Meta(description="layers that have windows")]


class VisionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The encoder of images, which is no part of `parameters`."""

    layers: Layers
    hidden: Count
    heads: Count
    ffn: Count
    norm: Literal["rmsnorm", "layernorm"]
    activation: Literal["swiglu", "geglu", "gelu"]
    biases: tuple[Literal["qkv", "output", "mlp"], ...] = ()
    learned_positions: Annotated[CountOrZero, Meta(description="rows of the position table; 0: rotary alone")] = 0
    rotary: bool = False
    qk_norm: Literal["perhead", "full"] | None = None
    first_norm: Annotated[bool, Meta(description="a norm before the first layer")] = False
    final_norm: bool = False
    window: VisionWindow | None = None
    projector: ProjectorSection
    patch: Annotated[Count, Meta(description="side of a patch, in pixels")]
    merge: Annotated[Count, Meta(description="patches along a side that become one token")] = 1
    frames: Annotated[Count, Meta(description="frames that a patch spans")] = 1
    patch_bias: bool = False
    class_token: bool = False
    layer_scale: bool = False
    further_projectors: CountOrZero = 0
    resize: Annotated[
        Literal["native", "square", "closest", "canvas"],
        Meta(description="the image's own shape, one square, or a grid of tiles (nearest shape, or least change)"),
    ]
    side: Annotated[CountOrZero, Meta(description="of a square or a tile, in pixels")] = 0
    max_tiles: Count = 1
    min_pixels: CountOrZero = 0
    max_pixels: Annotated[CountOrZero, Meta(description="of a native image")] = 0
    max_side: Annotated[CountOrZero, Meta(description="longest side of a native image, in pixels")] = 0
    row_tokens: Annotated[CountOrZero, Meta(description="tokens behind each row of a native image, or each tile")] = 0
    image_tokens: Annotated[CountOrZero, Meta(description="tokens around an image")] = 0
    parameters: Annotated[ParameterTotal, Meta(description="of the encoder and its projectors")]


class Prediction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    layers: Count
    parameters: ParameterTotal


class Parameters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    total: ParameterTotal
    active: Annotated[int, Meta(gt=0, le=10**17, description="used by one token, with embeddings")]


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: Text
    url: str | None = None
    parameters: Annotated[str | None, Meta(description="what the counts were checked against")] = None
    read_on: str | None = None


LETTERS = "a letter a layer: * attention, G global attention, M state-space, - dense MLP, E experts"
Pattern = Annotated[str, Meta(pattern=r"^[*GME-]+$", description=LETTERS, extra={"must": f"have {LETTERS}"})]


class ModelProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of `model_profiles/`. Sizes are numbers of elements."""

    name: Text
    family: Text
    released: str | None = None
    hugging_face: Annotated[str | None, Meta(description="owner/repository of the weights")] = None
    layers: Layers
    hidden: Annotated[int, Meta(gt=0, le=10**9, description="width of the residual stream")]
    heads: Annotated[Count | None, Meta(description="query heads; may be left out without attention")] = None
    kv_heads: Annotated[Count | None, Meta(description="default: as many as heads")] = None
    head_dim: Annotated[Count | None, Meta(description="default: hidden / heads")] = None
    ffn: Annotated[Count | None, Meta(description="width of a dense MLP; may be left out without one")] = None
    vocab: Annotated[int, Meta(gt=0, le=10**9, description="rows of the token embedding")]
    max_positions: Annotated[int, Meta(gt=0, le=10**9, description="longest sequence, in tokens")]
    tied_embeddings: Annotated[bool, Meta(description="the head uses the weight of the token embedding")]
    norm: Literal["rmsnorm", "layernorm", "layernorm-nobias", "layernorm-nonparam", "layernorm1p"]
    norms_per_layer: Literal[1, 2, 4] = 2
    embedding_norm: bool = False
    final_norm: bool = True
    activation: Literal["swiglu", "swiglu-clamped", "geglu", "gegelu", "gelu", "gelu-new", "relu", "relu2"]
    biases: tuple[Literal["qkv", "output", "mlp", "head"], ...] = ()
    position: Literal["rope", "learned", "alibi", "none"]
    rotary_fraction: Annotated[float, Meta(gt=0, le=1)] = 1.0
    learned_positions: Annotated[int, Meta(ge=0, le=10**9, description="rows of the position table")] = 0
    embedding_size: Annotated[Count | None, Meta(description="default: hidden")] = None
    parallel_block: Annotated[bool, Meta(description="attention and MLP read the same input")] = False
    fused: Annotated[
        tuple[Literal["qkv", "gate_up"], ...], Meta(description="projections stored as one matrix in transformers")
    ] = ()
    dropout: Annotated[
        tuple[Literal["embedding", "attention", "hidden"], ...], Meta(description="where the published model drops")
    ] = ()
    soft_caps: Annotated[tuple[Literal["scores", "logits"], ...], Meta(description="values that pass a tanh")] = ()
    narrow_softmax: Annotated[bool, Meta(description="eager attention without a float32 softmax")] = False
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
    qk_norm: Literal["perhead", "full"] | None = None
    sliding_window: SlidingWindow | None = None
    attention_sinks: bool = False
    kv_layers: Annotated[Count | None, Meta(description="layers with keys and values; default: all")] = None
    global_attention: Annotated[
        GlobalAttentionSection | None, Meta(description="of the layers with letter G, where it differs")
    ] = None
    latent_attention: LatentAttentionSection | None = None
    indexer: IndexerSection | None = None
    experts: ExpertsSection | None = None
    multi_token_prediction: Prediction | None = None
    layer_pattern: Pattern | None = None
    state_space: StateSpaceSection | None = None
    output_gate: Annotated[bool, Meta(description="attention's output is gated by half of the query projection")] = (
        False
    )
    vision: VisionSection | None = None
    parameters: Parameters
    parameters_note: Annotated[str | None, Meta(description="why the shape counts differently")] = None
    notes: str | None = None
    source: Source
