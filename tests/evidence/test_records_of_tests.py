"""Records of tests: how many requests a test has, how long they are, and which records say no load."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xe_sizer.errors import Location
from xe_sizer.evidence.names import RecordRegistry
from xe_sizer.evidence.predict import ServedRecord, figures, rates, serve_record
from xe_sizer.evidence.records import Measured, Record, records_of
from xe_sizer.evidence.serving_scenario import answer_lengths, build_inference, prompt_lengths


def record(**fields: object) -> Record:
    stated = {"id": "one", "job": "inference", "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 1, "tp": 1}
    return Record(**{**stated, "stack": "vllm", "input_len": 1000, "output_len": 100, **fields})  # type: ignore[arg-type]


def keys(**fields: object) -> dict[str, object]:
    return build_inference(record(**fields), RecordRegistry()).values


def test_requests_of_a_test_are_those_that_are_stated() -> None:
    assert keys(concurrency=8, requests=300)["serve.requests"] == 300
    assert keys(request_rate=2.0, requests=500)["serve.requests"] == 500
    assert keys(request_rate=2.0)["serve.requests"] == 1000


def test_clients_send_ten_requests_each_where_nothing_is_stated() -> None:
    found = build_inference(record(concurrency=8), RecordRegistry())
    assert found.values["serve.requests"] == 80
    assert any("80 requests, 10 of each client" in text for text in found.assumed)


def test_a_batch_is_so_many_requests_at_once_where_requests_come_and_go() -> None:
    found = keys(sequences=16)
    assert found["serve.requests"] == 16
    assert "serve.batch" not in found
    still = keys(sequences=16, stack="hf-transformers", framework="transformers 4.46")
    assert still["serve.batch"] == 16
    assert "serve.requests" not in still


def test_notes_decide_no_load() -> None:
    plain, noted = keys(), keys(notes="open loop, 500 requests, infinite request rate")
    assert plain == noted


def test_a_mean_of_nine_tenths_is_one_of_drawn_lengths() -> None:
    """0.9 x 1024 = 921.6: even from 819.2 to 1024, whose spread is 0.2 / sqrt(12) / 0.9 = 6.4 %."""
    found = keys(concurrency=8, input_len=921.6, output_len=100)
    assert found["serve.input_spread"] == pytest.approx(0.06415, rel=1e-3)
    assert "serve.output_spread" not in found
    assert keys(concurrency=8, output_len=290.3)["serve.output_spread"] == 0.8  # answers that end by themselves
    assert "serve.output_spread" not in keys(concurrency=8, output_len=290)


def test_latencies_under_a_load_that_nobody_states_count_apart() -> None:
    """Of the rate alone a prediction is made, that of a full replica, as a guess."""
    tested = serve_record(record(measured=Measured(ttft_ms=30.0, output_tokens_per_s=900.0)), RecordRegistry())
    assert tested.guessed
    assert [one.quantity for one in rates(tested)] == ["throughput"]
    full = serve_record(record(measured=Measured(output_tokens_per_s=900.0)), RecordRegistry())
    assert not full.guessed


def test_images_of_a_record_are_those_of_its_prompts() -> None:
    found = keys(model="gemma-3-4b", concurrency=4, images=2, image_size="896x896")
    assert (found["serve.images"], found["serve.image_size"]) == (2, "896x896")
    assert "serve.images" not in keys(concurrency=4)


LATENCIES = Measured(ttft_ms=100.0, tpot_ms=10.0, output_tokens_per_s=900.0)


def served(**fields: object) -> ServedRecord:
    return serve_record(record(**{"measured": LATENCIES, **fields}), RecordRegistry())


def predicted(**fields: object) -> dict[str, float]:
    return {one.quantity: one.predicted for one in figures(served(**fields))}


@pytest.mark.parametrize(
    ("mean", "longest", "spread"),
    [
        (255.6, 256, 0.0),  # what a tool counts of answers that are all 256 long
        (255.6, None, 0.0),
        (1023.1, None, 0.0),
        (120.7, None, 0.8),
        (99.7, None, 0.8),
        (100.5, 128, 0.8),  # most reach the 128, some end by themselves
        (300.0, 2048, 0.8),
        (512.9, 1024, 0.575),  # SGLang's bench_serving draws 0 to 1,024
        (921.0, 1024, 0.0646),  # 820 to 1,024
        (1024.0, 1024, 0.0),
        (1100.0, 1024, 0.0),  # no longest one, since the mean is above it
    ],
)
def test_a_mean_below_a_longest_length_says_how_lengths_were_drawn(
    mean: float, longest: int | None, spread: float
) -> None:
    stated = record(output_len=mean, max_output_len=longest, input_len=mean, max_prompt_len=longest)
    assert answer_lengths(stated).spread == pytest.approx(spread, rel=0.01)
    assert prompt_lengths(stated).spread == answer_lengths(stated).spread
    assert answer_lengths(stated).longest == (longest if spread and longest else math.inf)


def test_a_spread_that_is_stated_is_taken() -> None:
    found = keys(concurrency=8, input_spread=0.3, output_spread=0.0, output_len=290.3)
    assert found["serve.input_spread"] == 0.3
    assert "serve.output_spread" not in found


def test_no_answer_of_a_test_is_longer_than_the_longest() -> None:
    test = served(concurrency=8, requests=200, output_len=100.5, max_output_len=128).served.choice.test
    assert test is not None
    assert test.outputs.max() == 128
    assert test.outputs.mean() == pytest.approx(100.5, rel=0.01)
    assert 0.3 < np.mean(test.outputs == 128) < 0.9


def test_a_rate_past_capacity_without_a_number_of_requests_has_no_first_token() -> None:
    """A test of 1,000 made up requests would say how long it is; the rate is what a full replica gives."""
    past = served(request_rate=500.0)
    assert [one.quantity for one in figures(past)] == ["tpot", "throughput"]
    full = past.served.choice.full_rate * 100
    assert predicted(request_rate=500.0)["throughput"] == pytest.approx(full, rel=0.002)
    assert any("rate of a full replica" in text for text in past.assumed)
    assert not any("1000 requests" in text for text in past.assumed)
    assert "ttft" in predicted(request_rate=500.0, requests=200)
    assert "ttft" in predicted(request_rate=1.0)


def test_the_first_token_of_a_batch_is_that_of_its_last_request() -> None:
    found = served(sequences=16, input_len=4000)
    test = found.served.choice.test
    assert test is not None
    assert predicted(sequences=16, input_len=4000)["ttft"] == test.ttft_s.max() > 1.5 * test.ttft_s.mean()
    assert predicted(sequences=16, input_len=4000, statistic="mean")["ttft"] == pytest.approx(test.ttft_s.mean())
    clients = predicted(concurrency=16, requests=16, input_len=4000)
    assert clients["ttft"] == pytest.approx(test.ttft_s.mean())


def test_medians_are_compared_with_medians() -> None:
    burst = {"concurrency": 32, "requests": 64, "input_len": 4000}
    test = served(**burst).served.choice.test
    assert test is not None
    for word in ("median", "p50", "P50"):
        found = predicted(**burst, statistic=word)
        assert (found["ttft"], found["tpot"]) == (np.median(test.ttft_s), np.median(test.tpot_s))
    assert predicted(**burst)["ttft"] == pytest.approx(test.ttft_s.mean())
    assert abs(np.median(test.ttft_s) - test.ttft_s.mean()) > 0.05 * test.ttft_s.mean()


def test_ranges_hold_other_tests_where_the_number_of_requests_is_not_stated() -> None:
    """Three requests of each client leave more of a test to its burst; without an end there is none."""
    stated, guessed = ({one.quantity: one for one in rates(served(concurrency=64, requests=n))} for n in (640, None))
    found = served(concurrency=64, requests=None)
    for quantity in ("ttft", "throughput"):
        one = guessed[quantity]
        assert one.predicted == stated[quantity].predicted
        least, most = found.predicted(quantity, float(one.predicted))
        assert least < most
        assert (one.low or 0.0) <= least <= one.predicted <= most <= (one.high or 0.0)
    assert found.tested.requests is False
    assert served(concurrency=64, requests=640).tested.requests is True


def test_clients_that_measure_a_window_load_an_engine_that_runs_on() -> None:
    assert "serve.requests" not in keys(concurrency=8, window_s=60.0)
    found = served(concurrency=64, window_s=60.0)
    assert not found.others
    assert predicted(concurrency=64, window_s=60.0)["ttft"] < predicted(concurrency=64, requests=192)["ttft"]


def test_prompts_that_are_cached_are_not_read_again() -> None:
    same = {"concurrency": 4, "requests": 40, "input_len": 4000, "prefix_cache": True}
    found = served(**same, prefix_hit_share=0.99)
    assert not any("prefix cache" in text for text in found.assumed)
    assert predicted(**same, prefix_hit_share=0.99)["ttft"] < 0.4 * predicted(**same)["ttft"]


def test_drafts_write_more_tokens_a_step_and_those_of_unknown_worth_are_a_guess() -> None:
    """Three drafts, each kept with 0.75, give 1 + 0.75 + 0.56 + 0.42 = 2.73 tokens a step."""
    same = {"concurrency": 4, "requests": 40}
    assert keys(**same, draft_tokens=3)["serve.acceptance_rate"] == 0.75
    assert keys(**same, draft_tokens=3, acceptance_rate=0.6)["serve.acceptance_rate"] == 0.6
    guessed, stated = (served(**same, draft_tokens=3, acceptance_rate=rate) for rate in (None, 0.75))
    assert (guessed.guessed, stated.guessed) == (True, False)
    assert any(text == "each draft kept with a probability of 0.75: not stated" for text in guessed.assumed)
    assert predicted(**same, draft_tokens=3)["tpot"] < 0.7 * predicted(**same)["tpot"]


def test_keys_of_a_test_are_read() -> None:
    stated = {"statistic": "median", "window_s": 30, "prefix_hit_share": 0.5, "input_spread": 0.1, "date": "2025-03"}
    read = records_of([{"id": "one", "job": "inference", **stated}], Location("here"))
    assert not read.notes
    assert {name: getattr(read.records[0], name) for name in stated} == stated
