"""Images of a record's samples, and what is frozen of a model that sees."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from xe_sizer.graph.vision import seen_image

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import Flags
    from xe_sizer.evidence.records import Record
    from xe_sizer.graph.model import ModelShape

# Names of models that are trained on images; others that see are trained on text as well.
SEES = re.compile(r"(?:^|[-_./ ])(?:\w*(?:vl|llava)\d?|v|pixtral|paligemma|idefics\d?|smolvlm|vision)(?=$|[-_. ])")
USUAL_SIZE = 448  # assumed: side of an image where none is stated [pixels]


def images_of(record: Record, model: ModelShape, flags: Flags) -> None:
    """The images of a sample as stated; one where a model is named for seeing and learns from data."""
    if model.vision is None:
        return
    stated = record.images
    if stated is None:
        if not SEES.search((record.model or "").lower()):
            return
        flags.put("data.images", 1, "one image in each sample: not stated")
    else:
        flags.put("data.images", stated)
    side = model.vision.side or USUAL_SIZE
    text = f"images of {side} x {side} pixels: size not stated"
    size = record.image_size
    flags.put("data.image_size", size or f"{side}x{side}", None if size else text)
    flags.put("train.freeze", record.freeze)
    _room(record, model, flags)


def _room(record: Record, model: ModelShape, flags: Flags) -> None:
    """No images where the stated sequences cannot hold them, else text beside them."""
    width, height = str(flags.values["data.image_size"]).split("x")
    assert model.vision is not None
    tokens = flags.values["data.images"] * seen_image(model.vision, int(width), int(height)).tokens
    longest = flags.values.get("train.seq_len")
    if longest is not None and tokens >= longest:
        for key in ("data.images", "data.image_size", "train.freeze"):
            flags.values.pop(key, None)
        flags.assumed.append(f"no images: sequences of {longest:,} tokens do not hold them")
    elif "data.mean_tokens" in flags.values and (record.mean_tokens or 0) > tokens:
        _only_text(tokens, flags)


def _only_text(tokens: int, flags: Flags) -> None:
    """Lengths of the text alone, where a record's are those of samples with their images, which do not vary."""
    for key in ("data.mean_tokens", "data.max_tokens"):
        if key in flags.values:
            flags.values[key] -= tokens
    flags.assumed.append(f"{tokens:,} tokens of each sample are images, the others text")
