"""The section `vision` of a model profile: the encoder of images that the operator graph is built from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.graph.model import ModelShape, Projector, VisionTower
from xe_sizer.graph.vision import vision_parameters

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.model_schema import ModelKeys, VisionSection


def tower_of(section: VisionSection) -> VisionTower:
    """The encoder with nothing left open: its layers as a model without a vocabulary, and how images are cut."""
    same = {field.name for field in fields(VisionTower)} - {"encoder", "projector"}
    values: dict[str, Any] = {key: value for key, value in msgspec.structs.asdict(section).items() if key in same}
    projector = Projector(**msgspec.structs.asdict(section.projector))
    return VisionTower(encoder=_encoder(section), projector=projector, **values)


def _encoder(section: VisionSection) -> ModelShape:
    window = section.window
    return ModelShape(
        name="vision",
        family="vision",
        layers=section.layers,
        hidden=section.hidden,
        heads=section.heads,
        kv_heads=section.heads,
        head_dim=section.hidden // section.heads,
        ffn=section.ffn,
        vocab=0,
        max_positions=0,
        tied_embeddings=True,
        norm=section.norm,
        norms_per_layer=2,
        activation=section.activation,
        position="rope" if section.rotary else "learned",
        qkv_bias="qkv" in section.biases,
        output_bias="output" in section.biases,
        mlp_bias="mlp" in section.biases,
        qk_norm=section.qk_norm,
        fused=section.fused,
        learned_positions=section.learned_positions,
        embedding_norm=section.first_norm,
        final_norm=section.final_norm,
        sliding_window=window.patches if window else None,
        windowed_layers=window.layers if window else 0,
        bidirectional=True,
    )


def vision_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """What cannot be true together of the encoder of images, each with the key to point at."""
    vision = profile.vision
    if vision is None:
        return
    if vision.hidden % vision.heads:
        text = f"'hidden' ({vision.hidden}) is not a multiple of 'heads' ({vision.heads})"
        yield ("vision", "heads"), text
    if vision.projector.widths[-1] != profile.hidden:
        yield ("vision", "projector"), f"the last width must be the 'hidden' of the model ({profile.hidden})"
    native = vision.resize == "native"
    if native and not vision.max_pixels and not vision.max_side:
        yield ("vision", "resize"), "native images need 'max_pixels' or 'max_side'"
    if not native and not vision.side:
        yield ("vision", "resize"), "squares and tiles need 'side'"
    counted = vision_parameters(tower_of(vision)) if vision.hidden % vision.heads == 0 else vision.parameters
    if counted != vision.parameters:
        text = f"the encoder has {counted:,} parameters, not {vision.parameters:,}"
        yield ("vision", "parameters"), text
