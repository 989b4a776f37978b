"""Which layouts are legal, and which are tried: small cases whose answers are plain."""

from __future__ import annotations

import pytest
from cases import ask, layouts
from msgspec.structs import replace

from xe_sizer.training.layout import SCHEDULES
from xe_sizer.training.search_space import (
    Rules,
    chunk_options,
    gpu_counts,
    is_legal,
    layout_chunks,
    legal_layouts,
    schedule_options,
)


def rules(stack: str = "megatron-lm", model: str = "llama-2-7b", **changes: object) -> Rules:
    flags = {"model": model, "stack": stack, "job": "sft", "train.seq_len": 8192, "train.padding": "packed"}
    return replace(ask({**flags, "train.global_batch": 16}).rules, **{"uneven_stages": False, **changes})


def legal(asked: Rules, **sizes: object) -> list[bool]:
    return is_legal(layouts(**sizes), asked).tolist()


def test_whole_micro_batches_make_the_batch() -> None:
    assert legal(rules(), dp=[8, 8, 8], micro_batch=[2, 1, 4], grad_accum=1) == [True, False, False]


def test_chunks_of_whole_layers_and_rounds_of_stages() -> None:
    """Interleaving needs stages; 4 x 8 chunks have a layer each; micro-batches come in multiples of the stages."""
    sizes = {"pp": [1, 4, 4, 4, 4], "vpp": [2, 2, 8, 16, 3], "grad_accum": 16}
    assert legal(rules(), **sizes) == [False, True, True, False, False]
    uneven = rules(uneven_stages=True)
    assert legal(uneven, **sizes) == [False, True, True, False, True]
    assert legal(rules(), pp=4, vpp=2, micro_batch=[1, 8], grad_accum=[16, 2]) == [True, False]


def test_groups_share_copies_evenly() -> None:
    """Without ZeRO there is nothing to share; 3 ranks do not divide 8; experts lie whole in a group."""
    asked = rules("deepspeed", fixed={"zero": 1})
    sizes = {"dp": 8, "grad_accum": 2, "zero_group": [0, 4, 4, 3, 8], "zero": [1, 0, 1, 1, 1]}
    assert legal(asked, **sizes) == [True, False, True, False, True]
    mixture = rules("deepspeed", "mixtral-8x7b")
    assert legal(mixture, dp=8, grad_accum=2, ep=[4, 8, 3], zero=1) == [True, True, False]
    # replicas of 4 ranks: of 8 expert ranks each holds its own alone, of 2 expert groups four ranks share
    assert legal(mixture, dp=8, grad_accum=2, ep=[2, 8], zero=1, zero_group=4) == [True, False]


def test_ranks_of_an_expert_divide_the_tensor_ranks_and_the_stage() -> None:
    """16 ranks: 8 groups of experts split in two take all of them, in four would take twice as many."""
    mixture = rules(model="mixtral-8x7b")
    sizes = {"tp": 4, "dp": 4, "grad_accum": 4}
    assert legal(mixture, ep=8, expert_tp=[1, 2, 4], **sizes) == [True, True, False]
    assert legal(mixture, ep=1, expert_tp=[2, 3, 8], **sizes) == [True, False, False]
    assert {int(one) for one in legal_layouts(mixture, (8,)).expert_tp} == {0}
    assert {int(one) for one in legal_layouts(replace(mixture, fixed={"expert_tp": 2}), (8,)).expert_tp} == {2}


def test_sharding_needs_somebody_to_share_with() -> None:
    asked = rules("deepspeed")
    assert legal(asked, dp=[1, 1, 2], grad_accum=[16, 16, 8], zero=[0, 1, 1]) == [True, False, True]
    assert legal(rules("deepspeed", fixed={"zero": 1}), grad_accum=16, zero=1) == [True]
    assert legal(asked, dp=1, cp=2, grad_accum=16, zero=1) == [True]


def test_stages_of_sharded_weights_and_split_norms() -> None:
    assert legal(rules(), dp=2, pp=2, grad_accum=8, zero=[0, 1, 2, 3]) == [True, True, False, False]
    assert legal(rules("torchtitan"), dp=2, pp=2, grad_accum=8, zero=[2, 3]) == [True, True]
    assert legal(rules(), tp=[1, 2], grad_accum=16, sequence_parallel=1) == [False, True]


def test_offloads_go_with_their_stages() -> None:
    """DeepSpeed offloads its optimizer from ZeRO 1 on; weights are fetched by layer under ZeRO 3 alone."""
    asked = rules("deepspeed")
    sizes = {"dp": 2, "grad_accum": 8, "zero": [0, 1, 2, 3, 2, 3], "offload": [1, 1, 1, 1, 2, 2]}
    assert legal(asked, **sizes) == [False, True, True, True, False, True]


def test_schedules_need_a_pipeline() -> None:
    asked = rules("megatron-zero-bubble")
    assert legal(asked, pp=[1, 2], grad_accum=16, schedule=2) == [False, True] or legal(
        asked, pp=[1, 2], vpp=2, grad_accum=16, schedule=2
    ) == [False, True]


def test_schedules_that_are_tried() -> None:
    """Those that defer weight gradients, where everything is tried; all at once gains nothing over 1F1B."""
    every = rules("megatron-zero-bubble", every_way=True)
    deferring = {"zb-h1", "zb-h2", "zb-v", "v-half", "v-min"} & set(every.stack.supports.schedules)
    assert {SCHEDULES[code] for code in schedule_options(every, 4)} == {"1f1b", *deferring}
    assert deferring
    assert schedule_options(every, 1) == schedule_options(rules("megatron-zero-bubble"), 4) == (0,)
    assert schedule_options(rules("nanotron", every_way=True), 4) == (0,)


def test_copies_on_every_rank_need_no_even_number() -> None:
    assert legal(rules("generic"), dp=1, cp=3, grad_accum=16, zero=1, zero_group=[1, 3, 2]) == [True, True, False]


def test_norms_are_split_over_tensor_ranks_alone() -> None:
    every = legal_layouts(rules(every_way=True, fixed={"pp": 1, "cp": 1, "micro_batch": 1}), (8,))
    split = {(int(tp > 1), int(on)) for tp, on in zip(every.tp, every.sequence_parallel, strict=True)}
    assert split == {(0, 0), (1, 0), (1, 1)}
    usual = legal_layouts(rules(fixed={"pp": 1, "cp": 1, "micro_batch": 1}), (8,))
    assert {(int(tp > 1), int(on)) for tp, on in zip(usual.tp, usual.sequence_parallel, strict=True)} == {
        (0, 0),
        (1, 1),
    }


@pytest.mark.parametrize(("node", "first"), [(1, (1, 2, 3)), (8, (8, 16, 24)), (100_000, (100_000, 200_000, 300_000))])
def test_numbers_of_nodes_begin_with_one(node: int, first: tuple[int, ...]) -> None:
    assert gpu_counts(node, 10**7, parts=False)[:3] == first


def test_chunks_that_are_tried() -> None:
    """32 layers on 4 stages are 8 each, cut into 1, 2, 4 or 8; on 3 stages or for stacks that do not interleave one."""
    assert chunk_options(rules(), 4) == (1, 2, 4, 8)
    assert chunk_options(rules(), 1) == (1,)
    assert chunk_options(rules(), 3) == (1,)
    assert chunk_options(rules("nanotron"), 4) == (1,)
    assert chunk_options(rules(fixed={"schedule": 0}), 4) == (1,)


def test_every_group_comes_to_the_gpus_asked_for() -> None:
    found = legal_layouts(rules(fixed={"cp": 2, "pp": 2, "tp": 2}), (8, 16))
    assert set(found.gpus.tolist()) == {8, 16}
    assert set((found.tp * found.cp * found.pp * found.dp).tolist()) == {8, 16}
    assert found.gpus.tolist() == sorted(found.gpus.tolist())


def test_chunks_of_layouts_are_as_large_as_asked() -> None:
    """One after the other, and all at once; what is in them is the same."""
    asked = rules("deepspeed", fixed={"micro_batch": 1})
    each, every = (list(layout_chunks(asked, (1, 2, 4, 8), size)) for size in (1, 10**6))
    assert (len(each), len(every)) == (4, 1)
    assert sum(map(len, each)) == len(every[0])


def test_micro_batches_from_both_ends_come_in_pairs_on_an_even_number_of_stages() -> None:
    """Two rounds of them at least (deepseek-ai/DualPipe, step: num_ranks % 2 == 0, num_chunks >= num_ranks * 2)."""
    asked = rules("hai-llm", uneven_stages=True, global_batch=None)
    both, folded = (SCHEDULES.index(name) for name in ("dualpipe", "dualpipe-v"))
    assert legal(asked, pp=[4, 4, 4, 3, 1], grad_accum=[8, 6, 9, 8, 8], schedule=both) == [True, *[False] * 4]
    assert legal(asked, pp=[4, 4, 3], vpp=[2, 1, 2], grad_accum=[9, 9, 6], schedule=folded) == [True, False, True]
