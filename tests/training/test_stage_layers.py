"""Layers by pipeline stage against sums by hand and the way that frameworks spread them."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, ask, job, layouts
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.layout import SCHEDULES, Split, Stages, build_stages, head_in_layers, stage_layers
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.padding import Sequences
from xe_sizer.training.search_space import pipeline_options

V_HALF = SCHEDULES.index("v-half")


LIKE_ANY = Split()


def stages(layers: int, split: Split = LIKE_ANY, **sizes: object) -> Stages:
    return build_stages(layers, split, layouts(**sizes))


def spread_by_hand(layers: int, chunks: int) -> list[int]:
    """Embedding, layers and head dealt out to the chunks in order, the first ones taking what is left over."""
    whole, more = divmod(layers + 2, chunks)
    sizes = [whole + (chunk < more) for chunk in range(chunks)]
    return [sizes[0] - 1, *sizes[1:-1], sizes[-1] - 1]


@pytest.mark.parametrize(
    ("layers", "pp", "vpp"),
    [(70, 12, 1), (22, 8, 1), (126, 8, 8), (126, 16, 1), (61, 16, 1), (31, 4, 2), (30, 4, 4), (36, 4, 2), (37, 4, 2)],
)
def test_stages_that_do_not_divide_the_layers(layers: int, pp: int, vpp: int) -> None:
    """BLOOM's 70 layers on 12 stages are 5, 6, ..., 6, 5 (arXiv:2211.05100); nothing is lost."""
    by_chunk = spread_by_hand(layers, pp * vpp)
    by_stage = [sum(by_chunk[stage::pp]) for stage in range(pp)]
    made = stages(layers, pp=pp, vpp=vpp)
    assert made.layers[:, 0].tolist() == [by_stage[0], by_stage[-1], max(by_stage[1:-1])]
    assert sum(made.layers[:2, 0]) + made.middles[0] * made.layers[2, 0] == pytest.approx(layers)
    each = [stage_layers(layers, LIKE_ANY, layouts(pp=pp, vpp=vpp), np.array([stage])) for stage in range(pp)]
    assert np.concatenate(each).tolist() == by_stage


def each_stage(layers: int, split: Split, pp: int, **sizes: object) -> list[float]:
    places = np.arange(float(pp))
    shape = layouts(pp=np.full(pp, pp), **sizes)
    return [float(one) for one in stage_layers(layers, split, shape, places)]


def test_layers_of_every_stage_where_somebody_or_the_stack_says_them() -> None:
    """Given ends, all given, and stages that fill until their share of 32 layers and a head of 4 is passed."""
    assert each_stage(30, Split(first=6, last=8), 4) == [6, 8, 8, 8]
    assert each_stage(30, Split(each=(9, 7, 6, 8)), 4) == [9, 7, 6, 8]
    assert each_stage(32, Split(head_layers=4.0), 4) == [10, 9, 9, 4]
    assert each_stage(32, LIKE_ANY, 1) == [32]


def test_ranks_of_two_directions_have_the_mean_of_both_their_stages() -> None:
    """30 layers with a place for each end on 8 stages: 3, 4, ..., 4, 3; the first rank has stages 1 and 8."""
    every = each_stage(30, LIKE_ANY, 8, grad_accum=16, schedule=SCHEDULES.index("dualpipe"))
    assert every == [3, 4, 4, 4, 4, 4, 4, 3]


def test_stages_that_divide_the_layers_are_even() -> None:
    assert stages(32, pp=4, vpp=2).layers[:, 0].tolist() == [8, 8, 8]
    assert stages(32, pp=2).layers[:, 0].tolist() == [16, 16, 0]
    assert stages(32, pp=1).fullest.tolist() == [32]


def test_a_stack_that_always_counts_the_ends() -> None:
    """generate_llm_fqn_per_model_part of torchtitan: 34 on 4 stages are 9, 9, 8, 8, less the ends."""
    made = stages(32, Split(embedding=True, loss=True), pp=4)
    assert made.layers[:, 0].tolist() == [8, 7, 9]
    assert made.middles[0] == pytest.approx(17 / 9)


@pytest.mark.parametrize(
    ("layers", "ends", "held"), [(94, (1, 1), [2, 2, 3]), (95, (1, 0), [2, 3, 3]), (95, (0, 1), [3, 2, 3])]
)
def test_ends_that_are_asked_to_count_take_a_layers_place(layers: int, ends: tuple[int, int], held: list[int]) -> None:
    """get_num_layers_to_build of Megatron-LM: 96 on 32 stages of 3 chunks, less one where an end is."""
    made = stages(layers, Split(embedding=bool(ends[0]), loss=bool(ends[1])), pp=32, vpp=3)
    assert made.layers[:, 0].tolist() == held
    assert made.middles.tolist() == [30]


def test_an_end_may_have_a_stage_to_itself() -> None:
    """30 layers on 32 stages: the first has the embedding and the last the head, and each of the others a layer."""
    of = job(model="llama-2-7b", stack="megatron-lm")
    of = replace(of, model=replace(of.model, layers=30), account_for_embedding=True, account_for_loss=True)
    shape = layouts(pp=32, grad_accum=32)
    assert build_stages(30, of.split, shape).layers[:, 0].tolist() == [0, 0, 1]
    parts = Evaluation(of, shape, Sequences.of_length(np.full(1, 2048.0))).parts_s
    first, last, middle = parts["forward"][:, 0].tolist()
    assert 0 < first < middle  # a look-up
    assert 0 < last < middle  # 32,000 x 4,096 of the head over 202 million of a layer
    held = memory_ledger(of, shape, np.array([2048.0])).components
    assert np.broadcast_to(held["weights"], (2, 6, 1))[1, 0, 0] == 2 * (32_000 * 4096 + 4096)


def test_given_ends_leave_the_rest_to_the_others() -> None:
    assert stages(32, Split(first=6, last=4), pp=4).layers[:, 0].tolist() == [6, 4, 11]
    assert stages(61, Split(last=1), pp=16).layers[:, 0].tolist() == [4, 1, 4]


def test_both_ends_of_a_v_are_on_the_first_stage() -> None:
    """14 layers on 2 x 4 chunks are 1, 2, 2, 2, 2, 2, 2, 1: both ends are on the first stage."""
    made = stages(14, pp=4, vpp=2, schedule=V_HALF)
    assert made.layers[:, 0].tolist() == [2, 4, 4]
    assert made.head_first.tolist() == [1]
    of = job(model="llama-2-7b")
    shape = layouts(pp=[4, 4], vpp=2, grad_accum=8, schedule=[0, V_HALF])
    held = Evaluation(of, shape).held
    table = of.model.vocab * of.model.hidden
    assert held.tables.tolist() == [[table, 2 * table], [table, 0]]
    assert held.head[0].tolist()[0] == 0
    assert held.head[0, 1] == held.head[1, 0] > 0 == held.head[1, 1]


@pytest.mark.parametrize("layers", [14, 15, 16, 17, 19, 21, 27, 35])
def test_a_stage_of_a_v_has_a_chunk_from_either_end(layers: int) -> None:
    """Stage i of 4 has chunks i and 7 - i of 8; embedding and head count as a layer each on the first stage."""
    by_chunk = spread_by_hand(layers, 8) if layers % 8 else [layers // 8] * 8
    by_stage = [by_chunk[stage] + by_chunk[7 - stage] for stage in range(4)]
    made = stages(layers, pp=4, vpp=2, schedule=V_HALF)
    assert made.layers[:, 0].tolist() == [by_stage[0], by_stage[3], by_stage[1]]


def test_the_head_is_timed_where_it_is() -> None:
    """What the last stage of 1F1B takes more than a middle one is what the first stage of a V takes more."""
    of = job(model="llama-2-7b")
    shape = layouts(pp=4, vpp=[1, 2], grad_accum=8, schedule=[0, V_HALF])
    times = Evaluation(of, shape, Sequences.of_length(np.full(2, 2048.0))).parts_s["forward"]
    head_s, embedding_s = times[1, 0] - times[2, 0], times[0, 0] - times[2, 0]
    assert head_s > 0
    assert times[:, 1] - times[2, 1] == pytest.approx([head_s + embedding_s, 0, 0], rel=1e-9)


def test_ends_that_leave_nothing_are_refused() -> None:
    given = {"layout.pp": 4, "layout.first_stage_layers": 20, "layout.last_stage_layers": 11}
    with pytest.raises(InputError, match="leave 1 of 32 layers to 2 stages"):
        ask({"model": "llama-2-7b", "job": "pretrain", "data.tokens": 1e9, **given})


@pytest.mark.parametrize(("pp", "layers"), [(2, [14, 10, 0]), (4, [7, 4, 7]), (8, [4, 0, 3]), (16, [2, 0, 2])])
def test_nanotron_fills_stages_by_cost(pp: int, layers: list[int]) -> None:
    """24 layers and a head of 2.4: a stage takes layers until it has passed its share of the 26.4 (build_model)."""
    made = stages(24, Split(head_layers=2.4), pp=pp)
    by_hand, stage, spent = [0] * pp, 0, 0.0
    for _ in range(24):
        by_hand[stage], spent = by_hand[stage] + 1, spent + 1.0
        stage += spent > 26.4 * (stage + 1) / pp
    assert made.layers[:, 0].tolist() == layers
    assert layers == [by_hand[0], by_hand[-1], by_hand[1] if pp > 2 else 0]
    assert stages(24, Split(head_layers=2.4), pp=1).fullest.tolist() == [24]


def test_old_nanotron_keeps_gathered_inputs() -> None:
    """differentiable_all_gather: inputs of qkv and of gate and up are kept whole, not an eighth of the tokens each."""
    kept = []
    for release in ("0.5", "24.09"):
        made = job(stack=f"nanotron@{release}")
        found = memory_ledger(made, layouts(tp=8, sequence_parallel=1), np.array([512.0])).components["activations"]
        kept.append(float(np.broadcast_to(found, (2, 6, 1))[0, 0, 0]))
    assert kept[0] - kept[1] == 2 * 2 * 32 * 512 * 4096 * 7 / 8


def test_a_head_in_layers() -> None:
    """Llama 1B of 2,048 hidden and 4,096 MLP width: 50,257 / (4 x 2048 + 3 x 4096)."""
    assert head_in_layers(replace(GPT, hidden=2048, heads=32, head_dim=64, ffn=4096, vocab=50257)) == 50257 / 20480


def test_stages_that_are_all_given() -> None:
    """The fullest of those in between counts: 9, and the 8 of the other are 8/9 of a stage like it."""
    made = stages(32, Split(each=(7, 9, 8, 8)), pp=4)
    assert made.layers[:, 0].tolist() == [7, 8, 9]
    assert made.middles[0] == pytest.approx(17 / 9)
    assert made.fullest.tolist() == [9]
    whole = ask({"model": "llama-2-7b", "stack": "megatron-lm", "job": "sft", "layout.stages": [7, 9, 8, 8]})
    assert (whole.fixed["pp"], whole.job.split.each) == (4, (7, 9, 8, 8))


def test_pipelines_whose_stages_may_differ_are_tried() -> None:
    """126 layers in 4, 8, 16, 32 and 64 stages, beside those that divide them."""
    flags = {"model": "llama-3.1-405b", "stack": "megatron-lm", "job": "pretrain"}
    usual, uneven = (
        pipeline_options(ask({**flags, **more}).rules) for more in ({}, {"layout.uneven_stages": True})
    )  # fmt: skip
    assert set(uneven) - set(usual) == {4, 8, 16, 32, 64}
    assert {1, 2, 3, 63} <= set(usual) < set(uneven)
