"""TensorRT-LLM: `trtllm-serve` with its options, recipes of srt-slurm, files of options of the LLM API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.service import TENSORRT_LLM
from xe_sizer.importers.parts.serving import serving_tool, state_drafts, state_service
from xe_sizer.importers.parts.tensorrt_llm_arguments import EP, TABLE, TP
from xe_sizer.importers.values import is_on, number, plain, positive, positive_or_open

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.parts.service import Chosen
    from xe_sizer.importers.source import Source

_GIB = 2**30
_FORCED = "env.TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"


def _read(draft: Draft, source: Source, chosen: Chosen) -> None:
    _drafts(draft)
    _caches(draft)
    state_service(draft, chosen, source, TABLE, _place, TENSORRT_LLM)


def _place(draft: Draft) -> None:
    """Ranks of one replica: with attention groups every rank is one; experts are split unless told to be whole."""
    tp, ep = draft.take(*TP), draft.take(*EP)
    groups, sliced = draft.take("enable_attention_dp"), draft.take("moe_tensor_parallel_size")
    ranks = draft.value(tp, positive) if tp is not None else 1
    if draft.unread.keys().isdisjoint((*TP, "enable_attention_dp")) and isinstance(ranks, int):
        if groups is not None and is_on(groups.value):
            draft.state("layout.tp", 1, groups, "every rank is an attention group")
            draft.state("layout.dp", ranks, tp or groups)
        else:
            draft.state("layout.tp", ranks, tp) if tp is not None else draft.default("layout.tp", 1)
            draft.state("layout.dp", 1, groups) if groups is not None else draft.default("layout.dp", 1)
    experts = draft.value(ep, positive_or_open) if ep is not None else None
    slices = draft.value(sliced, positive_or_open) if sliced is not None else None
    if isinstance(experts, int):
        draft.state("layout.ep", experts, ep)
    elif isinstance(slices, int) and isinstance(ranks, int) and ranks % slices == 0:
        draft.state("layout.ep", ranks // slices, sliced)
    elif draft.unread.keys().isdisjoint(EP):
        draft.default("layout.ep", 1, "experts are split like other layers")


def _drafts(draft: Draft) -> None:
    kind = draft.take("speculative_config.decoding_type")
    tokens = draft.take("speculative_config.max_draft_len", "speculative_config.num_nextn_predict_layers")
    forced = draft.take(_FORCED)
    if tokens is None:
        if kind is not None:
            draft.lose("speculative_config.decoding_type", "drafts tokens; say how many with --draft-tokens")
        return
    state_drafts(draft, tokens.value, tokens, _mean(forced.value) if forced is not None else None)


def _mean(value: object) -> float | None:
    found = number(value)
    return float(found) if found else None


def _caches(draft: Draft) -> None:
    """Prefix cache, format of the KV cache, and its part in host memory."""
    reuse = draft.take("kv_cache_config.enable_block_reuse")
    if reuse is not None and not is_on(reuse.value):
        draft.state("serve.prefix_hit_share", 0, reuse, "no prefix cache")
    kind = draft.take("kv_cache_config.dtype")
    if kind is not None and plain(kind.value) != "auto":
        draft.keys["kv_cache_dtype"] = kind
    size = draft.take("kv_cache_config.host_cache_size")
    held = draft.value(size, number) if size is not None else None
    if isinstance(held, int | float) and held > 0:
        draft.state("serve.kv_host_gib", round(held / _GIB, 2), size)


TOOL = serving_tool(
    name="trtllm",
    title="TensorRT-LLM",
    reads="`trtllm-serve` in scripts with its options, recipes of srt-slurm, files of options of the LLM API",
    engines=(TENSORRT_LLM,),
    read=_read,
    table=TABLE,
)
