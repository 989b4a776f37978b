"""What a sized service gives reason to say: assumptions, what is left over, and what has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.scenario.options import SERVE_OPTIONS
from xe_sizer.scenario.provenance import joining_assumptions
from xe_sizer.scenario.read import INFERENCE
from xe_sizer.scenario.tariff import whole_servers
from xe_sizer.serving.traffic import FULL

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given
    from xe_sizer.serving.estimate import ServingEstimate

SATURATED = 0.9
USED = frozenset(SERVE_OPTIONS.values()) | {"job", "cost.currency"}
PARTLY_USED = ("layout", "limits", "cost", "efficiency", "serve")


def warnings_of(sized: ServingEstimate) -> Iterator[str]:
    """Warnings that need the answer, and those about keys that inference does not read."""
    resolved, traffic = sized.resolved, sized.resolved.traffic
    yield from joining_assumptions(resolved.job.server, int(sized.placement.gpus[0]))
    lengths = {
        "input_tokens": f"prompts of {traffic.inputs:,.0f}",
        "output_tokens": f"answers of {traffic.outputs:,.0f}",
    }
    assumed = [name for name in lengths if resolved.origin.get(f"serve.{name}") == "default"]
    if assumed:
        words = " and ".join(lengths[name] for name in assumed)
        yield f"{words} tokens are assumed: the scenario gives no {' and '.join(assumed)}"
    if resolved.load is None:
        yield f"no load is given: a replica runs at {FULL:.0%} of what it takes (request_rate, concurrency or batch)"
    yield from _saturated(sized)
    if traffic.draft_tokens:
        yield "the memory of a draft model is not counted: drafts from the model's own heads need none"
    yield from _formats(sized)
    if resolved.gpus is not None and sized.fits and resolved.gpus > sized.gpus:
        left, size = resolved.gpus - sized.gpus, int(sized.placement.gpus[0])
        yield f"{left} of the {resolved.gpus} GPUs stay idle: replicas have {size}"
    if sized.cost is not None:
        yield from whole_servers(sized.billed_gpus, sized.gpus)
    ignored = sorted(_ignored(resolved.given, resolved.values["serve.engine"]))
    if ignored:
        yield f"no effect on inference: {', '.join(ignored)}"


def _saturated(sized: ServingEstimate) -> Iterator[str]:
    given = sized.resolved.given
    ttft, tpot = (given.caller.setting(key) for key in ("limits.max_ttft_s", "limits.max_tpot_s"))
    limits, load, point = given.values.limits, sized.resolved.load, sized.point
    if load == "concurrency" and sized.fits and round(sized.resolved.amount - point.running) > 0:
        inside = f"{point.running:,.0f} of the {sized.resolved.amount:,.0f} requests run at once"
        yield f"{inside}: the others wait for a place (more GPUs, narrower formats, or a limit on {ttft})"
    bounded = limits.max_ttft_s is not None or limits.max_tpot_s is not None
    if load == "request_rate" and sized.fits and not bounded and SATURATED < sized.utilisation <= 1.0:
        used = f"{min(sized.utilisation, 0.999):.1%}"
        yield f"replicas run at {used} of what they take, and requests wait long: a limit ({ttft}, {tpot}) sizes for it"


def _formats(sized: ServingEstimate) -> Iterator[str]:
    asked, job = sized.resolved.given.values.serve.activations, sized.resolved.job
    if asked is not None and asked != job.scheme.activations.name:
        gpu = job.server.accelerator.name
        yield f"{gpu} does not multiply {asked}: activations stay in {job.scheme.activations.name}"


def _ignored(given: Given, engine: str) -> set[str]:
    """Keys of the file or the flags that inference does not read, whole sections by their name."""
    found = set()
    for key, origin in given.origin.items():
        section, dot, _ = key.partition(".")
        if origin != "env" and key not in USED:
            found.add(section if dot and section not in PARTLY_USED else key)
    if (given.values.stack or "").lower() == engine:  # an engine that was named as the stack
        found.discard("stack")
    return found | ({f"job {given.values.job}"} if given.values.job not in (None, INFERENCE) else set())
