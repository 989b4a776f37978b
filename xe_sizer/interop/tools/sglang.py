"""Arguments of SGLang's server and of its `Engine` class.

Keys: SGLang 0.5.10 and 0.5.23, srt/server_args.py and srt/arg_groups/fields. The share of the memory, the tokens of a
prefill step and the requests that run at once depend on the card; their defaults are those of the engine's profile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.interop.draft import Key, Loss, Table, globs
from xe_sizer.interop.services import SGLANG
from xe_sizer.interop.serving import (
    cache_format,
    human_count,
    serving_tool,
    share,
    state_drafts,
    state_service,
    weights_format,
)
from xe_sizer.interop.values import above_zero_or_off, is_on, listed, number, plain, positive, positive_or_open, text

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.services import Chosen
    from xe_sizer.interop.source import Source
    from xe_sizer.interop.values import Written

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
        Key(("context_length",), "serve.max_model_len", human_count),
        Key(("max_running_requests",), "serve.max_sequences", human_count),
        Key(("chunked_prefill_size",), "serve.max_step_tokens", human_count),
        Key(("mem_fraction_static",), "serve.gpu_memory_utilization", share),
        Key(("scheduler_recv_interval",), "serve.scheduler_recv_interval", positive_or_open),
    ),
    losses=(
        Loss(("enable_hierarchical_cache", "hicache_size"), "keeps KV cache in host memory"),
        Loss(
            ("max_prefill_tokens", "prefill_max_requests", "max_total_tokens"),
            "bounds the prompts of a step or the cache",
        ),
        Loss(
            globs("""
                cuda_graph_max_bs* cuda_graph_bs* cuda_graph_config* piecewise_cuda_graph*
                cuda_graph_max_seq_len*
            """),
            "sizes the batches that run as CUDA graphs",
        ),
        Loss(
            globs("""
                disable_cuda_graph disable_cuda_graph_padding disable_prefill_cuda_graph
                disable_decode_cuda_graph disable_piecewise_cuda_graph enforce_piecewise_cuda_graph
                cuda_graph_backend*
            """),
            "changes what runs as CUDA graphs",
        ),
        Loss(("enable_torch_compile", "torch_compile_max_bs"), "compiles the model"),
        Loss(
            globs("""
                attention_backend prefill_attention_backend decode_attention_backend nsa_*_backend dsa_*_backend
                dsv4_*backend mm_attention_backend linear_attn_*backend mamba_backend sampling_backend
                enable_dsa_fused_indexer enable_deepseek_v4_fp4_indexer dsa_topk_backend
            """),
            "chooses the kernels of attention",
        ),
        Loss(
            globs("""
                moe_runner_backend fp4_gemm* fp8_gemm* bf16_gemm_backend fp4_gemm_backend enable_flashinfer_moe
                enable_flashinfer_cutlass_moe flashinfer_mxfp4_moe_precision enable_fused_*
            """),
            "chooses the kernels of products",
            harmless=("auto", "default"),
        ),
        Loss(
            globs("""
                moe_a2a_backend deepep_* enable_deepep_moe flashinfer_a2a* deepep_config
            """),
            "chooses how tokens are sent to their experts",
            harmless=("none", "auto"),
        ),
        Loss(
            globs("""
                ep_num_redundant_experts enable_eplb eplb_* ep_dispatch_algorithm init_expert_location
                expert_distribution_*
            """),
            "moves and copies experts to balance their ranks",
            harmless=("auto", "trivial"),
        ),
        Loss(
            globs("""
                moe_dense_tp_size shared_experts_tp_size enable_shared_experts_attn_tp enable_dense_mlp_attn_tp
            """),
            "splits dense layers over other ranks than attention",
        ),
        Loss(
            ("enable_dp_lm_head", "enable_tp_lm_head_all_to_all"), "computes the output head in every attention group"
        ),
        Loss(("enable_two_batch_overlap", "enable_single_batch_overlap", "tbo_*"), "overlaps two halves of a batch"),
        Loss(("enable_mixed_chunk",), "puts prompts and decodes into one step"),
        Loss(
            globs("""
                enable_dynamic_chunking enable_pdmux prefill_delayer* enable_prefill_delayer
                prefill_decode_interval* min_free_slots_delay
            """),
            "sets when prompts run",
        ),
        Loss(("disable_overlap_schedule",), "plans each step after the one before"),
        Loss(("num_continuous_decode_steps",), "runs several decode steps between prompts", harmless=(1, "1")),
        Loss(("stream_interval",), "sends tokens in groups, with less work of the host", harmless=(1, "1")),
        Loss(("cpu_offload_gb", "offload_*"), "keeps weights in host memory"),
        Loss(("kt_*", "enable_paged_experts", "paged_experts*"), "computes experts on the CPU, or pages them"),
        Loss(("hicache_ratio", "hicache_storage_backend*", "hicache_write_policy"), "sets the KV cache in host memory"),
        Loss(
            globs("""
                enable_lmcache enable_flexkv enable_unified_cache* enable_hisparse hisparse_config
            """),
            "keeps the KV cache outside the GPU",
        ),
        Loss(
            globs("""
                enable_flashinfer_allreduce_fusion enable_aiter_allreduce_fusion enforce_*allreduce_fusion
                flashinfer_allreduce* enable_symm_mem enable_torch_symm_mem enable_mscclpp enable_nccl_nvls
                disable_custom_all_reduce enable_quant_communications boundary_reduction
            """),
            "changes how ranks sum up",
        ),
        Loss(
            globs("""
                enable_attn_tp_input_scattered enable_layernorm_sp attn_cp_size enable_*prefill_cp
                enable_prefill_context_parallel enable_nsa_prefill_context_parallel dcp_size moe_dp_size
                cp_strategy enable_dsa_cache_layer_split enable_kv_cache_sharding dwdp_size
            """),
            "splits further work over ranks",
            harmless=(1, "1"),
        ),
        Loss(
            globs("""
                max_mamba_cache_size mamba_* swa_* enable_linear_replayssm* linear_replayssm*
                disable_hybrid_swa_memory
            """),
            "sizes the states of linear or windowed attention",
        ),
        Loss(("speculative_eagle_topk",), "drafts a tree of tokens", harmless=(1, "1")),
        Loss(
            globs("""
                speculative_draft_model_path speculative_draft_model_quantization speculative_draft_window_size
                speculative_token_map speculative_*backend speculative_adaptive* enable_multi_layer_eagle
                speculative_accept_threshold_* speculative_attention_mode
            """),
            "sets the drafter, whose memory is not counted",
            harmless=("prefill", 1.0),
        ),
        Loss(("disable_shared_experts_fusion", "enforce_shared_experts_fusion"), "keeps shared experts apart"),
        Loss(("enable_fp32_lm_head", "triton_attention_reduce_in_fp32"), "computes in float32"),
        Loss(
            globs("""
                enable_double_sparsity ds_* dllm_* enable_deterministic_inference rl_*
            """),
            "changes what is computed",
        ),
        Loss(
            globs("""
                torchao_config modelopt_quant quantize_and_serve json_model_override_args
            """),
            "changes the model or its formats",
            harmless=("{}",),
        ),
        Loss(("is_embedding",), "embeds, which is not modelled"),
        Loss(("enable_memory_saver", "enable_weights_cpu_backup"), "keeps copies of weights"),
        Loss(
            globs("""
                disaggregation_decode_*offload* num_reserved_decode_tokens disaggregation_decode_extra_slots
            """),
            "sets aside room for requests that arrive from prefill",
        ),
        Loss(
            globs("""
                env.SGLANG_ENABLE_JIT_DEEPGEMM env.SGL_ENABLE_JIT_DEEPGEMM env.SGLANG_USE_AITER
                env.SGLANG_ENABLE_FLASHINFER_GEMM env.SGLANG_AITER_* env.SGLANG_MOE_NVFP4_DISPATCH
            """),
            "chooses kernels",
        ),
    ),
    silent=globs("""
        recipe frontend* resources* infra* env benchmark.*
                served_model_name host port tokenizer_* skip_tokenizer_init load_format
                model_loader_extra_config* *_remote_code trust_remote_code enable_multimodal revision model_impl
                fastapi_root_path grpc_mode skip_server_warmup warmups nccl_port nccl_init_addr
                checkpoint_engine* ssl_* enable_ssl* quantization_param_path modelopt_checkpoint*
                max_queued_requests schedule_* enable_priority* disable_priority* default_priority* abort_on*
                priority_* page_size radix_eviction_policy* device base_gpu_id gpu_id_step watchdog_timeout
                soft_watchdog_timeout dist_timeout download_dir model_checksum sleep_on_idle use_ray custom_*
                log_* crash_dump* show_time_cost enable_metrics* tokenizer_metrics* bucket_* collect_tokens*
                prompt_tokens_buckets generation_tokens_buckets gc_* decode_log_interval enable_request_time*
                kv_events_config* enable_trace otlp_* export_metrics* api_key admin_api_key weight_version
                chat_template hf_chat* completion_template file_storage* enable_cache_report reasoning_parser
                tool_call_parser tool_server sampling_defaults load_balance_method dist_init_addr nnodes
                node_rank preferred_sampling* lora_backend max_lora_chunk_size lora_eviction_policy
                enable_lora_overlap* max_loaded_loras experts_shared_outer* grammar_backend constrained_*
                disable_flashinfer_autotune flashinfer_autotune* disaggregation_transfer_backend
                disaggregation_bootstrap_port disaggregation_ib_device disaggregation_decode_polling*
                disaggregation_mode encoder_* language_only language_model_only weight_loader_* remote_instance*
                engine_info* modelexpress* pdmux* sm_group_num mm_* limit_mm* keep_mm* enable_broadcast*
                enable_prefix_mm* disable_fast_image* decrypted* forward_hooks numa_node random_seed seed
                enable_p2p_check delete_ckpt* allow_auto_truncate enable_custom_logit* enable_return_*
                enable_nan* disable_outlines* enable_tokenizer_batch* disable_tokenizer_batch*
                enable_dynamic_batch* dynamic_batch* debug_* pre_warm_nccl enable_layerwise* enable_profile*
                enable_cudagraph_gc disable_chunked_prefix_cache pp_max_micro* pp_async* stream_output
                stream_response* incremental_streaming* enable_streaming* hicache_io_backend hicache_mem_layout
                hicache_storage_prefetch* config data_parallel_address prefill_round_robin_balance elastic_ep*
                mooncake_ib* enable_elastic* startup_weight* enable_mfu* flashinfer_mla*
                disable_flashinfer_cutlass* numa_* env.* dyn_* endpoint_types use_sglang_tokenizer store_kv
                request_plane speculative_ngram* speculative_draft_load_format speculative_draft_model_revision
                dp_attention* disable_attn_tp* quantization kv_cache_dtype dtype precision max_micro_batch_size
                watch* verbose
            """),
)


# SGLang: `launch_server` in scripts, containers and manifests, the cookbook's models, recipes of srt-slurm.

_GIB = 2**30 / 1e9  # GB of a GiB
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
    dispatched = draft.peek("moe_a2a_backend")
    if ep is not None and isinstance(ep.value, bool):
        draft.state("layout.ep", ranks if ep.value else 1, ep)
    elif ep is not None:
        draft.state("layout.ep", draft.value(ep, positive), ep)
    elif dispatched is not None and is_on(dispatched.value):
        draft.state("layout.ep", ranks, dispatched, "its exchange needs experts on all ranks")
    elif draft.unread.keys().isdisjoint(EP):
        draft.default("layout.ep", 1, "experts are split like other layers")


def _drafts(draft: Draft) -> None:
    algorithm = draft.take("speculative_algorithm", "speculative_algo")
    steps, top = draft.take("speculative_num_steps"), draft.peek("speculative_eagle_topk")
    tokens = draft.take("speculative_num_draft_tokens")
    if algorithm is None or plain(algorithm.value) not in _OWN_HEADS:
        return
    simulated = draft.take("env.SGLANG_SIMULATE_ACC_LEN")
    length = number(simulated.value) if simulated is not None else None
    accepted = length - 1 if length else None
    chain = top is None or str(top.value) == "1"
    if steps is not None and chain:
        state_drafts(draft, steps.value, steps, accepted)
    elif tokens is not None:
        count = draft.value(tokens, positive_or_open)
        if isinstance(count, int) and count > 1:
            state_drafts(draft, count - 1, tokens, accepted)  # one of the tokens is the one that is known already
    else:
        name = "speculative_algorithm" if "speculative_algorithm" in draft.keys else "speculative_algo"
        draft.lose(name, "drafts as many tokens as SGLang chooses for the model; pass --draft-tokens")


def _adapters(draft: Draft) -> None:
    paths, slots, rank = draft.take("lora_paths"), draft.take("max_loras_per_batch"), draft.take("max_lora_rank")
    targets, on = draft.take("lora_target_modules"), draft.on("enable_lora")
    if paths is None and on is None:
        return
    held = draft.value(slots, positive) if slots is not None else 8
    loaded = (
        paths.value if paths is not None and isinstance(paths.value, list) else listed(paths.value if paths else None)
    )
    if loaded:
        draft.state("serve.adapters", len(loaded), paths)
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
