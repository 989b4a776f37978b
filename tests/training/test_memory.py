"""The memory ledger against arithmetic of the papers that introduced each saving."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from cases import GPT, job, layouts
from msgspec.structs import replace

from xe_sizer.graph.operators import Array
from xe_sizer.training import evaluation
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.layout import Split, build_stages, micro_batches_in_flight
from xe_sizer.training.memory import Ledger, fits, memory_ledger, possible_of
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.padding import Sequences
from xe_sizer.training.rank import rank_shapes
from xe_sizer.training.summary import terms_at

LLAMA_2_7B = 6_738_415_616
STATES = ("weights", "gradients", "optimizer states")
GIB = 2**30


def ledger(made: Job, **sizes: object) -> Ledger:
    return memory_ledger(made, layouts(**sizes))


def at(made: Ledger, name: str, moment: str, stage: int = 0, index: int = 0) -> float:
    whole = np.broadcast_to(made.components[name], made.total_bytes.shape)
    return float(whole[stage, MOMENTS.index(moment), index])


def states(made: Ledger, index: int = 0) -> float:
    return sum(at(made, name, "optimizer step", index=index) for name in STATES)


@pytest.mark.parametrize(("zero", "bytes_per_parameter"), [(0, 16), (1, 4 + 12 / 64), (2, 2 + 14 / 64), (3, 16 / 64)])
def test_zero_states_of_a_7b_model_on_64_gpus(zero: int, bytes_per_parameter: float) -> None:
    """Rajbhandari et al. 2020 (arXiv:1910.02054), figure 1: 2 + 2 + 12 bytes, split stage by stage.

    Their 7.5 billion parameters on 64 GPUs need 120, 31.4, 16.6 and 1.9 GB.
    """
    made = ledger(job(stack="deepspeed"), dp=64, zero=zero, grad_accum=2)
    assert states(made) == pytest.approx(bytes_per_parameter * LLAMA_2_7B, rel=1e-12)
    published_gb = (120, 31.4, 16.6, 1.9)[zero]
    assert states(made) / LLAMA_2_7B * 7.5 == pytest.approx(published_gb, rel=0.02)


@pytest.mark.parametrize(
    ("stack", "weights", "gradients", "optimizer"),
    [("megatron-lm", 2, 4, 12), ("nemo", 2, 2, 12), ("hf-trainer@4.40", 4, 4, 8)],
)
def test_bytes_per_parameter_of_a_stack(stack: str, weights: int, gradients: int, optimizer: int) -> None:
    """Megatron-LM: 16-bit weights, float32 gradients, master and moments: 18 bytes. Autocast: all float32, 16."""
    made = ledger(job(stack=stack), grad_accum=2)
    expected = [weights * LLAMA_2_7B, gradients * LLAMA_2_7B, optimizer * LLAMA_2_7B]
    assert [at(made, name, "optimizer step") for name in STATES] == pytest.approx(expected, rel=1e-12)


def test_fsdp_keeps_whole_gradients_while_it_accumulates() -> None:
    """The Trainer reduces gradients after the last micro-batch only; LLM Foundry after each."""
    each, last = job(stack="llm-foundry"), job(stack="hf-trainer@4.40")
    for accumulated, share in ((1, 1 / 8), (4, 1.0)):
        made = ledger(last, dp=8, zero=3, grad_accum=accumulated)
        size = 2 if share == 1 else 4  # reduced gradients are float32, those that wait have the type of the layer
        assert at(made, "gradients", "end of backward") == pytest.approx(share * size * LLAMA_2_7B, rel=1e-12)
        sharded = at(ledger(each, dp=8, zero=3, grad_accum=accumulated), "gradients", "end of backward")
        assert sharded == pytest.approx(4 / 8 * LLAMA_2_7B, rel=1e-12)
    assert at(made, "gradients", "optimizer step") == pytest.approx(4 / 8 * LLAMA_2_7B, rel=1e-12)


def test_megatron_deepspeed_keeps_both_gradients() -> None:
    """BF16_Optimizer: 2 + 2 + 4 bytes beside the sharded 12; the peaks of 175B on LUMI-G, 128 to 2,048 GCDs."""
    made = ledger(job(stack="megatron-deepspeed"), grad_accum=2)
    assert at(made, "gradients", "optimizer step") == pytest.approx(6 * LLAMA_2_7B, rel=1e-12)


def test_paged_moments_move_to_the_host() -> None:
    """bitsandbytes keeps them in unified memory: no card memory needed, but memory of the host."""
    paged, plain = (ledger(job(stack="hf-bf16", optimizer=name)) for name in ("paged-adamw", "adamw"))
    assert at(paged, "optimizer states", "optimizer step") == 0
    # bitsandbytes keeps float32 moments beside 16-bit weights, PyTorch 16-bit ones.
    assert paged.host_bytes[0] == pytest.approx(2 * at(plain, "optimizer states", "optimizer step"))
    assert plain.host_bytes[0] == 0


def test_updates_in_the_backward_free_gradients_at_once() -> None:
    made = {accumulated: ledger(job(stack="torchtune"), grad_accum=accumulated) for accumulated in (1, 2)}
    assert at(made[1], "gradients", "optimizer step") == 0
    assert at(made[2], "gradients", "optimizer step") == pytest.approx(2 * LLAMA_2_7B)


@pytest.mark.parametrize(
    ("loss", "bytes_per_logit"),
    [("eager", 12), ("gathered", 20), ("in-place", 8), ("vocab-parallel", 6), ("flash", 2), ("fused", 0.5)],
)
def test_bytes_of_a_logit_at_the_loss(loss: str, bytes_per_logit: float) -> None:
    """8 bytes: fms-acceleration's published peaks of PowerLM-3B, 0.99 to 1.02 of the measured ones."""
    made = ledger(job(stack="hf-bf16", loss=loss, train__seq_len=1024, train__padding="packed"))
    assert at(made, "logits and loss", "loss") == pytest.approx(bytes_per_logit * 1024 * 32_000, rel=1e-12)


def test_quantised_models_under_peft_have_float32_logits(tmp_path: Path) -> None:
    """prepare_model_for_kbit_training: 16 instead of 12 bytes a logit, but not under FSDP nor under autocast."""
    path = tmp_path / "prepared.yaml"
    path.write_text("name: prepared\nparent: hf-bf16\nstates: {quantised_upcast: true}\n")
    made = job(kind="qlora", stack=str(path), train__seq_len=1024, train__padding="packed")
    assert at(ledger(made), "logits and loss", "loss") == pytest.approx(16 * 1024 * 32_000, rel=1e-12)
    assert at(ledger(made, dp=8, zero=3), "logits and loss", "loss") == pytest.approx(12 * 1024 * 32_000, rel=1e-12)


@pytest.mark.parametrize(("optimizer", "moments"), [("adamw", 8), ("sgd", 4), ("adamw-8bit", 2.03)])
def test_moments_of_an_optimizer(optimizer: str, moments: float) -> None:
    made = ledger(job(stack="hf-trainer@4.40", optimizer=optimizer))
    assert at(made, "optimizer states", "optimizer step") == pytest.approx(moments * LLAMA_2_7B, rel=1e-12)


def test_float32_training_has_no_master_copy() -> None:
    made = ledger(job(stack="megatron-lm", precision="fp32"), grad_accum=2)
    assert states(made) == pytest.approx(16 * LLAMA_2_7B, rel=1e-12)


def test_lora_trains_its_adapters_alone() -> None:
    """4,194,304 adapter weights (r = 8 on q and v): 2 bytes each beside 2 bytes a frozen weight, 4 + 12 for states."""
    made = ledger(job(kind="lora", lora__rank=8, lora__targets=["q", "v"]), grad_accum=2)
    sizes = [at(made, name, "optimizer step") for name in ("weights", "adapters", "gradients", "optimizer states")]
    assert sizes == pytest.approx([2 * LLAMA_2_7B, 2 * 4_194_304, 4 * 4_194_304, 12 * 4_194_304], rel=1e-12)


def test_nf4_with_double_quantisation() -> None:
    """QLoRA (arXiv:2305.14314): 4 bits and 0.127 bits of constants a weight, and tables; the rest in 16 bit."""
    quantised = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    made = ledger(job(kind="qlora"))
    expected = quantised * (4 + 0.127) / 8 + (LLAMA_2_7B - quantised) * 2
    assert at(made, "weights", "loss") == pytest.approx(expected, rel=5e-4)
    assert 3.8e9 < at(made, "weights", "loss") < 4.0e9


def test_full_recomputation_keeps_the_layers_inputs() -> None:
    """2 s b h a layer (arXiv:2205.05198, section 5), and the head's own."""
    made = replace(job(stack="megatron-lm", train__seq_len=512), model=GPT)
    none, full = (ledger(made, micro_batch=2, recompute=mode, grad_accum=4) for mode in (0, 2))
    layer = 2 * 512 * 2 * 1024
    head = at(full, "activations", "loss") - 4 * layer
    assert 0 < head <= 3 * layer
    kept = at(none, "activations", "loss") - head
    assert kept == pytest.approx(4 * (16 * layer + 4 * 16 * 512 * 2), rel=1e-12)
    # Recomputed, the layer is whole again while its backward runs, with gradients of outputs and inputs beside it.
    again = at(full, "layer in its backward", "backward of the last layer")
    assert kept / 4 < again < 2 * kept / 4


def test_selective_recomputation_drops_the_scores_of_eager_attention() -> None:
    made = replace(job(stack="megatron-lm", attention="eager", train__seq_len=512), model=GPT)
    none, selective = (ledger(made, micro_batch=2, recompute=mode, grad_accum=4) for mode in (0, 1))
    scores = 4 * 16 * 512 * 512 * 2 * 2  # Megatron's fused softmax keeps 16 bit
    assert at(none, "activations", "loss") - at(selective, "activations", "loss") == pytest.approx(scores, rel=1e-12)


def test_sequence_parallelism_divides_the_activations() -> None:
    made = replace(job(stack="megatron-lm", train__seq_len=512), model=GPT)
    whole, split = (ledger(made, tp=tp, sequence_parallel=int(tp > 1), grad_accum=4) for tp in (1, 8))
    assert at(split, "activations", "loss") * 8 == pytest.approx(at(whole, "activations", "loss"), rel=1e-12)


def chunks_held(pp: int, vpp: int, micro_batches: int, stage: int) -> int:
    """Model chunks whose activations a stage holds at most, by running the schedule of Megatron-LM's source.

    Warm-up: all for one chunk short of a full pipeline of forwards, then one forward and one backward in turn.
    """
    total = micro_batches * vpp
    warmup = pp - stage - 1 if vpp == 1 else 2 * (pp - stage - 1) + (vpp - 1) * pp
    held = most = 0
    forwards = backwards = 0
    while backwards < total:
        if forwards < total and forwards - backwards <= warmup:
            forwards, held = forwards + 1, held + 1
        else:
            backwards, held = backwards + 1, held - 1
        most = max(most, held)
    return most


def in_flight(**sizes: object) -> Array:
    chosen = layouts(**sizes)
    return micro_batches_in_flight(chosen.schedule, chosen.pp, chosen.vpp, chosen.grad_accum)


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("vpp", [1, 2, 4])
def test_micro_batches_in_flight_of_a_schedule(pp: int, vpp: int) -> None:
    made = in_flight(pp=pp, vpp=vpp, grad_accum=4 * pp)
    simulated = [chunks_held(pp, vpp, 4 * pp, stage) / vpp for stage in (0, pp - 1)]
    assert made[:, 0] == pytest.approx(simulated, rel=1e-12)


def layers_held(pp: int, layers: list[int], total: int, stage: int) -> int:
    """Layers' activations that a stage holds at most, run by run; pp micro-batches pass a chunk before the next one."""
    forwards = [chunk for _ in range(total // pp) for chunk in range(len(layers)) for _ in range(pp)]
    backwards = [len(layers) - 1 - chunk for chunk in forwards]
    warmup, done, back, held, most = 2 * (pp - stage - 1) + (len(layers) - 1) * pp, 0, 0, 0, 0
    while back < len(backwards):
        if done < len(forwards) and done - back <= warmup:
            held, done = held + layers[forwards[done]], done + 1
        else:
            held, back = held - layers[backwards[back]], back + 1
        most = max(most, held)
    return most


@pytest.mark.parametrize("pp", [2, 8, 32])
@pytest.mark.parametrize("each", [[1, 1], [2, 2, 2], [1, 1, 1, 1]])
def test_chunks_that_hold_an_end_alone_or_with_a_layer_less(pp: int, each: list[int]) -> None:
    """The embedding and the loss take a layer's place, on the first chunk of all and on the last."""
    layers = pp * sum(each) - 2
    split = Split(embedding=True, loss=True)
    chosen = layouts(pp=pp, vpp=len(each), grad_accum=4 * pp)
    ends = build_stages(layers, split, chosen)
    shares = ends.in_outermost(chosen.vpp)
    made = micro_batches_in_flight(chosen.schedule, chosen.pp, chosen.vpp, chosen.grad_accum, shares)
    last = layers_held(pp, [*each[:-1], each[-1] - 1], 4 * pp, pp - 1)
    assert made[1, 0] * ends.layers[1, 0] == pytest.approx(last, rel=1e-12)
    if pp == 2:  # of more stages the second holds more than the first, and memory is counted for it
        first = layers_held(pp, [each[0] - 1, *each[1:]], 4 * pp, 0)
        assert made[0, 0] * ends.layers[0, 0] == pytest.approx(first, rel=1e-12)
    else:
        second = layers_held(pp, each, 4 * pp, 1)
        assert second <= made[0, 0] * ends.at_ends[0, 0] <= second + 2 * each[0]


@pytest.mark.parametrize(("vpp", "behind"), [(1, 7), (3, 8 + 7 / 3 - 2 / 3)])
def test_memory_is_of_the_fuller_of_the_first_two_stages(vpp: int, behind: float) -> None:
    """Of 22 layers on 8 stages the first has two, eight micro-batches and the embedding; the second three layers.

    Large micro-batches make the second fuller, with 3 x 7 layers' worth against 2 x 8; small ones leave the first.
    """
    of = replace(job(stack="megatron-lm"), model=GPT.with_layers(22), account_for_embedding=True, account_for_loss=True)
    one = Evaluation(of, layouts(pp=8, vpp=vpp, grad_accum=24, micro_batch=64)).at_fuller_stage
    assert one.stages.at_ends[0, 0] == 3
    assert one.in_flight[0, 0] == pytest.approx(behind)
    assert one.held.embedding[0, 0] == 0
    wide = replace(of, model=replace(of.model, vocab=2_000_000))
    chosen = layouts(pp=8, vpp=vpp, grad_accum=24)
    other = Evaluation(wide, chosen, Sequences.of_length(np.array([64.0]))).at_fuller_stage
    assert other.stages.at_ends[0, 0] == 2
    assert other.held.embedding[0, 0] > 0


def test_never_more_in_flight_than_there_are() -> None:
    assert in_flight(pp=8, grad_accum=[1, 3, 32]).tolist() == [[1, 3, 8], [1, 1, 1]]


def test_the_first_stage_of_a_pipeline_holds_pp_micro_batches() -> None:
    """As many layers' worth as one GPU with all layers and one micro-batch (Narayanan et al. 2021)."""
    made = job(stack="megatron-lm")
    one, four = (ledger(made, pp=pp, grad_accum=16) for pp in (1, 4))
    alone = at(one, "activations", "loss", stage=0)
    assert at(four, "activations", "loss", stage=0) == pytest.approx(alone, rel=0.03)
    assert at(four, "activations", "loss", stage=1) < alone / 2


def test_offloading_moves_the_optimizer_to_the_host() -> None:
    """ZeRO-Offload (arXiv:2101.06840): 16-bit weights and gradients stay, 12 bytes and the gradients' copy leave."""
    made = ledger(job(stack="deepspeed"), dp=8, zero=1, offload=[0, 1], grad_accum=2)
    assert at(made, "optimizer states", "optimizer step", index=1) == 0
    assert at(made, "weights", "loss", index=1) == 2 * LLAMA_2_7B
    assert made.host_bytes.tolist() == pytest.approx([0, 16 * LLAMA_2_7B], rel=1e-12)


def test_parameters_offloaded_leave_a_few_layers_on_the_card() -> None:
    made = ledger(job(stack="deepspeed"), dp=8, zero=3, offload=2, grad_accum=2)
    assert at(made, "weights", "loss") == 0
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    root = 2 * 32000 * 4096 + 4096
    assert at(made, "gathered layers", "loss") == pytest.approx(2 * (root + 2 * layer), rel=1e-12)
    assert made.host_bytes[0] == pytest.approx((16 + 2) * LLAMA_2_7B, rel=1e-12)


def test_logits_of_the_whole_vocabulary() -> None:
    """Vocab-parallel loss: float32 in place and the gradient in 16 bit: 6 bytes for each of 4096 x 32000."""
    made = ledger(job(stack="megatron-lm"), tp=[1, 4], grad_accum=2)
    assert at(made, "logits and loss", "loss", index=0) == 6 * 4096 * 32000
    assert at(made, "logits and loss", "loss", index=1) == 6 * 1024 * 32000
    assert at(made, "logits and loss", "optimizer step") == 0


def test_components_sum_to_the_peak_and_slack_follows_the_tensors() -> None:
    made = ledger(job(), dp=8, zero=[0, 1, 3], grad_accum=4)
    for index in range(3):
        assert sum(made.at_peak(index).values()) == pytest.approx(made.peak_bytes[index], rel=1e-12)
        share = made.at_peak(index)["allocator slack"] / made.tensor_peak_bytes[index]
        assert 0.05 < share <= job().stack.memory.slack_share.cautious
    assert np.all(made.tensor_peak_bytes < made.peak_bytes)


def test_communicators_cost_what_the_stack_says() -> None:
    made = job()
    none, two = ledger(made), ledger(made, tp=2, dp=2, grad_accum=4)
    assert at(none, "NCCL buffers", "loss") == 0
    assert at(two, "NCCL buffers", "loss") == pytest.approx(2 * made.stack.memory.communicator_gib.cautious * GIB)


def test_a_layout_fits_up_to_the_last_byte() -> None:
    made = job(kind="qlora", train__seq_len=512)
    one = ledger(made)
    room = made.server.accelerator.memory_bytes - float(one.peak_bytes[0])
    assert room > 0
    assert fits(one, made, room - 1).tolist() == [True]
    assert fits(one, made, room + 1).tolist() == [False]


def test_host_memory_counts_where_it_is_known() -> None:
    made = job(stack="deepspeed")
    offloaded = ledger(made, dp=8, zero=3, offload=1, grad_accum=2)
    assert fits(offloaded, made).tolist() == [True]
    small = replace(made, server=replace(made.server, host_memory_bytes=64 * GIB))
    unknown = replace(made, server=replace(made.server, host_memory_bytes=None))
    assert fits(offloaded, small).tolist() == [False]
    assert fits(offloaded, unknown).tolist() == [True]


def test_gradients_that_are_freed_are_not_there_at_the_first_loss() -> None:
    made = job(stack="hf-trainer@4.40")
    freed, kept = ledger(made, grad_accum=1), ledger(made, grad_accum=2)
    assert at(freed, "gradients", "loss") == 0
    assert at(kept, "gradients", "loss") == at(freed, "gradients", "end of backward") == 4 * LLAMA_2_7B
    persists = msgspec.structs.replace(made.stack.states, gradients_persist=True)
    early = replace(made, stack=msgspec.structs.replace(made.stack, states=persists))
    assert at(ledger(early, grad_accum=1), "gradients", "loss") == 4 * LLAMA_2_7B


def test_selective_by_operator_lies_between_none_and_full() -> None:
    made = job(kind="pretrain", stack="torchtitan", train__seq_len=2048)
    none, selective, full = (
        at(memory_ledger(made, layouts(dp=8, zero=3, recompute=mode)), "activations", "end of forward")
        for mode in range(3)
    )
    assert full < 0.5 * selective
    assert selective < 0.7 * none


def test_kernels_of_bitsandbytes_need_no_copy_of_the_weights() -> None:
    """torch's multi-tensor AdamW makes a temporary of every weight; one kernel a weight makes none."""
    workspace = {
        name: at(ledger(job(stack="hf-trainer@4.40", optimizer=name)), "optimizer workspace", "optimizer step")
        for name in ("adamw", "adamw-8bit", "paged-adamw")
    }
    assert workspace == {"adamw": pytest.approx(4 * LLAMA_2_7B), "adamw-8bit": 0, "paged-adamw": 0}


@pytest.mark.parametrize(("stack", "copied"), [("hf-trainer", 0), ("hf-trainer@4.53", 2), ("fms-hf-tuning", 2)])
def test_the_trainer_updates_in_one_kernel_since_pytorch_2_8(stack: str, copied: int) -> None:
    """AdamW of transformers is the fused one by itself; a file that says adamw_torch has the multi-tensor one."""
    flags = {"stack": stack, "train__weights_dtype": "bf16"}
    unasked, asked = (
        at(ledger(job(**flags, **more)), "optimizer workspace", "optimizer step")
        for more in ({}, {"optimizer": "adamw_torch"})
    )
    assert (unasked, asked) == (pytest.approx(copied * LLAMA_2_7B), pytest.approx(2 * LLAMA_2_7B))


def test_the_hidden_state_is_16_bit_where_float32_weights_are_gathered_in_16_bit() -> None:
    """Under DDP and autocast the embedding's float32 output adds up; 2 sequences of 512 tokens, hidden size 4,096."""
    made = job(stack="hf-trainer@4.40", kind="sft", train__seq_len=512)
    sizes = {"dp": 2, "zero": [0, 3], "micro_batch": 2, "recompute": 2}
    chosen = layouts(**sizes)
    (shapes,) = rank_shapes(made, chosen, np.array([512.0, 512.0]))
    assert shapes.broadcast(shapes.inputs.residual_bytes).tolist() == [2 * 512 * 4096 * 4, 2 * 512 * 4096 * 2]
    assert shapes.broadcast(shapes.inputs.casts_inputs).tolist() == [1, 0]


def test_adapters_in_a_flat_parameter_have_gradients_of_the_frozen_layers_too() -> None:
    """Llama 2 7B without embedding, head and norms, in 16 bit: whole while micro-batches accumulate, then sharded."""
    when = ("gradients", "end of backward")
    layers = 2 * 32 * (4 * 4096**2 + 3 * 4096 * 11_008)
    sizes = {"dp": 4, "zero": 3, "grad_accum": [8, 1], "recompute": 2}
    old, new = (ledger(job(kind="lora", stack=stack), **sizes) for stack in ("litgpt@0.5", "litgpt"))
    for index, expected in enumerate((layers, layers / 4)):
        difference = at(old, *when, index=index) - at(new, *when, index=index)
        assert difference == expected


@pytest.mark.parametrize(("stack", "sharded"), [("hf-trainer", 16), ("hf-trainer@4.40", 16), ("torchtune", 8)])
def test_accelerate_keeps_shards_in_float32_whatever_is_loaded(stack: str, sharded: int) -> None:
    """transformers 5 loads 16 bit, 8 bytes a parameter under DDP; its FSDP shards have 16, as float32 weights have."""
    made = ledger(job(stack=stack), dp=8, zero=[0, 3])
    loaded = 16 if stack.endswith("4.40") else 8
    assert states(made, 0) == pytest.approx(loaded * LLAMA_2_7B, rel=1e-12)
    assert states(made, 1) == pytest.approx(sharded * LLAMA_2_7B / 8, rel=1e-12)


def test_gradients_of_flat_parameters_are_explained() -> None:
    made, chosen = job(kind="lora", stack="litgpt@0.5"), layouts(dp=4, zero=3, grad_accum=8)
    found = memory_ledger(made, chosen)
    terms = terms_at(Evaluation(made, chosen), found, *found.worst())["gradients"]
    assert any(factor.name == "frozen elements beside adapters" for term in terms for factor in term)


def test_activations_are_not_counted_where_states_rule_a_layout_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of pipelines whose second stage may be fuller: 80 layers and the ends on 8; 70B does not fit on one GPU."""
    asked: list[int] = []
    count = evaluation.activations
    monkeypatch.setattr(evaluation, "activations", lambda *given: (asked.append(len(given[1])), count(*given))[1])
    made = job("llama-2-70b", stack="torchtitan", layout__uneven_stages=True)
    every = layouts(pp=[8, 1, 8], dp=[8, 1, 16], zero=[3, 0, 3], grad_accum=16, recompute=2)
    assert np.any(build_stages(80, made.split, every).layers[2] > build_stages(80, made.split, every).layers[0])
    found = possible_of(Evaluation(made, every), 0.0)
    assert found is not None
    assert found.index.tolist() == [0, 2]
    assert asked
    assert max(asked) == 2
    assert found.ledger.peak_bytes == pytest.approx(memory_ledger(made, every).peak_bytes[[0, 2]])
