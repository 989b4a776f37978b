"""Lengths that are drawn for a test, and the fleet that is taken: what holds of any draw and of any columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import asked

from xe_sizer.graph.model import Experts
from xe_sizer.serving import search, simulation
from xe_sizer.serving.memory import HIDDEN_TENSORS, _widest
from xe_sizer.serving.simulation import even_spread


@pytest.mark.parametrize(("mean", "longest"), [(100.0, 150.0), (30.0, 50.0), (1000.0, 1900.0)])
def test_even_lengths_lie_as_far_on_either_side_of_their_mean(mean: float, longest: float) -> None:
    """Between 2 mean - longest and longest, with their mean and the spread of even chances, (b - a) / sqrt(12)."""
    spread = even_spread(mean, longest)
    assert spread == pytest.approx((longest - mean) / mean / np.sqrt(3))
    drawn = simulation._lengths(np.random.default_rng(1), mean, spread, longest, 20_000)
    assert np.mean(drawn) == pytest.approx(mean, rel=0.005)
    assert np.std(drawn) / mean == pytest.approx(spread, rel=0.06)
    assert drawn.max() <= longest
    assert drawn.min() >= max(np.floor(2 * mean - longest), 1)
    assert np.all(drawn == np.rint(drawn))


@pytest.mark.parametrize("longest", [1e9, 400.0, 120.0])
def test_log_normal_lengths_keep_their_mean_behind_the_cut(longest: float) -> None:
    drawn = simulation._lengths(np.random.default_rng(2), 100.0, 0.8, longest, 20_000)
    assert np.mean(drawn) == pytest.approx(100.0, rel=0.005)
    assert drawn.max() <= longest
    if longest == 1e9:
        assert np.std(drawn) / 100 == pytest.approx(0.8, rel=0.05)
        assert np.median(drawn) == pytest.approx(100 / np.sqrt(1 + 0.8**2), rel=0.03)
    else:
        assert np.mean(drawn == longest) > 0.005


def test_lengths_alike_are_at_least_a_token() -> None:
    draw = np.random.default_rng(3)
    assert simulation._lengths(draw, 100.0, 0.0, 1e9, 3).tolist() == [100] * 3
    assert simulation._lengths(draw, 0.2, 0.0, 1e9, 3).tolist() == [1] * 3
    assert simulation._lengths(draw, 100.0, 0.5, 100.0, 2).tolist() == [100] * 2
    assert simulation._lengths(draw, 1.2, 1.5, 1e9, 5000).min() == 1


def test_the_widest_tensors_of_a_layer() -> None:
    """Three hidden ones, and of gate, up and product, of experts' rows, or of queries, keys, values and output."""
    model = asked().job.model  # Llama 3.1 8B: hidden 4,096, MLP 14,336, 32 and 8 heads of 128
    tokens, two = np.array([10.0]), np.array([2.0])
    assert HIDDEN_TENSORS == 3
    assert _widest(model, two, tokens).tolist() == [10 * (3 * 4096 + 3 * 14_336 / 2)]
    plain = replace(model, activation="gelu")
    assert _widest(plain, two, tokens).tolist() == [10 * (3 * 4096 + 2 * 14_336 / 2)]
    narrow = replace(model, ffn=100)
    assert _widest(narrow, two, tokens).tolist() == [10 * (3 * 4096 + (2 * 32 + 2 * 8) * 128 / 2)]
    mixture = replace(narrow, experts=Experts(count=8, per_token=4, ffn=5000))
    assert _widest(mixture, two, tokens).tolist() == [10 * (3 * 4096 + 4 * (3 * 5000 / 2 + 4096))]
    ungated = replace(mixture, activation="gelu")
    assert _widest(ungated, two, tokens).tolist() == [10 * (3 * 4096 + 4 * (2 * 5000 / 2 + 4096))]


# Which fleet is taken, of columns that say all about each.


def fleet(**columns: list[float]) -> Any:
    """Two fleets that are alike but for the given columns."""
    alike = {
        "fitting": [True, True], "need": [1.0, 1.0], "overloaded": [False, False], "size": [8, 8], "gpus": [8.0, 8.0],
        "taken": [5.0, 5.0], "ttft": [1.0, 1.0], "tpot": [0.02, 0.02], "request": [4.0, 4.0],
    }  # fmt: skip
    return SimpleNamespace(columns=tuple(np.array(column) for column in (alike | columns).values()))


def taken(one: Any, load: str | None = "concurrency", **changes: object) -> int:
    flags = {} if load is None else {f"serve__{load}": 4}
    resolved = asked(server="dell-xe9680-h100", **flags, limits__max_ttft_s=2.0, limits__max_tpot_s=0.1)
    return search.choose_fleet(replace(resolved, **changes), [one])


def test_the_fleet_that_is_taken() -> None:
    """Fewest GPUs, then one server, then most requests, then the soonest tokens; the limits come before all."""
    assert taken(fleet(gpus=[16.0, 8.0])) == 1
    assert taken(fleet(gpus=[16.0, 8.0], ttft=[1.0, 9.0])) == 0
    assert taken(fleet(gpus=[16.0, 8.0], overloaded=[False, True])) == 0
    assert taken(fleet(size=[16, 8], taken=[9.0, 5.0])) == 1
    assert taken(fleet(size=[16, 8], taken=[9.0, 5.0]), load=None, gpus=16) == 0  # no load: servers do not matter
    assert taken(fleet(taken=[5.0, 9.0])) == 1
    assert taken(fleet(tpot=[0.03, 0.02])) == 1
    assert taken(fleet(gpus=[16.0, 8.0], taken=[9.0, 5.0]), gpus=16) == 0  # GPUs that are there are used
    assert taken(fleet(request=[2.0, 4.0], gpus=[16.0, 8.0]), objective="latency") == 0
    assert taken(fleet(request=[4.0, 4.1], gpus=[16.0, 8.0]), objective="latency") == 1
    assert taken(fleet(taken=[9.0, 5.0], gpus=[12.0, 8.0]), load=None, objective="throughput") == 0
    assert taken(fleet(fitting=[False, False], need=[2.0, 1.0])) == 1
