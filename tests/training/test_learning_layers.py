"""Jobs in which some layers learn: what is kept for them, and what runs back, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts

from xe_sizer.errors import InputError
from xe_sizer.training.job import LearningLayers
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.step_time import timeline

LAYER = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096  # of Llama 2 7B, which has 32


def held(name: str, **flags: object) -> float:
    ledger = memory_ledger(job(stack="hf-bf16", **flags), layouts(recompute=2))
    return float(np.max(ledger.components[name]))


@pytest.mark.parametrize(
    ("last", "block", "count", "reach"), [(8, 0, 8, 8 / 32), (None, 1, 1, 33 / 64), (40, 0, 32, 1)]
)
def test_how_far_the_backward_reaches(last: int | None, block: int, count: int, reach: float) -> None:
    """Down to the first layer that learns; of a layer anywhere, over half of them on average."""
    found = LearningLayers.of(32, last, block)
    assert (found.count, found.share, found.reach, found.ends) == (count, count / 32, reach, 0)
    assert LearningLayers.of(32, None, 0).ends == 1


def test_gradients_and_states_are_those_of_the_layers_that_learn() -> None:
    assert held("gradients", train__trainable_layers=4) == pytest.approx(4 * LAYER * 2, rel=1e-12)
    assert held("optimizer states", train__trainable_layers=4) == pytest.approx(4 * LAYER * 4, rel=1e-12)
    assert held("weights", train__trainable_layers=4) == held("weights")


def test_badam_keeps_one_layer_in_float32() -> None:
    """Weights, gradients and two moments: 16 bytes of a layer beside the model in 16 bit, whatever the stack has."""
    assert held("optimizer states", optimizer="badam") == pytest.approx(16 * LAYER, rel=1e-12)
    wide = memory_ledger(job(stack="hf-trainer", optimizer="badam", precision="bf16"), layouts(recompute=2))
    assert np.max(wide.components["weights"]) == 2 * 6_738_415_616


def test_the_fewer_layers_learn_the_shorter_the_step() -> None:
    seconds = [
        float(timeline(job(stack="hf-bf16", train__trainable_layers=count), layouts()).components["backward"][0])
        for count in (1, 8, 16)
    ]
    whole = float(timeline(job(stack="hf-bf16"), layouts()).components["backward"][0])
    assert seconds[0] < seconds[1] < seconds[2] < whole
    assert seconds[2] - seconds[1] == pytest.approx(seconds[1] * 8 / 8, rel=0.1)  # a layer's alike, the head's little


def test_activations_below_the_layers_that_learn_are_not_kept() -> None:
    """Of 32 layers the last 8 keep what they need; the head's input and what the loss reads stay as they are."""
    whole, some = (
        float(np.max(memory_ledger(job(stack="hf-bf16", **flags), layouts()).components["activations"]))
        for flags in ({}, {"train__trainable_layers": 8})
    )
    assert some == pytest.approx(whole / 4, rel=0.02)


def test_layers_beside_adapters_are_frozen_anyway() -> None:
    with pytest.raises(InputError) as raised:
        ask({"model": "llama-2-7b", "job": "lora", "stack": "hf-bf16", "train.trainable_layers": 4})
    assert "the layers are frozen" in str(raised.value)
    assert job(kind="lora", stack="hf-bf16", optimizer="badam").learning_layers.count is None


def test_no_more_layers_learn_than_the_model_has() -> None:
    with pytest.raises(InputError) as raised:
        ask({"model": "llama-2-7b", "job": "sft", "stack": "hf-bf16", "train.trainable_layers": 33})
    assert "llama-2-7b has 32 layers, not 33" in str(raised.value)
