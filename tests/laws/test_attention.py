"""Numbers worked out by hand from the law in the docstring."""

from __future__ import annotations

import numpy as np
import pytest
from cases import REGISTRY
from msgspec.structs import replace

from xe_sizer.laws.attention import AttentionLaw, attention_time_s, eager_attention_bytes
from xe_sizer.laws.device import Efficiency, device
from xe_sizer.profiles.catalogue import load_stack

LAW = AttentionLaw(
    floor_s=1e-5, flops_efficiency=0.5, half_length=1024.0, memory_efficiency=0.8, backward_flops_efficiency=0.25
)


def test_forward_by_hand() -> None:
    """1e9 FLOPs at half of 1e12 FLOP/s, doubled where s = s0; 8 MB at 0.8 of 1e10 bytes/s; 10 us."""
    seconds = attention_time_s(1e9, 8e6, 1024, LAW, 1e12, 1e10)
    assert seconds == pytest.approx(2 * 2e-3 + 1e-3 + 1e-5, rel=1e-12)


def test_backward_uses_its_own_efficiency() -> None:
    seconds = attention_time_s(1e9, 0.0, 1e12, LAW, 1e12, 1e10, backward=True)
    assert seconds == pytest.approx(4e-3 + 1e-5, rel=1e-6)


def test_no_flops_no_kernel() -> None:
    assert list(attention_time_s([0.0, 1e9], 1.0, 1024, LAW, 1e12, 1e10) > 0) == [False, True]


def test_longer_sequences_reach_more_of_the_peak() -> None:
    seconds = attention_time_s(1e9, 0.0, [128, 1024, 8192, 65536], LAW, 1e12, 1e10)
    assert np.all(np.diff(seconds) < 0)


def test_eager_attention_passes_over_all_scores() -> None:
    """2 sequences, 3 heads, 5 x 7 scores in 2 bytes: 420 bytes a pass, 8 passes forward and 10 backward."""
    assert eager_attention_bytes(2, 3, 5, 7, 2.0, backward=False) == 8 * 420
    assert eager_attention_bytes(2, 3, 5, 7, 2.0, backward=True) == 10 * 420
    assert eager_attention_bytes([1, 2], 3, 5, [7, 14], 2.0, backward=False).tolist() == [1680.0, 6720.0]


def test_a_fused_softmax_passes_over_the_scores_less_often() -> None:
    """Forward: write, read, write, read. Backward: 1 read, 1 write, 2 reads and 1 write, 2 reads. Dropout: 2.5 each."""
    for softmax, forward, backward in (("fused", 4, 7), ("fused-with-dropout", 6.5, 9.5)):
        assert eager_attention_bytes(2, 3, 5, 7, 2.0, backward=False, softmax=softmax) == forward * 420
        assert eager_attention_bytes(2, 3, 5, 7, 2.0, backward=True, softmax=softmax) == backward * 420


@pytest.mark.parametrize(
    ("server", "family"),
    [("nvidia-dgx-b200", "flash-3"), ("nvidia-dgx-a100-80gb", "flash-2")],
)
def test_pytorch_picks_the_kernels_of_cudnn_where_a_profile_has_them(server: str, family: str) -> None:
    gpu, factors = REGISTRY.server(server).accelerator, load_stack("generic").efficiency
    chosen, law = (device(gpu, "bf16", name, factors, Efficiency(), False).attention for name in ("sdpa", family))
    names = ("flops_efficiency", "backward_flops_efficiency", "half_length", "memory_efficiency", "floor_s")
    assert [getattr(chosen, name) for name in names] == [getattr(law, name) for name in names]


def test_a_query_without_keys_is_as_slow_as_one_key() -> None:
    """Half of the rate at half_length tokens, a third of it at half of them; sequences count as one token at least."""
    law = AttentionLaw(
        floor_s=0.0, flops_efficiency=0.5, half_length=8.0, memory_efficiency=1.0, backward_flops_efficiency=0.5
    )
    found = attention_time_s(1e6, 0.0, [0.0, 1.0, 4.0, 8.0], law, 1e6, 1e12)
    assert found == pytest.approx([18.0, 18.0, 6.0, 4.0])


@pytest.mark.parametrize(("gpu", "family", "narrow", "wide"), [
    ("h100-sxm-80gb", "flash-2", 324, 370), ("h100-sxm-80gb", "flash-3", 497, 648),
])  # fmt: skip
def test_narrow_heads_have_more_exponentials_for_each_product(
    gpu: str, family: str, narrow: float, wide: float
) -> None:
    """Forward of 16k tokens with heads of 64 and of 128: arXiv:2407.08608, figure 5."""
    law = replace(REGISTRY.accelerator(gpu).laws.attention[family], floor_s=0.0)
    narrow_s, wide_s, wider_s = attention_time_s(1e15, 0.0, 16384, law, 1e15, 1e12, head_dim=[64, 128, 256])
    assert narrow_s / wide_s == pytest.approx(wide / narrow, rel=0.005)
    assert wider_s == wide_s
