"""Options of TensorRT-LLM: flags of trtllm-serve and the LLM API's options, as a file or as arguments of `LLM`.

Keys and defaults: TensorRT-LLM 1.2 and 1.3, tensorrt_llm/commands/serve.py and llmapi/llm_args.py (max_batch_size 2048,
 max_num_tokens 8192, free_gpu_memory_fraction 0.9). A file of options wins over flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.interop.draft import Key, Table, globs
from xe_sizer.interop.services import TENSORRT_LLM
from xe_sizer.interop.serving import (
    Drafting,
    cache_format,
    human_count,
    method_of,
    serving_tool,
    share,
    state_drafts,
    state_service,
    state_type,
)
from xe_sizer.interop.values import is_on, number, plain, positive, positive_or_open, text
from xe_sizer.software.speculation import EAGLE3, MTP

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.services import Chosen
    from xe_sizer.interop.source import Source

TP = ("tensor_parallel_size", "tp_size", "tp")
PP = ("pipeline_parallel_size", "pp_size", "pp")
EP = ("moe_expert_parallel_size", "ep_size", "ep")
MEMORY = globs("""
                kv_cache_config.free_gpu_memory_fraction kv_cache_free_gpu_memory_fraction
                free_gpu_memory_fraction
            """)
TABLE = Table(
    keys=(
        Key(("model", "model_path"), "model", text),
        Key(PP, "layout.pp", positive, default=1),
        Key(EP, "layout.ep", positive_or_open),
        Key(("kv_cache_config.dtype", "kv_cache_dtype"), "serve.kv_cache", cache_format),
        Key(("kv_cache_config.mamba_ssm_cache_dtype", "mamba_ssm_cache_dtype"), "serve.state_dtype", state_type),
        Key(("max_seq_len", "build_config.max_seq_len"), "serve.max_model_len", human_count),
        Key(("max_batch_size", "build_config.max_batch_size"), "serve.max_sequences", human_count, default=2048),
        Key(("max_num_tokens", "build_config.max_num_tokens"), "serve.max_step_tokens", human_count, default=8192),
        Key(MEMORY, "serve.gpu_memory_utilization", share, default=0.9),
        Key(
            ("attention_dp_config.batching_wait_iters", "batch_wait_timeout_iters"),
            "serve.batch_wait_iters",
            positive_or_open,
        ),
    ),
    file="trtllm",
)


# TensorRT-LLM: `trtllm-serve` with its options, recipes of srt-slurm, files of options of the LLM API.

_GIB = 2**30
_DRAFTERS = ("speculative_config.speculative_model_dir", "speculative_config.speculative_model")
_FORCED_DISPATCHERS = {
    "nvlinkonesided": "nvlink", "nvlinktwosided": "nvlink", "mnnvl": "nvlink", "deepep": "deepep-normal",
    "deepeplowlatency": "deepep-low-latency", "allgather": "all-gather",
}  # fmt: skip
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
    forced = draft.take("env.TRTLLM_FORCE_COMM_METHOD", "env.TRTLLM_FORCE_ALLTOALL_METHOD")
    if forced is not None and draft.fact("layout.ep") not in (None, 1):
        draft.state("serve.dispatcher", _FORCED_DISPATCHERS.get(plain(forced.value)), forced)


def _drafts(draft: Draft) -> None:
    kind = draft.take("speculative_config.decoding_type")
    tokens = draft.take("speculative_config.max_draft_len", "speculative_config.num_nextn_predict_layers")
    forced = draft.take(_FORCED)
    if tokens is None:
        if kind is not None:
            draft.lose("speculative_config.decoding_type", "drafts tokens; say how many with --draft-tokens")
        return
    drafter = draft.peek(*_DRAFTERS)
    one_model = draft.on("speculative_config.eagle3_one_model")
    method = EAGLE3 if one_model is not None else method_of(kind.value if kind else MTP, drafter and drafter.value)
    state_drafts(draft, Drafting(tokens, method, _DRAFTERS, _mean(forced.value) if forced is not None else None))


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
