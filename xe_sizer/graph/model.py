"""The shape of a transformer: everything that parameters, FLOPs and bytes depend on."""

from __future__ import annotations

from collections import Counter
from functools import cached_property, lru_cache
from typing import Literal

from msgspec import field
from msgspec.structs import replace

from xe_sizer.immutable import Immutable
from xe_sizer.units import FLOAT32, SIXTEEN_BIT

VOCABULARY, CLASSES, VALUES, WORDS, NO_HEAD = "vocabulary", "classes", "values", "words", "none"
MASKED, REPLACED = "masked", "replaced"
"""What a job reads from the last layer: logits of the vocabulary, of classes, a value of each token, logits of two of
the vocabulary's words, the state; logits of the vocabulary from which a token is drawn for each that is masked, or
whether each token was replaced."""
OVER_VOCABULARY = (VOCABULARY, MASKED)
NUM_CLASSES = 2  # published: labels of a classifier unless told otherwise (num_labels of transformers)
GATED_ACTIVATIONS = frozenset({"swiglu", "swiglu-clamped", "geglu", "gegelu", "geglu-new"})


class LatentAttention(Immutable, eq=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): low-rank queries, compressed KV cache.

    joint_gate : one product makes queries and the gate of the output, from the low-rank query before and after its norm
    """

    query_rank: int | None
    kv_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    joint_gate: bool = False


class IndexerKind(Immutable, eq=True):
    """How the scorer of a kind of sparse attention works.

    projections : it has queries and one key a token of its own; else those of the attention score means of its keys
    summed : scores of all its heads make one ranking; else every head of keys and values, or of the indexer, ranks for
        the query heads of its own group
    weighted : heads are weighted for each token before, and score in fp8
    summaries : keys of longer runs that are kept beside those that are scored, as a share of them [-]
    """

    projections: bool = True
    summed: bool = False
    weighted: bool = False
    summaries: float = 0.0


SparseKind = Literal["dsa", "msa", "infllm-v2", "qsa"]
# Published: sparse attention of DeepSeek (arXiv:2512.02556) and MiniMax (arXiv:2606.13392), InfLLM v2
# (arXiv:2509.24663), whose means of four times as many keys normalise its scores, and that of Qwen
# (Qwen4ExpTextQSAIndexer of transformers 5.24), which scores means of four keys.
INDEXERS: dict[SparseKind, IndexerKind] = {
    "dsa": IndexerKind(summed=True, weighted=True),
    "msa": IndexerKind(),
    "infllm-v2": IndexerKind(projections=False, summaries=0.25),
    "qsa": IndexerKind(summed=True),
}


class SparseIndexer(Immutable, eq=True):
    """Scorer of sparse attention: a query attends to the `top_k` tokens that it ranks highest, in whole blocks.

    kind : of `INDEXERS`; heads, head_dim : of the queries that score
    block_tokens : that are picked together; key_tokens : that one scored key stands for
    dense_tokens : sequences of no more attend to all tokens
    own : the layers at hand (`ModelShape.seen_by`) have a scorer; else they attend to what a layer before picked
    """

    heads: int
    head_dim: int
    top_k: int
    kind: SparseKind = "dsa"
    block_tokens: int = 1
    key_tokens: int = 1
    dense_tokens: int = 0
    own: bool = True

    @property
    def scoring(self) -> IndexerKind:
        return INDEXERS[self.kind]

    @property
    def weights(self) -> bool:
        """Whether the layers at hand have projections that score."""
        return self.own and self.scoring.projections


class CompressedAttention(Immutable, eq=True):
    """Attention to a window of tokens and to entries that each sum up tokens (DeepSeek-V4, V4.1).

    One head of keys, which are the values too, serves all query heads. Queries pass a width of `query_rank`; the output
    passes `output_groups` projections of groups of heads to `output_rank` each. Entries are of `sparse_tokens` tokens,
    summed up from two overlapping runs, or of `dense_tokens`. `ENTRIES` says of each letter which they are, whose, and
    who picks those that a query attends to.
    tokens : of an entry in the layers at hand (`ModelShape.seen_by`); 0: they have the window alone
    lent : these layers attend to entries that a layer before has made, and score them by its keys
    """

    query_rank: int
    output_groups: int
    output_rank: int
    sparse_tokens: int
    dense_tokens: int
    tokens: int = 0
    lent: bool = False

    @property
    def runs(self) -> int:
        """Runs of tokens that an entry is summed up from [-]."""
        return 2 if self.tokens == self.sparse_tokens else 1


class NgramTables(Immutable, eq=True):
    """Tables of hashed n-grams, which some layers read rows of for every token (Engram, arXiv:2601.07372).

    Each such layer has a table of its own. The rows of a token, side by side, are projected to a value and to a key for
    every residual stream; how well stream and key agree gates what the stream is given of the value.
    rows : of each table; width : of a row; lookups : rows that a token reads of each
    conv_kernel : of a convolution behind the gate; 0: there is none
    gated : as above; else the value is added to the embedding of the token, and there are no keys (LongCat,
    arXiv:2601.21204), so that one table serves the whole model
    on_host : the tables are in host memory, and what is read of them is sent
    """

    rows: tuple[int, ...]
    width: int
    lookups: int
    conv_kernel: int = 0
    gated: bool = True
    on_host: bool = False

    @property
    def joined(self) -> int:
        """Width of the rows that a token reads of a table, side by side [-]."""
        return self.lookups * self.width


class GlobalAttention(Immutable, eq=True):
    """Attention of the layers that see everything, where it has other heads than that of windowed layers (Gemma 4).

    values_are_keys : one projection yields both, before the norms that tell them apart
    heads : of queries, where they differ too; latent : latent attention, where windowed layers have another (dots3)
    """

    kv_heads: int
    head_dim: int
    rotary_fraction: float = 1.0
    values_are_keys: bool = False
    heads: int | None = None
    latent: LatentAttention | None = None


class Experts(Immutable, eq=True):
    """Mixture of experts: `per_token` of `count` experts of size `ffn`; all shared ones: `shared_ffn`.

    `own_norms`: routed and shared experts stand between norms of their own, and the router scales what it reads and
    gives (Gemma 4, whose dense MLP beside the experts is a shared one). A token's experts lie in `groups_per_token` of
    `groups` (the node-limited routing of DeepSeek-V3). `loop`: how transformers before 5 computes one expert after the
    other: as modules that gather their tokens each; sliced: so, from slices of one tensor; split: tokens are sorted
    once and cut, weights are slices of one tensor.
    """

    count: int
    per_token: int
    ffn: int
    shared_ffn: int = 0
    shared_gate: bool = False
    first_dense_layers: int = 0
    every_n_layers: int = 1
    router_bias: bool = False
    expert_bias: bool = False
    latent: int | None = None
    own_norms: bool = False
    groups: int = 1
    groups_per_token: int = 1
    loop: str = "modules"


class LayerEmbedding(Immutable, eq=True):
    """A second table of tokens, with a row of `size` for every layer, which adds it to the state behind its MLP.

    The row is gated by the state and widened to it. vocab : rows of the table
    Source: Gemma4TextDecoderLayer of transformers (per-layer embeddings, as in Gemma 3n).
    """

    size: int
    vocab: int


StateType = Literal["float32", "bfloat16", "float16"]
WIDE_STATES: StateType = "float32"
"""Type of recurrent states that are kept in 32 bit; others have 16."""


class StateSpace(Immutable, eq=True):
    """A recurrent mixer in place of attention: its state does not grow with the sequence.

    kind : mamba-1 (arXiv:2312.00752), mamba-2 (arXiv:2405.21060), gated-delta-net (arXiv:2412.06464),
    kimi-delta-attention (arXiv:2510.26692), whose state decays channel by channel, lightning-attention
    (arXiv:2501.08313), whose state decays at a fixed rate, or short-convolution between two gates (arXiv:2511.23404),
    which has no state beside its last tokens
    inner : channels that are mixed; mamba-2 and delta nets: `heads` of `head_dim`, each with a state of `state` rows
    groups : heads share input and output projections of the state by group (mamba-2)
    gate_norm : a norm behind the gate, of all channels (mamba-2)
    dt_rank : rank of the step size (mamba-1); inner_norms : norms on step size, input and output (Jamba)
    key_heads, key_head_dim : of queries and keys (delta nets)
    input_parts : products that queries, keys, values and gate take together, and decay and step size (delta nets)
    decay_rank, gate_rank : widths that decay and gate pass (Kimi delta attention); 0: one product each
    state_dtype : that states are kept in from token to token; in a profile what the model's configuration asks for, in
    a job what the engine does; None: nobody says, float32 as in the reference implementations
    """

    kind: str
    inner: int
    state: int
    conv_kernel: int = 4
    heads: int = 0
    head_dim: int = 0
    groups: int = 1
    gate_norm: bool = True
    dt_rank: int = 0
    inner_norms: bool = False
    key_heads: int = 0
    key_head_dim: int = 0
    input_parts: int = 1
    decay_rank: int = 0
    gate_rank: int = 0
    state_dtype: str | None = None

    @property
    def state_element_bytes(self) -> float:
        """Size of an element of the states that are kept [bytes]."""
        return FLOAT32 if self.state_dtype in (None, WIDE_STATES) else SIXTEEN_BIT

    @property
    def state_rows(self) -> int:
        """Rows of the state of a head that are kept from token to token [-]."""
        return self.key_head_dim or self.state

    @property
    def mixed_channels(self) -> int:
        """Channels that pass through the short convolution, or the activation that stands in its place."""
        if self.kind == "mamba-1":
            return self.inner
        if self.kind == "mamba-2":
            return self.inner + 2 * self.groups * self.state
        if self.kind == "lightning-attention":
            return 3 * self.inner
        return self.inner + 2 * self.key_heads * self.key_head_dim


class SharedBlocks(Immutable, eq=True):
    """Layers with attention, and their MLPs, that take turns at fewer sets of weights than there are layers.

    sets : of weights, of each kind of layer: one in ALBERT (arXiv:1909.11942), up to two in Zamba2 (arXiv:2411.15242)
    mlp_rank, attention_rank : widths through which every layer adds weights of its own to gate and up, and to queries,
    keys and values, as an adapter does; 0: none
    projection : every MLP has a product of its own behind it
    tied : layers have modules of their own, whose weights are tied: adapters on them are each layer's (Zamba2 in
    transformers 5); else they run one module in turns, whose adapter they have in common (ALBERT)
    """

    sets: int
    mlp_rank: int = 0
    attention_rank: int = 0
    projection: bool = False
    tied: bool = False


class Projector(Immutable, eq=True):
    """From the encoder of images to the language model: products from width to width, an activation between them.

    norm : in front of them, layernorm, rmsnorm or None; over : the width of a patch, or of the patches that are merged
    queries : that read a piece of an image in place of the products, and are its tokens (`graph.vision`); 0: none;
    query_positions : with learned positions
    """

    widths: tuple[int, ...]
    bias: bool = False
    norm: str | None = None
    over: str = "patch"
    queries: int = 0
    query_positions: bool = False


class VisionTower(Immutable, eq=True):
    """The encoder of images: a transformer without a vocabulary, and how images become its patches.

    patch : side of a patch [pixels]; merge : patches along a side that become one token; frames : a patch spans
    resize : native (the image's own shape, within pixels or a longest side), square (of `side` pixels), closest,
    canvas, slices and longest (tiles of `side` pixels, at most `max_tiles` and a thumbnail; `graph.vision` has the ways
    to choose)
    row_tokens, image_tokens : tokens behind a row or a tile, and around an image [-]
    further_projectors : that hand results of inner layers to the language model (DeepStack, arXiv:2406.04334)
    layer_scale : a factor for every channel behind attention and MLP
    """

    encoder: ModelShape
    projector: Projector
    patch: int
    merge: int = 1
    frames: int = 1
    patch_bias: bool = False
    class_token: bool = False
    layer_scale: bool = False
    further_projectors: int = 0
    resize: str = "native"
    side: int = 0
    max_tiles: int = 1
    min_pixels: int = 0
    max_pixels: int = 0
    max_side: int = 0
    row_tokens: int = 0
    image_tokens: int = 0


class Generator(Immutable, eq=True):
    """A narrower encoder that is pre-trained beside a model and replaces tokens in what that reads (arXiv:2003.10555).

    It has the tables of the embedding in common with the model.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int


class LayerKind(Immutable, eq=True):
    """What one layer holds: a mixer of tokens (attention, state-space), an MLP (dense, experts), or both.

    source : it belongs to the encoder of an encoder-decoder; cross : it also attends to what the encoder returns
    bare : without a norm before its attention, behind an embedding that has one (ModernBERT)
    borrows : it attends to the keys and values of a layer before, and has none of its own
    """

    mixer: str | None = "attention"
    mlp: str | None = "dense"
    source: bool = False
    cross: bool = False
    bare: bool = False
    borrows: bool = False

    @property
    def attends(self) -> bool:
        return self.mixer is not None and self.mixer != "state-space"

    @property
    def recurs(self) -> bool:
        """Whether it has a state-space mixer, alone or beside its attention."""
        return self.mixer in ("state-space", MIXERS["P"])


MIXERS = {
    "*": "attention", "G": "global attention", "S": "attention to what another layer picked",
    "D": "dense attention", "C": "sparse compressed attention",
    "c": "sparse compressed attention, lent and picked before",
    "H": "dense compressed attention", "T": "picked entries of dense compressed attention",
    "t": "picked entries of dense compressed attention, lent and picked before",
    "i": "picked entries of dense compressed attention, lent", "M": "state-space",
    "P": "attention beside state-space",
}  # fmt: skip
ATTENDING = frozenset(MIXERS) - {"M"}
"""Letters of layers with attention."""
RECURRING = frozenset("MP")
"""Letters of layers with a state-space mixer."""


class Entries(Immutable, eq=True):
    """Entries of one kind of layer with compressed attention: of sparse_tokens or of dense_tokens tokens each.

    lent : a layer before has made them; picks : own scorer, that of a layer before, or none, and all are attended to
    """

    sparse: bool
    lent: bool
    picks: Literal["own", "before", "none"]


ENTRIES = {
    "C": Entries(sparse=True, lent=False, picks="own"),
    "c": Entries(sparse=True, lent=True, picks="before"),
    "H": Entries(sparse=False, lent=False, picks="none"),
    "T": Entries(sparse=False, lent=False, picks="own"),
    "t": Entries(sparse=False, lent=True, picks="before"),
    "i": Entries(sparse=False, lent=True, picks="own"),
}
"""By letter of the layer: DeepSeek-V4 has C and H, V4.1 the others but H."""
SINGLE_BLOCKS = {letter: LayerKind(mixer, None) for letter, mixer in MIXERS.items()} | {
    "-": LayerKind(None, "dense"),
    "E": LayerKind(None, "experts"),
}


class ModelShape(Immutable, eq=True):
    """One model. Sizes are counts of elements [-]; biases and norms say which vectors exist.

    `sliding_window` tokens apply to `windowed_layers` of the layers; the others attend to everything.
    `parallel_block`: attention and MLP read the same input and share one residual addition (GPT-J, Falcon).
    `kv_layers`: layers with keys and values of their own; the others reuse a neighbour's (None: all have).
    `borrowing_layers`, the last ones, attend to keys and values of the last layer of their kind before them (Gemma 4);
    `borrowing_ffn`: width of their MLPs where it is another. `layer_embedding`: what every layer adds of each token.
    `fused`: projections that the reference implementation stores as one matrix (qkv, gate_up). `dropout`: where
    its published configuration drops (embedding, attention, hidden, mlp). `soft_caps`: where values pass a tanh
    (scores, logits). `held_scores`: copies of the scores that its eager attention holds longer than it needs them
    (unmasked: beside the masked ones; returned: those of the layer before, which layers return to the model's loop).
    `float32_weights`: of its layers, which its class keeps in float32 where the others are held in few bits.
    `narrow_softmax`: its eager attention has no float32 softmax. `wide_norm`: its norms apply their
    weight before they leave float32. `fused_norms`: its own code, which is not that of transformers, adds a block's
    output and normalises in one kernel, whatever the stack does (mamba-ssm). `math_attention`: its keys and values are
    broadcast to the query heads, which sdpa's fused kernels refuse. Activation `gelu-new` is the tanh form that it
    writes out step by step (`geglu-new` with a gate), `swiglu-clamped` the one of gpt-oss.
    `layer_pattern` of a hybrid model, one letter a layer: * attention, G global attention, S attention to the tokens
    that the indexer of a layer before picked, D attention to all tokens in a model with an indexer, those of `ENTRIES`
    compressed attention, M state-space, P attention and state-space on the same input, - dense MLP, E experts. With
    one norm a layer each letter is all that the layer holds, with more an MLP follows; None: attention in every layer.
    With `global_attention` the layers of letter * are the windowed ones.
    `head_vocab`: rows of the head where it has fewer than the embedding has tokens.
    `residual_streams`: hidden states that layers carry side by side, and mix by weights of their own before and behind
    each block (hyper-connections, arXiv:2409.19606); `stream_rank`: of the product of two matrices that mixes what a
    block reads (Qwen3.8-Flash-Next); 0: another way. `ngram_tables`: what layers look up besides. `output_gate`: the
    attention's output is gated by a second half of the query projection, in latent attention by one of its own.
    `checkpoint_format`: number format of the published weights where that is not 16 bit; `fp8_checkpoint`: of those
    that the publisher offers in 8 bit beside them, where that is another than scales of whole tensors;
    `int8_checkpoint`: of those in 8-bit integers.
    `bidirectional`: every token attends to every other, as in encoders. `encoder_layers` of the layers, the first ones,
    are the encoder of an encoder-decoder: they attend both ways, and the others to what they return as well.
    `post_norm`: norms stand behind the sums, not before the blocks. `token_types`: rows of the table of segments.
    `relative_buckets`: rows of the table whose biases are added to the scores (T5), which no flash kernel takes.
    `disentangled_positions`: rows of the table that queries and keys are compared with besides (DeBERTa).
    `whole_targets`: its pre-training answers with the whole text (BART), not with the missing spans of it (T5).
    `bare_first_layer`: no norm before the first attention. `narrow_loss`: its class computes the loss on logits as they
    are (BERT, T5). `head`: what the job reads from the last layer; `head_transform`: a product, biased or unbiased, an
    activation and a norm before the vocabulary's. `generator`: what replaces tokens in its pre-training (ELECTRA).
    `vision`: the encoder of images, no part of the language model's parameters.
    `mtp_layers`: modules that predict further tokens, no part of `layers` (`graph.drafter` builds one);
    `trained_mtp_layers`: of these, or as many more, that are trained behind the layers.
    `shared_blocks`: layers that have their weights in common, each with FLOPs and a cache of its own.
    `joined_width`: of the states that a drafter joins to its own width before its layers, 0: none; `doubled_input`:
    its queries, keys and values are projected from the token's embedding beside the state (EAGLE-3, Zamba2).
    `released`: month of its release, as a date begins; None where that is not known.
    `rotary_base` and `rotary_scaling`: wavelengths of rotary positions, which change neither memory nor time.
    `assumptions`: what the source of the shape left open, or what this shape cannot express, in words; `guesses` are
    those of them on which the whole shape rests.
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
    rotary_base: float | None = field(default=None)
    rotary_scaling: float | None = field(default=None)
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
    held_scores: tuple[str, ...] = ()
    float32_weights: tuple[str, ...] = ()
    narrow_softmax: bool = False
    wide_norm: bool = False
    fused_norms: bool = False
    math_attention: bool = False
    sliding_window: int | None = None
    windowed_layers: int = 0
    attention_sinks: bool = False
    kv_layers: int | None = None
    borrowing_layers: int = 0
    borrowing_ffn: int | None = None
    layer_embedding: LayerEmbedding | None = None
    values_are_keys: bool = False
    global_attention: GlobalAttention | None = None
    latent_attention: LatentAttention | None = None
    indexer: SparseIndexer | None = None
    compressed_attention: CompressedAttention | None = None
    residual_streams: int = 1
    stream_rank: int = 0
    ngram_tables: NgramTables | None = None
    experts: Experts | None = None
    layer_pattern: str | None = None
    state_space: StateSpace | None = None
    shared_blocks: SharedBlocks | None = None
    output_gate: bool = False
    checkpoint_format: str | None = None
    fp8_checkpoint: str | None = None
    bidirectional: bool = False
    vision: VisionTower | None = None
    int8_checkpoint: str | None = None
    encoder_layers: int = 0
    post_norm: bool = False
    token_types: int = 0
    relative_buckets: int = 0
    disentangled_positions: int = 0
    bare_first_layer: bool = False
    narrow_loss: bool = False
    whole_targets: bool = False
    head: str = VOCABULARY
    head_vocab: int | None = None
    head_transform: str | None = None
    generator: Generator | None = None
    mtp_layers: int = 0
    trained_mtp_layers: int = 0
    joined_width: int = 0
    doubled_input: bool = False
    released: str | None = None
    assumptions: tuple[str, ...] = ()
    guesses: tuple[str, ...] = ()

    @property
    def gated(self) -> bool:
        """Whether the MLP has a gate matrix beside the up matrix (SwiGLU and its kin)."""
        return self.activation in GATED_ACTIVATIONS

    @property
    def most_stages(self) -> int:
        """Pipeline stages that its layers can be cut into at most [-]: not those that have weights in common."""
        return 1 if self.shared_blocks else self.layers

    @property
    def borrows(self) -> bool:
        """Whether all layers attend to keys and values of others, as of one kind they do (`seen_by`)."""
        return self.borrowing_layers == self.layers

    @property
    def own_kv_heads(self) -> int:
        """Heads of keys and values that a layer makes itself [-]."""
        return 0 if self.borrows else self.kv_heads

    @property
    def logits(self) -> int:
        """Logits of a token."""
        return self.head_vocab or self.vocab

    @property
    def qk_head_dim(self) -> int:
        mla = self.latent_attention
        return mla.qk_nope_head_dim + mla.qk_rope_head_dim if mla else self.head_dim

    @property
    def v_head_dim(self) -> int:
        return self.latent_attention.v_head_dim if self.latent_attention else self.head_dim

    def seen_by(self, kind: LayerKind) -> ModelShape:
        """The model with the attention, and the width of the MLP, of one kind of layer as those of all."""
        if 0 < self.borrowing_layers < self.layers:
            return _borrowing(self, kind.borrows).seen_by(kind)
        if kind.source:
            return _as_encoder(self)
        if self.compressed_attention and kind.attends:
            return _with_entries(self, kind.mixer or "")
        if kind.mixer == MIXERS["S"]:
            return _without_scorer(self)
        if kind.mixer == MIXERS["D"]:
            return _attending_to_all(self)
        if self.global_attention is None or not kind.attends:
            return self
        return _with_attention(self, self.global_attention if kind.mixer == "global attention" else None)

    @cached_property
    def layer_kinds(self) -> tuple[tuple[LayerKind, int], ...]:
        """The kinds of layer that the model mixes, in order of appearance, and how many there are of each."""
        return tuple(Counter(self.layer_sequence).items())

    @cached_property
    def layer_sequence(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, first to last."""
        return tuple(self._kind(index) for index in range(self.layers))

    def _kind(self, index: int) -> LayerKind:
        letter = self.layer_pattern[index] if self.layer_pattern else "*"
        if self.layer_pattern and self.norms_per_layer == 1:
            return SINGLE_BLOCKS[letter]
        experts = self.experts
        past = index - experts.first_dense_layers + 1 if experts else 0
        mlp = "experts" if experts and past > 0 and past % experts.every_n_layers == 0 else "dense"
        source = index < self.encoder_layers
        cross = self.encoder_layers > 0 and not source
        bare, borrows = self.bare_first_layer and index == 0, index >= self.layers - self.borrowing_layers
        return LayerKind(MIXERS[letter], mlp, source, cross, bare, borrows)

    def with_layers(self, layers: int) -> ModelShape:
        """The model cut or continued to so many layers, which follow each other as its own do.

        windowed = layers - layers // period, period = round(L / (L - windowed)): the last layer of each period sees
        everything; the first where the model begins with it (ModernBERT)
        """
        if layers == self.layers:
            return self
        windowed = layers if self.windowed_layers else 0
        if 0 < self.windowed_layers < self.layers:
            period = round(self.layers / (self.layers - self.windowed_layers))
            windowed = layers - (-(-layers // period) if self.bare_first_layer else layers // period)
        pattern = self.layer_pattern and (self.layer_pattern * -(-layers // self.layers))[:layers]
        return replace(
            self,
            layers=layers,
            layer_pattern=pattern,
            windowed_layers=windowed,
            kv_layers=self.kv_layers and max(round(layers * self.kv_layers / self.layers), 1),
            borrowing_layers=round(layers * self.borrowing_layers / self.layers),
            encoder_layers=round(layers * self.encoder_layers / self.layers),
        )

    @cached_property
    def generator_model(self) -> ModelShape | None:
        """The generator as a model of its own, whose rows of the embedding are as wide as this model's."""
        own = self.generator
        if own is None:
            return None
        return replace(
            self,
            name=f"{self.name} (generator)",
            layers=own.layers,
            hidden=own.hidden,
            heads=own.heads,
            kv_heads=own.heads,
            head_dim=own.hidden // own.heads,
            ffn=own.ffn,
            embedding_size=self.embedding_size or self.hidden,
            tied_embeddings=True,
            head=MASKED,
            generator=None,
        )

    def headed(self, head: str) -> ModelShape:
        """The model as a job reads it that needs no logits of the vocabulary, or as it is."""
        tied = self.tied_embeddings and head == WORDS  # whose rows are those of the vocabulary's matrix
        return self if head == self.head else replace(self, head=head, tied_embeddings=tied)


@lru_cache(maxsize=256)
def _as_encoder(model: ModelShape) -> ModelShape:
    return replace(model, bidirectional=True)


@lru_cache(maxsize=256)
def _borrowing(model: ModelShape, borrows: bool) -> ModelShape:
    """Keys and values of layers before in every layer, or in none."""
    ffn = (borrows and model.borrowing_ffn) or model.ffn
    return replace(model, ffn=ffn, borrowing_layers=model.layers if borrows else 0, borrowing_ffn=None)


@lru_cache(maxsize=256)
def _without_scorer(model: ModelShape) -> ModelShape:
    return replace(model, indexer=model.indexer and replace(model.indexer, own=False))


@lru_cache(maxsize=256)
def _attending_to_all(model: ModelShape) -> ModelShape:
    return replace(model, indexer=None)


@lru_cache(maxsize=256)
def _with_entries(model: ModelShape, mixer: str) -> ModelShape:
    """Compressed attention of one kind in every layer: its entries beside the window, and whether some are picked."""
    compressed = model.compressed_attention
    if compressed is None:
        return model
    kind = next((entries for letter, entries in ENTRIES.items() if MIXERS[letter] == mixer), None)
    if kind is None:
        return replace(model, indexer=None, windowed_layers=model.layers)
    tokens = compressed.sparse_tokens if kind.sparse else compressed.dense_tokens
    scorer = model.indexer and replace(model.indexer, own=kind.picks == "own")
    return replace(
        model,
        compressed_attention=replace(compressed, tokens=tokens, lent=kind.lent),
        indexer=None if kind.picks == "none" else scorer,
        windowed_layers=model.layers,
    )


@lru_cache(maxsize=256)
def _with_attention(model: ModelShape, wide: GlobalAttention | None) -> ModelShape:
    """The attention of global layers in every layer, or that of windowed ones."""
    if wide is None:
        return replace(model, windowed_layers=model.layers, global_attention=None, indexer=None)
    return replace(
        model,
        heads=wide.heads or model.heads,
        latent_attention=wide.latent or model.latent_attention,
        kv_heads=wide.kv_heads,
        head_dim=wide.head_dim,
        rotary_fraction=wide.rotary_fraction,
        values_are_keys=wide.values_are_keys,
        sliding_window=None,
        windowed_layers=0,
        global_attention=None,
    )
