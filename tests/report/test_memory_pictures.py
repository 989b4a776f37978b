"""Memory of every stage, over a step and by phase, and an iteration by pools: pictures against the result."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.cases import REGISTRY
from xe_sizer.report.answers import reporter
from xe_sizer.report.document import Document, Options, Picture, Table
from xe_sizer.report.picture import Rows
from xe_sizer.report.registry import render
from xe_sizer.result.training import Result
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate

PIPELINE: dict[str, object] = {
    "model": "llama-2-70b", "server": "dell-xe9680-h100", "gpus": 32, "layout.tp": 8, "layout.pp": 4, "layout.vpp": 1,
    "stack": "megatron-lm", "job": "pretrain", "train.global_batch": 16, "train.micro_batch": 1, "train.seq_len": 4096,
    "train.steps": 5,
}  # fmt: skip
GRPO: dict[str, object] = {"model": "llama-3.1-8b", "server": "dell-xe9680-h100", "gpus": 8, "job": "grpo"}
POOLS = GRPO | {"rollout.gpus": 4}
BESIDE = POOLS | {"rollout.asynchronous": True}


def sized(keys: dict[str, object]) -> Result:
    return estimate(read_scenario(None, keys, {}), REGISTRY)


def document(result: Result) -> Document:
    return reporter("estimate").document(result, Options())


def lanes(result: Result, title: str) -> tuple[Picture, Rows]:
    (picture,) = [each for each in document(result).pictures if each.title.startswith(title)]
    assert isinstance(picture.drawing, Rows)
    return picture, picture.drawing


def test_a_pipeline_has_a_row_and_a_bar_for_every_stage() -> None:
    """The bar ends at the peak of its stage, its pieces are what the stage holds."""
    result = sized(PIPELINE)
    picture, drawing = lanes(result, "Memory of every pipeline stage")
    assert [lane.pieces[-1].end for lane in drawing.rows] == [one.peak_bytes for one in result.memory.stages]
    for lane, stage in zip(drawing.rows, result.memory.stages, strict=True):
        assert [round(piece.end - piece.start) for piece in lane.pieces] == [held.bytes for held in stage.holds]
        assert [drawing.kinds[piece.kind] for piece in lane.pieces] == [held.name for held in stage.holds]
    assert drawing.rows[0].name == "stage 1: 20 layers, 4 in flight"
    assert drawing.marks[0].value == result.memory.usable_bytes
    assert drawing.rows[0].text in picture.says
    (table,) = [each for each in document(result).blocks if isinstance(each, Table) and "every pipeline" in each.title]
    assert [row[:3] for row in table.rows] == [("1", "20", "4"), ("2", "20", "3"), ("3", "20", "2"), ("4", "20", "1")]
    for row in table.rows:
        assert sum(map(float, row[3:6])) == pytest.approx(float(row[6]), abs=0.11)
    assert max(float(row[6]) for row in table.rows) == pytest.approx(result.memory.peak_bytes / 2**30, abs=0.051)
    assert "Memory of every pipeline stage" in render(result, "table", Options())


def test_a_step_has_a_bar_for_each_moment() -> None:
    result = sized(PIPELINE)
    _, drawing = lanes(result, "Memory over a step")
    assert [lane.name for lane in drawing.rows] == [one.name for one in result.memory.moments]
    assert [lane.pieces[-1].end for lane in drawing.rows] == [one.bytes for one in result.memory.moments]
    assert max(lane.pieces[-1].end for lane in drawing.rows) == result.memory.peak_bytes


def test_what_has_no_pipeline_has_no_stages_and_an_older_answer_no_bars() -> None:
    result = sized(PIPELINE | {"layout.pp": 1, "layout.zero": 1, "train.global_batch": 32})
    assert not result.memory.stages
    assert not [each for each in document(result).pictures if "stage" in each.title]
    older = replace(
        result, memory=replace(result.memory, moments=tuple(replace(one, holds=()) for one in result.memory.moments))
    )
    assert not [each for each in document(older).pictures if each.title == "Memory over a step"]


@pytest.mark.parametrize("keys", [GRPO, POOLS, BESIDE], ids=["in turn", "pools", "beside"])
def test_an_iteration_has_memory_by_phase_and_a_lane_for_each_pool(keys: dict[str, object]) -> None:
    result = sized(keys)
    _, memory = lanes(result, "Memory by phase")
    assert [lane.pieces[-1].end for lane in memory.rows] == [phase.peak_bytes for phase in result.phases]
    assert "KV cache" in memory.kinds
    _, gantt = lanes(result, "One iteration")
    assert len(gantt.rows) == len(result.pools)
    seconds = {phase.name: phase.seconds for phase in result.phases}
    step_s = result.time.step_s.expected
    for lane, pool in zip(gantt.rows, result.pools, strict=True):
        work = {piece.name: piece for piece in lane.pieces}
        assert {name: piece.end - piece.start for name, piece in work.items()} == pytest.approx(
            {name: length for name, length in seconds.items() if does(pool.replicas, bool(pool.layout), name)}
        )
        assert work["weight synchronisation"].end == pytest.approx(step_s)
        if pool.layout:
            first = 0.0 if keys is BESIDE else seconds["rollout"]
            assert work["log-probabilities"].start == pytest.approx(first)
            assert work["training"].start == pytest.approx(first + seconds["log-probabilities"])
        busy = sum(piece.end - piece.start for piece in lane.pieces)
        assert busy == pytest.approx((1 - pool.idle_share) * step_s)


def does(replicas: int, trains: bool, phase: str) -> bool:
    """Whether a pool works in a phase."""
    return phase == "weight synchronisation" or (bool(replicas) if phase == "rollout" else trains)
