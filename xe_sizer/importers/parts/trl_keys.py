"""TRL's keys: what each says, what is lost with it, and which trainer a key belongs to.

Keys and defaults: trl/trainer/*_config.py, trl/scripts/utils.py and trl/trainer/model_config.py (read at 0.9, 0.12,
0.17, 0.20, 0.23, 0.26, 0.29, 1.0, 1.10 and 1.16); recipes of alignment-handbook and open-r1 have some keys more.
"""

from __future__ import annotations

from xe_sizer.importers.parts import hf_arguments, peft
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import number, positive, switch, word_of

SFT, DPO, KTO, ORPO, SIMPO = "sft", "dpo", "kto", "orpo", "simpo"
REWARD, PPO, GRPO, DISTILL = "reward", "ppo", "grpo", "distill"

TRAINERS: dict[str, str] = {
    "sft": SFT, "iterativesft": SFT, "dpo": DPO, "dpovlm": DPO, "kto": KTO, "bco": KTO, "orpo": ORPO, "cpo": SIMPO,
    "simpo": SIMPO, "reward": REWARD, "rewardmodeling": REWARD, "prm": REWARD, "ppo": PPO, "grpo": GRPO,
    "grpovlm": GRPO, "gspo": GRPO, "rloo": GRPO, "gfpo": GRPO, "dppo": GRPO, "onlinedpo": DPO, "nashmd": DPO,
    "xpo": DPO, "gkd": DISTILL, "gold": DISTILL, "distillation": DISTILL, "minillm": DISTILL, "mpo": DPO, "apo": DPO,
    "sdft": DISTILL, "sdpo": GRPO, "tpo": DPO,
}  # fmt: skip
"""Names of TRL's trainers, as commands, scripts and folders have them, with the job of each."""

MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (DISTILL, names("teacher_model_name_or_path lmbda seq_kd use_uld_loss teacher_model_server_url")),
    (GRPO, names("num_generations reward_funcs generation_batch_size steps_per_generation importance_sampling_level "
                 "scale_rewards rloo_k num_iterations mask_truncated_completions epsilon_high normalize_advantages "
                 "reward_weights top_entropy_quantile vllm_mode")),
    (PPO, names("num_ppo_epochs cliprange cliprange_value vf_coef total_episodes response_length missing_eos_penalty "
                "reward_model_path sft_model_path kl_coef init_kl_coef ppo_epochs")),
    (KTO, names("desirable_weight undesirable_weight min_density_ratio max_density_ratio prompt_sample_size")),
    (REWARD, names("center_rewards_coefficient step_separator train_on_last_step_only")),
    (DPO, names("rpo_alpha precompute_ref_log_probs precompute_ref_batch_size reference_free f_divergence_type "
                "sync_ref_model ref_model_init_kwargs use_weighting discopop_tau loss_weights ref_adapter_name "
                "force_use_ref_model ld_alpha")),
    (SFT, names("packing packing_strategy max_seq_length dataset_text_field eval_packing completion_only_loss "
                "assistant_only_loss chars_per_token num_of_sequences dataset_batch_size")),
)  # fmt: skip
"""Keys that one trainer alone has, with its job."""

LOSS_TYPES: dict[str, str] = {
    **dict.fromkeys(
        names("""
        sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_pair aot_unpaired discopop apo_zero
        apo_down sigmoid_norm sft
        """),
        DPO,
    ),
    "kto": KTO, "apo_zero_unpaired": KTO, "bco": KTO, "simpo": SIMPO, "alphapo": SIMPO,
    **dict.fromkeys(names("grpo dapo bnpo dr_grpo cispo sapo luspo vespo"), GRPO),
    **dict.fromkeys(names("nll dft chunked_nll"), SFT),
}  # fmt: skip
"""Words of `loss_type`, with the job that has them."""

OF_PREFERENCES = names("beta max_prompt_length label_smoothing truncation_mode generate_during_eval")
"""Keys that several trainers on preferences have."""

OWN = frozenset(
    (
        *(key for _, keys in MARKS for key in keys), *OF_PREFERENCES,
        *names("""
        loss_type use_peft lora_r lora_target_modules lora_task_type lora_modules_to_save padding_free dataset_kwargs
        model_init_kwargs dataset_train_split dataset_test_split chat_template_path activation_offloading max_length
        max_completion_length use_vllm log_completions dataset_num_proc dataset_mixture assistant_only_loss
        dataset_prompt_column bnb_4bit_quant_type use_bnb_nested_quant teacher_model_revision
        """),
    )
)  # fmt: skip
"""Keys that TRL has beside those of transformers."""

_GENERATION = "sets how answers are generated, which is not counted"
TABLE = Table(
    keys=(
        Key(("model_name_or_path", "sft_model_path", "model_name"), "model"),
        Key(("lora_r",), "lora.rank", positive),
        Key(("lora_dropout",), "lora.dropout", number),
        Key(("use_dora",), "lora.dora", switch),
        Key(("teacher_model_name_or_path",), "train.teacher_model"),
        Key(("precompute_ref_log_probs",), "train.reference", word_of({"true": "precomputed", "false": None})),
        Key(("reference_free",), "train.reference", word_of({"true": "none", "false": None})),
        Key(("force_use_ref_model",), "train.reference", word_of({"true": "copy", "false": None})),
        *hf_arguments.KEYS,
    ),
    losses=(
        Loss(names("num_generations num_generations_eval max_completion_length max_new_tokens response_length"),
             "sets how answers are written, which is read of GRPO alone"),
        Loss(names("generation_batch_size steps_per_generation num_iterations num_ppo_epochs num_mini_batches "
                   "num_sample_generations local_rollout_forward_batch_size total_episodes ppo_epochs rloo_k"),
             "sets how often generated answers are trained on"),
        Loss(("use_vllm", "vllm_*", "gpu_memory_utilization", "cache_implementation"), _GENERATION),
        Loss(("use_transformers_paged", "use_transformers_continuous_batching",
              "transformers_continuous_batching_config*"), _GENERATION),
        Loss(("ds3_gather_for_generation",), "gathers the weights for the generation of answers"),
        Loss(("teacher_model_init_kwargs.*", "use_teacher_server"), "says how a teacher beside the model is held"),
        Loss(("reward_model_path", "reward_model", "reward_model_name_or_path"),
             "holds and runs a reward model beside the model"),
        Loss(("sync_ref_model",), "copies the weights into the reference model"),
        Loss(("generate_during_eval",), "generates answers during evaluations"),
        Loss(("pad_to_multiple_of",), "pads sequences to a multiple", harmless=("auto",)),
        Loss(("use_bnb_nested_quant",), "keeps the scales of quantised weights in float32", unless=True),
        *peft.LOSSES,
        Loss(("lora_target_parameters",), "puts adapters on stacked expert weights"),
        Loss(("cast_lm_head_to_fp32",), "computes the logits in float32"),
        Loss(("ignore_bias_buffers", "optimize_cuda_cache", "optimize_device_cache"), "changes what memory is kept"),
        Loss(("rpo_alpha",), "adds the loss of supervised training"),
        Loss(("dataset_streaming",), "reads samples as they come"),
        Loss(("async_reward_computation", "max_staleness", "weight_sync_steps"), _GENERATION),
        Loss(("model_init_kwargs.use_kernels",), "runs kernels of the Hub"),
        *hf_arguments.LOSSES,
    ),
    silent=(
        *names("""
        model_revision trust_remote_code tokenizer_name* lora_alpha lora_task_type use_rslora bnb_4bit_* lora_r
        use_dora lora_dropout lora_target_modules lora_modules_to_save dataset_* datasets* streaming test_split_size
        chat_template* system_prompt callbacks benchmarks overwrite_hub_revision push_to_hub_revision wandb_*
        hub_model_revision beta loss_weights label_smoothing truncation_mode max_prompt_length loss_type
        label_pad_token_id padding_value is_encoder_decoder disable_dropout ref_model_init_kwargs* model_init_kwargs*
        model_adapter_name ref_adapter_name f_divergence_type f_alpha_divergence_coef ld_alpha discopop_tau
        use_weighting use_logits_to_keep precompute_ref_batch_size ref_model_mixup_alpha ref_model_sync_steps
        desirable_weight undesirable_weight prompt_sample_size min_density_ratio max_density_ratio cpo_alpha
        simpo_gamma alpha max_target_length tools base_model_attribute_name temperature top_p top_k min_p
        repetition_penalty generation_kwargs* chat_template_kwargs* epsilon epsilon_high delta
        importance_sampling_level reward_* scale_rewards mask_truncated_completions top_entropy_quantile log_*
        num_completions_to_print shuffle_dataset router_aux_loss_coef entropy_* use_adaptive_entropy sapo_* vespo_*
        off_policy_mask_threshold use_bias_correction_kl multi_objective_aggregation max_tool_calling_iterations
        normalize_* token_level_kl cliprange* vf_coef gamma lam kl_coef kl_estimator whiten_rewards
        missing_eos_penalty stop_token* exp_name center_rewards_coefficient step_separator train_on_last_step_only
        eos_token pad_token max_length max_seq_length packing packing_strategy eval_packing padding_free
        assistant_only_loss completion_only_loss chars_per_token num_of_sequences activation_offloading use_liger_loss
        lmbda seq_kd judge mixture_coef teacher_model_revision cosine_* repetition_n_grams repetition_max_penalty
        code_* parallel_code_exec_per_proc e2b_router_url morph_router_url ioi_provider soft_punish_cache
        max_completion_len use_peft config gradient_checkpointing_use_reentrant max_workers penalty_reward_value
        sanity_check non_eos_penalty whiten_advantages uld_* use_uld_loss use_extended_uld distillation_*
        der_loss_weight* mask_type mask_ratio tpo_* filter_all_incorrect beta1 beta2 world_size seed_* trl_project
        rpo_* model_type
        """),
        *peft.SILENT,
        *hf_arguments.SILENT,
    ),
)  # fmt: skip
