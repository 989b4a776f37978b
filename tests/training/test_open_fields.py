"""What a search tries of each field of a layout, by the rules of stack, model and sequences."""

from __future__ import annotations

import pytest
from cases import REGISTRY

from xe_sizer.graph.model import ModelShape
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.training import search_space as space
from xe_sizer.training.layout import OFFLOAD
from xe_sizer.training.search_space import Rules

LLAMA, MIXTRAL = REGISTRY.model("llama-2-7b"), REGISTRY.model("mixtral-8x7b")
ONE, OPTIMIZER, PARAMS, ACTIVATIONS = (OFFLOAD.index(name) for name in ("none", "optimizer", "params", "activations"))


def rules(stack: str = "megatron-lm", model: ModelShape = LLAMA, **changes: object) -> Rules:
    values: dict[str, object] = {
        "model": model, "stack": load_stack(stack), "node_ranks": 8, "global_batch": 24, "seq_len": 16_384,
        "splits_sequences": True, "fixed": {},
    }  # fmt: skip
    return Rules(**{**values, **changes})  # type: ignore[arg-type]


def test_tensor_ranks_divide_heads_and_node() -> None:
    assert space.tensor_options(rules()) == (1, 2, 4, 8)
    assert space.tensor_options(rules(node_ranks=6)) == (1, 2)
    assert space.tensor_options(rules(node_ranks=64)) == (1, 2, 4, 8, 16, 32)
    assert space.tensor_options(rules("hf-trainer")) == (1,)
    assert space.tensor_options(rules(fixed={"tp": 3})) == (3,)


def test_stages_divide_layers_with_their_ends() -> None:
    """32 layers; 34 with embedding and loss; powers of two where stages may differ."""
    assert space.pipeline_options(rules()) == (1, 2, 4, 8, 16, 32)
    assert space.pipeline_options(rules(ends=2)) == (1, 2, 17, 34)
    assert space.pipeline_options(rules(ends=2, uneven_stages=True)) == (1, 2, 4, 8, 16, 17, 32, 34)
    assert space.pipeline_options(rules("hf-trainer")) == (1,)
    assert space.pipeline_options(rules(model=REGISTRY.model("t5-base"))) == (1,)
    assert (rules(ends=2).places, rules(ends=1).most_chunks, rules(uneven_stages=True).most_chunks) == (34, 33, 34)


def test_context_ranks_keep_2048_tokens_each() -> None:
    """16,384 tokens on 8 ranks; two chunks of whole tokens each; none where sequences are not split."""
    assert set(space.context_options(rules(every_way=True))) == {1, 2, 4, 8}
    assert set(space.context_options(rules(every_way=True, seq_len=4096))) == {1, 2}
    assert set(space.context_options(rules(every_way=True, seq_len=4094))) == {1}
    assert set(space.context_options(rules(every_way=True, seq_len=16_388))) == {1, 2}
    assert set(space.context_options(rules(every_way=True, seq_len=32_768))) == {1, 2, 4, 8, 16}
    assert set(space.context_options(rules(every_way=True, splits_sequences=False))) == {1}
    assert set(space.context_options(rules("hf-trainer", every_way=True))) == {1}
    usual = load_stack("megatron-lm").defaults.splits_sequences
    assert set(space.context_options(rules())) == ({1, 2, 4, 8} if usual else {1})


def test_experts_are_placed_on_ranks_of_a_stage() -> None:
    assert space.expert_options(rules(model=MIXTRAL), 12) == (1, 2, 4)
    assert space.expert_options(rules(model=MIXTRAL), 16) == (1, 2, 4, 8)
    assert space.expert_options(rules(), 16) == (1,)


@pytest.mark.parametrize(
    ("changes", "shards", "pp", "stages"),
    [
        ({}, 1, 1, (0,)),  # alone there is nothing to share
        ({"fixed": {"offload": OPTIMIZER}}, 1, 1, (0, 1, 2, 3)),
        ({"fixed": {"offload": ACTIVATIONS}}, 1, 1, (0,)),
        ({"fixed": {"offload": PARAMS}}, 1, 1, (3,)),
        ({"fixed": {"offload": PARAMS}}, 8, 1, (3,)),
        ({"every_way": True}, 8, 1, (0, 1, 2, 3)),
        ({"every_way": True}, 8, 2, (0, 1)),
        ({"every_way": True, "host_known": True}, 1, 1, (0, 1, 2, 3)),
        ({"fixed": {"zero": 2}}, 8, 4, (2,)),
    ],
)
def test_states_are_shared_as_far_as_the_stack_does(
    changes: dict[str, object], shards: int, pp: int, stages: tuple[int, ...]
) -> None:
    assert space.zero_options(rules("deepspeed", **changes), shards, pp) == stages


def test_usual_stages_are_those_of_the_stack() -> None:
    for name in ("deepspeed", "megatron-lm", "torchtitan"):
        usual = load_stack(name).defaults.zero
        assert space.zero_options(rules(name), 8, 1) == tuple(usual)
    sharded = load_stack("torchtitan")
    assert sharded.supports.sharded_stages
    assert space.zero_options(rules("torchtitan"), 8, 2) == tuple(sharded.defaults.zero)


def test_host_memory_is_tried_where_it_is_known() -> None:
    known = [OFFLOAD.index(name) for name in load_stack("deepspeed").supports.offload if name != "activations"]
    assert space.offload_options(rules("deepspeed", every_way=True, host_known=True)) == tuple(known)
    assert space.offload_options(rules("deepspeed", every_way=True)) == (ONE,)
    assert space.offload_options(rules("deepspeed", host_known=True)) == (ONE,)
    assert space.offload_options(rules("deepspeed", fixed={"offload": PARAMS})) == (PARAMS,)
    usual = OFFLOAD.index(load_stack("unsloth").defaults.usual_offload)
    assert space.offload_options(rules("unsloth")) == (ONE, usual)
    assert space.offload_options(rules("unsloth", fixed={"offload": ONE})) == (ONE,)


def test_replicas_and_micro_batches_divide_the_batch() -> None:
    """24 sequences; with three micro-batches of a step 8 are left; where the batch follows, any number does."""
    assert space.replica_options(rules(), []) == (1, 2, 3, 4, 6, 8, 12, 24)
    assert space.replica_options(rules(fixed={"grad_accum": 3}), []) == (1, 2, 4, 8)
    assert space.replica_options(rules(fixed={"dp": 6}), []) == (6,)
    assert space.replica_options(rules(fixed={"dp": 5}), []) == ()
    assert space.replica_options(rules(global_batch=None), [5, 7]) == (5, 7)
    assert space.micro_batch_options(rules(), 4) == (1, 2, 3, 6)
    assert space.micro_batch_options(rules(fixed={"grad_accum": 3}), 4) == (2,)
    assert space.micro_batch_options(rules(global_batch=None, fixed={"micro_batch": 5}), 4) == (5,)


def test_numbers_of_gpus_that_no_layout_comes_to() -> None:
    """A batch of 24 on one node: 5 and 7 divide nothing; 9 is three times three."""
    assert space.without_groups(rules(), (1, 5, 6, 7, 8, 9)) == (5, 7, 9)
    assert space.without_groups(rules(global_batch=9), (3, 9, 18)) == ()
    assert space.without_groups(rules(global_batch=None), (5, 7)) == ()
