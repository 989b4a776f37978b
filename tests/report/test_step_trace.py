"""The trace of a step: spans of every stage add up to it, passes stand in their order, memory reaches the peak."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from tests.cases import REGISTRY
from xe_sizer.report.trace import step_trace
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate

STAGES = {
    "model": "llama-2-70b", "server": "dell-xe9680-h100", "gpus": 32, "layout.tp": 8, "layout.pp": 4,
    "train.global_batch": 16, "train.micro_batch": 1, "train.seq_len": 4096, "train.steps": 5,
}  # fmt: skip
CASES: list[dict[str, object]] = [
    {}, {"layout.vpp": 2}, {"layout.schedule": "gpipe"},
    {"train.global_batch": 14},
    {"layout.pp": 1, "layout.tp": 1, "layout.zero": 3, "train.global_batch": 64},
    {"stack": "primus", "layout.schedule": "zb-h1", "job": "pretrain"},
    {"job": "grpo", "model": "llama-3.1-8b", "layout.pp": 1, "layout.tp": 2, "gpus": 8, "train.global_batch": None,
     "train.micro_batch": None, "train.seq_len": None},
]  # fmt: skip


def sized(**changes: object) -> Result:
    given = {key: value for key, value in (STAGES | changes).items() if value is not None}
    return estimate(read_scenario(None, given, {}), REGISTRY, details=False)


def spans(result: Result) -> list[dict[str, Any]]:
    return [event for event in json.loads(step_trace(result))["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_spans_of_every_stage_add_up_to_the_step_and_memory_reaches_its_peak(changes: dict[str, object]) -> None:
    result = sized(**changes)
    events = json.loads(step_trace(result))["traceEvents"]
    sums: dict[int, float] = defaultdict(float)
    rows: dict[tuple[int, int], float] = defaultdict(float)
    for event in sorted((one for one in events if one["ph"] == "X"), key=lambda one: one["ts"]):
        sums[event["pid"]] += event["dur"]
        assert event["ts"] >= rows[event["pid"], event["tid"]] * (1 - 1e-9)
        rows[event["pid"], event["tid"]] = event["ts"] + event["dur"]
    stages = 1 if result.iteration else result.layout.pp
    assert sums == pytest.approx(dict.fromkeys(range(stages), 1e6 * result.time.step_s.expected), rel=1e-9)
    assert max(event["args"]["bytes"] for event in events if event["ph"] == "C") == result.memory.peak_bytes


@pytest.mark.parametrize("changes", CASES[:4], ids=str)
def test_a_pass_begins_where_the_one_that_it_reads_has_ended(changes: dict[str, object]) -> None:
    """Forwards go down the stages, backwards up."""
    begins: dict[tuple[str, int, int], float] = {}
    ends: dict[tuple[str, int, int], float] = {}
    for event in spans(sized(**changes)):
        if event["name"] in ("forward", "backward"):
            key = event["name"], event["pid"], event["args"]["micro-batch"]
            begins.setdefault(key, event["ts"])
            ends.setdefault(key, event["ts"] + event["dur"])
    for (name, stage, micro_batch), start in begins.items():
        before = name, stage + (1 if name == "backward" else -1), micro_batch
        assert start >= ends.get(before, 0.0) * (1 - 1e-9)


def test_the_bubble_of_a_plain_pipeline_is_what_its_formula_says() -> None:
    """Each stage waits (pp - 1) (F + B)."""
    result = sized()
    waits = sum(event["dur"] for event in spans(result) if event["pid"] == 2 and event["name"] == "waiting") / 1e6
    seconds = {part.name: part.seconds for part in result.time.components}
    assert waits == pytest.approx(seconds["pipeline bubble"] + seconds["pipeline transfers"], rel=0.05)


def test_parts_of_one_gpu_are_those_of_the_report() -> None:
    result = sized(**CASES[4])
    found: dict[str, float] = defaultdict(float)
    for event in spans(result):
        found[event["name"]] += event["dur"] / 1e6
    assert found == pytest.approx({part.name: part.seconds for part in result.time.components}, rel=1e-9)
