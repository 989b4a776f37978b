"""Images of a service's requests: how many, how large, and what they add to a prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.graph.vision import seen_image
from xe_sizer.result import serving as result
from xe_sizer.scenario.provenance import problem_at
from xe_sizer.serving.job import Images
from xe_sizer.serving.step import Work, step_time, vision_encoder

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.read import Given
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.traffic import Traffic

DEFAULT_IMAGE_SIZE = "1024x1024"


def images_of(provenance: Provenance, model: ModelShape, traffic: Traffic) -> Images | None:
    """The images of every request; None where it has none.

        tokens of a prompt = text + images x tokens of an image

    Parameters
    ----------
    provenance : the keys `serve.images` and `serve.image_size`; model : its encoder says what becomes of an image
    traffic : prompts without images [tokens]

    Returns
    -------
    Images, or None

    Source: `graph.vision.seen_image`.
    """
    each = provenance.settle("serve.images", 0)
    if not each or model.vision is None:
        return None
    width, height = provenance.settle("serve.image_size", DEFAULT_IMAGE_SIZE).split("x")
    seen = seen_image(model.vision, int(width), int(height))
    return Images(each, seen, traffic.inputs + each * seen.tokens)


def with_images(traffic: Traffic, images: Images | None) -> Traffic:
    """The traffic with the tokens of images in its prompts, which all have as many; text alone varies in length."""
    if images is None:
        return traffic
    spread = traffic.input_spread * traffic.inputs / images.prompt_tokens
    return replace(traffic, inputs=images.prompt_tokens, input_spread=spread)


def loaded(model: ModelShape, given: Given) -> ModelShape:
    """The model as an engine loads it: without its encoder where it is told that there are no images.

    Source: vLLM's --limit-mm-per-prompt with image=0 (MultiModalConfig: --language-model-only).
    """
    return replace(model, vision=None) if given.values.serve.images == 0 else model


def images_in(estimate: ServingEstimate) -> result.Images | None:
    """Images of a prompt and what encoding them takes on the placement that was chosen; None where there are none."""
    job, placement = estimate.resolved.job, estimate.placement
    images = job.images
    if images is None:
        return None
    step = step_time(job, placement, Work(prefills=1.0, prefill_tokens=images.prompt_tokens))
    return result.Images(
        per_request=images.each,
        size=estimate.resolved.values["serve.image_size"],
        tokens_each=images.seen.tokens,
        tokens=images.each * images.seen.tokens,
        patches_each=images.seen.pieces * images.seen.patches,
        encoder_s=float(step.parts[vision_encoder.name][0]),
    )


def image_conflicts(given: Given, model: ModelShape) -> Iterator[Problem]:
    """Images for a model that sees none, or a size of no images."""
    serve = given.values.serve
    if serve.images and model.vision is None:
        yield problem_at(given, "serve.images", f"{model.name} takes no images, as far as its profile says")
    elif serve.image_size is not None and not serve.images:
        yield problem_at(given, "serve.image_size", "a size of images needs their number", "add serve.images")
