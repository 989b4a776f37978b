"""Time, limits and layouts of the kinds of context parallelism."""

from __future__ import annotations

import numpy as np
import pytest
from cases import ask, job, layouts

from xe_sizer.errors import InputError
from xe_sizer.laws.collectives import POINT_TO_POINT, RING, collective_time_s
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.padding import Sequences
from xe_sizer.training.rank import graph_inputs

LONG = {"train.seq_len": 131_072, "train.padding": "packed", "train.global_batch": 16}


def micro_batch(kind: str, **sizes: int) -> Evaluation:
    made = job("llama-3.1-8b", stack="megatron-lm", layout__cp_kind=kind)
    layout = layouts(**sizes)
    return Evaluation(made, layout, Sequences.of_length(np.full(1, 131_072.0)))


def test_a_ring_sends_a_part_to_the_next_rank_until_all_have_seen_it() -> None:
    network = job().network
    for ranks, per_node in ((4, 4), (16, 8), (2, 1)):
        one = collective_time_s(POINT_TO_POINT, 1e9 / ranks, ranks, per_node, network)
        assert collective_time_s(RING, 1e9, ranks, per_node, network) == pytest.approx((ranks - 1) * one)
    assert collective_time_s(RING, 1e9, 1, 1, network) == 0.0


def test_a_ring_hides_behind_attention_to_the_parts_that_are_there() -> None:
    found = micro_batch("ring", cp=8)
    there = found.collectives_s[0]["cp"][0]
    attention = [time for time in found.times[0] if time.operator.name == "attention"]
    assert there[0] < attention[0].forward_s[0] * 7 / 8
    assert found.exchanged_s["cp"][0].max() == found.exchanged_s["cp"][1].max() == 0.0
    across = layouts(cp=32)
    short = Evaluation(found.job, across, Sequences.of_length(np.full(len(across), 8192.0)))
    behind = 31 / 32 * next(time for time in short.times[0] if time.operator.name == "attention").forward_s[0]
    assert short.exchanged_s["cp"][0][0] == pytest.approx([short.collectives_s[0]["cp"][0][0] - behind])


def test_sequences_for_heads_are_waited_for() -> None:
    found = micro_batch("ulysses", cp=4, tp=2)
    assert found.collectives_s[0]["cp"][0].tolist() == [0.0]
    there, back = found.collectives_s[0]["heads"]
    assert found.exchanged_s["heads"][0][0].tolist() == pytest.approx(there.tolist())
    assert found.exchanged_s["heads"][1][0].tolist() == pytest.approx(back.tolist())


def test_the_hybrid_shares_out_as_many_heads_as_keys_have() -> None:
    made = job("llama-3.1-8b", stack="megatron-lm", layout__cp_kind="hybrid")
    found = graph_inputs(made, layouts(cp=[2, 4, 16, 4], tp=[1, 1, 1, 4]), 8192.0).rank
    assert found.head_ranks.tolist() == [2, 4, 8, 2]
    assert found.ring_ranks.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"layout.cp": 16, "layout.tp": 4, "layout.cp_kind": "a2a"}, "tp x cp = 64 does not divide the 32 heads"),
        ({"layout.cp_kind": "ring", "stack": "torchtitan"}, None),
        ({"layout.cp_kind": "ulysses", "stack": "torchtitan"}, "no context parallelism of the kind ulysses"),
        ({"layout.cp_kind": "ring", "stack": "llm-foundry"}, "llm-foundry does not split sequences"),
        ({"layout.cp": 8, "layout.cp_kind": "p2p"}, None),
    ],
)  # fmt: skip
def test_limits(flags: dict[str, object], said: str | None) -> None:
    asked = {"model": "llama-3.1-8b", "stack": "megatron-lm", "job": "pretrain", **LONG, **flags}
    if said is None:
        ask(asked)
        return
    with pytest.raises(InputError, match=said):
        ask(asked)
