"""Arguments of SGLang's server and of its `Engine` class.

Keys: SGLang 0.5.10 and 0.5.23, srt/server_args.py and srt/arg_groups/fields. The share of the memory, the tokens of a
prefill step and the requests that run at once depend on the card; their defaults are those of the engine's profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.interop.draft import Key, Table, globs
from xe_sizer.interop.services import SGLANG
from xe_sizer.interop.serving import (
    Drafting,
    cache_format,
    dispatcher,
    heads_taken,
    human_count,
    method_of,
    no_answer,
    place_of_tables,
    serving_tool,
    share,
    state_drafts,
    state_service,
    state_type,
    weights_format,
)
from xe_sizer.interop.values import (
    Written,
    above_zero_or_off,
    is_on,
    listed,
    number,
    plain,
    positive,
    positive_or_open,
    text,
)
from xe_sizer.software.speculation import DFLASH, EAGLE, MTP

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.services import Chosen
    from xe_sizer.interop.source import Source

TP = ("tp_size", "tp", "tensor_parallel_size")
PP = ("pp_size", "pp", "pipeline_parallel_size")
DP = ("dp_size", "dp", "data_parallel_size")
EP = globs("""
                ep_size ep expert_parallel_size expert_parallel enable_ep_moe
            """)
TABLE = Table(
    keys=(
        Key(("model_path", "model"), "model", text),
        Key(TP, "layout.tp", positive, default=1),
        Key(PP, "layout.pp", positive, default=1),
        Key(DP, "layout.dp", positive),
        Key(("quantization",), "serve.weights", weights_format),
        Key(("kv_cache_dtype",), "serve.kv_cache", cache_format),
        Key(("mamba_ssm_dtype", "env.SGLANG_MAMBA_SSM_DTYPE"), "serve.state_dtype", state_type),
        Key(("context_length",), "serve.max_model_len", human_count),
        Key(("max_running_requests",), "serve.max_sequences", human_count),
        Key(("chunked_prefill_size",), "serve.max_step_tokens", human_count),
        Key(("mem_fraction_static",), "serve.gpu_memory_utilization", share),
        Key(("is_embedding",), "serve.output_tokens", no_answer),
        Key(("ple_offload_embedding",), "serve.ngram_tables", place_of_tables),
        Key(("mig_profile",), "slice"),
        Key(("scheduler_recv_interval",), "serve.scheduler_recv_interval", positive_or_open),
    ),
    file="sglang",
)


# SGLang: `launch_server` in scripts, containers and manifests, the cookbook's models, recipes of srt-slurm.

_GIB = 2**30 / 1e9  # GB of a GiB
_DRAFTER = "speculative_draft_model_path"
_OWN_HEADS = ("eagle", "eagle3", "nextn", "mtp", "frozenkvmtp", "standalone", "ngram", "dflash", "dspark", "lookahead")


def _read(draft: Draft, source: Source, chosen: Chosen) -> None:
    _drafts(draft)
    _adapters(draft)
    _caches(draft)
    state_service(draft, chosen, source, TABLE, _place, SGLANG)
    _host_cache(draft)


def _place(draft: Draft) -> None:
    """Ranks of one replica. With attention groups, tp counts all ranks, and attention is split over tp / dp of them.

    Without them, `dp` starts whole replicas. Limits on requests and prompt tokens are those of all groups together.
    """
    tp, dp, ep = draft.take(*TP), draft.take(*DP), draft.take(*EP)
    groups = draft.on("enable_dp_attention")
    ranks = draft.value(tp, positive) if tp is not None else 1
    count = draft.value(dp, positive) if dp is not None else 1
    known = draft.unread.keys().isdisjoint((*TP, *DP))
    if known and isinstance(ranks, int) and isinstance(count, int):
        _groups(draft, ranks, count, tp, dp, split=groups is not None)
    _experts(draft, ep, ranks if isinstance(ranks, int) else 1)


def _groups(draft: Draft, ranks: int, count: int, tp: Written | None, dp: Written | None, *, split: bool) -> None:
    if split and count > 1 and ranks % count == 0:
        draft.state("layout.tp", ranks // count, tp, f"{ranks} ranks in {count} attention groups")
        draft.state("layout.dp", count, dp)
        for name, key in (("max_running_requests", "serve.max_sequences"),
                          ("chunked_prefill_size", "serve.max_step_tokens")):  # fmt: skip
            total = draft.take(name)
            value = draft.value(total, positive_or_open) if total is not None else None
            if isinstance(value, int) and value >= count:
                draft.state(key, value // count, total, f"{value} of {count} attention groups")
        return
    draft.state("layout.tp", ranks, tp) if tp is not None else draft.default("layout.tp", 1)
    draft.state("layout.dp", count, dp) if dp is not None else draft.default("layout.dp", 1)


def _experts(draft: Draft, ep: Written | None, ranks: int) -> None:
    dispatched = draft.peek("moe_a2a_backend", "enable_deepep_moe")
    if ep is not None and isinstance(ep.value, bool):
        draft.state("layout.ep", ranks if ep.value else 1, ep)
    elif ep is not None:
        draft.state("layout.ep", draft.value(ep, positive), ep)
    elif dispatched is not None and is_on(dispatched.value):
        draft.state("layout.ep", ranks, dispatched, "its exchange needs experts on all ranks")
    elif draft.unread.keys().isdisjoint(EP):
        draft.default("layout.ep", 1, "experts are split like other layers")
    _send(draft)


def _send(draft: Draft) -> None:
    """How tokens get to whole experts on other ranks, copies of busy experts, and halves that hide it."""
    backend, mode, old = draft.take("moe_a2a_backend"), draft.take("deepep_mode"), draft.on("enable_deepep_moe")
    found = draft.value(backend, dispatcher) if backend is not None else "deepep" if old is not None else None
    if isinstance(found, str):
        kind = {"normal": "-normal", "lowlatency": "-low-latency"}.get(plain(mode.value) if mode else "", "")
        draft.state("serve.dispatcher", f"{found}{kind}" if found == "deepep" else found, backend or old)
    copies, balanced = draft.take("ep_num_redundant_experts"), draft.on("enable_eplb")
    placed = draft.take("init_expert_location")
    if placed is not None and plain(placed.value) == "trivial":
        placed = None
    if copies is not None or balanced is not None or placed is not None:
        count = draft.value(copies, positive_or_open) or 0
        draft.state("serve.redundant_experts", count, copies or balanced or placed)
    halves = draft.on("enable_two_batch_overlap")
    if halves is not None:
        draft.state("serve.two_batch_overlap", True, halves)


def _drafts(draft: Draft) -> None:
    algorithm = draft.take("speculative_algorithm", "speculative_algo")
    steps, top = draft.take("speculative_num_steps"), draft.take("speculative_eagle_topk")
    tokens = draft.take("speculative_num_draft_tokens")
    if algorithm is None or plain(algorithm.value) not in _OWN_HEADS:
        return
    simulated = draft.take("env.SGLANG_SIMULATE_ACC_LEN")
    length = number(simulated.value) if simulated is not None else None
    accepted = length - 1 if length else None
    drafter, method = draft.peek(_DRAFTER), method_of(algorithm.value)
    # Modules for multi-token prediction are heads of EAGLE in its words, where none is named or one that holds them.
    if method == EAGLE and (drafter is None or method_of(None, drafter.value) == MTP):
        method = MTP
    chain = top is None or str(top.value) == "1"
    if steps is not None and chain:
        state_drafts(draft, Drafting(steps, method, (_DRAFTER,), accepted))
    elif tokens is not None:
        count = draft.value(tokens, positive_or_open)
        if isinstance(count, int) and count > 1:  # one of the tokens is the one that is known already
            proposed = Written(count - 1, tokens.where)
            state_drafts(draft, Drafting(proposed, method, (_DRAFTER,), accepted, top, steps))
    elif method == DFLASH:
        draft.state("serve.speculative", method, algorithm, "blocks as long as its drafter was trained for")
        if draft.take(_DRAFTER) is not None:
            draft.lose(_DRAFTER, heads_taken(method))
    else:
        name = "speculative_algorithm" if "speculative_algorithm" in draft.keys else "speculative_algo"
        draft.lose(name, "drafts as many tokens as SGLang chooses for the model; pass --draft-tokens")


def _adapters(draft: Draft) -> None:
    paths, slots, rank = draft.take("lora_paths"), draft.take("max_loras_per_batch"), draft.take("max_lora_rank")
    targets, on = draft.take("lora_target_modules"), draft.on("enable_lora")
    loadable = draft.peek("max_loaded_loras")
    if paths is None and on is None:
        return
    held = draft.value(slots, positive) if slots is not None else 8
    loaded = (
        paths.value if paths is not None and isinstance(paths.value, list) else listed(paths.value if paths else None)
    )
    if loaded:
        draft.state("serve.adapters", len(loaded), paths)
    elif loadable is not None:
        draft.take("max_loaded_loras")
        draft.state("serve.adapters", draft.value(loadable, positive), loadable, "as many as are loaded at most")
    else:
        draft.assume("serve.adapters", held, "as many as there are slots: which ones are loaded is not in the file")
    draft.state("serve.adapter_slots", held, slots) if slots else draft.default("serve.adapter_slots", 8)
    if rank is not None:
        draft.state("lora.rank", draft.value(rank, positive), rank)
    if targets is not None:
        words = listed(" ".join(targets.value) if isinstance(targets.value, list) else targets.value) or ()
        draft.state("lora.targets", ("all-linear",) if "all" in words else words, targets)


def _caches(draft: Draft) -> None:
    off = draft.on("disable_radix_cache")
    if off is not None:
        draft.state("serve.prefix_hit_share", 0, off, "no prefix cache")


def _host_cache(draft: Draft) -> None:
    """The KV cache in host memory: GB of each rank, or a multiple of the one on the GPU."""
    on, size = draft.on("enable_hierarchical_cache"), draft.take("hicache_size")
    if on is None:
        return
    gigabytes = draft.value(size, above_zero_or_off) if size is not None else None
    ranks = draft.fact("layout.tp"), draft.fact("layout.pp"), draft.fact("layout.dp")
    if isinstance(gigabytes, int | float) and gigabytes > 0 and all(isinstance(each, int) for each in ranks):
        product = 1
        for each in ranks:
            product *= int(str(each))
        total = round(gigabytes * product / _GIB, 1)
        draft.state("serve.kv_host_gib", total, size, f"{gigabytes:g} GB for each of {product} ranks")
    else:
        draft.lose("enable_hierarchical_cache", "keeps KV cache in host memory; say how much with --kv-host-gib")


TOOL = serving_tool(
    name="sglang",
    title="SGLang",
    reads="`sglang.launch_server` in scripts, Compose files and Kubernetes manifests, models of the cookbook, recipes "
    "of srt-slurm",
    engines=(SGLANG,),
    read=_read,
    table=TABLE,
)
