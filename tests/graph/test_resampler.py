"""Projectors with queries: their weights and work by hand, and the tokens of sliced images."""

from __future__ import annotations

import pytest

from tests.cases import ask, layouts
from xe_sizer.graph.operators import Attention, Matmul
from xe_sizer.graph.vision import seen_image, vision_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.training.activations import operator_groups
from xe_sizer.training.evaluation import Evaluation


@pytest.mark.parametrize(
    ("name", "total"),
    [("qwen-vl", 9_656_935_168), ("minicpm-llama3-v-2.5", 8_537_092_336), ("minicpm-v-2.6", 8_099_175_152)],
)
def test_parameters_with_the_encoder(name: str, total: int) -> None:
    """Encoder, resampler and language model by the modules of each repository, added up by hand."""
    model = Registry().model(name)
    assert model.vision is not None
    assert count_parameters(model).total + vision_parameters(model.vision) == total


@pytest.mark.parametrize(
    ("size", "pieces"), [((448, 448), 1), ((640, 640), 5), ((896, 896), 5), ((1344, 896), 7), ((2000, 500), 5)]
)
def test_slices_of_an_image(size: tuple[int, int], pieces: int) -> None:
    """ceil(area / 448^2) slices, one more or less, in the grid of nearest shape, and the whole beside them.

    640 x 640 is 2.04 areas, so 2, 3 or 4 slices: the square of 4 is nearest. 2000 x 500 is 4.98, so 4, 5 or 6: 4 x 1.
    """
    tower = Registry().model("minicpm-v-2.6").vision
    assert tower is not None
    seen = seen_image(tower, *size)
    assert seen.pieces == pieces
    assert seen.patches == 32 * 32
    assert seen.tokens == pieces * (64 + 2)


def test_queries_attend_to_the_patches_of_their_piece() -> None:
    """256 queries of width 4,096 over 1,024 patches of width 1,664."""
    one = ask({"model": "qwen-vl", "stack": "hf-trainer", "data.images": 1, "data.image_size": "448x448"}).job
    part = Evaluation(one, layouts()).encoder
    assert part is not None
    _, _, last = operator_groups(part.job, part.critical_shapes)
    products = sum(float(op.forward_flops[0]) for op in last if isinstance(op, Matmul))
    attention = sum(float(op.forward_flops[0]) for op in last if isinstance(op, Attention))
    assert products == 2 * (1024 * 1664 * 4096 + 2 * 1024 * 4096**2 + 3 * 256 * 4096**2)
    assert attention == 4 * 256 * 1024 * 4096
