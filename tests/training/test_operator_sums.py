"""Operators add up to the parts of a step; what the backward of one holds, and a pipeline's bubble, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.graph.operators import Attention, Matmul, MemoryBound, Scan
from xe_sizer.training.activations import temporary_bytes
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.padding import Sequences
from xe_sizer.training.step_time import operator_costs, timeline

KERNELS = ("forward", "backward", "recompute", "frozen forward")
EXCHANGES = tuple(f"{group}-parallel communication" for group in ("tensor", "context", "expert"))
NONE = np.zeros(1)


@pytest.mark.parametrize(
    ("model", "sizes", "layers"),
    [
        ("llama-2-7b", {"recompute": 1}, None),
        ("llama-2-7b", {"tp": 2, "recompute": 2}, None),
        ("llama-2-7b", {"tp": 2, "recompute": 2}, 8),
        ("llama-2-7b", {"cp": 2, "recompute": 1}, None),
        ("llama-2-7b", {"tp": 2, "pp": 2, "recompute": 0}, None),
        ("mixtral-8x7b", {"dp": 8, "ep": 8, "recompute": 2}, None),
    ],
)
@pytest.mark.parametrize("forwards", [0, 1])
def test_operators_add_up_to_every_part(model: str, sizes: dict[str, int], layers: int | None, forwards: int) -> None:
    made = job(model, stack="megatron-lm", train__seq_len=2048, train__padding="packed")
    made = replace(
        made, recompute_layers=layers, method=replace(made.method, frozen=(Frozen("teacher", forwards=forwards),))
    )
    line = timeline(made, layouts(grad_accum=4, **sizes))
    costs = operator_costs(line)
    for name in (*KERNELS, *EXCHANGES):
        expected = float(line.components[name][0])
        assert sum(cost.parts.get(name, 0.0) for cost in costs) == pytest.approx(expected, rel=1e-6, abs=1e-12), name


def test_two_equal_stages_wait_for_one_micro_batch() -> None:
    """1F1B (arXiv:2104.04473): (p - 1)(t_f + t_b), here the micro-batch of the stage that is not the slowest."""
    made = job(stack="megatron-lm", train__seq_len=2048, train__padding="packed")
    chosen = layouts(pp=2, grad_accum=8)
    first_s, last_s, _ = Evaluation(made, chosen, Sequences.of_length(np.array([2048.0]))).stage_s[:, 0]
    found = timeline(made, chosen).components["pipeline bubble"]
    assert found == pytest.approx(min(first_s, last_s), rel=1e-9)


def test_what_the_backward_of_an_operator_holds_for_the_moment() -> None:
    """Gradients of outputs and inputs: 2 bytes of m (n + k) of each copy, of a slice of the rows where there are."""
    sizes = {"m": np.array([10.0]), "n": np.array([20.0]), "k": np.array([30.0]), "copies": np.array([8.0])}
    flags = {"input_gradient": True, "weight_gradient": True, "learns": True}
    product = Matmul("up", "mlp", 1.0, NONE, **sizes, **flags)
    assert temporary_bytes(product, 2.0) == 2 * 8 * 10 * 50
    assert temporary_bytes(replace(product, tiles=np.array([4.0])), 2.0) == 2 * 8 * 10 * 50 / 4
    states = (np.array([2.0]), np.array([2.0]), np.array([2.0]), np.array([2.0]))
    assert (
        temporary_bytes(Scan("scan", "mixer", 1.0, NONE, (states,), np.array([7.0]), NONE, NONE, 5.0, "mamba-2"), 2.0)
        == 21
    )
    moving = MemoryBound("norm", "norm", 1.0, NONE, NONE, NONE, 1.0, 1.0, np.array([5.0]))
    assert temporary_bytes(moving, 2.0) == 5


@pytest.mark.parametrize(("each", "expected"), [(0.0, 1440.0), (6.0, 720.0 + 6 * 300.0), (1.0, 1440.0)])
def test_what_the_backward_of_attention_holds(each: float, expected: float) -> None:
    """Gradients of Q, K, V and output; unfused, of half of them and so many bytes of 3 x 4 x 25 scores, if more."""
    one = {"batch": 3.0, "heads": 4.0, "kv_heads": 2.0, "query": 5.0, "key": 5.0, "pairs": 15.0}
    heads = {"qk_head_dim": 2, "v_head_dim": 6, "kernel": "eager", "statistics_bytes": NONE}
    arrays = {name: np.array([size]) for name, size in one.items()}
    core = Attention("core", "attention", 1.0, NONE, **arrays, **heads, score_temporary_bytes=each)  # type: ignore[arg-type]
    operands = 2 * (3 * 4 * 5 * 8 + 3 * 2 * 5 * 8)
    assert operands == 1440
    assert temporary_bytes(core, 2.0) == expected


def test_gradients_of_adapters_come_with_the_first_backward_at_the_latest() -> None:
    """4,194,304 float32 gradients; head and table learn nothing, so that none come with the last layer."""
    made = job(kind="lora", stack="hf-bf16", lora__rank=8, lora__targets=["q", "v"])
    found = memory_ledger(made, layouts(), np.array([512.0])).components["gradients"][0, :, 0]
    assert found.tolist() == [0, 0, 0] + [4 * 4_194_304] * 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"nodes": 1, "layout.tp": 3}, "8 GPUs cannot hold a layout of tp x pp x cp x dp = 3"),
        ({"nodes": 2, "limits.max_gpus": 15}, "16 GPUs are asked for, but at most 15 allowed"),
        ({"gpus": 8, "layout.tp": 2, "layout.pp": 2, "train.global_batch": 3}, "a global batch of 3 .* over dp 2"),
    ],
)
def test_numbers_that_do_not_add_up_are_refused(flags: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask({"model": "llama-2-7b", "job": "sft", **flags})


@pytest.mark.parametrize(
    "flags",
    [
        {"nodes": 2, "limits.max_gpus": 16},
        {"nodes": 1, "layout.tp": 2, "layout.dp": 4, "train.global_batch": 8},
        {"gpus": 8, "layout.dp": 8, "train.micro_batch": 2, "train.global_batch": 32},
    ],
)
def test_numbers_that_add_up_are_not(flags: dict[str, object]) -> None:
    assert ask({"model": "llama-2-7b", "job": "sft", **flags}).job.model.name == "llama-2-7b"
