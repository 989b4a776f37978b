"""What every question resolves alike: keys with their origin, model, hardware, problems in reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import to_builtins
from msgspec.structs import asdict, replace

from xe_sizer.errors import InputError, Problem, collecting
from xe_sizer.laws.device import Efficiency
from xe_sizer.profiles.finder import KINDS, RELEASED, is_path, is_repository
from xe_sizer.profiles.model import InlineModel, inline_model
from xe_sizer.scenario.schema import ScenarioFile
from xe_sizer.software.release import split_release

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.profiles.finder import Finder
    from xe_sizer.scenario.scenario import Scenario


def problem_at(scenario: Scenario, key: str, message: str, hint: str | None = None) -> Problem:
    """A problem at the place of a dotted key."""
    return Problem(message, scenario.locate(tuple(key.split("."))), hint)


T = TypeVar("T")
_KIND_OF = {kind.scenario_key: kind.name for kind in KINDS.values() if kind.scenario_key}


class Provenance:
    """The scenario as it is resolved: keys that count, with defaults filled in, and where each value comes from.

    values : keys that do not count are None; a profile goes by its own name
    origins : of the keys that count, in the order in which they were resolved
    """

    def __init__(self, scenario: Scenario, finder: Finder) -> None:
        self.scenario = scenario
        self.finder = finder
        self.values = ScenarioFile(model="")
        self.origins: dict[str, str] = {}

    def resolve_default(self, key: str, default: Any, origin: str = "default") -> Any:
        """The user's value of a dotted key, else the default of `origin`."""
        value = attrgetter(key)(self.scenario.values)
        chosen = default if value is None else self._called(key, value)
        self.note(key, chosen, origin if value is None else self.scenario.origin.get(key, "file"))
        return chosen

    def _called(self, key: str, value: Any) -> Any:
        kind = _KIND_OF.get(key)
        if kind is None or relative(self.scenario, key, value) != value:
            return value
        bare, release = split_release(value) if kind in RELEASED and not is_path(value) else (value, None)
        return self.finder.called(kind, bare) + (f"@{release}" if release else "")

    def keep(self, sections: Iterable[str]) -> None:
        """Keep what was given in these sections and is not noted yet, for the report."""
        for section in sections:
            for name, value in asdict(getattr(self.scenario.values, section)).items():
                key = f"{section}.{name}"
                if value is not None and key in self.scenario.origin and key not in self.origins:
                    self.resolve_default(key, None)

    def drop(self, key: str) -> None:
        """Forget a key that has no part in the answer."""
        self.values = with_values(self.values, {key: None})
        self.origins.pop(key, None)

    def note(self, key: str, value: Any, origin: str) -> None:
        self.values = with_values(self.values, {key: value})
        self.origins[key] = origin


def with_values(values: ScenarioFile, changes: Mapping[str, object]) -> ScenarioFile:
    """The scenario with other values of some dotted keys."""
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        changed: Any = replace(getattr(values, section), **{name: value}) if section else value
        values = replace(values, **{section or name: changed})
    return values


def model_and_server(
    problems: list[Problem], scenario: Scenario, registry: Registry, provenance: Provenance
) -> tuple[ModelShape | None, Server | None]:
    """What is asked to run, and on what; None for what is not known, with every problem added to the list."""
    if scenario.values.free:
        provenance.resolve_default("free", None)
    named: object = scenario.values.model  # None only where the key is missing or wrong, and that was told
    wrong = named is None or any(key.startswith("model.") for key in scenario.invalid_keys)
    model = None if wrong else collect(problems, _model, scenario, registry, provenance)
    return model, collect(problems, _server, scenario, registry, provenance)


def _model(scenario: Scenario, registry: Registry, provenance: Provenance) -> ModelShape:
    if isinstance(scenario.values.model, InlineModel):
        shape = inline_model(
            scenario.values.model, lambda path, *, key=False: scenario.locate(("model", *path), key=key)
        )
        origin = next((how for key, how in scenario.origin.items() if key.startswith("model.")), "file")
        provenance.note("model", shape.name, origin)
        return shape
    provenance.resolve_default("model", None)
    return registry.model(relative(scenario, "model", scenario.values.model), partial(scenario.locate, ("model",)))


def _server(scenario: Scenario, registry: Registry, provenance: Provenance) -> Server | None:
    """The server asked for, with the host memory that the user says it has.

    None where it may be what a key that could not be read says.
    """
    server = _profile_server(scenario, registry, provenance)
    if server is None or scenario.values.host_memory_gib is None:
        return server
    return server.with_host_memory(provenance.resolve_default("host_memory_gib", None))


def efficiency_of(scenario: Scenario) -> Efficiency:
    """The efficiency that replaces the laws, where one was given."""
    chosen = scenario.values.efficiency
    return Efficiency(chosen.flops, chosen.memory, bool(chosen.ideal))


def _profile_server(scenario: Scenario, registry: Registry, provenance: Provenance) -> Server | None:
    values = scenario.values
    if values.server is not None:
        provenance.resolve_default("server", None)
        return registry.server(relative(scenario, "server", values.server), partial(scenario.locate, ("server",)))
    if values.gpu is not None:
        provenance.resolve_default("gpu", None)
        gpu = registry.accelerator(relative(scenario, "gpu", values.gpu), partial(scenario.locate, ("gpu",)))
        return registry.bare_server(gpu)
    if any("." not in key for key in scenario.invalid_keys):
        return None
    example = scenario.caller.setting("gpu", registry.suggested_gpus()[0])
    hint = f"for example {example}; 'xe-sizer profiles list' prints all"
    raise InputError(Problem("no hardware named: give a server or a gpu", scenario.locate(()), hint))


def relative(scenario: Scenario, key: str, name: str) -> str:
    """A path in a scenario file starts at the file's folder; a repository on the Hub is none unless it lies there."""
    folder = scenario.folder_for(key)
    if folder is None or not is_path(name) or (is_repository(name) and not (folder / name).exists()):
        return name
    return str(folder / name)


def collect(problems: list[Problem], make: Callable[..., T], *arguments: Any) -> T | None:
    """The made thing, or None with its problems added to the list, so that all are reported together."""
    with collecting(problems):
        return make(*arguments)
    return None


def in_reading_order(problems: Iterable[Problem], scenario: Scenario) -> list[Problem]:
    """Flags and variables, then the scenario file, then the files it names, each from top to bottom."""

    def order(problem: Problem) -> tuple[bool, bool, str, int, int]:
        place = problem.location
        if place is None or place.line is None:
            return False, False, "", 0, 0
        return True, place.name != str(scenario.path), place.name, place.line, place.column or 0

    return sorted(problems, key=order)


def with_further(
    problems: Iterable[Problem], rest: Scenario, resolve: Callable[[Scenario, Registry], object], registry: Registry
) -> list[Problem]:
    """The problems of a scenario's keys, and what names, model and hardware have against the rest of it.

    A place that has a problem already gets no second one, which would follow from the first.
    """
    found, further = list(problems), list[Problem]()
    collect(further, resolve, rest, registry)
    places = {problem.location for problem in found}
    return in_reading_order([*found, *(problem for problem in further if problem.location not in places)], rest)


def assumptions(model: ModelShape, server: Server) -> Iterator[str]:
    """What the profiles assume, as warnings, but for what joins the accelerators: see `joining_assumptions`."""
    yield from (f"{model.name}: {assumption}" for assumption in model.assumptions)
    yield from (f"{server.name}: {assumption}" for assumption in server.assumptions)


def joining_assumptions(server: Server, gpus: int) -> Iterator[str]:
    """What is assumed of fabric and network, as warnings, where so many GPUs that work together use them."""
    fabric = server.fabric_assumptions if gpus > 1 else ()
    network = server.network_assumptions if gpus > server.accelerators else ()
    yield from (f"{server.name}: {assumption}" for assumption in (*fabric, *network))


def borrowed_laws(gpu: Accelerator, efficiency: Efficiency) -> Iterator[str]:
    """Warnings where the times of operators follow what was announced, or another accelerator's laws."""
    if gpu.announced:
        yield f"{gpu.name}: its figures are those its maker announced, which nobody has measured; ranges are wider"
    if gpu.laws.assumed and not efficiency.fixed:
        yield f"{gpu.name}: kernel timings taken from {gpu.laws.assumed}"


def resolved_scenario(
    scenario: Scenario, values: ScenarioFile, origins: Mapping[str, str], model: ModelShape, server: Server
) -> dict[str, Any]:
    """Keys that count, nested as in the scenario file, with the origin of each.

    `written_as` has what the user wrote where a profile goes by another name.
    """
    nested: dict[str, Any] = {}
    for key in origins:
        value, kind = attrgetter(key)(values), _KIND_OF.get(key)
        written = attrgetter(key)(scenario.values) if kind else None
        if kind and isinstance(written, str) and written != value:
            nested.setdefault("written_as", {})[kind] = written
        section, _, name = key.rpartition(".")
        holder = nested.setdefault(section, {}) if section else nested
        holder[name] = to_builtins(value)
    gpu = server.accelerator
    nested["server"] = nested.get("server", server.name)
    nested["gpu"] = nested["gpu"] if "gpu" in nested and is_path(nested["gpu"]) else gpu.name
    # What was named by a path has a name of its own, which reports use.
    nested["names"] = {"model": model.name, "server": server.name, "gpu": gpu.name, "vendor": gpu.vendor}
    nested["origin"] = dict(origins)
    return nested


def gpu_count(provenance: Provenance, server: Server | None) -> int | None:
    values = provenance.scenario.values
    if values.gpus is None and values.nodes is not None:
        provenance.resolve_default("nodes", None)
        return int(values.nodes * server.accelerators) if server else None
    if values.gpus is not None:
        provenance.resolve_default("gpus", None)
    return values.gpus
