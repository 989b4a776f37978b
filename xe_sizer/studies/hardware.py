"""The kinds of hardware among which a plan or a service chooses."""

from __future__ import annotations

from collections.abc import Sequence

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.registry import Registry
from xe_sizer.scenario.read import Given


def all_hardware(given: Given, among: Sequence[str], any_gpu: bool, registry: Registry) -> list[dict[str, object]]:
    """Keys of every kind of hardware to choose from, {} for the scenario's own. Raises InputError."""
    own = ({"gpu": given.values.gpu}, {"server": given.values.server})
    place = Location(given.caller.place("among"))
    hardware = [keys for keys in hardware_named(among, any_gpu, registry, place) if keys not in own]
    if "gpu" in given.origin or "server" in given.origin:
        hardware = [{}, *hardware]
    return hardware or [{}]


def hardware_named(names: Sequence[str], any_gpu: bool, registry: Registry, place: Location) -> list[dict[str, object]]:
    """Keys of the GPUs and servers named, and of all GPUs of the catalogue where they are asked for."""
    servers, gpus = registry.names("server"), registry.names("gpu")
    found: list[dict[str, object]] = []
    for name in dict.fromkeys(names):
        if name not in servers and name not in gpus:
            hint = "'xe-sizer profiles list gpu' and 'xe-sizer profiles list server' print all"
            raise InputError(Problem(f"no GPU or server is called '{name}'", place, hint))
        found.append({"server": name} if name in servers else {"gpu": name})
    named = {entry.get("gpu") for entry in found}
    every: list[dict[str, object]] = [{"gpu": name} for name in gpus if any_gpu and name not in named]
    return [*found, *every]
