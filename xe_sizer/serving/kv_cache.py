"""Keys and values that a served model keeps: bytes per token and sequence, and how many sequences a pool holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from xe_sizer.graph.attention import cache_width
from xe_sizer.graph.operators import as_array, layers_per_stage

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape, StateSpace
    from xe_sizer.graph.operators import Array
    from xe_sizer.serving.layout import ReplicaLayouts
    from xe_sizer.software.number_formats import Format

STATE_BYTES = 4.0  # recurrent states are kept in float32
CONVOLUTION_BYTES = 2.0  # the last inputs of the convolution are kept in 16 bit
INDEXER_KEY_BYTES = 1.0 + 4 / 128  # fp8 with a float32 scale per 128 (DeepSeek-V3.2)


def attention_layers(model: ModelShape, windows: bool = True) -> Iterator[tuple[ModelShape, float, float]]:
    """Each kind of attention of the model: its shape, layers that keep all tokens, layers that keep a window [-].

    windows : whether the engine keeps windows; else windowed layers keep all tokens too
    """
    counts: dict[ModelShape, int] = {}
    for kind, count in model.layer_kinds:
        if kind.attends:
            seen = model.seen_by(kind)
            counts[seen] = counts.get(seen, 0) + count
    for seen, layers in counts.items():
        own = layers * (seen.kv_layers / seen.layers if seen.kv_layers is not None else 1.0)
        windowed = own * seen.windowed_layers / seen.layers if seen.sliding_window and windows else 0.0
        yield seen, own - windowed, windowed


def layer_token_bytes(model: ModelShape, cache: Format, tp: ArrayLike = 1.0) -> Array:
    """What one layer keeps of one token on one rank.

        bytes = cache_width x element      2 x heads of keys and values x head size, or the latent and its rotary part
        bytes += head size of the indexer x (1 + 4 / 128)      sparse attention

    Parameters
    ----------
    model : its heads, latent attention and indexer [-]
    cache : format of an element
    tp : tensor-parallel ranks [-]

    Returns
    -------
    ndarray of float, shape of `tp` [bytes]

    Source: paged attention (arXiv:2309.06180); DeepSeek-V2 (arXiv:2405.04434, section 2.1.2); DeepSeek-V3.2 for the
    indexer's key, fp8 with a float32 scale per 128.
    """
    size = cache_width(model, as_array(tp)) * cache.element_bytes
    indexer = model.indexer.head_dim * INDEXER_KEY_BYTES if model.indexer else 0.0
    return np.asarray(size + indexer)


def token_bytes(model: ModelShape, cache: Format) -> float:
    """Cache of one further token in the whole model, in the layers that keep all tokens.

        bytes = sum over the kinds of attention of layers x layer_token_bytes

    Where every layer keeps a window, of all of them.

    Parameters
    ----------
    model : its layers and heads [-]
    cache : format of an element

    Returns
    -------
    float [bytes]

    Source: `layer_token_bytes`.
    """
    kinds = [(layer_token_bytes(seen, cache), full, windowed) for seen, full, windowed in attention_layers(model)]
    whole = sum(full * size for size, full, _ in kinds)
    return float(whole or sum(windowed * size for size, _, windowed in kinds))


def sequence_bytes(
    model: ModelShape, cache: Format, tokens: ArrayLike, placements: ReplicaLayouts, block: int, windows: bool = True
) -> Array:
    """Cache of one sequence on one rank, tokens rounded up to whole blocks.

        bytes = sum over the kinds of attention of ceil(full layers / pp) x layer_token_bytes x held
                + ceil(windowed layers / pp) x layer_token_bytes x min(held, window + block), and the state
        held = ceil(tokens / block) block

    A windowed layer keeps its window and the block that it ends in; state-space layers keep a state of fixed size.

    Parameters
    ----------
    model : its layers and heads [-]
    cache : format of an element
    tokens : of the sequence [tokens]
    placements : tp and pp of shape (placements,) [-]
    block : tokens of a block [tokens]
    windows : whether the engine keeps windows; else windowed layers keep all tokens too

    Returns
    -------
    ndarray of float, shape that tokens and placements broadcast to [bytes]

    Source: paged attention (arXiv:2309.06180); stages of whole layers, the fullest decides.
    """
    held = np.ceil(as_array(tokens) / block) * block
    size = state_bytes(model, placements)
    for seen, full, windowed in attention_layers(model, windows):
        layer = layer_token_bytes(seen, cache, placements.tp)
        size = size + layers_per_stage(full, placements.pp) * layer * held
        if seen.sliding_window:
            within = np.minimum(held, seen.sliding_window + block)
            size = size + layers_per_stage(windowed, placements.pp) * layer * within
    return np.asarray(size)


def state_bytes(model: ModelShape, placements: ReplicaLayouts) -> Array:
    """Recurrent states and convolution windows of one sequence on one tensor-parallel rank, of a stage.

        bytes = ceil(layers / pp) (channels x state rows x 4 + mixed channels (kernel - 1) x 2) / tp

    Parameters
    ----------
    model : its state-space layers [-]
    placements : tp and pp of shape (placements,) [-]

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Source: mamba-ssm and flash-linear-attention, which keep states in float32 (arXiv:2312.00752, arXiv:2405.21060).
    """
    space = model.state_space
    if space is None:
        return np.zeros(len(placements))
    layers = sum(count for kind, count in model.layer_kinds if kind.mixer == "state-space")
    return np.asarray(layers_per_stage(layers, placements.pp) * _state_elements(space) / as_array(placements.tp))


def _state_elements(space: StateSpace) -> float:
    """Bytes of one layer's state: channels x state rows, and the last inputs of the convolution."""
    rows = space.key_head_dim if space.kind == "gated-delta-net" else space.state
    return space.inner * rows * STATE_BYTES + space.mixed_channels * (space.conv_kernel - 1) * CONVOLUTION_BYTES
