"""Optimizers of whole matrices: products, decompositions and gathering, by hand on a law of constant rates."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import job, layouts
from msgspec.structs import replace

from xe_sizer.laws.collectives import ALL_GATHER, collective_time_s
from xe_sizer.software.optimizer import Kept, LowRank, Squares
from xe_sizer.training import optimizer_step
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Layouts, Stages
from xe_sizer.training.model_states import Matrices
from xe_sizer.training.optimizer_step import (
    DECOMPOSITION_FLOP_PER_S,
    QR_FLOP_PER_S,
    gathering_s,
    low_rank_time_s,
    matrix_work_time_s,
    newton_schulz_time_s,
    preconditioning_time_s,
)

RATE = 1e12  # FLOP/s of every product


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job whose products all run at one rate."""

    def matmul_time_s(m: object, n: object, k: object, *law: object) -> object:
        return 2.0 * np.asarray(m) * np.asarray(n) * np.asarray(k) / RATE

    monkeypatch.setattr(optimizer_step, "matmul_time_s", matmul_time_s)
    return job("llama-2-7b", stack="megatron-lm", optimizer="muon")


@pytest.mark.parametrize(("rank", "inner"), [(64, 64), (512, 300)])
def test_a_gradient_is_projected_to_a_rank(steady: Job, rank: int, inner: int) -> None:
    """No rank above the shorter side; decomposed every 200 steps, 4 m^2 n + 22 m^3 FLOP, or drawn."""
    low = LowRank(rank=rank, basis=Kept(moments=1, packed_bytes=0.0), every=200, decomposed=True, products=2)
    products = 2 * 2 * 700 * 300 * inner / RATE
    decomposed = (4 * 300**2 * 700 + 22 * 300**3) / DECOMPOSITION_FLOP_PER_S / 200
    for sides in ((300, 700), (700, 300)):
        assert low_rank_time_s(*sides, low, steady.device) == pytest.approx(products + decomposed)
    drawn = msgspec.structs.replace(low, decomposed=False)
    assert low_rank_time_s(300, 700, drawn, steady.device) == pytest.approx(products)


@pytest.mark.parametrize("decomposed", ["qr", "root"])
def test_both_sides_of_a_matrix_are_preconditioned(steady: Job, decomposed: str) -> None:
    """In every step products with each square; every tenth two products of squares and 8/3 s^3 (QR) or 9 s^3."""
    squares = Squares(largest=1000, blocks=False, kept=2, products=6, every=10, decomposed=decomposed)  # type: ignore[arg-type]

    def side(s: int, other: int) -> float:
        anew = 8 / 3 * s**3 / QR_FLOP_PER_S if decomposed == "qr" else 9 * s**3 / DECOMPOSITION_FLOP_PER_S
        return 6 * 2 * s * other * s / RATE + (2 * 2 * s**3 / RATE + anew) / 10

    whole = preconditioning_time_s(300, 700, squares, steady.device)
    assert whole == pytest.approx(side(300, 700) + side(700, 300))
    short = msgspec.structs.replace(squares, largest=500)
    assert preconditioning_time_s(300, 700, short, steady.device) == pytest.approx(side(300, 700))
    # In blocks of 500 the longer side is 500 and 200, each of which meets the 300.
    blocks = msgspec.structs.replace(short, blocks=True)
    cut = side(300, 500) + side(500, 300) + side(300, 200) + side(200, 300)
    assert preconditioning_time_s(300, 700, blocks, steady.device) == pytest.approx(cut)


def test_whole_matrices_are_gathered_over_both_kinds_of_ranks(steady: Job) -> None:
    """6 matrices of 300 x 700 in 16 bit, held by 8 ranks of states and 2 tensor ranks."""
    shapes = layouts(dp=8, tp=2, zero=1)
    matrices = Matrices(300, 700, 6.0, split=True)
    tensor = matrices.tensor_ranks(shapes)
    held = 6.0 * 300 * 700 * 2
    over_states = collective_time_s(
        ALL_GATHER, held / tensor, np.array([8.0]), np.clip(8 // tensor, 1, 8), steady.network
    )
    over_tensors = collective_time_s(ALL_GATHER, held / 8, tensor, np.minimum(tensor, 8), steady.network)
    found = gathering_s(steady, shapes, matrices, np.array([6.0]), np.array([8.0]))
    assert found.tolist() == pytest.approx(
        ((over_states + over_tensors) / steady.stack.efficiency.collectives).tolist()
    )
    alone = gathering_s(steady, layouts(), matrices, np.array([6.0]), np.array([1.0]))
    assert alone.tolist() == [0]


def test_experts_are_shared_by_their_own_ranks(steady: Job) -> None:
    """Each of 4 ranks of experts has a quarter of them; of one GPU the products alone take time."""
    mixture = replace(job("mixtral-8x7b", stack="megatron-lm", optimizer="muon"), device=steady.device)
    model = mixture.model
    assert model.experts is not None
    expert = newton_schulz_time_s(4096, model.experts.ffn, 5, steady.device)
    alone, parted = (
        matrix_work_time_s(mixture, shapes, stages_of(mixture, shapes)) for shapes in (layouts(), layouts(ep=4, dp=4))
    )
    assert (alone - parted).tolist() == pytest.approx([32 * 3 * 8 * expert * 3 / 4], rel=1e-6)


def stages_of(one: Job, shapes: Layouts) -> Stages:
    return Evaluation(one, shapes).stages
