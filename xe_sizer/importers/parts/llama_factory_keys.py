"""LLaMA-Factory's keys: what each says and what is lost with it.

Keys and defaults: LLaMA-Factory src/llamafactory/hparams and src/llamafactory/v1/config (read in August 2026).
"""

from __future__ import annotations

from xe_sizer.importers.parts import hf_arguments
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import number, positive, positive_or_open, switch

_TRAINED_PARTLY = "trains some of the layers only"
_OTHER_LOSS = "computes another loss from the logits"
_MEDIA = "sets how many tokens an image or a video has"

TABLE = Table(
    keys=(
        Key(("model_name_or_path", "model"), "model"),
        Key(("cutoff_len",), "train.seq_len", positive, default=2048),
        Key(("micro_batch_size",), "train.micro_batch", positive),
        Key(("global_batch_size",), "train.global_batch", positive),
        Key(("lora_rank", "peft_config.r"), "lora.rank", positive),
        Key(("lora_dropout", "peft_config.lora_dropout"), "lora.dropout", number),
        Key(("use_dora", "peft_config.use_dora"), "lora.dora", switch),
        Key(("tensor_model_parallel_size",), "layout.tp", positive),
        Key(("pipeline_model_parallel_size",), "layout.pp", positive),
        Key(("virtual_pipeline_model_parallel_size",), "layout.vpp", positive_or_open),
        Key(("context_parallel_size", "cp_size", "hyper_parallel_cp_size"), "layout.cp", positive),
        Key(("expert_model_parallel_size", "dist_config.ep_size"), "layout.ep", positive),
        Key(("expert_tensor_parallel_size",), "layout.expert_tp", positive),
        Key(("num_layers_in_first_pipeline_stage",), "layout.first_stage_layers", positive),
        Key(("num_layers_in_last_pipeline_stage",), "layout.last_stage_layers", positive),
        Key(("account_for_embedding_in_pipeline_split",), "layout.account_for_embedding", switch),
        Key(("account_for_loss_in_pipeline_split",), "layout.account_for_loss", switch),
        Key(("sequence_parallel",), "layout.sequence_parallel", switch),
        Key(("ray_num_workers",), "gpus", positive),
        *hf_arguments.KEYS,
    ),
    losses=(
        Loss(("val_size",), "holds samples back and evaluates on them"),
        Loss(("max_samples",), "takes at most so many samples of each data set"),
        Loss(names("""freeze_trainable_layers freeze_trainable_modules freeze_extra_modules use_llama_pro
                      peft_config.freeze_trainable_layers peft_config.freeze_trainable_modules
                      peft_config.freeze_extra_modules"""), _TRAINED_PARTLY, harmless=("all",)),
        Loss(("freeze_vision_tower", "freeze_multi_modal_projector"), "trains a part that is frozen unasked",
             unless=True),
        Loss(("double_quantization",), "keeps the scales of quantised weights in float32", unless=True),
        Loss(("freeze_language_model",), "trains the other parts of a multimodal model alone"),
        Loss(("use_badam", "badam_mode", "badam_update_ratio"), "trains one block of layers at a time"),
        Loss(names("galore_target apollo_target"), "projects the gradients of some matrices only", harmless=("all",)),
        Loss(("oft_rank", "oft_block_size", "oft_target", "module_dropout"), "turns weights instead of adding to them",
             harmless=("all",)),
        Loss(names("use_dft_loss use_eaft_loss"), _OTHER_LOSS),
        Loss(("use_asft_loss",), "runs a frozen copy of the model for its loss"),
        Loss(names("image_max_pixels image_min_pixels video_max_pixels video_min_pixels video_fps video_maxlen "
                   "image_do_pan_and_scan crop_to_patches"), _MEDIA),
        Loss(("use_v1_kernels",), "fuses kernels"),
        Loss(("kernel_config.*",), "fuses kernels", harmless=("auto",)),
        Loss(("use_kt", "kt_*"), "runs experts on the CPU"),
        Loss(("use_hyper_parallel", "hyper_parallel_args"), "shards with another library"),
        Loss(("shift_attn",), "attends within groups of tokens"),
        Loss(("mixture_of_depths",), "skips layers for some tokens"),
        Loss(("upcast_lmhead_output",), "computes the logits in float32"),
        Loss(("upcast_layernorm",), "keeps norms in float32"),
        Loss(("train_from_scratch",), "starts from weights without values"),
        Loss(names("reward_model ref_model_quantization_bit reward_model_quantization_bit"),
             "sets a further model that is held and run"),
        Loss(names("ppo_epochs ppo_buffer_size"), "sets how often generated answers are trained on"),
        Loss(("fp8_enable_fsdp_float8_all_gather",), "gathers weights in 8 bit"),
        Loss(("streaming",), "reads samples as they come"),
        Loss(("predict_with_generate",), "generates answers during evaluations"),
        Loss(names("moe_token_dispatcher_type overlap_moe_expert_parallel_comm moe_shared_expert_overlap "
                   "dist_config.ep_dispatcher dist_config.fsdp_implementation"),
             "chooses how tokens reach their experts", harmless=("alltoall", "eager", "native")),
        Loss(("moe_grouped_gemm",), "runs the products of all experts as one"),
        Loss(("pipeline_model_parallel_layout",), "gives pipeline stages other numbers of layers"),
        Loss(("recompute_modules", "recompute_method"), "chooses what is recomputed", harmless=("uniform",)),
        Loss(("extra_config",), "sets further arguments of Megatron"),
        Loss(("mp_replicate_size",), "keeps several copies of the sharded states", harmless=(1,)),
        Loss(("vllm_config*", "sglang_config*", "vllm_enforce_eager", "vllm_max_lora_rank"),
             "sets the engine that generates"),
        *hf_arguments.LOSSES,
    ),
    silent=(
        *names("""
        do_train do_predict do_eval dataset dataset_dir media_dir eval_dataset template train_on_prompt mask_history
        buffer_size mix_strategy interleave_probs overwrite_cache preprocessing_* eval_num_beams
        ignore_pad_token_for_loss eval_on_each_dataset tool_format default_system enable_thinking preserve_thinking
        tokenized_path data_shared_file_system lora_alpha loraplus_* use_rslora pissa_* create_new_adapter
        additional_target pref_* dpo_label_smoothing kto_* simpo_gamma ppo_* ref_model ref_model_adapters
        reward_model_adapters reward_model_type ld_alpha galore_* apollo_* swanlab_* use_swanlab asft_alpha eaft_alpha
        compute_accuracy disable_shuffling early_stopping_steps plot_loss include_effective_tokens_per_second
        adapter_name_or_path adapter_folder cache_dir use_fast_tokenizer resize_vocab split_special_tokens add_tokens
        add_special_tokens new_special_tokens_config init_special_tokens model_revision low_cpu_mem_usage rope_scaling
        moe_aux_loss_coef use_reentrant_gc offload_folder use_kv_cache badam_* infer_dtype *_hub_token
        print_param_status trust_remote_code quantization_type quantization_device_map export_* ray_* use_ray master_*
        resources_per_worker placement_strategy enable_torch_profiler profiler_* profile_modules do_sample temperature
        top_p top_k num_beams max_length max_new_tokens repetition_penalty length_penalty skip_special_tokens
        generation_* use_audio_in_video audio_sampling_rate fp8_backend deepspeed model_class train_dataset
        custom_chat_template init_config* batching_workers dist_timeout dist_config.name dist_config.dcp_path
        dist_config.pin_memory dp_size mp_shard_size cp_mode lr_scheduler_config* save_ckpt_as_hf save_epochs
        sample_backend peft_config* optim_config* kernel_config.name dist_config.config_file bias_activation_fusion
        apply_rope_fusion masked_softmax_fusion cross_entropy_loss_fusion overlap_param_gather overlap_grad_reduce
        calculate_per_token_loss delay_wgrad_compute use_packed_sequences megatron_pretrained_checkpoint
        export_hf_on_finish mixed_precision eval_iters eval_interval quant_config* dist_config.hook_modules
        dist_config.fsdp_ignored_modules mini_batch_size task task_dir lang n_shot save_dir batch_size download_mode
        system_prompt packing neat_packing lora_target
        """),
        *hf_arguments.SILENT,
    ),
)  # fmt: skip
