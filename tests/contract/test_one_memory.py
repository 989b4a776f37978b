"""Accelerators that have no memory but the host's: what would go to the host stays, and is counted once."""

from __future__ import annotations

from typing import Any

import pytest
from cases import REGISTRY

from xe_sizer.errors import InputError
from xe_sizer.scenario.read import read_scenario
from xe_sizer.studies.estimate import estimate, serve

TRAINING = {"model": "llama-3.1-70b", "job": "lora", "data.tokens": 10_000_000, "gpus": 1}
SERVICE = {"model": "llama-3.1-8b", "gpus": 1, "serve.concurrency": 8, "serve.turns": 10}


def trained(gpu: str, **more: Any) -> Any:
    keys = {**TRAINING, "gpu": gpu, **{key.replace("__", "."): value for key, value in more.items()}}
    return estimate(read_scenario(None, keys, {}), REGISTRY)


@pytest.mark.parametrize("offload", ["optimizer", "params", "activations"])
@pytest.mark.parametrize("gpus", [1, 2])
def test_training_offloads_nothing_there(offload: str, gpus: int) -> None:
    more = {"gpus": gpus, "host_memory_gib": 119, "layout__offload": offload}
    with pytest.raises(InputError, match="moves nothing away: the memory of dgx-spark is the host's"):
        trained("dgx-spark", **more)


@pytest.mark.parametrize(
    "how", [{"layout.recompute_offload": ["decoder_layer_input"]}, {"layout.recompute_policy": "minimal_offloaded"}]
)
def test_layers_that_run_again_keep_nothing_there(how: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="moves nothing away"):
        trained("dgx-spark", stack="maxtext", job="sft", model="llama-3.1-8b", layout__recompute="selective", **how)


@pytest.mark.parametrize("memory", [None, 150])
def test_advice_offloads_nothing_there(memory: float | None) -> None:
    more = {} if memory is None else {"host_memory_gib": memory}
    result = trained("dgx-spark", **more)
    assert result.advice
    assert not any("host memory" in one.change for one in result.advice)


def test_paged_states_stay_with_the_weights() -> None:
    """Of 14.8 billion parameters, in the memory that they would be paged to."""
    keys = {"model": "qwen3-14b", "job": "sft"}
    paged, plain = (trained("dgx-spark", **keys, optimizer=name) for name in ("paged-adamw-8bit", "adamw-8bit"))
    assert paged.memory.peak_bytes == pytest.approx(plain.memory.peak_bytes, rel=1e-3)
    assert paged.memory.headroom_bytes < 0


@pytest.mark.parametrize(
    ("gpu", "more"),
    [
        ("dgx-spark", {"serve.kv_host_gib": 1000, "serve.tool_seconds": 30}),
        ("jetson-thor", {"serve.kv_host_gib": 10}),
        ("apple-m3-max", {"serve.engine": "llama.cpp", "serve.cpu_layers": 8}),
        ("ryzen-ai-max-395", {"serve.engine": "llama.cpp", "serve.cpu_layers": "auto"}),
    ],
)
def test_services_keep_nothing_there(gpu: str, more: dict[str, object]) -> None:
    with pytest.raises(InputError, match="moves nothing away"):
        serve(read_scenario(None, {**SERVICE, "gpu": gpu, **more}, {}), REGISTRY)


def test_states_do_not_leave_while_answers_are_written() -> None:
    grpo = {"model": "qwen3-4b", "job": "grpo", "train__steps": 10, "stack": "verl"}
    of_verl, kept = (trained("dgx-spark", **grpo, **more) for more in ({}, {"rollout__offload": "none"}))
    assert of_verl.memory.peak_bytes == kept.memory.peak_bytes
    with pytest.raises(InputError, match="moves nothing away"):
        trained("dgx-spark", **grpo, rollout__offload="optimizer")


def test_weights_stay_of_an_engine_that_sleeps() -> None:
    grpo = {"model": "qwen3-4b", "job": "grpo", "train__steps": 10, "stack": "nemo-rl"}
    host, cache, dropped = (
        next(
            one.peak_bytes for one in trained("dgx-spark", **grpo, rollout__sleep=what).phases if one.name == "training"
        )
        for what in ("weights-to-host", "cache", "weights-dropped")
    )
    assert host == cache > dropped


def test_nothing_is_refused_where_nothing_goes_to_the_host() -> None:
    assert trained("dgx-spark", layout__offload="none", job="qlora").memory.headroom_bytes > 0
    served = serve(read_scenario(None, {**SERVICE, "gpu": "dgx-spark", "serve.kv_host_gib": 0}, {}), REGISTRY)
    assert served.memory.headroom_bytes > 0
