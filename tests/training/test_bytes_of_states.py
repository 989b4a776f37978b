"""Weights, gradients and optimizer states of a rank: bytes by arithmetic on the sizes of the model."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, REGISTRY, job, layouts
from msgspec.structs import replace

from xe_sizer.training.job import Job
from xe_sizer.training.layout import Split, build_stages
from xe_sizer.training.memory import Ledger, memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.methods import METHODS, MethodOptions
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.model_states import Shards, parameter_counts, sharded_elements

# Llama 2 7B: 32 layers of q, k, v, o and gate, up, down; two norms each, one more at the end; embedding and head.
LAYERS, HIDDEN, FFN, VOCAB = 32, 4096, 11008, 32000
LINEAR, NORMS, TABLE = 4 * HIDDEN**2 + 3 * HIDDEN * FFN, 2 * HIDDEN, VOCAB * HIDDEN
PARAMETERS = LAYERS * (LINEAR + NORMS) + 2 * TABLE + HIDDEN
ADAPTERS = LAYERS * 2 * 8 * 2 * HIDDEN  # r = 8 on q and v, A and B
# Mixtral 8x7B: 8 experts of 3 x 4096 x 14336 in each of 32 layers; grouped attention, a router, norms, two tables.
EXPERTS = 32 * 8 * 3 * 4096 * 14336
DENSE = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 4096 * 8 + 2 * 4096) + 2 * 32000 * 4096 + 4096


def ledger(made: Job, **sizes: object) -> Ledger:
    return memory_ledger(made, layouts(**sizes), np.array([512.0]))


def lora(stack: str, **more: object) -> Job:
    return job(kind="lora", stack=stack, lora__rank=8, lora__targets=["q", "v"], **more)


def at(found: Ledger, name: str, moment: str, stage: int = 0) -> list[float]:
    """Bytes of every layout."""
    whole = np.broadcast_to(found.components[name], found.total_bytes.shape)
    return [float(size) for size in whole[stage, MOMENTS.index(moment)]]


@pytest.mark.parametrize(
    ("name", "moment", "each", "shared_by"),
    [
        ("adapters", "loss", 2, (1, 1, 1, 4)),
        ("gradients", "end of backward", 2, (1, 1, 4, 4)),
        ("optimizer states", "optimizer step", 12, (1, 4, 4, 4)),
        ("weights", "loss", 2 * PARAMETERS / ADAPTERS, (1, 1, 1, 4)),
    ],
)
def test_zero_shares_adapters_stage_by_stage(name: str, moment: str, each: float, shared_by: tuple[int, ...]) -> None:
    """16-bit adapters on 4 ranks: 2 + 2 + 12 bytes; ZeRO-1 shares states, 2 gradients too, 3 all of them."""
    found = at(ledger(lora("deepspeed"), dp=4, zero=[0, 1, 2, 3]), name, moment)
    assert found == pytest.approx([each * ADAPTERS / ranks for ranks in shared_by], rel=1e-12)


@pytest.mark.parametrize(
    ("stack", "states"),
    [
        ("megatron-lm", (2, 4, 4 + 4 + 4)),  # 16-bit adapters with a float32 master copy
        ("deepspeed", (2, 2, 4 + 4 + 4)),  # float32 adapters of peft too are cast to 16 bit by the engine
        ("hf-bf16", (4, 4, 4 + 4)),  # moments are of the adapter's type, though a 16-bit weight would have 2 + 2
        ("torchtune", (2, 2, 2 + 2)),
    ],
)
def test_bytes_of_an_adapter_weight(stack: str, states: tuple[int, ...]) -> None:
    found = ledger(lora(stack), grad_accum=2)
    names = ("adapters", "gradients", "optimizer states")
    sizes = [at(found, name, "optimizer step")[0] for name in names]
    assert sizes == pytest.approx([size * ADAPTERS for size in states], rel=1e-12)


# A row and a column of each matrix, and every element of the norms.
ADAFACTOR = LAYERS * (8 * HIDDEN + 3 * (HIDDEN + 11008)) + 2 * (32000 + HIDDEN) + LAYERS * NORMS + HIDDEN


@pytest.mark.parametrize(
    ("optimizer", "card", "host"),
    [
        ("adamw", 8, 0),  # two float32 moments
        ("sgd", 4, 0),  # one
        ("adamw-8bit", 2.03, 0),  # two of a byte, 4 bytes of scale for each block of 256
        ("adafactor", 4 * ADAFACTOR / PARAMETERS, 0),
        ("paged-adamw", 0, 8),
        ("paged-adamw-8bit", 0, 2.03),
    ],
)
def test_moments_of_every_optimizer_on_card_or_host(optimizer: str, card: float, host: float) -> None:
    found = ledger(job(stack="hf-trainer@4.40", optimizer=optimizer))
    assert at(found, "optimizer states", "optimizer step")[0] == pytest.approx(card * PARAMETERS, rel=1e-12)
    assert found.host_bytes[0] == pytest.approx(host * PARAMETERS, rel=1e-12)


def test_muon_has_one_moment_of_matrices_and_two_of_the_rest() -> None:
    """Beside 4 bytes of master, matrices of 32 layers have 4; norms and tables 8; of two stages each has one end."""
    made = job(stack="megatron-lm", optimizer="muon")
    rest = LAYERS * NORMS + 2 * TABLE + HIDDEN
    alone = ledger(made, dp=4, zero=[0, 1])
    expected = 8 * LAYERS * LINEAR + 12 * rest
    assert at(alone, "optimizer states", "loss") == pytest.approx([expected, expected / 4], rel=1e-12)
    half = 8 * 16 * LINEAR + 12 * (16 * NORMS + TABLE)
    split = ledger(made, pp=2, grad_accum=2)
    found = [at(split, "optimizer states", "loss", stage)[0] for stage in (0, 1)]
    assert found == pytest.approx([half, half + 12 * HIDDEN], rel=1e-12)


def test_muon_learns_adapters_with_one_moment() -> None:
    """4 bytes of master and 4 of momentum an adapter weight, none of the frozen tables."""
    found = ledger(lora("megatron-lm", optimizer="muon"))
    assert at(found, "optimizer states", "loss")[0] == pytest.approx(8 * ADAPTERS, rel=1e-12)


def test_paged_moments_of_adapters_and_of_two_nodes() -> None:
    """A node of 8 GPUs has the shares of 8 ranks, of 16 in all: half of the moments."""
    paged = lora("hf-trainer@4.40", optimizer="paged-adamw")
    assert ledger(paged).host_bytes[0] == pytest.approx(8 * ADAPTERS, rel=1e-12)
    found = ledger(job(stack="hf-trainer@4.40", optimizer="paged-adamw"), dp=16, zero=3)
    assert found.host_bytes[0] == pytest.approx(8 * PARAMETERS / 2, rel=1e-12)


@pytest.mark.parametrize(("dp", "nodes"), [(4, 1), (8, 1), (16, 2), (32, 4)])
def test_host_memory_of_a_node_is_its_share_of_what_is_offloaded(dp: int, nodes: int) -> None:
    """DeepSpeed: 4 bytes of master, 8 of moments, 4 of gradients; with the weights 2 more; all shared by ZeRO-3."""
    found = ledger(job(stack="deepspeed"), dp=dp, zero=3, offload=[0, 1, 2])
    expected = [0, 16 * PARAMETERS / nodes, 18 * PARAMETERS / nodes]
    assert found.host_bytes.tolist() == pytest.approx(expected, rel=1e-12)


def test_host_memory_of_whole_states_is_a_copy_a_rank() -> None:
    """Without ZeRO each of 4 ranks of a node offloads all 16 bytes; of adapters too, whose copy the host updates."""
    assert ledger(job(stack="deepspeed"), dp=4, zero=0, offload=1).host_bytes[0] == 4 * 16 * PARAMETERS
    assert ledger(lora("deepspeed"), dp=4, zero=1, offload=1).host_bytes[0] == pytest.approx(16 * ADAPTERS, rel=1e-12)


def test_frozen_weights_wait_in_host_memory_too() -> None:
    """LoRA with offloaded weights: 16 bytes an adapter weight, 2 a frozen one; a reference model as much again."""
    plain = lora("deepspeed")
    copied = replace(plain, method=replace(plain.method, frozen=(Frozen("reference model"),)))
    for made, weights in ((plain, 2), (copied, 4)):
        found = ledger(made, dp=4, zero=3, offload=2)
        assert found.host_bytes[0] == pytest.approx(16 * ADAPTERS + weights * PARAMETERS, rel=1e-12)
        assert at(found, "weights", "loss")[0] == 0


def test_experts_in_host_memory_are_there_once() -> None:
    """Mixtral, 4 expert groups on 8 GPUs: two ranks share each expert, so that a node has everything once."""
    found = ledger(job("mixtral-8x7b", stack="deepspeed"), dp=8, ep=4, zero=3, offload=[1, 2])
    assert found.host_bytes.tolist() == pytest.approx([16 * (DENSE + EXPERTS), 18 * (DENSE + EXPERTS)], rel=1e-12)


def test_experts_are_shared_by_the_ranks_that_hold_them() -> None:
    """Mixtral, 4 expert groups on 8 GPUs: a rank has a quarter of the experts, which ZeRO shares with one other."""
    found = ledger(job("mixtral-8x7b", stack="deepspeed"), dp=8, ep=4, zero=[0, 1, 2, 3])
    whole, shared = DENSE + EXPERTS / 4, DENSE / 8 + EXPERTS / 4 / 2
    assert at(found, "weights", "loss") == pytest.approx([2 * whole] * 3 + [2 * shared], rel=1e-12)
    assert at(found, "gradients", "end of backward") == pytest.approx([2 * whole] * 2 + [2 * shared] * 2, rel=1e-12)
    assert at(found, "optimizer states", "loss") == pytest.approx([12 * whole] + [12 * shared] * 3, rel=1e-12)


def test_frozen_experts_are_shared_too() -> None:
    made = job("mixtral-8x7b", kind="lora", stack="deepspeed")
    found = ledger(made, dp=8, ep=4, zero=[2, 3])
    expected = [2 * (DENSE + EXPERTS / 4), 2 * (DENSE / 8 + EXPERTS / 8)]
    assert at(found, "weights", "loss") == pytest.approx(expected, rel=1e-12)


def test_whole_gradients_of_experts_and_adapters_wait_for_the_last_micro_batch() -> None:
    """FSDP under accelerate: 16-bit gradients of all weights and float32 ones of adapters, then a quarter of each."""
    experts = ledger(job("mixtral-8x7b", stack="hf-bf16"), dp=4, zero=3, grad_accum=2)
    assert at(experts, "gradients", "end of backward")[0] == pytest.approx(2 * (DENSE + EXPERTS), rel=1e-12)
    adapted = ledger(lora("hf-bf16"), dp=4, zero=3, grad_accum=2)
    assert at(adapted, "gradients", "end of forward")[0] == pytest.approx(4 * ADAPTERS, rel=1e-12)
    assert at(adapted, "gradients", "end of backward")[0] == pytest.approx(4 * ADAPTERS, rel=1e-12)
    assert at(adapted, "gradients", "optimizer step")[0] == pytest.approx(ADAPTERS, rel=1e-12)


def test_offloaded_gradients_leave_the_card_where_they_are_sharded() -> None:
    """ZeRO-Offload sends each reduced shard to the host; without sharding they stay until the step."""
    found = ledger(job(stack="deepspeed"), dp=4, zero=[0, 1, 2, 3], offload=1)
    assert at(found, "gradients", "optimizer step") == [2 * PARAMETERS, 2 * PARAMETERS, 0, 0]


def test_gradients_come_with_the_backward() -> None:
    """Head and final norm first, then layer by layer; a first layer and the table are still to come at its backward."""
    found = ledger(job(stack="hf-bf16"))
    expected = [0, 0, TABLE + HIDDEN, PARAMETERS - (LINEAR + NORMS) - TABLE, PARAMETERS, PARAMETERS]
    assert found.components["gradients"][0, :, 0].tolist() == pytest.approx([2 * size for size in expected], rel=1e-12)


@pytest.mark.parametrize("zero", [2, 3])
def test_sharded_gradients_come_in_shares(zero: int) -> None:
    found = ledger(job(stack="deepspeed"), dp=4, zero=zero)
    expected = [0, 0, TABLE + HIDDEN, PARAMETERS - (LINEAR + NORMS) - TABLE, PARAMETERS, PARAMETERS]
    shares = [2 * size / 4 for size in expected]
    assert found.components["gradients"][0, :, 0].tolist() == pytest.approx(shares, rel=1e-12)


def test_an_update_in_the_backward_leaves_one_table_at_a_time() -> None:
    """torchtune: the embedding's gradient at the end; the head's goes before the layers' come."""
    found = ledger(job(stack="torchtune"))
    expected = [0, 0, 0, 0, 2 * TABLE, 0]
    assert found.components["gradients"][0, :, 0].tolist() == pytest.approx(expected, rel=1e-12)


def test_frozen_copies_are_shared_as_the_weights_are() -> None:
    """Two reference models in float32 as the model, whole or a share of 4 ranks; none on the card where offloaded."""
    made = job(stack="hf-trainer@4.40")
    made = replace(made, method=replace(made.method, frozen=(Frozen("reference model", copies=2),)))
    found = ledger(made, dp=4, zero=[0, 2, 3, 3], offload=[0, 0, 0, 2])
    expected = [8 * PARAMETERS, 8 * PARAMETERS, 2 * PARAMETERS, 0]
    assert at(found, "frozen copies", "loss") == pytest.approx(expected, rel=1e-12)


def test_stages_of_a_tied_model_have_a_table_at_each_end() -> None:
    """Llama 3.2 1B: 8 of 16 layers and the table of 128256 x 2048 on both stages, the last norm on the last."""
    layer = 2048 * (2 * 2048 + 2 * 512) + 3 * 2048 * 8192 + 2 * 2048
    table, norm = 128_256 * 2048, 2048
    found = ledger(job("llama-3.2-1b", stack="megatron-lm"), pp=2, grad_accum=2)
    weights = [at(found, "weights", "loss", stage)[0] for stage in (0, 1)]
    assert weights == [2 * (8 * layer + table), 2 * (8 * layer + table + norm)]
    alone = ledger(job("llama-3.2-1b", stack="megatron-lm"))
    assert at(alone, "weights", "loss") == [2 * (16 * layer + table + norm)]


def test_vectors_and_tables_of_a_model_with_biases() -> None:
    """A GPT layer: two norms of two vectors, biases of qkv, output, up and down; two tensor ranks split qkv and up."""
    method = METHODS["sft"].applied_to(GPT, MethodOptions())
    chosen = layouts(tp=[1, 2])
    held = parameter_counts(GPT, method, chosen, build_stages(GPT.layers, Split(), chosen))
    layer = [4 * 1024 + (3 * 1024 + 4096) / tp + 2 * 1024 for tp in (1, 2)]
    assert held.vectors[0].tolist() == [4 * each + 2 * 1024 for each in layer]
    tables = [51200 * 1024 / tp + 2048 * 1024 for tp in (1, 2)]
    assert held.tables[0].tolist() == tables
    assert held.embedding[0].tolist() == tables


def test_where_the_ends_of_a_tied_model_are() -> None:
    """Alone the root is one table, the positions and the last norm; of two stages the last copies both tables."""
    model = REGISTRY.model("gpt2")
    chosen, method = layouts(pp=[1, 2]), METHODS["sft"].applied_to(model, MethodOptions())
    held = parameter_counts(model, method, chosen, build_stages(model.layers, Split(), chosen))
    ends, norm = (50257 + 1024) * 768, 2 * 768
    assert held.root.tolist() == [[ends + norm, ends], [ends + norm, ends + norm]]
    assert held.embedding.tolist() == [[ends, ends], [ends, 0]]
    assert held.head.tolist() == [[ends + norm, 0], [ends + norm, ends + norm]]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ({"dp": 8, "zero": 0}, (1, 1, 1, 8)),
        ({"dp": 8, "zero": 1, "ep": 4}, (8, 1, 1, 2)),
        ({"dp": 4, "cp": 2, "zero": 2}, (8, 8, 1, 8)),
        ({"dp": 16, "zero": 3, "zero_group": 4}, (4, 4, 4, 4)),
        ({"dp": 2, "zero": 3, "ep": 2}, (2, 2, 2, 1)),
    ],
)
def test_groups_that_share_states(sizes: dict[str, int], groups: tuple[int, ...]) -> None:
    shards = Shards.of(layouts(**sizes))
    found = [shards.optimizer, shards.gradients, shards.weights, shards.experts]
    assert [size.tolist() for size in found] == [[size] for size in groups]


def test_whole_experts_where_nothing_is_shared() -> None:
    """30 dense elements and 8 of experts: whole without ZeRO; a third and a half with it; a pair shares too."""
    shards = Shards.of(layouts(dp=2, zero=0))
    dense, experts = np.array([[30.0]]), np.array([[8.0]])
    assert sharded_elements(dense, experts, np.array([1.0]), shards).tolist() == [[38.0]]
    assert sharded_elements(dense, experts, np.array([3.0]), shards).tolist() == [[14.0]]
    assert sharded_elements(dense, experts, np.array([2.0]), shards).tolist() == [[19.0]]
