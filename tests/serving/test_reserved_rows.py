"""Grouped products over rows that are reserved for the worst case, as vLLM ran DeepGEMM's until 0.14."""

from __future__ import annotations

import numpy as np
import pytest
from serving_cases import job

from xe_sizer.graph.experts import expert_rows, reserved_rows
from xe_sizer.graph.operators import Kernels, Matmul, MemoryBound
from xe_sizer.serving.job import PERSISTENT_GAIN, PERSISTENT_SHARPNESS, ReplicaLayouts
from xe_sizer.serving.step_time import Work, step_time

MOE = "qwen3-235b-a22b"  # 128 experts, 8 for each token, 94 layers of 4,096, experts of 1,536
BLOCKS = {"serve__weights": "fp8-block", "gpu": "h200-sxm-141gb"}


def rows(work: Work, placement: ReplicaLayouts, **flags: object) -> list[tuple[float, float]]:
    """Rows of one expert, and experts, of each grouped product."""
    hardware = {"gpu": None} if "server" in flags else {}
    made = job(MOE, **{key: value for key, value in (BLOCKS | hardware | flags).items() if value})
    layers = step_time(made, placement, work).step.layers
    return [(float(op.m[0]), float(op.copies[0])) for op in layers if isinstance(op, Matmul) and op.grouped]


def test_rows_of_one_expert_and_of_all() -> None:
    one = np.ones(1)
    kernels = Kernels(expert_tile=128.0)
    m, passing = expert_rows(kernels, 128.0 * one, 128.0 * one, 80.0 * one, 128.0 * one, one > 0)
    assert passing[0] == 128 + 128 * 127
    assert m[0] == pytest.approx((128 + 128 * 127) / 80, rel=1e-12)
    m, passing = expert_rows(kernels, 128.0 * one, 128.0 * one, 80.0 * one, 128.0 * one, one < 0)
    assert passing[0] == 128
    assert m[0] == pytest.approx(128 / 80 + 8, rel=1e-12)  # half of the smallest tile of 16


def test_a_decode_step_of_the_releases_that_reserve_them_computes_rows_for_every_expert() -> None:
    work, tp = Work(decodes=16, decode_past=1000), ReplicaLayouts.of(tp=2)
    touched = [copies for _, copies in rows(work, tp, serve__engine="vllm")]
    for m, copies in rows(work, tp, serve__engine="vllm@0.12"):
        assert touched == [copies, copies]
        assert m * copies == pytest.approx(16 * 8 + 128 * 127, rel=1e-12)
    for release in ("vllm", "vllm@0.16.1", "vllm@0.11.0", "vllm@0.10.2"):
        assert all(m < 20 for m, _ in rows(work, tp, serve__engine=release))


def test_a_rank_that_has_all_tokens_reserves_rows_for_all_of_their_copies() -> None:
    work, split = Work(prefills=1, prefill_tokens=8000), ReplicaLayouts.of(tp=4, ep=4)
    for m, copies in rows(work, split, serve__engine="vllm@0.12", server="nvidia-dgx-h200"):
        assert copies == pytest.approx(32, rel=1e-6)
        assert m * copies == pytest.approx(8000 * 8 + 32 * 127, rel=1e-6)
    assert all(m < 8000 * 8 / 128 * 1.5 for m, _ in rows(work, split, serve__engine="vllm", server="nvidia-dgx-h200"))


def test_only_with_scales_of_blocks_on_accelerators_that_have_the_kernels_and_experts_in_few_parts() -> None:
    work, tp = Work(decodes=16, decode_past=1000), ReplicaLayouts.of(tp=2)
    new, old = "vllm", "vllm@0.12"
    for flags in ({"serve__weights": "fp8"}, {"serve__weights": "bf16"}, {"gpu": "l40s"}):
        assert rows(work, tp, serve__engine=old, **flags) == rows(work, tp, serve__engine=new, **flags)
    eight = ReplicaLayouts.of(tp=8)
    assert rows(work, eight, serve__engine=old) == rows(work, eight, serve__engine=new)
    assert rows(work, tp, serve__engine="vllm@0.11.0", gpu="b200") == rows(work, tp, serve__engine=old, gpu="b200")


def test_the_law_of_these_products() -> None:
    assert job(MOE, **BLOCKS, serve__engine="vllm").device.reserved_matmul is None
    made = job(MOE, **BLOCKS, serve__engine="vllm@0.12").device
    new, old = made.expert_matmul, made.reserved_matmul
    assert new == job(MOE, **BLOCKS, serve__engine="vllm").device.expert_matmul
    assert old is not None
    assert old.effective_flops_efficiency == pytest.approx(PERSISTENT_GAIN * new.effective_flops_efficiency)
    assert (old.sharpness, old.cast_bytes_per_element) == (PERSISTENT_SHARPNESS, 0.0)
    assert old.floor_s == new.floor_s


def test_the_time_of_a_decode_step_hardly_depends_on_its_sequences() -> None:
    """Measured: 51 to 59 ms a token on two H200 with 4 to 20 sequences, 34 to 46 ms on four with 8 to 48."""

    def seconds(sequences: float, tp: int, engine: str) -> float:
        made = job(MOE, **BLOCKS, serve__engine=engine)
        placement = ReplicaLayouts.of(tp=tp)
        return float(step_time(made, placement, Work(decodes=sequences, decode_past=2000)).total_s[0])

    assert 0.042 < seconds(4, 2, "vllm@0.12") < seconds(20, 2, "vllm@0.12") < 0.062
    assert 0.03 < seconds(16, 4, "vllm@0.12") < 0.042
    assert seconds(4, 2, "vllm") < 0.4 * seconds(4, 2, "vllm@0.12")


@pytest.mark.parametrize(
    ("tokens", "width", "hidden", "reserved"),
    [
        (128, 640, 4096, True),
        (127, 640, 4096, False),  # a decode step of few sequences
        (8192, 512, 4096, False),
        (8192, 384, 4096, False),  # a quarter of an expert of Qwen3-235B
        (8192, 576, 4096, False),  # no multiple of 128
        (8192, 640, 4000, False),
    ],
)
def test_where_scales_are_no_powers_of_two_sizes_decide(tokens: int, width: int, hidden: int, reserved: bool) -> None:
    sizes = [np.array([float(size)]) for size in (tokens, width, hidden, 2)]
    gated, always, split = (
        Kernels(reserved_below=below, reserved_gated=gated)
        for below, gated in ((8.0, True), (8.0, False), (2.0, False))
    )
    for kernels, expected in ((gated, reserved), (always, True), (split, False)):
        rows = reserved_rows(kernels, *sizes)
        assert rows is not None
        assert rows.tolist() == [expected]
    assert reserved_rows(Kernels(), *sizes) is None


def test_on_hopper_they_did_in_one_release_and_on_blackwell_never() -> None:
    """vLLM 0.11.0: prompts in parts of 768 on two ranks run in DeepGEMM, in parts of 384 on four in Triton."""
    prompt, decode = Work(prefills=1, prefill_tokens=4000), Work(decodes=16, decode_past=1000)
    two, four = ReplicaLayouts.of(tp=2), ReplicaLayouts.of(tp=4)

    def reserved(work: Work, placement: ReplicaLayouts, **flags: object) -> bool:
        return rows(work, placement, **flags) != rows(work, placement, **{**flags, "serve__engine": "vllm@0.10.2"})

    hopper = {"serve__engine": "vllm@0.11.0", "server": "nvidia-dgx-h200"}
    blackwell = {"serve__engine": "vllm@0.11.0", "server": "nvidia-dgx-b200"}
    assert [reserved(prompt, each, **hopper) for each in (two, four)] == [True, False]
    assert [reserved(decode, each, **hopper) for each in (two, four)] == [False, False]
    assert all(reserved(work, each, **blackwell) for work in (prompt, decode) for each in (two, four))
    assert all(reserved(decode, each, **{**hopper, "serve__engine": "vllm@0.12"}) for each in (two, four))


def test_only_points_whose_rows_are_reserved_follow_the_law_of_these_kernels() -> None:
    """Eight ranks run in Triton: their products take what those of an engine without reserved rows take."""
    work, eight = Work(decodes=16, decode_past=1000), ReplicaLayouts.of(tp=8)
    old, new = (
        step_time(job(MOE, **{**BLOCKS, "gpu": None}, server="nvidia-dgx-h200", serve__engine=name), eight, work)
        for name in ("vllm@0.12", "vllm@0.10.2")
    )
    assert float(old.parts["linear layers"][0]) == float(new.parts["linear layers"][0])


def moved(engine: str, placement: ReplicaLayouts, **flags: object) -> tuple[dict[str, float], list[Matmul]]:
    """Bytes that a step of 8,000 tokens moves in a layer, by operator, and the grouped products of its experts."""
    made = job(MOE, **{**BLOCKS, "serve__engine": engine, **flags})
    layers = step_time(made, placement, Work(prefills=1, prefill_tokens=8000)).step.layers
    around = {op.name: float(op.forward_bytes[0]) for op in layers if isinstance(op, MemoryBound)}
    return around, [op for op in layers if isinstance(op, Matmul) and op.grouped]


def test_kernels_of_triton_read_tokens_by_their_index_and_cast_each_once() -> None:
    """SGLang on Hopper: 8 copies of 4,096 elements of 2 bytes; a sum reads them and writes tokens."""
    copies, tp = 8000 * 8, ReplicaLayouts.of(tp=2)
    around, (first, second) = moved("sglang", tp)
    assert around["dispatch"] == 2 * 4 * copies
    assert around["combine"] == (1 + 1 / 8) * copies * 4096 * 2
    assert first.cast_rows is not None
    assert second.cast_rows is not None
    assert first.cast_rows * first.copies == pytest.approx(8000)
    assert second.cast_rows * second.copies == pytest.approx(copies)


def test_other_kernels_gather_the_copies_first() -> None:
    """FlashInfer's of vLLM on Hopper, and DeepGEMM's over reserved rows before."""
    gathered, tp = 2 * 8000 * 8 * 4096 * 2, ReplicaLayouts.of(tp=2)
    around, products = moved("vllm", tp)
    assert (around["dispatch"], around["combine"]) == (gathered, gathered)
    assert [op.cast_rows for op in products] == [None, None]
    assert moved("vllm@0.12", tp)[0]["dispatch"] == gathered
    assert moved("vllm@0.12", tp, serve__weights="bf16")[0]["dispatch"] < gathered / 1000
