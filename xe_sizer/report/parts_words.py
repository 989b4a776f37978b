"""Words on images, and on the parts of a model that sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import clean, count, plural

if TYPE_CHECKING:
    from xe_sizer.result.training import Result, TrainedPart

NAMES = {
    "language": "language model",
    "generator": "generator of replaced tokens",
    "vision": "image encoder",
    "projector": "projector",
}


def image_point(result: Result) -> Iterator[Point]:
    """Images in each sample: their tokens, and where these come from."""
    images = result.images
    if images is None:
        return
    each = f"{plural(images.per_sample, 'image')} of {clean(images.size)} in each sample"
    pieces = f" in {images.pieces_each} pieces" if images.pieces_each > 1 else ""
    made = f"{images.patches_each:,} patches{pieces} become {images.tokens_each:,} tokens"
    frozen = [_name(part) for part in result.parts if not part.trainable_parameters]
    learns = f"; frozen: {', '.join(frozen)}" if frozen else "; all parts learn"
    yield Point("Images", f"{each}: {images.tokens:,} tokens ({made} each){learns}")


def model_parts_table(result: Result) -> Table:
    """Parts of a model that sees, and what learns of each."""
    columns = (Column("part"), Column("parameters", True), Column("trainable", True), Column("learns"))
    rows = tuple(
        (_name(part), count(part.parameters), count(part.trainable_parameters), _learns(part)) for part in result.parts
    )
    return Table(title="Parts of the model", columns=columns, rows=rows)


def _name(part: TrainedPart) -> str:
    return clean(NAMES.get(part.name, part.name))


def _learns(part: TrainedPart) -> str:
    if not part.trainable_parameters:
        return "nothing: frozen"
    return "adapters" if part.adapters else "all of it"
