"""Hardware and layouts in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.report.format import clean, count, number
from xe_sizer.result.common import GIVEN_PRICE
from xe_sizer.result.studies import BY_BATCH, BY_LAYOUT
from xe_sizer.units import BARE_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from xe_sizer.result.studies import Answers, Candidate, PlanResult
    from xe_sizer.result.training import Layout

MOST_NUMBERS = 5  # of GPUs that are listed one by one
GIVEN = ("file", "flag", "env")  # origins of what somebody gave


def hardware_words(candidate: Candidate) -> str:
    node = "" if candidate.server.startswith(BARE_SERVER) else f" ({candidate.nodes:,} x {clean(candidate.server)})"
    return f"{candidate.gpus:,} x {clean(candidate.gpu)}{node}"


def hardware_name(candidate: Candidate) -> str:
    """The server, or the GPU where the server is a generic one."""
    return clean(candidate.gpu if candidate.server.startswith(BARE_SERVER) else candidate.server)


def cheapest_of(result: PlanResult) -> str:
    """Of which plans the cheapest is, where not all prices are known and compare; else empty."""
    kinds = {one.hourly_price.kind for one in result.candidates if one.hourly_price is not None} - {GIVEN_PRICE}
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
    layouts, train = [candidate.layout for candidate in result.candidates], result.scenario["train"]
    batches = {one.micro_batch * one.grad_accum * one.dp for one in layouts}
    if len(batches) > 1 and "grad_accum" in train:
        return f"{count(train['grad_accum'])} micro-batches per step"
    if len(batches) > 1 and not is_given(result, "train.global_batch"):
        return f"global batch {count(min(batches))} to {count(max(batches))}, as it splits over the GPUs"
    return f"global batch {count(train['global_batch'])}"


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


def fixed_by_file(result: PlanResult) -> list[str]:
    """What the scenario file, perhaps read from another tool's, says of GPUs and layout, which a plan would choose."""
    origin, scenario = result.scenario["origin"], result.scenario
    keys = [key for key in origin if key in ("gpus", "nodes", "train.micro_batch") or key.startswith("layout.")]
    values = {key: _value(scenario, key) for key in keys if origin[key] == "file"}
    return [f"{key.rpartition('.')[2].replace('_', ' ')} {value}" for key, value in values.items()]


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
        **({"rollout.output_tokens": _answer_words(rollout)} if "output_tokens" in rollout else {}),
    }
    return {key: (text, is_given(result, key)) for key, text in stated.items()}


def _answer_words(rollout: Mapping[str, Any]) -> str:
    """Tokens of an answer, and where it is cut."""
    cut = f", cut at {count(rollout['max_output_tokens'])}" if "max_output_tokens" in rollout else ""
    return f"answers of {count(rollout['output_tokens'])} tokens{cut}"


def _zero_words(layout: Layout) -> str:
    """The ZeRO stage, which somebody asked for where one rank has nothing to share and offloads nothing."""
    if layout.dp * layout.cp == 1:
        return f"ZeRO {layout.zero} without effect (dp 1)"
    return f"ZeRO {layout.zero}" + (f" over {layout.zero_group}" if layout.zero_group else "")


def layout_words(layout: Layout) -> str:
    """A layout in a few words: sizes that are more than one, and what is not usual."""
    alone = layout.dp * layout.cp == 1  # with nothing to share: then the stage says what of the states is offloaded
    pipeline = f"pp {layout.pp}" + (f" x {layout.vpp} chunks" if layout.vpp > 1 else "")
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "cp", "ep") if getattr(layout, name) > 1]
    sizes += [pipeline] if layout.pp > 1 else []
    sizes += [f"dp {layout.dp}"] if layout.dp > 1 else []
    sizes += [_zero_words(layout)] if layout.zero and not (alone and layout.offload != "none") else []
    sizes += [f"micro-batch {layout.micro_batch}"]
    sizes += [f"{layout.recompute} recompute"] if layout.recompute != "none" else []
    offloads = f"{layout.offload} offloaded" + (f" as in ZeRO {layout.zero}" if alone and layout.zero else "")
    sizes += [offloads] if layout.offload != "none" else []
    sizes += [layout.schedule] if layout.schedule != "1f1b" else []
    return ", ".join(sizes)
