"""Placements that nobody states, limits that nothing keeps, and loads that nothing takes."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from serving_cases import served

from xe_sizer.serving.advice import advise
from xe_sizer.serving.summary import summarise

H100S = "dell-xe9680-h100"
LLAMA_405B: dict[str, object] = {"serve__concurrency": 16, "serve__input_tokens": 8000, "limits__max_ttft_s": 0.1}


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "llama-3.1-70b"])
def test_gpus_without_a_load_make_the_most_tokens_that_any_placement_makes(model: str) -> None:
    """Eight GPUs are as many replicas as is best, not one over all of them."""
    chosen = served(model, server=H100S, gpus=8)
    tried = [served(model, server=H100S, gpus=8, layout__tp=tp, layout__pp=1) for tp in (1, 2, 4, 8)]
    most = max(one.taken_per_s for one in tried if one.fits)
    assert chosen.taken_per_s >= most / 1.1
    assert chosen.gpus == 8


def test_small_models_are_replicated_rather_than_split() -> None:
    """Over PCIe an all-reduce of every layer costs more than a second copy of the weights."""
    found = served("llama-3.1-8b", gpu="l40s", gpus=4)
    assert (found.placement.tp[0], found.replicas) == (1, 4)


@pytest.mark.parametrize("load", [{"serve__request_rate": 200.0}, {"serve__request_rate": 1000.0}])
def test_more_than_is_taken_is_answered_with_what_is_taken(load: dict[str, object]) -> None:
    """An overloaded service gives its capacity, whatever comes; nothing bounds its waiting."""
    found = served("llama-3.1-8b", gpus=1, **load)
    full = served("llama-3.1-8b", gpus=1)
    result = summarise(found)
    assert found.overloaded
    assert result.latency.ttft_s.expected is None
    assert result.throughput.requests_per_s == pytest.approx(0.999 * full.choice.full_rate, rel=1e-6)
    assert result.throughput.output_tokens_per_s == pytest.approx(result.throughput.requests_per_s * 256, rel=1e-9)
    assert result.throughput.requests_in_flight is None


def test_what_no_placement_keeps_is_not_answered_with_hundreds_of_gpus() -> None:
    """A tenth of a second to read 8,000 tokens with 405 B: the fewest GPUs that hold the model come nearest for them.

    2 x 8000 x 405e9 operations of one prompt take 0.4 s on 16 of 989e12 a second; twice the GPUs do not halve 1 s.
    """
    found = served("llama-3.1-405b", **LLAMA_405B)
    assert not found.ok
    assert found.gpus == 16
    more = served("llama-3.1-405b", gpus=64, layout__tp=8, layout__pp=8, **LLAMA_405B)
    assert found.gpus * found.ttft_s < 1.1 * more.gpus * more.ttft_s


def test_the_wider_limit_that_is_proposed_takes_no_more_gpus_than_it_is_worth() -> None:
    found = served("llama-3.1-405b", **LLAMA_405B)
    wider = [one for one in advise(found, REGISTRY) if "max_ttft_s" in one.change]
    assert wider
    assert "256" not in wider[0].effect
    assert "16 GPUs" in wider[0].effect


def test_the_limit_that_is_kept_decides_before_the_gpus() -> None:
    """Where some placement keeps a limit, those that do not are no answer, however few GPUs they take."""
    found = served("llama-3.1-70b", serve__concurrency=4, limits__max_tpot_s=0.015)
    fewest = served("llama-3.1-70b", serve__concurrency=4)
    assert found.ok
    assert np.isfinite(found.ttft_s)
    assert found.gpus > fewest.gpus


# What the placement is chosen for


def shape(**flags: object) -> tuple[int, int]:
    found = served("llama-3.1-8b", gpu="h100-sxm-80gb", **flags)
    return int(found.placement.gpus[0]), found.replicas


def test_one_request_is_fast_on_many_gpus_and_gpus_are_busy_with_a_replica_each() -> None:
    """Eight H100: a request alone is done soonest where all work on it, and most are done where each works alone."""
    assert shape(gpus=8, serve__objective="latency") == (8, 1)
    assert shape(gpus=8, serve__objective="throughput") == (1, 8)
    assert shape(gpus=8, serve__batch=16, serve__objective="latency") == (8, 1)
    assert shape(gpus=8, serve__batch=16, serve__objective="throughput") == (1, 8)
    assert shape(gpus=8, serve__batch=16) == (8, 1)


def test_without_a_load_latency_is_that_of_a_request_alone() -> None:
    found = served("llama-3.1-8b", gpus=8, serve__objective="latency")
    assert (found.resolved.load, found.resolved.amount) == ("batch", 1.0)
    slower = served("llama-3.1-8b", gpus=8, serve__batch=1, layout__tp=2, layout__pp=1)
    assert found.point.request_s < slower.point.request_s


def test_latency_alone_spreads_no_replica_over_servers() -> None:
    """Pipelines over 32 GPUs read a prompt sooner; nobody asked for them."""
    gpus, _ = shape(serve__objective="latency", serve__request_rate=10.0)
    assert gpus <= 8
    slow, _ = shape(serve__objective="throughput", serve__request_rate=10.0)
    assert slow == 1


def test_most_throughput_of_a_gpu_where_their_number_is_open() -> None:
    found = served("llama-3.1-70b", gpu="h100-sxm-80gb", serve__objective="throughput")
    plain = served("llama-3.1-70b", gpu="h100-sxm-80gb")
    assert found.taken_per_s / found.gpus >= plain.taken_per_s / plain.gpus
    assert found.gpus > plain.gpus  # two GPUs hold the weights and hardly any cache
