"""How TorchTitan spreads a model over GPUs: sharding, the pipeline's order, and accumulation.

Source: torchtitan/distributed/parallel_dims.py, pipeline_parallel.py, fsdp.py, trainer.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.shapes import layers_of
from xe_sizer.importers.values import is_on, plain, positive, positive_or_open

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.written import Written

_SCHEDULES = {
    "1f1b": "1f1b", "interleaved1f1b": "1f1b-interleaved", "gpipe": "gpipe", "zbvzerobubble": "zb-v",
    "interleavedzerobubble": "1f1b-interleaved", "flexibleinterleaved1f1b": "1f1b-interleaved",
}  # fmt: skip
_SINGLE = ("1f1b", "gpipe")
_OLDER = ("parallelism", "training", "experimental")


def _named(word: str) -> tuple[str, ...]:
    return tuple(f"{section}.{word}" for section in _OLDER)


def state_layout(draft: Draft) -> None:
    """State sharding, the order of a pipeline's passes and gradient accumulation."""
    stages = draft.value(draft.peek(*_named("pipeline_parallel_degree")), positive) or 1
    ranks = draft.value(draft.peek(*_named("tensor_parallel_degree")), positive) or 1
    _sharding(draft, piped=stages != 1)
    split = draft.take("parallelism.enable_sequence_parallel")
    if split is not None:
        draft.state("layout.sequence_parallel", is_on(split.value), split)
    elif isinstance(ranks, int) and ranks > 1:
        draft.default("layout.sequence_parallel", value=True)
    schedule, per_stage = (
        draft.take(*_named("pipeline_parallel_schedule")), draft.take(*_named("pipeline_parallel_layers_per_stage"))
    )  # fmt: skip
    micro = draft.take("parallelism.pipeline_parallel_microbatch_size")
    if isinstance(stages, int) and stages > 1:
        _order(draft, schedule, per_stage, stages)
        _micro_batches(draft, micro)
    if (
        "train.global_batch" not in draft.facts
        and draft.value(draft.peek("training.global_batch_size"), positive_or_open) is None
    ):
        draft.default("train.grad_accum", 1, "the global batch is one micro-batch of each data-parallel rank")


def _sharding(draft: Draft, *, piped: bool) -> None:
    """FSDP over the ranks that are left, in groups where there are replicas; DDP where nothing is sharded."""
    replicas, shards = (
        draft.take(*_named("data_parallel_replicate_degree")),
        draft.take(*_named("data_parallel_shard_degree")),
    )
    again = draft.take(*_named("fsdp_reshard_after_forward"))
    copies, size = draft.value(replicas, positive_or_open) or 1, draft.value(shards, positive_or_open)
    policy = plain(again.value) if again is not None else "default"
    kept = policy == "never" or (policy == "default" and piped)
    note = "weights stay whole between the passes of micro-batches" if kept else ""
    if size == 1:
        draft.state("layout.zero", 0, shards, "not sharded")
    elif shards is not None or policy == "never":
        draft.state("layout.zero", 2 if kept else 3, again if policy == "never" else shards, note)
    draft.default("layout.zero", 2 if kept else 3, note)
    if isinstance(copies, int) and copies > 1 and isinstance(size, int) and size > 1:
        draft.state("layout.zero_group", size * draft.size(*_named("context_parallel_degree")), shards)


def _order(draft: Draft, schedule: Written | None, per_stage: Written | None, stages: int) -> None:
    word = plain(schedule.value) if schedule is not None else "1f1b"
    if schedule is not None and word not in _SCHEDULES:
        name = next(key for key, each in draft.keys.items() if each is schedule)
        draft.lose(name, f"{schedule.value} is not known here; interleaved stages are assumed")
        draft.assume("layout.schedule", "1f1b-interleaved", f"in place of {schedule.value}", schedule.where)
    elif schedule is not None:
        draft.state("layout.schedule", _SCHEDULES[word], schedule)
    draft.default("layout.schedule", "1f1b")
    each, layers = draft.value(per_stage, positive_or_open), layers_of(draft.fact("model"))
    if isinstance(each, int) and layers:
        draft.state("layout.vpp", max(1, round(layers / (each * stages))), per_stage, f"{each} layers in each chunk")
    elif word not in _SINGLE and schedule is not None:
        draft.default("layout.vpp", 2, "two chunks in each stage")


def _micro_batches(draft: Draft, micro: Written | None) -> None:
    """A pipeline works on parts of the local batch, one after the other."""
    local = draft.peek("training.local_batch_size", "training.batch_size")
    if local is None:
        return
    count, size = draft.value(local, positive) or 1, draft.value(micro, positive) or 1
    if isinstance(count, int) and isinstance(size, int) and count >= size:
        if micro is not None:
            draft.state("train.micro_batch", size, micro)
        draft.default("train.micro_batch", size)
        if draft.value(draft.peek("training.global_batch_size"), positive_or_open) is None:
            note = f"local batch of {count} in micro-batches of {size}"
            draft.derive("train.grad_accum", count // size, ("train.micro_batch",), note)
