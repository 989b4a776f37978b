"""Time and efficiency over numbers of GPUs: what `plan --scaling` reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from xe_sizer.report.document import TOOL, Case, Column, Document, Finding, Picture, Remark, Table
from xe_sizer.report.format import clean, count, duration, layout_words, number, percent, plural
from xe_sizer.report.picture import Axis, Curves, Line, Mark
from xe_sizer.report.verdict import job_words
from xe_sizer.result.studies import Scaling, ScalingPoint
from xe_sizer.result.training import Layout

if TYPE_CHECKING:
    from xe_sizer.report.document import Options

# Picture: efficiency over numbers of GPUs.


def pictures(result: Scaling) -> Iterator[Picture]:
    if len(result.points) < 2:
        return
    line = Line("efficiency", tuple((float(point.gpus), point.efficiency) for point in result.points))
    drawing = Curves(
        Axis("GPUs", logarithmic=True),
        Axis("Efficiency [%]", 0.01),
        (line,),
        (Mark(1.0, "as efficient as the fewest GPUs"),),
    )
    says = "; ".join(f"{plural(point.gpus, 'GPU')} {percent(point.efficiency)}" for point in result.points)
    yield Picture(f"Efficiency of {result.kind} scaling", says, drawing)


# The report.

ANSWER = Scaling
BEYOND = 1.02  # efficiency above which it is no rounding
NO_LAYOUT = "no layout fits on any of the GPUs searched"


def document(result: Scaling, options: Options) -> Document:
    """Time and efficiency over numbers of GPUs, with what limits at each."""
    columns = (
        Column("GPUs", True),
        Column("batch", True, spare=3),
        Column("time per step", True),
        Column("tokens per second", True, spare=1),
        Column("efficiency", True),
        Column("bound by", spare=2),
        Column("mostly lost to"),
        Column("layout"),
    )
    rows = tuple(
        (
            count(point.gpus), f"{point.global_batch:,}", duration(point.step_s), number(point.tokens_per_s),
            percent(point.efficiency), clean(point.bound), clean(point.lost), layout_words(point.layout),
        )
        for point in result.points
    )  # fmt: skip
    kept = "the same global batch" if result.kind == "strong" else "a global batch that grows with the GPUs"
    most = max((point.efficiency for point in result.points), default=1.0)
    shares = tuple(point.efficiency / most for point in result.points)
    note = "efficiency: samples per second per GPU, relative to the fewest GPUs on which it fits"
    note += _beyond(result.points)
    words = f"{job_words(result.scenario)}: {result.kind} scaling, {kept}"
    if not result.points:
        return Document("DOES NOT FIT", False, words, (NO_LAYOUT,), ())
    table = Table("Over numbers of GPUs", columns, rows, shares, note=note, bars="efficiency")
    return Document("SCALING", True, words, (), (*pictures(result), table))


def _beyond(points: Sequence[ScalingPoint]) -> str:
    """Why more GPUs are more than as many times as fast, where they are: what the layout on the fewest has to do."""
    best = max(points, key=lambda point: point.efficiency, default=None)
    if best is None or best.efficiency <= BEYOND:
        return ""
    few, many = points[0].layout, best.layout
    burdens = [
        (few.offload != "none" and many.offload == "none", f"keep the {few.offload} in host memory"),
        (few.recompute == "full" != many.recompute, "recompute every layer"),
        (few.micro_batch < many.micro_batch, f"run micro-batches of {few.micro_batch} in place of {many.micro_batch}"),
        (few.tp * few.pp * few.cp > many.tp * many.pp * many.cp, "split every layer over more of them"),
    ]
    why = " and ".join(words for holds, words in burdens if holds) or f"run as {layout_words(few)}"
    return f"; above 100 %: {plural(points[0].gpus, 'GPU')} must {why}, {best.gpus:,} need not"


def rows(result: Scaling, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a number of GPUs."""
    names = [name for name in ScalingPoint.__struct_fields__ if name != "layout"]
    yield *names, *Layout.__struct_fields__
    for point in result.points:
        yield *(getattr(point, name) for name in names), *asdict(point.layout).values()


def findings(result: Scaling, options: Options) -> Iterator[Finding]:
    """Each number of GPUs on which the job fits; a failure where it fits on none."""
    job = f"{job_words(result.scenario)}, {result.kind} scaling"
    if not result.points:
        remark = Remark("error", f"{TOOL}: does not fit", f"{job}: {NO_LAYOUT}", options.file)
        yield Finding(options.file or job, (Case("fits", "failed", "does-not-fit", NO_LAYOUT),), (remark,))
        return
    said = [(plural(point.gpus, "GPU"), _words(point)) for point in result.points]
    cases = tuple(Case(gpus, output=text) for gpus, text in said)
    title = f"{TOOL}: {result.kind} scaling"
    remarks = (Remark("notice", title, f"{job}: {gpus}, {text}", options.file) for gpus, text in said)
    yield Finding(options.file or job, cases, tuple(remarks))


def _words(point: ScalingPoint) -> str:
    return f"{duration(point.step_s)} per step, {percent(point.efficiency)} efficient, bound by {clean(point.bound)}"
