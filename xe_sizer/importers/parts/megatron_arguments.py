"""Megatron-LM's arguments: what each sets, what is lost, and what changes nothing.

Names are those of the command line in snake case, as megatron/training/arguments.py and the configuration classes have
them from core 0.6 to 0.19; Megatron Bridge, NeMo, Primus, ms-swift and verl use the same ones. What needs more than
one argument is read in `parts.megatron`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import positive, positive_or_open, same_word_of, switch, word_of

if TYPE_CHECKING:
    from collections.abc import Mapping

FP8_RECIPES: Mapping[str, object] = {
    "delayed": "delayed", "tensorwise": "tensorwise", "mxfp8": "mxfp8", "blockwise": "blockwise", "rowwise": "rowwise",
}  # fmt: skip
ATTENTION: Mapping[str, object] = {
    "auto": None, "flash": "flash", "fused": "flash", "unfused": "eager", "local": "eager",
}  # fmt: skip
"""Backends of attention; cuDNN's fused kernel is priced as FlashAttention."""
CONTEXT_KINDS: Mapping[str, object] = {
    "p2p": "ring", "all_gather": "all-gather", "a2a": "ulysses", "a2a+p2p": "hybrid",
}  # fmt: skip

KEYS = (
    Key(("seq_length", "encoder_seq_length"), "train.seq_len", positive),
    Key(("micro_batch_size", "batch_size"), "train.micro_batch", positive),
    Key(("global_batch_size",), "train.global_batch", positive),
    Key(("train_iters",), "train.steps", positive_or_open),
    Key(("tensor_model_parallel_size", "model_parallel_size"), "layout.tp", positive, default=1),
    Key(("pipeline_model_parallel_size",), "layout.pp", positive, default=1),
    Key(("context_parallel_size",), "layout.cp", positive, default=1),
    Key(("cp_comm_type",), "layout.cp_kind", same_word_of(CONTEXT_KINDS)),
    Key(("expert_model_parallel_size",), "layout.ep", positive, default=1),
    Key(("expert_tensor_parallel_size",), "layout.expert_tp", positive),
    Key(("sequence_parallel",), "layout.sequence_parallel", switch, default=False),
    Key(("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"), "layout.first_stage_layers",
        positive),
    Key(("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"), "layout.last_stage_layers",
        positive),
    Key(("attention_backend",), "attention", word_of(ATTENTION)),
    Key(("fp8_recipe",), "train.fp8_recipe", word_of(FP8_RECIPES)),
    Key(("async_save",), "train.async_checkpoint", switch),
)  # fmt: skip
"""Arguments that set a scenario key as they stand, with Megatron-LM's own defaults."""

LOSSES = (
    Loss(("step_batch_size_schedule",), "starts with smaller batches and enlarges them"),
    Loss(("grad_reduce_in_bf16",), "keeps and exchanges gradients in 16 bit"),
    Loss(("use_precision_aware_optimizer",), "keeps the optimizer's states in the types that other arguments name"),
    Loss(
        ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"),
        "sets the number format of an optimizer state",
        ("fp32", "torch.float32", "float32"),
    ),
    Loss(
        ("megatron_fsdp_main_params_dtype", "megatron_fsdp_main_grads_dtype", "megatron_fsdp_grad_comm_dtype"),
        "sets number formats of sharded weights and gradients",
        ("fp32", "auto"),
    ),
    Loss(("fp8_param_gather", "fp8_param", "fp4_param_gather", "fp4_param"), "keeps and gathers weights in 8 or 4 bit"),
    Loss(("keep_fp8_transpose_cache", "keep_fp8_transpose_cache_when_using_custom_fsdp"), "keeps transposed weights"),
    Loss(("first_last_layers_bf16", "num_layers_at_start_in_bf16", "num_layers_at_end_in_bf16"),
         "leaves the outermost layers in 16 bit", (0,)),
    Loss(("fp8_dot_product_attention", "fp8_multi_head_attention"), "multiplies attention in 8 bit"),
    Loss(("no_fp8_wgrad",), "computes weight gradients in 16 bit"),
    Loss(("fp32_residual_connection",), "keeps the residual stream in float32"),
    Loss(("distribute_saved_activations", "distribute_checkpointed_activations"),
         "splits checkpoints over tensor-parallel ranks"),
    Loss(("moe_layer_recompute",), "recomputes whole expert layers"),
    Loss(("cpu_offloading_weights",), "moves weights to host memory"),
    Loss(("tp_comm_overlap",), "hides tensor-parallel exchanges behind products"),
    Loss(("overlap_grad_reduce",), "hides the exchange of gradients behind the backward pass"),
    Loss(("overlap_param_gather", "overlap_param_gather_with_optimizer_step"),
         "hides the gathering of weights behind the forward pass"),
    Loss(("overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "overlap_dispatch_backward_with_experts_wgrad",
          "moe_shared_expert_overlap", "ep_overlap_early_attn_memory_release"),
         "hides the exchange of tokens among experts behind other work"),
    Loss(("no_overlap_p2p_communication",), "leaves sends between stages uncovered"),
    Loss(("overlap_p2p_comm_warmup_flush", "overlap_p2p_communication_warmup_flush"),
         "hides sends of the first and the last micro-batches"),
    Loss(("cross_entropy_loss_fusion",), "fuses the kernels of the loss"),
    Loss(("moe_token_dispatcher_type",), "chooses how tokens reach their experts", ("alltoall_seq",)),
    Loss(("moe_enable_deepep", "moe_flex_dispatcher_backend", "moe_use_deepep"),
         "sends tokens to experts with a library of its own"),
    Loss(("moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity", "moe_expert_rank_capacity_factor"),
         "drops or pads the tokens of an expert"),
    Loss(("moe_permute_fusion", "moe_router_fusion", "moe_grouped_gemm", "moe_use_legacy_grouped_gemm"),
         "fuses the kernels of experts"),
    Loss(("moe_router_padding_for_fp8", "moe_router_padding_for_quantization", "moe_paged_stash*"),
         "pads or pages the tokens of experts"),
    Loss(("moe_router_force_load_balancing", "moe_router_force_biased"), "spreads tokens over experts by force"),
    Loss(("moe_router_dtype",), "routes tokens in a wider number format"),
    Loss(("moe_dispatch_fwd_dtype", "moe_combine_bwd_dtype"), "sends tokens to experts in 8 bit", ("bf16",)),
    Loss(("enable_cuda_graph", "cuda_graph_impl", "external_cuda_graph", "cuda_graph_scope", "cuda_graph_modules",
          "optimizer_cuda_graph"),
         "replays kernels as CUDA graphs", ("none",)),
    Loss(("mtp_num_layers", "mtp_use_repeated_layer"), "trains layers that predict further tokens"),
    Loss(("hierarchical_context_parallel_sizes", "hybrid_context_parallel", "dynamic_context_parallel"),
         "splits contexts by other rules"),
    Loss(("encoder_tensor_model_parallel_size", "encoder_pipeline_model_parallel_size",
          "pipeline_model_parallel_split_rank"),
         "spreads an encoder over ranks of its own"),
    Loss(("use_transformer_engine_op_fuser", "fused_residual_rmsnorm", "memory_efficient_layer_norm",
          "use_fused_weighted_squared_relu", "mla_down_proj_fusion", "fused_single_qkv_rope",
          "tp_comm_overlap_rs_dgrad"),
         "fuses kernels or keeps less of them"),
    Loss(("no_bias_swiglu_fusion", "no_bias_gelu_fusion", "no_rope_fusion", "no_bias_dropout_fusion",
          "no_masked_softmax_fusion", "no_persist_layer_norm", "no_gradient_accumulation_fusion"),
         "runs kernels one by one that are otherwise fused"),
    Loss(("activation_func_fp8_input_store",), "keeps an input in 8 bit"),
    Loss(("defer_embedding_wgrad_compute", "wgrad_deferral_limit"), "computes the head's weight gradient later"),
    Loss(("deterministic_mode", "batch_invariant_mode"), "runs slower kernels whose results repeat"),
    Loss(("use_kitchen*", "kitchen_config_file", "te_precision_config_file", "fp8_quantizer_factory"),
         "sets the precision of each layer in a file of its own"),
    Loss(("fsdp_double_buffer", "megatron_fsdp_max_pool_double_buffer", "use_nccl_ub", "nccl_ub", "use_sharp"),
         "registers buffers for faster collectives"),
    Loss(("suggested_communication_unit_size", "ddp_bucket_size", "ddp_num_buckets"),
         "sets the size of gathered buckets"),
    Loss(("outer_dp_sharding_strategy", "enable_full_sharding_in_hsdp"), "shards over the outer ranks too",
         ("no_shard",)),
    Loss(("heterogeneous_layers_config_path", "heterogeneous_layers_config_encoded_json"),
         "gives layers shapes of their own"),
    Loss(("freeze_all_layers", "freeze_base_for_mtp", "freeze_model", "freeze_router"), "trains a part of the weights"),
    Loss(("export_quant_cfg", "export_real_quant_cfg", "modelopt_enabled"), "trains with simulated quantisation",
         ("None",)),
    Loss(("moe_use_upcycling", "moe_upcycling_granularity"), "starts experts as copies of a dense model", (1,)),
    Loss(("flextron", "enable_router", "flex_hetero_*"), "trains many subnetworks at once"),
    Loss(("linear_attention_freq", "linear_*_head*", "linear_conv_kernel_dim", "experimental_attention_variant",
          "dsa_*", "enable_mhc_connections", "mhc_*", "attention_output_gate", "gdp_*"),
         "is a kind of layer that the shape does not say"),
    Loss(("tensor_parallel_num_weight_shards", "expert_tensor_parallel_num_weight_shards", "gtp_remat_opt_in_modules",
          "gtp_weight_remat_size"),
         "shards weights within a data-parallel group"),
    Loss(("empty_unused_memory_level",), "gives cached memory back in every step"),
    Loss(("check_weight_hash_across_dp_replicas_interval",), "compares weights of replicas now and then"),
    Loss(("multi_token_prediction", "logits_save_*", "logits_load_*"), "reads or writes logits beside the training"),
    Loss(("vision_pretraining", "retro_*", "use_torch_optimizer_for_cpu_offload", "overlap_cpu_optimizer_d2h_h2d"),
         "changes what a step computes"),
    Loss(("inprocess_restart", "replication", "non_persistent_save_interval"), "keeps copies against failures"),
    Loss(("init_model_with_meta_device", "use_legacy_models", "local_transformer"), "builds layers in another way"),
)  # fmt: skip
"""Arguments that change memory or time and that no scenario key says."""

SILENT = names("""
    lr lr_* min_lr warmup decoupled_* weight_decay* start_weight_decay end_weight_decay wd_incr* apply_wd_to* clip_grad
    adam_* sgd_momentum muon_* lion_* no_weight_decay* override_* use_checkpoint_opt* use_checkpoint_lr* loss_scale*
    initial_loss_scale min_loss_scale hysteresis fp16_lm_cross_entropy output_logit_dtype use_layer_wise*
    no_use_layer_wise* accumulate_allreduce_grads_in_fp32 attention_softmax_in_fp32 apply_query_key_layer_scaling
    no_query_key_layer_scaling disable_bf16_reduced* calculate_per_token_loss ddp_average* ddp_pad*
    ddp_reduce_scatter_with* ddp_param_name* gtp_* no_gradient_reduce_div_fusion gradient_reduce_div_fusion
    no_align_* align_* no_delay_grad_reduce delay_param_gather fp8_margin fp8_interval fp8_amax* fp4_recipe
    tp_only_amax_red reuse_grad_buf* disable_parameter_transpose_cache
    vocab_file merge_file vocab_extra_ids tokenizer_* null_tokenizer* tiktoken_* special_tokens metadata_path
    legacy_tokenizer trust_remote_code chat_template use_gigatoken
    init_method* embedding_init* perform_initialization no_initialization use_cpu_initialization
    no_data_parallel_random_init data_parallel_random_init seed te_rng_tracker use_te_rng_tracker inference_rng_tracker
    norm_epsilon layernorm_epsilon apply_residual_connection* apply_layernorm_1p layernorm_zero_centered_gamma
    layernorm_1p rope_* rotary_* use_rope_scaling no_rope_freq yarn_* no_yarn* mscale* beta_fast beta_slow mrope_section
    original_max_position* relative_attention* window_attn_skip_freq softmax_type softmax_scale qk_clip* qk_l2_norm
    use_rotary_position_embeddings no_position_embedding add_position_embedding position_embedding_type
    activation_func_clamp_value glu_linear_offset use_te_activation_func use_mup mup_* onnx_safe
    bert_* openai_gelu cache_mla_latents enable_gpt_oss use_mamba_mem_eff_path disable_mamba_mem_eff_path
    moe_router_load_balancing_type moe_router_num_groups moe_router_group_topk moe_router_pre_softmax
    moe_router_topk_scaling_factor moe_router_score_function moe_router_enable_expert_bias moe_router_bias_update_rate
    moe_router_quantile* moe_router_force* moe_router_topk_limited_devices moe_enable_routing_replay moe_aux_loss_coeff
    moe_z_loss_coeff moe_input_jitter_eps moe_token_drop_policy moe_token_dropping moe_per_layer_logging
    moe_apply_probs_on_input moe_deepep_num_sms moe_hybridep_* moe_flex_dispatcher_num_sms moe_ncclep*
    moe_permute_fusion_into* moe_single_grouped* moe_use_grouped_tensor use_grouped_gemm* moe_extended_tp
    moe_mlp_glu_interleave_size moe_shared_expert_glu* high_priority_* moe_routing_trace* moe_pad_experts_for*
    mtp_loss_scaling_factor mtp_detach_heads mtp_hsm mtp_standalone mtp_hybrid* clone_scatter* no_clone_scatter*
    save* load* no_save_* no_load_* ckpt_* no_ckpt* dist_ckpt* use_dist_ckpt* auto_detect_ckpt* exit_on_missing*
    pretrained_checkpoint finetune* non_persistent_* use_persistent_ckpt_worker async_* fully_parallel_*
    use_mp_args* use_tokenizer_model_from* no_use_tokenizer_model* strict_fsdp* no_strict_fsdp* distrib_optim*
    most_recent_k verify_integrity replication_* export_* eval_* start_eval* full_validation multiple_validation*
    validation_set_names skip_train test_mode
    log* no_log* timing_log* tensorboard* wandb* memory_keys throughput_window* runtime_time_unit filter_warnings
    modules_to_filter set_level* barrier_with* no_barrier_with* profile* use_nsys* use_pytorch_profiler
    pytorch_profiler* record_* memory_snapshot_path nvtx_ranges config_logger_dir dump_param* one_logger*
    no_one_logger enable_one_logger app_tag* otel_* adlr_* run_workload_inspector* straggler_* disable_straggler*
    enable_ft_package calc_ft* ft_* error_injection* rerun_* check_for_* no_check_for* fault_injector* inprocess_*
    result_rejected* print_* exit_* manual_gc* no_manual_gc* train_sync_interval iterations_to_skip gpu_sniff*
    decrease_batch_size* phase_transition* consumed_*
    distributed_backend distributed_timeout* local_rank lazy_mpu_init nccl_communicator* use_tp_pp_dp_mapping
    use_gloo* disable_gloo* sharp_* flight_recorder* disable_jit_fuser use_ring_exchange_p2p batch_p2p* fake_process*
    pipeline_model_parallel_comm* scatter_gather* no_scatter_gather* tp_comm_* disable_tp_comm* DDP_impl
    no_async_tensor* use_contiguous* create_all_gather_group disable_symmetric* fsdp_manual* fsdp_db* megatron_fsdp_*
    microbatch_group_size* deallocate_pipeline* variable_seq_lengths pipeline_dtype params_dtype autocast_dtype
    enable_autocast enable_experimental use_mcore_models deprecated_use* transformer_impl spec
    standalone_embedding_stage account_for_* max_seqlen_per_dp* num_microbatches_with*
    data_* train_data* valid_data* test_data* per_split* per_dataset* split mock_data num_workers dataloader_* reset_*
    eod_mask* create_attention_mask* no_create_attention* num_dataset_builder* object_storage* s3_cache* mid_level*
    allow_ambiguous* no_mmap* mmap* fim_* no_data_sharding data_sharding sample_rate mask_* short_seq_prob
    renormalize_blend* max_position_embeddings decoder_seq_length retriever_* use_one_sent* titles_data* block_data*
    embedding_path indexer_* evidence_data* ict_* biencoder_* query_in_block* img_* num_channels patch_dim
    classes_fraction num_classes head_lr_mult dino_* swin_* vision_backbone* iter_per_epoch enable_msc disable_msc*
    inference_* mamba_inference* enable_chunked* disable_chunked* num_speculative* decode_only* flash_decode
    nccl_all_reduce* symmetric_ar* use_inference* batch_invariant_backend use_legacy_static* output_bert* batch_times*
    max_tokens_to_oom mlp_chunks_for_prefill use_same_sampling* kitchen_* flash_attention_version sft_tokenizer*
    group_query_attention enable_hf* num_layers_per_virtual* te_* min_offloaded* delay_offload* delta_offload*
    fine_grained_offloading* cpu_offloading_* no_pin* offload_modules activation_offload_fraction
    langrl_* grpo_* rl_* refit_method hf_* use_ckpt* ckpt_convert* budget_* binary_mask slice add_skipping
    router_* linear_scaler* tau_* loss_alpha original_model* *_per_list *_int_list mem_* memory_profile* bpe_* force_*
    skip_num* skip_total* disable_budget curr_iteration hard_sample* soft_mask normalize_router* no_attn_skip
    lr_mult* flex_strict is_flex_eval override_selected* param_budget* layer_ranking* basemodel_type prefill_chunk*
    distill_* qad_* teacher_* export_kd* megatron_hf*
""")
"""Arguments that change neither memory nor time by more than about one percent."""

TABLE = Table(keys=KEYS, losses=LOSSES, silent=SILENT)
