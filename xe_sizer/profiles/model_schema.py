"""What a model profile may say: the schema of `model_profiles/<name>.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

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
    qk_rope_head_dim: Annotated[Count, Meta(description="width of a head of queries and keys with rotary positions")]
    v_head_dim: Annotated[Count, Meta(description="width of a head of values")]


class GlobalAttentionSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kv_heads: Annotated[Count, Meta(description="heads of keys and values")]
    head_dim: Annotated[Count, Meta(description="width of a head")]
    rotary_fraction: Annotated[float, Meta(gt=0, le=1, description="share of a head that positions rotate")] = 1.0
    values_are_keys: Annotated[bool, Meta(description="one projection yields keys and values")] = False


class IndexerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    heads: Annotated[Count, Meta(description="heads that score tokens")]
    head_dim: Annotated[Count, Meta(description="width of such a head")]
    top_k: Annotated[Count, Meta(description="tokens that a query attends to")]


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


class StateSpaceSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Annotated[Literal["mamba-1", "mamba-2", "gated-delta-net"], Meta(description="the recurrence")]
    inner: Annotated[int, Meta(gt=0, le=10**9, description="channels that are mixed")]
    state: Annotated[int, Meta(gt=0, le=10**6, description="rows of each head's state")]
    conv_kernel: Annotated[Count, Meta(description="width of the convolution before it")] = 4
    heads: Annotated[CountOrZero, Meta(description="heads of the state")] = 0
    head_dim: Annotated[CountOrZero, Meta(description="channels of a head")] = 0
    groups: Annotated[int, Meta(gt=0, le=10**6, description="heads of a group share projections (mamba-2)")] = 1
    dt_rank: Annotated[int, Meta(ge=0, le=10**9, description="rank of the step size (mamba-1)")] = 0
    inner_norms: Annotated[bool, Meta(description="norms on step size, input and output (Jamba)")] = False
    key_heads: Annotated[int, Meta(ge=0, le=10**6, description="heads of queries and keys (delta nets)")] = 0
    key_head_dim: Annotated[CountOrZero, Meta(description="width of a head of queries and keys (delta nets)")] = 0
    input_parts: Annotated[
        int, Meta(ge=1, le=2, description="products that the input is projected in, and decay and step (delta nets)")
    ] = 1


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
    parameters: Annotated[ParameterTotal, Meta(description="of these layers")]


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


LETTERS = "a letter a layer: * attention, G global attention, M state-space, - dense MLP, E experts"
Pattern = Annotated[str, Meta(pattern=r"^[*GME-]+$", description=LETTERS, extra={"must": f"have {LETTERS}"})]


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
        Literal["rmsnorm", "layernorm", "layernorm-nobias", "layernorm-nonparam", "layernorm1p"],
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
    global_attention: Annotated[
        GlobalAttentionSection | None, Meta(description="of the layers with letter G, where it differs")
    ] = None
    latent_attention: Annotated[
        LatentAttentionSection | None, Meta(description="keys and values from a compressed latent (MLA)")
    ] = None
    indexer: Annotated[IndexerSection | None, Meta(description="chooses the tokens that are attended to")] = None
    experts: Annotated[ExpertsSection | None, Meta(description="mixture of experts")] = None
    multi_token_prediction: Annotated[Prediction | None, Meta(description="layers that predict further tokens")] = None
    layer_pattern: Annotated[Pattern | None, Meta(description=LETTERS)] = None
    state_space: Annotated[StateSpaceSection | None, Meta(description="layers without attention")] = None
    output_gate: Annotated[bool, Meta(description="attention's output is gated by half of the query projection")] = (
        False
    )
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
