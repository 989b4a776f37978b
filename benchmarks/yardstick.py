"""The yardstick of the benchmarks: what commands take, over what an interpreter takes that imports their libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

BARE_IMPORTS = ("-c", "import typer, numpy, yaml")


@dataclass(frozen=True)
class Run:
    """A process that has ended: user and system time [s], most memory [bytes], standard output, exit code."""

    cpu_s: float
    memory_bytes: int
    output: str
    code: int


def run(arguments: Sequence[str]) -> Run:
    """One interpreter with these arguments, on one thread, with bytecode kept as an installed package keeps it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XE_SIZER_")}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=environment, stdout=output, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return Run(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, output.read(), process.returncode)


def bare_imports_s(runs: int = 3) -> float:
    """CPU time of an interpreter that imports the libraries of every command: the least of some runs [s]."""
    run(BARE_IMPORTS)  # warms the caches of the file system
    return min(run(BARE_IMPORTS).cpu_s for _ in range(runs))


def cpu_s(work: Callable[[], object], repeats: int) -> float:
    """Processor time of one run, the first (cold) one left out, the least of three [s]."""
    work()
    found = []
    for _ in range(3):
        started = time.process_time()
        for _ in range(repeats):
            work()
        found.append((time.process_time() - started) / repeats)
    return min(found)
