"""The best layout on every number of GPUs, jobs that are sized together, and whose batch follows the GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.training import search
from xe_sizer.training.estimate import TrainingEstimate
from xe_sizer.training.resolved import ResolvedTraining
from xe_sizer.training.search import Candidates, candidates, onward, size, size_all, size_each
from xe_sizer.training.search_space import legal_layouts

LLAMA = {"model": "llama-3.2-1b", "job": "sft", "stack": "deepspeed", "train.seq_len": 2048}


def resolved(**flags: object) -> ResolvedTraining:
    return ask({**LLAMA, **{key.replace("__", "."): value for key, value in flags.items()}})


def test_a_plan_has_the_best_of_each_number_of_gpus() -> None:
    """Each as an estimate on so many takes it; all layouts are counted."""
    asked = resolved(train__global_batch=64, limits__max_gpus=32, layout__offload="none")
    told: list[int] = []
    found = candidates(asked, told.append, every_way=False)
    assert found.complete
    assert [one.gpus for one in found.sized] == sorted(found.tried)
    for one in found.sized:
        alone = size(resolved(train__global_batch=64, gpus=one.gpus, layout__offload="none"))
        assert one.step_s <= alone.step_s * 1.1
        assert one.choice.ledger.peak_bytes[0] <= one.usable_bytes
    legal = sum(len(legal_layouts(asked.rules, (count,))) for count in found.tried)
    assert found.considered == legal == told[-1]
    assert 0 < found.feasible <= found.considered
    skipped = set(asked.planned_gpus) - set(found.tried)
    assert skipped == {count for count in asked.planned_gpus if not len(legal_layouts(asked.rules, (count,)))}


def test_an_assumed_batch_is_fitted_where_it_goes_over_no_layout() -> None:
    """Three servers hold 70B in full, over which 128 sequences are not shared out: 192 are, and it is said."""
    asked = ask({
        "model": "llama-3.1-70b", "job": "sft", "stack": "deepspeed", "server": "dell-xe9680-h100",
        "train.seq_len": 4096, "layout.offload": "none", "limits.max_gpus": 48,
    })  # fmt: skip
    assert asked.at_batch is not None
    found = candidates(asked, every_way=True)
    by_gpus = {one.gpus: one for one in found.sized}
    assert min(by_gpus) == 24
    assert by_gpus[24].resolved.job.global_batch == 192
    assert by_gpus[32].resolved.job.global_batch == 128
    plain = search._candidates_on(asked, asked.planned_gpus, None, True)
    assert 24 not in plain.tried
    assert set(found.tried) >= {*plain.tried, 24}
    assert found.considered > plain.considered
    assert found.feasible > plain.feasible


def test_a_number_may_be_the_fewest_between_those_that_do_and_those_that_do_not() -> None:
    """8 and 16 do not, 32 does: 24 may, 4 and 40 do not matter; where none does, all above the largest tried may."""
    asked = resolved(train__global_batch=64, gpus=8)
    one = size(asked)

    def may(count: int, doing: set[int]) -> bool:
        made = tuple(replace(one, gpus=gpus) for gpus in doing)
        found = Candidates(asked, made, 0, 0, True, (8, 16, 32))
        return search._may_be_fewest(found, count, lambda _: True)

    assert [may(count, {32}) for count in (4, 16, 24, 32, 40)] == [False, False, True, False, False]
    assert [may(count, set()) for count in (24, 32, 40)] == [False, False, True]


def test_reports_of_several_searches_are_added_up() -> None:
    told: list[int] = []
    further = onward(told.append, 100)
    assert further is not None
    further(5)
    assert told == [105]
    assert onward(None, 100) is None


def test_an_interrupted_search_has_no_whole_answer() -> None:
    found = Candidates(resolved(gpus=8), (), 5, 0, False)
    with pytest.raises(KeyboardInterrupt):
        found.of_a_whole_search()
    assert replace(found, complete=True).of_a_whole_search() == ()


def same(one: TrainingEstimate | InputError | None, other: TrainingEstimate) -> bool:
    assert isinstance(one, TrainingEstimate)
    return (one.gpus, one.step_s, one.peak_bytes) == (other.gpus, pytest.approx(other.step_s), other.peak_bytes)


def test_jobs_that_are_alike_are_sized_as_one_array_and_as_each_alone() -> None:
    """Two numbers of GPUs of one job, another job, an open number, and a layout that is none."""
    fixed = {"train__global_batch": 64, "layout__offload": "none"}
    asked = [
        resolved(**fixed, gpus=8), resolved(**fixed, gpus=4), resolved(**fixed, gpus=8, train__seq_len=1024),
        resolved(**fixed), resolved(**fixed, gpus=7),
    ]  # fmt: skip
    found = size_all(asked)
    assert len(found) == 5
    for one, alone in zip(found[:4], asked[:4], strict=True):
        assert same(one, size(alone))
    assert isinstance(found[4], InputError)
    assert "no legal layout on 7 GPUs" in str(found[4])
    assert len(size_all([asked[4]])) == 1
    first, none = size_each([asked[0], asked[4]])
    assert same(first, size(asked[0]))
    assert none is None


def test_many_layouts_are_chosen_from_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = resolved(train__global_batch=64, gpus=16)
    layouts = legal_layouts(replace(asked.rules, every_way=True), (16,))
    whole = search.choose(asked.job, layouts, 0.0)
    monkeypatch.setattr(search, "CHUNK", len(layouts) // 3)
    parts = search.choose(asked.job, layouts, 0.0)
    assert (parts.considered, parts.feasible, parts.rank) == (whole.considered, whole.feasible, whole.rank)
    assert parts.layouts.tp.tolist() == whole.layouts.tp.tolist()
    assert float(parts.ledger.peak_bytes[0]) == pytest.approx(float(whole.ledger.peak_bytes[0]))
    huge = ask({**LLAMA, "model": "llama-3.1-70b", "train.global_batch": 64, "gpus": 1, "layout.offload": "none"})
    one = legal_layouts(replace(huge.rules, every_way=True), (1,))
    monkeypatch.setattr(search, "CHUNK", max(len(one) // 2, 1))
    nearest = search.choose(huge.job, one, 0.0)
    every = search._tried(huge.job, one, 0.0)
    assert nearest.feasible == 0
    best = every[0] == every[0].min()
    assert float(nearest.ledger.peak_bytes[0]) == pytest.approx(float(np.min(every[1][best])))


def test_numbers_of_gpus_that_keep_a_limit() -> None:
    """An open number is the first, ascending, on which a layout fits and is in time."""
    fixed = {"train__global_batch": 64, "train__steps": 1000, "layout__offload": "none", "limits__max_gpus": 64}
    few = size(resolved(**fixed))
    limit = few.hours * 0.3
    found = size(resolved(**fixed, limits__max_hours=limit))
    assert found.ok
    assert found.gpus > few.gpus
    smaller = [count for count in found.minimum_gpus.counts if few.gpus <= count < found.gpus]
    missed = [size(resolved(**fixed, limits__max_hours=limit, gpus=count)) for count in smaller if 64 % count == 0]
    assert not any(one.ok for one in missed)
    none = size(resolved(**fixed, limits__max_hours=1e-6))
    assert none.gpus == few.gpus
    with pytest.raises(InputError, match="no legal layout on 7 GPUs for a global batch of 64"):
        size(resolved(train__global_batch=64, gpus=7))
