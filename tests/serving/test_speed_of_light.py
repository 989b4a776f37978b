"""The low end of a range is no lower than the accelerators allow."""

from __future__ import annotations

import pytest
from serving_cases import served

from xe_sizer.serving.summary import summarise

BANDWIDTH = 3.35e12  # H100 SXM, bytes a second
# Llama-3.1-8B: 8.03 B parameters, of which a step reads all but the table of 128,256 x 4,096 embeddings.
READ_BYTES = 2 * (8_030_261_248 - 128_256 * 4096)
CACHE_BYTES = 2 * 2 * 32 * 8 * 128  # a token: keys and values of 32 layers with 8 heads of 128, 16 bit


def test_a_token_takes_no_less_than_weights_and_cache_once() -> None:
    found = served(serve__batch=1, serve__output_tokens=256)
    least = (READ_BYTES + CACHE_BYTES * (1024 + 127)) / BANDWIDTH
    assert least <= found.fastest_s["tpot"] < 1.03 * least
    ranges = summarise(found).latency
    assert (ranges.tpot_s.low or 0.0) >= found.fastest_s["tpot"]
    assert (ranges.ttft_s.low or 0.0) >= found.fastest_s["ttft"]


def test_the_caches_of_all_that_run_are_read() -> None:
    found = served(serve__concurrency=32, gpus=1)
    one = served(serve__request_rate=0.1, gpus=1)
    assert found.fastest_s["tpot"] - one.fastest_s["tpot"] > 0.9 * 31 * CACHE_BYTES * 1150 / BANDWIDTH


def test_a_prompt_takes_no_less_than_its_operations() -> None:
    found = served(serve__batch=1, serve__input_tokens=4096)
    matmuls = 2.0 * 4096 * (READ_BYTES / 2 - 128_256 * 4096)  # the head sees the last token alone
    assert found.fastest_s["ttft"] > matmuls / 989.5e12
    assert found.fastest_s["request"] == pytest.approx(found.fastest_s["ttft"] + 255 * found.fastest_s["tpot"])


@pytest.mark.parametrize("load", [{"serve__batch": 16}, {"serve__request_rate": 2.0}, {"serve__concurrency": 64}])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_every_range_holds_its_expected_value(model: str, load: dict[str, object]) -> None:
    found = served(model, **load)
    for span in (getattr(summarise(found).latency, name) for name in ("ttft_s", "tpot_s", "request_s")):
        assert span.low <= span.expected <= span.high
    assert found.no_faster("tpot", 0.0, 1e9) == found.fastest_s["tpot"]
    assert found.no_faster("throughput", 0.5, 1.0) == 0.5
