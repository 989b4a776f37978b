"""Arguments of vLLM's servers and of its `LLM` class.

Keys and defaults: vLLM 0.33, vllm/engine/arg_utils.py and vllm/config; gpu_memory_utilization 0.9 until 0.19, 0.92
from 0.20 (vllm/config/cache.py of both). Defaults that depend on the card (max_num_seqs, max_num_batched_tokens) are
those of the engine's profile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.interop.draft import Key, Table
from xe_sizer.interop.services import ATOM, VLLM
from xe_sizer.interop.serving import (
    Drafting,
    dispatcher,
    method_of,
    place_of_tables,
    serving_tool,
    state_drafts,
    state_service,
    state_suffixes,
    state_type,
)
from xe_sizer.interop.values import Written, above_zero_or_off, is_on, listed, number, plain, positive, positive_or_open
from xe_sizer.software.speculation import SUFFIX

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.services import Chosen, Service
    from xe_sizer.interop.source import Source

TABLE = Table(
    keys=(
        Key(("engram_config.cpu_offload",), "serve.ngram_tables", place_of_tables),
        Key(("mamba_ssm_cache_dtype", "mamba_cache_dtype"), "serve.state_dtype", state_type),
    ),
    file="vllm",
)


# vLLM: `vllm serve` in scripts, containers, Kubernetes manifests, charts of the production stack and recipes.

_NODE = 8  # GPUs that one node may have
_DRAFTERS = ("speculative_config.model", "spec_model", "speculative_model", "draft_model")


def _read(draft: Draft, source: Source, chosen: Chosen) -> None:
    _drafts(draft)
    _adapters(draft)
    _caches(draft)
    _images(draft)
    if _is_apart(chosen.service):  # that of the other role is read with it
        chosen = replace(chosen, others=tuple(other for other in chosen.others if not _is_apart(other)))
    state_service(draft, chosen, source, TABLE, _place, VLLM)
    _host_cache(draft)
    if "tensor_parallel_size" in draft.unread and "recipe" in draft.keys:
        draft.following.append(_whole_node)
    if chosen.service.engine == ATOM:
        where = chosen.service.where
        draft.drop("serve.engine")
        draft.assume("serve.engine", VLLM, "in place of ATOM, which has no engine here", where)


def _place(draft: Draft) -> None:
    """Ranks of one replica. Attention groups share the experts; each rank holds whole ones with expert parallelism."""
    dp = draft.take("data_parallel_size", "dp")
    groups = draft.on("enable_dp_attention")  # ATOM: the ranks are groups of one each
    tp = draft.peek("tensor_parallel_size", "tp")
    if groups is not None and tp is not None:
        draft.take("tensor_parallel_size", "tp")
        draft.state("layout.tp", 1, groups, "attention is not split")
        draft.state("layout.dp", draft.value(tp, positive), groups)
    if dp is not None:
        draft.state("layout.dp", draft.value(dp, positive), dp)
    elif draft.unread.keys().isdisjoint(("data_parallel_size", "dp")):
        draft.default("layout.dp", 1)
    experts = draft.take("enable_expert_parallel", "ep")
    if _experts_apart(draft):
        return
    ranks = _ranks(draft, tp)
    if experts is not None and is_on(experts.value):
        if ranks is not None:
            draft.state("layout.ep", ranks, experts, "all ranks of attention: tp x dp")
    elif "enable_expert_parallel" not in draft.unread:
        draft.default("layout.ep", 1, "experts are split like other layers")
    if experts is not None and is_on(experts.value):
        _send(draft)


_APART = "additional_config.afd"


def _experts_apart(draft: Draft) -> bool:
    """State how many GPUs hold experts alone (afd_plugin/config.py); whether any do.

    Both roles have a server of their own, which says the ranks of both. That of the experts does not say how attention
    is split.
    """
    written = draft.take(_APART)
    if written is None or not isinstance(written.value, dict):
        return False
    said = {str(name).removeprefix("afd_"): Written(value, written.where) for name, value in written.value.items()}
    held, attending = (said.get(name, Written(1, written.where)) for name in ("num_ffn_ranks", "num_attention_ranks"))
    draft.state("serve.expert_gpus", draft.value(held, positive), held)
    if "role" in said and plain(said["role"].value) == "ffn":
        draft.take("tensor_parallel_size", "tp")
        draft.drop("layout.dp")
        draft.assume("layout.tp", 1, "this server holds experts: that of attention says how it is split")
        draft.state("layout.dp", draft.value(attending, positive), attending)
    halves, parts = draft.on("enable_dbo"), draft.take("ubatch_size")
    if halves is not None:
        count = draft.value(parts, positive) if parts is not None else 2
        draft.state("serve.micro_batches", count, parts or halves)
    return True


def _is_apart(service: Service) -> bool:
    return _APART in service.keys


def _send(draft: Draft) -> None:
    """How tokens get to whole experts on other ranks, copies of busy experts, and halves that hide it."""
    backend = draft.take("all2all_backend")
    if backend is not None:
        draft.state("serve.dispatcher", draft.value(backend, dispatcher), backend)
    balanced = draft.on("enable_eplb")
    copies = draft.take("eplb_config.num_redundant_experts", "num_redundant_experts")
    if balanced is not None:
        draft.state("serve.redundant_experts", draft.value(copies, positive_or_open) or 0, copies or balanced)
    halves = draft.on("enable_dbo")
    if halves is not None:
        draft.state("serve.two_batch_overlap", True, halves)


def _ranks(draft: Draft, tp: Written | None) -> int | None:
    """Ranks that a layer is spread over: tp x dp; None where one of them is not known."""
    if not draft.unread.keys().isdisjoint(("tensor_parallel_size", "tp", "data_parallel_size", "dp")):
        return None
    stated = draft.fact("layout.tp")
    tensor = stated if isinstance(stated, int) else draft.value(tp, positive) if tp is not None else 1
    groups = draft.fact("layout.dp") or 1
    return tensor * groups if isinstance(tensor, int) and isinstance(groups, int) else None


def _whole_node(draft: Draft) -> None:
    """Recipes split a model over all GPUs of a node (strategies/single_node_tp.yaml of vllm-project/recipes)."""
    gpus, groups = draft.fact("gpus"), draft.fact("layout.dp")
    if not isinstance(gpus, int) or gpus > _NODE or groups != 1:
        return
    draft.default("layout.tp", gpus, "recipes split a model over all GPUs of a node")
    experts = draft.peek("enable_expert_parallel")
    if experts is not None and is_on(experts.value):
        draft.state("layout.ep", gpus, experts)


def _drafts(draft: Draft) -> None:
    tokens = draft.take(
        "speculative_config.num_speculative_tokens", "num_speculative_tokens", "spec_tokens", "speculative_num_steps"
    )
    kept = draft.take("speculative_config.synthetic_acceptance_length", "spec_decode_acceptance_length")
    length = number(kept.value) if kept is not None else None
    drafter = draft.peek(*_DRAFTERS)
    word = draft.take("speculative_config.method", "spec_method", "method")
    method = method_of(word.value if word else None, drafter.value if drafter else None)
    ranks = draft.take("speculative_config.draft_tensor_parallel_size", "speculative_draft_tensor_parallel_size")
    if method == SUFFIX and word is not None:
        state_suffixes(draft, tokens, word)
    elif tokens is not None:
        accepted = length - 1 if length else None
        state_drafts(draft, Drafting(tokens, method, _DRAFTERS, accepted, ranks=ranks))
    draft.count("speculative_config*")


def _adapters(draft: Draft) -> None:
    on = draft.on("enable_lora")
    slots, rank, modules = draft.take("max_loras"), draft.take("max_lora_rank"), draft.take("lora_modules")
    host = draft.peek("max_cpu_loras")
    if on is None:
        return
    loaded = (
        modules.value
        if modules is not None and isinstance(modules.value, list)
        else listed(modules.value if modules is not None else None)
    )
    held = draft.value(slots, positive) if slots is not None else 1
    if loaded:
        draft.state("serve.adapters", len(loaded), modules)
    elif host is not None:
        draft.take("max_cpu_loras")
        draft.state("serve.adapters", draft.value(host, positive), host, "as many as host memory holds")
    else:
        draft.assume("serve.adapters", held, "as many as there are slots: which ones are loaded is not in the file")
    draft.state("serve.adapter_slots", held, slots) if slots else draft.default("serve.adapter_slots", 1)
    draft.state("lora.rank", draft.value(rank, positive), rank) if rank else draft.default("lora.rank", 16)


def _caches(draft: Draft) -> None:
    """Prefix cache, and the KV cache in host memory."""
    prefixes, off = draft.take("enable_prefix_caching"), draft.take("chart.no_prefix_caching")
    if prefixes is not None and not is_on(prefixes.value):
        draft.state("serve.prefix_hit_share", 0, prefixes, "no prefix cache")
    elif off is not None:
        draft.default("serve.prefix_hit_share", 0, "the chart turns the prefix cache off")
    size = draft.take("kv_offloading_size")
    if size is not None:
        draft.state("serve.kv_host_gib", draft.value(size, above_zero_or_off), size)
    connector = draft.take("kv_transfer_config.kv_connector")
    if connector is not None:
        name = "kv_transfer_config.kv_connector"
        draft.lose(name, f"{connector.value} sends the KV cache to other servers or keeps it in host memory")
    draft.count("kv_transfer_config*")


def _host_cache(draft: Draft) -> None:
    """LMCache: so many GiB of host memory for each rank."""
    on, size = draft.on("lmcacheConfig.enabled"), draft.take("lmcacheConfig.cpuOffloadingBufferSize")
    held = draft.value(size, above_zero_or_off) if on is not None and size is not None else None
    ranks = [draft.fact(key) for key in ("layout.tp", "layout.pp", "layout.dp")]
    if (
        size is None
        or not isinstance(held, int | float)
        or held <= 0
        or not all(isinstance(each, int) for each in ranks)
    ):
        return
    count = math.prod(int(str(each)) for each in ranks)
    note = f"{held:g} GiB for each of {count} ranks" if count > 1 else ""
    draft.state("serve.kv_host_gib", held * count, size, note)


def _images(draft: Draft) -> None:
    """A model that is told to serve text alone loads no vision encoder."""
    text = draft.on("language_model_only", "text_only")
    none = draft.peek("limit_mm_per_prompt.image", "limit_mm_per_prompt")
    if text is not None:
        draft.state("serve.images", 0, text, "text alone")
    elif none is not None and str(none.value) in ("0", "image=0"):
        draft.take("limit_mm_per_prompt.image", "limit_mm_per_prompt")
        draft.state("serve.images", 0, none, "no images")


TOOL = serving_tool(
    name="vllm",
    title="vLLM",
    reads="`vllm serve` in scripts, Compose files, Kubernetes manifests, graphs of Dynamo and services of KServe, "
    "values of llm-d's and the production stack's charts, recipes, and files of `--config`",
    engines=(VLLM, ATOM),
    read=_read,
    table=TABLE,
)
