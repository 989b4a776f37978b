"""A model whose shape is written out: the catalogue's model of exactly that shape, else the shape itself.

Keys are those of a model profile, dotted: `layers`, `hidden`, `experts.count`, `latent_attention.kv_rank`.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.frozen import frozen
from xe_sizer.profiles.registry import Registry
from xe_sizer.profiles.text import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from xe_sizer.graph.model import ModelShape
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

Stated = tuple[object, "Written | None"]
"""A value of a shape and where it stands; None where it is what the tool fills in."""
NEEDED = ("layers", "hidden", "vocab")
"""Keys without which a shape is no model."""

_EXPERTS: Mapping[str, object] = {
    "count": None, "per_token": None, "ffn": None, "shared_ffn": 0, "first_dense_layers": 0, "every_n_layers": 1,
}  # fmt: skip
_LATENT = ("query_rank", "kv_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_STATE_SPACE = ("state", "heads", "head_dim", "groups")
_NEAR = 0.02  # of the vocabulary: what padding, and tokens without a use, add to a published one
_RELEASED = re.compile(r"^released: [\"']?([\d-]+)", re.MULTILINE)


@frozen
class Shape:
    """What is stated of a model's shape.

    values : by key of a model profile
    padding : the vocabulary is rounded up to a multiple of it
    called : names that may be the model's, such as that of its tokenizer
    """

    values: Mapping[str, Stated]
    padding: int = 1
    called: tuple[str, ...] = ()

    def value(self, key: str) -> object:
        """The value of a key; None where nothing states it."""
        return self.values[key][0] if key in self.values else None

    @property
    def padded_vocab(self) -> int | None:
        """Rows of the embedding, with the padding."""
        vocab = self.value("vocab")
        return None if vocab is None else math.ceil(int(str(vocab)) / self.padding) * self.padding


def state_shape(draft: Draft, shape: Shape) -> None:
    """State the catalogue's model of that shape, else the shape as the keys of `model`; say what it lacks."""
    if shape.value("layers") is None and shape.value("hidden") is None:
        return
    found = models_like(shape)
    if found:
        written = shape.values["layers"][1] or shape.values["hidden"][1]
        draft.state("model", found[0].name, written, _why(found))
        return
    for key, (value, written) in shape.values.items():
        stated = shape.padded_vocab if key == "vocab" else value
        if written is not None:
            draft.state(f"model.{key}", stated, written)
        else:
            draft.default(f"model.{key}", stated)
    for key in NEEDED:
        if shape.value(key) is None:
            draft.miss(f"model.{key}", f"no file says the model's {key}", "--model NAME in place of the shape")


def _why(found: list[ModelShape]) -> str:
    others = [each.name for each in found[1:3]]
    return f"its shape; also that of {', '.join(others)}" if others else "its shape"


def models_like(shape: Shape) -> list[ModelShape]:
    """The catalogue's models of a shape, the likeliest first."""
    layers, hidden = shape.value("layers"), shape.value("hidden")
    if layers is None or hidden is None:
        return []
    named = {name for name in map(_profile_called, shape.called) if name}
    found: list[tuple[tuple[object, ...], ModelShape]] = []
    for path, released in _files_with(str(layers), str(hidden)):
        try:
            model = _registry().model(path.stem)
        except (InputError, OSError):
            continue
        if _is_like(model, shape):
            rank = (model.name not in named, model.vision is not None, _differences(model, shape), released, model.name)
            found.append((rank, model))
    return [model for _, model in sorted(found, key=lambda each: each[0])]


def vocabulary_of(name: str) -> int | None:
    """Rows of the embedding of the model that a tokenizer is called after; None where no profile has that name."""
    found = _profile_called(name)
    return _registry().model(found).vocab if found else None


def layers_of(name: object) -> int | None:
    """Layers of the model that a scenario names; None where no profile has that name."""
    found = _profile_called(str(name))
    return _registry().model(found).layers if found else None


@cache
def _registry() -> Registry:
    return Registry()


@cache
def _profile_called(name: str) -> str | None:
    try:
        return _registry().model(name).name if name.strip() else None
    except (InputError, OSError):
        return None


@cache
def _texts() -> tuple[tuple[Path, str], ...]:
    """The profiles of the catalogue as text."""
    folders = [folder for folder, _ in _registry().places("model")]
    return tuple((path, read_text(path)) for folder in folders for path in sorted(folder.glob("*.yaml")))


def _files_with(layers: str, hidden: str) -> Iterator[tuple[Path, str]]:
    """Profiles of that depth and width, with their dates; a look at the text spares reading the others."""
    for path, text in _texts():
        if f"\nlayers: {layers}\n" in text and f"\nhidden: {hidden}\n" in text:
            released = _RELEASED.search(text)
            yield path, released[1] if released else "9999"


def _is_like(model: ModelShape, shape: Shape) -> bool:
    """Whether a model has all sizes that are stated, and no part that is not."""
    same = all(
        shape.value(key) in (None, value)
        for key, value in {
            "heads": model.heads, "tied_embeddings": model.tied_embeddings, "layer_pattern": model.layer_pattern
        }.items()
    )  # fmt: skip
    activation = shape.value("activation")
    gated = activation is None or replace(model, activation=str(activation)).gated == model.gated
    halves = model.encoder_layers == (shape.value("encoder_layers") or 0)
    causal = model.bidirectional == bool(shape.value("bidirectional"))
    return (
        same and gated and halves and causal and (model.state_space is None) == (not _has(shape, "state_space."))
        and _attention_is_like(model, shape) and _mlp_is_like(model, shape) and _vocab_is_like(model, shape)
    )  # fmt: skip


def _has(shape: Shape, prefix: str) -> bool:
    return any(key.startswith(prefix) for key in shape.values)


def _attention_is_like(model: ModelShape, shape: Shape) -> bool:
    mla, space = model.latent_attention, model.state_space
    if (mla is None) == _has(shape, "latent_attention."):
        return False
    if space is not None:
        stated = {key: shape.value(f"state_space.{key}") for key in _STATE_SPACE}
        if any(value not in (None, getattr(space, key)) for key, value in stated.items()):
            return False
    if mla is not None:
        return all(shape.value(f"latent_attention.{key}") == getattr(mla, key) for key in _LATENT)
    heads = shape.value("heads")
    head_dim = shape.value("head_dim") or (int(str(shape.value("hidden"))) // int(str(heads)) if heads else None)
    return shape.value("kv_heads") in (None, model.kv_heads) and head_dim in (None, model.head_dim)


def _mlp_is_like(model: ModelShape, shape: Shape) -> bool:
    experts = model.experts
    if (experts is None) == _has(shape, "experts."):
        return False
    if experts is not None:
        stated = {key: shape.value(f"experts.{key}") or other for key, other in _EXPERTS.items()}
        if any(value is not None and value != getattr(experts, key) for key, value in stated.items()):
            return False
        if not experts.first_dense_layers and experts.every_n_layers == 1:
            return True
    return shape.value("ffn") in (None, model.ffn)


def _vocab_is_like(model: ModelShape, shape: Shape) -> bool:
    vocab = shape.value("vocab")
    return vocab is None or abs(model.vocab - int(str(vocab))) <= max(shape.padding, _NEAR * model.vocab)


def _differences(model: ModelShape, shape: Shape) -> int:
    """In how much of what hardly changes memory or time a model differs from what is stated."""
    biases = shape.value("biases")
    stated = {
        "norm": model.norm, "position": model.position, "qk_norm": model.qk_norm, "activation": model.activation,
        "max_positions": model.max_positions,
    }  # fmt: skip
    found = sum(shape.value(key) not in (None, value) for key, value in stated.items())
    if isinstance(biases, tuple):
        found += ("qkv" in biases) != model.qkv_bias
        found += ("mlp" in biases) != model.mlp_bias
    if "qk_norm" not in shape.values:
        found += model.qk_norm is not None
    return found
