"""`--timeline` of `estimate` and `plan`: a trace beside the report, and Perfetto's own parser where it is there."""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = ("estimate", "--model", "gpt2", "--gpu", "l4", "--job", "sft")


def test_a_trace_is_written_beside_the_report(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    ran = cli(*JOB, "--gpus", "1", "--timeline", file)
    assert ran.code == 0
    assert ran.out == cli(*JOB, "--gpus", "1").out.replace(" --timeline " + str(file), "")
    events = json.loads(file.read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} >= {"compute"}


def test_what_does_not_fit_has_none(cli: Cli, tmp_path: Path) -> None:
    ran = cli("estimate", "--model", "llama-3.1-70b", "--gpu", "l4", "--gpus", "1", "--timeline", tmp_path / "a.json")
    assert ran.code == 1
    assert "note: --timeline: the job does not fit" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    ran = cli(*JOB, "--gpus", "1", "--timeline", tmp_path / "nowhere" / "a.json")
    assert ran.code == 2
    assert not ran.out


def test_a_plan_draws_the_step_of_what_it_recommends(cli: Cli, tmp_path: Path) -> None:
    """The same as the estimate of the plan, whose command the report prints."""
    file, again = tmp_path / "plan.json", tmp_path / "estimate.json"
    job = ("--model", "llama-2-7b", "--server", "dell-xe9680-h100", "--job", "sft", "--samples", "10000")
    ran = cli("plan", *job, "--max-gpus", "16", "--max-hours", "24", "--timeline", file, "-f", "json")
    assert ran.code == 0
    answer = json.loads(ran.out)
    chosen = answer["candidates"][answer["answers"]["chosen"]]
    _, *command = shlex.split(chosen["command"])
    assert cli(*command, "--timeline", again).code == 0
    assert json.loads(file.read_text()) == json.loads(again.read_text())
    events = json.loads(file.read_text())["traceEvents"]
    stages = len({event["pid"] for event in events})
    assert sum(event.get("dur", 0.0) for event in events) == pytest.approx(1e6 * stages * chosen["step_s"], rel=1e-6)
    assert max(event["args"]["bytes"] for event in events if event["ph"] == "C") == chosen["peak_bytes"]


def test_a_plan_that_fits_nowhere_has_none(cli: Cli, tmp_path: Path) -> None:
    job = ("--model", "llama-3.1-70b", "--gpu", "l4", "--job", "sft", "--max-gpus", "1")
    ran = cli("plan", *job, "--timeline", tmp_path / "a.json")
    assert ran.code == 1
    assert "note: --timeline: the job does not fit" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_sweep_and_a_scaling_have_no_step_of_their_own(cli: Cli, tmp_path: Path) -> None:
    for more in (("--grid", "gpus=1,2"), ("--scaling", "strong")):
        ran = cli("plan", *JOB[1:], *more, "--timeline", tmp_path / "a.json")
        assert ran.code == 2
        assert "--timeline cannot go with" in ran.err


# Perfetto's own parser: a program that answers SQL, which its package of PyPI downloads when it is first used.

PROGRAM = "TRACE_PROCESSOR"  # a variable with the path of it
NAMES = ("trace_processor_shell", "trace_processor")


@pytest.fixture(scope="module")
def perfetto() -> str:
    """The program of this machine; the package `perfetto` brings one where it may download it."""
    named = os.environ.get(PROGRAM) or next((path for name in NAMES if (path := shutil.which(name))), None)
    if named:
        return named
    prebuilts = pytest.importorskip("perfetto.prebuilts.perfetto_prebuilts", reason="pip install perfetto brings it")
    manifests = pytest.importorskip("perfetto.prebuilts.manifests.trace_processor_shell")
    try:
        return str(prebuilts.get_perfetto_prebuilt(manifests.TRACE_PROCESSOR_SHELL_MANIFEST))
    except Exception as error:  # noqa: BLE001  whatever a download fails with
        pytest.skip(f"trace_processor cannot be downloaded: {error}")


@pytest.mark.parametrize(
    "job",
    [
        ("--model", "gpt2", "--gpu", "l4", "--job", "sft", "--gpus", "1"),
        (
            "--model", "llama-2-70b", "--server", "dell-xe9680-h100", "--gpus", "32", "--tp", "8", "--pp", "4",
            "--vpp", "2", "--global-batch", "16", "--micro-batch", "1", "--seq-len", "4096", "--steps", "5",
        ),
        ("--model", "llama-3.1-8b", "--server", "dell-xe9680-h100", "--gpus", "8", "--job", "grpo",
         "--rollout-gpus", "4"),
    ],
)  # fmt: skip
def test_perfetto_reads_every_span_and_the_peak(cli: Cli, tmp_path: Path, perfetto: str, job: tuple[str, ...]) -> None:
    """Durations of each process add up to the step, nothing is dropped, the counter reaches the peak."""
    file, query = tmp_path / "step.json", tmp_path / "query.sql"
    answer = json.loads(cli("estimate", *job, "--timeline", file, "-f", "json").out)

    def ask(sql: str) -> list[list[float]]:
        query.write_text(sql)
        ran = subprocess.run([perfetto, "-q", query, file], capture_output=True, text=True, check=True, timeout=120)
        _, *rows = csv.reader(ran.stdout.splitlines())
        return [[float(cell) for cell in row] for row in rows if row]

    spans = [event for event in json.loads(file.read_text())["traceEvents"] if event["ph"] == "X"]
    of_processes = ask(
        "select sum(slice.dur), count(*) from slice join thread_track on slice.track_id = thread_track.id "
        "join thread using (utid) group by thread.upid;"
    )
    step_ns = 1e9 * answer["time"]["step_s"]["expected"]
    assert [length for length, _ in of_processes] == pytest.approx([step_ns] * len(of_processes), abs=2)
    assert sum(count for _, count in of_processes) == len(spans)
    ((most,),) = ask("select max(value) from counter;")
    assert most == answer["memory"]["peak_bytes"]
    assert ask("select count(*) from stats where severity = 'error' and value > 0 and source = 'analysis';") == [[0]]
