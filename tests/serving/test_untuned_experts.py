"""Grouped products of experts without a tuned table: slower, said, and with a range of their own."""

import numpy as np
import pytest
from serving_cases import asked, job, served

from xe_sizer.graph.operators import Matmul
from xe_sizer.serving.job import ReplicaLayouts, untuned
from xe_sizer.serving.step_time import Work, step_time
from xe_sizer.serving.summary import find_warnings
from xe_sizer.serving.uncertainty import Tested, conditions

QWEN = "qwen3-30b-a3b"  # 128 experts of 768
HOPPER = {"gpu": "h100-sxm-80gb", "serve__engine": "vllm@0.10.2"}


def test_a_rank_looks_for_its_experts_and_its_slice_of_each() -> None:
    """vLLM 0.10.2 on H100 has 128 x 192 in 16 bit: experts over 4 ranks, and neither whole nor two to a rank."""
    layouts = ReplicaLayouts.of(tp=[1, 4, 4], ep=[1, 1, 4])
    assert untuned(job(QWEN, **HOPPER), layouts).tolist() == [True, False, True]


@pytest.mark.parametrize(
    "flags",
    [
        {"gpu": "h100-sxm-80gb", "serve__engine": "tensorrt-llm"},  # CUTLASS
        {"gpu": "b200", "serve__engine": "vllm"},  # FlashInfer
        {"gpu": "h100-sxm-80gb", "serve__engine": "vllm", "serve__weights": "int4"},  # Marlin
        {"gpu": "h100-sxm-80gb", "serve__engine": "vllm@0.11", "serve__weights": "fp8-block"},  # DeepGEMM
        {"gpu": "h100-sxm-80gb", "serve__engine": "vllm", "serve__weights": "fp8-block"},  # FlashInfer's CUTLASS
    ],
)
def test_other_kernels_need_no_table(flags: dict[str, str]) -> None:
    assert not untuned(job(QWEN, **flags), ReplicaLayouts.of(tp=3))[0]


@pytest.mark.parametrize("work", [{"decodes": 8.0, "decode_past": 1000.0}, {"prefills": 1.0, "prefill_tokens": 4000.0}])
def test_grouped_products_take_longer_and_nothing_else_does(work: dict[str, float]) -> None:
    """By 1 / 0.83 before 0.17, prompts as decodes; as 4 ranks have a table, the same job without it is 0.6.0's."""
    layout = ReplicaLayouts.of(tp=4)
    with_table, without = (
        step_time(job(QWEN, gpu="h100-sxm-80gb", serve__engine=f"vllm@{release}"), layout, Work(**work)).step
        for release in ("0.10.2", "0.8.4")
    )
    for (operator, tuned_s), (_, plain_s) in zip(with_table.times, without.times, strict=True):
        grouped = isinstance(operator, Matmul) and operator.grouped
        factor = 1.0 / 0.83 if grouped else 1.0
        np.testing.assert_allclose(plain_s, factor * tuned_s, rtol=1e-12)


def test_the_speed_of_light_needs_no_table() -> None:
    work, layout = Work(decodes=8.0, decode_past=1000.0), ReplicaLayouts.of(tp=2)
    flags = {"gpu": "h100-sxm-80gb", "efficiency__ideal": True}
    old, new = (
        step_time(job(QWEN, serve__engine=f"vllm@{release}", **flags), layout, work).parts["linear layers"][0]
        for release in ("0.10.2", "0.18")
    )
    assert old == new


def test_block_sizes_by_the_number_of_tokens_are_nearly_as_good() -> None:
    shares = [job(QWEN, serve__engine=f"vllm@{one}").engine.efficiency.untuned for one in ("0.16.1", "0.17")]
    assert shares == [0.83, 0.95]


def test_the_answer_says_that_no_kernel_is_tuned() -> None:
    plain, tuned = (
        [text for text in find_warnings(served(QWEN, layout__tp=tp, layout__ep=1, **HOPPER)) if "tuned kernel" in text]
        for tp in (2, 4)
    )
    assert plain == [
        "vllm has no tuned kernel for experts of this size on h100-sxm-80gb: they are slower, by a share that varies"
    ]
    assert tuned == []


def test_ranges_know_of_tables_and_of_libraries_that_users_tune() -> None:
    found = [
        conditions(asked(model, **flags), Tested())[-1]
        for model, flags in (
            ("llama-3.1-8b", HOPPER),
            (QWEN, {**HOPPER, "layout__tp": 4}),
            (QWEN, {**HOPPER, "layout__tp": 2}),
        )
    ]
    assert found == ["dense", "experts", "experts without a tuned kernel"]
    assert [conditions(asked(gpu=gpu), Tested())[2] for gpu in ("mi300x", "h100-sxm-80gb")] == ["on AMD", "not on AMD"]


def test_narrow_experts_of_many_had_slower_kernels() -> None:
    """Read off DeepSeek-V3 in AWQ on eight A100: vLLM pull request 13321."""
    old, new, sglang = (
        job("deepseek-v3", gpu="a100-sxm-80gb", serve__weights="awq", serve__engine=engine)
        for engine in ("vllm@0.8.4", "vllm@0.8.5", "sglang@0.4.9")
    )
    assert old.device.matmul.memory_efficiency == pytest.approx(new.device.matmul.memory_efficiency)
    shares = [one.device.expert_matmul.memory_efficiency for one in (old, new, sglang)]
    assert shares[0] / shares[1] == pytest.approx(0.22 / 0.9)
    assert shares[2] / shares[1] == pytest.approx(0.09 / 0.9)
    few = [job("mixtral-8x7b", serve__weights="awq", serve__engine=f"vllm@{one}") for one in ("0.8.4", "0.8.5")]
    assert few[0].device.expert_matmul.memory_efficiency == few[1].device.expert_matmul.memory_efficiency


def test_the_speed_of_marlin_for_experts() -> None:
    """Both products of a layer of Mixtral on one H100, timed by FlagGems with vLLM's Marlin (pull request 4350) [ms].

    The law stays within a quarter of all of them; the measured tokens are spread evenly over the experts.
    """
    measured = {1: 0.0956, 8: 0.217, 32: 0.297, 128: 0.494, 512: 1.459, 4096: 9.91}
    made = job("mixtral-8x7b", gpu="h100-sxm-80gb", serve__engine="vllm", serve__weights="int4")
    tokens = np.array(list(measured), dtype=float)
    step = step_time(made, ReplicaLayouts.of(tp=np.ones(len(tokens))), Work(prefills=1.0, prefill_tokens=tokens)).step
    layer_s = sum(s / one.layers for one, s in step.times if isinstance(one, Matmul) and one.grouped)
    np.testing.assert_allclose(1e3 * np.asarray(layer_s), list(measured.values()), rtol=0.25)
