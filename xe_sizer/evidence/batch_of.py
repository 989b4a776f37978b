"""Replicas and batch of a record: what it states of them, and what follows."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.evidence.flags import Flags
    from xe_sizer.evidence.records import Record
    from xe_sizer.training.methods import MethodKind

# Pre-training batches hold about 4 M tokens (LLaMA, arXiv:2302.13971, section 2.3).
PRETRAINING_BATCH_TOKENS = 4 * 2**20
PRETRAINING_SEQ_LEN = 2048
FINE_TUNING_BATCH = 128
ROUNDED_BATCH = 0.05


def replicas_fit(record: Record, flags: Flags) -> None:
    """Stated replicas that do not go with the number of GPUs are dropped; the rest of the GPUs are data parallel."""
    layout, gpus = record.layout, record.gpus
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1)
    if layout.dp is None or gpus is None or group * layout.dp == gpus:
        return
    if layout.tp is None and layout.pp is None and gpus % layout.dp == 0:
        return
    flags.values.pop("layout.dp")
    flags.assumed.append(f"dp {layout.dp} does not go with {gpus} GPUs: the rest of the GPUs")


def _replicas(record: Record) -> int:
    """Data-parallel ranks that the record states or implies, all GPUs where it says nothing of the layout [-]."""
    layout = record.layout
    gpus = record.gpus or layout.dp or 1
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1)
    if layout.dp and (record.gpus is None or group * layout.dp == gpus):
        return layout.dp
    return max(gpus // group, 1)


def batch_of(record: Record, job: MethodKind, flags: Flags) -> None:
    """global = micro x accumulation x replicas, whichever two are stated; else what is usual for the job.

    Accumulation that is not stated is none, but for pipelines, which one micro-batch does not fill: before 0.10
    Megatron-Core refuses to interleave fewer than there are stages (pipeline_parallel/schedules.py).
    """
    batch, replicas = record.batch, _replicas(record)
    tokens = _tokens(batch.tokens)
    total, micro = batch.total, batch.micro
    seq_len = flags.values.get("train.seq_len") or PRETRAINING_SEQ_LEN
    if total is None and tokens:
        total = _whole_share(tokens / seq_len / replicas, isinstance(batch.tokens, str)) * replicas
    if total is None and micro is not None and (batch.grad_accum or (record.layout.pp or 1) == 1):
        total = micro * (batch.grad_accum or 1) * replicas
        if batch.grad_accum is None:
            flags.assumed.append("no gradient accumulation: not stated")
    elif total is None:
        usual = FINE_TUNING_BATCH if job.fine_tunes else PRETRAINING_BATCH_TOKENS // seq_len
        shared = replicas * (micro or 1)
        total = -(-max(usual, shared) // shared) * shared * (batch.grad_accum or 1)
        flags.assumed.append(f"{total} sequences a step: global batch not stated")
    if micro is None and batch.grad_accum and total % (batch.grad_accum * replicas) == 0:
        micro = total // (batch.grad_accum * replicas)
    if micro and total % (micro * replicas):
        rounded = max(round(total / (micro * replicas)), 1) * micro * replicas
        flags.assumed.append(f"global batch {rounded} for {total}, which {replicas} replicas of {micro} cannot share")
        total = rounded
    flags.put("train.global_batch", total)
    flags.put("train.micro_batch", micro)


def _whole_share(sequences: float, rounded: bool) -> int:
    """A replica's sequences of a batch of so many tokens; of a rounded count ("2M") what halves most often within 5 %.

    Batches are powers of two, or a small number of them: GPT-3's 3.2M tokens are 1,536 sequences of 2,048.
    """
    part = 2 ** int(math.log2(max(sequences, 1.0))) if rounded else 1
    while part > 1 and abs(round(sequences / part) * part / sequences - 1.0) > ROUNDED_BATCH:
        part //= 2
    return max(round(sequences / part) * part, 1)


def _tokens(stated: float | str | None) -> float | None:
    """Tokens of a batch, also from words such as '2M'."""
    if not isinstance(stated, str):
        return stated
    found = re.fullmatch(r"([\d.]+)\s*([kKmM]?)", stated.strip())
    return float(found[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[found[2].lower()] if found else None
