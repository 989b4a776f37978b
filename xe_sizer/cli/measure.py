"""`xe-sizer measure`: kernels of the machine at hand, or a few steps of a job on it."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from xe_sizer.cli.command import Invocation, profile_folders
from xe_sizer.cli.main import stamped
from xe_sizer.cli.options import BriefOption, ColorOption, FormatOption, ProfilesOption
from xe_sizer.cli.output import OFTEN_S, WIPE, write_stderr, write_texts
from xe_sizer.cli.text import TextCommand
from xe_sizer.errors import EXIT_OK, InputError, Location, Problem

if TYPE_CHECKING:
    from xe_sizer.measure.samples import Machine, Sample
    from xe_sizer.measure.session import Walk
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.result.measurement import Measurement

app = typer.Typer(add_completion=False)
_HELP = """Time kernels on this machine and write a profile with laws of its own; or time a few steps of a job.

\b
The folder gets NAME.yaml (the profile), samples.jsonl (every kernel that was timed), measurement.html and
measurement.json; with --job also records.jsonl, which validate and calibrate read. A second run adds to the samples.
Under torchrun the collectives between its ranks are timed.

\b
Examples:
  xe-sizer measure -o mine
  xe-sizer estimate job.yaml --profiles mine --gpu auto
  xe-sizer measure -o mine --job job.yaml --steps 5
  torchrun --nproc-per-node 8 -m xe_sizer measure -o mine
"""
FOLDER = "measured"
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="auto|cpu|cuda[:N]", help="What is measured. Default: a GPU, else the CPU.")
]
QuickOption = Annotated[
    bool,
    typer.Option("--quick", help="Under a minute: fewer sizes. Default: six minutes on a GPU, under ten on a CPU."),
]
JobOption = Annotated[
    str | None, typer.Option("--job", metavar="SCENARIO.yaml", help="Time a few steps of this job in place of kernels.")
]
StepsOption = Annotated[str, typer.Option("--steps", metavar="N", help="Steps of the job that are timed.")]
NameOption = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Of the profile. Default: that of the GPU, which it replaces."),
]
LikeOption = Annotated[
    str | None,
    typer.Option(
        "--inherits", metavar="NAME", help="Whose laws hold where nothing was measured. Default: by the GPU's name."
    ),
]
AnywayOption = Annotated[bool, typer.Option("--anyway", help="Measure although others use the device.")]
FolderOption = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="The folder that is written to.")]


@app.command("measure", cls=TextCommand, help=_HELP)
def measure_command(
    *,
    device: DeviceOption = "auto",
    quick: QuickOption = False,
    job: JobOption = None,
    steps: StepsOption = "5",
    name: NameOption = None,
    inherits: LikeOption = None,
    anyway: AnywayOption = False,
    output: FolderOption = FOLDER,
    profiles: ProfilesOption = None,
    format_: FormatOption = None,
    color: ColorOption = "auto",
    brief: BriefOption = False,
) -> int:
    import os

    how = Invocation.of(format_, None, color, profiles, brief=brief)
    if not steps.strip().isdecimal() or int(steps) < 1:
        raise InputError(Problem(f"'{steps}' is no number of steps", Location("--steps"), "for example --steps 5"))
    if name is not None:
        _check_name(name)

    from xe_sizer.measure.session import chosen_device, import_torch, refuse_busy
    from xe_sizer.profiles.catalogue import Registry

    import_torch()
    chosen = chosen_device(device)
    folder = _made(Path(output))
    registry = Registry((folder, *profile_folders(profiles, os.environ)))
    if not anyway:
        refuse_busy(chosen)
    asked = Asked(chosen, folder, registry, quick, name, inherits)
    found = _of_job(asked, Path(job), int(steps)) if job is not None else _of_kernels(asked)
    if found is None:  # another rank of torchrun has the answer
        return EXIT_OK
    _write(found, folder)
    return how.write(found)


class Asked:
    """What is measured, and where it goes."""

    def __init__(
        self, device: str, folder: Path, registry: Registry, quick: bool, name: str | None, inherits: str | None
    ) -> None:
        self.device, self.folder, self.registry = device, folder, registry
        self.quick, self.name, self.inherits = quick, name, inherits


def _check_name(name: str) -> None:
    """Raises InputError: no profile can have the name."""
    from xe_sizer.measure.profile import slug

    if slug(name) != name.replace(".", "-") or not name:
        raise InputError(
            Problem(f"'{name}' cannot be the name of a profile", Location("--name"), f"for example {slug(name)}")
        )


def _made(folder: Path) -> Path:
    """The folder, which need not be there yet. Raises InputError: it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            Problem(f"cannot write: {error.strerror}", Location(str(folder)), "name a folder with -o")
        ) from error
    return folder


# Kernels.


def _of_kernels(asked: Asked) -> Measurement | None:
    """Time kernels, or collectives where torchrun started several ranks, and fit their laws."""
    from xe_sizer.measure import collectives, session
    from xe_sizer.measure.samples import SAMPLES, Samples
    from xe_sizer.measure.timer import CUDA, Watch

    ranks = collectives.started_ranks()
    if ranks is not None:
        return _of_collectives(asked, ranks)
    watch = Watch() if asked.device.startswith(CUDA) else None
    samples = Samples(asked.folder / SAMPLES, session.machine(asked.device))
    with Bar() as bar:
        walked = _walked(asked, samples, bar)
    if watch is not None:
        watch.stop()
    machine = session.machine(asked.device, watch.words if watch else "")
    left_out = [f"{kernel}: {reason}" for kernel, reason in walked.failed]
    return _fitted(asked, machine, samples.samples, left_out, walked)


def _walked(asked: Asked, samples: object, bar: Bar) -> Walk:
    from xe_sizer.measure import grid, session
    from xe_sizer.measure.samples import Samples
    from xe_sizer.measure.timer import CUDA, Timer

    assert isinstance(samples, Samples)
    device, quick, timer = asked.device, asked.quick, Timer(asked.device)
    models = [asked.registry.model(name) for name in asked.registry.names("model")]
    rates = session.look(device, timer, samples.machine.memory_bytes, quick)
    found = session.kernels_of(device, rates, models, quick)
    walked = session.walk(found, device, samples, timer, session.budget_s(device, quick), bar.say)
    if device.startswith(CUDA) and not walked.interrupted:
        from xe_sizer.measure.kernels import sixteen_bit

        for kernel in grid.sustained(grid.weights_of(models), rates, sixteen_bit(device)):
            session.run_hot(kernel, device, samples, session.SUSTAINED_S[quick])
    return walked


def _of_collectives(asked: Asked, ranks: object) -> Measurement | None:
    """Between the ranks of torchrun; the first of them keeps the samples and answers."""
    from xe_sizer.measure import collectives, session
    from xe_sizer.measure.samples import SAMPLES, Samples

    assert isinstance(ranks, collectives.Ranks)
    own = collectives.join(asked.device, ranks)
    try:
        with Bar(silent=ranks.rank > 0) as bar:
            found = collectives.measure_collectives(own, ranks, asked.quick, bar.say)
        if ranks.rank > 0:
            return None
        machine = session.machine(own)
        samples = Samples(asked.folder / SAMPLES, machine)
        for sample in found:
            samples.add(sample)
        return _fitted(asked, machine, samples.samples, [], None)
    finally:
        collectives.leave()


def _fitted(
    asked: Asked, machine: Machine, samples: Sequence[Sample], left_out: list[str], walked: Walk | None
) -> Measurement:
    """The report on all samples that there are, and the profile in its file. Raises InputError: none says enough"""
    from msgspec.structs import replace

    from xe_sizer.measure.profile import find_known, profile_yaml, summarise
    from xe_sizer.profiles.catalogue import Registry

    catalogue = Registry()  # what was measured before inherits from the catalogue, not from itself
    known = find_known(machine, catalogue, asked.inherits)
    interrupted = walked is not None and walked.interrupted
    made = summarise(machine, samples, catalogue, asked.name, known, left_out, interrupted)
    if not made.report.laws or (known is None and not made.report.peaks_flops_per_s):
        hint = "what was timed is kept; run it again, alone, and without torchrun first"
        raise InputError(Problem("too few kernels were timed to fit a law", Location(str(asked.folder)), hint))
    file = asked.folder / f"{made.report.profile}.yaml"
    others = [(asked.folder / f"{one['name']}.yaml", profile_yaml(one)) for one in made.beside]
    write_texts([(file, profile_yaml(made.profile)), *others])
    if interrupted:
        write_stderr("note: interrupted; laws are fitted to what was timed, and another run goes on from here")
    return replace(made.report, file=str(file))


# A job.


def _of_job(asked: Asked, file: Path, steps: int) -> Measurement | None:
    from xe_sizer.measure.trial import measure_job

    return measure_job(file, steps, asked.device, asked.folder, asked.registry, write_stderr)


# The answer, beside the profile.


def _write(found: Measurement, folder: Path) -> None:
    """A page for people, and the answer as JSON, from which `render` makes any other format."""
    from xe_sizer.report.document import Options
    from xe_sizer.report.registry import formats, render

    answer = stamped(found)
    name = "job" if found.job else "measurement"
    chosen = {each.name: each for each in formats() if {".html", ".json"} & set(each.endings)}
    write_texts((folder / f"{name}{each.endings[0]}", render(answer, each.name, Options())) for each in chosen.values())


class Bar:
    """How far measuring is, and the time left, in one line of stderr; off a terminal a line now and then."""

    OFTEN_OFF_S = 15.0

    def __init__(self, silent: bool = False) -> None:
        self.silent, self.terminal = silent, sys.stderr.isatty()
        self.due = time.monotonic() + (OFTEN_S if self.terminal else self.OFTEN_OFF_S)
        self.shown = False

    def say(self, done: int, whole: int, left_s: float) -> None:
        now = time.monotonic()
        if self.silent or now < self.due:
            return
        text = f"{done} of {whole} kernels timed, {left_s:.0f} s left"
        if self.terminal:
            filled = round(20 * done / max(whole, 1))
            print(f"{WIPE}[{'#' * filled}{'.' * (20 - filled)}] {text}", end="", file=sys.stderr, flush=True)
            self.due, self.shown = now + OFTEN_S, True
        else:
            write_stderr(f"note: {text}")
            self.due = now + self.OFTEN_OFF_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            print(WIPE, end="", file=sys.stderr, flush=True)
