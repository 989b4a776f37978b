"""The encoder of a job's images: its part of a step, as a job of its own on the first stage of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.frozen import frozen
from xe_sizer.graph.operators import as_array
from xe_sizer.graph.transformer import embedding_operators, head_operators, layer_operators
from xe_sizer.graph.vision import COLOURS, vision_groups
from xe_sizer.training.activations import activations, saved_bytes
from xe_sizer.training.flops import forward_flops, needed_flops
from xe_sizer.training.layout import FULL
from xe_sizer.training.padding import PACKED
from xe_sizer.units import FLOAT32

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import GraphInputs, Learning
    from xe_sizer.graph.operators import Array, Operator
    from xe_sizer.training.job import Job, RankShapes
    from xe_sizer.training.layout import Layouts

OperatorGroups = tuple[tuple["Operator", ...], tuple["Operator", ...], tuple["Operator", ...]]
"""Operators of the layers, of what comes before them, and of what comes behind them."""


@frozen
class Encoding:
    """The encoder's part of a job: the job, its layouts and the shapes that its ranks see."""

    job: Job
    layouts: Layouts
    shapes: RankShapes


def encoding_of(job: Job, layouts: Layouts) -> Encoding | None:
    """The encoder's part of a job under each layout; None where samples have no images.

        sequences = micro-batch x images x pieces,  each of so many patches

    Every rank of the first stage encodes the images of its micro-batch, whole unless the stack splits the encoder over
    tensor-parallel ranks.

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    Encoding or None

    Source: vision models of Hugging Face transformers; `splits_encoder` of the stack's file.
    """
    images = job.images
    if images is None:
        return None
    whole = job.method.trained
    held = whole.held if whole.held is not None and whole.held.quantiser.parts else None
    trained = replace(whole, learning=images.encoder, added_tokens=0, added_parameters=0, parts=(), held=held)
    method = replace(job.method, trained=trained, sequences_per_sample=1, frozen=(), before=())
    each = replace(images, each=images.each * job.method.sequences_per_sample)
    part = replace(
        job, model=images.tower.encoder, method=method, padding=PACKED, images=None, encodes=each,
        recompute_layers=None, first_stage_layers=None, last_stage_layers=None, stage_layers=(),
    )  # fmt: skip
    one = np.ones_like(layouts.tp)
    tp = layouts.tp if job.stack.defaults.splits_encoder else one
    alone = replace(layouts, tp=tp, pp=one, vpp=one, cp=one, ep=one, sequence_parallel=0 * one)
    return Encoding(part, alone, part.rank_shapes(alone, as_array(float(images.seen.patches))))


def operator_groups(job: Job, inputs: GraphInputs) -> OperatorGroups:
    """Operators of a micro-batch: of the layers, the embedding and the head, or of an encoder in their place.

        operators = those of the graph

    Parameters
    ----------
    job : whether it is an encoder's part
    inputs : model, rank, kernels and what learns; sizes of shape (rank shape,)

    Returns
    -------
    three tuples of Operator; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: `graph.transformer`, `graph.vision_operators`.
    """
    if job.encodes is None:
        return layer_operators(inputs), embedding_operators(inputs), head_operators(inputs)
    projecting = replace(inputs, learning=job.encodes.projector)
    first, layers, last = vision_groups(job.encodes.tower, inputs, projecting, layer_operators(inputs))
    return layers, first, last


def runs_backward(job: Job, layouts: Layouts) -> tuple[Array, Array, Array]:
    """Whether the backward passes the layers, the embedding and the head: 1, or 0 in frozen parts of an encoder.

        backward = learns, or something before it does, or recomputed with inputs that are made to need gradients

    Parameters
    ----------
    job, layouts : the job or an encoder's part of it, and layouts of shape (layout,)

    Returns
    -------
    three ndarrays of float, shape (layout,) [-]

    Source: PyTorch's autograd records what needs a gradient; transformers 5 modeling_utils.py,
    enable_input_require_grads, which hooks the embeddings of an encoder too.
    """
    one = np.ones(len(layouts))
    if job.encodes is None:
        return one, one, one
    forced = float(job.encodes.forced) * (layouts.recompute == FULL)
    through = one * float(_learns(job.encodes.encoder)) + forced
    encoder = np.minimum(through, 1.0)
    return encoder, encoder, np.maximum(encoder, float(_learns(job.encodes.projector)))


def _learns(learning: Learning) -> bool:
    return learning.base or bool(learning.adapters)


@frozen
class EncoderActivations:
    """Bytes of the images of one micro-batch on one rank, shape (layout,).

    kept : by the encoder and the projector until their backward; pixels : of the patches, as the data loader hands them
    over; backward_peak : the most that the backward of an encoder's layer holds
    """

    kept: Array
    pixels: Array
    backward_peak: Array


def encoder_activations(
    job: Job, layouts: Layouts, gradient_bytes: float, keeps_gradients: Array
) -> EncoderActivations | None:
    """Activations of the encoder of images under each layout; None where samples have no images.

        kept = layers x kept by a layer + patches + projector, each where the backward passes it
        pixels = patches x colours x frames x patch^2 x 4

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    gradient_bytes : size of a weight gradient's element [bytes]
    keeps_gradients : 1 where fresh gradients stay until the optimizer runs, else 0, shape (layout,) [-]

    Returns
    -------
    EncoderActivations, shape (layout,) [bytes]

    Source: `training.activations`; image processors return float32.
    """
    part = encoding_of(job, layouts)
    if part is None or part.job.encodes is None:
        return None
    shapes, tower = part.shapes, part.job.encodes.tower
    whole: Array = as_array(part.layouts.recompute == FULL)
    one = activations(shapes, part.layouts, gradient_bytes, keeps_gradients, whole)
    in_layers, before, behind = runs_backward(part.job, part.layouts)
    _, first, last = operator_groups(part.job, shapes.inputs)
    ends = before * shapes.spread(saved_bytes(first)) + behind * shapes.spread(saved_bytes(last))
    layers = tower.encoder.layers * one.kept - one.before_learning
    patches = shapes.spread(shapes.inputs.rank.tokens * np.ones_like(shapes.inputs.rank.tp))
    return EncoderActivations(
        kept=in_layers * layers + ends,
        pixels=patches * COLOURS * tower.frames * tower.patch**2 * FLOAT32,
        backward_peak=in_layers * one.backward_peak,
    )


def encoder_flops(job: Job, layouts: Layouts) -> Array:
    """FLOPs of the images of one micro-batch: forward, and backward of what learns or passes gradients on.

        F = forward + backward where it runs      of the encoder's layers, of the patches, of the projector

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)

    Returns
    -------
    ndarray of float, shape (layout,) [FLOP], 0 where samples have no images

    Source: model FLOPs as in PaLM (arXiv:2204.02311, appendix B), for what training needs.
    """
    part = encoding_of(job, layouts)
    total = np.zeros(len(layouts))
    if part is None:
        return total
    spread, groups = part.shapes.spread, operator_groups(part.job, part.shapes.inputs)
    for operators, runs in zip(groups, runs_backward(part.job, part.layouts), strict=True):
        forward, all_passes = spread(_filled(part, forward_flops(operators))), _filled(part, needed_flops(operators))
        total = total + forward + runs * (spread(all_passes) - forward)
    return total


def _filled(part: Encoding, figures: Array) -> Array:
    return np.broadcast_to(figures, part.shapes.inputs.rank.tp.shape)
