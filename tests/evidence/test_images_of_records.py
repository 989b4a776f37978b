"""Images of records: stated, usual for a model that is named for seeing, or none."""

from __future__ import annotations

from typing import Any

import pytest

from xe_sizer.errors import Location
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import predict_record
from xe_sizer.evidence.records import Record, records_of
from xe_sizer.evidence.training_scenario import Asked, scenario_of

RUN = {
    "id": "run", "job": "sft", "stack": "hf-trainer", "model": "qwen2-vl-2b", "gpu": "a100-sxm-80gb", "gpus": 1,
    "max_seq_len": 2048, "batch": {"micro": 1}, "measured": {"peak_memory_gib": 20},
}  # fmt: skip


def record_of(**stated: Any) -> Record:
    (record,) = records_of([{**RUN, **stated}], Location("test")).records
    return record


def asked(**stated: Any) -> Asked:
    return scenario_of(record_of(**stated), RecordRegistry())


def test_stated_images_and_frozen_parts_are_asked_for() -> None:
    flags = asked(images=3, image_size="336x448", freeze=["vision"]).flags
    assert flags["data.images"] == 3
    assert flags["data.image_size"] == "336x448"
    assert flags["train.freeze"] == ("vision",)


@pytest.mark.parametrize(("model", "images"), [("qwen2-vl-2b", 1), ("llava-1.5-7b", 1), ("gemma-3-4b", None)])
def test_a_model_that_is_named_for_seeing_has_an_image_in_each_sample(model: str, images: int | None) -> None:
    found = asked(model=model)
    assert found.flags.get("data.images") == images
    assert ("one image in each sample: not stated" in found.assumed) == (images is not None)


def test_sequences_that_hold_no_image_have_none() -> None:
    found = asked(max_seq_len=128)
    assert "data.images" not in found.flags
    assert any("do not hold them" in text for text in found.assumed)


def test_tokens_of_images_are_taken_from_the_stated_mean_as_they_do_not_vary() -> None:
    """Qwen2-VL has 16 x 16 tokens for 448 x 448 pixels, and two more around them."""
    found = asked(images=1, image_size="448x448", mean_tokens=300, longest_sample_tokens=900)
    image = 300 - found.flags["data.mean_tokens"]
    assert 256 <= image <= 258
    assert found.flags["data.max_tokens"] == 900 - image
    assert f"{image:g} tokens of each sample are images, the others text" in found.assumed
    predicted = predict_record(record_of(images=1, image_size="448x448", mean_tokens=300), RecordRegistry())
    lengths = predicted.sized.resolved.job.lengths
    assert lengths.mean == pytest.approx(300, rel=1e-3)
    assert lengths.lengths[0] > image
    assert asked(images=1, image_size="448x448", mean_tokens=100).flags["data.mean_tokens"] == 100
