"""Casts of operands to 8 bit: their bytes by recipe and by who casts, and which products stay wide."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, layouts

from xe_sizer.errors import InputError
from xe_sizer.graph.transformer import head_operators, layer_operators
from xe_sizer.laws.operator_time import operator_times
from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.rank import graph_inputs

TOKENS, HIDDEN, FFN, KEYS, LAYERS = 2048, 4096, 14_336, 1024, 32  # Llama 3.1 8B
READ = HIDDEN + HIDDEN + HIDDEN + FFN  # inputs of qkv, output projection, gate and up, down
WRITTEN = (HIDDEN + 2 * KEYS) + HIDDEN + 2 * FFN + HIDDEN
WEIGHTS = HIDDEN * (HIDDEN + 2 * KEYS) + HIDDEN * HIDDEN + 3 * HIDDEN * FFN
BASE = {
    "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "gpus": 1, "precision": "fp8", "train.padding": "packed",
    "train.seq_len": TOKENS, "train.global_batch": 1,
}  # fmt: skip


def asked(**flags: object) -> Job:
    return ask({**BASE, "job": "sft", **{name.replace("__", "."): value for name, value in flags.items()}}).job


def moved(job: Job) -> tuple[float, float]:
    """Bytes of the casts of a layer, forward and backward."""
    inputs = graph_inputs(job, layouts(), np.array([TOKENS]))
    casts = [op for op in layer_operators(inputs) if op.name.endswith(" cast")]
    return sum(float(op.forward_bytes[0]) for op in casts), sum(float(op.backward_bytes[0]) for op in casts)


@pytest.mark.parametrize(
    ("recipe", "forward", "backward"),
    [
        # read 16 bit, write rows and columns of one byte; the present maximum needs a pass of its own
        ("delayed", 2 + 1 + 1, 2 + 1 + 1),
        ("tensorwise", 2 + 2 + 1 + 1, 2 + 2 + 1 + 1),
        ("blockwise", 4 + 2 * 4 / 128, 4 + 2 * 4 / 128),
    ],
)
def test_transformer_engine_writes_rows_and_columns(recipe: str, forward: float, backward: float) -> None:
    job = asked(stack="nemo", train__fp8_recipe=recipe)
    assert moved(job) == pytest.approx((forward * TOKENS * READ, backward * TOKENS * WRITTEN))


def test_blocks_of_32_add_a_byte_each() -> None:
    job = asked(stack="nemo", gpu="b200", train__fp8_recipe="mxfp8")
    assert moved(job)[0] == pytest.approx((4 + 2 / 32) * TOKENS * READ)


@pytest.mark.parametrize(
    ("recipe", "operand", "weight"),
    [
        # torchao's own count of its kernels: 2 + 4 of an input, 2 + 3 and 3 of a weight; by rows 5 + 3, 3 and 4 + 3
        ("tensorwise", 6, (5, 3)),
        ("rowwise", 8, (3, 7)),
    ],
)
def test_torchao_casts_weights_in_every_micro_batch(recipe: str, operand: int, weight: tuple[int, int]) -> None:
    job = asked(stack="generic", train__fp8_recipe=recipe)
    expected = tuple(operand * TOKENS * n + w * WEIGHTS for n, w in zip((READ, WRITTEN), weight, strict=True))
    assert moved(job) == pytest.approx(expected)


def test_frozen_weights_need_no_columns() -> None:
    assert moved(asked(stack="nemo", job="lora", train__fp8_recipe="delayed"))[1] == pytest.approx(3 * TOKENS * WRITTEN)


def test_nothing_is_cast_in_16_bit() -> None:
    assert moved(asked(stack="nemo", precision="bf16")) == (0, 0)


def test_the_head_multiplies_16_bit() -> None:
    """Its product takes what it takes in bf16, although the layers run in 8 bit."""
    narrow, wide = (asked(stack="nemo", precision=precision) for precision in ("fp8", "bf16"))
    inputs = graph_inputs(narrow, layouts(), np.array([TOKENS]))
    head = [op for op in head_operators(inputs) if op.name == "head"]
    times = [operator_times(head, job.device)[0].forward_s for job in (narrow, wide)]
    assert times[0] == pytest.approx(times[1])
    layers = [op for op in layer_operators(inputs) if op.name == "down"]
    assert operator_times(layers, narrow.device)[0].forward_s < 0.7 * operator_times(layers, wide.device)[0].forward_s


def test_products_by_rows_are_slower() -> None:
    """Three quarters of the rate, 4/3 of the time where compute decides."""
    rows, whole = (
        asked(stack="generic", train__fp8_recipe=recipe).device.matmul for recipe in ("rowwise", "tensorwise")
    )
    assert rows.effective_flops_efficiency == pytest.approx(0.75 * whole.effective_flops_efficiency)
    assert whole.cast_bytes_per_element == 0


@pytest.mark.parametrize(
    ("stack", "gpu", "recipe"),
    [
        ("megatron-lm", "h100-sxm-80gb", "delayed"),
        ("nemo@25.02", "b200", "delayed"),
        ("megatron-bridge", "h100-sxm-80gb", "tensorwise"),
        ("megatron-bridge", "b200", "mxfp8"),
        ("torchtitan@0.2", "h100-sxm-80gb", "tensorwise"),
        ("torchtitan", "h100-sxm-80gb", "rowwise"),
    ],
)
def test_stacks_have_a_recipe_by_release_and_hardware(stack: str, gpu: str, recipe: str) -> None:
    resolved = ask({**BASE, "job": "sft", "stack": stack, "gpu": gpu})
    assert (resolved.values.train.fp8_recipe, resolved.origins["train.fp8_recipe"]) == (recipe, "stack")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"stack": "nemo", "train.fp8_recipe": "rowwise"}, "nemo has no recipe rowwise"),
        ({"stack": "nemo", "train.fp8_recipe": "mxfp8"}, "h100-sxm-80gb does not scale blocks"),
        ({"stack": "nemo", "train.fp8_recipe": "delayed", "precision": "bf16"}, "products in fp8, not bf16"),
    ],
)
def test_recipes_that_cannot_be_are_refused(flags: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ask({**BASE, "job": "sft", **flags})


def kept(job: Job, *modules: str) -> float:
    """Bytes of inputs that wait for the weights' gradients in a layer."""
    operators = layer_operators(graph_inputs(job, layouts(), np.array([TOKENS])))
    return sum(float(np.max(op.saved_bytes)) for op in operators if op.name in modules)


@pytest.mark.parametrize(
    ("stack", "precision", "gpu", "size"),
    [("nemo", "bf16", "b200", 2), ("nemo", "fp8", "h100-sxm-80gb", 1), ("nemo", "fp4", "b200", 0.5625),
     ("generic", "fp8", "h100-sxm-80gb", 2)],
)  # fmt: skip
def test_inputs_wait_in_what_they_were_cast_to(stack: str, precision: str, gpu: str, size: float) -> None:
    """Transformer Engine keeps columns, torchao the 16-bit input."""
    job = asked(stack=stack, precision=precision, gpu=gpu)
    assert kept(job, "qkv", "gate and up", "down") == pytest.approx(size * TOKENS * (2 * HIDDEN + FFN))


@pytest.mark.parametrize(
    ("stack", "recipe", "each"), [("megatron-lm", "delayed", 2), ("nemo", "delayed", 0), ("generic", "tensorwise", 0)]
)
def test_rows_and_columns_of_weights_stay(stack: str, recipe: str, each: float) -> None:
    """Of 32 layers, where the weights themselves stay 16 bit."""
    job = asked(stack=stack, train__fp8_recipe=recipe, gpu="h200-sxm-141gb")
    copies = memory_ledger(job, layouts()).components.get("narrow copies of weights")
    assert (0 if copies is None else float(copies.max())) == pytest.approx(each * LAYERS * WEIGHTS)
