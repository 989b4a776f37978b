"""What transformers did otherwise by release, and kernels of packed weights: each figure from its own arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from serving_cases import job

from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.memory import static_peak
from xe_sizer.serving.step_time import EngineStep, StepTime, Work, step_time

A100 = "a100-sxm-80gb"
PROMPT, VOCAB, FFN = 30_720, 152_064, 18_944


def step(name: str, engine: str, work: Work, **more: object) -> StepTime:
    made = job(name, serve__engine=engine, **more)
    return step_time(made, ReplicaLayouts.of(), work)


def kernel_s(time: StepTime, name: str) -> float:
    """Seconds of one operator."""
    inner: EngineStep = time.step
    return float(sum(seconds for operator, seconds in inner.times if operator.name == name)[0])


def parts(engine: str) -> dict[str, float]:
    made = job("qwen2.5-7b", serve__engine=engine)
    return {key: float(value[0]) for key, value in static_peak(made, ReplicaLayouts.of(), 1, PROMPT, 2048).items()}


def test_logits_of_the_whole_prompt_are_gone_since_4_45() -> None:
    older, newer = parts("hf-transformers@4.44"), parts("hf-transformers@4.45")
    assert older["logits"] == PROMPT * VOCAB * (2 + 4)
    assert newer["logits"] == VOCAB * (2 + 4)
    assert older["weights"] == newer["weights"]


def test_gate_up_and_their_product_are_held_together() -> None:
    """Three tensors of the MLP's width beside three of the hidden size: what 30,720 tokens of Qwen2.5-7B add."""
    assert parts("hf-transformers@4.46")["activations"] == PROMPT * (3 * 3584 + 3 * FFN) * 2


def test_a_peak_of_transformers_4_46_is_the_published_one() -> None:
    """Qwen2.5's speed page: 19.97 GiB for 7B in bf16 at 30,720 tokens on A100 (transformers 4.46)."""
    assert sum(parts("hf-transformers@4.46").values()) / 2**30 == pytest.approx(19.97, rel=0.03)


@pytest.mark.parametrize(("engine", "visited"), [("hf-transformers@4.51", 128.0), ("hf-transformers@4.57", 8.0)])
def test_a_loop_comes_to_all_experts_or_to_those_that_were_picked(engine: str, visited: float) -> None:
    """Seven kernels find an expert's tokens, three add up what it gives; 5 launches a grouped product instead."""
    time = step("qwen3-30b-a3b", engine, Work(decodes=1, decode_past=100))
    launched = {op.name: op.forward_launches for op in time.step.layers if op.name in ("dispatch", "combine")}
    assert float(np.ravel(launched["dispatch"])[0]) == pytest.approx(7.0 * visited)
    assert float(np.ravel(launched["combine"])[0]) == pytest.approx(3.0 * visited)


def test_experts_in_a_loop_take_many_times_as_long_as_grouped_ones() -> None:
    work = Work(decodes=1, decode_past=100)
    everyone, hit, grouped = (
        float(step("qwen3-30b-a3b", f"hf-transformers@{release}", work).total_s[0]) for release in ("4.51", "4.57", "5")
    )
    # 120 experts without a token x 12 launches (7 before, 2 for the activation, 3 after) x 19.1 us x 48 layers.
    assert everyone - hit == pytest.approx(120 * 12 * 19.1e-6 * 48, rel=0.02)
    assert 1.8 < hit / grouped < 5


def test_keys_and_values_are_copied_to_all_heads_before_4_54() -> None:
    """Copied: 4 heads read and 28 written; and the attention kernel reads 28 heads instead of 4."""
    work = Work(decodes=1, decode_past=120_000)
    older, newer = (step("qwen2.5-7b", f"hf-transformers@{release}", work) for release in ("4.53", "4.54"))
    joined, kept = (kernel_s(time, "cache write") for time in (older, newer))
    assert joined / kept == pytest.approx((2 * 4 + 28 + 4) / (2 * 4), rel=0.03)
    assert kernel_s(older, "attention") > 5 * kernel_s(newer, "attention")


def test_the_smallest_product_of_packed_weights_takes_11_us_in_vllm() -> None:
    """Four products in each of 24 layers: Qwen2.5-0.5B decodes slower in 4 bit than in 16 (published too)."""
    work = Work(decodes=1, decode_past=1000)
    wide, packed = (
        step("qwen2.5-0.5b", "vllm@0.6.3", work, gpu=A100, serve__weights=name) for name in ("bf16", "int4")
    )
    assert packed.total_s[0] > wide.total_s[0]
    assert packed.parts["linear layers"][0] > 4 * 24 * 11e-6
    large = [
        step("qwen2.5-32b", "vllm@0.6.3", work, gpu=A100, serve__weights=name).total_s[0] for name in ("bf16", "int4")
    ]
    assert large[0] / large[1] > 2.3  # published: 22.1 and 55.8 tokens/s


def test_rows_from_which_weights_are_widened_have_the_whole_rate() -> None:
    """AutoAWQ's kernel multiplies fewer than 1,024 rows at 0.3 of the rate; more, after 3 bytes a weight were moved."""
    few, many, wide = (
        step("llama-2-7b", "hf-transformers@4.46", Work(prefills=1, prefill_tokens=rows), serve__weights=name)
        for rows, name in ((1023, "awq"), (1024, "awq"), (1024, "fp16"))
    )
    products = [time.parts["linear layers"][0] for time in (few, many, wide)]
    assert products[0] > 2 * products[2]
    assert products[1] == pytest.approx(products[2], rel=0.35)
    widened = many.parts["memory-bound operators"][0] - wide.parts["memory-bound operators"][0]
    weights = 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    assert widened == pytest.approx(3 * weights / (0.6 * 0.9 * 3.35e12), rel=0.2)
