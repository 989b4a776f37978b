"""Latency over load: what the curve says at a load is what the service answers when that load is asked."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import xe_sizer
from xe_sizer.result.serving import ServeResult

MODEL = {"model": "llama-3.1-70b", "server": "dell-xe9680-h100", "gpus": 8, "layout": {"tp": 4, "pp": 1}}
LENGTHS = {"input_tokens": 1000, "output_tokens": 300}


def served(**load: Any) -> ServeResult:
    return xe_sizer.serve(**MODEL, details=True, serve={**LENGTHS, **load})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "asked", "more"),
    [("request_rate", 10.0, {}), ("users", 300, {"think_time_s": 30.0}), ("concurrency", 200, {})],
)
def test_a_point_is_what_the_service_answers_at_its_load(key: str, asked: float, more: dict[str, float]) -> None:
    curve = served(**{key: asked}, **more).load_curve
    point = curve[4]
    load = round(point.load) if key != "request_rate" else point.load
    answer = served(**{key: load}, **more)
    near = pytest.approx(1.0, rel=1e-9 if key == "request_rate" else 0.02)  # requests in flight and users are whole
    assert answer.replicas.count == 2
    assert point.requests_per_s / answer.throughput.requests_per_s == near
    assert point.ttft_s / (answer.latency.ttft_s.expected or 0) == near
    assert point.tpot_s / (answer.latency.tpot_s.expected or 0) == near
    assert point.request_s / (answer.latency.request_s.expected or 0) == near
    at = next((at for at in answer.latency.percentiles if at.percentile == 95.0), None)
    assert (point.judged is None) == (at is None) == (key == "concurrency")
    if point.judged and at:
        assert (point.judged.ttft_s or 0) / (at.ttft_s or 0) == near


@pytest.mark.parametrize("load", [{"request_rate": 10.0}, {"users": 300, "think_time_s": 30.0}, {"concurrency": 200}])
def test_more_load_is_never_faster_for_a_token(load: dict[str, float]) -> None:
    curve = served(**load).load_curve
    assert len(curve) >= 10
    assert [point.load for point in curve] == sorted(point.load for point in curve)
    assert all(one.tpot_s <= next_.tpot_s * (1 + 1e-9) for one, next_ in pairwise(curve))


def test_a_batch_has_no_curve() -> None:
    assert served(batch=8).load_curve == ()
