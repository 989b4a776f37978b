"""The images of a job's samples as the scenario asks for them, and which parts of a model that sees learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.frozen import frozen
from xe_sizer.graph.inputs import Learning, Part
from xe_sizer.graph.vision import encoder_weights, projector_weights, seen_image
from xe_sizer.scenario.provenance import problem_at
from xe_sizer.software.adapter_targets import ALL_LINEAR, resolve_targets
from xe_sizer.training.images import Images
from xe_sizer.training.lengths import TokenLengths
from xe_sizer.training.padding import PACKED

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape, VisionTower
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.stack import Stack
    from xe_sizer.training.methods import Method
    from xe_sizer.training.workload import Workload

ENCODER, PROJECTOR, LANGUAGE, NOTHING = "vision", "projector", "language", "none"
DEFAULT_IMAGE_SIZE = "1024x1024"
# Modules that encoders and language models of transformers call alike, so that peft finds both by these names.
SHARED_NAMES = frozenset({"q", "k", "v", "q_proj", "k_proj", "v_proj"})
GROUPS = frozenset({ALL_LINEAR, "attention", "mlp"})


@frozen
class Seeing:
    """A job with images: its method with what learns of each part, its images, and its data with their tokens."""

    method: Method
    images: Images | None
    work: Workload


def seeing(provenance: Provenance, model: ModelShape, stack: Stack, method: Method, work: Workload) -> Seeing:
    """The job with the images of its samples; as it is where they have none.

        tokens of a sample = text + images x tokens of an image      where the data says how long texts are

    Parameters
    ----------
    provenance : the keys `data.images`, `data.image_size`, `train.freeze` and `lora.targets`
    model, stack, method, work : the job as it is without images

    Returns
    -------
    Seeing

    Raises
    ------
    InputError : sequences that do not hold their images; nothing that learns

    Source: `graph.vision.seen_image`; what is frozen stands in the stack's file.
    """
    given, tower = provenance.given, model.vision
    count = given.values.data.images
    if not count or tower is None:
        return Seeing(method, None, work)
    width, height = provenance.settle("data.image_size", DEFAULT_IMAGE_SIZE).split("x")
    seen = seen_image(tower, int(width), int(height))
    lengths = _with_tokens(work, float(count * seen.tokens))
    if count * seen.tokens >= work.seq_len:
        raise InputError(_too_many(given, count, seen.tokens, work.seq_len))
    frozen_parts = set(provenance.settle("train.freeze", stack.defaults.freeze or (NOTHING,), "stack"))
    chosen = _learning(provenance, method, tower, frozen_parts, stack.defaults.splits_encoder)
    if not chosen.learning.base and not chosen.learning.adapters and not _others_learn(chosen):
        raise InputError(problem_at(given, "train.freeze", "nothing is left that learns"))
    packed = work.padding == PACKED
    images = Images(
        tower=tower,
        encoder=chosen.parts[0].learning,
        projector=chosen.parts[1].learning,
        each=count * (work.seq_len / lengths.mean if packed else 1.0),
        seen=seen,
        forced=stack.defaults.gradients_through_encoder and bool(chosen.learning.adapters),
    )
    return Seeing(chosen, images, replace(work, lengths=lengths))


def _others_learn(method: Method) -> bool:
    return method.added_parameters > 0 or any(part.learns for part in method.parts)


def _with_tokens(work: Workload, tokens: float) -> TokenLengths:
    """Lengths of text and images together; sequences of full length whatever the data hold their images already."""
    known = work.lengths
    if known.lengths.size == 1 and known.longest == work.seq_len:
        return known
    return TokenLengths(known.lengths + tokens, known.probabilities, known.assumption)


def _too_many(given: Given, count: int, tokens: int, seq_len: int) -> Problem:
    text = f"{count} images of {tokens:,} tokens do not leave room for text in sequences of {seq_len:,}"
    hint = f"{given.caller.setting('train.seq_len', 2 * count * tokens)}, or smaller images"
    return problem_at(given, "data.images", text, hint)


def _learning(provenance: Provenance, method: Method, tower: VisionTower, still: set[str], split: bool) -> Method:
    """The method with what learns of the language model, the encoder and the projector; `still` are frozen."""
    targets = provenance.values.get("lora.targets") or ()
    encoder = _of_part(method, _encoder_names(tower.encoder, targets), ENCODER in still)
    projector = _of_part(method, _products(tower, targets), PROJECTOR in still)
    parts = (
        Part(ENCODER, encoder_weights(tower), encoder, split),
        Part(PROJECTOR, projector_weights(tower), projector, split),
    )
    language = method.learning
    if LANGUAGE in still:
        language = replace(language, base=False, adapters={}, saved=())
    language = replace(language, before=any(part.learns for part in parts))
    return replace(method, trained=replace(method.trained, learning=language, parts=parts))


def _of_part(method: Method, names: Iterable[str], still: bool) -> Learning:
    """What learns of a part: all, its adapters, or nothing."""
    learning = method.learning
    if still:
        return Learning(base=False)
    if learning.base:
        return Learning(base=True)
    form = next(iter(learning.adapters.values()), None)
    return replace(learning, adapters={} if form is None else dict.fromkeys(names, form), saved=())


def _encoder_names(encoder: ModelShape, targets: Iterable[str]) -> tuple[str, ...]:
    """Weights of the encoder that get adapters: of groups those that it has, and those that bear the same names."""
    names: list[str] = []
    for target in targets:
        alike = target in SHARED_NAMES and not encoder.fused
        if target in GROUPS or alike:
            names += resolve_targets(encoder, (target,))
    return tuple(dict.fromkeys(names))


def _products(tower: VisionTower, targets: Iterable[str]) -> tuple[str, ...]:
    """Products of the projector, which adapters on all linear layers sit on too."""
    products = len(tower.projector.widths) - 1
    return tuple(f"projector_{place}" for place in range(products)) if ALL_LINEAR in targets else ()


def left_out(given: Given, model: ModelShape) -> Iterator[str]:
    """What to say of a model that sees where nothing is said of images: its encoder is no part of the answer."""
    if model.vision is not None and given.values.data.images is None:
        yield (
            f"{model.name} is trained without its image encoder, as no sample has images: "
            f"{given.caller.setting('data.images', 1)} adds it"
        )


def image_conflicts(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Images for a model that sees none, and settings of images where there are none."""
    data = given.values.data
    if data.images and model.vision is None:
        yield problem_at(given, "data.images", f"{model.name} takes no images, as far as its profile says")
    if data.images:
        return
    number = given.caller.setting("data.images", 1)
    if data.image_size is not None:
        yield problem_at(given, "data.image_size", "a size of images needs their number", f"add {number}")
    if given.values.train.freeze is not None:
        yield problem_at(given, "train.freeze", "what is frozen of a model that sees needs images", f"add {number}")
