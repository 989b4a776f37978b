"""What a sized service gives reason to say: assumptions, what is left over, and what has no effect."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.scenario.options import SERVE_OPTIONS
from xe_sizer.scenario.provenance import joining_assumptions, whole_servers
from xe_sizer.scenario.schema import INFERENCE, LOADS
from xe_sizer.serving.returning import host_cache_warnings
from xe_sizer.serving.traffic import FULL
from xe_sizer.units import rounded, whole_percent

if TYPE_CHECKING:
    from xe_sizer.scenario.read import Given
    from xe_sizer.serving.estimate import ServingEstimate
    from xe_sizer.serving.resolved import ResolvedService

SATURATED = 0.9
CHANCE = ("request_rate", "users")
USED = frozenset(SERVE_OPTIONS.values()) | {"job", "cost.currency"}
PARTLY_USED = ("layout", "limits", "cost", "efficiency", "serve", "lora")


def warnings_of(sized: ServingEstimate) -> Iterator[str]:
    """Warnings that need the answer, and those about keys that inference does not read."""
    resolved, traffic = sized.resolved, sized.resolved.traffic
    yield from joining_assumptions(resolved.job.server, int(sized.placement.gpus[0]))
    images = resolved.job.images
    text_tokens = traffic.inputs - (images.each * images.seen.tokens if images else 0)
    lengths = {
        "input_tokens": f"prompts of {text_tokens:,.0f}",
        "output_tokens": f"answers of {traffic.outputs:,.0f}",
    }
    assumed = [name for name in lengths if resolved.origin.get(f"serve.{name}") == "default"]
    if assumed:
        words = " and ".join(lengths[name] for name in assumed)
        yield f"{words} tokens are assumed: the scenario gives no {' and '.join(assumed)}"
    if resolved.load is None and resolved.requests is None:
        loads = f"{', '.join(LOADS[:-1])} or {LOADS[-1]}"
        yield f"no load is given: each replica runs at {whole_percent(FULL)} of its capacity ({loads})"
    yield from cautions(sized)
    yield from _saturated(sized)
    yield from host_cache_warnings(sized)
    if traffic.draft_tokens:
        yield "the memory of a draft model is not counted: drafts from the model's own heads need none"
    yield from _formats(sized)
    if resolved.gpus is not None and sized.fits and resolved.gpus > sized.gpus:
        left, size = resolved.gpus - sized.gpus, int(sized.placement.gpus[0])
        yield f"{left} of the {resolved.gpus} GPUs stay idle: replicas have {size}"
    if sized.cost is not None:
        yield from whole_servers(sized.billed_gpus, sized.gpus, sized.resolved.job.server)
    ignored = sorted(_ignored(resolved.given, resolved.values["serve.engine"]))
    if ignored:
        yield f"no effect on inference: {', '.join(ignored)}"


def cautions(sized: ServingEstimate) -> Iterator[str]:
    """What a reader must know to read the verdict right: what a failure stops, what keeps an engine from starting."""
    model = sized.resolved.job.model
    yield from (f"{model.name}: {guess}" for guess in model.guesses)
    yield from _spanning(sized)
    yield from _failing(sized)
    yield from _too_long(sized)


def misread(resolved: ResolvedService) -> Iterator[str]:
    """Limits that are read in seconds and look like milliseconds, with how to write these."""
    setting = resolved.given.caller.setting
    for name, limit in resolved.unlikely_limits():
        key = f"limits.{name}"
        each = " per token" if name == "max_tpot_s" else ""
        meant = f"for milliseconds write {setting(key, f'{limit:g}ms')}, for seconds {setting(key, f'{limit:g}s')}"
        rate = f", for {limit:g} tokens/s {setting(key, f'{1.0 / limit:.3g}')}" if each else ""
        yield f"{name} {limit:g} is read as {limit:,g} s{each}: {meant}{rate}"


def _spanning(sized: ServingEstimate) -> Iterator[str]:
    """That a replica needs several servers to run, each of which stops it."""
    servers = math.ceil(int(sized.placement.gpus[0]) / sized.resolved.job.server.accelerators)
    if sized.fits and servers > 1:
        which = "the only replica" if sized.working_replicas == 1 else "each replica"
        yield f"{which} spans {servers} servers: one failure stops it all"


def _failing(sized: ServingEstimate) -> Iterator[str]:
    """What is left of several replicas as the server fails that has most of them, where that is too little."""
    resolved, working = sized.resolved, sized.working_replicas
    each, node = int(sized.placement.gpus[0]), resolved.job.server.accelerators
    alone = sized.replicas == 1 or each > node or resolved.prefill_replicas is not None
    if not sized.ok or resolved.load in (None, "batch") or alone or sized.choice.test:
        return
    together = min(node // each, sized.replicas)
    left = sized.replicas - together
    if left >= working or left * sized.choice.top_load >= resolved.amount:
        return
    where = f"all {sized.replicas} replicas are" if not left else f"{together} of the {sized.replicas} replicas are"
    taken = rounded(left * sized.choice.top_load, down=True)
    most = f"the others take {taken:g} of {resolved.amount:,.6g}" if left else "nothing serves"
    spare = f"{resolved.given.caller.setting('serve.spare_replicas', together)} keeps the service up"
    yield f"{where} in one server: if it fails, {most} ({spare})"


def _saturated(sized: ServingEstimate) -> Iterator[str]:
    resolved, places = sized.resolved, sized.choice.places
    given, load = resolved.given, resolved.load
    if not sized.fits:
        return
    if load == "concurrency" and sized.point.in_flight > places + 0.5:
        inside = f"{math.floor(places) * sized.working_replicas:,} of the {resolved.amount:,.0f} requests run at once"
        yield f"{inside}: the others wait in the queue (more GPUs or narrower formats)"
    if load == "batch" and resolved.amount > places:
        inside = f"{max(math.floor(places), 1):,} of the {resolved.amount:,.0f} requests of the batch run at once"
        yield f"{inside}: a replica runs it in waves"
    if load in CHANCE and not resolved.limits_latency and SATURATED < sized.utilisation <= 1.0:
        used = f"{min(sized.utilisation, 0.999):.1%}"
        ttft, tpot = (given.caller.setting(key) for key in ("limits.max_ttft_s", "limits.max_tpot_s"))
        yield f"replicas run at {used} of what they sustain: {ttft} and {tpot} say how long requests may take"


def _too_long(sized: ServingEstimate) -> Iterator[str]:
    """Some engines do not start where the cache of a replica is too small for one sequence of the longest length."""
    resolved = sized.resolved
    engine, longest = resolved.job.engine, resolved.values.get("serve.max_model_len")
    yield from _rejected(sized, resolved.given.values.serve.max_model_len)
    if longest is None or not engine.memory.length_flag or not sized.fits or sized.too_long or sized.holds_one(longest):
        return
    text = f"{engine.name} refuses to start for sequences of {longest:,} tokens (the model's maximum)"
    start = f"Start it with {engine.memory.length_flag} {sized.longest_held(longest)}"
    yield f"{text}: the KV cache of a replica does not hold one. {start}"


def _rejected(sized: ServingEstimate, asked: int | None) -> Iterator[str]:
    """Of engines that start all the same: what they reject, and that the model was trained for less."""
    job = sized.resolved.job
    if asked is None or job.engine.memory.length_flag or not sized.fits or sized.grows or sized.too_long:
        return
    if not sized.holds_one(asked):
        held = f"its KV cache holds {sized.longest_held(asked):,}"
        yield f"{job.engine.name} starts and rejects sequences of {asked:,} tokens: {held}"
    if job.model.max_positions and asked > job.model.max_positions:
        positions = f"the {job.model.max_positions:,} positions that {job.model.name} was trained for"
        yield f"max_model_len {asked:,} is above {positions}"


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
        unused = key not in USED or (section == "lora" and given.values.serve.adapters is None)
        if origin != "env" and unused:
            found.add(section if dot and section not in PARTLY_USED else key)
    if (given.values.stack or "").lower() == engine:  # an engine that was named as the stack
        found.discard("stack")
    return found | ({f"job {given.values.job}"} if given.values.job not in (None, INFERENCE) else set())
