"""What ranks exchange in a step and what compute hides of it: groups, messages and shares by hand."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import job, layouts, with_device
from msgspec.structs import replace

from xe_sizer.graph.operators import Collective, launches
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.laws.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Network,
    collective_time_s,
)
from xe_sizer.laws.operator_time import operator_times
from xe_sizer.profiles.catalogue import load_stack
from xe_sizer.software.stack import EXCHANGES
from xe_sizer.training.communication import Groups
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.methods.method import Frozen
from xe_sizer.training.padding import Sequences
from xe_sizer.training.rank import graph_inputs
from xe_sizer.training.step_time import timeline

# Llama 2 7B: 32 layers of q, k, v, o and gate, up, down with two norms; embedding, head and the last norm.
LAYERS, HIDDEN, VOCAB = 32, 4096, 32000
LAYER, ROOT = 4 * HIDDEN**2 + 3 * HIDDEN * 11008 + 2 * HIDDEN, 2 * VOCAB * HIDDEN + HIDDEN
PARAMETERS = LAYERS * LAYER + ROOT
ADAPTERS = LAYERS * 2 * 8 * 2 * HIDDEN  # r = 8 on q and v
# Mixtral 8x7B: 8 experts of 3 x 4096 x 14336 in each of 32 layers.
EXPERTS = 8 * 3 * 4096 * 14336
DENSE = 2 * 4096**2 + 2 * 4096 * 1024 + 4096 * 8 + 2 * 4096
PEAKS = ("peak_flops_per_s", "attention_peak_flops_per_s", "adapter_peak_flops_per_s")
FLOORS = ("memory_bound_floor_s",)
LAWS = ("matmul", "adapter_matmul", "expert_matmul", "scan_matmul", "attention")
EXCHANGE = "data-parallel communication"


def overlapping(made: Job, **shares: float) -> Job:
    """The job on a stack that hides these shares of its exchanges, and no others."""
    none = dict.fromkeys((name.replace("-", "_") for name in EXCHANGES), 0.0)
    overlap = msgspec.structs.replace(made.stack.overlap, **{**none, **shares})
    return replace(made, stack=msgspec.structs.replace(made.stack, overlap=overlap))


def exchange_s(made: Job, operation: str, message: float, ranks: int, per_node: int) -> float:
    seconds = collective_time_s(operation, message, ranks, per_node, made.network)
    return float(seconds) / made.stack.efficiency.collectives


def found_s(made: Job, name: str = EXCHANGE, **sizes: object) -> list[float]:
    return [float(seconds) for seconds in timeline(made, layouts(**sizes)).components[name]]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        # ranks, of them on a node; the same for experts; replicas, of them on a node
        ({"dp": 16}, (16, 8, 16, 8, 1, 1)),
        ({"tp": 4, "dp": 8}, (8, 2, 8, 2, 1, 1)),
        ({"tp": 8, "dp": 4}, (4, 1, 4, 1, 1, 1)),
        ({"tp": 16, "dp": 2}, (2, 1, 2, 1, 1, 1)),
        ({"dp": 2}, (2, 2, 2, 2, 1, 1)),
        ({"dp": 2, "cp": 8}, (16, 8, 16, 8, 1, 1)),
        ({"dp": 16, "ep": 4}, (16, 8, 4, 2, 1, 1)),
        ({"tp": 2, "dp": 16, "ep": 4}, (16, 4, 4, 1, 1, 1)),
        ({"dp": 16, "ep": 16}, (16, 8, 1, 1, 1, 1)),
        ({"dp": 16, "zero": 3, "zero_group": 8}, (8, 8, 8, 8, 2, 1)),
        ({"dp": 16, "zero": 3, "zero_group": 2}, (2, 2, 2, 2, 8, 4)),
        ({"tp": 2, "dp": 8, "zero": 3, "zero_group": 2}, (2, 2, 2, 2, 4, 2)),
        ({"dp": 8, "zero": 0, "zero_group": 2}, (8, 8, 8, 8, 1, 1)),
    ],
)
def test_groups_that_exchange(sizes: dict[str, int], groups: tuple[int, ...]) -> None:
    """Nodes of 8: tensor ranks lie inside, then the group that shares a copy, then its replicas."""
    made = Groups.of(job(), layouts(**sizes))
    fields = (
        made.ranks,
        made.per_node,
        made.expert_ranks,
        made.experts_per_node,
        made.replicas,
        made.replicas_per_node,
    )
    assert [size.tolist() for size in fields] == [[size] for size in groups]


def test_replicas_add_up_the_gradients_of_their_shards() -> None:
    """Hybrid sharding over 2 nodes: scatter and gather inside a node, an all-reduce of an eighth between two."""
    made = overlapping(job(stack="deepspeed"))
    (found,) = found_s(made, dp=16, zero=3, zero_group=8, grad_accum=2)
    layer_s = (
        2 * exchange_s(made, ALL_GATHER, 2 * LAYER, 8, 8)
        + exchange_s(made, REDUCE_SCATTER, 2 * LAYER, 8, 8)
        + exchange_s(made, ALL_REDUCE, 2 * LAYER / 8, 2, 1)
    )
    root_s = exchange_s(made, ALL_GATHER, 2 * ROOT, 8, 8)
    assert found == pytest.approx(2 * (LAYERS * layer_s + root_s), rel=1e-12)


def test_hosts_that_send_for_accelerators_are_waited_for_tensor_by_tensor() -> None:
    """Nine weights a layer, reduced between two nodes in every micro-batch; inside a node nobody waits."""
    made = overlapping(job(stack="deepspeed"))
    slow = replace(made, network=replace(made.network, stall_s=1e-3, stall_per_node_s=1e-4))
    for sizes, exchanges in (
        ({"dp": 16, "zero": 3, "zero_group": 8}, 1),  # gradients, between the replicas
        ({"dp": 16, "zero": 3}, 3),  # two gathers and gradients
        ({"dp": 8, "zero": 3}, 0),
    ):
        waited = found_s(slow, grad_accum=2, **sizes)[0] - found_s(made, grad_accum=2, **sizes)[0]
        assert waited == pytest.approx(2 * exchanges * LAYERS * 9 * (2e-3 + 1e-4), rel=1e-6), sizes


def test_what_tensor_ranks_leave_of_a_torus_carries_the_rest() -> None:
    """Tensor ranks have one axis of two, data ranks the other; alone they have both."""
    made = job()
    torus = replace(made, network=replace(made.network, axes=2))
    assert Groups.of(torus, layouts(dp=8)).links.tolist() == [1.0]
    assert Groups.of(torus, layouts(tp=4, dp=2)).links.tolist() == [0.5]
    assert Groups.of(made, layouts(tp=4, dp=2)).links.tolist() == [1.0]


def test_replicas_of_experts_add_up_theirs() -> None:
    """Mixtral on 16 GPUs, 4 expert groups: a dense shard of 8 ranks, experts of 2; each in two replicas."""
    made = overlapping(job("mixtral-8x7b", stack="deepspeed"))
    chosen = layouts(dp=16, ep=4, zero=2, zero_group=8)
    groups = Groups.of(made, chosen)
    dense, experts = np.array([2.0 * DENSE]), np.array([2.0 * EXPERTS / 4])
    found = groups.time_s(made, REDUCE_SCATTER, dense, experts)
    assert (groups.expert_ranks[0], groups.experts_per_node[0]) == (2, 2)
    apart = exchange_s(made, REDUCE_SCATTER, dense[0], 8, 8) + exchange_s(made, REDUCE_SCATTER, experts[0], 2, 2)
    shard = dense[0] / 8 + experts[0] / 2
    assert found[0] == pytest.approx(apart + exchange_s(made, ALL_REDUCE, shard, 2, 1), rel=1e-12)
    gathered = groups.time_s(made, ALL_GATHER, dense, experts)
    each = exchange_s(made, ALL_GATHER, dense[0], 8, 8) + exchange_s(made, ALL_GATHER, experts[0], 2, 2)
    assert gathered[0] == pytest.approx(each, rel=1e-12)


def test_experts_that_all_ranks_hold_go_with_the_rest() -> None:
    made = overlapping(job("mixtral-8x7b", stack="deepspeed"))
    (found,) = found_s(made, dp=8, zero=3)
    both = 2 * (DENSE + EXPERTS)
    layer_s = 2 * exchange_s(made, ALL_GATHER, both, 8, 8) + exchange_s(made, REDUCE_SCATTER, both, 8, 8)
    root_s = exchange_s(made, ALL_GATHER, 2 * (2 * 32000 * 4096 + 4096), 8, 8)
    assert found == pytest.approx(32 * layer_s + root_s, rel=1e-12)


def test_zero_2_reduces_in_every_micro_batch_and_gathers_once() -> None:
    """DeepSpeed in 16 bit: four scatters and one gather of all weights."""
    made = overlapping(job(stack="deepspeed"))
    found = found_s(made, dp=8, zero=[1, 2], grad_accum=4)
    scatter_s = exchange_s(made, REDUCE_SCATTER, 2 * PARAMETERS, 8, 8)
    gather_s = exchange_s(made, ALL_GATHER, 2 * PARAMETERS, 8, 8)
    assert found == pytest.approx([scatter_s + gather_s, 4 * scatter_s + gather_s], rel=1e-12)


def test_whole_gradients_are_reduced_where_the_stack_does_so() -> None:
    """DeepSpeed pipelines all-reduce 4-byte gradients under ZeRO-1 and gather 2-byte weights; Megatron-LM scatters."""
    made = {name: overlapping(job(stack=name)) for name in ("megatron-deepspeed", "megatron-lm")}
    gather_s = exchange_s(made["megatron-lm"], ALL_GATHER, 2 * PARAMETERS, 8, 8)
    for name, operation in (("megatron-deepspeed", ALL_REDUCE), ("megatron-lm", REDUCE_SCATTER)):
        (found,) = found_s(made[name], dp=8, zero=1, grad_accum=4)
        assert found == pytest.approx(exchange_s(made[name], operation, 4 * PARAMETERS, 8, 8) + gather_s, rel=1e-12)


def test_stacks_that_wait_reduce_once_a_step() -> None:
    """FSDP under accelerate: gathers in each of three micro-batches, scatters in the last one alone."""
    made = overlapping(job(stack="hf-bf16"))
    assert not made.stack.defaults.reduces_every_micro_batch
    (found,) = found_s(made, dp=8, zero=3, grad_accum=3)
    gather_s = exchange_s(made, ALL_GATHER, 2 * LAYER, 8, 8)
    scatter_s = exchange_s(made, REDUCE_SCATTER, 2 * LAYER, 8, 8)
    root_s = exchange_s(made, ALL_GATHER, 2 * ROOT, 8, 8)
    assert found == pytest.approx(LAYERS * (6 * gather_s + scatter_s) + 3 * root_s, rel=1e-12)


def test_adapters_alone_are_reduced() -> None:
    """LoRA under ZeRO 0, 1: 2 bytes of 4,194,304 weights; frozen ones stay where they are."""
    made = overlapping(job(kind="lora", stack="deepspeed", lora__rank=8, lora__targets=["q", "v"]))
    found = found_s(made, dp=8, zero=[0, 1], grad_accum=2)
    expected = [
        exchange_s(made, ALL_REDUCE, 2 * ADAPTERS, 8, 8),
        exchange_s(made, REDUCE_SCATTER, 2 * ADAPTERS, 8, 8) + exchange_s(made, ALL_GATHER, 2 * ADAPTERS, 8, 8),
    ]
    assert found == pytest.approx(expected, rel=1e-12)


def test_gathered_layers_scatter_gradients_of_adapters_alone() -> None:
    """ZeRO-3: each layer's frozen weights are gathered twice, and 1/32 of the adapters' gradients scattered."""
    plain = overlapping(job(kind="lora", stack="deepspeed", lora__rank=8, lora__targets=["q", "v"]))
    host = msgspec.structs.replace(plain.stack.host, sharded_adapter_us=0.0)
    made = replace(plain, stack=msgspec.structs.replace(plain.stack, host=host))
    (found,) = found_s(made, dp=8, zero=3)
    layer_s = 2 * exchange_s(made, ALL_GATHER, 2 * LAYER, 8, 8)
    layer_s += exchange_s(made, REDUCE_SCATTER, 2 * ADAPTERS / LAYERS, 8, 8)
    root_s = exchange_s(made, ALL_GATHER, 2 * ROOT, 8, 8)
    assert found == pytest.approx(LAYERS * layer_s + root_s, rel=1e-9)


def test_units_of_adapters_take_their_own_time_in_every_pass() -> None:
    """q and v of 32 layers have 128 matrices; a forward and a backward, with recomputation three passes."""
    plain = overlapping(job(kind="lora", stack="deepspeed", lora__rank=8, lora__targets=["q", "v"]))
    hosts = (msgspec.structs.replace(plain.stack.host, sharded_adapter_us=each) for each in (0.0, 1000.0))
    without, with_units = (replace(plain, stack=msgspec.structs.replace(plain.stack, host=host)) for host in hosts)
    sizes = {"dp": 8, "zero": 3, "grad_accum": 2, "recompute": [0, 2]}
    more = np.subtract(found_s(with_units, **sizes), found_s(without, **sizes))
    assert more == pytest.approx([2 * 2 * 0.128, 2 * 3 * 0.128], rel=1e-9)


def test_a_share_of_the_reduction_hides_behind_the_backward() -> None:
    """Half of both exchanges where compute is long enough for it, which loses 0.15 of that half to their kernels."""
    made = job(stack="megatron-lm")
    bare, half = overlapping(made), overlapping(made, data_parallel=0.5, updated_weights=0.5)
    expected = [(0.5 + 0.15 * 0.5) * seconds for seconds in found_s(bare, dp=8, zero=[0, 1])]
    assert found_s(half, dp=8, zero=[0, 1]) == pytest.approx(expected)


def test_no_more_hides_than_one_backward_and_one_forward_take() -> None:
    """A token a sequence: the reduction hides behind kernels and gaps of a backward, the gather behind a forward's."""
    made = job(stack="megatron-lm", train__seq_len=1, train__padding="to-seq-len")
    bare, whole = overlapping(made), overlapping(made, data_parallel=1.0, updated_weights=1.0)
    line = timeline(whole, layouts(dp=64, zero=[0, 1]))
    hidden = np.subtract(found_s(bare, dp=64, zero=[0, 1]), found_s(whole, dp=64, zero=[0, 1]))
    forward_s, backward_s, gaps_s = (line.components[name][0] for name in ("forward", "backward", "host"))
    least_s = np.array([backward_s, forward_s + backward_s])
    assert np.all(hidden >= least_s * (1 - 1e-9))
    assert np.all(hidden <= (least_s + gaps_s) * (1 + 1e-9))


def test_the_first_layer_of_a_gather_has_nothing_to_hide_behind() -> None:
    """Behind a long compute one of 32 layers is seen, and 0.15 of all in what compute loses; all hidden means none."""
    made = job(stack="deepspeed", train__seq_len=4096, train__padding="to-seq-len")
    gather_s = exchange_s(made, ALL_GATHER, 2 * LAYER, 8, 8)
    scatter_s = exchange_s(made, REDUCE_SCATTER, 2 * LAYER, 8, 8)
    root_s = exchange_s(made, ALL_GATHER, 2 * ROOT, 8, 8)
    (found,) = found_s(overlapping(made, sharding=0.9), dp=8, zero=3)
    forward_s, backward_s = gather_s + root_s / 32, gather_s + scatter_s
    assert found == pytest.approx((1 + 0.15 * 32) * (forward_s + backward_s), rel=1e-12)
    assert found_s(overlapping(made, sharding=1.0), dp=8, zero=3) == [0.0]


def pipelined(made: Job, **sizes: object) -> float:
    return found_s(made, "pipeline transfers", **sizes)[0]


def test_a_boundary_tensor_goes_there_and_back() -> None:
    """8 micro-batches of 2 x 4096 tokens in 16 bit; chunks cross as often again; half of it hidden; outside, a NIC."""
    made = overlapping(job(stack="megatron-lm", train__seq_len=4096, train__padding="packed"))
    message = 2.0 * 2 * 4096 * HIDDEN
    each_s = float(collective_time_s(POINT_TO_POINT, message, 2, 2, made.network))
    sizes = {"pp": 4, "grad_accum": 8, "micro_batch": 2}
    assert pipelined(made, **sizes) == pytest.approx(2 * 8 * each_s, rel=1e-12)
    assert pipelined(made, vpp=2, **sizes) == pytest.approx(2 * 2 * 8 * each_s, rel=1e-12)
    hidden = overlapping(made, pipeline=0.5)
    assert pipelined(hidden, vpp=2, **sizes) == pytest.approx(2 * 8 * each_s, rel=1e-12)
    assert pipelined(hidden, **sizes) == pytest.approx(2 * 8 * each_s, rel=1e-12)  # one chunk has nothing else to do
    apart_s = float(collective_time_s(POINT_TO_POINT, message, 2, 1, made.network))
    assert pipelined(made, dp=4, **sizes) == pytest.approx(2 * 8 * apart_s, rel=1e-12)
    split_s = float(collective_time_s(POINT_TO_POINT, message / 2, 2, 2, made.network))
    assert pipelined(made, tp=2, sequence_parallel=1, **sizes) == pytest.approx(2 * 8 * split_s, rel=1e-12)


def test_frozen_passes_cross_the_boundaries_forwards() -> None:
    made = overlapping(job(stack="megatron-lm"))
    once = replace(made, method=replace(made.method, frozen=(Frozen("teacher"),)))
    plain, more = (pipelined(each, pp=2, grad_accum=4) for each in (made, once))
    assert more == pytest.approx(1.5 * plain, rel=1e-12)


def on(made: Job, network: Network) -> Job:
    return replace(made, network=network)


def test_the_network_is_the_job_s_own() -> None:
    """NICs of twice the rate halve an exchange between nodes but for its latency."""
    made = overlapping(job(stack="deepspeed"))
    quick = replace(made.network, scale_out_alpha_s=0.0)
    faster = replace(quick, scale_out_bytes_per_s=2 * quick.scale_out_bytes_per_s)
    single = {"dp": 4, "tp": 8, "zero": 0}
    assert found_s(on(made, faster), **single) == pytest.approx([s / 2 for s in found_s(on(made, quick), **single)])


def test_the_optimizer_updates_what_a_rank_holds() -> None:
    """Muon's norms and tables have a second moment of 4 bytes: read and written beside the 32 of every weight."""
    plain, muon = (job(stack="megatron-lm", optimizer=name) for name in ("sgd", "muon"))
    rate = plain.device.memory_bound_efficiency * plain.device.bandwidth_bytes_per_s
    sizes = {"dp": 4, "zero": [0, 1]}
    rest = LAYERS * 2 * HIDDEN + ROOT
    more = np.subtract(found_s(muon, "optimizer", **sizes), found_s(plain, "optimizer", **sizes))
    assert more == pytest.approx([2 * 4 * rest / rate, 2 * 4 * rest / rate / 4], rel=1e-9)


def test_the_fullest_stage_updates_last() -> None:
    """Of two stages the last has the final norm too: 42 bytes of each weight pass through memory."""
    made = job(stack="megatron-lm")
    rate = made.device.memory_bound_efficiency * made.device.bandwidth_bytes_per_s
    last = 16 * LAYER + VOCAB * HIDDEN + HIDDEN
    assert found_s(made, "optimizer", pp=2, grad_accum=2) == pytest.approx([42 * last / rate], rel=1e-12)


def test_step_overhead_is_paid_once() -> None:
    made = job(stack="hf-trainer@4.40")
    assert found_s(made, "step overhead", dp=[1, 8], grad_accum=[1, 4]) == [made.stack.step_overhead_s] * 2


def test_recomputed_layers_exchange_again() -> None:
    """Two all-reduces of the hidden state of 512 tokens in each of 32 layers; half hidden, or a quarter recomputed."""
    made = job(stack="megatron-lm", train__seq_len=512, train__padding="packed")
    message = 2.0 * 512 * HIDDEN
    more_s = 32 * 2 * exchange_s(made, ALL_REDUCE, message, 2, 2)
    sizes = {"tp": 2, "recompute": [0, 2], "grad_accum": 3}
    for hidden, layers, share in ((0.0, None, 1.0), (0.5, None, 0.5), (0.0, 8, 0.25)):
        chosen = replace(overlapping(made, tensor_parallel=hidden), recompute_layers=layers)
        none, again = found_s(chosen, "tensor-parallel communication", **sizes)
        assert again - none == pytest.approx(3 * share * more_s, rel=1e-9)
        assert none >= 2 * (1 - hidden) * 3 * more_s  # forward and backward


def test_tokens_of_experts_travel_in_every_forward_and_backward() -> None:
    """There and back in each: a recomputed layer adds half as much again."""
    made = overlapping(job("mixtral-8x7b", stack="megatron-lm"))
    none, again = found_s(made, "expert-parallel communication", dp=8, ep=8, recompute=[0, 2])
    assert again == pytest.approx(1.5 * none, rel=1e-9)


def test_the_host_launches_what_is_recomputed() -> None:
    """Kernels that take no time leave the launches: those of the layers' forward once more in the backward.

    But for the last product and the sum behind it: nothing of them is needed (PyTorch's early stop).
    """
    made = job(stack="hf-bf16", train__seq_len=8, train__padding="to-seq-len")
    idle = with_device(made, bandwidth_bytes_per_s=1e9, **dict.fromkeys(PEAKS, 1e9))
    idle = replace(idle, device=replace(idle.device, **dict.fromkeys(FLOORS, 0.0)))
    floorless = {name: replace(getattr(idle.device, name), floor_s=0.0) for name in LAWS}
    idle = replace(idle, device=replace(idle.device, **floorless))
    chosen = layouts(recompute=[0, 2])
    operators = layer_operators(graph_inputs(made, layouts(), np.array([8.0])))
    none, again = timeline(idle, chosen).components["host"]
    needed = [op for op in operators if op.name not in ("down", "mlp residual")]
    expected = sum(op.layers * launches(op)[0] for op in needed) * made.stack.forward_launch_s
    assert again - none == pytest.approx(expected, rel=1e-3)
    faster = msgspec.structs.replace(made.stack.host, micro_batch_overhead_ms=0.0)
    bare = replace(idle, stack=msgspec.structs.replace(made.stack, host=faster))
    assert none - timeline(bare, chosen).components["host"][0] == pytest.approx(made.stack.micro_batch_overhead_s)


@pytest.mark.parametrize(
    ("stack", "sizes", "counted"),
    [
        ("megatron-lm", {}, 0), ("megatron-lm", {"tp": 2}, 2), ("megatron-lm", {"tp": 2, "sequence_parallel": 1}, 4),
        ("megatron-lm", {"cp": 2}, 1), ("deepspeed", {"tp": [1, 1], "cp": [1, 2]}, 0),
    ],
)  # fmt: skip
def test_only_exchanges_that_happen_are_launched(stack: str, sizes: dict[str, object], counted: int) -> None:
    """Forward: one all-reduce a block, or an all-gather before it and a reduce-scatter behind it; keys and values."""
    chosen = layouts(**sizes)
    operators = layer_operators(graph_inputs(job(stack=stack), chosen, np.full(len(chosen), 512.0)))
    sent = [launches(op)[0] for op in operators if isinstance(op, Collective)]
    assert float(np.broadcast_to(sum(sent), len(chosen))[0]) == counted


def test_launches_behind_the_counts_of_tokens_do_not_hide_before_them() -> None:
    """16 experts side by side launch for longer than their small products run, though attention runs longer than both.

    Without the wait their launches would hide behind attention's kernels.
    """
    made = job("qwen3-30b-a3b", kind="pretrain", stack="megatron-lm", train__seq_len=4096)
    chosen = layouts(ep=8, dp=8, micro_batch=1)
    slow = with_device(made, attention_peak_flops_per_s=0.05)
    batch = Evaluation(slow, chosen, Sequences.of_length(np.full(1, 4096.0)))
    timed = operator_times(batch.operators[0], slow.device)
    run_s = sum(float(np.sum(time.forward_s)) for time in timed if time.operator.module == "experts")
    # Products 2 x 16 x 15, activation 1, the gathers 2 and 1, the exchanges there and back.
    launch_s = 48 * (2 * 16 * 15 + 1 + 2 + 1 + 2) * made.stack.forward_launch_s
    assert batch.gaps_s[0][0, 0] == pytest.approx(launch_s - run_s, rel=1e-9)
    together = msgspec.structs.replace(slow.stack.kernels, experts="grouped")
    grouped = replace(slow, stack=msgspec.structs.replace(slow.stack, kernels=together))
    batch = Evaluation(grouped, chosen, Sequences.of_length(np.full(1, 4096.0)))
    assert batch.gaps_s[0][0, 0] == 0.0


def hooks_s(made: Job, **sizes: object) -> list[float]:
    """Of one pass under each layout."""
    chosen = layouts(dp=8, **sizes)
    return list(Evaluation(made, chosen, Sequences.of_length(np.full(len(chosen), 512.0))).module_hooks_s[0])


@pytest.mark.parametrize(("kind", "adapters", "modules"), [
    ("sft", {}, 7), ("lora", {"lora__rank": 8, "lora__targets": ["q", "v"]}, 11),
])  # fmt: skip
def test_zero_3_of_deepspeed_runs_hooks_around_every_module(
    kind: str, adapters: dict[str, object], modules: int
) -> None:
    """Llama's 32 layers have 7 matrices each, and adapters two each; FSDP gathers whole layers, ZeRO-2 nothing."""
    made = job(kind=kind, stack="deepspeed", **adapters)
    each_s = made.stack.host.gathered_module_us / 1e6
    assert hooks_s(made, zero=[2, 3]) == pytest.approx([0.0, 32 * modules * each_s])
    assert hooks_s(job(kind=kind, stack="hf-bf16", **adapters), zero=3) == [0.0]


@pytest.mark.parametrize(("stack", "each"), [("deepspeed", 1), ("deepspeed@0.17", 128)])
def test_experts_of_a_layer_are_fetched_as_one_or_matrix_by_matrix(stack: str, each: int) -> None:
    """48 layers of four matrices of attention, a router, and experts: two products of all, or three of each of 128."""
    made = job("qwen3-30b-a3b", kind="sft", stack=stack)
    (found,) = hooks_s(made, zero=3)
    experts = 2 if each == 1 else 3 * each
    assert found == pytest.approx(48 * (5 + experts) * made.stack.host.gathered_module_us / 1e6, rel=0.02)


def test_the_host_waits_for_hooks_in_every_pass() -> None:
    """Forward and backward, and once more where layers are recomputed, beside kernels that take no time."""
    made = job(stack="deepspeed", train__seq_len=8, train__padding="to-seq-len")
    bare = made.stack.host
    none, hooks = (
        timeline(
            replace(made, stack=msgspec.structs.replace(made.stack, host=host)),
            layouts(dp=8, zero=3, grad_accum=2, recompute=[0, 2]),
        ).components["host"]
        for host in (msgspec.structs.replace(bare, gathered_module_us=0.0), bare)
    )
    more = 2 * 32 * 7 * bare.gathered_module_us / 1e6
    assert hooks[1] - hooks[0] == pytest.approx(more + (none[1] - none[0]), rel=0.2)
    assert np.all(hooks - none > 0.5 * more)


def test_fsdp2_copies_what_it_gathers_and_what_it_reduces() -> None:
    """Matrices of 2 bytes are read and written behind two gathers in each of 3 micro-batches, gradients cast to 4."""
    made = job(kind="pretrain", stack="torchtitan")
    apart = msgspec.structs.replace(made.stack.states, gathered_copies=False)
    bare = replace(made, stack=msgspec.structs.replace(made.stack, states=apart))
    sizes = {"dp": 8, "zero": 3, "grad_accum": 3}
    more = np.subtract(found_s(made, **sizes), found_s(bare, **sizes))
    linear = LAYERS * (LAYER - 2 * HIDDEN)
    rate = made.device.memory_bound_efficiency * made.device.bandwidth_bytes_per_s
    assert more == pytest.approx([(3 * 2 * 2 * 2 * linear + 3 * (2 + 4) * PARAMETERS) / rate], rel=1e-3)


def test_gathers_of_updated_weights_hide_apart_from_reductions() -> None:
    """Megatron-LM has a switch for each: 0.85 of what is hidden is saved, 0.15 is stolen from compute."""
    plain, sizes = job("llama-2-7b", stack="megatron-lm"), {"dp": 8, "zero": 1}
    gather = exchange_s(plain, ALL_GATHER, 2.0 * PARAMETERS, 8, 8)
    reduce = exchange_s(plain, REDUCE_SCATTER, 4.0 * PARAMETERS, 8, 8)
    assert found_s(overlapping(plain), **sizes) == pytest.approx([gather + reduce], rel=1e-4)
    weights = overlapping(plain, updated_weights=0.5)
    assert found_s(weights, **sizes) == pytest.approx([reduce + gather * (1 - 0.85 * 0.5)], rel=1e-4)
    gradients = overlapping(plain, data_parallel=0.5)
    assert found_s(gradients, **sizes) == pytest.approx([gather + reduce * (1 - 0.85 * 0.5)], rel=1e-4)


def test_what_software_hides_unasked_and_where_it_is_switched() -> None:
    """Megatron-LM's switches are off, NeMo's recipes turn them on; DeepSpeed's step waits for the updated weights."""
    names = ("tensor_parallel", "expert_parallel", "data_parallel", "updated_weights")

    def shares(stack: str, *asked: str, backend: str | None = None) -> list[float]:
        found = load_stack(stack)
        found = found.on_backend(backend) if backend else found
        overlap = found.overlap.switched(asked) if asked else found.overlap
        return [getattr(overlap, name) for name in names]

    assert shares("megatron-lm") == [0.33, 0, 0, 0]
    assert shares("megatron-lm", "on") == [0.75, 0.9, 0.8, 0.8]
    assert shares("megatron-lm", "off") == [0.33, 0, 0, 0]
    assert shares("megatron-lm", "data-parallel") == [0.33, 0, 0.8, 0]
    assert shares("megatron-lm@2022.06", "on")[2:] == [0, 0]  # before --overlap-grad-reduce
    assert shares("nemo") == [0.33, 0.9, 0.8, 0.8]
    assert shares("nemo", "off") == [0.33, 0, 0, 0]
    assert shares("hf-trainer", backend="deepspeed")[2:] == [0, 0]
    assert shares("hf-trainer", "data-parallel", backend="deepspeed")[2:] == [0.7, 0]
    assert load_stack("hf-trainer").overlap.switched(("off",)).sharding == 0
