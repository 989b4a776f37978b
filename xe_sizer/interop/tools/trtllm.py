"""Options of TensorRT-LLM: flags of trtllm-serve and the LLM API's options, as a file or as arguments of `LLM`.

Keys and defaults: TensorRT-LLM 1.2 and 1.3, tensorrt_llm/commands/serve.py and llmapi/llm_args.py (max_batch_size 2048,
 max_num_tokens 8192, free_gpu_memory_fraction 0.9). A file of options wins over flags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.interop.draft import Key, Loss, Table, globs
from xe_sizer.interop.services import TENSORRT_LLM
from xe_sizer.interop.serving import cache_format, human_count, serving_tool, share, state_drafts, state_service
from xe_sizer.interop.values import is_on, number, plain, positive, positive_or_open, text

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
    losses=(
        Loss(("kv_cache_config.host_cache_size",), "keeps KV cache in host memory"),
        Loss(
            ("cache_transceiver_config.max_tokens_in_buffer", "cache_transceiver_config.kv_cache_bounce_size_mb"),
            "sets memory aside for KV cache that is sent from prefill to decode",
        ),
        Loss(
            globs("""
                cuda_graph_config cuda_graph_config.* use_cuda_graph cuda_graph_batch_sizes
                cuda_graph_max_batch_size cuda_graph_padding_enabled
            """),
            "sizes the batches that run as CUDA graphs",
        ),
        Loss(("torch_compile_config", "torch_compile_config.*", "torch_compile_enabled"), "compiles the model"),
        Loss(
            globs("""
                moe_config.backend moe_config.use_low_precision_moe_combine moe_config.max_num_tokens
                moe_config.use_cute* moe_backend nvfp4_gemm_config.* nvfp4_gemm_config attn_backend
                allreduce_strategy gemm_allreduce* use_fp8_context_fmha
            """),
            "chooses kernels",
            harmless=("AUTO", "auto"),
        ),
        Loss(
            globs("""
                moe_config.load_balancer moe_config.load_balancer.* moe_load_balancer moe_load_balancer.*
            """),
            "moves and copies experts to balance their ranks",
        ),
        Loss(("disable_overlap_scheduler", "enable_overlap_scheduler"), "plans steps one after the other, or ahead"),
        Loss(("enable_chunked_prefill", "enable_chunked_context"), "cuts prompts into the steps"),
        Loss(("stream_interval",), "sends tokens in groups, with less work of the host", harmless=(1, "1")),
        Loss(
            ("scheduler_config.capacity_scheduler_policy",),
            "admits requests beyond what the cache surely holds",
            harmless=("GUARANTEED_NO_EVICT",),
        ),
        Loss(
            globs("""
                scheduler_config.context_chunking_policy scheduler_config.dynamic_batch_config*
                scheduler_config.use_python_scheduler
            """),
            "sets how prompts share a step",
        ),
        Loss(
            ("attention_dp_config.enable_balance", "attention_dp_config.timeout_iters"),
            "holds prompts back until all attention groups have one",
        ),
        Loss(("enable_lm_head_tp_in_adp",), "splits the output head over the attention groups"),
        Loss(("batch_wait_timeout_ms", "batch_wait_max_tokens_ratio"), "holds prompts back"),
        Loss(("sparse_attention_config", "sparse_attention_config.*"), "chooses the kernels of sparse attention"),
        Loss(
            globs("""
                kv_cache_config.max_tokens kv_cache_config.max_gpu_total_bytes
                kv_cache_config.max_attention_window* kv_cache_config.sink_token_length
                kv_cache_config.pool_ratio kv_cache_config.mamba_*
            """),
            "sizes the KV cache itself",
        ),
        Loss(
            globs("""
                kv_cache_config.cross_kv* kv_cache_config.secondary_offload* kv_cache_config.avg_seq_len
            """),
            "sets the KV cache",
        ),
        Loss(
            globs("""
                context_parallel_size cp_size cp_config* moe_cluster_parallel_size cluster_size
            """),
            "splits prompts or experts over further ranks",
            harmless=(1, "1"),
        ),
        Loss(("max_beam_width",), "searches with several beams", harmless=(1, "1")),
        Loss(
            globs("""
                speculative_config.speculative_model_dir speculative_config.speculative_model
            """),
            "a drafter of its own: its memory is not counted",
        ),
        Loss(
            globs("""
                speculative_config.num_eagle_layers speculative_config.eagle_choices
                speculative_config.use_dynamic_tree speculative_config.use_relaxed* speculative_config.relaxed_*
                speculative_config.max_concurrency speculative_config.use_mtp_vanilla
                speculative_config.*_layers_to_capture
            """),
            "sets the drafting of tokens",
        ),
        Loss(
            globs("""
                extended_runtime_perf_knob_config.* peft_cache_config.* enable_layerwise_nvtx_marker
            """),
            "sets the runtime",
        ),
        Loss(("enable_autotuner",), "tries kernels before it starts", harmless=(True, "true")),
        Loss(
            globs("""
                env.TRTLLM_ENABLE_PDL env.NCCL_GRAPH_MIXING_SUPPORT env.TRTLLM_FORCE_ALLTOALL_METHOD
                env.TRTLLM_MOE_ALLTOALL_BACKEND env.TLLM_USE_FLASHINFER*
            """),
            "chooses kernels",
            harmless=("0",),
        ),
    ),
    silent=globs("""
        recipe frontend* resources* infra* env benchmark.*
                host port tokenizer* custom_tokenizer served_model_name trust_remote_code log_level backend
                gpus_per_node num_postprocess_workers postprocess_tokenizer_dir revision config
                extra_llm_api_options extra_engine_args reasoning_parser tool_parser metadata_server*
                server_role fail_fast* otlp_traces* disagg_cluster_uri media_io* chat_template
                custom_module_dirs print_iter_log enable_iter_* iter_stats* request_stats* return_perf_metrics
                perf_metrics* event_buffer* kv_cache_config.event_buffer* kv_cache_config.tokens_per_block
                kv_cache_config.use_kv_cache_manager* kv_cache_config.block_reuse_config*
                kv_cache_config.enable_partial_reuse kv_cache_config.copy_on_partial*
                kv_cache_config.onboard_blocks kv_cache_config.use_uvm cache_transceiver_config*
                attention_dp_config.kv_cache_routing* attention_dp_config.enable_kv_cache_aware*
                num_serve_frontends load_format skip_tokenizer_init guided_decoding_backend* batched_logits*
                garbage_collection* enable_min_latency enable_build_cache* fast_build workspace max_input_len
                embedding_parallel_mode orchestrator_type ray_* hostname urls num_instances context_servers*
                generation_servers* env.* dtype precision quantization kv_cache_config.dtype kv_cache_dtype
                enable_attention_dp model_kwargs* stream_response speculative_config.decoding_type
                speculative_config.max_draft_len speculative_config.num_nextn_predict_layers
                speculative_config.eagle3_one_model speculative_config.max_matching_ngram*
                speculative_config.is_* speculative_config.allow_advanced* publish_events* disaggregation_mode
                disaggregation_strategy modality allreduce_workspace* enable_sleep* kv_connector_config*
                performance_metrics* telemetry* post_processor* enable_in_band* llm_id build_config
                build_config.plugin_config* mm_encoder_only encode_only* video_pruning*
            """),
)


# TensorRT-LLM: `trtllm-serve` with its options, recipes of srt-slurm, files of options of the LLM API.

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
