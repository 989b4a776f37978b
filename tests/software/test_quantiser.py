"""What libraries of quantised weights move and hold, by arithmetic on one square product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.catalogue import Registry, load_quantiser
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.scenario.read import read_scenario
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.rank import graph_inputs
from xe_sizer.training.resolve import resolve

LAYER = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096  # weights of a layer of llama-2-7b: matrices and norms


def job_of(**more: Any) -> Job:
    flags = {"model": "llama-2-7b", "server": "dell-xe9680-h100", "gpus": 1, "job": "qlora", "stack": "hf-trainer"}
    return resolve(read_scenario(None, flags | {key.replace("__", "."): more[key] for key in more}, {}), Registry()).job


def layout(recompute: int = 0) -> Layouts:
    sizes = dict.fromkeys(Layouts.__struct_fields__, 1)
    none = {"zero": 0, "offload": 0, "sequence_parallel": 0, "schedule": 0, "zero_group": 0}
    return Layouts.of(**{**sizes, **none, "recompute": recompute})


def moved(job: Job) -> tuple[float, float]:
    inputs = graph_inputs(job, layout(), np.array([512.0]))
    return float(inputs.weight_forward_bytes[0]), float(inputs.weight_backward_bytes[0])


def components(job: Job, recompute: int = 0) -> dict[str, float]:
    ledger = memory_ledger(job, layout(recompute), np.array([512.0]))
    return {name: float(np.max(value)) for name, value in ledger.components.items()}


@pytest.mark.parametrize("name", BUILT_IN.names("quantiser"))
def test_each_is_complete_and_sizes_a_job(name: str) -> None:
    quantiser = load_quantiser(name)
    for width in quantiser.widths:
        assert width.bits / 8 <= width.stored_bytes <= width.bits / 8 + 0.07
        assert components(job_of(train__quantiser=name, train__bits=width.bits))["weights"] > 0


@pytest.mark.parametrize(
    ("flags", "forward", "backward"),
    [
        ({}, 0.5 + 1 / 64 + 4 / (64 * 256) + 2, 0.5 + 1 / 64 + 4 / (64 * 256) + 2),  # read NF4 and scales, write bf16
        ({"train.weights_dtype": "fp32"}, 2.516 + 2 + (4 + 2), 2.516 + 2 + (4 + 2)),  # write float32, cast it
        ({"train.quantiser": "auto-gptq"}, 0.5 + 4 + 4 + 1 + 2 + 2 + 3 + 0.1, 0.0),  # kept, so not expanded again
        ({"train.quantiser": "marlin"}, 0.0, 0.0),
        ({"train.bits": 8}, 0.0, 1 + 2 + 2 + 2),  # a copy in 16 bit, scaled in place
    ],
)
def test_bytes_moved_for_a_weight(flags: dict[str, Any], forward: float, backward: float) -> None:
    assert moved(job_of(**flags)) == pytest.approx((forward, backward), rel=3e-3)


def test_the_product_of_int8_moves_its_activations_more_often() -> None:
    """9 bytes an input and 8 an output: 512 x (4096 + 3 x 4096) of q, k and v apart."""
    job = job_of(train__bits=8)
    expansion = graph_inputs(job, layout(), np.array([512.0])).expansion
    assert (expansion.input_bytes, expansion.output_bytes, expansion.keeps_input) == (9.0, 8.0, True)


def test_an_expanded_weight_stands_beside_what_it_is_cast_from() -> None:
    """One matrix of the MLP, the largest of a layer."""
    assert components(job_of())["dequantised layer"] == 2 * 4096 * 11008
    assert components(job_of(**{"train.weights_dtype": "fp32"}))["dequantised layer"] == 6 * 4096 * 11008
    assert components(job_of(train__quantiser="marlin")).get("dequantised layer", 0.0) == 0.0


def test_old_products_keep_their_inputs() -> None:
    """bitsandbytes before 0.43 (ctx.tensors = A, B): inputs of qkv, of gate and up, and of down, once each.

    That of o is the attention's output, which is kept anyway; before the first adapter nothing is.
    """
    kept = [
        components(job_of(stack="hf-bf16", train__quantiser=f"bitsandbytes@{release}"))["activations"]
        for release in ("0.43", "0.42")
    ]
    inputs = 32 * (2 * 4096 + 11008) - 4096
    assert kept[1] - kept[0] == pytest.approx(2 * 512 * inputs, rel=1e-3)


@pytest.mark.parametrize(("recompute", "layers"), [(0, 32), (2, 1)])
def test_autograd_keeps_what_pytorch_expands(recompute: int, layers: int) -> None:
    found = components(job_of(train__quantiser="auto-gptq"), recompute)
    assert found["dequantised weights"] == pytest.approx(layers * LAYER * 2, rel=1e-4)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"train.quantiser": "bitsandbites"}, "bitsandbites"),
        ({"train.bits": 3}, "no weights of 3 bits"),
        ({"job": "lora", "train.bits": 4}, "does not quantise"),
    ],
)
def test_what_no_quantiser_has_is_refused(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        job_of(**flags)
