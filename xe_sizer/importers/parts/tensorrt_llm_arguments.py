"""Options of TensorRT-LLM: flags of trtllm-serve and the LLM API's options, as a file or as arguments of `LLM`.

Keys and defaults: TensorRT-LLM 1.2 and 1.3, tensorrt_llm/commands/serve.py and llmapi/llm_args.py (max_batch_size 2048,
 max_num_tokens 8192, free_gpu_memory_fraction 0.9). A file of options wins over flags.
"""

from __future__ import annotations

from xe_sizer.importers.parts.serving_formats import cache_format
from xe_sizer.importers.parts.serving_values import human_count, share
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import positive, positive_or_open, text

TP = ("tensor_parallel_size", "tp_size", "tp")
PP = ("pipeline_parallel_size", "pp_size", "pp")
EP = ("moe_expert_parallel_size", "ep_size", "ep")
MEMORY = names("""
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
            names("""
                cuda_graph_config cuda_graph_config.* use_cuda_graph cuda_graph_batch_sizes
                cuda_graph_max_batch_size cuda_graph_padding_enabled
            """),
            "sizes the batches that run as CUDA graphs",
        ),
        Loss(("torch_compile_config", "torch_compile_config.*", "torch_compile_enabled"), "compiles the model"),
        Loss(
            names("""
                moe_config.backend moe_config.use_low_precision_moe_combine moe_config.max_num_tokens
                moe_config.use_cute* moe_backend nvfp4_gemm_config.* nvfp4_gemm_config attn_backend
                allreduce_strategy gemm_allreduce* use_fp8_context_fmha
            """),
            "chooses kernels",
            harmless=("AUTO", "auto"),
        ),
        Loss(
            names("""
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
            names("""
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
            names("""
                kv_cache_config.max_tokens kv_cache_config.max_gpu_total_bytes
                kv_cache_config.max_attention_window* kv_cache_config.sink_token_length
                kv_cache_config.pool_ratio kv_cache_config.mamba_*
            """),
            "sizes the KV cache itself",
        ),
        Loss(
            names("""
                kv_cache_config.cross_kv* kv_cache_config.secondary_offload* kv_cache_config.avg_seq_len
            """),
            "sets the KV cache",
        ),
        Loss(
            names("""
                context_parallel_size cp_size cp_config* moe_cluster_parallel_size cluster_size
            """),
            "splits prompts or experts over further ranks",
            harmless=(1, "1"),
        ),
        Loss(("max_beam_width",), "searches with several beams", harmless=(1, "1")),
        Loss(
            names("""
                speculative_config.speculative_model_dir speculative_config.speculative_model
            """),
            "a drafter of its own: its memory is not counted",
        ),
        Loss(
            names("""
                speculative_config.num_eagle_layers speculative_config.eagle_choices
                speculative_config.use_dynamic_tree speculative_config.use_relaxed* speculative_config.relaxed_*
                speculative_config.max_concurrency speculative_config.use_mtp_vanilla
                speculative_config.*_layers_to_capture
            """),
            "sets the drafting of tokens",
        ),
        Loss(
            names("""
                extended_runtime_perf_knob_config.* peft_cache_config.* enable_layerwise_nvtx_marker
            """),
            "sets the runtime",
        ),
        Loss(("enable_autotuner",), "tries kernels before it starts", harmless=(True, "true")),
        Loss(
            names("""
                env.TRTLLM_ENABLE_PDL env.NCCL_GRAPH_MIXING_SUPPORT env.TRTLLM_FORCE_ALLTOALL_METHOD
                env.TRTLLM_MOE_ALLTOALL_BACKEND env.TLLM_USE_FLASHINFER*
            """),
            "chooses kernels",
            harmless=("0",),
        ),
    ),
    silent=names("""
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
