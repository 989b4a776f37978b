"""Policies of recomputation by name, as MaxText has them, and what XLA holds on a TPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import REGISTRY, ask, job, layouts

from xe_sizer.errors import InputError
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import SELECTIVE
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.padding import Sequences
from xe_sizer.training.step_time import timeline

TOKENS, HIDDEN, HEADS, FFN, LAYERS = 8192, 4096, 4096, 14336, 32  # of Llama 3.1 8B; keys and values are 1,024 wide
POLICY: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "kind": "pretrain",
    "stack": "maxtext",
    "gpu": "tpu-v6e",
    "train__seq_len": TOKENS,
}


def evaluation(**changes: Any) -> Evaluation:
    made, layout = job(**POLICY, **changes), layouts(recompute=SELECTIVE, dp=8, zero=3)
    return Evaluation(made, layout, Sequences.of_length(np.full(len(layout), float(TOKENS))))


def kept(**changes: Any) -> float:
    """Bytes of a layer for each token, on the card."""
    return float(evaluation(**changes).saved.kept[0]) / TOKENS


@pytest.mark.parametrize(
    ("policy", "card", "host"),
    [
        ("save_qkv_proj", 2 * (HIDDEN + HEADS + 2 * 1024), 0.0),
        ("save_out_proj", 2 * (HIDDEN + HIDDEN), 0.0),
        ("minimal", 2 * (HIDDEN + HEADS + 2 * 1024 + HIDDEN + 2 * FFN), 0.0),
        ("qkv_proj_offloaded", 2 * HIDDEN, 2 * (HEADS + 2 * 1024)),
        ("minimal_offloaded", 2 * HIDDEN, 2 * (HEADS + 2 * 1024 + HIDDEN + 2 * FFN)),
        ("full", 2 * HIDDEN, 0.0),
    ],
)
def test_a_policy_keeps_what_maxtext_lists(policy: str, card: float, host: float) -> None:
    found = evaluation(layout__recompute_policy=policy).saved
    assert float(found.kept[0]) / TOKENS == pytest.approx(card)
    assert float(found.hosted[0]) / TOKENS == pytest.approx(host)


def test_tensors_and_a_policy_that_lists_them_are_the_same() -> None:
    named = kept(layout__recompute_policy="save_qkv_proj")
    assert kept(layout__recompute_keep=["query_proj", "key_proj", "value_proj", "qkv_proj"]) == named


def test_tensors_in_host_memory_take_it_and_two_layers_of_the_card() -> None:
    """All layers of a token on the host: 32 x 2 x (4,096 + 2 x 1,024) bytes; of the four chips of a host."""
    found = evaluation(layout__recompute_policy="qkv_proj_offloaded")
    waits = LAYERS * TOKENS * 2 * (HEADS + 2 * 1024)
    assert float(found.offloaded_activation_bytes.max()) == pytest.approx(waits)
    assert float(memory_ledger(found.job, found.layouts).host_bytes[0]) == pytest.approx(4 * waits)


def test_what_is_kept_takes_time_from_recomputation_and_gives_none_to_the_host() -> None:
    def parts(policy: str) -> dict[str, float]:
        made = evaluation(layout__recompute_policy=policy)
        return {name: float(part[0]) for name, part in timeline(made.job, made.layouts).components.items()}

    full, minimal, context = (parts(name) for name in ("full", "minimal", "minimal_with_context"))
    assert full["recompute"] > minimal["recompute"] > context["recompute"] > 0.0
    assert minimal.get("transfers to and from host memory", 0.0) == 0.0


def test_a_slow_host_is_waited_for() -> None:
    made = evaluation(layout__recompute_policy="minimal_offloaded")
    exposed = timeline(made.job, made.layouts).components["transfers to and from host memory"]
    assert float(exposed[0]) > 0.0


def test_a_tpu_has_no_contexts_and_a_gpu_does() -> None:
    """XLA counts against what the runtime has left; on a GPU CUDA and NCCL take their part of the card."""
    at_peak = [
        memory_ledger(job(**POLICY | {"gpu": gpu}), layouts(dp=8, zero=3, recompute=2)).at_peak()
        for gpu in ("tpu-v6e", "h100-sxm-80gb")
    ]
    assert [found.get("CUDA context", 0.0) > 0.0 for found in at_peak] == [False, True]
    assert [found.get("NCCL buffers", 0.0) > 0.0 for found in at_peak] == [False, True]


def test_a_compiler_gathers_two_matrices_and_the_head() -> None:
    """The largest of a layer has 4,096 x 14,336 elements, the head and its norm 4,096 x 128,257; each of 2 bytes."""
    found = memory_ledger(job(**POLICY), layouts(dp=8, zero=3, recompute=2)).components["gathered layers"][0]
    assert sorted(set(np.round(found[:, 0]))) == [0.0, 2 * 2 * HIDDEN * FFN, 2 * HIDDEN * 128257]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"layout.recompute_policy": "minimal_offload"}, "maxtext has no policy 'minimal_offload'"),
        ({"layout.recompute_policy": "minimal", "stack": "torchtitan"}, "torchtitan does not keep tensors by name"),
        ({"layout.recompute_policy": "minimal", "layout.recompute_keep": ["mlpwo"]}, "and so does recompute_keep"),
        (
            {"layout.recompute_keep": ["mlpwo"], "layout.recompute_offload": ["mlpwo"]},
            "mlpwo is kept on the GPU and in",
        ),
        ({"layout.recompute_keep": ["mlpwo"], "layout.recompute": "full"}, "is selective recomputation, not full"),
        ({"layout.recompute_keep": ["mlpwo"], "layout.recompute_modules": ["mlp"]}, "recompute_modules what is not"),
    ],
)
def test_what_contradicts_itself_is_refused(asked: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        ask({"model": "llama-3.1-8b", "job": "pretrain", "stack": "maxtext", "gpu": "tpu-v6e", "gpus": 8, **asked})


def test_half_an_ironwood_chip_has_half_of_what_google_publishes() -> None:
    """Per chip 2,307 TFLOP/s in bfloat16, 4,614 in 8 bit and 7,380 GB/s."""
    core = REGISTRY.accelerator("tpu-v7x-tensorcore")
    assert core.peak_flops_per_s["bf16"] == pytest.approx(2307e12 / 2)
    assert core.peak_flops_per_s["fp8"] == pytest.approx(4614e12 / 2)
    assert core.memory_bandwidth_bytes_per_s == pytest.approx(7380e9 / 2)
    part = REGISTRY.part_of("tpu-v7x")
    assert part is not None
    assert part.devices == 2
