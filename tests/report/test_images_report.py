"""What a report says of images: their tokens, where these come from, and what is frozen."""

from __future__ import annotations

import pytest

from tests.cases import ask
from xe_sizer.report.document import Options
from xe_sizer.report.registry import render
from xe_sizer.result.training import Result
from xe_sizer.training.search import size
from xe_sizer.training.summary import summarise

SEEING = {
    "model": "qwen2-vl-2b", "gpus": 1, "stack": "llama-factory", "job": "lora", "data.images": 2,
    "data.image_size": "448x448", "train.seq_len": 2048,
}  # fmt: skip


def result(**flags: object) -> Result:
    """An estimate of a job with images."""
    return summarise(size(ask({**SEEING, **flags})))


def test_tokens_of_images_and_what_they_come_from() -> None:
    """1,024 patches, 4 to a token, and two tokens around; the stack freezes the encoder and the projector."""
    text = render(result(), "table", Options())
    line = next(line for line in text.splitlines() if line.startswith("Images"))
    assert "2 images of 448x448 in each sample: 516 tokens (1,024 patches become 258 tokens each)" in line
    assert line.endswith("frozen: image encoder, projector")


def test_parts_say_what_learns_of_each() -> None:
    found = result()
    assert [part.name for part in found.parts] == ["language", "vision", "projector"]
    assert [part.trainable_parameters > 0 for part in found.parts] == [True, False, False]
    assert sum(part.trainable_parameters for part in found.parts) == found.memory.trainable_parameters
    assert "nothing: frozen" in render(found, "table", Options())


@pytest.mark.parametrize(("images", "told"), [(None, True), (0, False)])
def test_a_model_that_sees_is_said_to_be_trained_without_its_encoder(images: int | None, told: bool) -> None:
    flags = {key: value for key, value in SEEING.items() if not key.startswith("data.")} | {"data.images": images}
    warnings = ask({key: value for key, value in flags.items() if value is not None}).warnings
    assert any("without its image encoder" in warning for warning in warnings) == told
