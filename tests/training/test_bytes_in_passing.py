"""What a rank holds for a part of the step: activations, gathers, casts, logits, buckets; bytes by arithmetic."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import GPT, job, layouts
from msgspec.structs import replace

from xe_sizer.graph.model import SharedBlocks
from xe_sizer.training.communication import exchange_every_micro_batch
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.memory import Ledger, at_level, memory_ledger
from xe_sizer.training.memory_parts import MOMENTS

# Llama 2 7B: 32 layers of q, k, v, o and gate, up, down; two norms each, one more at the end; embedding and head.
LAYERS, HIDDEN, FFN, VOCAB = 32, 4096, 11008, 32000
LINEAR, NORMS, TABLE = 4 * HIDDEN**2 + 3 * HIDDEN * FFN, 2 * HIDDEN, VOCAB * HIDDEN
ROOT = 2 * TABLE + HIDDEN  # with the last norm
PARAMETERS = LAYERS * (LINEAR + NORMS) + ROOT
ADAPTERS = LAYERS * 2 * 8 * 2 * HIDDEN  # r = 8 on q and v
TOKENS, GIB = 512, 2**30


def ledger(made: Job, **sizes: object) -> Ledger:
    return memory_ledger(made, layouts(**sizes), np.array([float(TOKENS)]))


def lora(stack: str, **more: object) -> Job:
    return job(kind="lora", stack=stack, lora__rank=8, lora__targets=["q", "v"], **more)


def course(found: Ledger, name: str, stage: int = 0, index: int = 0) -> list[float]:
    """Bytes at each moment."""
    whole = np.broadcast_to(found.components[name], found.total_bytes.shape)
    return [float(size) for size in whole[stage, :, index]]


# Casts: 2 bytes for each float32 weight of a product. Norms are no part of it, 4e-5 of a layer.
def test_autocast_keeps_16_bit_copies_until_their_backward() -> None:
    found = course(ledger(job(stack="hf-trainer@4.40")), "cast weights")
    layers, head, layer = 2 * LAYERS * LINEAR, 2 * TABLE, 2 * LINEAR
    assert found == pytest.approx([layers + head, layers + head, layers, layer, 0, 0], rel=1e-4)


def test_a_recomputed_layer_casts_again() -> None:
    """All recomputed: one layer at a time. A quarter of them: three quarters stay, and one layer comes beside them."""
    head, layer = 2 * TABLE, 2 * LINEAR
    made = job(stack="hf-trainer@4.40")
    full = course(ledger(made, recompute=2), "cast weights")
    assert full == pytest.approx([head, head, layer, layer, 0, 0], rel=1e-4)
    some = course(ledger(replace(made, recompute_layers=8), recompute=2), "cast weights")
    kept = 24 * layer
    assert some == pytest.approx([kept + head, kept + head, kept + layer / 4, layer, 0, 0], rel=1e-4)


def test_casts_of_experts_count_and_those_of_gathered_layers_do_not() -> None:
    """Mixtral: 4 of 16 layers' worth on each of 8 expert groups; ZeRO-3 gathers in 16 bit already."""
    made = job("mixtral-8x7b", stack="hf-trainer@4.40")
    attention, experts = 2 * 4096**2 + 2 * 4096 * 1024, 8 * 3 * 4096 * 14336 / 8
    found = ledger(made, dp=8, ep=8, zero=[0, 3])
    assert course(found, "cast weights")[2] == pytest.approx(2 * 32 * (attention + experts), rel=1e-3)
    assert course(found, "cast weights", index=1) == [0] * 6


# Gathers: the root and two layers in the type they are sent in; the root's gradient in the backward.
def test_zero_3_gathers_the_root_and_two_layers() -> None:
    units, root = 2 * (ROOT + 2 * (LINEAR + NORMS)), 2 * ROOT
    found = ledger(job(stack="deepspeed"), dp=8, zero=[2, 3])
    assert course(found, "gathered layers") == [0] * 6
    assert course(found, "gathered layers", index=1) == [units, units, units + root, units + root, 0, 0]


def test_frozen_weights_are_gathered_without_gradients() -> None:
    units = 2 * (ROOT + 2 * (LINEAR + NORMS))
    found = ledger(lora("deepspeed"), dp=8, zero=3)
    assert course(found, "gathered layers") == [units] * 4 + [0, 0]


def test_quantised_layers_are_gathered_in_4_bit() -> None:
    """4.127 bits a weight (arXiv:2305.14314) of two layers, 16 of the root."""
    found = ledger(job(kind="qlora", stack="hf-bf16"), dp=8, zero=3)
    expected = 2 * ROOT + 2 * LINEAR * 4.127 / 8
    assert course(found, "gathered layers")[0] == pytest.approx(expected, rel=1e-3)


def test_a_stage_of_a_pipeline_is_gathered_whole() -> None:
    """Of two stages each has 16 layers; the first has the embedding, the last the head and the norm; no gradients."""
    found = ledger(job(stack="torchtitan"), pp=2, dp=4, zero=3, grad_accum=2)
    first = 2 * (16 * (LINEAR + NORMS) + TABLE)
    assert course(found, "gathered layers", 0) == [first] * 4 + [0, 0]
    assert course(found, "gathered layers", 1) == [first + 2 * HIDDEN] * 4 + [0, 0]


def test_a_whole_layer_of_experts_is_gathered() -> None:
    made = job("mixtral-8x7b", stack="deepspeed")
    attention, experts = 2 * 4096**2 + 2 * 4096 * 1024 + 4096 * 8 + 2 * 4096, 8 * 3 * 4096 * 14336
    units = 2 * 32000 * 4096 + 4096 + 2 * (attention + experts / 2)
    found = ledger(made, dp=8, ep=2, zero=3)
    assert course(found, "gathered layers")[0] == 2 * units


@pytest.mark.parametrize(("sets", "layers"), [(2, 2), (1, 1)])
def test_a_layer_is_gathered_with_all_that_it_shares(sets: int, layers: int) -> None:
    """32 layers of few sets of weights: a rank holds these alone, and gathers two layers, or the one there is."""
    made = job(stack="deepspeed")
    shared = replace(made, model=replace(made.model, shared_blocks=SharedBlocks(sets=sets)))
    own, common = (Evaluation(one, layouts(dp=8, zero=3)) for one in (made, shared))
    assert (common.held.linear / own.held.linear).tolist() == [[sets / LAYERS]] * 2
    found = course(ledger(shared, dp=8, zero=3), "gathered layers")[0]
    assert found == pytest.approx(2 * (ROOT + layers * (LINEAR + NORMS)), rel=1e-12)
    exchanges = [exchange_every_micro_batch(one, np.zeros(1)) for one in (own, common)]
    assert exchanges[0].tolist() == pytest.approx(exchanges[1].tolist(), rel=1e-12)


# Logits: tokens x vocabulary x what the loss kernel keeps after the forward and holds at the loss.
@pytest.mark.parametrize(
    ("loss", "kept", "live"),
    [
        ("eager", 4, 12),  # float32 logits; their softmax and its gradient beside them
        ("no-upcast", 2, 6),  # the same in 16 bit
        ("gathered", 10, 20),
        ("in-place", 6, 8),
        ("vocab-parallel", 4, 6),
        ("flash", 2, 2),
        ("fused", 0, 0.5),
    ],
)
def test_logits_of_every_loss_kernel(loss: str, kept: float, live: float) -> None:
    found = course(ledger(job(stack="hf-bf16", loss=loss), micro_batch=2), "logits and loss")
    logits = 2 * TOKENS * VOCAB
    assert found == pytest.approx([kept * logits, live * logits, 0, 0, 0, 0], rel=1e-12)


def test_logits_are_on_the_stage_of_the_head_alone() -> None:
    found = ledger(job(stack="megatron-lm"), pp=[1, 4], tp=[1, 2], grad_accum=4)
    assert course(found, "logits and loss", 0, 0)[1] == 6 * TOKENS * VOCAB
    assert course(found, "logits and loss", 0, 1)[1] == 0
    assert course(found, "logits and loss", 1, 1)[1] == 6 * TOKENS * VOCAB / 2


def test_capped_logits_keep_the_result_of_the_tanh() -> None:
    """Gemma 2 caps its logits: 2 bytes more for each of 256,000, kept and live."""
    capped = job("gemma-2-2b", stack="hf-bf16", loss="eager")
    found = course(ledger(capped), "logits and loss")
    assert found[:2] == [(4 + 2) * TOKENS * 256_000, (12 + 2) * TOKENS * 256_000]


# Buckets: half a GiB, at most the reduced gradients; from the loss to the end of the backward.
def test_buckets_of_a_reduction() -> None:
    """DeepSpeed's has 5e8 elements of 16 bit, unless somebody says otherwise."""
    found = ledger(job(stack="deepspeed"), dp=[1, 2])
    assert course(found, "communication buckets") == [0] * 6
    passing = course(found, "communication buckets", index=1)
    assert passing == pytest.approx([0] + [5e8 * 2] * 4 + [0], rel=0.01)
    smaller = ledger(job(stack="deepspeed", layout__bucket_gib=0.25), dp=2)
    assert course(smaller, "communication buckets") == [0] + [GIB / 4] * 4 + [0]


def test_a_bucket_is_no_larger_than_the_gradients() -> None:
    """DeepSpeed reduces adapters in 16 bit, NeMo AutoModel in float32; context-parallel ranks reduce as well."""
    for stack, size in (("deepspeed", 2), ("nemo-automodel", 4)):
        found = ledger(lora(stack), cp=2)
        assert course(found, "communication buckets") == [0] + [size * ADAPTERS] * 4 + [0]


def test_megatron_reduces_gradients_where_they_lie() -> None:
    assert course(ledger(lora("megatron-lm"), cp=2), "communication buckets") == [0] * 6


# Activations: of a GPT layer in 16 bit, l = 2 s b h: 16 l and float32 sums of 16 heads (arXiv:2205.05198, section 4).
INPUT = 2 * TOKENS * 1024
WHOLE = 16 * INPUT + 4 * 16 * TOKENS


def gpt(**more: object) -> Job:
    return replace(job(stack="megatron-lm", train__seq_len=TOKENS, **more), model=replace(GPT, layers=8))


def test_a_first_stage_holds_its_layers_for_every_micro_batch_in_flight() -> None:
    """Two layers, four in flight. The last layer is free while its backward runs; at the first one, three are left."""
    found = course(ledger(gpt(), pp=4, grad_accum=8), "activations")
    expected = [8 * WHOLE, 8 * WHOLE, 7 * WHOLE, 6 * WHOLE, 0, 0]
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_recomputed_stage_holds_the_inputs_of_its_layers() -> None:
    """Checkpoints outlive the backward of their layer: at the first layer's own there is one beside three batches."""
    found = course(ledger(gpt(), pp=4, grad_accum=8, recompute=2), "activations")
    expected = [8 * INPUT, 8 * INPUT, 8 * INPUT, (3 * 2 + 1) * INPUT, 0, 0]
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_stage_that_recomputes_one_of_two_layers() -> None:
    made = replace(gpt(), recompute_layers=1)
    found = course(ledger(made, pp=4, grad_accum=8, recompute=2), "activations")
    assert found[0] == pytest.approx(4 * (WHOLE + INPUT), rel=1e-12)


def test_offloaded_inputs_leave_two_layers_of_one_micro_batch() -> None:
    """Four layers on a stage: two on the card, of all four micro-batches 16 in host memory."""
    found = ledger(gpt(), pp=2, grad_accum=8, recompute=2, offload=3)
    assert course(found, "activations") == [2 * INPUT] * 3 + [INPUT, 0, 0]
    assert found.host_bytes[0] == 2 * 4 * 2 * INPUT


# The rest.
def test_a_tied_table_has_three_gradients_for_a_moment() -> None:
    """Head's and embedding's, and their sum, beside the first; and the gradient of the hidden state."""
    made = job("llama-3.2-1b", stack="hf-bf16")
    found = course(ledger(made), "layer in its backward")
    table, state = 128_256 * 2048, TOKENS * 2048
    assert found[:2] + found[4:] == [0, 0, 2 * 2 * table + 2 * state, 0]
    frozen = course(ledger(job("llama-3.2-1b", kind="lora", stack="hf-bf16")), "layer in its backward")
    assert frozen[4] == 2 * state
    untied = course(ledger(job(stack="hf-bf16")), "layer in its backward")
    assert untied[4] == 2 * TOKENS * HIDDEN
    # Both are added to one buffer, or stand on two stages of a pipeline.
    assert course(ledger(job("llama-3.2-1b", stack="megatron-lm")), "layer in its backward")[4] == 2 * state
    assert course(ledger(made, pp=2), "layer in its backward")[4] == 2 * state


def test_layer_norms_of_cohere_are_written_out() -> None:
    """What is left of the mean twice and the normalised value in float32, 12 bytes an element instead of 2; 41 norms.

    Adapters learn no weight of a norm, so the last is not kept, nor is anything before the first adapter.
    """
    hidden = 8192
    for kind, each, norms in (("sft", 10, 41), ("lora", 6, 40)):
        eager, fused = (
            course(ledger(job("command-r", kind=kind, stack="hf-bf16", **more)), "activations")[0]
            for more in ({}, {"train__fused_kernels": ["norm"]})
        )
        assert eager - fused == each * norms * hidden * TOKENS


def test_a_multi_tensor_update_has_a_temporary_of_each_share() -> None:
    """4 bytes of every float32 weight that the rank updates; none where the host does; one kernel needs none."""
    made = job(stack="hf-trainer@4.40")
    found = ledger(made, dp=4, zero=[0, 1, 1], offload=[0, 0, 1])
    name = "optimizer workspace"
    assert [course(found, name, index=index)[5] for index in range(3)] == [4 * PARAMETERS, PARAMETERS, 0]
    assert course(found, name)[:5] == [0] * 5
    assert course(ledger(lora("fms-hf-tuning")), name)[5] == 2 * ADAPTERS
    assert course(ledger(job(stack="megatron-lm")), name) == [0] * 6


def test_a_matrix_is_expanded_for_its_product() -> None:
    """bitsandbytes expands a matrix to 16 bit for its product, of the MLP the largest; none at the loss."""
    found = course(ledger(job(kind="qlora", stack="hf-bf16")), "dequantised layer")
    assert found == [0, 0, 2 * HIDDEN * FFN, 2 * HIDDEN * FFN, 0, 0]


def test_replicas_hold_their_gradients_in_buckets_too() -> None:
    """DistributedDataParallel without gradient_as_bucket_view: another 4 bytes an element, at every moment."""
    made = job(stack="hf-trainer@4.40")
    assert course(ledger(made, dp=8), "communication buckets") == [4 * PARAMETERS] * 6
    assert course(ledger(made), "communication buckets") == [0] * 6
    assert course(ledger(made, dp=8, zero=3), "communication buckets")[1] == GIB / 2
    adapters = course(ledger(lora("hf-trainer@4.40"), dp=8), "communication buckets")
    assert adapters == [4 * ADAPTERS] * 6


def test_deepspeed_updates_from_float32_gradients() -> None:
    """single_grad_partition, 4 bytes of a rank's share; ZeRO-3 takes 1e9 elements at a time; none on the CPU."""
    made = job(stack="deepspeed")
    name = "optimizer workspace"
    assert course(ledger(made, dp=4, zero=2), name) == [0] * 5 + [PARAMETERS]
    assert course(ledger(made, dp=2, zero=3), name)[5] == 4e9
    assert course(ledger(made, dp=8, zero=3), name)[5] == PARAMETERS / 2
    assert course(ledger(made, dp=4, zero=2, offload=1), name) == [0] * 6


def saved_of_a_layer(made: Job) -> float:
    """What a layer keeps of a token [bytes]."""
    found = course(ledger(made), "activations")
    return (found[0] - found[3]) / LAYERS / TOKENS


def test_layers_in_few_bits_return_float32_where_the_rest_is_float32() -> None:
    """Trainer, peft and bitsandbytes: hidden state, gate, up and their product are float32, so is what norms keep.

    Of a token in a layer beside the adapters' inputs: two norms (4 bytes each), Q, K, V and output in 16 bit, three
    tensors of the MLP in float32 instead of 16 bit. The head is cast to 16 bit until its backward.
    """
    wide, narrow = (job(kind="qlora", stack=name, lora__targets=["q"]) for name in ("hf-trainer", "axolotl"))
    assert (wide.upcasts, narrow.upcasts) == (True, False)
    assert saved_of_a_layer(wide) - saved_of_a_layer(narrow) == pytest.approx(3 * 2 * FFN, rel=2e-3)
    assert course(ledger(wide), "cast weights") == pytest.approx([2 * TABLE] * 2 + [0] * 4, rel=1e-4)
    assert course(ledger(wide, dp=8, zero=3), "cast weights") == [0] * 6
    full = [course(ledger(one, recompute=2), "activations")[0] for one in (wide, narrow)]
    assert full[0] - full[1] == 2 * LAYERS * HIDDEN * TOKENS


@pytest.mark.parametrize(("quantiser", "wide"), [("bitsandbytes", True), ("awq", True), ("hqq", False)])
def test_peft_upcasts_what_some_libraries_leave(quantiser: str, wide: bool) -> None:
    made = job(kind="qlora", stack="hf-trainer", train__quantiser=quantiser)
    assert made.upcasts == wide
    tables = (
        course(ledger(made), "weights")[0]
        - course(ledger(job(kind="qlora", stack="hf-bf16", train__quantiser=quantiser)), "weights")[0]
    )
    assert tables == pytest.approx(2 * (ROOT + LAYERS * NORMS) * wide, abs=1)


def test_trl_stopped_preparing_quantised_models() -> None:
    assert job(kind="qlora", stack="trl@0.25").upcasts
    assert not job(kind="qlora", stack="trl@0.26").upcasts


def test_overheads_of_a_level() -> None:
    """Typical ones are the stack's typical figures, cautious ones the cautious; tensors are the same."""
    made = job(stack="megatron-lm")
    memory, chosen = made.stack.memory, layouts(tp=2, pp=2, cp=2, dp=2, grad_accum=4)
    cautious = memory_ledger(made, chosen, np.array([float(TOKENS)]))
    typical = at_level(cautious, Evaluation(made, chosen), "typical")
    for level, found in (("cautious", cautious), ("typical", typical)):
        parts = [found.components[name].max() for name in ("CUDA context", "library workspaces", "NCCL buffers")]
        figures = (memory.context_gib, memory.workspace_gib, memory.communicator_gib)
        each = [getattr(figure, level) * GIB for figure in figures]
        assert parts == pytest.approx([each[0], each[1], 4 * each[2]], rel=1e-12)
    ratio = typical.components["allocator slack"] / cautious.components["allocator slack"]
    assert ratio == pytest.approx(memory.slack_share.typical / memory.slack_share.cautious)
    # PyTorch allocates cuBLAS's workspaces, so they are tensors too.
    workspaces = (memory.workspace_gib.cautious - memory.workspace_gib.typical) * GIB
    assert cautious.tensor_peak_bytes - typical.tensor_peak_bytes == pytest.approx(workspaces)


@pytest.mark.parametrize("kind", ["tp", "pp", "cp", "dp"])
def test_every_group_of_ranks_has_a_communicator(kind: str) -> None:
    made = job(stack="megatron-lm")
    found = ledger(made, grad_accum=4, **{kind: 2})
    expected = made.stack.memory.communicator_gib.cautious * GIB
    assert found.components["NCCL buffers"].max() == pytest.approx(expected, rel=1e-12)
    experts = ledger(job("mixtral-8x7b", stack="megatron-lm"), dp=2, ep=2)
    assert experts.components["NCCL buffers"].max() == pytest.approx(2 * expected, rel=1e-12)


def test_peaks_of_a_ledger_leave_out_what_they_do_not_see() -> None:
    """Tensors 4 and slack 2, context 8, communicators 16; 32 of cached blocks that a monitor and PyTorch show."""
    sizes = {"weights": 4.0, "allocator slack": 2.0, "CUDA context": 8.0, "NCCL buffers": 16.0}
    parts = {name: np.full((2, len(MOMENTS), 1), size) for name, size in sizes.items()}
    parts["gradients"] = np.zeros((2, len(MOMENTS), 1))
    parts["gradients"][1, 4] = 1.0
    found = Ledger(parts, np.zeros(1), np.array([32.0]))
    peaks = (found.peak_bytes, found.tensor_peak_bytes, found.reserved_peak_bytes, found.monitored_peak_bytes)
    assert [float(peak[0]) for peak in peaks] == [31, 5, 39, 63]
    assert found.worst() == (1, 4)
    assert found.at_peak() == {**sizes, "gradients": 1.0}
    assert found.total_bytes[1, :, 0].tolist() == [30, 30, 30, 30, 31, 30]


def test_quantised_weights_that_autograd_keeps_expanded() -> None:
    """AutoGPTQ: 16 bit of every linear weight until its backward; where layers run again one at a time."""
    made = job(kind="qlora", stack="hf-bf16")
    assert made.method.held is not None
    width = msgspec.structs.replace(made.method.held.width, keeps_weight=True)
    trained = replace(made.method.trained, held=replace(made.method.held, width=width))
    made = replace(made, method=replace(made.method, trained=trained))
    whole, layer = 2 * LAYERS * LINEAR, 2 * LINEAR
    plain = course(ledger(made), "dequantised weights")
    assert plain == pytest.approx([whole, whole, whole, layer, 0, 0], rel=1e-4)
    again = course(ledger(made, recompute=2), "dequantised weights")
    assert again == pytest.approx([0, 0, layer, layer, 0, 0], rel=1e-4)


def test_reentrant_recomputation_holds_what_frozen_layers_read() -> None:
    """Hidden state and gradient in bfloat16 of each recomputed layer; at the first layer's backward all but its own."""
    held = course(ledger(lora("hf-trainer@4.50", lora__dropout=0), recompute=2, zero=3, dp=8), "inputs held by FSDP")
    state = 2 * 2 * TOKENS * HIDDEN
    assert held == pytest.approx([0, 0, 0, (LAYERS - 1) * state, LAYERS * state, 0])
