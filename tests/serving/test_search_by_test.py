"""Replicas of a service whose load is a test: as many as keep the limits in the test itself."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from serving_cases import asked

from xe_sizer.serving.search import least, run_test, size


@pytest.mark.parametrize("needed", [1, 2, 3, 7, 8, 30])
@pytest.mark.parametrize("guess", [1, 3, 8, 40])
def test_the_least_that_is_enough_is_found_from_any_guess(needed: int, guess: int) -> None:
    tried: list[int] = []

    def keeps(number: int) -> bool:
        tried.append(number)
        return number >= needed

    assert least(keeps, guess, 40) == needed
    assert len(tried) == len(set(tried))


def test_the_guess_stays_where_nothing_is_enough() -> None:
    assert least(lambda _: False, 3, 20) == 3


def test_replicas_are_as_many_as_keep_the_limits_of_the_test() -> None:
    """One replica fewer misses them; waves of prompts see other latencies than a steady load does."""
    resolved = asked(
        "llama-3.1-8b", serve__engine="sglang", serve__concurrency=256, serve__requests=1280, serve__percentile=50,
        serve__input_tokens=1024, serve__output_tokens=256, layout__tp=1, layout__pp=1, limits__max_ttft_s=1.0,
        limits__max_tpot_s=0.1,
    )  # fmt: skip
    found = size(resolved)
    assert found.ttft_s <= 1.0
    assert found.replicas > 1
    fewer = run_test(replace(resolved, gpus=None), found.placement, found.memory, found.replicas - 1)
    assert sorted(fewer.ttft_s)[len(fewer.ttft_s) // 2] > 1.0
