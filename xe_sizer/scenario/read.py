"""One question, merged from a scenario file, the environment and the command line; nothing resolved yet."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean, file_order
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import convert, convert_what_is_right, show
from xe_sizer.profiles.text import MAX_JOB_BYTES, parse_scalar
from xe_sizer.profiles.yaml_reader import Document, load_yaml
from xe_sizer.scenario.conflicts import RULES, Keys, conflicts
from xe_sizer.scenario.options import (
    ALL_OPTIONS,
    COMMAND_LINE,
    OPTION_OF,
    OTHER_VARIABLES,
    PREFIX,
    variable_name,
    variables,
)
from xe_sizer.scenario.quantities import as_meant
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.scenario.schema import BATCH_PARTS, EXTENDS, KEYS, LOADS, NAMED_OR_GROUPS, ScenarioFile, free_keys

if TYPE_CHECKING:
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.yaml_reader import Places
    from xe_sizer.scenario.caller import Caller

# A key from a flag or variable takes the place of the keys that say the same in another way.
_STATISTICS = (
    "samples", "mean_tokens", "chosen_tokens", "rejected_tokens", "min_tokens", "max_tokens", "tokens", "histogram",
)  # fmt: skip
_OF_LOADS = (*LOADS, "think_time_s")
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
    **{f"serve.{load}": tuple(f"serve.{other}" for other in _OF_LOADS if other != load) for load in LOADS},
    "serve.users": tuple(f"serve.{other}" for other in LOADS if other != "users"),  # and `think_time_s` stays
}
_TWO_OF_THREE = ("data.tokens", "data.samples", "data.mean_tokens")


class BadScenarioError(InputError):
    """A scenario with problems in its keys; `rest` is what could be read of it, to look for further problems."""

    def __init__(self, problems: Iterable[Problem], rest: Scenario) -> None:
        super().__init__(problems)
        self.rest = rest


def load_scenario(path: Path) -> Document:
    """A scenario file as it is written, over the one that it extends.

    Raises InputError: as `load_yaml`, for more than MAX_JOB_BYTES, and where `extends` names no file or goes in a
    circle
    """
    return _extended(load_yaml(path, most_bytes=MAX_JOB_BYTES), ())


def _extended(document: Document, within: tuple[Path, ...]) -> Document:
    """A file over the one that it extends; `within` are those that extend it."""
    own = cast(dict[str, Any], document.value)
    name = own.get(EXTENDS)
    if name is None:
        return document
    place = document.locate((EXTENDS,))
    if not isinstance(name, str):
        raise InputError(Problem(f"extends must name a scenario file, not {show(name)}", place))
    path, chain = document.path.parent / name, (*within, document.path.resolve())
    if path.resolve() in chain:
        raise InputError(Problem(f"'{name}' extends this file in turn", place, "name a file that does not"))
    if not path.is_file():
        hint = did_you_mean(name, [each.name for each in document.path.parent.glob("*.yaml")])
        raise InputError(Problem(f"no scenario file '{name}'", place, hint or "its path starts at this file's folder"))
    return over(document, _extended(load_yaml(path, most_bytes=MAX_JOB_BYTES), chain))


def over(document: Document, base: Document) -> Document:
    """A file's keys over those of another; a key without a value takes that of the other out."""
    merged = copy.deepcopy(cast(dict[str, Any], base.value))
    origin = dict.fromkeys(_given_keys(merged), "")
    own = {key: value for key, value in cast(dict[str, Any], document.value).items() if key != EXTENDS}
    layer = {key: value for key, value in _leaves(own) if value is not None}
    for key, value in _leaves(own):
        if value is None:
            _remove(merged, origin, key)
    _overlay(merged, origin, layer, "")
    elsewhere = {key: base.stated_in.get(key, base.path) for key in _given_keys(merged) if key not in layer}

    def places() -> Places:
        (values, keys), (base_values, base_keys) = document.places, base.places
        return {**base_values, **values}, {**base_keys, **keys}

    return Document(document.path, merged, places, base.origins, elsewhere)


def _leaves(own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """All keys of a file by their dotted names with their values, those without a value too."""
    for key, value in own.items():
        yield from (
            ((f"{key}.{inner}", item) for inner, item in value.items())
            if isinstance(value, Mapping)
            else ((key, value),)
        )


def read_scenario(
    path: Path | None,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    read: Callable[[Path], Document] = load_scenario,
) -> Scenario:
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
    return _merge(document, variables, flags, COMMAND_LINE, environment, problems)


def scenario_of_call(document: Document | None, keys: Mapping[str, object], caller: Caller) -> Scenario:
    """A scenario file that was read, or None, under typed values by dotted key. Raises BadScenarioError."""
    return _merge(document, {}, keys, caller, {}, [])


def _merge(
    document: Document | None, variables: Mapping[str, object], flags: Mapping[str, object], caller: Caller,
    environment: Mapping[str, str], problems: list[Problem],
) -> Scenario:  # fmt: skip
    """Flags over variables over the file; `caller` gave the flags.

    Raises BadScenarioError with the problems so far and those of the keys.
    """
    merged = copy.deepcopy(cast(dict[str, Any], document.value)) if document else {}
    origin = {key: document.origins.get(key, "file") for key in _given_keys(merged)} if document else {}
    typed = {
        key: _split(value, key) if isinstance(value, str) and _kind(key) is tuple else value
        for key, value in flags.items()
        if value is not None
    }
    _free(merged, origin, typed.get(FREE, variables.get(FREE, merged.get(FREE))))
    _overlay(merged, origin, variables, "env")
    _overlay(merged, origin, typed, "flag")
    locate = _Places(document, origin, caller)
    if merged.get("gpu") == AUTO:
        with collecting(problems):
            _put_installed(merged, origin, partial(locate, ("gpu",)))
    plain, read_as, with_unit = as_meant(merged, ScenarioFile, locate, problems)
    merged_as = partial(
        Scenario, origin=MappingProxyType(origin), locate=locate, path=document.path if document else None, flags=flags,
        environment=environment, document=document, caller=caller, read_as=read_as,
        with_unit=with_unit,
    )  # fmt: skip
    try:
        values = convert(plain, ScenarioFile, locate)
    except InputError as error:
        from xe_sizer.scenario.foreign_words import in_our_words

        problems += (in_our_words(problem, ALL_OPTIONS) for problem in error.problems)
    problems += conflicts(Keys(plain, locate), RULES)
    if not problems:
        return merged_as(values=values)
    values = convert_what_is_right(plain, ScenarioFile, locate)
    invalid_keys = frozenset(key for key in _given_keys(merged) if _at(values, key) is None)
    raise BadScenarioError(sorted(problems, key=file_order), merged_as(values=values, invalid_keys=invalid_keys))


def _free(merged: dict[str, Any], origin: dict[str, str], asked: object) -> None:
    """Take the keys of a file out that are asked to be left open.

    asked : names of groups and options; what is none is told of where the key is read
    """
    names = [name for name in asked if isinstance(name, str)] if isinstance(asked, list | tuple) else []
    for key in free_keys(names):
        makes_the_batch = key in BATCH_PARTS and "train.global_batch" not in origin and KEYS[key].option not in names
        if key in origin and not makes_the_batch:
            _remove(merged, origin, key)


FREE = "free"
AUTO = "auto"


def _put_installed(merged: dict[str, Any], origin: dict[str, str], where: Callable[[], Location]) -> None:
    """The accelerator of this machine in the place of `auto`, and how many there are where nobody says a number.

    Raises InputError: there is none that its maker's tool finds
    """
    from xe_sizer.profiles.installed import TOOLS, installed_accelerators

    found = installed_accelerators()
    if found is None:
        asked = " and ".join(command[0] for command, _ in TOOLS)
        hint = "name one, for example h100-sxm-80gb"
        raise InputError(Problem(f"no accelerator found on this machine: asked {asked}", where(), hint))
    merged["gpu"], count = found
    if not {"gpus", "nodes"} & origin.keys():
        merged["gpus"], origin["gpus"] = count, origin["gpu"]


def _at(values: object, key: str) -> object:
    """The value of a dotted key; None for keys that are not there or not known."""
    for part in key.split("."):
        values = getattr(values, part, None)
    return values


class _Places(Immutable):
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


def _split(text: str, key: str) -> object:
    """The items of a list between commas, numbers where the key has numbers; one alone where it may be no list."""
    parts = [part.strip() for part in text.split(",")]
    items = [parse_scalar(part) for part in parts] if KEYS[key].lists_numbers() else list(parts)
    return items[0] if len(items) == 1 and KEYS[key].or_one() else items


def _kind(key: str) -> type:
    """Type of the values of a key; object of one that is not known, which convert reports."""
    return KEYS[key].form()[0] if key in KEYS else object


def _overlay(merged: dict[str, Any], origin: dict[str, str], layer: Mapping[str, object], name: str) -> None:
    """Put a layer over what is merged so far, and take out what it replaces."""
    for replaced in _replaced(origin, layer):
        _remove(merged, origin, replaced)
    for key, value in layer.items():
        section, last = _section_and_name(key)
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


def _section_and_name(key: str) -> tuple[str, str]:
    """The section of a dotted key, empty where it stands in none, and its name there, which may have dots."""
    section, dot, name = key.partition(".")
    return (section, name) if dot else ("", key)


def _remove(merged: dict[str, Any], origin: dict[str, str], key: str) -> None:
    section, last = _section_and_name(key)
    holder = merged.get(section) if section else merged
    if isinstance(holder, dict):
        holder.pop(last, None)
    origin.pop(key, None)


def _given_keys(merged: Mapping[str, Any]) -> Iterator[str]:
    yield from (key for key, value in _leaves(merged) if value is not None)


# A change of a question: the keys that it sets, the question with them set, and the command that asks it.


class Change(Immutable):
    """Scenario keys to set and how to say so; `effort` orders what a user would rather do first."""

    words: str
    values: Mapping[str, object]
    effort: int

    def contradicts(self, other: Change) -> bool:
        """Whether the two set one key to different values."""
        shared = self.values.keys() & other.values.keys()
        return any(self.values[key] != other.values[key] for key in shared)


def together(changes: list[Change]) -> Change:
    """All of the changes as one, which asks a little more than the one that asks most."""
    *most, last = (change.words for change in changes)
    words = f"{', '.join(most)} and {last}" if most else last
    values = {key: value for change in changes for key, value in change.values.items()}
    return Change(words, values, max(change.effort for change in changes) + min(len(most), 1))


def changed(scenario: Scenario, values: Mapping[str, object]) -> Scenario:
    """The same question with some keys set as flags would set them. Raises BadScenarioError."""
    problems: list[Problem] = []
    variables, flags = _read_variables(scenario.environment, problems), flags_with(scenario.flags, values)
    return _merge(scenario.document, variables, flags, scenario.caller, scenario.environment, problems)


def command(
    scenario: Scenario, values: Mapping[str, object], folders: Iterable[Path] = (), name: str = "estimate"
) -> str:
    """The call that asks the question with the keys set; `folders` hold the user's own profiles."""
    keys = {**_kept(_from_environment(scenario), values), **flags_with(scenario.flags, values)}
    return scenario.caller.call(name, scenario.path, keys, folders)


def flags_with(flags: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """The flags with some keys set, without those that say the same in another way."""
    return {**_kept(flags, values), **values}


def _kept(flags: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    """The flags that stay beside the keys that are set: none of those keys, and none that says the same otherwise."""
    replaced = {*values, *(key for name in values for key in REPLACES.get(name, ()))}
    replaced |= {key for key in flags for name in values if in_place_of(name, key)}
    return {key: value for key, value in flags.items() if value is not None and key not in replaced}


def _from_environment(scenario: Scenario) -> dict[str, object]:
    """Values that came from XE_SIZER_* variables: the printed command says them itself."""
    return {key: attrgetter(key)(scenario.values) for key, origin in scenario.origin.items() if origin == "env"}
