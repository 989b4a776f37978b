"""What a sized service gives reason to say: assumptions, what is left over, and what has no effect."""

from __future__ import annotations

from collections.abc import Iterator

from xe_sizer.scenario.provenance import whole_servers
from xe_sizer.scenario.read import INFERENCE, SERVE_OPTIONS, Given
from xe_sizer.serving.sizing import FULL, Served
from xe_sizer.software.engine import engine_names

SATURATED = 0.9
USED = frozenset(SERVE_OPTIONS.values()) | {"job", "cost.currency"}
PARTLY_USED = ("layout", "limits", "cost", "efficiency", "serve")


def warnings_of(served: Served) -> Iterator[str]:
    """Warnings that need the answer, and those about keys that inference does not read."""
    question, traffic = served.question, served.question.traffic
    lengths = {
        "input_tokens": f"prompts of {traffic.inputs:,.0f}",
        "output_tokens": f"answers of {traffic.outputs:,.0f}",
    }
    assumed = [name for name in lengths if question.origin.get(f"serve.{name}") == "default"]
    if assumed:
        words = " and ".join(lengths[name] for name in assumed)
        yield f"{words} tokens are assumed: the scenario gives no {' and '.join(assumed)}"
    if question.load is None:
        yield f"no load is given: a replica runs at {FULL:.0%} of what it takes (request_rate, concurrency or batch)"
    yield from _saturated(served)
    if traffic.draft_tokens:
        yield "the memory of a draft model is not counted: drafts from the model's own heads need none"
    yield from _formats(served)
    if question.gpus is not None and served.fits and question.gpus > served.gpus:
        left, size = question.gpus - served.gpus, int(served.placement.gpus[0])
        yield f"{left} of the {question.gpus} GPUs stay idle: replicas have {size}"
    if served.cost_per_hour is not None:
        yield from whole_servers(served.billed_gpus, served.gpus)
    ignored = sorted(_ignored(question.given))
    if ignored:
        yield f"no effect on inference: {', '.join(ignored)}"


def _saturated(served: Served) -> Iterator[str]:
    limits, load, point = served.question.given.values.limits, served.question.load, served.point
    if load == "concurrency" and served.fits and round(served.question.amount - point.running) > 0:
        inside = f"{point.running:,.0f} of the {served.question.amount:,.0f} requests run at once"
        yield f"{inside}: the others wait for a place (more GPUs, narrower formats, or a limit on --ttft)"
    bounded = limits.max_ttft_s is not None or limits.max_tpot_s is not None
    if load == "request_rate" and served.fits and not bounded and SATURATED < served.utilisation <= 1.0:
        used = f"{min(served.utilisation, 0.999):.1%}"
        yield f"replicas run at {used} of what they take, and requests wait long: a limit (--ttft, --tpot) sizes for it"


def _formats(served: Served) -> Iterator[str]:
    asked, job = served.question.given.values.serve.activations, served.question.job
    if asked is not None and asked != job.scheme.activations.name:
        gpu = job.server.accelerator.name
        yield f"{gpu} does not multiply {asked}: activations stay in {job.scheme.activations.name}"


def _ignored(given: Given) -> set[str]:
    """Keys of the file or the flags that inference does not read, whole sections by their name."""
    found = set()
    for key, origin in given.origin.items():
        section, dot, _ = key.partition(".")
        if origin != "env" and key not in USED:
            found.add(section if dot and section not in PARTLY_USED else key)
    if given.values.stack in engine_names():
        found.discard("stack")
    return found | ({f"job {given.values.job}"} if given.values.job not in (None, INFERENCE) else set())
