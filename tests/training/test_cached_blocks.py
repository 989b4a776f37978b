"""Blocks that the allocator keeps from batches of other lengths."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cases import job, layouts
from xe_sizer.training.evaluation import Evaluation
from xe_sizer.training.job import Job
from xe_sizer.training.memory import Ledger, at_level, memory_ledger

PASSING = ("activations", "layer in its backward", "logits and loss")
VARIED = {"data__mean_tokens": 200, "data__max_tokens": 2048, "data__samples": 1000, "train__seq_len": 2048}


def typical(one: Job, recompute: int) -> Ledger:
    chosen = layouts(recompute=recompute, micro_batch=2)
    return at_level(memory_ledger(one, chosen), Evaluation(one, chosen), "typical")


def passing_bytes(ledger: Ledger) -> float:
    shape = ledger.total_bytes.shape
    return float(sum(np.broadcast_to(ledger.components[name], shape) for name in PASSING).max())


@pytest.mark.parametrize(("recompute", "batches"), [(0, 1.1), (2, 3.2)])
def test_batches_of_mean_length_stay_reserved(recompute: int, batches: float) -> None:
    one = job("llama-2-7b", "lora", "hf-trainer", train__padding="longest-in-micro-batch", **VARIED)
    ledger = typical(one, recompute)
    sequences = Evaluation(one, layouts(micro_batch=2)).sequences
    mean = passing_bytes(ledger) * sequences.mean_tokens[0] / sequences.longest_tokens[0]
    assert ledger.cached_bytes[0] == pytest.approx(batches * mean)
    assert ledger.cached_bytes[0] > 0
    assert ledger.monitored_peak_bytes[0] == pytest.approx(ledger.peak_bytes[0] + batches * mean)


@pytest.mark.parametrize(("recompute", "batches"), [(0, 0.1), (2, 0.6)])
def test_batches_sorted_by_length_find_the_blocks_of_longer_ones(recompute: int, batches: float) -> None:
    one = job("llama-2-7b", "lora", "hf-trainer", train__padding="grouped-by-length", **VARIED)
    ledger, sequences = typical(one, recompute), Evaluation(one, layouts(micro_batch=2)).sequences
    mean = passing_bytes(ledger) * sequences.mean_tokens[0] / sequences.longest_tokens[0]
    assert ledger.cached_bytes[0] == pytest.approx(batches * mean)


@pytest.mark.parametrize(("steps", "share"), [(1, 0.0), (2, 0.5), (10, 0.9)])
def test_an_emptied_cache_keeps_blocks_of_the_steps_since(steps: int, share: float) -> None:
    varied = VARIED | {"train__padding": "longest-in-micro-batch"}
    kept = typical(job("llama-2-7b", "lora", "hf-trainer", **varied), 2).cached_bytes[0]
    emptied = job("llama-2-7b", "lora", "hf-trainer", **varied, train__empty_cache_steps=steps)
    assert typical(emptied, 2).cached_bytes[0] == pytest.approx(share * kept)


def test_sequences_of_one_length_find_the_blocks_of_the_step_before() -> None:
    one = job("llama-2-7b", "lora", "hf-trainer", train__seq_len=2048, train__padding="packed")
    ledger = typical(one, 2)
    assert ledger.cached_bytes[0] == 0.0
    assert ledger.monitored_peak_bytes[0] == ledger.peak_bytes[0]


def test_a_full_card_gets_cached_blocks_back() -> None:
    one = job("llama-2-7b", "lora", "hf-trainer", train__padding="longest-in-micro-batch", **VARIED)
    chosen = layouts(recompute=2, micro_batch=24)
    ledger = at_level(memory_ledger(one, chosen), Evaluation(one, chosen), "typical")
    card = one.server.accelerator.memory_bytes
    assert ledger.peak_bytes[0] < card
    assert ledger.monitored_peak_bytes[0] == pytest.approx(card)


def test_verdicts_do_not_count_them() -> None:
    one = job("llama-2-7b", "lora", "hf-trainer", train__padding="longest-in-micro-batch", **VARIED)
    assert memory_ledger(one, layouts(recompute=2)).cached_bytes.max() == 0.0


GIB = 2.0**30
LOGITS = 2 * 8192 * 128256  # of two sequences through llama-3.2-1b


def reserved(model: str, micro_batch: int, seq_len: int, stack: str = "hf-bf16", kind: str = "sft") -> Ledger:
    one = job(
        model, kind, stack, gpu="h100-sxm-80gb", gpus=1, optimizer="adamw-fused", train__seq_len=seq_len,
        train__padding="packed",
    )  # fmt: skip
    chosen = layouts(recompute=2, micro_batch=micro_batch)
    return at_level(memory_ledger(one, chosen), Evaluation(one, chosen), "typical")


# Reserved in runs of xe_sizer/evidence/data/measured.jsonl [GiB]: 1, 2, 2 and 3 float32 blocks of logits are split.
@pytest.mark.parametrize(
    ("model", "micro_batch", "seq_len", "measured_gib"),
    [
        ("llama-3.2-1b", 2, 8192, 39.77),
        ("gemma-2-2b", 4, 2048, 53.57),
        ("qwen2.5-1.5b", 1, 8192, 30.01),
        ("llama-3.1-8b", 2, 4096, 71.99),
    ],
)
def test_states_of_the_first_step_split_the_blocks_of_an_eager_loss(
    model: str, micro_batch: int, seq_len: int, measured_gib: float
) -> None:
    ledger = reserved(model, micro_batch, seq_len)
    assert ledger.reserved_peak_bytes[0] / GIB == pytest.approx(measured_gib, rel=0.05)
    assert ledger.tensor_peak_bytes[0] < 0.86 * measured_gib * GIB


def test_blocks_split_by_hand() -> None:
    """Llama 1B: 2.3 GiB of gradients, 4.6 of states, less 1.25 of activations and 3.9 of 16-bit logits: one block."""
    ledger = reserved("llama-3.2-1b", 2, 8192)
    states = 2 * 2 * 1235814400.0
    more = LOGITS * (4 + 2) - states  # the loss holds the peak
    tensors = ledger.tensor_peak_bytes[0]
    assert ledger.components["allocator slack"].max() == pytest.approx(0.04 * tensors + more, rel=1e-3)


def test_adapters_leave_the_block_of_the_16_bit_logits_alone() -> None:
    ledger = reserved("llama-3.2-1b", 2, 8192, kind="lora")
    slack = ledger.components["allocator slack"].max() - 0.04 * ledger.tensor_peak_bytes[0]
    assert slack == pytest.approx(LOGITS * 2 - ledger.components["optimizer states"].max(), rel=1e-3)


def test_a_loss_without_float32_logits_leaves_no_blocks() -> None:
    ledger = reserved("llama-3.2-1b", 2, 8192, stack="hf-liger")
    assert ledger.components["allocator slack"].max() == pytest.approx(0.04 * ledger.tensor_peak_bytes[0], rel=0.01)
