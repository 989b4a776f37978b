"""What an exported file says when it is read again: keys that came back otherwise, and another estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from xe_sizer.cli.command import answer_to
from xe_sizer.errors import InputError
from xe_sizer.interop.read import import_file, recognise_tool, started_by
from xe_sizer.interop.source import Asked, Source, guess_kind
from xe_sizer.interop.write import is_elsewhere, is_neutral
from xe_sizer.report.format import byte_size, duration
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.software.adapter_targets import resolve_targets

if TYPE_CHECKING:
    from xe_sizer.interop.read import Imported
    from xe_sizer.interop.write import Exported, Exporter, Plan
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.common import Sized

_SAME = 0.01  # of an estimate's figures, below which they count as equal
_IN_THE_FILES = ("stack", "serve.engine", "server", "gpu", "gpus", "nodes")  # or passed with them


def read_back(exported: Exported, exporter: Exporter, hardware: Mapping[str, object]) -> Imported | None:
    """What an import makes of the files; None where no importer knows them.

    hardware : `gpus`, and `gpu` or `server`, which few files say

    Raises InputError: the files cannot be read
    """
    written = exported.written
    path = Path(f"job{exporter.ending}")
    source = started_by(Source(path, guess_kind(path, written.text), written.text, beside=written.beside))
    tool = recognise_tool(source)
    return None if tool is None else import_file(tool, source, (), Asked(hardware=hardware))


def differences(
    plan: Plan, exported: Exported, imported: Imported, registry: Registry
) -> Iterator[tuple[str, Any, Any]]:
    """Keys that the files say otherwise than a plan and nobody was told of: the plan's value, and the one read."""
    told = {key for key, _ in exported.unsaid}
    for key, wanted in plan.values.items():
        fact = imported.facts.get(key)
        if key in told or is_elsewhere(key) or (key not in plan.asked and (fact is None or fact.aside)):
            continue
        if not is_same(key, wanted, imported, plan, registry):
            yield key, wanted, imported.fact_of(key)
    for key, fact in imported.facts.items():
        known = key in plan.values or fact.aside or is_elsewhere(key) or key.startswith("model.")
        if not known and not is_neutral(key, fact.written):
            yield key, None, fact.written


def is_same(key: str, wanted: Any, imported: Imported, plan: Plan, registry: Registry) -> bool:
    """Whether a value comes back as it was, or means the same there."""
    found = imported.fact_of(key)
    if found is None and key == "train.epochs":
        return bool(imported.fact_of("train.steps") == plan.steps)  # a tool that counts nothing but steps
    if found is None and key == "adapter":
        return is_neutral(key, wanted) or "lora.rank" in imported.facts  # which adapters follow from
    if found is None:
        return is_neutral(key, wanted)
    model = plan.shape
    if key == "model" and found != wanted:
        with suppress(InputError):  # of which no profile is known
            return bool(registry.model(str(found)).name == model.name)
    if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
        if key == "lora.targets":
            with suppress(InputError):  # names that a model of this kind does not have
                return resolve_targets(model, wanted) == resolve_targets(model, found)
        return list(wanted) == list(found)
    if isinstance(wanted, int | float) and isinstance(found, int | float):
        return math.isclose(wanted, found, rel_tol=1e-6)
    return bool(wanted == found)


def other_estimate(imported: Imported, scenario: Scenario, answer: Sized, registry: Registry) -> str | None:
    """How the exported job and the scenario are estimated, where these differ; None where they do not.

    The exported job has the data, the load and the lengths of the scenario, which no such file says.
    Raises InputError: the exported job cannot be estimated.
    """
    return compared(answer_again(imported, scenario, registry), answer)


def answer_again(imported: Imported, scenario: Scenario, registry: Registry) -> Sized:
    """The answer to the exported job, with the data, the load and the lengths of the scenario. Raises InputError."""
    return answer_to(_with_the_data_of(scenario, imported), registry)


def compared(again: Sized, answer: Sized) -> str | None:
    """How the exported job and the scenario are estimated, where these differ; None where they do not."""
    (new, new_stack), (old, old_stack) = ((_figures(each), _stack(each)) for each in (again, answer))
    if all(math.isclose(new[name], old[name], rel_tol=_SAME) for name in new.keys() & old.keys()):
        return None
    whose = f" with the stack {new_stack} instead of {old_stack}" if new_stack != old_stack else ""
    return f"the exported job is estimated at {_in_words(new)}{whose}, the scenario at {_in_words(old)}"


def _with_the_data_of(scenario: Scenario, imported: Imported) -> Scenario:
    """What was imported, with what the user said and files of tools do not."""
    read = read_scenario(imported.path, {}, {}, lambda _: imported.document())
    kept = {key: origin for key, origin in scenario.origin.items() if is_elsewhere(key) and key not in _IN_THE_FILES}
    values: Any = read.values
    for key in kept:
        section, name = (*key.split("."), "")[:2]
        theirs = getattr(scenario.values, section)
        if name:
            theirs = msgspec.structs.replace(getattr(values, section), **{name: getattr(theirs, name)})
        values = msgspec.structs.replace(values, **{section: theirs})
    return replace(read, values=values, origin=dict(read.origin) | kept, path=scenario.path)


def _stack(answer: Sized) -> object:
    scenario: Mapping[str, Any] = answer.scenario
    return scenario.get("stack") or (scenario.get("serve") or {}).get("engine")


def _figures(answer: Any) -> dict[str, float]:
    """Memory of a GPU [B], and the time of a step or of a token [s]."""
    figures = {"memory": float(answer.memory.peak_bytes)} if answer.memory is not None else {}
    if getattr(answer, "time", None) is not None:
        figures["step"] = answer.time.step_s.expected
    elif getattr(answer, "latency", None) is not None and answer.latency.tpot_s.expected is not None:
        figures["token"] = answer.latency.tpot_s.expected
    return figures


def _in_words(figures: Mapping[str, float]) -> str:
    words = {"memory": lambda value: f"{byte_size(value)} a GPU", "step": lambda value: f"{duration(value)} a step",
             "token": lambda value: f"{duration(value)} a token"}  # fmt: skip
    return " and ".join(words[name](value) for name, value in figures.items())
