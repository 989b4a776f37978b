"""The kinds of hardware among which a plan or a service chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from xe_sizer.errors import InputError, Location, Problem, collecting, did_you_mean
from xe_sizer.profiles.finder import is_path
from xe_sizer.result.common import LeftOut
from xe_sizer.scenario.read import changed

if TYPE_CHECKING:
    from xe_sizer.laws.hardware import Server
    from xe_sizer.profiles.registry import Registry
    from xe_sizer.scenario.provenance import Tariff
    from xe_sizer.scenario.read import Given
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.training.estimate import TrainingEstimate

T = TypeVar("T")


def all_hardware(given: Given, among: Sequence[str], any_gpu: bool, registry: Registry) -> list[dict[str, object]]:
    """Keys of every kind of hardware to choose from, {} for the scenario's own. Raises InputError."""
    own = ({"gpu": given.values.gpu}, {"server": given.values.server})
    place = Location(given.caller.place("among"))
    hardware = [keys for keys in hardware_named(among, any_gpu, registry, place) if keys not in own]
    if "gpu" in given.origin or "server" in given.origin:
        hardware = [{}, *hardware]
    return hardware or [{}]


def hardware_named(names: Sequence[str], any_gpu: bool, registry: Registry, place: Location) -> list[dict[str, object]]:
    """Keys of the GPUs and servers named, and of all GPUs of the catalogue where they are asked for.

    Raises
    ------
    InputError : every name that is none
    """
    found: list[dict[str, object]] = []
    problems: list[Problem] = []
    for name in dict.fromkeys(names):
        with collecting(problems):
            found.append({_kind(name, registry, place): name})
    if problems:
        raise InputError(problems)
    named = {entry.get("gpu") for entry in found}
    gpus = registry.names("gpu") if any_gpu else ()
    every: list[dict[str, object]] = [{"gpu": name} for name in gpus if name not in named]
    return [*found, *every]


def _kind(name: str, registry: Registry, place: Location) -> str:
    """Whether a name or a path is that of a server or of a GPU. Raises InputError."""
    for kind in ("server", "gpu"):
        if registry.kind_of(Path(name)) == kind if is_path(name) else any(registry.files(kind, name)):
            return kind
    for kind in () if is_path(name) else ("gpu", "server"):
        if registry.find(kind, name, place):
            return kind
    near = did_you_mean(name, (*registry.names("gpu"), *registry.names("server")))
    hint = near or "'xe-sizer profiles list gpu' and 'xe-sizer profiles list server' print all"
    raise InputError(Problem(f"no GPU or server is called '{name}'", place, hint))


def on_each(
    given: Given, hardware: Sequence[Mapping[str, object]], answer: Callable[[Given], T], left_out: list[LeftOut]
) -> Iterator[tuple[str, T]]:
    """The name of each kind of hardware ("" for the scenario's own) and the answer on it.

    hardware : keys that name each kind, {} for the scenario's own
    left_out : where kinds are added that have no answer, with the reason

    Raises
    ------
    InputError : where there is one kind and it has no answer, or several and none has one
    """
    problems: list[Problem] = []
    answered = False
    for keys in hardware:
        name = " ".join(str(value) for value in keys.values())
        try:
            found = answer(changed(given, keys) if keys else given)
        except InputError as error:
            if len(hardware) == 1:
                raise
            problems += error.problems
            left_out.append(LeftOut(name=name, reason=error.problems[0].message))
            continue
        answered = True
        yield name, found
    if not answered:
        raise InputError(list(dict.fromkeys(problems)))


def price_kinds(tariffs: Iterable[Tariff]) -> set[str | None]:
    """The kinds of contract that prices of profiles are for; a price that the user gives compares with any."""
    return {tariff.offer.kind for tariff in tariffs if tariff.offer is not None}


def prices_compare(sized: Sequence[TrainingEstimate] | Sequence[ServingEstimate]) -> bool:
    """Whether there are answers, and their prices are all known, in one currency and of one kind of contract."""
    tariffs = [one.resolved.tariff for one in sized]
    alike = len({tariff.currency for tariff in tariffs}) == 1 and len(price_kinds(tariffs)) <= 1
    return alike and all(one.cost is not None for one in sized)


def hardware_name(server: Server) -> str:
    """The server, or the GPU where none is named."""
    return server.accelerator.name if server.bare else server.name


def one_price(given: Given) -> Iterator[str]:
    """A warning where every kind of hardware is charged what the user gave for one."""
    price = given.values.cost.price_per_gpu_hour
    if price is not None and not isinstance(price, Mapping):
        each = given.caller.setting("cost.price_per_gpu_hour", {"NAME": price})
        yield f"every kind of hardware is charged the same {price:g} per GPU-hour; {each} sets the price of one of them"
