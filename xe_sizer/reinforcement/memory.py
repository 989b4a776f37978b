"""Memory of a GPU in the phases of an iteration: what trainer and engine leave each other where they share a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xe_sizer.graph.operators import Matmul, MemoryBound, as_array
from xe_sizer.graph.transformer import chunks_of_loss, logits_per_rank
from xe_sizer.laws.parts import computed
from xe_sizer.serving.memory import cuda_graphs, serving_memory
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.memory_parts import (
    Around,
    adapters,
    cuda_context,
    frozen_copies,
    gathered_layers,
    gradients,
    library_workspaces,
    logits_and_loss,
    nccl_buffers,
    optimizer_states,
    saved_activations,
    weights,
)
from xe_sizer.training.padding import Sequences
from xe_sizer.units import SIXTEEN_BIT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from xe_sizer.graph.operators import Array
    from xe_sizer.reinforcement.resolved import ResolvedReinforcement
    from xe_sizer.serving.job import ReplicaLayouts, ServingJob
    from xe_sizer.training.job import Job
    from xe_sizer.training.layout import Layouts
    from xe_sizer.training.memory import Ledger

AROUND = (cuda_context, nccl_buffers, library_workspaces)
LEFT_OVER = 0.04  # chosen: share of the card that stays free beside an engine that takes what the trainer leaves
LEAST_SHARE = 0.01  # of the card: with less no engine starts
OF_THE_PARAMETERS = (weights, adapters)


def states_bytes(job: Job, layouts: Layouts, away: Collection[str] = ()) -> Array:
    """What a trainer keeps on the fullest card between its steps.

        bytes = weights + adapters + frozen copies + optimizer states (+ gradients that persist)

    Parameters
    ----------
    job, layouts : the job, and layouts of shape (layout,)
    away : what of it waits in host memory: params (with gradients), optimizer

    Returns
    -------
    ndarray of float, shape (layout,) [bytes]

    Source: parts of the training ledger.
    """
    parts = [frozen_copies]
    if "params" not in away:
        parts += [*OF_THE_PARAMETERS, *((gradients,) if job.stack.states.gradients_persist else ())]
    if "optimizer" not in away:
        parts.append(optimizer_states)
    evaluation = Evaluation(job, layouts, Sequences.of_length(np.ones(len(layouts))))  # states have no length
    held = sum(computed(parts, evaluation).values(), np.zeros((1, 1, 1)))
    return np.broadcast_to(np.asarray(held).max(axis=(0, 1)), len(layouts))


def moved_bytes(job: Job, layouts: Layouts, away: Collection[str]) -> Array:
    """What goes to host memory before answers are written, and comes back after, of each card, shape (layout,) [bytes].

    bytes = states with nothing away - states with `away` away
    """
    return np.asarray(states_bytes(job, layouts) - states_bytes(job, layouts, away))


def pass_bytes(job: Job, layouts: Layouts) -> dict[str, Array]:
    """What a forward pass without a backward holds beside the states of a trainer, part by part.

        gathered layers = as in the forward of a training step
        activations = hidden state + max over operators of what one reads and writes
        logits and loss = tokens x vocabulary / TP / chunks x max(2 + float32 copy, what a frozen pass holds)

    No autograd keeps tensors: a layer's are gone when the next one runs. verl divides its 16-bit logits by the
    temperature where they stand and reads them once; its entropy is compiled and makes no copy of them. Kernels that
    take so many tokens at a time do here too; Liger's have another one for such passes, which makes all logits (TRL).

    Parameters
    ----------
    job, layouts : the weights that are passed, and layouts of shape (layout,) with the micro-batch of the pass

    Returns
    -------
    dict of ndarray of float, shape (stage, layout) [bytes]

    Source: verl workers/actor/dp_actor.py (compute_log_prob, _forward_micro_batch) and utils/torch_functional.py
    (logprobs_from_logits_flash_attn) of v0.7.0; operator graph.
    """
    evaluation = Evaluation(job, layouts)
    shapes, size, loss = evaluation.shapes, job.element_bytes, job.kernels.loss
    widest = np.zeros(1)
    for count, operators in shapes.graph.kinds:
        for op in operators:
            alive = op.forward_bytes if isinstance(op, MemoryBound) else op.saved_bytes + op.forward_temporary_bytes
            if isinstance(op, Matmul):
                alive = size * op.copies * op.m * (op.n + op.k) / (1.0 if op.tiles is None else op.tiles)
            widest = np.maximum(widest, op.layers / count * alive)
    logit = max(SIXTEEN_BIT + (loss.kept_bytes if loss.kept_bytes > SIXTEEN_BIT else 0.0), loss.frozen_bytes)
    chunks = chunks_of_loss(shapes.inputs) if loss.tokens and not loss.words else 1.0
    logits = shapes.broadcast(logits_per_rank(shapes.inputs) / chunks) * evaluation.has_head * logit
    hidden = shapes.broadcast(shapes.inputs.residual_bytes + widest) * evaluation.any_layer
    gathered = computed((gathered_layers,), evaluation)[gathered_layers.name]
    whole = np.zeros((2, len(layouts)))
    return {
        gathered_layers.name: whole + np.asarray(gathered)[:, 0],
        saved_activations.name: whole + hidden,
        logits_and_loss.name: whole + logits,
    }


def passing_jobs(resolved: ResolvedReinforcement, *, policy: bool) -> list[Job]:
    """Whose weights the answers pass before the training: actor, where the policy is asked, reference and critic."""
    actor, reference = resolved.actor, resolved.reference
    beside = [] if reference is None else [actor.beside(reference)]
    return [*([actor] if policy else []), *beside, *([] if resolved.critic is None else [resolved.critic])]


def fullest_pass(passes: Iterable[Mapping[str, Array]], index: int = 0) -> dict[str, float]:
    """The parts of the pass that holds the most on any stage of one of the layouts, empty without passes [bytes].

    passes : see `pass_bytes`
    """
    found: list[dict[str, float]] = [{}]
    for parts in passes:
        found += [{name: float(size[stage, index]) for name, size in parts.items()} for stage in (0, 1)]
    return max(found, key=lambda parts: sum(parts.values()))


def asleep_bytes(job: ServingJob, placements: ReplicaLayouts, sleep: str, share: Array | float) -> Array:
    """What an engine keeps of the card while the trainer works.

        bytes = share x card                                          never asleep
        bytes = weights + graphs + context + communicators            gives its cache back
        bytes = graphs + context + communicators                      gives its weights back too

    Parameters
    ----------
    job, placements : the engine, and placements of shape (placements,)
    sleep : what it gives back
    share : of the card that it uses awake [-]

    Returns
    -------
    ndarray of float, shape (placements,) [bytes]

    Weights that go to the host stay where its memory is the card's.

    Source: vLLM documentation, sleep mode (levels 1 and 2); SGLang release_memory_occupation.
    """
    memory = serving_memory(job, placements)
    around = memory.beside_tensors + memory.fixed[cuda_graphs.name]
    if sleep == "none":
        return np.asarray(share * memory.usable_bytes * np.ones(len(placements)))
    stay = sleep == "cache" or (sleep == "weights-to-host" and not job.server.host_apart)
    return np.asarray(around + (memory.fixed["weights"] if stay else 0.0))


def around_bytes(job: Job, layouts: Layouts) -> Array:
    """Context, communicators and workspaces of the trainer's own process, shape (layout,) [bytes]."""
    held = computed(AROUND, Around(Evaluation(job, layouts), np.zeros((1, 1, 1)), "cautious"))
    return np.broadcast_to(np.asarray(sum(held.values())).max(axis=(0, 1)), len(layouts))


def left_share(resolved: ResolvedReinforcement, taken_bytes: float) -> float:
    """Share of the card that an engine may use beside what a trainer keeps there.

    share = min(own share of the engine, 1 - taken / card - spare)      where nobody says; else as asked
    """
    known, job = resolved.settings.share(colocated=True), resolved.writer
    if known is not None:
        return known
    card = job.server.accelerator.memory_bytes
    return max(min(job.engine.memory.utilization, 1.0 - taken_bytes / card - LEFT_OVER), LEAST_SHARE)


def trainer_ledgers(resolved: ResolvedReinforcement, layouts: Layouts) -> tuple[Ledger, Ledger | None]:
    """Memory of the optimizer step of the actor, and of the critic where there is one, each alone on the card."""
    critic = resolved.critic
    return memory_ledger(resolved.actor, layouts), None if critic is None else memory_ledger(critic, layouts)


def kept_bytes(resolved: ResolvedReinforcement, layouts: Layouts) -> tuple[Array, Array]:
    """What actor and critic keep on the card outside of their own steps, each of shape (layout,) [bytes]."""
    away, critic = resolved.settings.offloads, resolved.critic
    actor = states_bytes(resolved.actor, layouts, away)
    other = np.zeros(len(layouts)) if critic is None else states_bytes(critic, layouts, away)
    return as_array(actor), as_array(other)


def stepping_bytes(ledgers: tuple[Ledger, Ledger | None], kept: tuple[Array, Array]) -> Array:
    """What the trainer takes of the fullest card while actor or critic steps, and the other one waits.

        bytes = max(peak of the actor + states of the critic, peak of the critic + states of the actor)

    Parameters
    ----------
    ledgers : of the steps of actor and critic, each alone on the card
    kept : states of actor and critic outside of their steps, each of shape (layout,) [bytes]

    Returns
    -------
    ndarray of float, shape (layout,) [bytes]

    Source: parts of the training ledger.
    """
    (actor, critic), (actor_kept, critic_kept) = ledgers, kept
    stepping = actor.peak_bytes + critic_kept
    return np.asarray(stepping if critic is None else np.maximum(stepping, critic.peak_bytes + actor_kept))
