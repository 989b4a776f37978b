"""Experts that ranks share: which of them a step touches, and how tokens get there and back."""

import numpy as np
import pytest
from cases import REGISTRY, graph
from msgspec.structs import replace
from serving_cases import asked, job

from xe_sizer.graph.experts import largest_of, touched_experts
from xe_sizer.graph.inputs import Block, Learning
from xe_sizer.graph.mlp import experts_half
from xe_sizer.graph.operators import Array, Collective, Kernels
from xe_sizer.graph.weights import Weight, layer_weights
from xe_sizer.laws.collectives import collective_time_s
from xe_sizer.serving.job import ReplicaLayouts
from xe_sizer.serving.search_space import legal_placements
from xe_sizer.serving.step_time import Work, step_time

MODEL = REGISTRY.model("mixtral-8x7b")
EXPERTS = MODEL.experts
GATHERED = Kernels(dispatch="to-all")
TOKENS, HIDDEN = 16, 4096


def sent(kernels: Kernels = GATHERED, **sizes: float) -> dict[tuple[str, str], float]:
    """Bytes of the forward by group and operation."""
    assert EXPERTS
    weights = graph(MODEL, Learning(False), kernels, sequence=TOKENS, **sizes)
    found: dict[tuple[str, str], float] = {}
    for op in experts_half(Block(weights, _weights(), 1.0), EXPERTS):
        for operation, message in op.forward if isinstance(op, Collective) else ():
            key = (op.group, operation)
            found[key] = found.get(key, 0.0) + float(np.sum(message))
    return {key: size for key, size in found.items() if size}


def _weights() -> dict[str, Weight]:
    kind, _ = MODEL.layer_kinds[0]
    return {weight.name: weight for weight in layer_weights(MODEL, kind)}


def touched(spread: float, tokens: float, ep: float = 1, picked: int = 2) -> float:
    assert EXPERTS
    experts = replace(EXPERTS, per_token=picked)
    kernels = Kernels(dispatch="to-all", expert_spread=spread)
    made = Block(graph(MODEL, Learning(False), kernels, sequence=tokens / ep, ep=ep), {}, 1.0)
    found: Array = touched_experts(made, experts)
    return float(found[0])


@pytest.mark.parametrize("spread", [0.0, 0.7, 1.5])
def test_one_token_touches_as_many_experts_as_it_picks(spread: float) -> None:
    assert touched(spread, 1) == pytest.approx(2.0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("tokens", [1, 16])
def test_tokens_that_pick_all_experts_touch_them_all(tokens: float) -> None:
    assert touched(0.7, tokens, picked=8) == pytest.approx(8.0)


def test_even_picks_miss_an_expert_as_often_as_all_tokens_do() -> None:
    assert touched(0.0, 5) == pytest.approx(8 * (1 - 0.75**5))


def test_uneven_picks_are_counts_of_a_negative_binomial_distribution() -> None:
    """Popularity drawn from a gamma distribution, picks from a Poisson one: sampled, not taken from the formula."""
    random, spread, mean = np.random.default_rng(7), 0.7, -np.log(0.75) * 15
    popularity = random.gamma(1 / spread**2, spread**2, 400_000)
    missed = 0.75 * float(np.mean(random.poisson(popularity * mean) == 0))
    assert touched(spread, 16) == pytest.approx(8 * (1 - missed), rel=0.005)
    assert touched(spread, 16) < touched(0.0, 16)


def test_the_rank_with_the_most_touched_experts_decides() -> None:
    """Of four ranks of two experts each, in a step of 4 tokens: mean and 1.03 standard deviations, at most both."""
    chance = 1 - 0.75**4
    assert touched(0.0, 4, ep=4) == pytest.approx(min(2 * chance + 1.03 * np.sqrt(2 * chance * (1 - chance)), 2), 0.01)
    assert largest_of(np.array([1.0, 4.0])) == pytest.approx([0.0, 1.03], abs=0.03)


def test_ranks_of_one_attention_sum_up_what_their_experts_say() -> None:
    """Tensor ranks have all tokens: one all-reduce, however experts are split, and nothing else."""
    message = TOKENS * HIDDEN * 2
    for sizes in ({"tp": 4, "ep": 4, "expert_tp": 1}, {"tp": 4, "ep": 1, "expert_tp": 4}):
        assert sent(**sizes) == {("tp", "all_reduce"): message}


def test_ranks_with_sequences_of_their_own_gather_all_tokens_and_scatter_the_sums() -> None:
    everything = 4 * TOKENS * HIDDEN * 2
    groups = {("dp", "all_gather"): everything, ("dp", "reduce_scatter"): everything}
    for sizes in ({"tp": 1, "ep": 4, "expert_tp": 1}, {"tp": 1, "ep": 1, "expert_tp": 4}):
        assert {key: size for key, size in sent(**sizes).items() if key[0] == "dp"} == groups
    routed = 2 * TOKENS * 2 * HIDDEN * 2
    assert sent(Kernels(), tp=1, ep=4, expert_tp=1)["ep", "all_to_all"] == routed


def test_experts_may_be_split_over_attention_groups() -> None:
    """Two attention ranks: whole experts where nobody says otherwise, halves of all where ep is 1."""
    split = asked("mixtral-8x7b", server="dell-xe9680-h100", layout__tp=1, layout__dp=2, layout__ep=1)
    found = legal_placements(split.job, split.fixed, None)
    assert {(tp, dp, ep) for tp, dp, ep in zip(found.tp, found.dp, found.ep, strict=True)} == {(1, 2, 1)}
    assert set(found.expert_tp) == {2}
    free = asked("mixtral-8x7b", server="dell-xe9680-h100", layout__tp=1, layout__dp=2)
    assert set(legal_placements(free.job, free.fixed, None).ep) == {2}


def test_exchanges_of_attention_groups_take_the_time_of_both_collectives() -> None:
    """Two groups of two ranks: 32 layers of an all-gather and a reduce-scatter of all 16,384 tokens between pairs."""
    made = job("mixtral-8x7b", server="dell-xe9680-h100")
    work, message = Work(prefills=16, prefill_tokens=1024), 16 * 1024 * 4096 * 2
    both = sum(collective_time_s(kind, message, 2.0, 2.0, made.network) for kind in ("all_gather", "reduce_scatter"))
    for ep in (1, 4):
        parts = step_time(made, ReplicaLayouts.of(tp=2, dp=2, ep=ep), work).parts
        assert parts["communication of attention groups"][0] == pytest.approx(32 * both)
        assert parts["expert-parallel communication"][0] == 0.0
    assert step_time(made, ReplicaLayouts.of(tp=4), work).parts["communication of attention groups"][0] == 0.0
