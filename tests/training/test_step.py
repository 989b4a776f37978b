"""The timeline of a step: hand-made numbers for its parts, and that the parts are wired to the right sizes."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import ask, job, layouts
from msgspec.structs import replace

from xe_sizer.laws.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, collective_time_s
from xe_sizer.training.job import Job
from xe_sizer.training.step_time import Timeline, timeline

LLAMA_2_7B = 6_738_415_616
LINEAR = 6_607_077_376  # weights in matrix products, head included
PAIRS = 4096 * 4097 // 2


def step(made: Job, **sizes: object) -> Timeline:
    return timeline(made, layouts(**sizes))


def without_overlap(made: Job) -> Job:
    shares = dict.fromkeys(msgspec.structs.asdict(made.stack.overlap), 0.0)
    overlap = msgspec.structs.replace(made.stack.overlap, **shares)
    return replace(made, stack=msgspec.structs.replace(made.stack, overlap=overlap))


def test_flops_of_a_step() -> None:
    """6 N and 3 forward attentions a token: what the field calls model FLOPs (PaLM, arXiv:2204.02311, appendix B)."""
    attention = 3 * 4 * 128 * 32 * 32 * PAIRS
    expected = 8 * (6 * LINEAR * 4096 + attention)
    made = step(job(), grad_accum=8)
    assert made.flops[0] == pytest.approx(expected, rel=1e-12)
    assert made.recompute_flops[0] == 0
    assert step(job(), tp=4, pp=2, grad_accum=8).flops[0] == pytest.approx(expected / 8, rel=1e-12)


def test_recomputed_flops() -> None:
    """Full: every forward of the layers again, the head not. Selective: the attention core alone (arXiv:2205.05198)."""
    made = step(job(), grad_accum=2, recompute=[1, 2])
    attention = 4 * 128 * 32 * 32 * PAIRS
    layers = 2 * (LINEAR - 32000 * 4096) * 4096
    assert made.recompute_flops == pytest.approx([2 * attention, 2 * (layers + attention)], rel=1e-12)


def test_lora_needs_two_thirds_of_the_flops() -> None:
    full, lora = step(job(), grad_accum=2), step(job(kind="lora"), grad_accum=2)
    base = 4 * LINEAR * 4096 + 3 * 4 * 128 * 32 * 32 * PAIRS
    adapters = 6 * 4096 * job(kind="lora").method.trained.adapter_parameters(job().model)
    assert lora.flops[0] == pytest.approx(2 * (base + adapters), rel=1e-12)
    assert lora.flops[0] < 0.75 * full.flops[0]


def test_speed_of_light_by_hand() -> None:
    """989 TFLOP/s for every product, the whole bandwidth for every byte; a compute-bound step is near the first."""
    made = ask({"model": "llama-2-7b", "job": "sft", "stack": "megatron-lm", "efficiency.ideal": True}).job
    whole = step(made, grad_accum=8)
    products_s = 8 * 6 * LINEAR * 4096 / 989e12
    attention_s = 8 * 32 * (1 + 2.5) * 4 * 128 * 32 * PAIRS / 989e12
    compute_s = sum(whole.components[name][0] for name in ("forward", "backward"))
    assert products_s + attention_s <= compute_s <= 1.25 * (products_s + attention_s)
    assert whole.components["host"][0] == whole.components["step overhead"][0] == 0.0


@pytest.mark.parametrize("kind", ["sft", "lora", "qlora", "p-tuning"])
def test_the_laws_are_never_faster_than_light(kind: str) -> None:
    flags = {"model": "llama-2-7b", "job": kind, "train.seq_len": 1024}
    real, ideal = ask(flags).job, ask({**flags, "efficiency.ideal": True}).job
    sizes = {"tp": [1, 2, 8], "dp": [8, 4, 1], "grad_accum": 4}
    assert np.all(step(ideal, **sizes).step_s < step(real, **sizes).step_s)


@pytest.mark.parametrize(
    ("stack", "bytes_per_element", "passes"),
    [("megatron-lm", 4 + 2 + 2 * 12 + 12, 1), ("hf-trainer@4.40", 4 + 4 + 2 * 8 + 12, 2)],
)
def test_optimizer_reads_and_writes_its_states(stack: str, bytes_per_element: int, passes: int) -> None:
    made = job(stack=stack)
    bandwidth = made.device.memory_bound_efficiency * made.device.bandwidth_bytes_per_s
    expected = LLAMA_2_7B * bytes_per_element * passes / bandwidth
    whole = step(made, dp=[1, 8], zero=[0, 1], grad_accum=2)
    assert whole.components["optimizer"] == pytest.approx([expected, expected / 8], rel=1e-12)


def test_gradients_are_reduced_once_a_step() -> None:
    """ZeRO 0 all-reduces float32 gradients; ZeRO 1 scatters them and gathers 16-bit weights."""
    made = without_overlap(job(stack="megatron-lm"))
    gradients, weights = 4 * LLAMA_2_7B, 2 * LLAMA_2_7B

    def exchange(operation: str, message: float) -> float:
        return float(collective_time_s(operation, message, 8, 8, made.network)) / made.stack.efficiency.collectives

    expected = [
        exchange(ALL_REDUCE, gradients),
        exchange(REDUCE_SCATTER, gradients) + exchange(ALL_GATHER, weights),
    ]
    for accum in (1, 4):
        whole = step(made, dp=8, zero=[0, 1], grad_accum=accum)
        assert whole.components["data-parallel communication"] == pytest.approx(expected, rel=1e-12)


def test_zero_3_gathers_every_layer_in_every_micro_batch() -> None:
    """Three exchanges of a layer a micro-batch: two gathers and one scatter; the root is gathered once."""
    made = without_overlap(job(stack="deepspeed"))
    layer, root = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096, 2 * 32000 * 4096 + 4096

    def exchange(operation: str, elements: float) -> float:
        seconds = collective_time_s(operation, 2 * elements, 8, 8, made.network)
        return float(seconds) / made.stack.efficiency.collectives

    micro_batch_s = 32 * (2 * exchange(ALL_GATHER, layer) + exchange(REDUCE_SCATTER, layer)) + exchange(
        ALL_GATHER, root
    )
    whole = step(made, dp=8, zero=3, grad_accum=3)
    assert whole.components["data-parallel communication"][0] == pytest.approx(3 * micro_batch_s, rel=1e-12)


def test_overlap_hides_no_more_than_the_compute() -> None:
    """What is exposed lies between nothing hidden and all of it but the first layer."""
    made = job(stack="deepspeed")
    bare, hidden = (step(j, dp=16, zero=3, grad_accum=2) for j in (without_overlap(made), made))
    exposed = [made.components["data-parallel communication"][0] for made in (bare, hidden)]
    assert exposed[0] / 32 - 1e-9 <= exposed[1] < exposed[0]


def test_one_rank_exchanges_nothing() -> None:
    whole = step(job(), zero=[0, 1, 3], grad_accum=2)
    for name in ("data-parallel communication", "tensor-parallel communication", "pipeline transfers"):
        assert whole.components[name].tolist() == [0, 0, 0]


def test_components_sum_to_the_step() -> None:
    whole = step(job(), tp=[1, 2, 4], pp=[1, 4, 2], dp=[8, 1, 1], zero=[3, 0, 0], grad_accum=8)
    assert sum(whole.components.values()) == pytest.approx(whole.step_s, rel=1e-12)


def test_modules_hold_all_kernels() -> None:
    """Modules split forward, backward and recomputation by part of the model."""
    whole = step(job(), recompute=[0, 1, 2], grad_accum=4)
    forward = sum(forward for forward, _ in whole.modules.values())
    backward = sum(backward for _, backward in whole.modules.values())
    assert forward == pytest.approx(whole.components["forward"], rel=1e-12)
    expected = whole.components["backward"] + whole.components["recompute"]
    assert backward == pytest.approx(expected, rel=1e-12)


def test_offloaded_optimizer_pays_the_link_and_the_cpu() -> None:
    """Gradients leave and weights return over PCIe at 0.88 of its rate; the node's CPU moves 28 bytes a weight."""
    made = job(stack="deepspeed")
    whole = step(made, dp=8, zero=1, offload=1, grad_accum=2)
    copies_s = (2 + 2) * LLAMA_2_7B / 8 / (0.88 * made.server.pcie_bytes_per_s)
    cpu_s = 28 * LLAMA_2_7B / (made.stack.host.cpu_adam_gb_per_s_per_node * 1e9)
    assert whole.components["offload"][0] == pytest.approx(copies_s + cpu_s, rel=1e-12)
    assert whole.components["optimizer"][0] == 0


def test_waiting_for_the_host_hides_exchanges_too() -> None:
    """A tiny batch on an eager stack: the step is the launches, so that a faster card cannot make it slower."""
    made = job(kind="lora", stack="torchtune", train__seq_len=64, train__padding="to-seq-len")
    faster = replace(made, device=replace(made.device, bandwidth_bytes_per_s=4 * made.device.bandwidth_bytes_per_s))
    before, after = (step(j, dp=2, zero=3, recompute=2) for j in (made, faster))
    assert before.components["host"][0] > 0.1 * before.step_s[0]
    assert after.step_s[0] <= before.step_s[0]


def test_spread_experts_are_exchanged_and_updated_by_the_ranks_that_hold_them() -> None:
    """Mixtral on 16 GPUs. With 8 expert ranks two ranks hold the same experts.

    Dense weights go over all 16 ranks, 1/8 of the experts over 2 on different nodes; a rank updates 1/16 of the
    dense weights and half of its experts: 1/16 of all in the end.
    """
    made = without_overlap(job("mixtral-8x7b", stack="megatron-lm"))
    experts = 32 * 8 * 3 * 4096 * 14336
    dense = 46_702_792_704 - experts
    whole = step(made, dp=16, ep=[1, 8], zero=[0, 0], grad_accum=2)

    def all_reduce(elements: float, ranks: int, per_node: int) -> float:
        seconds = collective_time_s(ALL_REDUCE, 4 * elements, ranks, per_node, made.network)
        return float(seconds) / made.stack.efficiency.collectives

    expected = [all_reduce(dense + experts, 16, 8), all_reduce(dense, 16, 8) + all_reduce(experts / 8, 2, 1)]
    assert whole.components["data-parallel communication"] == pytest.approx(expected, rel=1e-12)
    updates = step(made, dp=16, ep=[1, 8], zero=1, grad_accum=2).components["optimizer"]
    assert updates[0] == pytest.approx(updates[1], rel=1e-12)


def test_selective_by_operator_runs_every_second_product_again() -> None:
    """TorchTitan saves attention, and of Llama's products those of queries, keys and values, of the gate and down.

    Megatron-LM recomputes the attention core alone.
    """
    by_operator, core = (
        timeline(job(kind="pretrain", stack=stack, train__seq_len=2048), layouts(dp=8, zero=3, recompute=1))
        for stack in ("torchtitan", "generic")
    )
    share = by_operator.recompute_flops[0] / by_operator.flops[0]
    hidden, ffn, vocab, keys = 4096, 11008, 32_000, (2048 + 1) / 2
    again = 32 * (hidden**2 + hidden * ffn)  # the attention's output projection, and up
    forward = 32 * (4 * hidden**2 + 3 * hidden * ffn + 2 * keys * hidden) + vocab * hidden
    assert share == pytest.approx(again / (3 * forward), rel=1e-3)
    assert core.recompute_flops[0] < 0.2 * by_operator.recompute_flops[0]
    assert by_operator.components["recompute"][0] > 3 * core.components["recompute"][0]
