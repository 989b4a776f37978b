"""Attention that is given a mask, and quantised models whose activations are float32: conditions, bytes and laws."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from cases import ask, job, layouts
from msgspec.structs import replace

from xe_sizer.graph.attention import mask_bytes
from xe_sizer.graph.operators import Attention, MemoryBound
from xe_sizer.graph.transformer import layer_operators
from xe_sizer.laws.operator_time import operator_times
from xe_sizer.training.job import Job
from xe_sizer.training.memory import memory_ledger
from xe_sizer.training.memory_parts import MOMENTS
from xe_sizer.training.rank import graph_inputs

TOKENS = 1000.0


def operators(made: Job, **sizes: object) -> dict[str, object]:
    return {op.name: op for op in layer_operators(graph_inputs(made, layouts(**sizes), np.array([TOKENS])))}


def attention(made: Job, **sizes: object) -> Attention:
    found = operators(made, **sizes)["attention"]
    assert isinstance(found, Attention)
    return found


def attention_of_tokens(made: Job, tokens: float) -> Attention:
    (found,) = (
        op
        for op in layer_operators(graph_inputs(made, layouts(micro_batch=2), np.array([tokens / 2])))
        if op.name == "attention"
    )
    assert isinstance(found, Attention)
    return found


def lora(stack: str = "hf-trainer", model: str = "llama-3.1-8b", **more: object) -> Job:
    return job(model, kind="lora", stack=stack, **{"data__mean_tokens": 300, "train__seq_len": 1000, **more})


@pytest.mark.parametrize(
    ("stack", "padding", "micro_batch", "masked"),
    [
        ("hf-trainer", "longest-in-micro-batch", 4, True),
        ("hf-trainer", "longest-in-micro-batch", 1, False),
        ("hf-trainer", "to-seq-len", 1, True),
        ("hf-trainer", "packed", 4, False),
        ("hf-trainer@4.39", "packed", 4, True),
        ("hf-trainer@4.37", "packed", 4, False),
        ("litgpt", "longest-in-micro-batch", 4, False),
        ("universal-llm-trainer", "packed", 1, True),
    ],
)
def test_when_attention_gets_a_mask(stack: str, padding: str, micro_batch: int, masked: bool) -> None:
    found = attention(lora(stack, train__padding=padding), micro_batch=micro_batch).masked
    assert (found is not None and bool(found[0])) == masked


def test_flash_attention_gets_none() -> None:
    assert attention(lora(attention="flash"), micro_batch=4).masked is None


def test_sequences_of_one_length_need_no_mask() -> None:
    made = lora()
    same = replace(made, lengths=replace(made.lengths, lengths=np.array([300.0]), probabilities=np.array([1.0])))
    assert attention(same, micro_batch=4).masked is None


def test_micro_batches_of_samples_that_are_all_cut_need_no_mask() -> None:
    """Three of four samples are cut to 1,000 tokens: of pairs, nine in sixteen have no padding."""
    made = lora()
    values = {"lengths": np.array([300.0, 2000.0]), "probabilities": np.array([0.25, 0.75])}
    cut = attention(replace(made, lengths=replace(made.lengths, **values)), micro_batch=2).masked
    assert cut == pytest.approx(7 / 16)
    fixed = replace(made, padding="to-seq-len", lengths=replace(made.lengths, **values))
    assert attention(fixed, micro_batch=1).masked == pytest.approx(1 / 4)


def test_a_mask_is_kept_and_keys_and_values_are_repeated() -> None:
    """Llama 3.1 8B: 32 heads of 128 share 8 of keys and values. A mask has 2 bytes for each pair of a sequence."""
    masked, plain = (attention(lora(train__padding=name), micro_batch=4) for name in ("to-seq-len", "packed"))
    tokens = 4 * TOKENS
    mask, repeated = 2 * tokens * TOKENS, 2 * tokens * (32 - 8) * 2 * 128
    assert masked.saved_bytes - plain.saved_bytes == pytest.approx(mask + repeated)
    copies = operators(lora(train__padding="to-seq-len"), micro_batch=4)["repeated keys and values"]
    assert isinstance(copies, MemoryBound)
    assert copies.forward_bytes == copies.backward_bytes == pytest.approx(2 * tokens * (32 + 8) * 2 * 128)
    assert "repeated keys and values" not in operators(lora(train__padding="packed"), micro_batch=4)


def windowed(stack: str, tokens: float) -> Attention:
    """The attention of Mistral, whose windows have 4,096 tokens, over two sequences."""
    made = lora(stack, "mistral-7b", train__seq_len=8192, train__padding="packed", attention="sdpa")
    ops = layer_operators(graph_inputs(made, layouts(micro_batch=2), np.array([tokens])))
    return next(op for op in ops if isinstance(op, Attention))


def test_past_a_window_attention_gets_a_mask_of_every_sequence() -> None:
    """PyTorch writes the mask out for both sequences; Unsloth's kernels know windows, repeating keys and values."""
    found = {stack: windowed(stack, 8192.0) for stack in ("hf-trainer", "unsloth")}
    assert found["hf-trainer"].masked is not None
    assert found["unsloth"].masked is None
    mask = 2 * 2 * 8192 * 8192
    assert found["hf-trainer"].saved_bytes - found["unsloth"].saved_bytes == pytest.approx(mask)


@pytest.mark.parametrize(("tokens", "masked"), [(4095.0, False), (4096.0, True)])
def test_a_sequence_as_long_as_the_window_gets_a_mask(tokens: float, masked: bool) -> None:
    """transformers leaves it out where kv_length < local_attention_size alone."""
    assert (windowed("hf-trainer", tokens).masked is not None) is masked


@pytest.mark.parametrize(
    ("model", "tokens", "making", "made"),
    [("mistral-7b", 8192, 3, 1), ("mistral-7b", 2048, 0, 0), ("modernbert-large", 8192, 16, 1)],
)
def test_masks_of_windows_are_made_before_the_layers(model: str, tokens: int, making: int, made: int) -> None:
    """Bytes a pair: three of truth values for a causal window; an encoder's distances are two of 64 bits each."""
    found = lora(model=model, train__seq_len=tokens, train__padding="packed", attention="sdpa")
    sizes = mask_bytes(graph_inputs(found, layouts(micro_batch=2), np.array([float(tokens)])))
    assert [float(size.max()) for size in sizes] == [making * tokens**2, made * tokens**2]


def test_layers_that_run_again_are_given_the_masks_of_the_forward() -> None:
    """ModernBERT at 8,192 tokens: the mask of its windows stays until the backward ends; making it takes more."""
    tokens = 8192
    masked = lora(model="modernbert-large", train__seq_len=tokens, train__padding="packed", attention="sdpa")
    kernels = msgspec.structs.replace(masked.stack.kernels, attention_mask="none")
    plain = replace(masked, stack=msgspec.structs.replace(masked.stack, kernels=kernels))
    again = layouts(recompute=2)
    held, without = (memory_ledger(made, again, np.array([float(tokens)])).components for made in (masked, plain))
    more = (held["activations"] - without["activations"])[0, :, 0] / tokens**2
    assert more[MOMENTS.index("backward of the first layer")] == pytest.approx(1.0)
    assert held["activations"][0, MOMENTS.index("end of forward"), 0] > 16 * tokens**2
    last = MOMENTS.index("backward of the last layer")
    layer = (held["layer in its backward"] - without["layer in its backward"])[0, last, 0] / tokens**2
    assert layer == pytest.approx(2.0)  # of one layer at a time, in 16 bit


def test_a_quantised_model_loaded_in_float32_has_float32_activations_but_under_autocast() -> None:
    """Products stay in 16 bit and cast input and output, 6 bytes an element; head, adapters, attention are float32."""
    made = job("llama-3.1-8b", kind="qlora", stack="universal-llm-trainer", train__seq_len=1000)
    peaks = made.server.accelerator.peak_flops_per_s
    assert made.element_bytes == made.device.element_bytes == 4
    assert made.device.peak_flops_per_s == peaks["bf16"]
    assert made.device.attention_peak_flops_per_s == made.device.adapter_peak_flops_per_s == peaks["fp32"]
    assert made.device.wide_modules == {"head"}
    assert made.device.attention.flops_efficiency == pytest.approx(0.3)
    narrow = job("llama-3.1-8b", kind="qlora", stack="universal-llm-trainer", train__weights_dtype="bf16")
    wide, plain = (operators(each)["output projection weight traffic"] for each in (made, narrow))
    assert isinstance(wide, MemoryBound)
    assert isinstance(plain, MemoryBound)
    expanded = made.method.held.cast_bytes - narrow.method.held.cast_bytes  # type: ignore[union-attr]
    around = 6 * TOKENS * 2 * 4096
    assert wide.forward_bytes - plain.forward_bytes == pytest.approx(around + expanded * 4096**2)
    autocast = job("llama-3.1-8b", kind="qlora", stack="hf-trainer", train__weights_dtype="fp32")
    assert (narrow.element_bytes, autocast.element_bytes) == (2, 2)


def test_a_loss_in_the_type_of_the_logits_is_twice_as_large_in_float32() -> None:
    jobs = [
        job("llama-3.1-8b", kind="qlora", stack="universal-llm-trainer", train__weights_dtype=dtype)
        for dtype in ("bf16", "fp32")
    ]
    losses = [graph_inputs(made, layouts(), np.array([TOKENS])).kernels.loss for made in jobs]
    assert [(loss.kept_bytes, loss.live_bytes) for loss in losses] == [(2, 6), (4, 12)]
    assert [(loss.forward_bytes, loss.backward_bytes) for loss in losses] == [(8, 14), (16, 28)]
    assert (
        graph_inputs(job(stack="hf-bf16", precision="fp32"), layouts(), np.array([TOKENS])).kernels.loss.live_bytes
        == 12
    )


# Measured on one H100, llama-3.1-8b, 2 sequences of 4,096 tokens, PyTorch 2.11: 555 us forward, 1,828 backward.
def test_pytorch_takes_the_kernels_of_cudnn_on_hopper() -> None:
    def seconds(stack: str) -> tuple[float, ...]:
        made = job(
            "llama-3.1-8b", stack=stack, gpu="h100-sxm-80gb", gpus=1, train__seq_len=4096, train__padding="packed"
        )
        (time,) = operator_times([attention_of_tokens(made, 2 * 4096.0)], made.device)
        return tuple(seconds.item() / time.operator.layers for seconds in (time.forward_s, time.backward_s))

    now, before = seconds("hf-trainer"), seconds("hf-trainer@4.57")
    assert now == pytest.approx((555e-6, 1828e-6), rel=0.1)
    assert min(old / new for old, new in zip(before, now, strict=True)) > 1.3


def test_attention_of_cudnn_takes_masks_without_another_kernel() -> None:
    """Half the rate of the causal kernel, and twice that of the kernels which take masks elsewhere."""
    now, before = (job(stack=stack, gpu="h100-sxm-80gb", gpus=1).device for stack in ("hf-trainer", "hf-trainer@4.57"))
    assert now.masked_attention == before.attention
    assert now.masked_attention.flops_efficiency == 2 * before.masked_attention.flops_efficiency
    a100 = job(stack="hf-trainer", gpu="a100-sxm-80gb", gpus=1).device
    assert a100.masked_attention.flops_efficiency < a100.attention.flops_efficiency


# Attention whose queries pick their keys, where a stack has no kernels for it.


@pytest.mark.parametrize(
    ("stack", "masks", "pairs"),
    [("hf-trainer", 64, 400 * 401 / 2), ("nemo-automodel", 64, 400 * 401 / 2), ("megatron-bridge", 0, 400 * 401 / 2)],
)
def test_stacks_mask_what_minimax_does_not_pick_or_leave_its_indexer_out(stack: str, masks: int, pairs: float) -> None:
    """Each of 64 heads has a mask of 400 x 400 pairs in 16 bit, though a query may pick 2,048 tokens."""
    inputs = graph_inputs(lora(stack, model="minimax-m3"), layouts(micro_batch=1), np.array([400.0]))
    found = [op for op in layer_operators(inputs) if isinstance(op, Attention)]
    sparse = max(found, key=lambda op: float(np.sum(op.statistics_bytes)))
    log_sum_exp = 64 * 400 * 4
    assert float(np.sum(sparse.statistics_bytes)) == log_sum_exp + masks * 400 * 400 * 2
    assert float(np.sum(sparse.pairs)) == pairs
    assert (sparse.masked is not None) == bool(masks)


@pytest.mark.parametrize(
    ("stack", "told"),
    [
        ("hf-trainer", "has no kernels for the sparse attention of minimax-m3: it masks all pairs"),
        ("megatron-bridge", "megatron-bridge attends to all tokens: sequences of more than 2,048"),
    ],
)
def test_what_a_stack_makes_of_sparse_attention_is_said(stack: str, told: str) -> None:
    resolved = ask({"model": "minimax-m3", "job": "lora", "stack": stack, "gpus": 64, "train.seq_len": 4096})
    assert any(told in warning for warning in resolved.warnings)
