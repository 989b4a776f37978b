"""What the fullest GPU holds in the phase in which it holds most, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.reinforcement.iteration import ROLLOUT, TRAINING
from xe_sizer.result.common import MemoryComponent
from xe_sizer.training.memory_parts import MEMORY_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.reinforcement.estimate import ReinforcementEstimate
    from xe_sizer.training.memory import Ledger

STATES = "states of actor and critic between their steps, context and communicators"


def components_of(sized: ReinforcementEstimate) -> list[MemoryComponent]:
    """Parts of the worst phase, which sum to its peak [bytes]."""
    phase = sized.worst_phase
    if phase == TRAINING:
        return [one for one in _of_training(sized) if one.bytes > 0]
    one = sized.iteration
    found = [_part("trainer between its steps", one.kept_bytes if one.colocated else 0.0, STATES, "training ledger")]
    if phase == ROLLOUT or one.colocated:
        found += _of_replica(sized, one.peaks[phase] - found[0].bytes)
    else:
        found = [_part("trainer between its steps", one.peaks[phase], STATES, "training ledger")]
    return [part for part in found if part.bytes > 0]


def _part(name: str, size: float, formula: str, source: str) -> MemoryComponent:
    return MemoryComponent(name=name, bytes=size, formula=formula, source=source)


def _of_training(sized: ReinforcementEstimate) -> Iterator[MemoryComponent]:
    """The optimizer step of the actor or of the critic, with what is beside it."""
    one = sized.iteration
    (actor, critic), (at_actor, at_critic) = one.ledgers, one.beside_bytes
    of_critic = critic is not None and critic.peak_bytes[0] + at_critic > actor.peak_bytes[0] + at_actor
    yield from _of_ledger(critic if of_critic and critic is not None else actor)
    engine = one.asleep_bytes
    other = (at_critic if of_critic else at_actor) - engine
    name = "states of the actor" if of_critic else "states of the critic"
    yield _part(name, other, "weights + optimizer states, while the other one steps", "training ledger")
    yield _part("engine asleep", engine, "what the engine keeps while the trainer works", "sleep mode of the engine")


def _of_ledger(ledger: Ledger) -> Iterator[MemoryComponent]:
    held = ledger.at_peak()
    for part in MEMORY_PARTS:
        if part.name in held:
            yield _part(part.name, held[part.name], part.formula, part.source)


def _of_replica(sized: ReinforcementEstimate, used: float) -> list[MemoryComponent]:
    """The engine awake: its weights, what a step needs and software takes, and its cache, which is the rest."""
    memory = sized.iteration.rollout.memory
    sizes = {name: float(size.max()) for name, size in memory.fixed.items()}
    parts = [_part(f"engine: {name}", size, "serving memory", "serving wing") for name, size in sizes.items()]
    cache = max(used - sum(part.bytes for part in parts), 0.0)
    formula = "share of the engine x card - all other parts"
    parts.append(_part("engine: KV cache", cache, formula, "gpu_memory_utilization"))
    beyond = sum(part.bytes for part in parts) - used
    return parts if beyond <= 0 else [_part("engine", used, "share of the engine x card", "gpu_memory_utilization")]
