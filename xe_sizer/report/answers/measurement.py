"""The machine at hand beside the catalogue: what `measure` reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import (
    TOOL,
    Case,
    Column,
    Document,
    Fact,
    Facts,
    Finding,
    Notes,
    Picture,
    Remark,
    Summary,
    Table,
)
from xe_sizer.report.document import Point as Line
from xe_sizer.report.format import NOT_A_NUMBER, byte_size, clean, duration, flops, number, percent, plural, ratio
from xe_sizer.report.picture import Axis, Chart, Point
from xe_sizer.result.measurement import Measurement
from xe_sizer.units import GIGA, MICRO, TERA

if TYPE_CHECKING:
    from xe_sizer.report.document import Block, Options
    from xe_sizer.result.measurement import MeasuredJob, MeasuredKernel, MeasuredLaw

ANSWER = Measurement
NOTICEABLE = 0.05  # of a time: less is within what two runs of a kernel differ by
SLOWER = 1.1  # chosen: times the catalogue's, from which a law is worth a line
DRIFTED = 0.05  # chosen: share that kernels take longer at the end, from which the machine got warm or was shared
SHOWN = 12  # kernels that a report lists
RATES = ("bus_gb_per_s", "gb_per_s")
EFFICIENCIES = ("flops_efficiency", "efficiency", "memory_efficiency", *RATES, "factor")


def document(result: Measurement, options: Options) -> Document:
    """Laws against the catalogue, the roofline, where kernels lie below it, and a job that ran."""
    if result.job is not None:
        return _of_job(result, result.job)
    blocks: list[Block] = [Summary(tuple(_points(result))), _laws(result), *_roofline(result), *_below(result)]
    blocks.append(Facts("Machine", tuple(_machine(result))))
    if result.left_out:
        blocks.append(Notes("Left out", tuple(map(clean, result.left_out[:SHOWN]))))
    return Document(
        "MEASURED", True, _headline(result), (), tuple(blocks), cautions=tuple(filter(None, (_caution(result),)))
    )


def _headline(result: Measurement) -> str:
    how = f"{plural(result.samples, 'kernel')} on {clean(result.device)}"
    beside = f", beside the laws of {clean(result.inherits)}" if result.inherits else ", which no profile names"
    return f"{how}: {plural(len(result.laws), 'law')}{beside}"


def _caution(result: Measurement) -> str:
    """What makes the figures doubtful."""
    said = []
    if result.drift is not None and result.drift > DRIFTED:
        said.append(
            f"kernels took {percent(result.drift)} longer in the second walk of the grid than in the first: the device "
            "got warm, or somebody used it"
        )
    if result.interrupted:
        said.append("interrupted: another run goes on from here")
    return "; ".join(said)


def _points(result: Measurement) -> Iterator[Line]:
    slower = [law for law in result.laws if law.slower is not None]
    if slower:
        middle = sorted(law.slower or 1.0 for law in slower)[len(slower) // 2]
        text = f"kernels take {middle:.2f} times as long as the laws of {clean(result.inherits)} say"
        yield Line("Against the catalogue", f"{text}, by the middling law")
    errors = sorted(law.p90_error for law in result.laws)
    if errors:
        worst = max(result.laws, key=lambda law: law.p90_error)
        text = f"nine in ten kernels within {percent(errors[len(errors) // 2])} by the middling law"
        yield Line("Fit", f"{text}, {percent(worst.p90_error)} by the worst ({clean(worst.law)})")
    if result.launch_s is not None:
        yield Line("Host", f"{duration(result.launch_s)} from one small kernel to the next", spare=1)
    network = next((law for law in result.laws if law.law == "network"), None)
    if network is not None:
        rate, latency_s = network.parameters["gb_per_s"], network.parameters["latency_us"] * MICRO
        text = f"{number(rate)} GB/s for each GPU while all of a node send, after {duration(latency_s)}"
        yield Line("Between nodes", text)
    if result.file:
        use = "--gpu auto" if result.inherits else f"--gpu {clean(result.profile)}"
        use = f"--server {clean(result.server)}" if result.server else use
        folder = clean(result.file.rpartition("/")[0]) or "."
        yield Line("Use it", "with every command", command=f"xe-sizer estimate job.yaml --profiles {folder} {use}")


def _laws(result: Measurement) -> Table:
    """One row a law, with what it reaches of the peak here and by the catalogue."""
    columns = (
        Column("law"),
        Column("kernels", True, spare=2),
        Column("reaches", True),
        Column("catalogue", True),
        Column("time / catalogue", True),
        Column("median error", True, spare=1),
        Column("90 % below", True),
    )
    rows = tuple(
        (
            clean(law.law), str(law.samples), _reached(law, law.parameters), _reached(law, law.before),
            NOT_A_NUMBER if law.slower is None else ratio(law.slower), percent(law.median_error),
            percent(law.p90_error),
        )
        for law in result.laws
    )  # fmt: skip
    peaks = "the best product and stream that were seen" if result.measured_peaks else "the catalogue's peaks"
    compared = "; time / catalogue = median over the kernels" if result.inherits else ""
    errors = "errors are of kernels that the fit had not seen, and widen a job's range by each law's share of its step"
    note = f"reaches = share of {peaks}, on large kernels{compared}; {errors}"
    shares = tuple(_share(law) for law in result.laws)
    table = Table("Laws", columns, rows, shares, note=note, bars="share of the peak")
    return table if result.inherits else table.without(4).without(3)  # which compare with a catalogue


def _share(law: MeasuredLaw) -> float | None:
    found = next((law.parameters[name] for name in EFFICIENCIES[:3] if name in law.parameters), None)
    return None if found is None else min(found, 1.0)


def _reached(law: MeasuredLaw, parameters: dict[str, float]) -> str:
    name = next((name for name in EFFICIENCIES if name in parameters), None)
    if name is None:
        return NOT_A_NUMBER
    value = parameters[name]
    if name in RATES:
        return f"{number(value)} GB/s"
    return ratio(value) if name == "factor" else percent(value)


# The roofline: FLOP/s over FLOP per byte, below what bandwidth and peak allow.

COMPUTE = ("matmul", "attention", "grouped")


def _roofline(result: Measurement) -> Iterator[Picture]:
    found = [one for one in result.kernels if one.law.partition(".")[0] in COMPUTE and one.flops > 0]
    if not found or not result.peaks_flops_per_s:
        return
    kinds = tuple(dict.fromkeys(one.law for one in found))
    points = tuple(
        Point(one.flops_per_byte, one.flops / one.seconds, _says(one), kind=kinds.index(one.law), rank=1)
        for one in found
    )
    names = {law.partition(".")[2] for law in kinds}
    peaks = {name: peak for name, peak in result.peaks_flops_per_s.items() if name in names} or result.peaks_flops_per_s
    highest = max(peaks.values())
    across = [one.flops_per_byte for one in found]
    unit, word = (TERA, "TFLOP/s") if highest >= TERA else (GIGA, "GFLOP/s")
    ridge, first, last = highest / result.bandwidth_bytes_per_s, min(across), max(across)
    roof = [(first, min(first * result.bandwidth_bytes_per_s, highest))]
    roof += [(ridge, highest)] if first < ridge < last else []
    roof.append((last, min(last * result.bandwidth_bytes_per_s, highest)))
    reached = sorted(one.flops / one.seconds / _bound(one, result) for one in found)
    middle = percent(reached[len(reached) // 2])
    says = f"{plural(len(found), 'kernel')}; half of them reach {middle} of their roof or more"
    axes = Axis("FLOP per byte", 1.0, True), Axis(word, unit, True)
    drawing = Chart(*axes, points, ("", ""), kinds, roof=tuple(roof))
    best = next(name for name, peak in peaks.items() if peak == highest)
    rates = f"{number(result.bandwidth_bytes_per_s / GIGA)} GB/s and {number(highest / unit)} {word} ({clean(best)})"
    yield Picture("Roofline", says, drawing, f"The line is what {rates} allow; both axes are logarithmic.")


def _bound(one: MeasuredKernel, result: Measurement) -> float:
    """What bandwidth and peak allow of a kernel [FLOP/s]."""
    peak = result.peaks_flops_per_s.get(one.law.partition(".")[2]) or max(result.peaks_flops_per_s.values())
    return min(peak, one.flops_per_byte * result.bandwidth_bytes_per_s)


def _says(one: MeasuredKernel) -> str:
    by_law = f", by its law {duration(one.law_s)}" if one.law_s is not None else ""
    return f"{clean(one.name)}: {duration(one.seconds)}, {flops(one.flops / one.seconds)}/s{by_law}"


def _below(result: Measurement) -> Iterator[Table]:
    """Kernels that take longer than the catalogue says, the worst first."""
    found = [one for one in result.kernels if one.before_s and one.seconds > SLOWER * one.before_s]
    if not found:
        return
    found.sort(key=lambda one: one.seconds / (one.before_s or 1.0), reverse=True)
    columns = (Column("kernel"), Column("measured", True), Column("catalogue", True), Column("ratio", True))
    rows = tuple(
        (
            clean(one.name),
            duration(one.seconds),
            duration(one.before_s or 0.0),
            ratio(one.seconds / (one.before_s or 1.0)),
        )
        for one in found[:SHOWN]
    )
    note = f"{plural(len(found), 'kernel')} of {len(result.kernels)} take over {SLOWER:g} x the catalogue's time"
    yield Table("Where it lies below the catalogue", columns, rows, note=note, detail=True)


def _machine(result: Measurement) -> Iterator[Fact]:
    yield Fact("device", clean(result.device))
    yield Fact("host", clean(result.host))
    yield Fact("software", clean(result.software))
    if result.conditions:
        yield Fact("while it ran", clean(result.conditions))
    yield Fact("date", clean(result.date))
    origin = "measured" if result.measured_peaks else "catalogue"
    for name, peak in result.peaks_flops_per_s.items():
        yield Fact(f"peak {clean(name)}", f"{flops(peak)}/s", origin)
    yield Fact("bandwidth", f"{number(result.bandwidth_bytes_per_s / GIGA)} GB/s", origin)
    if result.optimizer_step_s is not None:
        yield Fact("an update of 64 small tensors", duration(result.optimizer_step_s), "measured")
    if result.copy_bytes_per_s is not None:
        yield Fact("copies to and from the host", f"{number(result.copy_bytes_per_s / GIGA)} GB/s", "measured")
    if result.storage_bytes_per_s is not None:
        rate = number(result.storage_bytes_per_s / GIGA)
        yield Fact("a file written", f"{rate} GB/s: --storage-write-gb-per-s {rate}", "measured")
    if result.drift is not None:
        yield Fact("drift", f"{percent(abs(result.drift))} {'slower' if result.drift >= 0 else 'faster'} at the end")
    if result.file:
        yield Fact("profile", clean(result.file))
    if result.server:
        yield Fact("node and network", clean(result.server))


# A job.


def _of_job(result: Measurement, job: MeasuredJob) -> Document:
    what = f"{clean(job.model)} on {clean(result.device)}"
    ran = f", {job.layers} of its {job.of_layers} layers" if job.layers < job.of_layers else ""
    if job.out_of_memory:
        headline = f"{what}{ran}: out of memory"
        return Document("RAN OUT OF MEMORY", True, headline, (), (Facts("Machine", tuple(_machine(result))),))
    headline = f"{what}{ran}: {plural(job.steps, 'step')} of {duration(job.step_s)}"
    rows = [_compared("step", job.step_s, job.predicted_s, duration)]
    if job.peak_bytes is not None:
        rows.append(_compared("peak of memory, allocated", job.peak_bytes, job.predicted_peak_bytes, byte_size))
    columns = (Column(""), Column("measured", True), Column("predicted", True), Column("ratio", True))
    blocks: list[Block] = [Summary(tuple(_job_points(job))), Table("Measured and predicted", columns, tuple(rows))]
    blocks.append(Facts("Machine", tuple(_machine(result))))
    return Document("MEASURED", True, headline, (), tuple(blocks))


def _compared(what: str, measured: float, predicted: float | None, show: object) -> tuple[str, str, str, str]:
    assert callable(show)
    if predicted is None:
        return what, str(show(measured)), NOT_A_NUMBER, NOT_A_NUMBER
    return what, str(show(measured)), str(show(predicted)), ratio(predicted / measured)


def _job_points(job: MeasuredJob) -> Iterator[Line]:
    if job.predicted_s is not None:
        low, high = job.low_s or job.predicted_s, job.high_s or job.predicted_s
        inside = "inside" if low <= job.step_s <= high else "outside"
        text = f"predicted {duration(job.predicted_s)}, 80 % range {duration(low)} to {duration(high)}: {inside}"
        yield Line("Step", f"{duration(job.step_s)}; {text}")
    if job.before_s is not None:
        yield Line(
            "Before measuring", f"{duration(job.before_s)} ({ratio(job.before_s / job.step_s)} of what was measured)"
        )
    if job.reserved_bytes is not None:
        yield Line("Reserved", byte_size(job.reserved_bytes), spare=1)
    if job.driver_bytes is not None:
        yield Line("By the driver", byte_size(job.driver_bytes), spare=1)
    if job.file:
        yield Line("Use it", "as a record", command=f"xe-sizer validate {clean(job.file)}")


# Rows and findings.


def rows(result: Measurement, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a kernel; of a job one line."""
    if result.job is not None:
        names = result.job.__struct_fields__
        yield names
        yield tuple(getattr(result.job, name) for name in names)
        return
    yield ("law", "kernel", "seconds", "flops", "bytes", "law_s", "before_s")
    for one in result.kernels:
        yield one.law, one.name, one.seconds, one.flops, one.bytes, one.law_s, one.before_s


def findings(result: Measurement, options: Options) -> Iterator[Finding]:
    """Each law with its error; nothing of it is judged."""
    said = ((law.law, f"90 % of its kernels within {percent(law.p90_error)}") for law in result.laws)
    headline = document(result, options).headline
    cases = tuple(Case(name, output=text) for name, text in said) or (Case("job", output=headline),)
    yield Finding(clean(result.device), cases, (Remark("notice", f"{TOOL}: measured", headline),))
