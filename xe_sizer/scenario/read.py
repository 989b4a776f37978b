"""One question, merged from a scenario file, the environment and the command line; nothing resolved yet."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin

from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean, file_order
from xe_sizer.frozen import frozen
from xe_sizer.profiles.convert import convert_what_is_right
from xe_sizer.profiles.fields import fields_of, struct_in
from xe_sizer.profiles.source import convert, load_yaml, parse_scalar
from xe_sizer.profiles.text_file import MAX_JOB_BYTES
from xe_sizer.scenario.checks import contradictions
from xe_sizer.scenario.jobs import INFERENCE
from xe_sizer.scenario.keys import NAMED_OR_GROUPS
from xe_sizer.scenario.options import (
    ALL_OPTIONS,
    COMMAND_LINE,
    OPTION_OF,
    OTHER_VARIABLES,
    PREFIX,
    variable_name,
    variables,
)
from xe_sizer.scenario.schema import ScenarioFile
from xe_sizer.scenario.serve_section import LOADS
from xe_sizer.scenario.written import as_meant

if TYPE_CHECKING:
    from xe_sizer.profiles.source import Document, KeyPath, Locate
    from xe_sizer.scenario.caller import Caller

__all__ = [
    "INFERENCE",
    "REPLACES",
    "BadScenarioError",
    "Given",
    "ScenarioFile",
    "read_scenario",
    "scenario_of_call",
    "serves",
]


# A key from a flag or variable takes the place of the keys that say the same in another way.
_STATISTICS = (
    "samples", "mean_tokens", "chosen_tokens", "rejected_tokens", "min_tokens", "max_tokens", "tokens", "histogram",
)  # fmt: skip


def _other_loads(load: str) -> tuple[str, ...]:
    """The keys that say another load than this one."""
    thinking = () if load == "users" else ("think_time_s",)
    return (*(other for other in LOADS if other != load), *thinking)


REPLACES: Mapping[str, tuple[str, ...]] = {
    "server": ("gpu",),
    "gpu": ("server",),
    "gpus": ("nodes",),
    "nodes": ("gpus",),
    "train.steps": ("train.epochs",),
    "train.epochs": ("train.steps",),
    "train.global_batch": ("train.grad_accum",),
    "data.profile": ("data.file", *(f"data.{name}" for name in _STATISTICS)),
    "data.file": ("data.profile", *(f"data.{name}" for name in _STATISTICS)),
    "data.mean_tokens": ("data.histogram",),
    "data.chosen_tokens": ("data.histogram",),
    "data.rejected_tokens": ("data.histogram",),
    "data.min_tokens": ("data.histogram",),
    "data.max_tokens": ("data.histogram",),
    "efficiency.ideal": ("efficiency.flops", "efficiency.memory"),
    "efficiency.flops": ("efficiency.ideal",),
    "efficiency.memory": ("efficiency.ideal",),
    "serve.scheme": ("serve.weights", "serve.activations", "serve.kv_cache"),
    **{f"serve.{load}": tuple(f"serve.{other}" for other in _other_loads(load)) for load in LOADS},
}
_TWO_OF_THREE = ("data.tokens", "data.samples", "data.mean_tokens")


@frozen
class Given:
    """What the user asked, merged from file, environment and flags; nothing resolved yet.

    `origin` has "file", "env" or "flag" for each dotted key that was given. `locate` gives file:line:column,
    or the name of the flag or variable, of a path. `path` with the `document` read from it, `flags` and `environment`
    are what was merged. `caller` says how messages name the flags.
    `unread` has the dotted keys that were given and are not in `values`: unknown keys, values with a problem.
    `read_as` has the dotted keys whose value was written otherwise than the schema has it, with both; `with_unit` those
    of numbers that were written with a unit.
    """

    values: ScenarioFile
    origin: Mapping[str, str]
    locate: Locate
    path: Path | None
    flags: Mapping[str, object]
    environment: Mapping[str, str]
    unread: frozenset[str] = frozenset()
    document: Document | None = None
    caller: Caller = COMMAND_LINE
    read_as: Mapping[str, tuple[str, object]] = field(default_factory=dict)
    with_unit: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path | None:
        """Folder of the scenario file."""
        return self.path.parent if self.path else None

    def folder_for(self, key: str) -> Path | None:
        """Where a relative path in a dotted key starts: None (the current folder) for flags and variables."""
        return self.folder if self.origin.get(key) == "file" else None


def serves(given: Given) -> bool:
    """Whether a scenario asks for inference: its job says so, or its file has a `serve` section and names no job."""
    if given.values.job is not None:
        return given.values.job == INFERENCE
    return any(key.startswith("serve.") and origin == "file" for key, origin in given.origin.items())


class BadScenarioError(InputError):
    """A scenario with problems in its keys; `rest` is what could be read of it, to look for further problems."""

    def __init__(self, problems: Iterable[Problem], rest: Given) -> None:
        super().__init__(problems)
        self.rest = rest


def load_scenario(path: Path) -> Document:
    """A scenario file as it is written. Raises InputError: as `load_yaml`, and for more than MAX_JOB_BYTES."""
    return load_yaml(path, most_bytes=MAX_JOB_BYTES)


def read_scenario(
    path: Path | None,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    read: Callable[[Path], Document] = load_scenario,
) -> Given:
    """Merge a scenario file with XE_SIZER_* variables and flags; flag over variable over file.

    Parameters
    ----------
    path           the scenario file, or None when flags and variables say everything
    flags          typed value by dotted key; None means not given; a list may be comma-separated text
    environment    such as os.environ
    read           what reads the file

    Raises
    ------
    BadScenarioError    with every problem of the keys in the file, the variables and the flags
    InputError     with every problem of the file's syntax
    """
    problems: list[Problem] = []
    document = None
    with collecting(problems):
        document = read(path) if path else None
    variables = _read_variables(environment, problems)
    if problems and path and not document:
        raise InputError(problems)
    return _merge(_Layers(document, variables, flags, COMMAND_LINE), environment, problems)


def scenario_of_call(document: Document | None, keys: Mapping[str, object], caller: Caller) -> Given:
    """A scenario file that was read, or None, under typed values by dotted key. Raises BadScenarioError."""
    return _merge(_Layers(document, {}, keys, caller), {}, [])


def with_flags(given: Given, flags: Mapping[str, object]) -> Given:
    """The same file and variables under other flags. Raises BadScenarioError."""
    problems: list[Problem] = []
    variables = _read_variables(given.environment, problems)
    return _merge(_Layers(given.document, variables, flags, given.caller), given.environment, problems)


@frozen
class _Layers:
    """What is merged, from below: the file, the variables and the flags by dotted key; and who gave the flags."""

    document: Document | None
    variables: Mapping[str, object]
    flags: Mapping[str, object]
    caller: Caller


def _merge(layers: _Layers, environment: Mapping[str, str], problems: list[Problem]) -> Given:
    """Flag over variable over file. Raises BadScenarioError with the problems so far and those of the keys."""
    document, flags = layers.document, layers.flags
    merged = copy.deepcopy(cast(dict[str, Any], document.value)) if document else {}
    origin = {key: document.origins.get(key, "file") for key in _given_keys(merged)} if document else {}
    _overlay(merged, origin, layers.variables, "env")
    typed = {key: _typed_flag(key, value) for key, value in flags.items() if value is not None}
    _overlay(merged, origin, typed, "flag")
    locate = _Places(document, origin, layers.caller)
    written = as_meant(merged, ScenarioFile, locate)
    problems += written.problems
    given = partial(
        Given, origin=MappingProxyType(origin), locate=locate, path=document.path if document else None, flags=flags,
        environment=environment, document=document, caller=layers.caller, read_as=written.read,
        with_unit=written.with_unit,
    )  # fmt: skip
    try:
        values = convert(written.values, ScenarioFile, locate)
    except InputError as error:
        from xe_sizer.scenario.foreign import in_our_words  # most scenarios have no problem

        problems += (in_our_words(problem, ALL_OPTIONS) for problem in error.problems)
    problems += contradictions(written.values, locate)
    if not problems:
        return given(values=values)
    values = convert_what_is_right(written.values, ScenarioFile, locate)
    unread = frozenset(key for key in _given_keys(merged) if _at(values, key) is None)
    raise BadScenarioError(sorted(problems, key=file_order), given(values=values, unread=unread))


def _at(values: object, key: str) -> object:
    """The value of a dotted key; None for keys that are not there or not known."""
    for part in key.split("."):
        values = getattr(values, part, None)
    return values


@frozen
class _Places:
    """Locations after the merge: the flag or variable that set a key, else its place in the file."""

    document: Document | None
    origin: Mapping[str, str]
    caller: Caller

    def __call__(self, key_path: KeyPath, *, key: bool = False) -> Location:
        dotted = ".".join(str(part) for part in key_path[:2])
        for name in (dotted, str(key_path[0]) if key_path else ""):
            if self.origin.get(name) == "flag":
                return Location(self.caller.place(name))
            if self.origin.get(name) == "env":
                return Location(variable_name(OPTION_OF[name]))
        return self.document.locate(key_path, key=key) if self.document else Location(self.caller.name)


def _read_variables(environment: Mapping[str, str], problems: list[Problem]) -> dict[str, object]:
    """Values by dotted key; unknown names and bad scalars are added to the problems."""
    known = variables()
    found: dict[str, object] = {}
    for name in sorted(name for name in environment if name.startswith(PREFIX)):
        text = environment[name].strip()
        if name in OTHER_VARIABLES or (name in known and not text):
            continue
        if name not in known:
            hint = did_you_mean(name, [*known, *OTHER_VARIABLES])
            problems.append(Problem("unknown environment variable", Location(name), hint))
            continue
        try:
            found[known[name]] = _typed_variable(known[name], text)
        except InputError as error:
            problems += [Problem(problem.message, Location(name), problem.hint) for problem in error.problems]
    return found


def _typed_variable(key: str, text: str) -> object:
    kind = _kind(key)
    if kind is tuple:
        return _split(text, key)
    return text if kind is str else parse_scalar(text)


def _typed_flag(key: str, value: object) -> object:
    if _kind(key) is tuple:
        return _split(value, key) if isinstance(value, str) else value
    return value


def _split(text: str, key: str) -> list[object]:
    """The items of a list between commas, numbers where the key has numbers."""
    parts = [part.strip() for part in text.split(",")]
    return [parse_scalar(part) for part in parts] if key in NUMBERS else list(parts)


NUMBERS = frozenset({"serve.hourly_load", "train.batch_ramp_up", "layout.stages"})
"""Keys that are lists of numbers."""


@cache
def _kind(key: str) -> type:
    """Whether a key holds text (str), a list (tuple) or a number or bool (object)."""
    type_: Any = ScenarioFile
    for part in key.split("."):
        field = fields_of(struct_in(type_)).get(part)
        if field is None:
            return object  # unknown, which convert reports
        type_ = field.type
    while get_args(type_) and get_origin(type_) not in (Literal, tuple):
        type_ = type_.__origin__ if get_origin(type_) is Annotated else get_args(type_)[0]
    if get_origin(type_) is Literal:
        return str if isinstance(get_args(type_)[0], str) else object
    return tuple if get_origin(type_) is tuple else type_ if type_ is str else object


def _overlay(merged: dict[str, Any], origin: dict[str, str], layer: Mapping[str, object], name: str) -> None:
    """Put a layer over what is merged so far, and take out what it replaces."""
    for replaced in _replaced(origin, layer):
        _remove(merged, origin, replaced)
    for key, value in layer.items():
        section, _, last = key.rpartition(".")
        holder = merged
        if section:
            if merged.get(section) is None:
                merged[section] = {}
            holder = merged[section]
        if isinstance(holder, dict):  # else the file has no group of keys here, which convert reports
            holder[last] = value
            origin[key] = name
    if any(key in layer for key in _TWO_OF_THREE) and all(key in origin for key in _TWO_OF_THREE):
        _remove(merged, origin, next((key for key in _TWO_OF_THREE if key not in layer), ""))


def _replaced(origin: Mapping[str, str], layer: Mapping[str, object]) -> list[str]:
    """Keys below a layer that its keys take the place of; a switch that is off replaces nothing."""
    said = [one for key, value in layer.items() if value is not False for one in REPLACES.get(key, ())]
    said += [key for key in origin if any(in_place_of(name, key) for name in layer)]
    return [key for key in said if key not in layer]


def in_place_of(name: str, key: str) -> bool:
    """Whether a key takes the place of another: a name of the keys of its group, and these of the name."""
    shorter, longer = sorted((name, key), key=len)
    return shorter in NAMED_OR_GROUPS and longer.startswith(f"{shorter}.")


def _remove(merged: dict[str, Any], origin: dict[str, str], key: str) -> None:
    section, _, last = key.rpartition(".")
    holder = merged.get(section) if section else merged
    if isinstance(holder, dict):
        holder.pop(last, None)
    origin.pop(key, None)


def _given_keys(merged: Mapping[str, Any]) -> Iterator[str]:
    for key, value in merged.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner, item in value.items() if item is not None)
        elif value is not None:
            yield key
