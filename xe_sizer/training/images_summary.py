"""What a result says of images: the tokens of a sample, and which parts of the model learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.graph.weights import count_parameters
from xe_sizer.result.training import SampleImages, TrainedPart

if TYPE_CHECKING:
    from xe_sizer.training.estimate import TrainingEstimate

LANGUAGE = "language"


def sample_images(sized: TrainingEstimate) -> SampleImages | None:
    """The images of a sample and what becomes of them; None where samples have none."""
    job, values = sized.resolved.job, sized.resolved.values
    if job.images is None:
        return None
    seen, count = job.images.seen, int(values["data.images"])
    return SampleImages(
        per_sample=count,
        size=str(values["data.image_size"]),
        pieces_each=seen.pieces,
        patches_each=seen.pieces * seen.patches,
        tokens_each=seen.tokens,
        tokens=count * seen.tokens,
    )


def trained_parts(sized: TrainingEstimate) -> Iterator[TrainedPart]:
    """The language model and the parts beside it, with what learns of each; nothing where there are none beside."""
    job = sized.resolved.job
    parts = job.method.parts
    if not parts:
        return
    beside = sum(part.learning_parameters for part in parts)
    learning = job.method.trainable_parameters(job.model) - beside
    yield TrainedPart(LANGUAGE, count_parameters(job.model).total, learning, adapters=not job.method.learning.base)
    for part in parts:
        yield TrainedPart(part.name, part.parameters, part.learning_parameters, adapters=not part.learning.base)
