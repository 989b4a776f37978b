"""Blocks that reports on one scenario share, whatever it asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.report.certainty import NOT_JUDGED, estimate_words, outcome_words, probability_words, says_nothing
from xe_sizer.report.document import (
    Column,
    Document,
    Fact,
    Facts,
    FactsPair,
    Notes,
    Step,
    Steps,
    Table,
)
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    clean,
    duration,
    gib,
    given,
    limit_quantity,
    number,
    percent,
    plural,
    whole,
)
from xe_sizer.report.names import component_name, memory_place
from xe_sizer.report.verdict import caution, currency_of, title, unsaid, verdict_word
from xe_sizer.result.training import Result
from xe_sizer.units import BARE_SERVER

if TYPE_CHECKING:
    from xe_sizer.report.document import Block
    from xe_sizer.result.common import LeftOut, Limit, Sized, TimeComponent, Verdict

_HARDWARE_KEYS = frozenset({"gpu", "server", "gpus", "nodes", "host_memory_gib"})
_HARDWARE_SECTIONS = frozenset({"layout", "limits", "cost", "efficiency"})
_QUIET: dict[str, object] = {"vpp": 1, "cp": 1, "ep": 1, "schedule": "1f1b", "zero_group": 0, "expert_tp": 0}
_GROUPS = ("tp", "pp", "cp")
_ASKED = frozenset({"file", "env", "flag"})
_SHOWN_ELSEWHERE = frozenset({"origin", "names", "written_as", "gpus", "nodes", "layout", "limits"})


def framed(result: Sized, blocks: Iterable[Block]) -> Document:
    """Blocks under the verdict, the headline and the reasons of an answer."""
    return Document(
        verdict=verdict_word(result),
        ok=result.verdict.ok,
        headline=title(result),
        reasons=unsaid(result),
        blocks=tuple(blocks),
        caution=caution(result),
    )


def listed(title: str, texts: Iterable[str]) -> Iterator[Block]:
    """Texts below each other under a title; nothing where there is none."""
    if lines := tuple(texts):
        yield Notes(title, lines)


def left_out(hardware: Iterable[LeftOut]) -> Iterator[Block]:
    """Hardware that has no answer, each with the reason."""
    yield from listed("Left out", (f"{clean(one.name)}: {clean(one.reason)}" for one in hardware))


def remarks(result: Sized) -> Iterator[Block]:
    """Warnings, and the advice beyond that of the first screen, which end a report."""
    yield from listed("Warnings", map(clean, result.warnings))
    if result.advice[1:]:
        steps = (Step(clean(a.change), clean(a.effect), clean(a.command)) for a in result.advice[1:])
        yield Steps("Further advice", tuple(steps))


def scenario_facts(result: Sized, more: Iterable[Fact] = ()) -> FactsPair:
    """What was asked, and on what: every resolved key with its origin, and `more` of the job."""
    rows = (fact for fact in scenario_values(result.scenario) if not _is_hardware(fact.label))
    return FactsPair(Facts("Job", (*rows, *more)), _hardware(result))


def _hardware(result: Sized) -> Facts:
    scenario, gpus, layout = result.scenario, result.gpus, result.layout
    origin = scenario.get("origin") or {}
    alone = gpus.count == 1
    bare = alone and str(scenario.get("server", "")).startswith(BARE_SERVER)
    rows = [fact for fact in scenario_values(scenario) if _is_hardware(fact.label)]
    rows = [fact for fact in rows if not (bare and fact.label == "server")]
    shape = "" if alone else f" ({plural(gpus.nodes, 'node')} of {gpus.gpus_per_node})"
    rows.append(Fact("gpus", f"{gpus.count}{shape}", clean(origin.get("gpus", ""))))
    rows.append(_minimum(result))
    for name in layout.__struct_fields__:
        value = getattr(layout, name)
        if name not in _QUIET or value != _QUIET[name]:
            key = "train.micro_batch" if name == "micro_batch" else f"layout.{name}"
            rows.append(Fact(words(name), _text(value), clean(origin.get(key, ""))))
    return Facts("Hardware and layout", tuple(rows))


def _minimum(result: Sized) -> Fact:
    """The fewest GPUs that fit, and under what condition: in training, sizes of groups that the user fixed are kept."""
    gpus = result.gpus
    text = "none found" if gpus.minimum_that_fits is None else plural(gpus.minimum_that_fits, "GPU")
    text += groups_kept(result)
    return Fact("minimum that fits", f"{text}, offloading" if gpus.minimum_offloads else text)


def groups_kept(result: Sized) -> str:
    """` with this tp/pp`: the sizes of groups of a training job that the user fixed; empty where none is."""
    origin = result.scenario.get("origin") or {}
    groups = _GROUPS if isinstance(result, Result) else ()
    fixed = [name for name in groups if origin.get(f"layout.{name}") in _ASKED]
    return f" with this {'/'.join(fixed)}" if fixed else ""


def _is_hardware(label: str) -> bool:
    return label in _HARDWARE_KEYS or label.split(".", maxsplit=1)[0] in _HARDWARE_SECTIONS


def scenario_values(scenario: Mapping[str, Any]) -> Iterator[Fact]:
    """Every resolved value but those that have a place of their own, dotted, with its origin."""
    origin = scenario.get("origin") or {}
    for key, value in scenario.items():
        if key in _SHOWN_ELSEWHERE or value is None:
            continue
        inner = value.items() if isinstance(value, Mapping) else ((None, value),)
        for name, item in inner:
            if item is None:
                continue
            dotted = key if name is None else f"{key}.{name}"
            if isinstance(item, Mapping):
                yield from _histogram_facts(dotted, item, origin)
                continue
            if item == 0 and origin.get(dotted) == "default":
                continue  # nothing of what nobody asked for
            yield Fact(clean(dotted), _text(item), clean(origin.get(dotted, "")))


def _histogram_facts(dotted: str, item: Mapping[str, Any], origin: Mapping[str, Any]) -> Iterator[Fact]:
    """Counted lengths in numbers: bins, mean and longest."""
    lengths, counts = item.get("lengths") or (), item.get("counts") or ()
    counted = [(length, many) for length, many in zip(lengths, counts, strict=False) if many]
    total = sum(many for _, many in counted)
    if total:
        mean = sum(length * many for length, many in counted) / total
        longest = max(length for length, _ in counted)
        text = f"{plural(len(lengths), 'bin')}, mean {number(mean)}, longest {whole(longest)} tokens"
        yield Fact(clean(dotted), text, clean(origin.get(dotted, "")))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return given(value)
    if isinstance(value, list | tuple):
        shown = ", ".join(_text(item) for item in value[:8])
        return f"{shown} and {len(value) - 8} more" if len(value) > 8 else shown
    return clean(value)


def memory_table(result: Sized, note: str = "") -> Table:
    """The ledger of the worst GPU; the bars are shares of what is usable."""
    memory = result.memory
    usable = memory.usable_bytes
    ledger = sorted(memory.components, key=lambda part: -part.bytes)
    parts = [(component_name(result, part.name), part.bytes) for part in ledger if part.bytes]
    sums = [("peak", memory.peak_bytes), ("usable", usable), ("headroom", memory.headroom_bytes)]
    lines = [(name, value, value / usable if usable else None) for name, value in parts + sums]
    rows = tuple(
        (clean(name), gib(value), NOT_A_NUMBER if share is None else percent(share)) for name, value, share in lines
    )
    return Table(
        title=f"Memory of the worst GPU ({memory_place(memory, memory.phase)})",
        columns=(Column("component"), Column("GiB", True), Column("of usable", True)),
        rows=rows,
        shares=(*(share for _, _, share in lines[: len(parts) + 1]), None, None),
        totals=len(sums),
        note=note,
    )


def parts_table(title: str, components: tuple[TimeComponent, ...], step_s: float, whole_name: str = "step") -> Table:
    """A step or an iteration by part, the largest first, and its whole."""
    parts = sorted((part for part in components if part.seconds), key=lambda part: -part.seconds)
    rows = [(clean(part.name), duration(part.seconds), percent(part.share)) for part in parts]
    rows.append((whole_name, duration(step_s), "100 %"))
    return Table(
        title=title,
        columns=(Column("part"), Column("time", True), Column("share", True)),
        rows=tuple(rows),
        shares=(*(part.share for part in parts), None),
        totals=1,
    )


def words(name: str) -> str:
    """A name of the contract as people read it."""
    return clean(name).replace("_", " ")


def limits_table(result: Sized) -> Table:
    """What was asked against what is estimated; how likely it is met where the result says so."""
    limits = result.verdict.limits
    known = any(limit.low is not None for limit in limits)
    columns = (Column("limit"), Column("allowed", True), Column("estimate", True), Column("outcome"))
    more = (Column("probability", True),) if known else ()
    currency, origin = currency_of(result), result.scenario.get("origin") or {}
    rows = tuple((_limit_name(limit, origin), *_limit_row(result.verdict, limit, currency, known)) for limit in limits)
    return Table("Limits", columns + more, rows)


def _limit_row(verdict: Verdict, limit: Limit, currency: str | None, probable: bool) -> tuple[str, ...]:
    """What is allowed and estimated, the outcome, and where it is shown the probability."""
    allowed = limit_quantity(limit.name, limit.limit, currency)
    if says_nothing(verdict, limit):
        return allowed, NOT_A_NUMBER, NOT_JUDGED, *((NOT_A_NUMBER,) if probable else ())
    value = estimate_words(limit, currency)
    return allowed, value, outcome_words(limit, chance=not probable), *((_probability(limit),) if probable else ())


def _limit_name(limit: Limit, origin: Mapping[str, str]) -> str:
    """The key of a limit, and whether nobody gave it."""
    default = " (default)" if origin.get(f"limits.{limit.name}") == "default" else ""
    return f"{clean(limit.name)}{default}"


def _probability(limit: Limit) -> str:
    exact = limit.probability is None or limit.low is None
    return NOT_A_NUMBER if exact else probability_words(limit.probability or 0.0)
