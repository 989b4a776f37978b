"""The encoder of images before a language model: tokens of an image, and weights.

An image is brought to a size that the model takes, cut into patches, and encoded by a transformer whose attention looks
both ways; neighbouring patches are merged into one token each, which a projector widens to the language model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen
from xe_sizer.graph.parameters import embedding_weights, head_weights, layer_weights
from xe_sizer.graph.resampler import resampler_weights
from xe_sizer.graph.weight import Weight

if TYPE_CHECKING:
    from xe_sizer.graph.model import Projector, VisionTower
    from xe_sizer.graph.parts import WeightGroups

VISION = "vision"
"""Module of all that belongs to the encoder."""
COLOURS = 3  # red, green and blue
TILE_COVER = 0.5  # of a grid of tiles that an image must exceed to be given it, where another fits as well


@frozen(eq=True)
class Seen:
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
    ends = (_patch_weight(tower), *special, *embedding_weights(encoder), *head_weights(encoder))
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


def _patch_weight(tower: VisionTower) -> Weight:
    """Patches of all colours, and of the frames that are taken together, to the encoder's width."""
    hidden = tower.encoder.hidden
    inputs = COLOURS * tower.frames * tower.patch**2
    return Weight("patches", VISION, "linear", inputs, hidden, hidden if tower.patch_bias else 0)


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
