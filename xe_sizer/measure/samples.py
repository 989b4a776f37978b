"""Samples: how long one kernel took on one machine, kept as JSON Lines that a later run extends."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.profiles.text import read_text
from xe_sizer.result.common import Struct

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Laws that are fitted, and what else is timed.
MATMUL, GROUPED, ATTENTION, DECODE, MEMORY = "matmul", "grouped", "attention", "decode", "memory"
HOST, COPY, STORAGE, COLLECTIVE, SUSTAINED = "host", "copy", "storage", "collective", "sustained"
FORWARD, BACKWARD = "forward", "backward"
SAMPLES = "samples.jsonl"


class Kernel(Struct, frozen=True):
    """What is timed: a kernel and its sizes.

    law : the law that it is of; name : number format, family of kernels, operation; form : which side of it
    sizes : by the names that the law's equation gives them
    """

    law: str
    name: str
    sizes: dict[str, float]
    form: str = ""

    @property
    def key(self) -> tuple[str, str, str, tuple[tuple[str, float], ...]]:
        return self.law, self.name, self.form, tuple(sorted(self.sizes.items()))

    @property
    def words(self) -> str:
        sizes = " ".join(f"{name} {size:,.0f}" for name, size in self.sizes.items())
        return " ".join(part for part in (self.law, self.name, self.form, sizes) if part)


class Sample(Struct, frozen=True):
    """One kernel, timed. seconds, low, high : median, 10 % and 90 % quantiles of the repeats [s]; walk : of the grid"""

    kernel: Kernel
    seconds: float
    low: float
    high: float
    repeats: int
    walk: int


class Machine(Struct, frozen=True):
    """Where and when kernels were timed. kind : cuda or cpu, as torch calls it

    software : torch and what is below it; conditions : clocks, power and threads, in words
    """

    device: str
    kind: str
    software: str
    memory_bytes: float
    devices: int
    host: str
    host_memory_bytes: float | None
    date: str
    conditions: str = ""

    @property
    def same(self) -> tuple[str, str, str]:
        """What two runs must have in common to be of one profile."""
        return self.device, self.kind, self.software


class _Line(msgspec.Struct, frozen=True):
    """A line of the file: the machine of the samples below it, or one of these."""

    machine: Machine | None = None
    sample: Sample | None = None


class Samples:
    """A file of samples that grows while kernels are timed; what is in it stays whatever happens.

    Raises
    ------
    InputError    samples of another machine or other software; a disk that takes no more
    """

    def __init__(self, file: Path, machine: Machine) -> None:
        self.file, self.machine = file, machine
        if file.exists():
            _drop_cut_line(file)
        earlier = read_samples(file) if file.exists() else ((), ())
        for other in earlier[0]:
            if other.same != machine.same:
                message = f"its samples are of {other.device} with {other.software}, not of {machine.device} with "
                hint = "write into another folder (-o DIR), or move that file away"
                raise InputError(Problem(message + machine.software, Location(str(file)), hint))
        self.samples: list[Sample] = list(earlier[1])
        self._append(_Line(machine=machine))

    def add(self, sample: Sample) -> None:
        """Keep a sample, in the file first."""
        self._append(_Line(sample=sample))
        self.samples.append(sample)

    def _append(self, line: _Line) -> None:
        with told(self.file), self.file.open("ab") as out:
            out.write(msgspec.json.encode(line) + b"\n")
            out.flush()
            os.fsync(out.fileno())

    def times(self, kernel: Kernel) -> int:
        """How often a kernel was timed."""
        return sum(sample.kernel.key == kernel.key for sample in self.samples)


class told:  # noqa: N801  used as a word of a with-statement
    """Turns an OSError into bad input that names the file: a disk that is full, a folder that takes no files."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            hint = "what was measured before is kept; name another folder with -o DIR"
            raise InputError(Problem(f"cannot write: {error.strerror}", Location(str(self.file)), hint)) from error


def _drop_cut_line(file: Path) -> None:
    """Away with a last line that a full disk or a stopped run left without its end, before others come behind it."""
    written = file.read_bytes()
    whole = written.rfind(b"\n") + 1
    if whole < len(written):
        with told(file):
            os.truncate(file, whole)


def read_samples(file: Path) -> tuple[tuple[Machine, ...], tuple[Sample, ...]]:
    """Read the machines and the samples of a file; a last line that was cut off is passed over.

    Raises
    ------
    InputError    a line that is no sample
    """
    machines: list[Machine] = []
    samples: list[Sample] = []
    lines = read_text(file).splitlines()
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.DecodeError as error:
            if number == len(lines):  # a run that ended in the middle of a word
                continue
            raise InputError(Problem(f"this is no sample: {error}", Location(str(file), number))) from error
        machines += [line.machine] if line.machine else []
        samples += [line.sample] if line.sample else []
    return tuple(machines), tuple(samples)


class Point(Struct, frozen=True):
    """A kernel with the median of all its samples [s], and how far walks of the grid were apart [-]."""

    kernel: Kernel
    seconds: float
    apart: float


def points(samples: Iterable[Sample]) -> tuple[Point, ...]:
    """One point for each kernel, in the order in which they were first timed."""
    by_key: dict[object, list[Sample]] = {}
    for sample in samples:
        by_key.setdefault(sample.kernel.key, []).append(sample)
    found = []
    for each in by_key.values():
        seconds = [sample.seconds for sample in each]
        found.append(Point(kernel=each[0].kernel, seconds=float(np.median(seconds)), apart=max(seconds) / min(seconds)))
    return tuple(found)


def sizes_of(found: Iterable[Point], name: str) -> NDArray[np.float64]:
    """One size of each point's kernel, shape (point,)."""
    return np.array([point.kernel.sizes[name] for point in found], dtype=np.float64)


def drift(samples: Iterable[Sample]) -> float | None:
    """How much longer kernels take when they are timed again, by the median; None: none was."""
    first: dict[object, float] = {}
    last: dict[object, float] = {}
    for sample in samples:
        first.setdefault(sample.kernel.key, sample.seconds)
        last[sample.kernel.key] = sample.seconds
    ratios = [last[key] / first[key] for key in first if last[key] != first[key]]
    return float(np.median(ratios)) - 1.0 if ratios else None
