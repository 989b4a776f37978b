"""The encoder of images before a language model: tokens of an image, weights, and operators.

An image is brought to a size that the model takes, cut into patches, and encoded by a transformer whose attention looks
both ways; neighbouring patches are merged into one token each, which a projector widens to the language model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.blocks import linear, memory_bound, norm
from xe_sizer.graph.inputs import Block
from xe_sizer.graph.operators import Attention, Matmul
from xe_sizer.graph.weights import Weight, embedding_weights, head_weights, layer_weights
from xe_sizer.immutable import Immutable

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import GraphInputs
    from xe_sizer.graph.model import Projector, VisionTower
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.graph.weights import WeightGroups

# Resamplers: projectors that read an image with a fixed number of queries, in one layer of attention.
#
# Qwen-VL (arXiv:2308.12966, section 2.1) and MiniCPM-V (arXiv:2408.01800, section 3): the patches are widened to the
# language model, learned queries attend to them, and a norm and a product follow.

MODULE = "vision"
HEAD_DIM = 128  # of both models
WEIGHTS = ("resampler_q", "resampler_k", "resampler_v", "resampler_o")


def resampler_weights(projector: Projector) -> Iterator[Weight]:
    """Weights of a projector with queries.

        elements = w d + 4 (d^2 + d) + d^2 + norms + queries d (1, or 2 where they have learned positions)

    Parameters
    ----------
    projector : widths w of a patch and d of the language model, and its queries [-]

    Returns
    -------
    iterator of Weight

    Source: Resampler of Qwen-VL (visual.py) and of MiniCPM-V (resampler.py).
    """
    width, hidden = projector.widths
    tables = projector.queries * (2 if projector.query_positions else 1)
    yield Weight("queries", MODULE, "embedding", tables, hidden)
    yield Weight("resampler_kv", MODULE, "linear", width, hidden)
    for name in WEIGHTS:
        yield Weight(name, MODULE, "linear", hidden, hidden, hidden)
    yield Weight("resampler_norms", MODULE, "vector", 1, 3 * hidden, 3 * hidden)
    yield Weight("resampler_out", MODULE, "linear", hidden, hidden)


def resampler_operators(block: Block, projector: Projector, pieces: Array, patches: Array) -> Iterator[Operator]:
    """Operators of a projector with queries.

        FLOPs = 2 patches (w d + 2 d^2) + 2 queries 3 d^2 + 4 queries patches d

    Parameters
    ----------
    block : with the weights of `resampler_weights`, and the inputs of the graph
    projector : its widths and queries
    pieces, patches : of images, and of all of them together, shape (rank shape,) [-]

    Returns
    -------
    iterator of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: as the weights; the queries are the same for every piece, but each piece has its own copy.
    """
    hidden, size = projector.widths[-1], block.inputs.element_bytes
    rows = pieces * projector.queries
    wide, narrow = patches * hidden * size, rows * hidden * size
    yield from linear(block, "patches widened", ("resampler_kv",), patches, block.inputs.zeros)
    yield norm(block, "norm of patches", hidden, patches)
    yield norm(block, "norm of queries", hidden, rows)
    yield from linear(block, "queries", ("resampler_q",), rows, narrow)
    yield from linear(block, "keys", ("resampler_k",), patches, wide)
    yield from linear(block, "values", ("resampler_v",), patches, wide)
    yield _attention(block, projector, pieces, patches)
    yield from linear(block, "resampled", ("resampler_o",), rows, block.inputs.zeros)
    yield norm(block, "norm of tokens", hidden, rows)
    yield from linear(block, "tokens", ("resampler_out",), rows, narrow)


def _attention(block: Block, projector: Projector, pieces: Array, patches: Array) -> Attention:
    """Every query of a piece attends to every patch of it; queries, keys, values and output are kept."""
    hidden, one = projector.widths[-1], block.inputs.rank.ones
    heads = hidden / HEAD_DIM * one
    keys = patches / np.maximum(pieces, 1.0)
    query = projector.queries * one
    statistics = pieces * heads * query * 4.0
    operands = 2.0 * (pieces * query + patches) * hidden * block.inputs.element_bytes
    return Attention(
        name="resampling",
        module=MODULE,
        layers=block.layers,
        saved_bytes=operands + statistics,
        batch=pieces,
        heads=heads,
        kv_heads=heads,
        query=query,
        key=keys,
        pairs=query * keys,
        qk_head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM,
        kernel=block.inputs.kernels.attention,
        statistics_bytes=statistics,
    )


# Images: their tokens, and weights of the encoder.

VISION = "vision"
"""Module of all that belongs to the encoder."""
COLOURS = 3  # red, green and blue
TILE_COVER = 0.5  # of a grid of tiles that an image must exceed to be given it, where another fits as well


class Seen(Immutable, eq=True):
    """What becomes of an image.

    pieces : that the encoder sees apart (tiles and a thumbnail), 1 where it is whole
    patches : of a piece, with its class token; tokens : of the language model for the whole image [-]
    """

    pieces: int
    patches: int
    tokens: int


def seen_image(tower: VisionTower, width: int, height: int) -> Seen:
    """Patches and tokens of an image.

        tokens = pieces (side / (patch merge))^2 + those around           squares, tiles
        tokens = rows (columns + those that end a row) + those around      native, rows x columns of merged patches
        tokens = pieces queries + those around                             projectors with queries

    Parameters
    ----------
    tower : how its images are cut
    width, height : of the image [pixels]

    Returns
    -------
    Seen [-]

    Source: image processors of Hugging Face transformers: smart_resize (Qwen2-VL), Pixtral, get_best_fit (Llama 4),
    get_optimal_tiled_canvas (InternVL), get_sliced_grid (MiniCPM-V), split_image (Idefics 3); CLIP and SigLIP for
    squares.
    """
    unit, special = tower.patch * tower.merge, int(tower.class_token)
    if tower.resize == "native":
        columns, rows = _native(tower, width, height)
        tokens = rows * (columns + tower.row_tokens) + tower.image_tokens
        return Seen(1, rows * columns * tower.merge**2 + special, tokens)
    each = tower.projector.queries or (tower.side // unit) ** 2
    columns, rows = _grid(tower, width, height) if tower.max_tiles > 1 else (1, 1)
    pieces = columns * rows + int(columns * rows > 1)  # and a thumbnail of the whole
    tokens = pieces * (each + tower.row_tokens) + tower.image_tokens
    return Seen(pieces, (tower.side // tower.patch) ** 2 + special, tokens)


def largest_image(tower: VisionTower) -> Seen:
    """The image with the most patches that the encoder takes.

        side = sqrt(most pixels), or the longest side, or all tiles

    Parameters
    ----------
    tower : how its images are cut

    Returns
    -------
    Seen [-]

    Source: the engines' first run, which encodes it to see how much memory that takes (vLLM, profile_run).
    """
    side = tower.max_side or math.isqrt(tower.max_pixels) or tower.side
    if tower.resize == "native":
        return seen_image(tower, side, side)
    return seen_image(tower, side * tower.max_tiles, side)


def _native(tower: VisionTower, width: int, height: int) -> tuple[int, int]:
    """Columns and rows of merged patches of an image in its own shape."""
    unit = tower.patch * tower.merge
    if tower.max_side:
        scale = min(1.0, tower.max_side / max(width, height))
        return math.ceil(int(width * scale) / unit), math.ceil(int(height * scale) / unit)
    pixels = max(round(width / unit), 1) * max(round(height / unit), 1) * unit**2
    if pixels > tower.max_pixels:
        scale = math.sqrt(tower.max_pixels / (width * height))
        return max(math.floor(width * scale / unit), 1), max(math.floor(height * scale / unit), 1)
    if pixels < tower.min_pixels:
        scale = math.sqrt(tower.min_pixels / (width * height))
        return math.ceil(width * scale / unit), math.ceil(height * scale / unit)
    return max(round(width / unit), 1), max(round(height / unit), 1)


def _grids(most: int) -> list[tuple[int, int]]:
    """Every grid of tiles, columns by rows, fewest tiles first."""
    found = [(columns, rows) for columns in range(1, most + 1) for rows in range(1, most // columns + 1)]
    return sorted(found, key=lambda grid: grid[0] * grid[1])


def _grid(tower: VisionTower, width: int, height: int) -> tuple[int, int]:
    """The grid of tiles that an image is given."""
    return _WAYS[tower.resize](tower, width, height)


def _slices(tower: VisionTower, width: int, height: int) -> tuple[int, int]:
    """The grid of about as many tiles as the image has areas, one more or less, nearest in shape (MiniCPM-V)."""
    needed = min(math.ceil(width * height / tower.side**2), tower.max_tiles)
    counts = {count for count in (needed - 1, needed, needed + 1) if 1 < count <= tower.max_tiles}
    if needed <= 1 or not counts:
        return 1, 1
    shape = math.log(width / height)
    grids = [grid for grid in _grids(tower.max_tiles) if grid[0] * grid[1] in counts]
    return min(grids, key=lambda grid: abs(shape - math.log(grid[0] / grid[1])))


def _canvas(tower: VisionTower, width: int, height: int) -> tuple[int, int]:
    """The grid that enlarges the image least, else shrinks it least; of several the smallest (Llama 4)."""
    grids = _grids(tower.max_tiles)
    scales = [min(columns * tower.side / width, rows * tower.side / height) for columns, rows in grids]
    enlarging = [scale for scale in scales if scale >= 1.0]
    scale = min(enlarging) if enlarging else max(scales)
    return grids[scales.index(scale)]


def _closest(tower: VisionTower, width: int, height: int) -> tuple[int, int]:
    """The grid whose shape comes nearest, the largest of several that the image covers half of (InternVL)."""
    best, nearest = (1, 1), math.inf
    for columns, rows in _grids(tower.max_tiles):
        off = abs(width / height - columns / rows)
        covered = width * height > TILE_COVER * tower.side**2 * columns * rows
        if off < nearest or (off == nearest and covered):
            best, nearest = (columns, rows), off
    return best


def _longest(tower: VisionTower, width: int, height: int) -> tuple[int, int]:
    """The grid of an image that is brought to sqrt(most tiles) of them along its longest side (Idefics 3)."""
    along = math.isqrt(tower.max_tiles)
    columns, rows = (max(math.ceil(along * side / max(width, height)), 1) for side in (width, height))
    return columns, rows


_WAYS = {"canvas": _canvas, "closest": _closest, "slices": _slices, "longest": _longest}


@lru_cache(maxsize=256)
def vision_weights(tower: VisionTower) -> WeightGroups:
    """Weights of the encoder and its projectors, and how often each group of them exists.

        elements = patches + positions + layers x (attention + MLP + norms) + projectors

    Parameters
    ----------
    tower : its sizes

    Returns
    -------
    tuple of (number [-], weights)

    Source: vision models of Hugging Face transformers, whose counts the profiles of models state.
    """
    return (*encoder_weights(tower), *projector_weights(tower))


@lru_cache(maxsize=256)
def encoder_weights(tower: VisionTower) -> WeightGroups:
    """Weights of the encoder alone: patches and positions, and its layers; as `vision_weights`."""
    encoder = tower.encoder
    (kind, layers), *_ = encoder.layer_kinds
    vectors = (Weight("scale", VISION, "vector", 1, 2 * encoder.hidden),) if tower.layer_scale else ()
    special = (Weight("class_token", VISION, "vector", 1, encoder.hidden),) if tower.class_token else ()
    # Patches of all colours, and of the frames that are taken together, to the encoder's width.
    inputs = COLOURS * tower.frames * tower.patch**2
    hidden = encoder.hidden
    patches = Weight("patches", VISION, "linear", inputs, hidden, hidden if tower.patch_bias else 0)
    ends = (patches, *special, *embedding_weights(encoder), *head_weights(encoder))
    return (1.0, ends), (float(layers), (*layer_weights(encoder, kind), *vectors))


@lru_cache(maxsize=256)
def projector_weights(tower: VisionTower) -> WeightGroups:
    """Weights between the encoder and the language model; as `vision_weights`."""
    first = (1.0, tuple(_projector_weights(tower, tower.projector)))
    if not tower.further_projectors:
        return (first,)
    further = tuple(_projector_weights(tower, replace(tower.projector, over="merged")))
    return first, (float(tower.further_projectors), further)


def vision_parameters(tower: VisionTower) -> int:
    """Parameters of the encoder and its projectors [-]: the sum over `vision_weights`."""
    return int(sum(count * weight.parameters for count, weights in vision_weights(tower) for weight in weights))


def _projector_weights(tower: VisionTower, projector: Projector) -> Iterator[Weight]:
    """A norm, and products from width to width; or what reads the image with queries."""
    if projector.queries:
        yield from resampler_weights(projector)
        return
    if projector.norm:
        width = tower.encoder.hidden * (tower.merge**2 if projector.over == "merged" else 1)
        yield Weight("projector_norm", VISION, "vector", 1, width, width if projector.norm == "layernorm" else 0)
    for place, (inputs, outputs) in enumerate(zip(projector.widths, projector.widths[1:], strict=False)):
        split = ("column", "row")[place % 2]
        bias = outputs if projector.bias else 0
        yield Weight(f"projector_{place}", VISION, "linear", inputs, outputs, bias, split=split)


# Operators of the encoder: patches, layers, merging and projectors.

PLAIN_PASSES = (2.0, 0.0)  # read and write
ACTIVATION_PASSES = (2.0, 3.0)  # the backward reads the input and the gradient


def vision_operators(tower: VisionTower, inputs: GraphInputs, layers: Iterable[Operator]) -> tuple[Operator, ...]:
    """Operators that encode images: patches, layers of the encoder, merging and projectors.

        operators = those of `vision_groups`, in order

    Parameters
    ----------
    tower, layers : as of `vision_groups`
    inputs : of the encoder and the projector alike

    Returns
    -------
    tuple of Operator, all of the module `vision`; none of them takes time where the batch is 0; sizes [-] and bytes
    [bytes] broadcast to shape (rank shape,)

    Source: vLLM, SGLang: the encoder is sharded like the language model.
    """
    return tuple(op for group in vision_groups(tower, inputs, inputs, layers) for op in group)


def vision_groups(
    tower: VisionTower, inputs: GraphInputs, projecting: GraphInputs, layers: Iterable[Operator]
) -> tuple[tuple[Operator, ...], tuple[Operator, ...], tuple[Operator, ...]]:
    """Operators on the patches of images, those of the encoder's layers, and those of merging and projecting.

        FLOPs = 2 x patches x weights of the layers + attention of all patches of a piece with each other

    Parameters
    ----------
    tower : its sizes
    inputs : the encoder as their model; the rank's batch are pieces of images, its sequence the patches of one; shape
        (rank shape,)
    projecting : the same where the projector learns otherwise than the encoder
    layers : operators of the encoder's layers with these inputs

    Returns
    -------
    three tuples of Operator, all of the module `vision`; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: vision models of Hugging Face transformers.
    """
    patches = inputs.rank.tokens
    weights = {weight.name: weight for _, group in vision_weights(tower) for weight in group}
    block = Block(inputs, weights, 1.0)
    pixels = patches * weights["patches"].inputs * inputs.element_bytes
    present = (patches > 0).astype(float)
    final_norm: tuple[Operator, ...] = ()
    if tower.encoder.final_norm:
        final_norm = (norm(block, "final norm", tower.encoder.hidden, inputs.rank.resident_tokens),)
    groups = (
        linear(block, "patches", ("patches",), patches, pixels),
        layers,
        (
            *final_norm,
            *_projector_operators(Block(projecting, weights, 1.0 + tower.further_projectors), tower, patches),
        ),
    )
    first, middle, last = (tuple(_of_vision(operator, present) for operator in group) for group in groups)
    return first, middle, last


def _projector_operators(block: Block, tower: VisionTower, patches: Array) -> Iterator[Operator]:
    """Patches are merged and normalised, and pass the products with an activation behind each but the last.

    Where a projector has queries, these read the patches instead.
    """
    if tower.projector.queries:
        yield from resampler_operators(block, tower.projector, block.inputs.rank.batch, patches)
        return
    merged, size = patches / tower.merge**2, block.inputs.element_bytes
    yield memory_bound(block, "merge", VISION, patches * tower.encoder.hidden * size, PLAIN_PASSES, (1.0, 0.0))
    if tower.projector.norm:
        yield norm(block, "projector norm", tower.encoder.hidden, patches)
    last = len(tower.projector.widths) - 2
    for place, (inner, width) in enumerate(zip(tower.projector.widths, tower.projector.widths[1:], strict=False)):
        yield from linear(block, f"projector {place + 1}", (f"projector_{place}",), merged, merged * inner * size)
        if place < last:
            moved = merged * width * size
            yield memory_bound(
                block, f"projector activation {place + 1}", VISION, moved, ACTIVATION_PASSES, (1.0, 1.0), moved
            )


def _of_vision(operator: Operator, present: Array) -> Operator:
    """The operator under the module of the encoder; a product of no rows is not run."""
    named = replace(operator, module=VISION, name=f"{VISION} {operator.name}")
    if isinstance(named, Matmul):
        return replace(named, copies=named.copies * present)
    if isinstance(named, Attention):
        return replace(named, batch=named.batch * present)
    return named
