"""Arguments of vLLM's servers and of its `LLM` class.

Keys and defaults: vLLM 0.33, vllm/engine/arg_utils.py and vllm/config; gpu_memory_utilization 0.9 until 0.19, 0.92
from 0.20 (vllm/config/cache.py of both). Defaults that depend on the card (max_num_seqs, max_num_batched_tokens) are
those of the engine's profile.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.interop.draft import Key, Loss, Table, globs
from xe_sizer.interop.services import ATOM, VLLM
from xe_sizer.interop.serving import (
    cache_format,
    human_count,
    serving_tool,
    share,
    state_drafts,
    state_service,
    weights_format,
)
from xe_sizer.interop.values import above_zero_or_off, is_on, listed, number, positive, text

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.services import Chosen
    from xe_sizer.interop.source import Source
    from xe_sizer.interop.values import Written

TABLE = Table(
    keys=(
        Key(("model", "model_tag"), "model", text),
        Key(("tensor_parallel_size", "tp"), "layout.tp", positive, default=1),
        Key(("pipeline_parallel_size", "pp"), "layout.pp", positive, default=1),
        Key(("data_parallel_size", "dp"), "layout.dp", positive),
        Key(("quantization", "q"), "serve.weights", weights_format),
        Key(("kv_cache_dtype",), "serve.kv_cache", cache_format),
        Key(("max_model_len",), "serve.max_model_len", human_count),
        Key(("max_num_seqs",), "serve.max_sequences", human_count),
        Key(("max_num_batched_tokens",), "serve.max_step_tokens", human_count),
        Key(("gpu_memory_utilization",), "serve.gpu_memory_utilization", share, default=0.92, since="0.20"),
        Key(("gpu_memory_utilization",), "serve.gpu_memory_utilization", share, default=0.9, until="0.20"),
    ),
    losses=(
        Loss(("requestGPU", "requestGPUMem*", "requestGPUCores", "limitGPU*"), "shares a GPU with other pods"),
        Loss(
            ("requestGPUType",), "asks for a kind of GPU, such as a slice", harmless=("nvidia.com/gpu", "amd.com/gpu")
        ),
        Loss(("keda", "keda.*"), "starts and stops replicas with the load"),
        Loss(("v0",), "runs vLLM's first engine", harmless=("0",)),
        Loss(("variants.*",), "a further variant of the recipe; --set variant=NAME reads it"),
        Loss(("hardware_overrides.*",), "further arguments on some GPUs"),
        Loss(("lmcacheConfig.*Nixl*", "lmcacheConfig.enablePD"), "sends the KV cache from server to server"),
        Loss(
            ("online_quant_config*", "level", "cudagraph_mode", "index_cache_dtype", "attn_prefill_chunk_size"),
            "sets how ATOM computes",
        ),
        Loss(("scheduler_delay_factor", "state_checkpoint_interval_tokens"), "sets when prompts run"),
        Loss(("enable_mamba_cache_stochastic_rounding", "mamba_cache_philox_rounds"), "rounds the states at random"),
        Loss(("enforce_eager",), "launches every kernel from Python, without CUDA graphs"),
        Loss(("enable_chunked_prefill",), "runs prompts whole", unless=True),
        Loss(
            ("max_cudagraph_capture_size", "cudagraph_capture_sizes", "max_seq_len_to_capture"),
            "sizes the batches that run as CUDA graphs",
        ),
        Loss(
            globs("""
                compilation_config compilation_config.* cc* O optimization_level performance_mode
            """),
            "sets how the model is compiled",
        ),
        Loss(
            globs("""
                attention_backend attention_config attention_config.* ac*
            """),
            "chooses the kernels of attention",
        ),
        Loss(
            globs("""
                moe_backend linear_backend kernel_config kernel_config.* sparse_indexer_topk_backend monokernel
            """),
            "chooses the kernels of products",
        ),
        Loss(
            globs("""
                gdn_prefill_backend kda_prefill_backend kda_decode_backend mamba_backend mamba_ssu_algorithm
            """),
            "chooses the kernels of linear attention",
        ),
        Loss(("all2all_backend", "dcp_comm_backend"), "chooses how tokens are sent to their experts"),
        Loss(
            globs("""
                enable_eplb eplb_config eplb_config.* num_redundant_experts expert_placement_strategy
            """),
            "moves and copies experts to balance their ranks",
        ),
        Loss(("enable_dbo", "ubatch_size", "dbo_*"), "overlaps two halves of a batch"),
        Loss(
            globs("""
                decode_context_parallel_size dcp prefill_context_parallel_size pcp dcp_* cp_*
            """),
            "splits the KV cache or prompts over ranks",
            harmless=(1, "1"),
        ),
        Loss(
            globs("""
                cpu_offload_gb cpu_offload_params offload_backend offload_group_size offload_num_in_group
                offload_prefetch_step offload_params
            """),
            "keeps weights in host memory",
        ),
        Loss(("kv_cache_memory_bytes", "kv_cache_memory", "num_gpu_blocks_override"), "sizes the KV cache itself"),
        Loss(("swap_space",), "keeps preempted requests in host memory"),
        Loss(("kv_cache_dtype_skip_layers",), "keeps the KV cache of some layers in 16 bit"),
        Loss(
            globs("""
                mamba_cache_dtype mamba_ssm_cache_dtype mamba_block_size mamba_cache_mode use_replayssm
            """),
            "sets the states of linear attention",
            harmless=("auto",),
        ),
        Loss(("async_scheduling",), "plans a step while the one before runs"),
        Loss(
            ("num_scheduler_steps", "multi_step_stream_outputs", "num_lookahead_slots"), "plans several steps at once"
        ),
        Loss(
            globs("""
                prefill_schedule_interval max_num_partial_prefills max_long_partial_prefills
                long_prefill_token_threshold* max_num_scheduled_tokens max_num_active_seqs scheduler_cls
                scheduling_policy watermark scheduler_reserve_full_isl
            """),
            "sets how prompts and decodes share steps",
            harmless=("fcfs",),
        ),
        Loss(("stream_interval",), "sends tokens in groups, with less work of the host", harmless=(1, "1")),
        Loss(("disable_hybrid_kv_cache_manager",), "gives all layers the KV cache of full attention"),
        Loss(
            globs("""
                disable_sliding_window disable_cascade_attn kv_sharing_fast_prefill swa_bounded_replay
            """),
            "changes what attention reads",
        ),
        Loss(("disable_custom_all_reduce",), "sums over ranks with NCCL"),
        Loss(("mm_encoder_tp_mode",), "gives every rank a whole vision encoder", harmless=("weights",)),
        Loss(
            globs("""
                skip_mm_profiling mm_encoder_attn_backend video_pruning_rate mm_processor_cache_gb
            """),
            "changes the memory or work of the vision encoder",
        ),
        Loss(("limit_mm_per_prompt", "limit_mm_per_prompt.*"), "bounds the images of a prompt"),
        Loss(
            globs("""
                hf_overrides hf_overrides.* rope_scaling rope_scaling.* rope_theta
            """),
            "changes the model itself",
        ),
        Loss(("num_speculative_heads", "speculative_draft_tensor_parallel_size"), "sets the drafting of tokens"),
        Loss(
            globs("""
                fully_sharded_loras max_cpu_loras specialize_active_lora enable_tower_connector_lora
            """),
            "changes how adapters are kept",
        ),
        Loss(
            globs("""
                enable_hc_sp enable_batch_sharded_sampling enable_ep_weight_filter dcp_q_replicate
            """),
            "splits further work over ranks",
        ),
        Loss(("kv_offloading_backend",), "chooses how the KV cache goes to host memory", harmless=("native",)),
        Loss(("performance_mode", "use_v2_block_manager", "preemption_mode"), "sets how requests are preempted"),
        Loss(("quantization_param_path", "quantization_config", "quantization_config.*"), "sets the quantisation"),
        Loss(
            globs("""
                env.VLLM_USE_FLASHINFER_* env.VLLM_ROCM_* env.VLLM_ATTENTION_BACKEND env.VLLM_MLA_DISABLE
                env.VLLM_ALL2ALL_BACKEND env.VLLM_USE_DEEP_GEMM* env.VLLM_MOE_* env.VLLM_USE_TRITON_*
            """),
            "chooses kernels",
        ),
        Loss(
            globs("""
                runner convert task pooler_config pooler_config.*
            """),
            "embeds or classifies, which is not modelled",
            harmless=("generate", "auto", "none"),
        ),
    ),
    silent=globs("""
        lmcacheConfig* raySpec* default_chat_template_kwargs* server_port model_name disable_access_log* omni
        deploy_config init_timeout cfg_parallel_size ulysses_degree use_hsdp hsdp_shard_size num_gpus usp ring vae_*
        enable_tool tool_call_parser_plugin kv_transfer_config.* features.* recipe frontend* resources* infra* env
        hardware_overrides v1 benchmark.* host port api_key* served_model_name trust_remote_code tokenizer
        tokenizer_* hf_config_path skip_tokenizer_init allowed_* download_dir safetensors_* load_format
        model_loader_extra_config* config_format seed revision code_revision hf_token model_impl override_*
        generation_config* chat_template* response_role tool_call_parser tool_parser_plugin tool_server
        enable_auto_tool_choice reasoning_* structured_outputs_config* guided_* enable_reasoning uvicorn_*
        disable_log_* enable_log_* log_* logging_config disable_frontend_multiprocessing disable_uvicorn_access_log
        enable_prompt_tokens_details enable_server_load_tracking enable_request_id_headers ssl_* root_path
        middleware allow_credentials allow_origins cors_* return_tokens_as_token_ids max_logprobs logprobs_mode
        max_log_len otlp_* collect_detailed_traces show_hidden_metrics* kv_cache_metrics* cudagraph_metrics
        enable_mfu_metrics kv_events_config* api_server_count asc headless nnodes n node_rank r master_addr
        master_port data_parallel_rank* dpr data_parallel_address dpa data_parallel_rpc_port dpp
        data_parallel_start_rank data_parallel_size_local dpl data_parallel_backend data_parallel_hybrid_lb
        data_parallel_external_lb data_parallel_multi_port* distributed_executor_backend distributed_timeout*
        cpu_distributed_timeout* worker_* max_parallel_loading_workers ray_workers_use_nsight numa_bind* device_ids
        block_size prefix_caching_hash_algo prefix_cache_retention_interval prefix_match_unit calculate_kv_scales
        enable_sleep_mode sleep_* enable_cumem_allocator enable_nccl_comm_suspend enable_flashinfer_autotune device
        media_io_kwargs* mm_processor_kwargs* mm_processor_* mm_hasher* mm_shm* mm_tensor* interleave_mm_strings
        enable_mm_embeds io_processor_plugin renderer_* logits_processor* additional_config* weight_transfer_config*
        profiler_config* watchdog_config* shutdown_timeout tokens_only config use_tqdm_on_load pt_load_map_location
        ignore_patterns fail_on_environ_validation enable_elastic_ep elastic_* enable_fault_tolerance fault_*
        disable_nccl_for_dp* dp_sync_interval lora_extra_vocab_size long_lora_scaling_factors lora_dtype
        enable_prompt_embeds enable_return_routed_experts aggregate_engine_logging enable_tokenizer_info_endpoint
        use_fp64_gumbel enable_trace_replay aux_output_config* ec_* diffusion_config* exclude_log_deltas
        disable_fastapi_docs enable_force_include_usage enable_offline_docs h11_* lora_modules prompt_adapters
        enable_prompt_adapter max_prompt_adapter* disable_async_output_proc disable_chunked_mm_input grpc env.*
        dyn_* kv_role is_prefill_worker is_decode_worker connector store_kv endpoint_types request_plane event_plane
        custom_jinja_template migration_limit use_kv_events max_num_queued* enable_kv_cache_events enable_lora
        max_loras max_lora_rank default_mm_loras lora_target_modules enable_mixed_moe* enable_moe_shared* no_*
        verbose V use_uvloop model_id disable_log_requests watermark_config* watermarking* request_id*
        """),
)


# vLLM: `vllm serve` in scripts, containers, Kubernetes manifests, charts of the production stack and recipes.

_NODE = 8  # GPUs that one node may have


def _read(draft: Draft, source: Source, chosen: Chosen) -> None:
    _drafts(draft)
    _adapters(draft)
    _caches(draft)
    _images(draft)
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
    ranks = _ranks(draft, tp)
    if experts is not None and is_on(experts.value):
        if ranks is not None:
            draft.state("layout.ep", ranks, experts, "all ranks of attention: tp x dp")
    elif "enable_expert_parallel" not in draft.unread:
        draft.default("layout.ep", 1, "experts are split like other layers")


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
    if tokens is not None:
        state_drafts(draft, tokens.value, tokens, length - 1 if length else None)
    for name in ("speculative_config.model", "spec_model", "speculative_model", "draft_model"):
        if draft.peek(name) is not None:
            draft.lose(name, "a drafter of its own: its memory is not counted")
    draft.count("speculative_config*", "spec_method", "method")


def _adapters(draft: Draft) -> None:
    on = draft.on("enable_lora")
    slots, rank, modules = draft.take("max_loras"), draft.take("max_lora_rank"), draft.take("lora_modules")
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
    reads="`vllm serve` in scripts, Compose files and Kubernetes manifests, values of the production stack's chart, "
    "recipes, and files of `--config`",
    engines=(VLLM, ATOM),
    read=_read,
    table=TABLE,
)
