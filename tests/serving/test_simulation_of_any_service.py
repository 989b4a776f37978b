"""Any engine, load and pool: a simulated test ends, and its requests go through their stages in order."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import request_bytes, serving_memory
from xe_sizer.serving.simulation import Offered, offered, poisson_arrivals, simulate

SERVICES = [
    (job(model, server="dell-xe9680-h100", serve__engine=engine), ReplicaLayouts.of(**sizes))
    for model, engine, sizes in (
        ("llama-3.1-8b", "vllm", {}),
        ("gemma-2-9b", "sglang", {}),
        ("deepseek-v2-lite", "tensorrt-llm", {"dp": 4, "ep": 4}),
        ("mixtral-8x7b", "vllm@0.5", {"tp": 2, "pp": 2}),
        ("llama-3.1-8b", "lmdeploy", {}),
        ("jamba-v0.1", "vllm", {"tp": 2}),
        ("llama-3.1-8b", "hf-transformers", {}),
    )
]


def scheduler(made: ServingJob, random: np.random.Generator) -> ServingJob:
    """The job with an engine that schedules in a way of its own."""
    changes = {
        "scheduler_recv_interval": int(random.choice([1, 10, 30])),
        "batch_wait_iters": int(random.choice([0, 20])),
        "max_step_tokens": int(random.choice([1, 16, 512, 8192])),
        "max_sequences": int(random.choice([1, 2, 8, 256])),
        "reserves": str(random.choice(["used", "whole"])),
        "chunked_prefill": bool(random.random() < 0.6),
        "mixed_steps": bool(random.random() < 0.6),
        "first_token": str(random.choice(["prefill", "decode"])),
    }
    batching = msgspec.structs.replace(made.engine.batching, **changes)
    return replace(made, engine=msgspec.structs.replace(made.engine, batching=batching))


def any_load(random: np.random.Generator) -> tuple[Traffic, Offered]:
    spreads = (float(random.choice([0.0, 0.5, 1.5])) for _ in range(2))
    inputs, outputs = (float(np.exp(random.uniform(0.0, most))) for most in (8.0, 6.0))
    hits, drafts = float(random.choice([0.0, 0.5, 1.0])), int(random.choice([0, 3]))
    traffic = Traffic(inputs, outputs, *spreads, hits, drafts, float(random.random()), 0.05)
    requests = int(random.integers(1, 60))
    arrivals_s = poisson_arrivals(float(np.exp(random.uniform(-2.0, 5.0))), requests)
    loads = (offered(traffic, requests), offered(traffic, requests, int(random.integers(1, 40))))
    return traffic, (*loads, offered(traffic, requests, arrivals_s=arrivals_s))[random.integers(3)]


@pytest.mark.parametrize("number", range(70))
def test_every_request_goes_through_its_stages(number: int) -> None:
    random = np.random.default_rng(number)
    made, placement = SERVICES[number % len(SERVICES)]
    made, (traffic, load) = scheduler(made, random), any_load(random)
    longest = request_bytes(made, placement, float((load.inputs + load.outputs).max()))
    share = float(random.choice([0.3, 1.01, 3.0, 50.0]))  # of the longest request: it runs alone where nothing fits
    memory = replace(serving_memory(made, placement, traffic.inputs), pool_bytes=longest * share / placement.dp)
    found = simulate(made, placement, memory, traffic, load)
    stages = np.array([found.arrival_s, found.start_s, found.first_s, found.finish_s])
    assert np.all(np.isfinite(stages))
    assert np.all(np.diff(stages, axis=0) >= -1e-9)
    assert np.all(found.gap_s >= 0.0)
    assert np.all(found.gap_counts > 0.0)
    if load.concurrency:  # no more clients than there are
        inside = [np.sum((found.arrival_s <= at) & (found.finish_s > at)) for at in found.arrival_s]
        assert max(inside) <= load.concurrency
