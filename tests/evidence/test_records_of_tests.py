"""Records of tests: how many requests a test has, how long they are, and which records say no load."""

from __future__ import annotations

import pytest

from xe_sizer.evidence.flags import RecordRegistry
from xe_sizer.evidence.inference import rates, serve_record
from xe_sizer.evidence.inference_of import inference_of
from xe_sizer.evidence.record_parts import Measured
from xe_sizer.evidence.records import Record


def record(**fields: object) -> Record:
    stated = {"id": "one", "job": "inference", "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 1, "tp": 1}
    return Record(**{**stated, "stack": "vllm", "input_len": 1000, "output_len": 100, **fields})  # type: ignore[arg-type]


def keys(**fields: object) -> dict[str, object]:
    return inference_of(record(**fields), RecordRegistry()).values


def test_requests_of_a_test_are_those_that_are_stated() -> None:
    assert keys(concurrency=8, requests=300)["serve.requests"] == 300
    assert keys(request_rate=2.0, requests=500)["serve.requests"] == 500
    assert keys(request_rate=2.0)["serve.requests"] == 1000


def test_clients_send_ten_requests_each_where_nothing_is_stated() -> None:
    found = inference_of(record(concurrency=8), RecordRegistry())
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
