"""LoRA adapters as a scenario asks for them, and as the engine allocates them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError
from xe_sizer.graph.weights import adapted_weights
from xe_sizer.scenario.provenance import problem_at
from xe_sizer.serving.adapters import ServedAdapters
from xe_sizer.software.adapter_targets import ALL_LINEAR, resolve_targets
from xe_sizer.units import MICRO, SIXTEEN_BIT

if TYPE_CHECKING:
    from xe_sizer.errors import Problem
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Accelerator
    from xe_sizer.scenario.provenance import Provenance
    from xe_sizer.scenario.read import Given
    from xe_sizer.software.engine import Engine

DEFAULT_RANK = 16  # of vLLM (max_lora_rank), and of most published adapters


def served_adapters(
    given: Given, provenance: Provenance, model: ModelShape, engine: Engine, gpu: Accelerator
) -> ServedAdapters | None:
    """The adapters of the service; None where it has none. They are known to have no problems."""
    if given.values.serve.adapters is None:
        return None
    count = provenance.settle("serve.adapters", 1)
    rank = _allocated(provenance.settle("lora.rank", DEFAULT_RANK), engine)
    targets = tuple(provenance.settle("lora.targets", (ALL_LINEAR,)))
    held = provenance.settle("serve.adapter_slots", min(count, engine.batching.max_sequences))
    where = (ALL_LINEAR,) if engine.memory.adapters == "all" else targets
    names = (part for name in resolve_targets(model, where) for part in adapted_weights(name))
    kernels = max(engine.kernels.adapter_us * MICRO / gpu.laws.memory_bound_floor_s, 1.0)
    return ServedAdapters(count, min(held, count), dict.fromkeys(names, rank), SIXTEEN_BIT, kernels)


def _allocated(rank: int, engine: Engine) -> int:
    """The rank that an adapter is held with."""
    return next((one for one in engine.memory.adapter_ranks if one >= rank), rank)


def adapter_problems(given: Given, model: ModelShape | None, engine: Engine | None) -> Iterator[Problem]:
    """What the model or the engine has against the adapters."""
    serve, lora = given.values.serve, given.values.lora
    if serve.adapters is None:
        if serve.adapter_slots is not None:
            message, hint = "'adapter_slots' needs 'adapters'", "say how many adapters requests ask for"
            yield problem_at(given, "serve.adapter_slots", message, hint)
        return
    if engine is not None and engine.memory.adapters == "none":
        hint = "take an engine that does, such as vllm, or merge the one adapter into the weights"
        yield problem_at(given, "serve.adapters", f"{engine.name} does not serve adapters beside the model", hint)
    ranks = engine.memory.adapter_ranks if engine is not None else ()
    if engine is not None and ranks and (lora.rank or 0) > ranks[-1]:
        yield problem_at(given, "lora.rank", f"{engine.name} takes adapters up to rank {ranks[-1]}")
    if model is not None and lora.targets:
        try:
            resolve_targets(model, lora.targets)
        except InputError as error:
            where = given.locate(("lora", "targets"))
            yield from (replace(problem, location=where) for problem in error.problems)
