"""How far off the times of a training job may be: from the residuals of published runs that are like it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from xe_sizer.graph.operators import Attention, Collective, Matmul, Scan, group_sizes
from xe_sizer.immutable import Immutable
from xe_sizer.laws.collectives import ALL_GATHER, ALL_REDUCE, POINT_TO_POINT, REDUCE_SCATTER
from xe_sizer.laws.network import inner_ranks
from xe_sizer.laws.operator_time import worst_of
from xe_sizer.result.common import LIKELY
from xe_sizer.software.host import host_slowdown
from xe_sizer.software.release import split_release
from xe_sizer.software.uncertainty import (
    TABLES,
    Evidence,
    from_residuals,
    in_words,
    memory_chance,
    memory_spread,
    of_announced,
    of_fixed,
    published,
    seen,
    symmetric,
)
from xe_sizer.training.evaluation import backward, generator, image_encoder
from xe_sizer.training.step_time import (
    bubble,
    data_parallel,
    gathered_states,
    matrix_work,
    operator_costs,
    optimizer,
    transfers,
)
from xe_sizer.units import whole_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from xe_sizer.graph.operators import Array
    from xe_sizer.laws.collectives import Network
    from xe_sizer.laws.device import Efficiency
    from xe_sizer.laws.hardware import MeasuredHere
    from xe_sizer.software.stack import Stack
    from xe_sizer.software.uncertainty import MemoryChance, Spread, Uncertainty
    from xe_sizer.training.job import Job
    from xe_sizer.training.step_time import Timeline

TABLE = TABLES / "training.json"
SEEN = TABLES / "training-seen.json"
PEAKS = TABLES / "training-memory.json"
STEP = "step_time"
# Measured: of 62 jobs on two H100 and one H200, whose card, host and software are known and whose launches were timed
# (xe_sizer/evidence/data/measured.jsonl), one in ten took less than the first times the prediction, one in ten more
# than the second. It is what laws of kernels do not see: the host between them, allocations, kernels that are no law's.
KNOWN_MACHINE = (0.92, 1.15)
MEASURED_PRODUCTS = "matmul."  # how names of measured laws of products begin
LEAST_WORTH = 0.005  # of a step: less is no whole per cent
EAGER_LAUNCH_US = 10.0  # chosen: between launches from Python, 12 us and more in all stacks, and those of tuned ones


def uncertainty(
    job: Job, efficiency: Efficiency, assumed: bool = False, line: Callable[[], Timeline] | None = None
) -> Uncertainty:
    """Estimate the range of a job's times; 80 % of unseen measurements should lie inside.

    assumed : lengths or batch are a guess, as they are where a publication leaves them out
    line : times a step under one layout, of which measured laws tell how far off they are; None: any
    """
    stack = job.stack
    if fixed := of_fixed(efficiency, stack.uncertainty):
        return fixed
    if stack.calibrated_on:
        text = f"four in five new runs should be {in_words(stack.uncertainty)}, by {stack.calibrated_on}"
        return symmetric(stack.uncertainty, text, True)
    evidence = Evidence(seen(SEEN), kin(stack), "comparable runs", "runs of other jobs", alike=True)
    told = from_residuals(published(TABLE), STEP, conditions(job, assumed), job.method.evidence, evidence)
    accelerator = job.server.accelerator
    measured = accelerator.measured
    if measured is None:
        return of_announced(told) if accelerator.announced else told
    shares = ANY_STEP if line is None else tuple(shares_of_laws(line()))
    return of_measured_laws(told, measured, launched_from_python(job), shares)


class Share(Immutable, eq=True):
    """One kernel or exchange of a step.

    kind : of its law, in words; share : of the step [-]
    error : what nine in ten kernels are closer than to the law [-]; None where no fit tells
    """

    kind: str
    share: float
    error: float | None


PRODUCTS, ATTENTION, MOVING, EXCHANGES = "products", "attention", "memory-bound kernels", "exchanges"
ANY_STEP = (Share("laws", 1.0, None),)
_SENT = {
    transfers.name: (POINT_TO_POINT,),
    data_parallel.name: (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER),
    gathered_states.name: (ALL_GATHER, REDUCE_SCATTER),
}


def shares_of_laws(line: Timeline) -> Iterator[Share]:
    """What the kernels and exchanges of a step take of it, with the errors of their laws.

    An operator is one kernel forward, with what runs again, and one backward; a pipeline waits in proportion to them.
    What no law of kernels prices, as host, offloading and overhead, is not among them.

    line : of one layout
    """
    job, device, layouts = line.evaluation.job, line.evaluation.job.device, line.layouts
    parts = {name: float(seconds[0]) for name, seconds in line.components.items()}
    costs, step_s = operator_costs(line), float(line.step_s[0])
    busy_s = sum(cost.seconds for cost in costs)
    waiting = 1.0 + (parts[bubble.name] / busy_s if busy_s else 0.0)
    rank = line.evaluation.critical_shapes.inputs.rank
    sizes, inner = group_sizes(rank), inner_ranks(rank)
    for cost in costs:
        op = cost.operator
        if isinstance(op, Collective):
            reach = float(np.max(sizes[op.group] * inner[op.group]))
            error = error_of_exchange(job.network, (operation for operation, _ in op.forward + op.backward), reach)
            yield Share(EXCHANGES, waiting * cost.seconds / step_s, error)
            continue
        kind = PRODUCTS if isinstance(op, Matmul | Scan) else ATTENTION if isinstance(op, Attention) else MOVING
        back_s = cost.parts.get(backward.name, 0.0)
        for seconds in (cost.seconds - back_s, back_s):
            yield Share(kind, waiting * seconds / step_s, device.error_of(op))
    for name in (image_encoder.name, generator.name, matrix_work.name):
        yield Share(PRODUCTS, parts[name] / step_s, device.matmul.p90_error)
    yield Share(MOVING, parts[optimizer.name] / step_s, device.memory_bound_error)
    for name, operations in _SENT.items():
        error = error_of_exchange(job.network, operations, float(layouts.gpus[0]))
        yield Share(EXCHANGES, parts[name] / step_s, error)


def error_of_exchange(network: Network, operations: Iterable[str], reach: float) -> float | None:
    """The worst error of the laws of some operations among so many neighbouring ranks [-]; None: one is not known."""
    laws = (network.scale_up.get(operation) or network.scale_up[ALL_GATHER] for operation in operations)
    errors = [law.p90_error for law in laws]
    return worst_of([*errors, network.scale_out_error] if reach > network.node_ranks else errors)


def of_measured_laws(
    told: Uncertainty, measured: MeasuredHere, from_python: bool, shares: Sequence[Share]
) -> Uncertainty:
    """The range where the kernels were measured on the machine at hand.

        low = exp(-hypot(ln low, e)),  high = exp(hypot(ln high, e)),  e^2 = sum of (share x ln(1 + p90 error))^2

    with the ends of published runs, or those of runs on known machines where they are nearer: of a machine that was
    measured nobody has to guess card, clocks and host. What a stack does between its kernels is as unknown as before.
    Each kernel of a step errs by its own. One whose law no fit tells the error of errs as far as published runs do.

    told : by published runs; from_python : whether the stack starts each kernel from Python, as the runs on the known
    machine did; shares : of the step, see `shares_of_laws`
    """
    low, high = told.low, told.high
    unknown = max(-math.log(low), math.log(high))
    known = from_python and any(law.startswith(MEASURED_PRODUCTS) for law in measured.laws)
    if known:
        low, high = max(low, KNOWN_MACHINE[0]), min(high, KNOWN_MACHINE[1])
    squares: dict[str, float] = {}
    for one in shares:
        error = unknown if one.error is None else math.log1p(one.error)
        kind = f"unmeasured {one.kind}" if one.error is None else one.kind
        squares[kind] = squares.get(kind, 0.0) + (one.share * error) ** 2
    fit = math.sqrt(math.fsum(squares.values()))
    ends = math.exp(-math.hypot(math.log(low), fit)), math.exp(math.hypot(math.log(high), fit))
    most = max(squares, key=lambda kind: squares[kind], default="")
    mostly = f", most of it from {most}" if most and 2.0 * squares[most] > fit**2 else ""
    off = (
        f"{whole_percent(math.expm1(fit))} of this step{mostly}" if fit > LEAST_WORTH else "less than 1 % of this step"
    )
    rest = "runs on known machines" if known else told.evidence
    words = f"kernels measured on your machine, {measured.date}; the errors of their laws come to {off}; {rest}"
    told_of = {"measured_on": measured.date, **({"bias": None} if known else {})}
    basis = replace(told.basis, **told_of) if told.basis else None
    return replace(told, low=ends[0], high=ends[1], evidence=words, basis=basis)


def launched_from_python(job: Job) -> bool:
    """Whether the stack starts one kernel after the other from Python, whatever the host at hand takes for it."""
    return job.stack.host.forward_launch_us >= EAGER_LAUNCH_US * host_slowdown(job.server.accelerator)


def conditions(job: Job, assumed: bool) -> tuple[str, ...]:
    """What the error of a time turns on, the gravest first.

    Where lengths or batch are a guess, the job may have been another one. Times of stacks that launch from Python, one
    kernel after another, turn on what no publication says: the host, releases, settings. A stack that is none of those
    that ship is taken for the plainest.
    """
    return (
        "guessed" if assumed else "stated",
        "launched from Python" if launched_from_python(job) else "launched by graphs or C++",
        "no stack of its own" if job.stack.parent is None else "stack of its own",
    )


def kin(stack: Stack) -> tuple[str, ...]:
    """The stack and its parent, the nearest first."""
    parent = split_release(stack.parent)[0] if stack.parent else None
    return tuple(one for one in (stack.name, parent) if one)


def peak_spread() -> Spread:
    """Range of the peak of memory of a run about the cautious one that a verdict uses."""
    return memory_spread(PEAKS)


def memory_suffices(lengths_assumed: bool) -> MemoryChance:
    """Chance that memory suffices, by the room that the cautious peak of a verdict leaves."""
    known = memory_chance(PEAKS)
    return known.of_a_guess if lengths_assumed else known


def memory_doubtful(job: Job, peak_bytes: Array) -> NDArray[np.bool_]:
    """Whether memory is not even likely to suffice, in the words of a verdict.

    peak_bytes : of shape (layout,) [bytes]

    Returns
    -------
    ndarray of bool, shape (layout,) [-]
    """
    return np.asarray(peak_bytes > job.server.accelerator.memory_bytes - doubtful_bytes(job))


def doubtful_bytes(job: Job) -> float:
    """Headroom below which memory is not even likely to suffice [bytes]."""
    likely = memory_suffices(job.lengths_assumed).quantile(LIKELY)
    return job.server.accelerator.memory_bytes * (1.0 - 1.0 / likely)
