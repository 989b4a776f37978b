"""The section `rollout` of a stack's file: how its reinforcement-learning jobs write answers between their steps."""

from typing import Annotated, Literal, get_args

import msgspec

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Sleep = Literal["none", "cache", "weights-to-host", "weights-dropped"]
Kept = Literal["params", "optimizer"]
Calls = Literal["all-at-once", "batch-by-batch"]


def sleep_names() -> tuple[str, ...]:
    """What an engine may do between the phases, in the words of scenarios."""
    return get_args(Sleep)


class RolloutDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a stack does reinforcement learning where nobody says otherwise.

    engine : writes the answers
    colocated : on the GPUs that train, in turn; else on GPUs of their own
    apart : whether it can write them on GPUs of their own; asynchronous : and while it trains
    in_flight : answers that are written while it trains go on with the new weights, and none of them is waited for
    sleep : what the engine gives back of the card where both share it: nothing, the cache of its keys and values, the
        weights to the host too, or all of it, so that the weights come from the trainer again
    gpu_memory_utilization : share of the card that the engine gets where both share it; None: what the trainer leaves
    max_sequences : answers that a replica writes at once; None: as many as the engine takes by itself
    offloads : what of the trainer waits in host memory while answers are written
    reference : of methods that can do without, in full training: a copy of the model, or none
    frozen_offload : whether models that do not learn wait in host memory but for their phase
    recomputes : the trainer computes the log-probabilities of answers again, or where those of the engine are not those
        of its own weights: it has weights of its own, or several steps learn from the same answers
    gathers : how sharded weights come together where the trainer itself writes the answers: once an iteration, or in
        every step of an answer
    padding : what the trainer pads answers to
    iteration_overhead_s : what passes between the phases of an iteration for the stack's own reasons
    step_ms, sequence_us : what a step of the engine takes of the host beyond that of a service, and for every answer
        that is being written, as it runs in the process of a trainer and hands out log-probabilities
    graphs : decode steps are replayed as CUDA graphs, where the engine has them
    calls : an engine is asked for all answers at once, or for batches of max_sequences, one after the other
    tensor_ms : to hand one tensor of the weights on to the engine, beside its bytes
    """

    engine: str
    colocated: bool
    apart: bool
    asynchronous: bool
    in_flight: bool
    sleep: Sleep
    gpu_memory_utilization: Share | None
    max_sequences: Annotated[int, msgspec.Meta(ge=1, le=65_536)] | None
    reference: Literal["copy", "none"]
    offloads: tuple[Kept, ...]
    frozen_offload: bool
    recomputes: Literal["always", "as-needed", "never"]
    gathers: Literal["once", "every-step"]
    padding: Literal["none", "longest-in-micro-batch", "longest-in-global-batch", "to-seq-len"]
    iteration_overhead_s: Duration
    step_ms: Duration
    sequence_us: Duration
    graphs: bool
    calls: Calls
    tensor_ms: Duration
