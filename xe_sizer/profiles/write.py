"""Profile files as they are written: YAML that people read, and the keys of a model's profile from its shape."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import NODEFAULT, to_builtins
from msgspec.structs import fields, replace

from xe_sizer.errors import Location
from xe_sizer.graph.model import ATTENDING
from xe_sizer.graph.vision import vision_parameters
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import file_name
from xe_sizer.profiles.hub import CONFIG
from xe_sizer.profiles.huggingface import SNAPSHOT, model_from_config
from xe_sizer.profiles.model import InlineModel, ModelProfile, VisionSection, inline_model, windowed_layers

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape, VisionTower
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.hub import Published

# YAML: short groups on a line, long ones in a block.

Value = object
WIDTH = 110


def scalar(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else f"{value:.6g}"
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z0-9][^:#{}\[\],&*?|<>=!%@\"'`]*[^:#{}\[\],&*?|<>=!%@\"'` ]", text)
    return text if plain and not re.fullmatch(r"[\d.+-]+(e\d+)?", text) else json.dumps(text, ensure_ascii=False)


def flow(value: Value) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value)


def lines(value: Mapping[str, Value], indent: str = "") -> Iterable[str]:
    """Block style where a line would be too long, flow style where it is not."""
    for key, item in value.items():
        one = f"{indent}{key}: {flow(item)}"
        sentences = isinstance(item, list) and any(isinstance(each, str) and " " in each for each in item)
        if len(one) <= WIDTH and not sentences:
            yield one
        elif isinstance(item, Mapping):
            yield f"{indent}{key}:"
            yield from lines(item, indent + "  ")
        elif isinstance(item, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {flow(entry)}" for entry in item)
        else:
            yield f"{indent}{key}: >-"
            folded = textwrap.wrap(str(item), WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
            yield from (f"{indent}  {line}" for line in folded)


def profile_text(profile: Mapping[str, Value]) -> str:
    return "\n".join(lines(profile)) + "\n"


def write(folder: Path, profile: Mapping[str, Value]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{profile['name']}.yaml").write_text(profile_text(profile), encoding="utf-8")


# The keys of a model's profile, from its shape.

_BIASES = (("qkv", "qkv_bias"), ("output", "output_bias"), ("mlp", "mlp_bias"), ("head", "head_bias"))


def profile_of(shape: ModelShape, **said: Any) -> dict[str, Any]:
    """What a profile says of a shape: every key whose value is not the default, with the counts of the shape.

    said : keys of the profile that a shape has not, or has otherwise (name, family, source, notes)
    Raises InputError: the shape is none that a profile can have
    """
    attends = shape.layer_pattern is None or set(shape.layer_pattern) & ATTENDING
    latent = shape.latent_attention is not None
    dense = any(kind.mlp == "dense" for kind, _ in shape.layer_kinds)
    special: dict[str, Any] = {
        "heads": shape.heads if attends else None,
        "kv_heads": None if latent or not attends else shape.kv_heads,
        "head_dim": None if latent or not attends else shape.head_dim,
        "ffn": shape.ffn if dense else None,
        "biases": [name for name, flag in _BIASES if getattr(shape, flag) and (name != "mlp" or dense)],
        "assumed": list(shape.assumptions),
        "multi_token_prediction": {"layers": shape.mtp_layers} if shape.mtp_layers else None,
    }
    if shape.sliding_window:
        special["sliding_window"] = {"tokens": shape.sliding_window, "layers": _windows(shape)}
    if shape.vision:
        special["vision"] = _vision_section(shape.vision)
    counted = count_parameters(shape)
    special["parameters"] = {"total": counted.total, "active": counted.active}
    profile: dict[str, Any] = {}
    for each in fields(ModelProfile):
        value = said[each.name] if each.name in said else special.get(each.name, getattr(shape, each.name, None))
        value = _without_defaults(value)
        if value not in (None, [], {}) and value != to_builtins(
            each.default if each.default is not NODEFAULT else None
        ):
            profile[each.name] = value
    first = ("name", "family")
    profile = {key: profile[key] for key in (*first, *(key for key in profile if key not in first))}

    def here(key_path: KeyPath, *, key: bool = False) -> Location:
        return Location(shape.name)

    inline_model(convert(profile, InlineModel, here), here)
    return profile


def _windows(shape: ModelShape) -> str:
    """The layers with a window: all, or a share, of one period where that says as much."""
    if shape.windowed_layers == shape.layers:
        return "all"
    period = shape.layers // (shape.layers - shape.windowed_layers)
    simple = f"{period - 1}-of-{period}"
    exact = period > 1 and windowed_layers(simple, shape.layers) == shape.windowed_layers
    return simple if exact else f"{shape.windowed_layers}-of-{shape.layers}"


def _without_defaults(value: Any) -> Any:
    """A part of a shape, without what its class assumes anyway."""
    if not hasattr(value, "__struct_fields__"):
        return list(value) if isinstance(value, tuple) else value
    stated = {
        each.name: getattr(value, each.name) for each in fields(value) if getattr(value, each.name) != each.default
    }
    return {key: _without_defaults(each) for key, each in stated.items() if each is not None}


def _vision_section(tower: VisionTower) -> dict[str, Any]:
    """The section of an encoder of images, of which a shape keeps the layers as a model of their own."""
    encoder = tower.encoder
    own = {key: getattr(encoder, key) for key in ("layers", "hidden", "heads", "ffn", "norm", "activation")}
    own |= {"biases": [name for name, flag in _BIASES if getattr(encoder, flag)], "fused": list(encoder.fused)}
    own |= {"learned_positions": encoder.learned_positions, "rotary": encoder.position == "rope"}
    own |= {"qk_norm": encoder.qk_norm, "first_norm": encoder.embedding_norm, "final_norm": encoder.final_norm}
    if encoder.sliding_window:
        own["window"] = {"patches": encoder.sliding_window, "layers": encoder.windowed_layers}
    sections = fields(VisionSection)
    other = {each.name: getattr(tower, each.name) for each in sections if hasattr(tower, each.name)}
    section = other | own | {"projector": _without_defaults(tower.projector), "parameters": vision_parameters(tower)}
    return {
        each.name: section[each.name] for each in sections if section.get(each.name) not in (None, [], each.default)
    }


# A profile from the configuration of a repository, and what its weights say of its size.

AGREES = 0.001  # shapes whose counts are nearer to the published ones have the published model


def compared(counted: int, published: Published | None) -> tuple[str | None, str | None]:
    """What a profile says that its count was compared with, and what to tell where the two differ or nothing was.

    counted : parameters of the language model and of the encoder of images [-]
    """
    if published is None:
        return (
            None,
            "its count is not verified: no file beside the configuration says how many parameters there are",
        )
    off = counted / published.total - 1.0
    stated = f"{published.file} has {published.total:,}"
    if abs(off) <= AGREES:
        return stated, None
    told = f"the shape has {abs(off):.2%} {'more' if off > 0 else 'fewer'}"
    return f"{stated}; {told}", f"{stated} parameters; {told}, {counted:,}{LEFT_OUT if off < 0 else ''}"


LEFT_OUT = ": towers and layers that predict further tokens are not counted, nor what the notes name"


def profile_from_config(
    config: Path, repository: str | None, published: Published | None, read_on: str, name: str | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A model's profile from a `config.json`, and what to tell of it: assumptions, and counts that differ.

    repository : that it is of on the Hub; None where only its path is known
    published : parameters of its weights. read_on : the day. name : where it is not to have its own

    Raises InputError: the configuration cannot be read, or is of a model that cannot be sized
    """
    shape, assumptions = model_from_config(config)
    called = file_name(name or (repository or shape.name).rpartition("/")[2])
    shape = replace(shape, name=called, assumptions=assumptions)
    snapshot = config.parent.name if SNAPSHOT.fullmatch(config.parent.name) else ""
    title = f"{CONFIG} of {repository}" if repository else str(config)
    source = {"title": f"{title}, revision {snapshot[:12]}" if snapshot else title}
    if repository:
        source["url"] = f"https://huggingface.co/{repository}"
    counted = count_parameters(shape).total + (vision_parameters(shape.vision) if shape.vision else 0)
    stated, differs = compared(counted, published)
    source |= {"parameters": stated} if stated else {}
    source["read_on"] = read_on
    profile = profile_of(shape, hugging_face=repository, source=source)
    return profile, (*assumptions, *((differs,) if differs else ()))
