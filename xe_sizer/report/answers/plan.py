"""Plans of a search: what `plan` reports. The answers, time against GPUs, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from xe_sizer.report.answers.estimate import RANGE_NOTE, split_words, time_axis, writing_pool
from xe_sizer.report.blocks import (
    assumed_run,
    evidence_point,
    fit_words,
    host_point,
    left_out,
    limit_case,
    limits_points,
    listed,
    memory_bar,
)
from xe_sizer.report.document import (
    TOOL,
    Case,
    Column,
    Document,
    Finding,
    Picture,
    Point,
    Remark,
    Step,
    Steps,
    Summary,
    Table,
    judgement,
)
from xe_sizer.report.format import (
    NOT_A_NUMBER,
    RANGE,
    amount,
    clean,
    count,
    duration,
    duration_range,
    electricity_words,
    fit_doubt,
    gib,
    layout_words,
    limit_doubts,
    money,
    number,
    offer_cells,
    offer_words,
    part_words,
    percent,
    plural,
    price_words,
    probability_words,
    spanned,
)
from xe_sizer.report.picture import Axis, Bar, Bars, Chart, Line, Mark
from xe_sizer.report.picture import Point as PicturePoint
from xe_sizer.report.text_charts import chart
from xe_sizer.report.verdict import job_words, words_of
from xe_sizer.result.common import ELECTRICITY, GIVEN_PRICE, LIKELY, SURE, USERS_OWN
from xe_sizer.result.studies import BY_BATCH, BY_LAYOUT, Candidate, PlanResult
from xe_sizer.result.training import Layout
from xe_sizer.units import BARE_SERVER, HOUR_S, WATT_PER_KW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.report.document import Block, Figure, Options
    from xe_sizer.result.common import Verdict
    from xe_sizer.result.studies import Answers, Kind, Way

# Hardware and layouts in a few words.

MOST_NUMBERS = 5  # of GPUs that are listed one by one
GIVEN = ("file", "flag", "env")  # origins of what somebody gave


def hardware_words(candidate: Candidate) -> str:
    node = "" if candidate.server.startswith(BARE_SERVER) else f" ({candidate.nodes:,} x {clean(candidate.server)})"
    return f"{candidate.gpus:,} x {clean(candidate.gpu)}{node}"


def hardware_name(candidate: Candidate) -> str:
    """The server, or the GPU where the server is a generic one."""
    return clean(candidate.gpu if candidate.server.startswith(BARE_SERVER) else candidate.server)


def cheapest_words(result: PlanResult) -> str:
    """Of which plans the cheapest is, where not all prices are known and compare; else empty."""
    kinds = {one.hourly_price.kind for one in result.candidates if one.hourly_price is not None} - USERS_OWN
    cheapest = None if result.answers.cheapest is None else result.candidates[result.answers.cheapest].hourly_price
    if len(kinds) > 1 and cheapest is not None:
        return f"of those priced {clean(cheapest.kind or 'alike')}"
    return "of those with a price" if any(one.price is None for one in result.candidates) else ""


def named_answers(answers: Answers) -> dict[str, int]:
    """What the plans that answer something are called, and their places among the candidates."""
    places = {
        "chosen": answers.chosen,
        "fewest": answers.smallest,
        "cheapest": answers.cheapest,
        "fewest GPU-hours": answers.fewest_gpu_hours if answers.cheapest is None else None,
        "fastest": answers.fastest,
    }
    return {name: place for name, place in places.items() if place is not None}


def _batch_words(result: PlanResult) -> str:
    """The global batch; where plans have several, the accumulation that they share or how far they go."""
    batches, train = _batches(result), result.scenario["train"]
    if len(batches) > 1 and "grad_accum" in train:
        return f"{count(train['grad_accum'])} micro-batches per step"
    if len(batches) > 1 and not is_given(result, "train.global_batch"):
        return f"global batch {count(min(batches))} to {count(max(batches))}, as it splits over the GPUs"
    return f"global batch {count(train['global_batch'])}"


def _batches(result: PlanResult) -> set[int]:
    """The global batches of all plans."""
    return {global_batch(candidate) for candidate in result.candidates}


def _own_batch(result: PlanResult, chosen: Candidate) -> str:
    """`, global batch 16` where other plans have another."""
    return f", {BATCH} {count(global_batch(chosen))}" if len(_batches(result)) > 1 else ""


def global_batch(candidate: Candidate) -> int:
    """Sequences of a step over all replicas of a plan [-]."""
    layout = candidate.layout
    return layout.micro_batch * layout.grad_accum * layout.dp


def is_given(result: PlanResult, key: str) -> bool:
    """Whether somebody gave a key of the scenario."""
    return result.scenario["origin"].get(key) in GIVEN


def asks_for_gpus(result: PlanResult) -> bool:
    """Whether the number of GPUs is given, so that no other was searched."""
    return is_given(result, "gpus") or is_given(result, "nodes")


def limits_of_search(result: PlanResult, chosen: Candidate) -> str:
    """What else than the limits keeps smaller plans out; empty where a plan is the smallest of all.

    `, of those over which your global batch of 1,024 can be split`
    """
    smaller = {
        one.code
        for kind in result.search.numbers
        for one in kind.skipped
        if one.code in (BY_BATCH, BY_LAYOUT) and min(one.gpus) < chosen.gpus
    }
    if BY_LAYOUT in smaller:
        return ", of those over which the given layout can be spread"
    batch = f"global batch of {count(result.scenario['train']['global_batch'])}"
    whose = "your" if is_given(result, "train.global_batch") else "the"
    return f", of those over which {whose} {batch} can be split" if smaller else ""


def fixed_by_file(result: PlanResult) -> dict[str, str]:
    """What the scenario file, perhaps read from another tool's, says of GPUs and layout, which a plan would choose."""
    origin, scenario = result.scenario["origin"], result.scenario
    keys = (key for key in origin if origin[key] == "file" and freed_with(result, key))
    return {key: f"{key_words(key)} {_value(scenario, key)}" for key in keys}


SHARING = ("rollout.colocated", "rollout.tp", "rollout.pp", "rollout.ep", "rollout.offload")
FREES = {"layout": ("train.micro_batch", *SHARING), "gpus": ("gpus", "nodes", "layout.dp", "rollout.gpus")}
"""Keys that each word of `--free` leaves open; `layout` all of that section too."""


def freed_with(result: PlanResult, key: str) -> str:
    """The word of `--free` that leaves a key of the file open; empty for one that no plan chooses.

    A micro-batch that makes the global batch with the accumulation is left open by its own name alone.
    """
    word = next((word for word in reversed(FREES) if key in FREES[word]), "layout" if key.startswith("layout.") else "")
    alone = word and word in (result.scenario.get("free") or ())
    return key.rpartition(".")[2].replace("_", "-") if alone else word


def key_words(key: str) -> str:
    """A key as people say it: `tp`, `micro batch`, `rollout tp`."""
    section, _, name = key.rpartition(".")
    return " ".join((*((section,) if section == "rollout" else ()), name.replace("_", " ")))


def _value(scenario: Mapping[str, Any], key: str) -> object:
    """The value of a key such as `layout.tp`."""
    section, _, name = key.rpartition(".")
    value = (scenario.get(section) or {}).get(name) if section else scenario.get(name)
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def searched_words(result: PlanResult) -> Iterator[str]:
    """The numbers of GPUs that were searched, and why others were not; of each kind of hardware where they differ."""
    kinds: dict[str, list[str]] = {}
    for kind in result.search.numbers:
        skipped = [f"{_counts(one.gpus)} ({clean(one.reason)})" for one in kind.skipped]
        if kind.tried:
            words = f"{_counts(kind.tried)} GPUs" + (f"; not {', '.join(skipped)}" if skipped else "")
            kinds.setdefault(words, []).append(clean(kind.hardware))
    for words, names in kinds.items():
        yield f"{', '.join(names)}: {words}" if len(kinds) > 1 else words


def _counts(numbers: Sequence[int]) -> str:
    """A few numbers, or how many there are from which to which: `8, 16 and 32`, `40 numbers from 16 to 1,024`."""
    if len(numbers) > MOST_NUMBERS:
        return f"{len(numbers)} numbers from {numbers[0]:,} to {numbers[-1]:,}"
    *first, last = [f"{number:,}" for number in numbers]
    return f"{', '.join(first)} and {last}" if first else last


def premises(result: PlanResult) -> dict[str, tuple[str, bool]]:
    """What all plans share: key -> words, and whether it was given."""
    scenario = result.scenario
    train = scenario["train"]
    rollout, length = scenario.get("rollout") or {}, "iterations" if scenario.get("rollout") else "steps"
    stated = {
        "stack": f"stack {clean(scenario['stack'])}",
        "train.global_batch": _batch_words(result),
        "train.seq_len": f"{count(train['seq_len'])} tokens",
        "train.padding": f"padding {train['padding']}",
        **({"train.steps": f"{length} {number(train['steps'])}"} if "steps" in train else {}),
        **({"train.epochs": f"epochs {number(train['epochs'])}"} if "epochs" in train else {}),
        **({"rollout.prompts": f"{count(rollout['prompts'])} prompts"} if "prompts" in rollout else {}),
        **({"rollout.group": f"{count(rollout['group'])} answers to each"} if rollout.get("group", 1) > 1 else {}),
    }
    if "output_tokens" in rollout:
        cut = f", cut at {count(rollout['max_output_tokens'])}" if "max_output_tokens" in rollout else ""
        stated["rollout.output_tokens"] = f"answers of {count(rollout['output_tokens'])} tokens{cut}"
    return {key: (text, is_given(result, key)) for key, text in stated.items()}


# The first screen: what was chosen, what it takes, and what else would do.

MOST_KINDS = 2  # of hardware whose numbers of GPUs the first screen lists
MOST_OTHERS = 5  # of the kinds beside the recommended one that the first screen names
CHEAPEST = "Cheapest"
ROOM = 160  # characters of notes that the first screen has room for


def plan_points(result: PlanResult) -> Iterator[Point]:
    """The chosen plan: time, cost, hardware, memory, limits; then the other answers, and its command."""
    if result.answers.chosen is None:
        yield from limits_points(result.verdict, None)
        yield from _fixed(result)
        if result.search.complete:
            yield Point("Next", "what it needs, and the nearest change that fits", command=result.command)
        return
    chosen = result.candidates[result.answers.chosen]
    yield Point("Time", " ".join(filter(None, (spanned(chosen.total_s), assumed_run(result.scenario)))))
    yield from evidence_point(result.basis, result.scenario)
    yield Point("Cost", ", ".join(_cost_words(chosen)))
    yield Point(
        "GPUs", f"{chosen.gpus:,} x {clean(chosen.gpu)}: {layout_words(chosen.layout)}{_own_batch(result, chosen)}"
    )
    if split := split_words(chosen.pools):
        yield Point("Rollout", f"training and answers: {split}")
    usable_bytes = chosen.peak_bytes + chosen.headroom_bytes
    yield memory_bar(chosen.peak_bytes, usable_bytes, chosen.headroom_bytes, fit_words(result.verdict))
    host = chosen.host_bytes, chosen.host_available_bytes, chosen.host_reserve_bytes
    yield from host_point(*host, chosen.host_most_bytes)
    yield from limits_points(result.verdict, chosen.currency)
    yield from _kinds_points(result)
    yield from _others(result, chosen)
    yield from _search(result)
    yield from _premises_point(result)
    yield Point("Next", "the full estimate of this plan", command=chosen.command, spare=6)
    yield from _change(result, chosen)


def _search(result: PlanResult) -> Iterator[Point]:
    """What was searched, and what the file leaves no choice in."""
    if not asks_for_gpus(result):
        told = list(searched_words(result))
        shown, more = told[:MOST_KINDS], len(told) - MOST_KINDS
        shown += [f"{plural(more, 'more kind')} of hardware"] if more > 0 else []
        yield Point("Searched", "; ".join(shown), spare=4 if len(result.kinds) > 1 else 0)
    yield from _fixed(result)


def _fixed(result: PlanResult) -> Iterator[Point]:
    """What the file leaves no choice in, and how to be free of it; what was left open of it."""
    if fixed := fixed_by_file(result):
        words = dict.fromkeys(freed_with(result, key) for key in fixed)
        asked = ",".join((*(result.scenario.get("free") or ()), *words))
        yield Point(
            "Fixed", f"your file fixes {', '.join(fixed.values())}: no other was tried; --free {asked} tries others"
        )
    if free := result.scenario.get("free"):
        yield Point("Freed", f"what the file says of {', '.join(map(clean, free))} was left open", spare=2)


def _premises_point(result: PlanResult) -> Iterator[Point]:
    """What may change the purchase: what nobody gave, and the warnings, as far as there is room for them."""
    known = premises(result)
    assumed = [text for key, (text, given) in known.items() if not given and key != "train.padding"]
    if assumed:
        yield Point("Assumed", ", ".join(assumed), spare=1)
    notes = [clean(text) for text in result.warnings]
    shown = [text for place, text in enumerate(notes) if not place or sum(map(len, notes[: place + 1])) <= ROOM]
    if len(shown) < len(notes):
        shown.append(f"{plural(len(notes) - len(shown), 'more note')} in the full report")
    if shown:
        yield Point("Notes", "; ".join(shown))


def _cost_words(one: Candidate) -> Iterator[str]:
    if one.price is not None:
        yield money(one.price, one.currency)
        yield from part_words(one.cost_parts)
    yield f"{number(one.gpu_hours)} GPU-hours"
    if one.energy_kwh is not None:
        yield f"{number(one.energy_kwh)} kWh"
    if said := electricity_words(one.electricity, one.currency, one.cost_parts, one.price is not None):
        yield said
    yield from price_words(one.hourly_price)


def _kinds_points(result: PlanResult) -> Iterator[Point]:
    """Why this kind of hardware, and what the others come to; nothing where there is one."""
    if len(result.kinds) < 2:
        return
    yield Point("Why", f"{why_words(result)}{less_to_buy(result)}")
    others = [_kind_words(result, kind) for kind in result.kinds if kind.candidate != result.answers.chosen]
    more = len(others) - MOST_OTHERS
    told = [*others[:MOST_OTHERS], *([f"{plural(more, 'more kind')} of hardware"] if more > 0 else [])]
    yield Point("Others", "; ".join(told))


def _change(result: PlanResult, chosen: Candidate) -> Iterator[Point]:
    """The other way to run the job that saves most; the plan itself keeps what is asked."""
    for way in result.ways[:1]:
        yield Point("Change", f"{clean(way.change)}: {way_words(way, chosen)}", command=clean(way.command), spare=2)


def way_words(way: Way, chosen: Candidate) -> str:
    """What the best plan of another way to run the job comes to."""
    one = way.candidate
    gain = f"{100 * (way.time_ratio - 1):+.0f} % time on as many GPUs"
    if one.meets_limits and one.nodes < chosen.nodes and one.server == chosen.server:
        price = f", {money(one.price, one.currency)} instead of {amount(chosen.price or 0)}" if one.price else ""
        return f"{bought_words(one)} would do, in {duration(one.total_s.expected)}{price} ({gain})"
    if one.gpus == chosen.gpus and one.server == chosen.server:
        return f"{duration(one.total_s.expected)} instead of {duration(chosen.total_s.expected)} ({gain})"
    missed = "" if one.meets_limits else ", misses limits"
    return f"{bought_words(one)} in {duration(one.total_s.expected)}{missed} ({gain})"


def why_words(result: PlanResult) -> str:
    """Why the plan is on its kind of hardware, in one sentence with the next kind."""
    met = [
        result.candidates[kind.candidate] for kind in result.kinds if kind.meets_limits and kind.candidate is not None
    ]
    chosen = result.candidates[result.answers.chosen or 0]
    keep = "meet the limits" if result.verdict.limits else "fit"
    if not met:
        return f"none of {len(result.kinds)} kinds meets the limits; {hardware_name(chosen)} comes closest"
    if len(met) == 1:
        return f"the only one of {len(result.kinds)} kinds on which plans {keep}"
    alike = [one for one in met[1:] if _measure(result, one) == _measure(result, chosen)]
    following = min(alike, key=lambda one: one.total_s.expected, default=met[1])
    best = _best_words(result, chosen)
    comma = "," * (" of those " in best)
    best = f"{best}{comma} of {len(met)} kinds that {keep}"
    if words := _sums_words(result, chosen, alike):
        return f"{best}, {words}"
    if alike:
        return f"{best}, as many as {bought_words(following)}, and {_better_words(chosen, following)}"
    if result.objective == "cost" and (following.price is None) != (chosen.price is None):
        return best
    measured = f": {_measure(result, following)}" if result.objective in ("cost", "capex", "time", "energy") else ""
    return f"{best}; next is {bought_words(following)}{measured}"


def _sums_words(result: PlanResult, chosen: Candidate, alike: Sequence[Candidate]) -> str:
    """That of kinds alike by the objective another costs more to buy, and what it does for that; else empty."""
    dearer = [one for one in alike if chosen.capex and one.capex and one.capex > chosen.capex]
    if not dearer or result.objective == "capex":
        return ""
    other = min(dearer, key=lambda one: one.total_s.expected)
    times = f"{duration(other.total_s.expected)} instead of {duration(chosen.total_s.expected)}"
    return (
        f"and of as many the lowest sum to buy, {money(chosen.capex, chosen.currency)}; {bought_words(other)} "
        f"{'take' if other.nodes > 1 else 'takes'} {times} and {money(other.capex, other.currency)}"
    )


def less_to_buy(result: PlanResult) -> str:
    """That more servers of another kind cost less to buy than those of the plan; else empty."""
    chosen = result.candidates[result.answers.chosen or 0]
    met = (result.candidates[kind.candidate or 0] for kind in result.kinds if kind.meets_limits)
    known = [one for one in met if one.capex and one.currency == chosen.currency]
    least = min(known, key=lambda one: one.capex or 0.0, default=chosen)
    if not chosen.capex or not least.capex or least.capex >= chosen.capex:
        return ""
    sums = f"{money(least.capex, least.currency)} instead of {money(chosen.capex, chosen.currency)}"
    return f"; the lowest sum to buy is that of {bought_words(least)}: {sums}"


def bought_words(candidate: Candidate) -> str:
    """What is bought: servers, and how many GPUs they have; or cards."""
    if candidate.server.startswith(BARE_SERVER):
        return f"{candidate.gpus:,} x {clean(candidate.gpu)}"
    return f"{candidate.nodes:,} x {clean(candidate.server)} ({plural(candidate.gpus, 'GPU')}{_cooling(candidate)})"


def _cooling(candidate: Candidate) -> str:
    """That servers need a loop of liquid, which not every data centre has."""
    return ", liquid-cooled" if candidate.liquid_cooled else ""


def price_tag(candidate: Candidate) -> str:
    """The price of a plan and whose servers it is for: `, 2,026 USD rented`; empty where no price is known."""
    if candidate.price is None:
        return ""
    offer = candidate.hourly_price
    whose = "" if offer is None else " rented" if offer.own is None else " owned"
    return f", {money(candidate.price, candidate.currency)}{whose}"


def _measure(result: PlanResult, one: Candidate) -> str:
    """What the objective makes small of a plan, as it is printed."""
    energy = f"{number(one.energy_kwh)} kWh" if one.energy_kwh is not None else ""
    price = money(one.price, one.currency) if one.price is not None else f"{number(one.gpu_hours)} GPU-hours"
    words = {"servers": count(one.nodes), "gpus": count(one.gpus), "time": duration(one.total_s.expected)}
    return (words | {"cost": price, "energy": energy, "capex": money(one.capex, one.currency)})[result.objective]


def _better_words(chosen: Candidate, other: Candidate) -> str:
    """What decides between two plans that are alike by the objective."""
    times = f"{duration(chosen.total_s.expected)} instead of {duration(other.total_s.expected)}"
    faster = chosen.total_s.expected < other.total_s.expected
    return f"faster: {times}" if faster else f"surer or plainer: {times}"


def _kind_words(result: PlanResult, kind: Kind) -> str:
    """What the best plan on a kind of hardware comes to, or why there is none."""
    if kind.candidate is None:
        return f"{clean(kind.hardware)}: {clean(kind.reason)}"
    one = result.candidates[kind.candidate]
    missed = "" if kind.meets_limits else f", misses limits: {clean(kind.reason)}"
    words = f"{bought_words(one)} in {duration(one.total_s.expected)}{price_tag(one)}{missed}"
    if one.capex is not None:
        words += f" ({money(one.capex, one.currency)} to buy)"
    return ", ".join((words, *rented_words(result, kind)))


def rented_words(result: PlanResult, kind: Kind) -> Iterator[str]:
    """Of a kind that is rented: its cheapest plan, and from which use servers that are bought cost less."""
    if kind.cheapest is not None:
        one = result.candidates[kind.cheapest]
        yield f"cheapest {bought_words(one)} in {duration(one.total_s.expected)}{price_tag(one)}"
    yield from own_words(result, kind)


def own_words(result: PlanResult, kind: Kind) -> Iterator[str]:
    """From which use servers that are bought cost less than those of a kind that is rented."""
    if kind.own is not None:
        own, use = result.candidates[kind.own], kind.own_from_utilisation
        name = f"owned {hardware_name(own)}"
        never = use is None or use > 1
        yield f"{name} costs more at any use" if never else f"{name} costs less from {percent(use or 0.0)} use"


def _others(result: PlanResult, chosen: Candidate) -> Iterator[Point]:
    """The fewest, the cheapest and the fastest, where they are not the chosen one."""
    answers = result.answers
    named = {"Fewest": (answers.smallest, 3), CHEAPEST: (answers.cheapest, 2), "Fastest": (answers.fastest, 5)}
    for label, (place, spare) in named.items():
        if place is None or result.candidates[place] == chosen:
            continue
        one = result.candidates[place]
        price = f", {money(one.price, one.currency)}" if one.price is not None else ""
        if one.hourly_price is not None and one.hourly_price != chosen.hourly_price:
            price += f" ({offer_words(one.hourly_price)})"
        figures = f"{spanned(one.total_s)}, {number(one.gpu_hours)} GPU-hours{price}"
        of = f"{cheapest_words(result)}, " if label == CHEAPEST and cheapest_words(result) else ""
        missed = "" if one.meets_limits or not result.verdict.meets_limits else ", misses limits"
        yield Point(label, f"{of}{clean(hardware_words(one))}: {figures}{missed}", spare=spare)


# Picture: time against GPUs, the Pareto-optimal plans with their ranges, the chosen one named.

RANKS = ("other plan", "Pareto-optimal", "chosen")


def pictures(result: PlanResult, figure: Figure | None) -> Iterator[Picture]:
    """The chart, and the answers with their ranges. figure : the chart in characters"""
    if not result.candidates:
        return
    if len(result.kinds) > 1:
        yield _kinds_picture(result)
    yield _answers_picture(result)
    yield _time_chart(result, figure)
    yield _cost_chart(result)


def _marks(result: PlanResult) -> tuple[Mark, ...]:
    found = [limit.limit for limit in result.verdict.limits if limit.name == "max_hours"]
    return tuple(Mark(limit * HOUR_S, f"limit {number(limit)} h") for limit in found)


def named(result: PlanResult) -> dict[int, str]:
    """Candidates that are an answer, and what they are: place -> `chosen, fastest`."""
    words: dict[int, list[str]] = {}
    for name, place in named_answers(result.answers).items():
        words.setdefault(place, []).append(name)
    return {place: ", ".join(names) for place, names in words.items()}


MOST_SAID = 45  # characters of a reason that a bar has room for


def _kinds_picture(result: PlanResult) -> Picture:
    """How long the best plan on each kind of hardware takes, with its range, against the limit."""
    bars = tuple(bar for kind in result.kinds[:SHOWN] for bar in _kind_bars(result, kind))
    longest = max(bar.high for bar in bars if bar.high is not None)
    says = "; ".join(f"{bar.name} {bar.text}" for bar in bars)
    drawing = Bars(time_axis("Time", longest), bars, _marks(result))
    return Picture("Kinds of hardware", says, drawing, RANGE_NOTE)


def _kind_bars(result: PlanResult, kind: Kind) -> Iterator[Bar]:
    """The best plan of a kind of hardware, and of one that is rented the cheapest too."""
    if kind.candidate is None:
        reason = clean(kind.reason)
        yield Bar(clean(kind.hardware), None, reason if len(reason) <= MOST_SAID else "no plan")
        return
    one, chosen = result.candidates[kind.candidate], kind.candidate == result.answers.chosen
    word = "recommended: " if kind.recommended else "nearest: " if chosen else ""
    missed = "" if kind.meets_limits else ", misses limits"
    text = f"{duration(one.total_s.expected)}, {duration_range(one.total_s)}{price_tag(one)}{missed}"
    yield Bar(f"{word}{bought_words(one)}", one.total_s.expected, text, one.total_s.low, one.total_s.high, chosen)
    if kind.cheapest is not None:
        one = result.candidates[kind.cheapest]
        text = f"{duration(one.total_s.expected)}, {duration_range(one.total_s)}{price_tag(one)}"
        name = f"its cheapest: {bought_words(one)}"
        yield Bar(name, one.total_s.expected, text, one.total_s.low, one.total_s.high)


def _answers_picture(result: PlanResult) -> Picture:
    """How long the answers take, with their ranges, against the limit."""
    shown = [(result.candidates[place], words) for place, words in named(result).items()]
    bars = tuple(
        Bar(
            f"{words}: {hardware_words(one)}",
            one.total_s.expected,
            f"{duration(one.total_s.expected)}, {duration_range(one.total_s)}",
            one.total_s.low,
            one.total_s.high,
        )
        for one, words in shown
    )
    longest, shortest = (max(one.total_s.high for one, _ in shown), min(one.total_s.expected for one, _ in shown))
    far = longest > FAR_APART * shortest
    says = "; ".join(f"{bar.name} {bar.text}" for bar in bars)
    drawing = Bars(time_axis("Time", longest, far), bars, _marks(result))
    return Picture("Time of the answers", says, drawing, DOT_NOTE if far else RANGE_NOTE)


FAR_APART = 20.0  # times the shortest from which a bar of it could not be seen
DOT_NOTE = "The dot is the expected value, the line through it the range; the axis is logarithmic."


def _points(
    result: PlanResult, value: Callable[[Candidate], float | None], words: Callable[[float], str]
) -> tuple[PicturePoint, ...]:
    """A figure of every plan against its number of GPUs; the ranges are those of the times."""
    names, kinds, points = named(result), _kinds_of_charts(result), []
    for place, one in enumerate(result.candidates):
        up = value(one)
        if up is None:
            continue
        chosen, best = place == result.answers.chosen, one.pareto or place in names
        low, high = (up * end / one.total_s.expected for end in (one.total_s.low, one.total_s.high))
        told = "chosen" if chosen else names.get(place, "")
        point = PicturePoint(
            float(one.gpus),
            up,
            f"{hardware_words(one)}: {words(up)} ({words(low)} to {words(high)})",
            f"{told}: {one.gpus:,} GPUs, {words(up)}" if told else f"{one.gpus:,}" if best else "",
            low if best else None,
            high if best else None,
            kinds.index(hardware_name(one)) if best else 0,
            2 if chosen else 1 if best else 0,
        )
        points.append(point)
    return tuple(points)


def _kinds_of_charts(result: PlanResult) -> tuple[str, ...]:
    """Kinds of hardware whose plans stand out."""
    names = named(result)
    stand_out = (one for place, one in enumerate(result.candidates) if one.pareto or place in names)
    return tuple(dict.fromkeys(map(hardware_name, stand_out)))


def _curves(result: PlanResult, value: Callable[[Candidate], float | None]) -> tuple[Line, ...]:
    """The same figure of each kind of hardware as a line."""
    kinds: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(result.candidates, key=lambda one: one.gpus):
        if (up := value(one)) is not None:
            kinds.setdefault(hardware_name(one), []).append((float(one.gpus), up))
    return tuple(Line(name, tuple(points)) for name, points in kinds.items() if len(points) > 1)


GPUS = Axis("GPUs", logarithmic=True)


def _time_chart(result: PlanResult, figure: Figure | None) -> Picture:
    def value(one: Candidate) -> float:
        return one.total_s.expected

    slowest = max(map(value, result.candidates))
    points, kinds = _points(result, value, duration), _kinds_of_charts(result)
    up = time_axis("Time of the whole job", slowest, True)
    drawing = Chart(GPUS, up, points, RANKS, kinds, _marks(result), lines=_curves(result, value))
    says = f"{len(points)} plans; {_said(result.candidates, named(result))}"
    note = "Numbers of GPUs, with the ranges of the times; both axes are logarithmic."
    return Picture("Time against GPUs", says, drawing, note, figure)


def _cost_chart(result: PlanResult) -> Picture:
    """Price against GPUs, or GPU-hours where no plan has a price; prices in another currency are left out."""
    currency = next((one.currency for one in result.candidates if one.price is not None), None)

    def value(one: Candidate) -> float | None:
        return one.gpu_hours if currency is None else one.price if one.currency == currency else None

    def words(cost: float) -> str:
        return f"{number(cost)} GPU-hours" if currency is None else money(cost, currency)

    points, kinds = _points(result, value, words), _kinds_of_charts(result)
    found = [limit.limit for limit in result.verdict.limits if limit.name == "max_cost" and currency]
    marks = tuple(Mark(limit, f"limit {words(limit)}") for limit in found)
    what = f"Price [{clean(currency)}]" if currency else "GPU-hours"
    drawing = Chart(GPUS, Axis(what), points, RANKS, kinds, marks, lines=_curves(result, value))
    says = "; ".join(point.says for point in points if point.rank)
    note = "Ranges are those of the times; the axis of GPUs is logarithmic."
    return Picture(
        f"{'Price' if currency else 'GPU-hours'} against GPUs", f"{len(points)} plans; {says}", drawing, note
    )


def _said(candidates: Sequence[Candidate], names: dict[int, str]) -> str:
    answers = (
        f"{words} {hardware_words(candidates[place])} in {duration(candidates[place].total_s.expected)}"
        for place, words in names.items()
    )
    return "; ".join(answers)


# The report.

ANSWER = PlanResult
SHOWN = 12  # candidates of the table; JSON and CSV have all
WORDS = {
    "servers": "the fewest servers",
    "gpus": "the fewest GPUs",
    "cost": "the cheapest",
    "capex": "the lowest sum to buy",
    "time": "the fastest",
    "energy": "the lowest energy",
}
LEAST = {
    "servers": "the fewest servers",
    "gpus": "the fewest GPUs",
    "cost": "the lowest price (GPU-hours where no price compares)",
    "capex": "the lowest sum to buy",
    "time": "the shortest time",
    "energy": "the lowest energy",
}
BATCH = "global batch"  # a column: sequences of a step, where plans have several
TO_BUY = "to buy"  # a column: what the servers cost that are bought
FITS = "probability of fit"  # a column: how likely memory suffices
WRITERS = {f"rollout_{name}": name for name in ("gpus", "replicas", "tp", "pp", "ep")}  # columns of a CSV file
NO_DOUBT = 0.99  # probability from which memory takes nothing from another one
FEWEST_GPU_HOURS = "the fewest GPU-hours"
EQUAL = "plans as good as each other within the model's error (8 %) count as equal, and the smaller is named"
# Limits that no candidate can miss: the search keeps within them.
SEARCHED_WITHIN = ("max_gpus", "min_headroom_gib")


def document(result: PlanResult, options: Options) -> Document:
    """Verdict and chosen plan, the answers side by side, time against GPUs, the command of the chosen one."""
    blocks: list[Block] = [Summary(tuple(plan_points(result)))]
    if result.candidates:
        blocks += [*_kinds(result), _answers(result), _candidates(result)]
        blocks += pictures(result, _figure(result, options.width))
    if result.answers.chosen is not None and result.ways[1:]:
        chosen = result.candidates[result.answers.chosen]
        steps = (Step(clean(way.change), way_words(way, chosen), clean(way.command)) for way in result.ways[1:])
        blocks.append(Steps("Further changes", tuple(steps)))
    if result.search.rules:
        blocks.append(_rules(result))
    if not result.candidates or not 1 < len(result.kinds) <= SHOWN:  # else the table of kinds has them
        blocks += left_out(result.left_out)
    blocks += listed("Warnings", map(clean, result.warnings))
    caution = _caution(result)
    return Document(
        _word(result),
        result.verdict.ok,
        _title(result),
        _reasons_beyond(result),
        tuple(blocks),
        (caution,) if caution else (),
    )


def _word(result: PlanResult) -> str:
    if not result.search.complete:
        return "INCOMPLETE"
    return words_of(result)


def _reasons(result: PlanResult) -> tuple[str, ...]:
    return tuple(clean(reason.message) for reason in result.verdict.reasons)


def _reasons_beyond(result: PlanResult) -> tuple[str, ...]:
    """Reasons that the headline does not say: where there is no plan, it says why."""
    return () if result.answers.chosen is None else _reasons(result)


def _caution(result: PlanResult) -> str:
    if not result.search.complete:
        return "interrupted: the best of what had been searched by then"
    if not result.verdict.ok:
        return ""
    settled = map(clean, result.verdict.settled_by)
    if joint := _joint(result.verdict):
        return "; ".join((joint, *settled))
    return "; ".join(filter(None, (fit_doubt(result.verdict), *limit_doubts(result.verdict))))


def _joint(verdict: Verdict) -> str:
    """How sure memory and limits are, alone and together, where memory is not sure, or neither is beyond doubt."""
    memory = verdict.fit_probability
    if memory is None:
        return ""
    doubtful = [limit for limit in verdict.limits if limit.low is not None and limit.probability is not None]
    both_open = memory < NO_DOUBT and any(limit.certainty != SURE for limit in doubtful)
    if verdict.fit_certainty == SURE and not both_open:
        return ""
    words = f"memory suffices with {probability_words(memory)} probability"
    if not doubtful:
        return words
    least = min(doubtful, key=lambda limit: limit.probability or 0.0)
    both = memory * (least.probability or 0.0)
    return f"{words}, {clean(least.name)} {probability_words(least.probability or 0.0)}, both {probability_words(both)}"


def _title(result: PlanResult) -> str:
    """What the plan is, for a report whose first screen has the figures; why there is none."""
    job = job_words(result.scenario)
    if result.answers.chosen is None:
        return f"{job}: {'; '.join((*_reasons(result), _searched(result)))}"
    chosen = result.candidates[result.answers.chosen]
    if not result.verdict.meets_limits:
        return f"{job}: the closest to the limits is {hardware_words(chosen)}"
    if result.objective == "servers" and result.verdict.limits and not chosen.server.startswith(BARE_SERVER):
        box = f"({hardware_name(chosen)}, {plural(chosen.gpus, 'GPU')}{_cooling(chosen)})"
        if chosen.nodes == 1 or asks_for_gpus(result):
            return f"{job}: {plural(chosen.nodes, 'server')} {box} meet{'s' * (chosen.nodes == 1)} the limits"
        fewest = f"are the fewest that meet the limits{limits_of_search(result, chosen)}"
        return f"{job}: {plural(chosen.nodes, 'server')} {box} {fewest}"
    if result.objective in ("servers", "gpus") and asks_for_gpus(result):
        meet = "meet the limits" if result.verdict.limits else "fit"
        return f"{job}: {hardware_words(chosen)} {meet}"
    of = limits_of_search(result, chosen) if result.objective in ("servers", "gpus") else ""
    limits = " within the limits" if result.verdict.limits else ""
    return f"{job}: {_best_words(result, chosen)}{limits}{of}: {hardware_words(chosen)}"


def _searched(result: PlanResult) -> str:
    layouts = plural(result.search.layouts_considered, "layout")
    return f"{layouts} searched in {duration(result.search.seconds)}"


def _headline(result: PlanResult) -> str:
    """The title with what stands alone needs: how long it takes, and what was searched."""
    if result.answers.chosen is None:
        return _title(result)
    expected_s = result.candidates[result.answers.chosen].total_s.expected
    return f"{_title(result)}, {duration(expected_s)}; {_searched(result)}"


def _best_words(result: PlanResult, chosen: Candidate) -> str:
    """What the plan is the best in; the cheapest only of what has a price."""
    if result.objective == "capex" and chosen.capex is None:
        return WORDS["servers"]
    if result.objective != "cost":
        return WORDS[result.objective]
    if chosen.price is None:
        return FEWEST_GPU_HOURS
    return f"{WORDS['cost']} {cheapest_words(result)}".strip()


def _columns(result: PlanResult) -> tuple[Column, ...]:
    kinds = len({hardware_name(candidate) for candidate in result.candidates}) > 1
    servers = all(not candidate.server.startswith(BARE_SERVER) for candidate in result.candidates)
    price = any(candidate.price is not None for candidate in result.candidates)
    power = any(candidate.electricity is not None for candidate in result.candidates)
    return (
        *((Column("hardware"),) if kinds else ()),
        *((Column("servers", True, spare=4),) if servers else ()),
        Column("GPUs", True),
        Column("time", True),
        Column(RANGE, True),
        Column("GPU-hours", True, spare=2 if price else 1),
        *((Column("price", True),) if price else ()),
        *((Column(ELECTRICITY, True, spare=2),) if power else ()),
        Column("GiB used", True, spare=5),
        Column(FITS, True, spare=6),
        Column("bound by", spare=3),
        *((Column("rollout", least=16),) if any(candidate.pools for candidate in result.candidates) else ()),
        *((Column(BATCH, True),) if len(_batches(result)) > 1 else ()),
        Column("layout", least=24),
    )


def _cells(candidate: Candidate, columns: Sequence[Column]) -> tuple[str, ...]:
    cells = _figures(candidate)
    return tuple(cells[column.name] for column in columns)


def _figures(candidate: Candidate) -> dict[str, str]:
    """What tables have of a plan, by the names of their columns."""
    chance, offer = candidate.fit_probability, candidate.hourly_price
    return {
        "hardware": hardware_name(candidate),
        "servers": count(candidate.nodes),
        "GPUs": count(candidate.gpus),
        "time": duration(candidate.total_s.expected),
        RANGE: duration_range(candidate.total_s),
        "GPU-hours": number(candidate.gpu_hours),
        "price": money(candidate.price, candidate.currency),
        ELECTRICITY: money(candidate.electricity, candidate.currency),
        "price is": NOT_A_NUMBER if offer is None else "as given" if offer.kind == GIVEN_PRICE else clean(offer.kind),
        TO_BUY: money(candidate.capex, candidate.currency),
        "kW": NOT_A_NUMBER if candidate.power_w is None else number(candidate.power_w / WATT_PER_KW),
        "GiB used": gib(candidate.peak_bytes),
        FITS: NOT_A_NUMBER if chance is None else probability_words(chance),
        "fits": NOT_A_NUMBER if chance is None else probability_words(chance),
        "bound by": clean(candidate.bound),
        "rollout": split_words(candidate.pools),
        BATCH: count(global_batch(candidate)),
        "layout": layout_words(candidate.layout),
    }


def _kinds(result: PlanResult) -> Iterator[Table]:
    """Every kind of hardware with its best plan, the recommended one first, or why there is none."""
    if len(result.kinds) < 2:
        return
    shown = result.kinds[:SHOWN]
    plans = [result.candidates[kind.candidate] for kind in shown if kind.candidate is not None]
    offers = [one.hourly_price for one in plans if one.hourly_price is not None]
    servers = any(servers_words(one) != NOT_A_NUMBER for one in plans)
    columns = (
        Column("hardware", least=max(len(kind.hardware) for kind in shown)),
        *((Column("servers", True),) if servers else ()),
        Column("GPUs", True, spare=4 if servers else 0),
        Column("time", True),
        Column(RANGE, True, spare=1),
        Column("GPU-hours", True, spare=3),
        *((Column("price", True), Column("price is", spare=2)) if offers else ()),
        *((Column(TO_BUY, True),) if any(one.capex is not None for one in plans) else ()),
        *((Column(ELECTRICITY, True, spare=3),) if any(one.electricity is not None for one in plans) else ()),
        Column("kW", True),
        Column("fits", True),
        Column("outcome", least=12),
    )
    rows = tuple(cells for kind in shown for cells in _kind_rows(result, kind, columns))
    more = f"{SHOWN} of {len(result.kinds)} kinds; " if len(result.kinds) > SHOWN else ""
    met = " that meets the limits" if result.verdict.limits else ""
    note = (
        f"{more}of each kind the plan with {LEAST[result.objective]}{met}, else the one that comes closest; "
        f"fits: probability that memory suffices, at least {_sure_words(result)} where any plan has it; "
        "kW: of these servers at load"
    )
    if any(one.electricity is not None for one in plans):
        note += "; electricity: of the job, in the price where there is one"
    against = (f"against rented {kind.hardware} {words}" for kind in shown for words in own_words(result, kind))
    note = "; ".join((note, *map(clean, against), *offers_words(plans)))
    yield Table("Kinds of hardware", columns, rows, note=note)


def _sure_words(result: PlanResult) -> str:
    """How sure memory must be."""
    asked = (result.scenario.get("limits") or {}).get("confidence")
    return percent(LIKELY if asked is None else asked)


def _kind_rows(result: PlanResult, kind: Kind, columns: Sequence[Column]) -> Iterator[tuple[str, ...]]:
    """The best plan of a kind of hardware, and of one that is rented the cheapest too."""
    blank = {column.name: NOT_A_NUMBER for column in columns} | {"hardware": clean(kind.hardware)}
    found = [(kind.candidate, clean(kind.reason))]
    if kind.candidate is not None:
        found = [(kind.candidate, _outcome(kind, result.candidates[kind.candidate]))]
        found += [] if kind.cheapest is None else [(kind.cheapest, "its cheapest, limits met")]
    for place, outcome in found:
        one = None if place is None else result.candidates[place]
        figures = {} if one is None else _figures(one) | {"servers": servers_words(one)}
        cells = blank | figures | {"outcome": outcome}
        yield tuple(cells[column.name] for column in columns)


def servers_words(candidate: Candidate) -> str:
    """How many servers; a dash where cards are bought."""
    return NOT_A_NUMBER if candidate.server.startswith(BARE_SERVER) else count(candidate.nodes)


def _outcome(kind: Kind, one: Candidate) -> str:
    """Whether a kind of hardware is the recommended one, what became of the limits, and what is unsure."""
    chance = kind.limits_probability
    if not kind.meets_limits:
        return f"misses limits: {clean(kind.reason)}"
    told = ["recommended"] if kind.recommended else []
    unsure = ", unsure" if chance is not None and chance < LIKELY else ""
    told += [f"limits met{unsure} ({probability_words(chance)})"] if chance is not None else []
    told += ["memory unsure"] if one.fit_probability is None or one.fit_probability < LIKELY else []
    return ", ".join(told) or "fits"


def _answers(result: PlanResult) -> Table:
    columns = _columns(result)
    named = named_answers(result.answers)
    rows = tuple((name, *_cells(result.candidates[place], columns)) for name, place in named.items())
    told = (text if given else f"{text} (assumed)" for text, given in premises(result).values())
    note = "; ".join((f"all plans: {', '.join(told)}", EQUAL, *_prices(result)))
    return Table("Answers", (Column("plan"), *columns), rows, note=note)


def offers_words(plans: Iterable[Candidate]) -> Iterator[str]:
    """Kind, region and date of the prices of plans; nothing where none has one."""
    offers: dict[str, list[str]] = {}
    for price in dict.fromkeys(one.hourly_price for one in plans if one.hourly_price is not None):
        offers.setdefault(offer_words(price), []).append(clean(price.hardware))
    if offers:
        yield "prices: " + "; ".join(f"{', '.join(dict.fromkeys(names))} {words}" for words, names in offers.items())


def _prices(result: PlanResult) -> Iterator[str]:
    """How the prices are meant, and which of them compare."""
    yield from offers_words(result.candidates)
    if result.answers.cheapest is not None and (of := cheapest_words(result)):
        yield f"the cheapest is that {of}"


def _candidates(result: PlanResult) -> Table:
    """Those that are Pareto-optimal, by their time; marked where they miss a limit."""
    best = _best(result)
    shown = [best[round(index)] for index in _spread(len(best), SHOWN)]
    columns = _columns(result)
    limited = any(limit.name not in SEARCHED_WITHIN for limit in result.verdict.limits)
    rows = tuple(
        (*_cells(candidate, columns), *((("met" if candidate.meets_limits else "MISSED"),) if limited else ()))
        for candidate in shown
    )
    slowest = max(candidate.total_s.expected for candidate in shown)
    shares = tuple(candidate.total_s.expected / slowest for candidate in shown)
    more = f"{len(shown)} of {len(best)}; " if len(best) > len(shown) else ""
    note = f"{more}no other plan is better in GPUs, time, price or energy without being worse in another of them"
    last = (Column("limits"),) if limited else ()
    return Table("Pareto-optimal plans", (*columns, *last), rows, shares, note=note, bars="time")


def _best(result: PlanResult) -> list[Candidate]:
    best = [candidate for candidate in result.candidates if candidate.pareto]
    return sorted(best, key=lambda candidate: candidate.total_s.expected)


def _spread(size: int, most: int) -> Iterator[float]:
    """Places of at most so many entries, evenly spread, ends included."""
    shown = min(size, most)
    for place in range(shown):
        yield place * (size - 1) / max(shown - 1, 1)


def _figure(result: PlanResult, width: int | None) -> Figure | None:
    points = [(float(c.gpus), c.total_s.expected, c.pareto) for c in result.candidates]
    return chart("Time against GPUs", points, lambda gpus: f"{gpus:,.0f}", duration, width=width)


def _rules(result: PlanResult) -> Table:
    columns = (Column("rule"), Column("removed", True), Column("of"), Column("because"))
    rows = tuple((clean(rule.name), count(rule.removed), rule.unit, clean(rule.reason)) for rule in result.search.rules)
    searched = result.search
    note = f"{searched.layouts_considered:,} layouts were legal, {searched.layouts_feasible:,} of them fit in memory"
    return Table("What the rules removed", columns, rows, note=note)


def rows(result: PlanResult, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a candidate, SI units in the column names; then one for each kind of hardware without a plan.

    best_of_kind : `recommended`, or `best` of the others that are their kind's best
    reason : why a kind has no plan, or which limits its best one misses
    """
    sizes = Layout.__struct_fields__
    apart = ("layout", "total_s", "command", "pools", "hourly_price", "cost_parts")
    names = [name for name in Candidate.__struct_fields__ if name not in apart]
    head = (*names, *offer_cells(None), "total_low_s", "total_s", "total_high_s", *sizes, *WRITERS)
    kinds = {kind.candidate: kind for kind in result.kinds}
    yield *head, "best_of_kind", "reason", "command"
    for place, one in enumerate(result.candidates):
        span = (one.total_s.low, one.total_s.expected, one.total_s.high)
        layout = (getattr(one.layout, size) for size in sizes)
        writer = writing_pool(one.pools)
        pool = (None if writer is None else getattr(writer, size) for size in WRITERS.values())
        figures = (*(getattr(one, name) for name in names), *offer_cells(one.hourly_price).values())
        kind = kinds.get(place)
        best = (None, None) if kind is None else ("recommended" if kind.recommended else "best", kind.reason or None)
        yield *figures, *span, *layout, *pool, *best, one.command
    for kind in (kind for kind in result.kinds if kind.candidate is None):
        cells = {"server": kind.hardware, "meets_limits": False}
        yield *(cells.get(name) for name in head), None, kind.reason, None


def findings(result: PlanResult, options: Options) -> Iterator[Finding]:
    """The plan, then each Pareto-optimal candidate; one that misses a limit is no failure of the plan."""
    job, best = job_words(result.scenario), _best(result)
    cases = [*_plan_cases(result)]
    for one in best:
        name, said = hardware_words(one), _candidate_words(one)
        missed = Case(name, "skipped", message="misses limits", output=said)
        cases.append(Case(name, output=said) if one.meets_limits else missed)
    caution = _caution(result)
    lines = (_headline(result), *_reasons_beyond(result), *([caution] if caution else []))
    remarks = [judgement(result.ok, _word(result).lower(), lines, bool(caution), options.file)]
    for candidate in best:
        said = f"{_candidate_words(candidate)}{'' if candidate.meets_limits else '; misses limits'}"
        remarks.append(Remark("notice", f"{TOOL}: candidate", said, options.file))
    remarks += [Remark("warning", TOOL, f"{job}: {text}", options.file) for text in result.warnings]
    yield Finding(options.file or job, tuple(cases), tuple(remarks))


def _plan_cases(result: PlanResult) -> Iterator[Case]:
    said = _headline(result)
    if result.ok:
        yield Case("plan", output=said)
    else:
        yield Case("plan", "failed", "no-plan", said, "\n".join(_reasons(result)), said)
    yield from (limit_case(result.verdict, limit) for limit in result.verdict.limits)


def _candidate_words(candidate: Candidate) -> str:
    figures = f"{duration(candidate.total_s.expected)}, {number(candidate.gpu_hours)} GPU-hours"
    return f"{hardware_words(candidate)}: {figures}; {layout_words(candidate.layout)}"
