"""The trace of a step: spans of every stage add up to it, passes stand in their order, memory reaches the peak."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.cases import REGISTRY
from xe_sizer.report.trace import step_trace
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate

SCHEMA = Path(__file__).parent / "chrome_trace.schema.json"
STAGES = {
    "model": "llama-2-70b", "server": "dell-xe9680-h100", "gpus": 32, "layout.tp": 8, "layout.pp": 4,
    "train.global_batch": 16, "train.micro_batch": 1, "train.seq_len": 4096, "train.steps": 5,
}  # fmt: skip
CASES: list[dict[str, object]] = [
    {}, {"layout.vpp": 2}, {"layout.schedule": "gpipe"},
    {"train.global_batch": 14},
    {"layout.pp": 1, "layout.tp": 1, "layout.zero": 3, "train.global_batch": 64},
    {"stack": "primus", "layout.schedule": "zb-h1", "job": "pretrain"},
    {"stack": "megatron-lm", "job": "pretrain", "model": "llama-3.1-405b", "gpus": 128, "layout.tp": 8, "layout.pp": 16,
     "layout.recompute": "full", "layout.uneven_stages": True, "train.global_batch": 32},
]  # fmt: skip
GRPO: dict[str, object] = {
    "job": "grpo", "model": "llama-3.1-8b", "layout.pp": 1, "layout.tp": 2, "gpus": 8, "train.global_batch": None,
    "train.micro_batch": None, "train.seq_len": None,
}  # fmt: skip
ITERATIONS: list[dict[str, object]] = [
    GRPO, GRPO | {"rollout.gpus": 4}, GRPO | {"rollout.gpus": 4, "rollout.asynchronous": True},
    GRPO | {"job": "ppo", "stack": "openrlhf", "layout.tp": 1},
]  # fmt: skip


def sized(**changes: object) -> Result:
    given = {key: value for key, value in (STAGES | changes).items() if value is not None}
    return estimate(read_scenario(None, given, {}), REGISTRY, details=False)


def spans(result: Result) -> list[dict[str, Any]]:
    return [event for event in json.loads(step_trace(result))["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("changes", [*CASES, *ITERATIONS], ids=str)
def test_spans_of_every_stage_add_up_to_the_step_and_memory_reaches_its_peak(changes: dict[str, object]) -> None:
    result = sized(**changes)
    events = json.loads(step_trace(result))["traceEvents"]
    sums: dict[int, float] = defaultdict(float)
    rows: dict[tuple[int, int], float] = defaultdict(float)
    for event in sorted((one for one in events if one["ph"] == "X"), key=lambda one: one["ts"]):
        sums[event["pid"]] += event["dur"]
        assert event["ts"] >= rows[event["pid"], event["tid"]] * (1 - 1e-9)
        rows[event["pid"], event["tid"]] = event["ts"] + event["dur"]
    rows_of = len(result.pools) if result.iteration else result.layout.pp
    processes = [event["pid"] for event in events if event["name"] == "process_name"]
    assert len(set(processes)) == rows_of
    assert sums == pytest.approx(dict.fromkeys(processes, 1e6 * result.time.step_s.expected), abs=2e-3)
    assert max(event["args"]["bytes"] for event in events if event["ph"] == "C") == result.memory.peak_bytes


@pytest.mark.parametrize("changes", CASES[:4], ids=str)
def test_a_pass_begins_where_the_one_that_it_reads_has_ended(changes: dict[str, object]) -> None:
    """Forwards go down the stages, backwards up."""
    begins: dict[tuple[str, int, int], float] = {}
    ends: dict[tuple[str, int, int], float] = {}
    for event in spans(sized(**changes)):
        if event["name"] in ("forward", "backward"):
            key = event["name"], event["pid"] // 10, event["args"]["micro-batch"]
            begins.setdefault(key, event["ts"])
            ends.setdefault(key, event["ts"] + event["dur"])
    for (name, stage, micro_batch), start in begins.items():
        before = name, stage + (1 if name == "backward" else -1), micro_batch
        assert start >= ends.get(before, 0.0) * (1 - 1e-9)


def test_the_bubble_of_a_plain_pipeline_is_what_its_formula_says() -> None:
    """Each stage waits (pp - 1) (F + B)."""
    result = sized()
    waits = sum(event["dur"] for event in spans(result) if event["pid"] == 30 and event["name"] == "waiting") / 1e6
    seconds = {part.name: part.seconds for part in result.time.components}
    assert waits == pytest.approx(seconds["pipeline bubble"] + seconds["pipeline transfers"], rel=0.05)


def test_parts_of_one_gpu_are_those_of_the_report() -> None:
    result = sized(**CASES[4])
    found: dict[str, float] = defaultdict(float)
    for event in spans(result):
        found[event["name"]] += event["dur"] / 1e6
    assert found == pytest.approx({part.name: part.seconds for part in result.time.components}, abs=1e-7)


@pytest.mark.parametrize("changes", ITERATIONS, ids=str)
def test_who_trains_waits_for_the_answers_or_works_on_older_ones(changes: dict[str, object]) -> None:
    """Phases of a pool add up to the iteration with what it waits; both synchronise the weights at its end."""
    result = sized(**changes)
    seconds = {phase.name: phase.seconds for phase in result.phases}
    for place, pool in enumerate(result.pools):
        mine = [event for event in spans(result) if event["pid"] == 10 * (place + 1)]
        waits = sum(event["dur"] for event in mine if event["name"] == "waiting") / 1e6
        assert waits == pytest.approx(pool.idle_share * result.time.step_s.expected, abs=1e-6)
        synchronises = next(event for event in mine if event["name"] == "weight synchronisation")
        assert synchronises["ts"] + synchronises["dur"] == pytest.approx(1e6 * result.time.step_s.expected, abs=2e-3)
        first = next((event["ts"] / 1e6 for event in mine if event["name"].startswith("training of")), None)
        beside = bool(result.iteration and result.iteration.asynchronous)
        before = 0.0 if beside else seconds["rollout"]
        before += seconds["log-probabilities"] + seconds.get("rewards", 0.0)
        assert first == (pytest.approx(before, abs=1e-6) if pool.layout else None)


@pytest.mark.parametrize("changes", [CASES[0], CASES[1], CASES[-1], ITERATIONS[1]], ids=str)
@pytest.mark.parametrize("read", [lambda us: int(us * 1000.0), lambda us: math.floor(us * 1000.0 + 0.5)])
def test_no_span_overlaps_another_in_whole_nanoseconds(
    changes: dict[str, object], read: Callable[[float], int]
) -> None:
    """Perfetto drops one that does: it reads times as whole nanoseconds, cut in older versions, rounded in newer ones.

    Source: json_utils.cc and json_trace_tokenizer.cc (CoerceToTs), slice_tracker.cc
    (slice_drop_overlapping_complete_event).
    """
    result = sized(**changes)
    ends: dict[tuple[int, int], int] = defaultdict(int)
    total: dict[int, int] = defaultdict(int)
    for event in spans(result):
        row, start = (event["pid"], event["tid"]), read(event["ts"])
        assert start >= ends[row]
        ends[row] = start + read(event["dur"])
        total[event["pid"]] += read(event["dur"])
    assert set(total.values()) <= {round(1e9 * result.time.step_s.expected) + more for more in (-1, 0, 1)}


@pytest.mark.parametrize("changes", [*CASES, *ITERATIONS], ids=str)
def test_a_trace_is_of_the_format_and_names_each_row_once(changes: dict[str, object]) -> None:
    """No process has the id of another's row, by which Perfetto names them."""
    trace = json.loads(step_trace(sized(**changes)))
    jsonschema.validate(trace, json.loads(SCHEMA.read_text(encoding="utf-8")))
    events = trace["traceEvents"]
    rows = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    named = [event["tid"] for event in events if event["name"] == "thread_name"]
    processes = [event["pid"] for event in events if event["name"] == "process_name"]
    assert sorted(named) == sorted(row for _, row in rows)
    assert len({*named, *processes}) == len(named) + len(processes)
    assert {process for process, _ in rows} == set(processes)


def test_the_schema_refuses_what_is_no_event() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    for event in ({"ph": "X", "name": "a", "pid": 1, "tid": 2, "ts": 0}, {"ph": "C", "name": "a", "pid": 1, "ts": 0},
                  {"ph": "C", "name": "a", "pid": 1, "ts": 0, "args": {"bytes": "many"}},
                  {"ph": "M", "name": "thread_name", "pid": 1, "args": {"name": "a"}}):  # fmt: skip
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"traceEvents": [event]}, schema)
