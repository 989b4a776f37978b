"""Hardware and layouts in a few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xe_sizer.report.format import clean, count, number
from xe_sizer.result.common import GIVEN_PRICE
from xe_sizer.units import BARE_SERVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.result.studies import Candidate, PlanResult
    from xe_sizer.result.training import Layout

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


def named_answers(result: PlanResult) -> dict[str, int]:
    """What the plans that answer something are called, and their places among the candidates."""
    answers = result.answers
    places = {
        "chosen": answers.chosen,
        "fewest": answers.smallest,
        f"cheapest {cheapest_of(result)}".strip(): answers.cheapest,
        "fewest GPU-hours": answers.fewest_gpu_hours if answers.cheapest is None else None,
        "fastest": answers.fastest,
    }
    return {name: place for name, place in places.items() if place is not None}


def _batch_words(result: PlanResult) -> str:
    """The global batch; where plans have several, the accumulation that they share."""
    layouts, train = [candidate.layout for candidate in result.candidates], result.scenario["train"]
    if "grad_accum" in train and len({one.micro_batch * one.grad_accum * one.dp for one in layouts}) > 1:
        return f"{count(train['grad_accum'])} micro-batches per step"
    return f"global batch {count(train['global_batch'])}"


def premises(result: PlanResult) -> dict[str, tuple[str, bool]]:
    """What all plans share: key -> words, and whether it was given."""
    scenario = result.scenario
    train, origin = scenario["train"], scenario["origin"]
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
    return {key: (text, origin.get(key) in GIVEN) for key, text in stated.items()}


def _answer_words(rollout: Mapping[str, Any]) -> str:
    """Tokens of an answer, and where it is cut."""
    cut = f", cut at {count(rollout['max_output_tokens'])}" if "max_output_tokens" in rollout else ""
    return f"answers of {count(rollout['output_tokens'])} tokens{cut}"


def _zero_words(layout: Layout) -> str:
    """The ZeRO stage; alone there is nothing to share, and only what offloads needs one."""
    if layout.dp * layout.cp == 1 and layout.offload == "none":
        return f"ZeRO {layout.zero} without effect (dp 1)"
    return f"ZeRO {layout.zero}" + (f" over {layout.zero_group}" if layout.zero_group else "")


def layout_words(layout: Layout) -> str:
    """A layout in a few words: sizes that are more than one, and what is not usual."""
    pipeline = f"pp {layout.pp}" + (f" x {layout.vpp} chunks" if layout.vpp > 1 else "")
    sizes = [f"{name} {getattr(layout, name)}" for name in ("tp", "cp", "ep") if getattr(layout, name) > 1]
    sizes += [pipeline] if layout.pp > 1 else []
    sizes += [f"dp {layout.dp}"] if layout.dp > 1 else []
    sizes += [_zero_words(layout)] if layout.zero else []
    sizes += [f"micro-batch {layout.micro_batch}"]
    sizes += [f"{layout.recompute} recompute"] if layout.recompute != "none" else []
    sizes += [f"{layout.offload} offloaded"] if layout.offload != "none" else []
    sizes += [layout.schedule] if layout.schedule != "1f1b" else []
    return ", ".join(sizes)
