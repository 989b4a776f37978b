"""What a benchmark tool prints of a test, worked out by hand from when each request came, began and ended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import served

from xe_sizer.report.answers.serve import document, rows, serve_points, subject
from xe_sizer.report.document import Options, Table
from xe_sizer.result.serving import Benchmark, ServeResult
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.simulation import Outcome
from xe_sizer.serving.summary import build_benchmark, summarise

# Four requests of 100 + 11 tokens: first tokens after 1, 2, 3 and 4 s, and 10 further ones every 0.1, 0.1, 0.2, 0.2 s.
MADE = Outcome(
    arrival_s=np.array([0.0, 0.0, 1.0, 2.0]),
    start_s=np.array([0.0, 1.0, 2.0, 3.0]),
    first_s=np.array([1.0, 2.0, 4.0, 6.0]),
    finish_s=np.array([2.0, 3.0, 6.0, 8.0]),
    inputs=np.full(4, 100.0),
    outputs=np.full(4, 11.0),
    gap_s=np.array([0.1, 0.2]),
    gap_counts=np.array([20.0, 20.0]),
    preempted=1,
)


def with_outcome(test: Outcome, replicas: int = 1, **flags: object) -> ServingEstimate:
    """A service of so many replicas, each of which has seen this."""
    sized = served(
        serve__concurrency=2 * replicas,
        serve__requests=4 * replicas,
        gpus=replicas,
        layout__tp=1,
        layout__pp=1,
        **flags,
    )
    point = replace(sized.point, requests_per_s=len(test.inputs) / test.duration_s)
    return replace(sized, choice=replace(sized.choice, test=test, point=point))


def benchmark(sized: ServingEstimate) -> Benchmark:
    found = build_benchmark(sized)
    assert found is not None
    return found


def test_figures_of_a_test_by_hand() -> None:
    found = benchmark(with_outcome(MADE))
    assert (found.arrivals, found.requests, found.concurrency, found.request_rate) == ("closed-loop", 4, 2, None)
    assert found.duration_s.expected == 8.0
    assert (found.input_tokens, found.output_tokens, found.preemptions) == (400, 44, 1)
    assert found.requests_per_s.expected == 0.5
    assert found.output_tokens_per_s.expected == 5.5
    assert found.total_tokens_per_s.expected == 55.5
    assert found.mean_concurrency == (2 + 3 + 5 + 6) / 8
    assert found.ttft_s.mean.expected == 2.5
    assert (found.ttft_s.median, found.ttft_s.p99) == (2.5, pytest.approx(3.97))
    assert (found.ttft_s.p90, found.ttft_s.p95) == (pytest.approx(3.7), pytest.approx(3.85))
    assert found.tpot_s.mean.expected == pytest.approx(0.15)
    assert found.e2e_latency_s.mean.expected == 4.0
    assert (found.itl_s.mean.expected, found.itl_s.median, found.itl_s.p99) == (pytest.approx(0.15), 0.1, 0.2)


def test_replicas_answer_as_many_requests_each_in_the_same_time() -> None:
    found = benchmark(with_outcome(MADE, replicas=3))
    assert (found.requests, found.concurrency, found.duration_s.expected) == (12, 6, 8.0)
    assert (found.requests_per_s.expected, found.input_tokens) == (pytest.approx(1.5), 1200)
    assert found.mean_concurrency == pytest.approx(3 * 2.0)


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({}, None),
        ({"limits__max_ttft_s": 2.5}, 0.25),
        ({"limits__max_tpot_s": 0.15}, 0.25),
        ({"limits__max_ttft_s": 3.5, "limits__max_tpot_s": 0.3}, 0.375),
        ({"limits__max_ttft_s": 0.5}, 0.0),
    ],
)
def test_goodput_is_what_keeps_the_limits_of_the_user(limits: dict[str, float], good: float | None) -> None:
    found = benchmark(with_outcome(MADE, **limits)).goodput_per_s
    assert found == (None if good is None else pytest.approx(good))


def test_ranges_of_rate_and_duration_are_each_others_inverse() -> None:
    found = benchmark(with_outcome(MADE))
    rate, duration = found.requests_per_s, found.duration_s
    assert rate.low is not None
    assert rate.high is not None
    assert duration.low == pytest.approx(4 / rate.high)
    assert duration.high == pytest.approx(4 / rate.low)
    assert rate.low < 0.5 < rate.high
    assert found.ttft_s.mean.low is not None
    assert found.ttft_s.mean.low < 2.5


def test_what_comes_at_a_rate_is_answered_at_that_rate() -> None:
    """A replica that could take ten times more answers what comes, whether it is faster or slower than expected."""
    found = benchmark(served(serve__request_rate=0.5, serve__requests=50, serve__arrivals="constant", gpus=1))
    assert found.arrivals == "constant"
    assert found.request_rate == 0.5
    rate = found.requests_per_s
    assert rate.expected is not None
    assert rate.low == rate.expected
    assert rate.high == rate.expected == pytest.approx(0.5, rel=0.01)  # 50 requests have 49 gaps
    assert found.duration_s.expected == pytest.approx(98.0 + (found.e2e_latency_s.median), rel=0.01)


@pytest.mark.parametrize(
    ("flags", "arrivals", "says"),
    [
        ({"serve__concurrency": 8, "serve__requests": 24}, "closed-loop", "a test of 24 requests, 8 at a time, of "),
        ({"serve__request_rate": 4, "serve__requests": 24}, "poisson", "a test of 24 requests at 4 requests/s of "),
        ({"serve__requests": 24}, "all-at-once", "a test of 24 requests at once of "),
    ],
)
def test_every_way_to_offer_requests_is_answered(flags: dict[str, object], arrivals: str, says: str) -> None:
    result = summarise(served(**flags))
    assert result.test is not None
    assert (result.test.arrivals, result.test.requests) == (arrivals, 24)
    assert subject(result).startswith(says)
    assert result.throughput.requests_per_s == pytest.approx(result.test.requests_per_s.expected)
    assert result.latency.ttft_s.expected == result.test.ttft_s.mean.expected
    assert result.load_curve == ()


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,input_tokens,output_tokens\n0,100,10\n1,300,10\n4,200,40\n", encoding="utf-8")
    result = summarise(served(serve__trace=str(path), gpus=1))
    assert result.test is not None
    assert (result.test.arrivals, result.test.input_tokens, result.test.output_tokens) == ("trace", 600, 60)
    assert result.test.duration_s.expected is not None
    assert 4.0 < result.test.duration_s.expected < 5.0  # the last of them comes after 4 s
    assert subject(result).startswith("a trace of 3 requests of ")


def test_a_test_is_judged_by_the_limits_of_the_user_at_their_percentile() -> None:
    free = served(serve__concurrency=64, serve__requests=128)
    assert {limit.name: limit.limit for limit in free.limits} == {"max_ttft_s": 10.0, "max_tpot_s": 0.1}
    assert served(serve__requests=128).limits == (), "all at once is a test of throughput"
    test = free.choice.test
    assert test is not None
    at_90, at_99 = (float(np.percentile(test.ttft_s, share)) for share in (90, 99))
    between = (at_90 + at_99) / 2
    kept, missed = (
        served(
            serve__concurrency=64, serve__requests=128, gpus=1, limits__max_ttft_s=between, serve__percentile=percentile
        )
        for percentile in (90, 99)
    )
    assert kept.ok
    assert kept.ttft_s == pytest.approx(at_90)
    assert not missed.ok
    assert missed.ttft_s == pytest.approx(at_99)


def test_without_requests_the_answer_is_the_steady_state() -> None:
    steady = served(serve__concurrency=64)
    assert steady.choice.test is None
    result = summarise(steady)
    assert result.test is None
    assert result.load_curve


def test_nothing_is_measured_of_what_does_not_fit() -> None:
    result = summarise(served("llama-3.1-70b", serve__concurrency=8, serve__requests=80, gpus=1))
    assert not result.verdict.fits
    assert result.test is None


@pytest.fixture(scope="module")
def answer() -> ServeResult:
    return summarise(with_outcome(MADE, limits__max_ttft_s=2.5))


def test_the_first_screen_has_the_duration_and_what_was_done(answer: ServeResult) -> None:
    said = [(point.label, point.text) for point in serve_points(answer)]
    assert ("Test", "8.0 s for 4 requests: 0.500 requests/s, goodput 0.250 requests/s") in said
    assert ("", "5.50 output tokens/s, 55.5 tokens/s in all") in said
    assert "Output" not in dict(said)


def test_the_report_has_the_lines_of_benchmark_tools(answer: ServeResult) -> None:
    tables = {block.title: block for block in document(answer, Options()).blocks if isinstance(block, Table)}
    figures = {row[0]: row[1] for row in tables["Serving benchmark"].rows}
    assert figures == {
        "Successful requests": "4",
        "Maximum request concurrency": "2",
        "Benchmark duration (s)": "8",
        "Total input tokens": "400",
        "Total generated tokens": "44",
        "Request throughput (req/s)": "0.500",
        "Request goodput (req/s)": "0.250",
        "Output token throughput (tok/s)": "5.50",
        "Total token throughput (tok/s)": "55.5",
        "Mean concurrency": "2",
        "Preemptions per replica": "1",
    }
    latencies = {row[0]: (row[1], *row[3:]) for row in tables["Latencies of the test"].rows}
    assert latencies["Time to first token (TTFT)"] == ("2.5 s", "2.5 s", "3.7 s", "3.8 s", "4.0 s")
    assert latencies["Inter-token latency (ITL)"] == ("150 ms", "100 ms", "200 ms", "200 ms", "200 ms")
    assert "Latency" not in tables


def test_the_table_of_figures_has_those_of_the_test(answer: ServeResult) -> None:
    names, values = rows(answer, Options())
    cells = dict(zip(names, values, strict=True))
    assert (cells["requests"], cells["duration_s"], cells["goodput_per_s"]) == (4, 8.0, pytest.approx(0.25))
    assert cells["itl_p99_s"] == 0.2
