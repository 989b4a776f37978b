"""Model profiles: from a name, an alias or a path to the shape of a model.

Besides the profiles (`<name>.yaml`), a folder `model_profiles/` may hold `aliases.yaml` (other names of the
profiles).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from xe_sizer.errors import InputError, Problem, place_of
from xe_sizer.graph.model import (
    Experts,
    Generator,
    GlobalAttention,
    LatentAttention,
    ModelShape,
    SparseIndexer,
    StateSpace,
)
from xe_sizer.graph.parameters import count_parameters
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.finder import is_path, is_repository
from xe_sizer.profiles.hub import CONFIG, Hub, repository_of
from xe_sizer.profiles.model_schema import ModelProfile
from xe_sizer.profiles.source import PATH_HINT, load_yaml, name_problems
from xe_sizer.profiles.text_file import at_home
from xe_sizer.profiles.vision import tower_of, vision_contradictions

if TYPE_CHECKING:
    from xe_sizer.errors import Where
    from xe_sizer.profiles.convert import KeyPath, Locate
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.profiles.model_schema import InlineModel, ModelKeys, Parameters

COUNT_TOLERANCE = 0.005
# Folders that hold the checkpoints of whatever model: of trainers, of converters, and of download caches.
_ANY_MODELS = re.compile(
    r"(checkpoint|ckpt|iter|global_?step|step|epoch)s?([-_]?\d+)*|final|last|best|latest|original|merged|models?|weights"
    r"|hf|huggingface|hf_model|safetensors|snapshots|[0-9a-f]{40}|actor|critic|policy|output|mcore|torch_dist|dist_ckpt"
    r"|release|main",
    re.IGNORECASE,
)
_SHARE = re.compile(r"([0-9]{1,3})-of-([0-9]{1,3})")


def load_model_profile(path: Path, *, instructed: bool = False) -> ModelShape:
    """The shape that a profile describes; its parameter counts are recomputed from the shape.

    instructed : whether the weights are those tuned to follow instructions, whose longest sequence may be another

    Raises
    ------
    InputError    unreadable or wrong profile (every problem), or counts that are off by more than 0.5 %
                  without a `parameters_note` that says why
    """
    document = load_yaml(path)
    profile = convert(document.value, ModelProfile, document.locate)
    problems = [Problem(text, document.locate(key)) for key, text in _contradictions(profile)]
    problems += name_problems(profile.name, document)
    if instructed and profile.instruct_positions:
        profile = msgspec.structs.replace(profile, max_positions=profile.instruct_positions)
    shape = None if problems else shape_of(profile)
    if shape and not profile.parameters_note:
        problems = list(_wrong_counts(profile.parameters, shape, document.locate))
    if problems or not shape:
        raise InputError(problems)
    return shape


def inline_model(model: InlineModel, locate: Locate) -> ModelShape:
    """The shape that a scenario writes out; without a name it is called by its size.

    locate : says where a key of the model stands

    Raises
    ------
    InputError    figures that cannot be true together; stated counts that are off by more than 0.5 % without a
                  `parameters_note` that says why
    """
    problems = [Problem(text, locate(key)) for key, text in _contradictions(model)]
    shape = None if problems else _inline_shape(model)
    if shape and model.parameters and not model.parameters_note:
        problems = list(_wrong_counts(model.parameters, shape, locate))
    if problems or not shape:
        raise InputError(problems)
    return shape


@lru_cache(maxsize=64)
def _inline_shape(model: InlineModel) -> ModelShape:
    """The same object for the same keys: what is computed of a model is kept with it."""
    name = model.name or f"custom ({model.layers} layers, hidden {model.hidden})"
    return shape_of(msgspec.structs.replace(model, name=name))


def shape_of(profile: ModelKeys) -> ModelShape:
    """A profile with nothing left open: the model that the operator graph is built from."""
    same = {field.name for field in fields(ModelShape)}
    stated = msgspec.structs.asdict(profile)
    values: dict[str, Any] = {key: value for key, value in stated.items() if key in same}
    window = profile.sliding_window
    values |= {
        "heads": _heads(profile),
        "kv_heads": profile.kv_heads or _heads(profile),
        "ffn": profile.ffn or 0,
        "head_dim": _head_dim(profile),
        "qkv_bias": "qkv" in profile.biases,
        "output_bias": "output" in profile.biases,
        "mlp_bias": "mlp" in profile.biases,
        "head_bias": "head" in profile.biases,
        "sliding_window": window.tokens if window else None,
        "windowed_layers": windowed_layers(window.layers, profile.layers) if window else 0,
        "global_attention": _section(profile.global_attention, GlobalAttention),
        "latent_attention": _section(profile.latent_attention, LatentAttention),
        "indexer": _section(profile.indexer, SparseIndexer),
        "experts": _section(profile.experts, Experts),
        "state_space": _section(profile.state_space, StateSpace),
        "generator": _section(profile.generator, Generator),
        "vision": tower_of(profile.vision) if profile.vision else None,
        "assumptions": (profile.parameters_note,) if profile.parameters_note else (),
    }
    return ModelShape(**values)


def windowed_layers(pattern: str, layers: int) -> int:
    """Layers that look back a window only. The last layer of each period of "5-of-6" sees everything."""
    if pattern == "all":
        return layers
    windowed, period = (1, 2) if pattern == "alternate" else map(int, pattern.split("-of-"))
    return layers - layers // period * (period - windowed)


def resolve_model(name_or_path: str, finder: Finder, where: Where = None, hub: Hub | None = None) -> ModelShape:
    """The model that a user names: a profile, an alias, a repository on the Hub, or the path of one of their files.

    Parameters
    ----------
    name_or_path    a name as people write it (`Finder.find`), a repository on the Hub, a profile's YAML file, a
                    `config.json`, a folder with a `config.json`, or a path that is not there and ends in a model's name
    finder          knows the folders with profiles; the first that knows the name wins
    where           what a problem points at: the place of the name in the scenario, a flag
    hub             where configurations of repositories are that no profile is for

    Raises
    ------
    InputError    unknown name (with the nearest known ones), a name of several models, a wrong file
    """
    path = at_home(name_or_path)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return _shape_from_file(path, where)
    if is_path(name_or_path) and _is_folder(path):
        return _shape_from_folder(path, name_or_path, finder, where)
    hub, repository = hub or Hub(), repository_of(name_or_path)
    cached = hub.cached(repository) if repository else None
    try:
        found = model_file(name_or_path, finder, where)
    except InputError:
        if not cached:
            raise
        found = None
    if not found and name_or_path.strip() and _is_folder(path):
        return _shape_from_folder(path, name_or_path, finder, where)
    found = found or (None if cached else _file_of_last_part(name_or_path, finder))
    if found:
        return load_model_profile(found, instructed="instruct" in name_or_path.lower())
    config = cached or (hub.config(repository, where) if repository else None)
    if config and repository:
        return _shape_of_repository(config, repository)
    raise InputError(_unknown(name_or_path, finder, where, hub if repository else None))


def model_file(name: str, finder: Finder, where: Where = None) -> Path | None:
    """The profile of a name, or of the model that it is another name of; None when there is none. Raises InputError."""
    return None if is_path(name) and not is_repository(name) else finder.find("model", name, where)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long, or that no path can have
        return False


def _file_of_last_part(name: str, finder: Finder) -> Path | None:
    """The profile that the last part of a path means, behind names of folders that any model has; None: none alone."""
    parts = [part for part in re.split(r"[/\\]", name) if part]
    while len(parts) > 1 and _ANY_MODELS.fullmatch(parts[-1]):
        parts.pop()
    last = parts[-1].rpartition("--")[2] if parts else ""
    if not last or last == name:
        return None
    with suppress(InputError):
        found = finder.find("model", last)
        if found:
            finder.readings.pop(("model", last), None)
            finder.readings["model", name] = found.stem
        return found
    return None


def _unknown(name: str, finder: Finder, where: Where, hub: Hub | None) -> Problem:
    """What to say of a name that leads nowhere. hub : where the configuration of a repository of that name is not"""
    near = finder.suggestion("model", name)
    if hub is None:
        return Problem(f"unknown model '{name}'", place_of(where), near)
    message = f"unknown model '{name}': {CONFIG} of {repository_of(name)} is not on this machine"
    return Problem(message, place_of(where), f"{hub.how}; {near}")


def _shape_from_folder(path: Path, name: str, finder: Finder, where: Where) -> ModelShape:
    """The model whose configuration lies in a folder; without one, that which the folder is called after."""
    named = None if (path / CONFIG).is_file() else _file_of_last_part(name, finder)
    return load_model_profile(named) if named else _shape_from_file(path / CONFIG, where)


def _shape_of_repository(config: Path, repository: str) -> ModelShape:
    shape = _shape_from_file(config, None)
    assumptions = (f"no profile has this name; its shape is that of {config}", *shape.assumptions)
    return replace(shape, name=repository.rpartition("/")[2], assumptions=assumptions)


def published_as(name: str, finder: Finder) -> str | None:
    """The repository on the Hugging Face Hub that a profile names; None where it names none. Raises InputError."""
    found = model_file(name, finder)
    profile = load_yaml(found).value if found else None
    return profile.get("hugging_face") if isinstance(profile, dict) else None


def _shape_from_file(path: Path, where: Where) -> ModelShape:
    if not path.is_file():
        raise InputError(Problem(f"no such file: {path}", place_of(where), PATH_HINT))
    if path.suffix.lower() != ".json":
        return load_model_profile(path)
    from xe_sizer.profiles.huggingface import model_from_config

    shape, assumptions = model_from_config(path)
    return replace(shape, assumptions=assumptions)


def _section(section: msgspec.Struct | None, shape_type: Any) -> Any:
    return shape_type(**msgspec.structs.asdict(section)) if section else None


def _head_dim(profile: ModelKeys) -> int:
    latent = profile.latent_attention
    if latent:
        return latent.qk_nope_head_dim + latent.qk_rope_head_dim
    return profile.head_dim or profile.hidden // _heads(profile)


def _heads(profile: ModelKeys) -> int:
    """Attention heads; without attention what tensor parallelism splits instead, heads or channels of the state."""
    space = profile.state_space
    return profile.heads or (space.heads or space.inner if space else 1)


def _contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """Figures of a profile that cannot be true together, each with the key to point at."""
    heads, window = _heads(profile), profile.sliding_window
    if profile.kv_heads and heads % profile.kv_heads:
        yield ("kv_heads",), f"'heads' ({heads}) must be a multiple of 'kv_heads' ({profile.kv_heads})"
    if not profile.head_dim and not profile.latent_attention and profile.heads and profile.hidden % heads:
        text = f"'hidden' ({profile.hidden}) is not a multiple of 'heads' ({heads}); give 'head_dim'"
        yield ("heads",), text
    if profile.kv_layers and profile.kv_layers > profile.layers:
        yield ("kv_layers",), f"'kv_layers' ({profile.kv_layers}) is more than 'layers' ({profile.layers})"
    if profile.position == "learned" and not profile.learned_positions:
        yield ("position",), "learned positions need 'learned_positions', the rows of their table"
    if profile.indexer and not profile.latent_attention:
        yield ("indexer",), "an 'indexer' needs 'latent_attention'"
    if window and not _is_window_pattern(window.layers):
        text = f"'layers' must be all, alternate or a share such as 5-of-6, not '{window.layers}'"
        yield ("sliding_window", "layers"), text
    yield from _expert_contradictions(profile)
    yield from vision_contradictions(profile)
    yield from _pattern_contradictions(profile)
    yield from _half_contradictions(profile)


def _half_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """What cannot be true together of an encoder, and of the halves of an encoder-decoder."""
    if profile.encoder_layers >= profile.layers:
        text = (
            f"'encoder_layers' ({profile.encoder_layers}) must leave some of the {profile.layers} layers to the decoder"
        )
        yield ("encoder_layers",), text
    if profile.encoder_layers and (profile.bidirectional or profile.layer_pattern or profile.experts):
        yield ("encoder_layers",), "an encoder-decoder has neither 'bidirectional', 'layer_pattern' nor 'experts' here"
    if profile.generator and not profile.bidirectional:
        yield ("generator",), "a 'generator' replaces tokens for an encoder, which is 'bidirectional'"
    if profile.generator and profile.generator.hidden % profile.generator.heads:
        text = f"'hidden' ({profile.generator.hidden}) is not a multiple of 'heads' ({profile.generator.heads})"
        yield ("generator", "heads"), text
    if profile.position == "relative" and not (profile.relative_buckets or profile.disentangled_positions):
        yield (
            ("position",),
            "relative positions need 'relative_buckets' or 'disentangled_positions', rows of their table",
        )


def _expert_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """A token picks no more experts and groups than there are, in layers that there are."""
    experts = profile.experts
    if experts is None:
        return
    if experts.per_token > experts.count:
        text = f"'per_token' ({experts.per_token}) is more than the 'count' of experts ({experts.count})"
        yield ("experts", "per_token"), text
    if experts.groups_per_token > experts.groups:
        text = f"'groups_per_token' ({experts.groups_per_token}) is more than the 'groups' ({experts.groups})"
        yield ("experts", "groups_per_token"), text
    if experts.first_dense_layers > profile.layers:
        text = f"'first_dense_layers' ({experts.first_dense_layers}) is more than 'layers' ({profile.layers})"
        yield ("experts", "first_dense_layers"), text


def _pattern_contradictions(profile: ModelKeys) -> Iterator[tuple[KeyPath, str]]:
    """What a layer pattern, or attention with a dense MLP in every layer, needs besides."""
    pattern, single = profile.layer_pattern, profile.norms_per_layer == 1
    letters = set(pattern or "*")
    if pattern and len(pattern) != profile.layers:
        yield ("layer_pattern",), f"'layer_pattern' has {len(pattern)} letters for {profile.layers} layers"
    if letters & {"-", "E"} and not single:
        yield ("layer_pattern",), "layers of a single block (- and E) need 'norms_per_layer: 1'"
    if "M" in letters and not profile.state_space:
        yield ("layer_pattern",), "layers with letter M need a 'state_space' section"
    if ("G" in letters) != (profile.global_attention is not None):
        yield ("layer_pattern",), "layers with letter G and a 'global_attention' section need each other"
    if "G" in letters and not profile.sliding_window:
        yield ("layer_pattern",), "beside layers with letter G all others need a 'sliding_window'"
    if letters & {"*", "G"} and not profile.heads:
        yield ("layers",), "layers with attention need 'heads'"
    if "E" in letters and not profile.experts:
        yield ("layer_pattern",), "layers with letter E need an 'experts' section"
    dense = "-" in letters if pattern and single else not profile.experts or profile.experts.first_dense_layers > 0
    if dense and not profile.ffn:
        yield ("layers",), "layers with a dense MLP need 'ffn'"


def _is_window_pattern(pattern: str) -> bool:
    share = _SHARE.fullmatch(pattern)
    return pattern in ("all", "alternate") or (share is not None and 0 < int(share[1]) < int(share[2]))


def _wrong_counts(stated_counts: Parameters, shape: ModelShape, locate: Locate) -> Iterator[Problem]:
    counted = count_parameters(shape)
    for key in ("total", "active"):
        stated, found = getattr(stated_counts, key), getattr(counted, key)
        if abs(found - stated) > COUNT_TOLERANCE * stated:
            off = f"{found / stated - 1:+.2%} against the stated {stated:,}"
            text = f"the shape has {found:,} parameters ({key}), {off}"
            hint = "correct the shape or the count, or say why they differ in 'parameters_note'"
            yield Problem(text, locate(("parameters", key)), hint)
