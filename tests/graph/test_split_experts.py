"""Experts that are split over some of the tensor ranks: what each rank sends, gathers and multiplies."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import Experts
from xe_sizer.graph.operators import Collective, Kernels, Matmul, Operator
from xe_sizer.graph.transformer import layer_operators

# 4 layers of 8 experts, 2 for each token, on sequences of 512 tokens of 1,024 elements in 2 bytes: 1 MiB.
MIXTURE = replace(GPT, experts=Experts(count=8, per_token=2, ffn=4096))
MIB = 2**20


def operators(split: str, shared: int = 0, **sizes: float) -> tuple[Operator, ...]:
    model = replace(MIXTURE, experts=replace(MIXTURE.experts, shared_ffn=shared))
    kernels = Kernels(split_experts=split)  # type: ignore[arg-type]
    return layer_operators(graph(model, Learning(True), kernels, tp=4, sequence_parallel=1, **sizes))


def messages(found: tuple[Operator, ...], group: str) -> dict[str, tuple[dict[str, float], dict[str, float]]]:
    """Messages of the experts' exchanges over a group [MiB], forward and backward."""

    def sizes(side: tuple[tuple[str, np.ndarray], ...]) -> dict[str, float]:
        return {operation: float(size[0]) / MIB for operation, size in side if np.any(size)}

    chosen = [op for op in found if isinstance(op, Collective) and op.group == group and op.module == "experts"]
    return {op.name: both for op in chosen if any(both := (sizes(op.forward), sizes(op.backward)))}


@pytest.mark.parametrize(("expert_tp", "part"), [(1, 0.25), (2, 0.5), (4, 1.0)])
def test_megatron_sends_a_token_to_one_rank_and_gathers_it_there(expert_tp: int, part: float) -> None:
    """A tensor rank sends the copies of its quarter of the tokens, 2 x 1 MiB / 4; those of an expert gather theirs."""
    found = operators("gather-copies", ep=2, expert_tp=expert_tp)
    sent = {"all_to_all": 0.5}
    assert messages(found, "ep") == {"expert dispatch": (sent, sent), "expert combine": (sent, sent)}
    gathered, summed = {"all_gather": 2 * part}, {"reduce_scatter": 2 * part}
    both = {"split experts input": (gathered, summed), "split experts output": (summed, gathered)}
    assert messages(found, "etp") == (both if expert_tp > 1 else {})
    assert messages(found, "tp") == {}


@pytest.mark.parametrize(("expert_tp", "part"), [(2, 0.5), (4, 1.0)])
def test_others_gather_the_tokens_first_and_send_all_of_them(expert_tp: int, part: float) -> None:
    found = operators("gather-tokens", ep=2, expert_tp=expert_tp)
    sent = {"all_to_all": 2 * part}
    assert messages(found, "ep") == {"expert dispatch": (sent, sent), "expert combine": (sent, sent)}
    name, group = ("split experts", "etp") if expert_tp < 4 else ("experts", "tp")
    gathered, back = {"all_gather": part}, {"reduce_scatter": part, "all_gather": part}
    assert messages(found, group) == {
        f"{name} input": (gathered, back), f"{name} output": ({"reduce_scatter": part}, gathered)
    }  # fmt: skip


def test_shared_experts_need_all_tokens_on_all_tensor_ranks() -> None:
    found = operators("gather-copies", shared=1024, ep=2, expert_tp=2)
    assert set(messages(found, "tp")) == {"experts input", "experts output"}
    assert set(messages(found, "etp")) == {"split experts input", "split experts output"}


@pytest.mark.parametrize("split", ["gather-tokens", "gather-copies"])
def test_the_products_of_a_rank_do_not_depend_on_how_experts_are_split(split: str) -> None:
    def flops(**sizes: float) -> float:
        found = (op for op in operators(split, **sizes) if isinstance(op, Matmul) and op.module == "experts")
        return float(sum((op.layers * op.forward_flops)[0] for op in found if "router" not in op.name))

    assert flops(ep=2, expert_tp=1) == pytest.approx(flops(ep=2, expert_tp=2)) == pytest.approx(flops(expert_tp=4))
