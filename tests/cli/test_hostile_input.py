"""Input that nobody writes on purpose: bytes that are no text, depth without end, figures that nothing measures."""

from __future__ import annotations

import csv
import io
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

import xe_sizer
from xe_sizer.profiles import convert

from .conftest import Estimator, Ran

Cli = Callable[..., Ran]
RECORD = {
    "id": "mine", "job": "sft", "model": "llama-2-7b", "stack": "deepspeed", "gpu": "a100-sxm-80gb", "gpus": 8,
    "layout": {"zero": 2}, "batch": {"micro": 1, "global": 64}, "seq_len": 4096, "recompute": "full",
    "measured": {"step_time_s": 1.0},
}  # fmt: skip
NO_TEXT, OUT = os.fsdecode(b"bad\xff.yaml"), os.fsdecode(b"out\xff")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def record(path: tuple[str, ...], value: object) -> str:
    """One line with a record that has this value at the end of the path."""
    made: Any = deepcopy(RECORD)
    inner = made
    for key in path[:-1]:
        inner = inner.setdefault(key, {})
    inner[path[-1]] = value
    return json.dumps(made) + "\n"


@contextmanager
def memory_below(mib: float) -> Iterator[None]:
    """Fails where the block takes more memory of Python than this at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
    assert peak < mib


@pytest.mark.parametrize("command", ["check", "estimate"])
def test_of_problems_that_are_alike_twenty_are_told(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for = []
    monkeypatch.setattr(convert, "did_you_mean", lambda word, known: looked_for.append(word))
    keys = "".join(f"    key{n}: 1\n" for n in range(5000))
    Path("x.yaml").write_text(f"model: llama-2-7b\ngpu: t4\nsteps: 1\ntrain:\n{keys}")
    ran = cli(command, "x.yaml")
    assert ran.code == 2
    told = [line for line in ran.err.splitlines() if line.startswith("x.yaml:")]
    assert told[0] == "x.yaml:3:1: unknown key 'steps'"
    assert told[1:21] == [f"x.yaml:{n + 5}:5: unknown key 'key{n}' in 'train'" for n in range(20)]
    assert told[21:] == ["x.yaml:25:5: and 4,980 more such problems"]
    assert len(looked_for) < 100
    if command == "check":
        assert "unknown key 'steps' (and 5,000 more problems)" in ran.out


def test_a_large_file_that_is_no_scenario_is_told_so_at_once(cli: Cli) -> None:
    paths = "".join(f"  /a/{n}: {{get: {{operationId: get{n}, tags: [a, b]}}}}\n" for n in range(60_000))
    Path("jobs").mkdir()
    Path("jobs/api.yaml").write_text(f"openapi: 3.0.0\npaths:\n{paths}")
    Path("jobs/job.yaml").write_text(f"model: llama-2-7b\ntrain:\n{paths}")
    with memory_below(100):
        alone, folder = cli("estimate", "jobs/api.yaml"), cli("check", "jobs")
    large = "the file is larger than 1 MB\n  hint: no scenario and no configuration is so large\n"
    assert (alone.code, alone.err) == (2, f"jobs/api.yaml: {large}")
    assert (folder.code, folder.err) == (
        2, f"note: jobs/api.yaml: skipped: not a scenario (no 'model')\njobs/job.yaml: {large}",
    )  # fmt: skip
    assert "- jobs/api.yaml: not a scenario (no 'model')" in folder.out


def test_bytes_that_are_no_text_are_no_saved_result(cli: Cli) -> None:
    Path("x.json").write_bytes(b'{"schema_version":1,"tool_version":"\xea("}')
    ran = cli("render", "x.json")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("x.json: not a saved result: it is not UTF-8 text\n")


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_depth_without_end_is_no_record(cli: Cli, command: str) -> None:
    Path("x.jsonl").write_text('{"id":"a","job":"sft","source":' + "[" * 100_000 + "]" * 100_000 + "}\n")
    ran = cli(command, "x.jsonl")
    assert (ran.code, ran.out, ran.err) == (2, "", "x.jsonl:1: nested too deeply\n")


@pytest.mark.parametrize("command", ["validate", "calibrate"])
@pytest.mark.parametrize(("name", "text"), [("x.yaml", "[]\n"), ("x.jsonl", "")])
def test_files_without_records_are_bad_input(cli: Cli, command: str, name: str, text: str) -> None:
    Path(name).write_text(text)
    ran = cli(command, name)
    assert (ran.code, ran.out, ran.err) == (2, "", f"{name}: no measurement records\n")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("measured", "step_time_s"), -1.0),
        (("measured", "step_time_s"), 1e-320),
        (("measured", "samples_per_s"), 0),
        (("measured", "peak_memory_gib"), 1e300),
        (("shape", "ffn"), 1e18),
        (("shape", "layers"), 10**9),
        (("batch", "global"), 10**9),
        (("gpus",), 10**7),
    ],
)
def test_figures_that_nothing_measures_are_refused(cli: Cli, path: tuple[str, ...], value: object) -> None:
    Path("x.jsonl").write_text(record(path, value))
    ran = cli("validate", "x.jsonl", "-f", "csv")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"x.jsonl:1: '{path[-1]}' must be ")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("measured", "step_time_s"), 1e12),
        (("measured", "peak_memory_gib"), 1e9),
        (("shape", "hidden"), 10**7),
        (("shape", "layers"), 10**4),
        (("batch", "global"), 10**6),
        (("seq_len",), 10**9),
        (("gpus",), 10**6),
    ],
)
def test_the_largest_figures_are_predicted_in_numbers(cli: Cli, path: tuple[str, ...], value: object) -> None:
    Path("x.jsonl").write_text(record(path, value))
    ran = cli("validate", "x.jsonl", "-f", "csv")
    assert (ran.code, ran.err) == (0, "")
    first = next(csv.DictReader(io.StringIO(ran.out)))
    assert all(0 < float(first[name]) < float("inf") for name in ("measured", "predicted", "ratio", "low", "high"))


def test_a_figure_in_the_wrong_place_is_told_where_it_belongs(cli: Cli) -> None:
    Path("x.jsonl").write_text(record(("step_time_s",), 3).replace('"measured": {"step_time_s": 1.0}, ', ""))
    ran = cli("calibrate", "x.jsonl")
    assert ran.code == 2
    assert "the unknown key 'step_time_s' of 1 record is not used\n  hint: 'step_time_s' belongs under meas" in ran.err
    assert "a record needs a time or a rate under measured: step_time_s, samples_per_s" in ran.err


@pytest.mark.parametrize("format_", ["json", "table", "csv", "junit", "github", "markdown", "html"])
def test_a_file_name_that_is_no_text_is_shown_as_well_as_can_be(cli: Cli, estimator: Estimator, format_: str) -> None:
    Path(NO_TEXT).write_text("model: m\njob: sft\n")
    ran = cli("check", NO_TEXT, "-f", format_, "-o", f"{format_}:{OUT}")
    assert (ran.code, ran.err) == (1, "")
    written = Path(OUT).read_text(encoding="utf-8")
    assert "bad" in written
    if format_ == "json":
        assert json.loads(written)["scenarios"][0]["file"] == "bad\ufffd.yaml"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"gpus": 10**5000}, "'gpus' must be at most 1000000, not a number beyond measure"),
        ({"gpus": -(10**5000)}, "'gpus' must be at least 1, not a number beyond measure"),
        ({"limits": {"max_hours": 10**400}}, "'max_hours' must be a number below 1e300"),
        ({"model": 10**5000}, "'model' must be text or a group of keys, not a number beyond measure"),
    ],
)
def test_numbers_beyond_measure_are_refused_in_words(keys: dict[str, Any], says: str) -> None:
    with pytest.raises(xe_sizer.InputError, match=says):
        xe_sizer.estimate(**{"model": "llama-2-7b", "gpu": "h100-sxm-80gb", **keys})


def test_a_service_names_no_more_gpus_than_it_can_be_asked_about(cli: Cli) -> None:
    service = ("serve", "--model", "llama-2-7b", "--gpu", "h100-sxm-80gb", "--request-rate", "1")
    ran = cli(*service, "--spare-replicas", "1001")
    assert (ran.code, ran.out) == (2, "")
    assert "'spare_replicas' must be at most 1000, not 1001" in ran.err
    gpus = json.loads(cli(*service, "--spare-replicas", "1000", "-f", "json").out)["gpus"]["count"]
    assert gpus >= 1001
    assert cli(*service, "--spare-replicas", "1000", "--gpus", gpus).code == 0
