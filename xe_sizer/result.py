"""What an estimate says: frozen, in SI units, with the names of the JSON contract (docs/result.md).

Field names are the contract: add, never rename, within schema version 1. Components of memory sum to
`peak_bytes`, components of time to `step_s.expected`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

SCHEMA_VERSION = 1


class Struct(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all parts of a result."""


class Range(Struct, frozen=True):
    """Low, expected and high value of one quantity."""

    low: float
    expected: float
    high: float


class Reason(Struct, frozen=True):
    """Why a job does not fit or misses a limit, and the smallest change that mends it."""

    code: str
    message: str
    fix: str | None = None


class Limit(Struct, frozen=True):
    """One limit of the scenario against the estimate; `value` is None where there is nothing to compare."""

    name: str
    limit: float
    value: float | None
    ok: bool


class Verdict(Struct, frozen=True):
    """`margin` says how close: headroom, tight (fits inside the error of the model) or over (does not fit)."""

    fits: bool
    meets_limits: bool
    reasons: tuple[Reason, ...] = ()
    limits: tuple[Limit, ...] = ()
    margin: str = ""

    @property
    def ok(self) -> bool:
        return self.fits and self.meets_limits


class Gpus(Struct, frozen=True):
    """GPU count asked (or chosen), and the smallest count at which some layout fits (None: none tried did)."""

    count: int
    nodes: int
    gpus_per_node: int
    minimum_that_fits: int | None


class Layout(Struct, frozen=True):
    tp: int
    pp: int
    vpp: int
    cp: int
    ep: int
    dp: int
    zero: int
    micro_batch: int
    grad_accum: int
    recompute: str
    offload: str
    sequence_parallel: bool
    schedule: str = "1f1b"
    zero_group: int = 0


class MemoryComponent(Struct, frozen=True):
    name: str
    bytes: float
    formula: str
    source: str


class MomentMemory(Struct, frozen=True):
    """Memory of the worst GPU at one moment of the step."""

    name: str
    bytes: float


class Ledger(Struct, frozen=True):
    """Memory of the worst GPU at its worst moment; `gpu` says which, `phase` when. The components sum to the peak."""

    peak_bytes: float
    usable_bytes: float
    headroom_bytes: float
    phase: str
    gpu: str
    components: tuple[MemoryComponent, ...]


class Memory(Ledger, frozen=True):
    """Memory of a training job; `gpu` names the pipeline stage.

    `peak_bytes` and the components are cautious, as the verdict needs them. What a run usually shows: `allocated_bytes`
    of live tensors, `reserved_bytes` of the allocator, `device_bytes` on the whole card (nvidia-smi). `error_share` is
    how far the tensors may be off; `moments` is the step from forward to optimizer; `trainable_parameters` counts what
    gets gradients in the whole model.
    """

    host_bytes: float = 0.0
    host_available_bytes: float | None = None
    allocated_bytes: float = 0.0
    reserved_bytes: float = 0.0
    device_bytes: float = 0.0
    error_share: float = 0.0
    trainable_parameters: int = 0
    moments: tuple[MomentMemory, ...] = ()


class TimeComponent(Struct, frozen=True):
    name: str
    seconds: float
    share: float
    formula: str = ""
    source: str = ""


class Loss(Struct, frozen=True):
    """Part of a step that the speed of light would not take."""

    name: str
    seconds: float
    share: float


class ModuleTime(Struct, frozen=True):
    name: str
    forward_s: float
    backward_s: float


class Time(Struct, frozen=True):
    """Time of an optimizer step and of the whole job. `bound` names what limits the step.

    mfu counts the FLOPs that the model needs for the processed tokens, hfu also those of recomputation.
    `evidence` says what the ranges rest on; `calibrated` whether that is measurements. `ideal_step_s` is the step of
    the same layout at the speed of light (peaks reached, exchanges hidden), `losses` where the rest goes, largest
    first; None and empty where fixed efficiencies were asked for.
    """

    step_s: Range
    components: tuple[TimeComponent, ...]
    modules: tuple[ModuleTime, ...]
    steps: int
    total_s: Range
    tokens_per_s_per_gpu: float
    samples_per_s: float
    mfu: float
    hfu: float
    bound: str
    calibrated: bool
    evidence: str
    ideal_step_s: float | None = None
    losses: tuple[Loss, ...] = ()


class Data(Struct, frozen=True):
    """Samples and tokens of the whole job; `sequence_tokens` is what one sequence costs, `longest_tokens` the
    longest that memory must hold."""

    samples: int
    real_tokens: float
    processed_tokens: float
    padding_share: float
    sequence_tokens: float
    longest_tokens: float
    padding: str


class Price(Struct, frozen=True):
    currency: str
    low: float
    expected: float
    high: float


class Cost(Struct, frozen=True):
    gpu_hours: Range
    energy_kwh: float | None
    price: Price | None


class Advice(Struct, frozen=True):
    """One change, its effect, and the command that makes it."""

    change: str
    effect: str
    command: str


class Source(Struct, frozen=True):
    """Where a figure comes from: the profile or law, and its origin."""

    name: str
    source: str


class Result(Struct, frozen=True):
    schema_version: int
    tool_version: str
    scenario: dict[str, Any]
    verdict: Verdict
    gpus: Gpus
    layout: Layout
    memory: Memory
    time: Time
    data: Data
    cost: Cost
    advice: tuple[Advice, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()


R = TypeVar("R", bound=Struct)


def with_advice(result: R, verdict: Verdict, advice: tuple[Advice, ...]) -> R:
    """A result with its advice, the first piece of which mends the gravest reason of the verdict."""
    if advice and verdict.reasons:
        first = msgspec.structs.replace(verdict.reasons[0], fix=advice[0].change)
        verdict = msgspec.structs.replace(verdict, reasons=(first, *verdict.reasons[1:]))
    return msgspec.structs.replace(result, advice=advice, verdict=verdict)
