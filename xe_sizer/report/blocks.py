"""Blocks that reports on one scenario share, whatever it asks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.report.document import (
    Case,
    Column,
    Document,
    Fact,
    Facts,
    FactsPair,
    Finding,
    Notes,
    Point,
    Step,
    Steps,
    Table,
    judgement,
)
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    NOT_JUDGED,
    bias_words,
    clean,
    component_name,
    duration,
    estimate_words,
    gib,
    given,
    limit_quantity,
    limit_words,
    memory_of,
    memory_place,
    number,
    outcome_words,
    percent,
    plural,
    probability_words,
    round_noun,
    says_nothing,
    unseen_words,
    whole,
)
from xe_sizer.report.verdict import (
    CROWDED,
    NO_SUCH_LIMIT,
    caution_lines,
    cautions,
    headline,
    missed_limit,
    missed_text,
    outcome,
    reason_text,
    reasons_beyond,
    subject,
    title,
    told_limits,
    unjudged,
    unsaid,
    verdict_word,
)
from xe_sizer.result.common import SURE, TIGHT, UNSURE_MEMORY
from xe_sizer.units import BARE_SERVER, GIB

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Remark
    from xe_sizer.result.common import Advice, Basis, Gpus, Ledger, LeftOut, Limit, Sized, TimeComponent, Verdict

# Premises: what an answer supposes because nobody gave it.

ASSUMED = "default"  # origin of a value that neither the user nor the stack gave


def assumed_run(scenario: Mapping[str, Any]) -> str:
    """How long the run is where nobody said it: `for 1,000 steps, assumed: no data was given`; else empty.

    A time, a price and the limits on them mean as much as that.
    """
    origin, train = scenario.get("origin") or {}, scenario.get("train") or {}
    if origin.get("train.steps") == ASSUMED and "steps" in train:
        return f"for {plural(train['steps'], round_noun(scenario))}, assumed: no data was given"
    if origin.get("train.epochs") == ASSUMED and "epochs" in train:
        return f"for {number(train['epochs'])} epoch, assumed"
    return ""


# Points of the first screen.


def evidence_point(basis: Basis | None, scenario: Mapping[str, Any]) -> Iterator[Point]:
    """How far the runs behind a range were off, or whose they are; nothing where neither is worth a line.

    It is never spared: without it the expected value says more than is known.
    """
    if words := unseen_words(basis) or bias_words(basis, scenario):
        yield Point("", words)


def memory_point(memory: Ledger, verdict: Verdict, on_card: bool = True, holder: str = "GPU") -> Point:
    """The fullest GPU against its card, as a bar, and how sure it fits.

    on_card : whether a tight verdict is so for the card's memory, not for the host's
    holder : a GPU, or a part of one
    """
    words = fit_words(verdict, on_card)
    return memory_bar(memory.peak_bytes, memory.usable_bytes, memory.headroom_bytes, words, holder)


def fit_words(verdict: Verdict, on_card: bool = True) -> str:
    """What stands behind the memory: whether it is tight, and how sure it fits."""
    tight = ", tight" if memory_of(verdict) == TIGHT and on_card else ""
    chance = verdict.fit_probability
    return tight if chance is None else f"{tight}; probability that it fits {probability_words(chance)}"


def memory_bar(
    used_bytes: float, usable_bytes: float, free_bytes: float, further: str = "", holder: str = "GPU"
) -> Point:
    """What is used of a GPU's memory, as a bar."""
    of_usable = f" ({percent(free_bytes / usable_bytes)})" if usable_bytes else ""
    left = f"{gib(free_bytes)} GiB free{of_usable}" if free_bytes >= 0 else f"{gib(-free_bytes)} GiB missing"
    text = f"{gib(used_bytes)} of {gib(usable_bytes)} GiB per {holder}, {left}{further}"
    return Point("Memory", text, used_bytes / usable_bytes if usable_bytes else None)


def host_point(
    needed_bytes: float,
    available_bytes: float | None,
    reserve_bytes: float,
    most_bytes: float | None = None,
    tight: bool = False,
) -> Iterator[Point]:
    """Host memory that a node needs for the job, with what its system keeps; nothing where it is next to none.

    most_bytes : that the server can be ordered with, where what it has is one configuration of several
    """
    if needed_bytes < GIB:
        return
    kept = f" + {whole(reserve_bytes / GIB)} for the system (assumed)" if reserve_bytes else ""
    needed = f"{gib(needed_bytes)}{kept}"
    order = f"{whole(math.ceil((needed_bytes + reserve_bytes) / GIB))} GiB or more"
    if available_bytes is None:
        text = f"{needed} GiB per node; how much it has is unknown, {order} will do"
    elif most_bytes is not None:
        text = f"{needed} of {gib(available_bytes)} GiB in the server's profile; order {order}"
    else:
        free_bytes = available_bytes - reserve_bytes - needed_bytes
        left = f"{gib(free_bytes)} GiB free" if free_bytes >= 0 else f"{gib(-free_bytes)} GiB missing"
        text = f"{needed} of {gib(available_bytes)} GiB per node, {left}{', tight' if tight else ''}"
    yield Point("Host memory", text)


def gpus_point(gpus: Gpus, more: str = "", kept: str = "", why_more: str = "") -> Point:
    """How many GPUs, in how many nodes, and the fewest that would do.

    kept : under which choices of the user's the fewest were looked for
    why_more : what a GPU has less of where there are more
    """
    least = gpus.minimum_that_fits
    offloading = " with offloading (slower: see plan)" if gpus.minimum_offloads else ""
    fewest = "" if least is None or least == gpus.count else f"; the fewest that fit{kept}: {least:,}{offloading}"
    if least is not None and least > gpus.count and why_more:
        fewest += f", as more GPUs leave each {why_more}"
    nodes = f" in {plural(gpus.nodes, 'node')}" if gpus.count > 1 else ""
    return Point("GPUs", f"{gpus.count:,}{nodes}{more}{fewest}", spare=1)


MOST_GPUS = "max_gpus"  # the limit that every search keeps within


def limits_points(verdict: Verdict, currency: str | None) -> Iterator[Point]:
    """Every limit with what became of it, a line each: those that are missed first, then the least sure.

    Who asked for a limit looks for it: it is spared only where nothing is said of it, or no answer could miss it.
    """
    for place, limit in enumerate(sorted(verdict.limits, key=_doubtful)):
        within = bool(place) and limit.name == MOST_GPUS
        spare = place + 1 if within or says_nothing(verdict, limit) else 0
        yield Point("" if place else "Limits", limit_words(verdict, limit, currency), spare=spare)


def _doubtful(limit: Limit) -> tuple[bool, float]:
    return limit.ok, 1.0 if limit.probability is None else limit.probability


def change_point(advice: tuple[Advice, ...]) -> Iterator[Point]:
    """The one thing to change, with its command; nothing where no change is worth a word."""
    for first in advice[:1]:
        effect = f": {clean(first.effect)}" if first.effect else ""
        yield Point("Change", f"{clean(first.change)}{effect}", command=clean(first.command))


# The verdict as findings: its fit, its load and each of its limits.


def scenario_finding(answer: Sized, name: str | None, file: str | None) -> Finding:
    """The fit and each limit of one scenario. A plain yes is worth no remark: CI shows ten of a kind at most.

    name : what stands for it; None: what was sized
    file : the scenario file that remarks are about
    """
    remark = verdict_remark(answer, file)
    return Finding(name or subject(answer), tuple(_cases(answer)), () if remark.level == "notice" else (remark,))


def _cases(answer: Sized) -> Iterator[Case]:
    narrow = cautions(answer)
    said = "\n".join([headline(answer), *([narrow] if narrow else []), *map(clean, answer.warnings)])
    if answer.verdict.fits:
        yield Case("fits", output=said)
    else:
        told = told_limits(answer.verdict)
        reasons = "\n".join(reason_text(reason) for reason in answer.verdict.reasons if reason.code not in told)
        yield Case("fits", "failed", "does-not-fit", outcome(answer), reasons, said)
    for reason in answer.verdict.reasons:
        if reason.code in CROWDED:
            yield Case("load", "failed", reason.code, reason_text(reason))
        if reason.code == UNSURE_MEMORY:
            yield Case("memory", "failed", UNSURE_MEMORY, reason_text(reason))
    yield from (limit_case(answer.verdict, limit, answer.currency) for limit in answer.verdict.limits)
    for name in unjudged(answer):
        yield Case(f"limit {name}", "skipped", "not-judged", NO_SUCH_LIMIT)


def limit_case(verdict: Verdict, limit: Limit, currency: str | None = None) -> Case:
    name = f"limit {limit.name}"
    said = limit_words(verdict, limit, currency)
    if says_nothing(verdict, limit):
        return Case(name, "skipped", "not-judged", NOT_JUDGED)
    if limit.ok:
        return Case(name, output=said)
    return Case(name, "failed", "limit", f"misses {missed_limit(limit, verdict, currency)}", output=said)


def verdict_remark(answer: Sized, file: str | None) -> Remark:
    """The verdict with its reasons, and what is narrow of it."""
    narrow = cautions(answer)
    said = headline(answer)
    beyond = reasons_beyond(answer.verdict, said, told_limits(answer.verdict))
    missed = missed_text(answer.verdict, answer.currency) if answer.verdict.fits else ""
    unsaid = missed if missed not in said else ""
    lines = tuple(filter(None, (said, *beyond, unsaid, narrow)))
    return judgement(answer.ok, _word(answer), lines, bool(narrow), file)


def _word(answer: Sized) -> str:
    """The verdict, and how sure a yes is where its word does not say it: `fits, unsure`."""
    word = verdict_word(answer).lower()
    certainty = answer.verdict.certainty
    doubtful = answer.ok and memory_of(answer.verdict) != TIGHT and certainty is not None and certainty != SURE
    return f"{word}, {certainty}" if doubtful else word


def find_line(answer: Sized, lines: Mapping[str, int]) -> int | None:
    """The line of a scenario file that its verdict is about: a limit, the load or the hardware.

    lines : of each key that the file gives
    """
    return next((lines[key] for key in _judged_keys(answer.verdict) if key in lines), None)


def _judged_keys(verdict: Verdict) -> Iterator[str]:
    """Dotted keys, the closest first."""
    if verdict.fits:
        yield from (f"limits.{limit.name}" for limit in verdict.limits if not limit.ok)
    if any(reason.code in CROWDED for reason in verdict.reasons):
        yield from (f"serve.{load}" for load in ("request_rate", "concurrency", "users", "batch"))
    if verdict.ok:
        yield from (f"limits.{limit.name}" for limit in verdict.limits if limit.certainty not in ("", SURE))
    yield from ("gpus", "nodes", "gpu", "server", "model")


# Tables and facts.

_HARDWARE_KEYS = frozenset({"gpu", "server", "gpus", "nodes", "host_memory_gib"})
_HARDWARE_SECTIONS = frozenset({"layout", "limits", "cost", "efficiency"})
_QUIET: dict[str, object] = {"vpp": 1, "cp": 1, "ep": 1, "schedule": "1f1b", "zero_group": 0, "expert_tp": 0}
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
        cautions=caution_lines(result),
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
    text += " in whole servers" if gpus.minimum_that_fits == gpus.gpus_per_node and gpus.minimum_in_servers else ""
    text += groups_kept(result)
    return Fact("minimum that fits", f"{text}, offloading" if gpus.minimum_offloads else text)


def groups_kept(result: Sized) -> str:
    """` with this tp/pp`: the sizes of groups of a training job that the user fixed; empty where none is."""
    origin = result.scenario.get("origin") or {}
    fixed = [name for name in result.minimum_keeps if origin.get(f"layout.{name}") in _ASKED]
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


def memory_table(result: Sized, note: str = "", memory: Ledger | None = None) -> Table:
    """The ledger of a GPU, the worst if none is given; the bars are shares of what is usable."""
    memory = memory or result.memory
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
    currency, origin = result.currency, result.scenario.get("origin") or {}
    rows = []
    for limit in limits:
        default = " (default)" if origin.get(f"limits.{limit.name}") == "default" else ""
        rows.append((f"{clean(limit.name)}{default}", *_limit_row(result.verdict, limit, currency, known)))
    return Table("Limits", columns + more, tuple(rows))


def _limit_row(verdict: Verdict, limit: Limit, currency: str | None, probable: bool) -> tuple[str, ...]:
    """What is allowed and estimated, the outcome, and where it is shown the probability."""
    allowed = limit_quantity(limit.name, limit.limit, currency)
    if says_nothing(verdict, limit):
        return allowed, NOT_A_NUMBER, NOT_JUDGED, *((NOT_A_NUMBER,) if probable else ())
    value = estimate_words(limit, currency)
    return allowed, value, outcome_words(limit, chance=not probable), *((_probability(limit),) if probable else ())


def _probability(limit: Limit) -> str:
    exact = limit.probability is None or limit.low is None
    return NOT_A_NUMBER if exact else probability_words(limit.probability or 0.0)
