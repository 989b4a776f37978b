"""Arguments of ms-swift. Keys and defaults: ms-swift swift/arguments and swift/trainers/arguments.py (read at 4.2)."""

from __future__ import annotations

from xe_sizer.importers.parts import hf_arguments
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import interval, number, positive, text, word_of

KEYS = (
    Key(("model", "model_id_or_path", "model_type"), "model", text),
    Key(("max_length",), "train.seq_len", positive),
    Key(("per_device_train_batch_size", "batch_size"), "train.micro_batch", positive, default=1),
    Key(("sequence_parallel_size",), "layout.cp", positive, default=1),
    Key(("lora_dropout", "lora_dropout_p"), "lora.dropout", number),
    Key(("attn_impl",), "attention", word_of(hf_arguments.ATTENTION)),
    Key(("eval_steps",), "train.evaluate_every", interval),
    Key(("torch_dtype", "dtype"), "train.weights_dtype", word_of(hf_arguments.DTYPES)),
    *hf_arguments.KEYS,
)
LOSSES = (
    Loss(("split_dataset_ratio", "val_dataset"), "holds samples back and evaluates on them"),
    Loss(("freeze_parameters*", "trainable_parameters*"), "trains a part of the parameters"),
    Loss(("freeze_llm", "vit_gradient_checkpointing"), "trains another part of a vision-language model"),
    Loss(("max_pixels",), "bounds the tokens of an image"),
    Loss(("use_galore", "galore_*", "use_flash_ckpt"), "updates weights in a low rank"),
    Loss(("lisa_*",), "trains a few layers at a time", unless=True),
    Loss(("device_map",), "puts layers on several GPUs one after the other", harmless=("auto",)),
    Loss(("deepspeed_autotp_size",), "splits the model by tensor parallelism"),
    Loss(("zero_hpz_partition_size",), "keeps a second copy of the weights in every node"),
    Loss(("target_parameters",), "puts adapters on stacked expert weights"),
    Loss(("experts_impl",), "chooses how experts run"),
    Loss(("teacher_model", "teacher_deepspeed", "offload_teacher_model"), "runs a teacher beside the model"),
    Loss(("reward_model", "reward_model_plugin", "ref_model"), "runs a further model"),
    Loss(names("num_generations use_vllm vllm_* sglang_* *_length num_iterations"), "generates answers"),
    Loss(names("offload_model offload_optimizer sleep_level async_generate"), "moves states while it generates"),
    Loss(("move_model_batches", "steps_per_generation", "generation_batch_size"), "generates answers in batches"),
    Loss(names("adalora_* boft_* vera_* fourier_* reft_* llamapro_* adapter_length"), "sizes other adapters"),
    Loss(("save_only_model", "no_save_optim"), "writes checkpoints without the optimizer's states"),
    Loss(("lora_ga_batch_size",), "initialises adapters from gradients"),
    *hf_arguments.LOSSES,
)  # fmt: skip
SILENT = (
    *names("""
    dataset cached_dataset* data_seed dataset_* load_from_cache_file val_dataset_* streaming interleave_*
    stopping_* shuffle_* download_mode columns strict disable_auto_* model_name model_author custom_* template*
    system truncation_* agent_template norm_bbox use_chat_template padding_side loss_scale response_prefix
    enable_thinking preserve_thinking add_non_* temperature top_* repetition_penalty num_beams stop_words stream
    max_new_tokens model_type model_revision task_type new_special_tokens num_labels problem_type rope_scaling
    max_memory max_model_len local_repo_path init_strategy bnb_4bit_* hqq_axis tuner_backend adapters
    external_plugins seed model_kwargs load_args load_data_args packing_* lazy_tokenize use_hf hub_*
    ignore_args_error use_swift_lora add_version create_checkpoint_symlink learning_rate check_model
    acc_strategy train_dataloader_shuffle max_epochs aligner_lr vit_lr use_logits_to_keep ds3_gather* resume_*
    loss_type mrl_dims eval_* callbacks early_stop* metric* swanlab_* wandb_* lora_alpha lora_bias lora_dtype
    lorap_lr_ratio use_rslora init_weights init_lora_weights lora_ga_* router_aux_loss_coef enable_dft_loss
    enable_channel_loss safe_serialization max_shard_size beta label_smoothing rpo_alpha ld_alpha cpo_alpha
    simpo_gamma desirable_weight undesirable_weight reward_funcs reward_weights reward_template*
    reward_model_type kl_coef cliprange* vf_coef gamma lam missing_eos_penalty whiten_rewards log_completions
    epsilon* dynamic_sample overlong_filter lmbda seq_kd sft_alpha max_resample_times importance_* delta soft_*
    save_* logging_* report_to report_* freeze_vit freeze_aligner advantage_estimator scale_rewards kl_in_reward
    num_mini_batches num_ppo_epochs attn_impl_for_vit local_rollout_forward_batch_size num_sample_generations
    add_* warmup_* self_cognition* train_type tuner_type rlhf_type quant_method quant_bits deepspeed sft_type
    is_binary* chord_* teacher_model_type stop_* rollout_* merge_lora fipo_* gkd_logits_topk cached_val_*
    multi_turn_* max_turns gym_env use_gym_env context_manager loss_weights center_rewards* ref_* discopop_tau
    """),
    *hf_arguments.SILENT,
)  # fmt: skip
TABLE = Table(KEYS, LOSSES, SILENT)
