"""Operators of a step that encodes images: patches, layers of the encoder, merging and projectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.graph.building_blocks import linear, memory_bound, norm
from xe_sizer.graph.inputs import Block
from xe_sizer.graph.operators import Attention, Matmul
from xe_sizer.graph.resampler import resampler_operators
from xe_sizer.graph.vision import VISION, vision_weights

if TYPE_CHECKING:
    from xe_sizer.graph.inputs import GraphInputs
    from xe_sizer.graph.model import ModelShape, VisionTower
    from xe_sizer.graph.operators import Array, Operator

PLAIN_PASSES = (2.0, 0.0)  # read and write
ACTIVATION_PASSES = (2.0, 3.0)  # the backward reads the input and the gradient


def vision_operators(tower: VisionTower, inputs: GraphInputs, layers: Iterable[Operator]) -> tuple[Operator, ...]:
    """Operators that encode images: patches, layers of the encoder, merging and projectors.

        operators = those of `vision_groups`, in order

    Parameters
    ----------
    tower, layers : as of `vision_groups`
    inputs : of the encoder and the projector alike

    Returns
    -------
    tuple of Operator, all of the module `vision`; none of them takes time where the batch is 0; sizes [-] and bytes
    [bytes] broadcast to shape (rank shape,)

    Source: vLLM, SGLang: the encoder is sharded like the language model.
    """
    return tuple(op for group in vision_groups(tower, inputs, inputs, layers) for op in group)


def vision_groups(
    tower: VisionTower, inputs: GraphInputs, projecting: GraphInputs, layers: Iterable[Operator]
) -> tuple[tuple[Operator, ...], tuple[Operator, ...], tuple[Operator, ...]]:
    """Operators on the patches of images, those of the encoder's layers, and those of merging and projecting.

        FLOPs = 2 x patches x weights of the layers + attention of all patches of a piece with each other

    Parameters
    ----------
    tower : its sizes
    inputs : the encoder as their model; the rank's batch are pieces of images, its sequence the patches of one; shape
        (rank shape,)
    projecting : the same where the projector learns otherwise than the encoder
    layers : operators of the encoder's layers with these inputs

    Returns
    -------
    three tuples of Operator, all of the module `vision`; sizes [-] and bytes [bytes] broadcast to shape (rank shape,)

    Source: vision models of Hugging Face transformers.
    """
    patches = inputs.rank.tokens
    weights = {weight.name: weight for _, group in vision_weights(tower) for weight in group}
    block = Block(inputs, weights, 1.0)
    pixels = patches * weights["patches"].inputs * inputs.element_bytes
    present = (patches > 0).astype(float)
    groups = (
        linear(block, "patches", ("patches",), patches, pixels),
        layers,
        (
            *(_final_norm(block, tower.encoder) if tower.encoder.final_norm else ()),
            *_projector_operators(Block(projecting, weights, 1.0 + tower.further_projectors), tower, patches),
        ),
    )
    first, middle, last = (tuple(_of_vision(operator, present) for operator in group) for group in groups)
    return first, middle, last


def _final_norm(block: Block, encoder: ModelShape) -> Iterator[Operator]:
    yield norm(block, "final norm", encoder.hidden, block.inputs.rank.resident_tokens)


def _projector_operators(block: Block, tower: VisionTower, patches: Array) -> Iterator[Operator]:
    """Patches are merged and normalised, and pass the products with an activation behind each but the last.

    Where a projector has queries, these read the patches instead.
    """
    if tower.projector.queries:
        yield from resampler_operators(block, tower.projector, block.inputs.rank.batch, patches)
        return
    merged, size = patches / tower.merge**2, block.inputs.element_bytes
    yield memory_bound(block, "merge", VISION, patches * tower.encoder.hidden * size, PLAIN_PASSES, (1.0, 0.0))
    if tower.projector.norm:
        yield norm(block, "projector norm", tower.encoder.hidden, patches)
    last = len(tower.projector.widths) - 2
    for place, (inner, width) in enumerate(zip(tower.projector.widths, tower.projector.widths[1:], strict=False)):
        yield from linear(block, f"projector {place + 1}", (f"projector_{place}",), merged, merged * inner * size)
        if place < last:
            moved = merged * width * size
            yield memory_bound(
                block, f"projector activation {place + 1}", VISION, moved, ACTIVATION_PASSES, (1.0, 1.0), moved
            )


def _of_vision(operator: Operator, present: Array) -> Operator:
    """The operator under the module of the encoder; a product of no rows is not run."""
    named = replace(operator, module=VISION, name=f"{VISION} {operator.name}")
    if isinstance(named, Matmul):
        return replace(named, copies=named.copies * present)
    if isinstance(named, Attention):
        return replace(named, batch=named.batch * present)
    return named
