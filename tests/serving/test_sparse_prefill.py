"""Attention whose queries pick their keys from a cache: over the latent, with as many heads as the kernel takes."""

from __future__ import annotations

import pytest
from serving_cases import job

from xe_sizer.graph.operators import Attention
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.step_time import Work, step_time

TOP_K, HEADS, LATENT, ROTARY = 2048, 128, 512, 64  # DeepSeek-V3.2
PROMPT, DECODE = Work(prefills=1, prefill_tokens=8192), Work(decodes=4, decode_past=8192)


def kernel(work: Work, tp: int, model: str = "deepseek-v3.2", engine: str = "vllm") -> Attention:
    made = job(model, server="nvidia-dgx-h200", serve__engine=engine)
    layers = step_time(made, ReplicaLayouts.of(tp=tp), work).step.layers
    return next(op for op in layers if isinstance(op, Attention) and op.name == "attention")


@pytest.mark.parametrize(("tp", "heads"), [(1, HEADS), (2, 64), (4, 64), (8, 64)])
def test_prompts_attend_over_the_latent_with_heads_that_the_kernel_takes(tp: int, heads: int) -> None:
    found = kernel(PROMPT, tp)
    assert (found.qk_head_dim, found.v_head_dim) == (LATENT + ROTARY, LATENT)
    assert found.heads[0] == heads
    assert found.pairs[0] == TOP_K * (TOP_K + 1) / 2 + (8192 - TOP_K) * TOP_K


def test_decodes_read_the_cache_once_and_dense_attention_has_its_own_heads() -> None:
    assert kernel(DECODE, 8).heads[0] == HEADS / 8
    dense = kernel(PROMPT, 8, "deepseek-v3")
    assert (dense.heads[0], dense.qk_head_dim, dense.v_head_dim) == (HEADS / 8, 192, 128)


def test_eight_ranks_attend_no_faster_than_two() -> None:
    """Each pads its heads to 64."""

    def seconds(tp: int) -> float:
        made = job("deepseek-v3.2", server="nvidia-dgx-h200")
        return float(step_time(made, ReplicaLayouts.of(tp=tp), PROMPT).parts["attention"][0])

    assert seconds(8) == pytest.approx(seconds(2), rel=0.02)
    assert seconds(2) < 0.6 * seconds(1)
