"""The model of a record: looked up, changed where the record says so, or built from its shape or its size."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.errors import InputError
from xe_sizer.evidence.names import names, plain
from xe_sizer.evidence.record_parts import Shape
from xe_sizer.frozen import frozen
from xe_sizer.graph.parameters import count_parameters

if TYPE_CHECKING:
    from xe_sizer.evidence.records import Record
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.profiles.registry import Registry

SUFFIXES = re.compile(r"[-_](instruct|chat|it|base|hf|sft)$")
CUT = re.compile(r"(-\d+-?layers?)?(-\d+-?experts?)?$")  # a benchmark's small version of a known model
SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s*([bmt])(?![a-z0-9])")
MIXTURE = re.compile(r"moe|expert|\d+x\d+b|a\d+(?:\.\d+)?[bm]")
TOTAL_AND_ACTIVE = re.compile(r"(\d+(?:\.\d+)?)([bm])-a?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}
# Hidden size over layers of the GPT-3 family (96 of 12,288) and its parameters per layer and squared hidden size
# (4 for attention, 8 for the MLP; Brown et al. 2020, table 2.1).
ASPECT = 128
PARAMETERS_PER_LAYER = 12
HEAD_DIM = 128


@frozen
class Model:
    """A shape under the name that the scenario asks for, and what was assumed."""

    name: str
    shape: ModelShape
    assumed: tuple[str, ...] = ()


def model_of(record: Record, registry: Registry) -> Model:
    """The model of a record: by name, else from its stated shape, else from the size in its name.

    Raises
    ------
    InputError : a model that cannot be sized, or of which neither name, shape nor size says enough
    """
    try:
        known = _known(record.model or "", registry)
    except InputError as error:
        return _built(record, registry, error)
    changed = _overridden(known, record.shape)
    return Model(known.name if changed is known else _own_name(record), changed)


def _known(name: str, registry: Registry) -> ModelShape:
    """The registry's model of that name, of the name without its owner, what a fine-tune adds or what was cut."""
    last = plain(name.rsplit("/", 1)[-1])
    errors = []
    for candidate in dict.fromkeys((name.strip().lower(), last, SUFFIXES.sub("", last), CUT.sub("", last))):
        try:
            return registry.model(candidate)
        except InputError as error:
            errors.append(error)
    raise errors[0]


def _own_name(record: Record) -> str:
    sizes = {key: value for key, value in msgspec.structs.asdict(record.shape).items() if value is not None}
    return f"{record.model} with " + ", ".join(f"{key} {value:g}" for key, value in sizes.items())


def _overridden(known: ModelShape, stated: Shape) -> ModelShape:
    """A known model with the sizes that the record states differently; a new width brings its own heads along."""
    sizes: dict[str, Any] = {
        name: getattr(stated, name)
        for name in ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
        if getattr(stated, name) not in (None, getattr(known, name))
    }
    known = known.with_layers(stated.layers or known.layers)
    if known.experts:
        count = known.experts.count if stated.experts is None else stated.experts
        per_token = min(stated.experts_per_token or known.experts.per_token, count)
        experts = replace(known.experts, count=count, per_token=per_token)
        sizes |= {"experts": experts} if experts != known.experts else {}
    if not sizes:
        return known
    if {"hidden", "heads"} & set(sizes) and stated.head_dim is None:
        heads = sizes.get("heads", known.heads)
        sizes["head_dim"] = sizes.get("hidden", known.hidden) // heads
        if stated.kv_heads is None and (known.kv_heads == known.heads or heads % known.kv_heads):
            sizes["kv_heads"] = heads
    return replace(known, **sizes)


def _built(record: Record, registry: Registry, unknown: InputError) -> Model:
    """A model with the proportions of its family, of the stated shape or of the size in its name."""
    name = (record.model or "").lower()
    mixture = _mixture(record, registry)
    if mixture is not None:
        return mixture
    template = registry.model(_nearest(names().families, name))
    stated, size = record.shape, record.shape.params or _size(name)
    if MIXTURE.search(name) or template.experts or (not size and not (stated.layers and stated.hidden)):
        raise unknown
    hidden = stated.hidden or _usual_hidden(size or 0.0)
    layers = stated.layers or _layers(size or 0.0, hidden, stated.vocab or template.vocab)
    heads = stated.heads or max(hidden // HEAD_DIM, 1)
    ratio = template.ffn / template.hidden
    sizes: dict[str, Any] = {
        "name": record.model or "",
        "hidden": hidden,
        "heads": heads,
        "kv_heads": stated.kv_heads or heads,
        "head_dim": stated.head_dim or hidden // heads,
        "ffn": stated.ffn or round(ratio * hidden / 64) * 64,
        "vocab": stated.vocab or template.vocab,
        "released": None,
        "assumptions": (),
    }
    missing = [key for key in ("layers", "hidden", "heads") if getattr(stated, key) is None]
    what = f"; {', '.join(missing)} from its size" if missing else ""
    text = f"model '{record.model}' built with the blocks of {template.name}{what}"
    return Model(_own_name(record), replace(template.with_layers(layers), **sizes), (text,))


def _nearest(table: Mapping[str, str], name: str) -> str:
    """The entry whose key is the longest beginning of the name."""
    return table[max((start for start in table if name.startswith(start)), key=len)]


def _mixture(record: Record, registry: Registry) -> Model | None:
    """A mixture of experts of the total and active size in its name, in the proportions of a known one.

    All widths and the depth grow with the cube root of the size, experts a token with the active share. None where the
    name does not say both sizes, or where the record has sizes of its own.
    """
    name = (record.model or "").lower()
    found = TOTAL_AND_ACTIVE.search(name.replace("_", "-"))
    if found is None or record.shape != Shape():
        return None
    total, active = (float(found[place]) * UNITS[found[place + 1]] for place in (1, 3))
    template = registry.model(_nearest(names().mixtures, name))
    count, experts = count_parameters(template), template.experts
    assert experts is not None
    scale = math.cbrt(total / count.total)
    hidden = max(round(template.hidden * scale / HEAD_DIM), 1) * HEAD_DIM
    heads = max(hidden // template.head_dim, template.kv_heads)
    per_token = round(experts.per_token * (active / total) / (count.active / count.total))
    shape = replace(
        template.with_layers(max(round(template.layers * scale), 1)),
        name=record.model or "",
        hidden=hidden,
        heads=heads - heads % template.kv_heads,
        experts=replace(experts, ffn=round(experts.ffn * scale), per_token=min(max(per_token, 1), experts.count)),
        released=None,
        assumptions=(),
    )
    return Model(_own_name(record), shape, (f"model '{record.model}' built in the proportions of {template.name}",))


def _size(name: str) -> float | None:
    found = SIZE.search(name.replace("_", "-"))
    return float(found[1]) * UNITS[found[2]] if found else None


def _usual_hidden(size: float) -> int:
    """Hidden size of a GPT of that many parameters [-]: N = 12 L h^2 with h = 128 L, in steps of 1,024 (256)."""
    exact = math.cbrt(size * ASPECT / PARAMETERS_PER_LAYER)
    step = 1024 if exact > 3072 else 256
    return max(round(exact / step), 1) * step


def _layers(size: float, hidden: int, vocab: int) -> int:
    """Layers that make up the size beside the embedding [-], an even number, of eight in large models."""
    exact = max(size - vocab * hidden, 0.5 * size) / (PARAMETERS_PER_LAYER * hidden**2)
    step = 8 if exact > 24 else 2
    return max(round(exact / step), 1) * step
