"""What becomes of an image, against the rules of each publisher's image processor written down once more."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import ModelShape, VisionTower
from xe_sizer.graph.operators import Attention, Matmul, MemoryBound, Operator
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.graph.vision import largest_image, seen_image, vision_operators, vision_parameters
from xe_sizer.graph.weights import count_parameters

SIZES = [
    (14, 14), (30, 1000), (97, 53), (224, 224), (336, 672), (448, 449), (500, 1000), (640, 480), (1000, 30),
    (1024, 1024), (1025, 700), (1344, 896), (2000, 500), (2048, 3100), (4096, 4096), (300, 310),
]  # fmt: skip


def tower(name: str) -> VisionTower:
    found = REGISTRY.model(name).vision
    assert found is not None
    return found


def smart_resize(width: int, height: int, factor: int, least: int, most: int) -> tuple[int, int]:
    """Width and height, multiples of the factor, within the pixels (transformers, image_processing_qwen2_vl.py)."""
    rounded = [max(round(side / factor), 1) * factor for side in (width, height)]
    if math.prod(rounded) > most:
        beta = math.sqrt(width * height / most)
        rounded = [max(factor, math.floor(side / beta / factor) * factor) for side in (width, height)]
    elif math.prod(rounded) < least:
        beta = math.sqrt(least / (width * height))
        rounded = [math.ceil(side * beta / factor) * factor for side in (width, height)]
    return rounded[0], rounded[1]


@pytest.mark.parametrize("name", ["qwen2-vl-7b", "qwen3-vl-2b"])
@pytest.mark.parametrize(("least", "most"), [(65_536, 1_003_520), (3136, 65_536)])
@pytest.mark.parametrize("size", [*SIZES, (20, 3900), (3900, 20)])
def test_native_images_are_resized_within_their_pixels(name: str, least: int, most: int, size: tuple[int, int]) -> None:
    one = replace(tower(name), max_pixels=most, min_pixels=least)
    factor = one.patch * one.merge
    width, height = smart_resize(*size, factor, least, most)
    seen = seen_image(one, *size)
    assert seen.patches == width * height / one.patch**2
    assert seen.tokens == width * height / factor**2 + 2  # where vision starts and where it ends
    assert seen.pieces == 1
    assert seen_image(replace(one, class_token=True), *size).patches == seen.patches + 1


@pytest.mark.parametrize("name", ["pixtral-12b", "mistral-small-3.1-24b"])
@pytest.mark.parametrize("size", SIZES)
def test_pixtral_shrinks_the_longest_side_and_ends_every_row(name: str, size: tuple[int, int]) -> None:
    """transformers, image_processing_pixtral.py: get_resize_output_image_size, (pixels - 1) // patch + 1."""
    one = tower(name)
    ratio = max(max(size) / one.max_side, 1.0)
    columns, rows = ((math.floor(side / ratio) - 1) // (one.patch * one.merge) + 1 for side in size)
    seen = seen_image(one, *size)
    assert (seen.tokens, seen.patches) == (rows * (columns + 1), rows * columns * one.merge**2)


def grids(most: int) -> list[tuple[int, int]]:
    sides = range(1, most + 1)
    return [(columns, rows) for columns, rows in product(sides, sides) if columns * rows <= most]


def area(grid: tuple[int, int]) -> int:
    return grid[0] * grid[1]


@pytest.mark.parametrize("size", SIZES)
def test_llama_4_enlarges_least_or_else_shrinks_least(size: tuple[int, int]) -> None:
    """transformers, image_processing_llama4_fast.py, get_best_fit; tiles of 24 x 24 patches, 144 tokens and an end."""
    one = tower("llama-4-scout-17b-16e")
    scale = {grid: min(grid[0] * 336 / size[0], grid[1] * 336 / size[1]) for grid in grids(16)}
    enlarging = {grid: factor for grid, factor in scale.items() if factor >= 1}
    chosen = min(enlarging or scale, key=lambda grid: (scale[grid] if enlarging else -scale[grid], area(grid)))
    pieces = area(chosen) + (area(chosen) > 1)
    seen = seen_image(one, *size)
    assert (seen.pieces, seen.patches, seen.tokens) == (pieces, 24 * 24 + 1, pieces * 145 + 2)


@pytest.mark.parametrize("size", SIZES)
def test_internvl_takes_the_nearest_shape_and_of_several_the_largest_that_is_half_covered(
    size: tuple[int, int],
) -> None:
    """transformers, image_processing_got_ocr2.py, get_optimal_tiled_canvas; tiles of 32 x 32 patches, 256 tokens."""
    one = tower("internvl3-8b")
    off = {grid: abs(size[0] / size[1] - grid[0] / grid[1]) for grid in grids(12)}
    alike = [grid for grid, error in off.items() if error == min(off.values())]
    covered = [grid for grid in alike if math.prod(size) > 0.5 * 448**2 * area(grid)]
    tiles = max(map(area, covered)) if covered else min(map(area, alike))
    pieces = tiles + (tiles > 1)
    seen = seen_image(one, *size)
    assert (seen.pieces, seen.patches, seen.tokens) == (pieces, 32 * 32 + 1, pieces * 256 + 2)


@pytest.mark.parametrize("size", SIZES)
def test_minicpm_takes_about_as_many_slices_as_the_image_has_areas(size: tuple[int, int]) -> None:
    """MiniCPM-V 2.6, image_processing_minicpmv.py, get_sliced_grid: of m - 1, m and m + 1 slices, but not of one."""
    wanted = min(math.ceil(math.prod(size) / 448**2), 9)
    allowed = [grid for grid in grids(9) if abs(area(grid) - wanted) <= 1 < area(grid)] if wanted > 1 else []
    error = {grid: abs(math.log(size[0] / size[1]) - math.log(grid[0] / grid[1])) for grid in allowed}
    slices = area(min(error, key=lambda grid: (error[grid], area(grid)))) if error else 1
    assert seen_image(tower("minicpm-v-2.6"), *size).pieces == slices + (slices > 1)


@pytest.mark.parametrize("size", SIZES)
def test_idefics_brings_the_longest_side_to_four_tiles(size: tuple[int, int]) -> None:
    """transformers, image_processing_idefics3.py, split_image; (364 / 28)^2 = 169 tokens of a tile, two around it."""
    tiles = math.prod(max(math.ceil(4 * side / max(size)), 1) for side in size)
    seen = seen_image(tower("idefics3-8b"), *size)
    assert (seen.pieces, seen.patches, seen.tokens) == (tiles + 1, 26 * 26, (tiles + 1) * (169 + 2))


@pytest.mark.parametrize(
    ("name", "patches", "tokens"),
    [
        ("llava-1.5-7b", 24 * 24 + 1, 576),  # arXiv:2310.03744: 336 pixels in patches of 14
        ("paligemma-3b", 256, 256),
        ("gemma-3-4b", 64 * 64, 256 + 2),  # 4 x 4 patches are pooled
    ],
)
def test_squares_are_the_same_whatever_the_image(name: str, patches: int, tokens: int) -> None:
    for size in SIZES:
        seen = seen_image(tower(name), *size)
        assert (seen.pieces, seen.patches, seen.tokens) == (1, patches, tokens)


def test_the_largest_image_has_all_tiles_the_longest_side_or_all_pixels() -> None:
    assert largest_image(tower("internvl3-8b")).pieces == 12 + 1
    assert largest_image(tower("pixtral-12b")) == seen_image(tower("pixtral-12b"), 1024, 1024)
    assert largest_image(tower("pixtral-12b")).patches == 64 * 64
    whole = tower("qwen2-vl-7b")
    assert largest_image(whole).patches == pytest.approx(whole.max_pixels / 14**2, rel=0.02)
    assert largest_image(tower("llava-1.5-7b")).patches == 577


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("llava-1.5-7b", 7_063_427_072),
        ("gemma-3-4b", 4_300_079_472),
        ("idefics3-8b", 8_462_086_384),
        ("internvl3-8b", 7_944_373_760),
        ("llama-4-scout-17b-16e", 108_641_793_536),
        ("mistral-small-3.1-24b", 24_011_361_280),
        ("paligemma-3b", 2_923_466_480),
        ("pixtral-12b", 12_682_739_712),
        ("qwen2.5-vl-7b", 8_292_166_656),
        ("qwen3-vl-2b", 2_127_532_032),
    ],
)
def test_published_checkpoints_have_so_many_parameters(name: str, total: int) -> None:
    model = REGISTRY.model(name)
    assert count_parameters(model).total + vision_parameters(tower(name)) == total


def test_each_option_of_an_encoder_adds_its_weights() -> None:
    """Two scales a layer, a class token, a bias of the patches, twice the frames; a projector at each inner layer."""
    plain = replace(tower("internvl3-8b"), layer_scale=False, class_token=False, patch_bias=False)
    before, (hidden, layers, pixels) = vision_parameters(plain), (1024, 24, 3 * 14**2)
    added = {
        "layer_scale": layers * 2 * hidden, "class_token": hidden, "patch_bias": hidden, "frames": pixels * hidden,
        "further_projectors": 2 * (2 * 4 * hidden + 4096 * 3584 + 3584 + 3584**2 + 3584),
    }  # fmt: skip
    for name, elements in added.items():
        assert vision_parameters(replace(plain, **{name: 2})) - before == elements


# Operators.


def encoded(name: str, pieces: float, patches: float) -> tuple[ModelShape, dict[str, Operator]]:
    one = tower(name)
    inputs = graph(one.encoder, Learning(True), batch=pieces, sequence=patches)
    operators = vision_operators(one, inputs, layer_operators(inputs))
    assert all(op.module == "vision" and op.name.startswith("vision ") for op in operators)
    return one.encoder, {op.name.removeprefix("vision "): op for op in operators}


def sizes(op: Operator) -> tuple[float, ...]:
    assert isinstance(op, Matmul)
    return tuple(float(np.sum(size)) for size in (op.m, op.n, op.k, op.copies, op.saved_bytes, op.layers))


def bytes_of(op: Operator) -> tuple[float, ...]:
    assert isinstance(op, MemoryBound)
    sides = (op.forward_bytes, op.backward_bytes, op.forward_launches, op.backward_launches, op.saved_bytes)
    return tuple(float(np.sum(size)) for size in sides)


def test_patches_are_merged_and_projected() -> None:
    """Qwen3-VL: frames of 16 x 16 pixels, 4 patches to one token, one projector behind the encoder and 3 inside."""
    encoder, found = encoded("qwen3-vl-2b", 2, 400)
    pixels, hidden, patches = 3 * 2 * 16**2, 1024, 800
    assert sizes(found["patches"]) == (patches, hidden, pixels, 1, patches * pixels * 2, 1)
    assert bytes_of(found["merge"]) == (2 * patches * hidden * 2, 0, 1, 0, 0)
    kept = patches / 4 * 4096 * 2
    assert sizes(found["projector 1"]) == (patches / 4, 4096, 4096, 1, kept, 4)
    assert bytes_of(found["projector activation 1"]) == (2 * kept, 3 * kept, 1, 1, kept)
    assert sizes(found["projector 2"]) == (patches / 4, 2048, 4096, 1, kept, 4)
    assert "projector activation 2" not in found
    assert "final norm" not in found
    assert found["projector norm"].layers == 4
    assert found["merge"].layers == 4
    assert float(found["projector norm"].saved_bytes[0]) == patches * hidden * 2
    assert found["attention"].layers == encoder.layers
    assert float(np.sum(found["attention"].pairs)) == 400**2  # type: ignore[attr-defined]


def test_an_encoder_with_a_final_norm_has_it_once() -> None:
    _, found = encoded("gemma-3-4b", 1, 4096)
    assert found["final norm"].layers == 1
    assert float(found["final norm"].saved_bytes[0]) == 4096 * 1152 * 2
    assert "projector activation 1" not in found


def test_queries_read_the_patches_of_an_image() -> None:
    """MiniCPM-V: 64 queries of width 3,584 in 28 heads of 128, over 1,024 patches of each of 5 slices.

    Kept are queries, keys, values and output, and the float32 log-sum-exp of each row and head.
    """
    _, found = encoded("minicpm-v-2.6", 5, 1024)
    rows, patches, width = 5 * 64, 5 * 1024, 3584
    assert sizes(found["patches widened"]) == (patches, width, 1152, 1, 0, 1)
    assert sizes(found["queries"]) == (rows, width, width, 1, rows * width * 2, 1)
    assert sizes(found["keys"]) == sizes(found["values"]) == (patches, width, width, 1, patches * width * 2, 1)
    assert sizes(found["resampled"]) == (rows, width, width, 1, 0, 1)
    assert sizes(found["tokens"]) == (rows, width, width, 1, rows * width * 2, 1)
    one = found["resampling"]
    assert isinstance(one, Attention)
    assert float(one.forward_flops[0]) == 4 * rows * 1024 * width
    assert (one.heads.tolist(), one.kv_heads.tolist(), one.query.tolist(), one.key.tolist()) == (
        [28], [28], [64], [1024],
    )  # fmt: skip
    assert float(one.statistics_bytes[0]) == 5 * 28 * 64 * 4
    assert float((one.saved_bytes - one.statistics_bytes)[0]) == 2 * (rows + patches) * width * 2
    for name, count in {"norm of patches": patches, "norm of queries": rows, "norm of tokens": rows}.items():
        assert float(found[name].saved_bytes[0]) == count * width * 2


def test_without_images_the_encoder_does_nothing() -> None:
    for name in ("qwen3-vl-2b", "minicpm-v-2.6"):
        _, found = encoded(name, 0, 1024)
        work = [op.forward_flops for op in found.values() if isinstance(op, Matmul | Attention)]
        assert not np.any(work)
        assert all(not np.any(op.copies) for op in found.values() if isinstance(op, Matmul))
