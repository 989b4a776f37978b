"""Flags of OpenRLHF: their earlier names, what is lost and what changes nothing. Rules: openrlhf/cli of 0.5 to 0.10."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import above_zero_or_off, interval

if TYPE_CHECKING:
    from collections.abc import Mapping

EARLIER: Mapping[str, tuple[str, ...]] = {
    "ds.zero_stage": ("zero_stage",),
    "ds.param_dtype": ("param_dtype",),
    "ds.adam_offload": ("adam_offload",),
    "ds.attn_implementation": ("attn_implementation",),
    "ds.use_liger_kernel": ("use_liger_kernel",),
    "ds.tensor_parallel_size": ("ds_tensor_parallel_size",),
    "ds.ring_attn_size": ("ring_attn_size",),
    "ds.load_in_4bit": ("load_in_4bit",),
    "ds.lora.rank": ("lora_rank",),
    "ds.lora.dropout": ("lora_dropout",),
    "ds.lora.target_modules": ("target_modules",),
    "ds.packing_samples": ("packing_samples",),
    "train.micro_batch_size": ("micro_train_batch_size",),
    "train.batch_size": ("train_batch_size",),
    "train.max_epochs": ("max_epochs",),
    "train.num_episodes": ("num_episodes",),
    "train.dynamic_batch_enable": ("use_dynamic_batch",),
    "train.max_tokens_per_gpu": ("train_max_tokens_per_gpu",),
    "data.max_len": ("max_len",),
    "data.max_samples": ("max_samples",),
    "rollout.batch_size": ("rollout_batch_size",),
    "rollout.n_samples_per_prompt": ("n_samples_per_prompt",),
    "rollout.max_new_tokens": ("max_new_tokens", "generate_max_len"),
    "vllm.num_engines": ("vllm_num_engines",),
    "vllm.tensor_parallel_size": ("vllm_tensor_parallel_size",),
    "vllm.gpu_memory_utilization": ("vllm_gpu_memory_utilization",),
    "train.colocate_all": ("colocate_all_models",),
    "train.async_enable": ("async_train",),
    "train.async_queue_size": ("async_queue_size",),
    "vllm.enable_sleep": ("vllm_enable_sleep",),
    "ds.enable_sleep": ("deepspeed_enable_sleep",),
    "algo.kl.use_loss": ("use_kl_loss",),
    "critic.model_name_or_path": ("critic_pretrain",),
    "reward.model_name_or_path": ("reward_pretrain",),
    "train.partial_rollout_enable": ("partial_rollout",),
    "algo.kl.init_coef": ("init_kl_coef",),
    "reward.remote_url": ("remote_rm_url",),
    "actor.num_nodes": ("actor_num_nodes",),
    "actor.num_gpus_per_node": ("actor_num_gpus_per_node",),
    "algo.advantage.estimator": ("advantage_estimator",),
    "model.pretrain_mode_enable": ("pretrain_mode",),
    "model.gradient_checkpointing_enable": ("actor.gradient_checkpointing_enable", "gradient_checkpointing"),
}
"""Flags as they are since 0.10, with what they were called before."""


def called(name: str) -> tuple[str, ...]:
    """All names of a flag, the newest first."""
    return (name, *EARLIER.get(name, ()))


_GENERATION = "sets how the engine writes answers, which its own defaults stand for"
TABLE = Table(
    keys=(
        Key(("model.model_name_or_path", "actor.model_name_or_path", "pretrain"), "model"),
        Key(("ckpt.save_steps", "save_steps"), "train.checkpoint_every", interval),
        Key(("eval.steps", "eval_steps"), "train.evaluate_every", interval),
        Key(called("ds.lora.dropout"), "lora.dropout", above_zero_or_off),
    ),
    losses=(
        Loss(names("vllm.* vllm_num_engines vllm_tensor_parallel_size vllm_gpu_memory_utilization vllm_enable_sleep "
                   "vllm_sync_* enforce_eager enable_prefix_caching vllm_generate_batch_size"), _GENERATION),
        Loss(names("rollout.n_samples_per_prompt n_samples_per_prompt rollout.batch_size rollout_batch_size "
                   "rollout.vllm_generate_batch_size rollout.max_new_tokens max_new_tokens generate_max_len"),
             "sets how many answers are generated and their length, which is not counted", harmless=("1",)),
        Loss(names("rollout.micro_batch_size micro_rollout_batch_size rollout.max_tokens_per_gpu "
                   "rollout_max_tokens_per_gpu"), "sets the passes over answers, which take those of the training"),
        Loss(names("ref.num_nodes ref.num_gpus_per_node ref_num_nodes ref_num_gpus_per_node"),
             "sets the GPUs of the reference model, which has those of the actor"),
        Loss(names("reward.num_nodes reward.num_gpus_per_node reward_num_nodes reward_num_gpus_per_node "
                   "reward.model_name_or_path reward_pretrain"), "sets the reward model: the actor's shape"),
        Loss(names("critic.num_nodes critic.num_gpus_per_node critic_num_nodes critic_num_gpus_per_node "
                   "critic.model_name_or_path critic_pretrain"), "sets the critic: the actor's shape"),
        Loss(names("train.colocate_all train.colocate_actor_ref train.colocate_critic_reward colocate_all_models "
                   "colocate_actor_ref colocate_critic_reward"), "shares GPUs with the other models"),
        Loss(names("ref.offload reward.offload ref_offload ref_reward_offload"),
             "keeps models that do not learn in host memory"),
        Loss(names("ref.model_name_or_path ref_pretrain"), "names another reference model"),
        Loss(names("ds.enable_sleep deepspeed_enable_sleep"),
             "moves states to host memory while answers are generated"),
        Loss(names("train.async_enable async_train train.async_queue_size async_queue_size "
                   "train.partial_rollout_enable partial_rollout"), "trains while answers are generated"),
        Loss(names("algo.dynamic_filtering_enable dynamic_filtering"),
             "answers further prompts in place of those that are left out"),
        Loss(names("train.enable_ema enable_ema"), "keeps an average of the weights"),
        Loss(names("ds.zpg zpg"), "keeps a further copy of the weights in each group of GPUs", harmless=("1",)),
        Loss(names("ds.deepcompile deepcompile"), "compiles the model"),
        Loss(names("ds.grad_accum_dtype grad_accum_dtype"), "sets the number format of summed gradients"),
        Loss(names("ds.overlap_comm overlap_comm"), "overlaps communication with the backward pass"),
        Loss(names("ds.experts_implementation"), "chooses the kernels of experts"),
        Loss(names("ds.ring_attn_head_stride ring_head_stride"), "runs several heads in a step of the ring",
             harmless=("1",)),
        Loss(names("actor.freeze_visual_encoder freeze_visual_encoder"), "freezes the vision encoder"),
        Loss(names("data.max_images_per_prompt max_images_per_prompt"), "puts images into prompts"),
        Loss(names("teacher_model teacher_offload"), "holds and runs a teacher beside the model"),
        Loss(names("actor.entropy_coef entropy_loss_coef"), "computes the entropy of every token"),
        Loss(names("ptx_coef pretrain_data"), "trains on further samples beside the answers"),
        Loss(names("model.compute_fp32_loss_enable compute_fp32_loss"), "computes the loss in float32"),
        Loss(names("critic.freezing_steps freezing_actor_steps"), "trains the critic alone at first", harmless=("-1",)),
        Loss(names("ckpt.disable_ds disable_ds_ckpt ckpt.save_hf save_hf_ckpt critic.save_value_network "
                   "save_value_network"), "says what checkpoints hold"),
        Loss(names("train.full_determinism_enable full_determinism"), "keeps to slower kernels that repeat"),
    ),
    silent=names("""
    logger.* ckpt.* eval.* data.* reward.* algo.* muon.* adam.* actor.adam.* critic.* actor.* rollout.* ref.* model.*
    train.* ds.use_universal_ckpt ds.value_head_prefix ds.lora.alpha local_rank seed optim lr_* min_lr* max_norm l2
    save_path ckpt_path max_ckpt_num max_ckpt_mem load_checkpoint use_ds_universal_ckpt logging_steps use_wandb wandb_*
    use_tensorboard tensorboard* use_ms dataset* eval_* train_split input_* output_key label_key apply_chat_template
    tokenizer_chat_template multiturn learning_rate *_learning_rate adam_betas aux_loss_coef beta ipo label_smoothing
    nll_loss_coef prompt_* chosen_key rejected_key margin_loss loss kd_coef lora_alpha disable_fast_tokenizer
    dataloader_num_workers gradient_checkpointing_use_reentrant prompt_data* pretrain_split eps_clip* value_clip lambd
    gamma normalize_reward top_p temperature init_kl_coef kl_* use_kl_estimator_k3 reward_clip_range
    no_advantage_std_norm policy_loss_type dual_clip remote_rm_url value_head_prefix agent_func_path perf
    enable_vllm_is_correction vllm_is_* overlong_* stop_properly_penalty_coef ema_beta actor_init_on_gpu image_key
    dynamic_filtering_reward_range best_metric_key placeholder_token reward_tokens unpaired_preference
    desirable_loss_weight undesirable_loss_weight vanilla_loss pretrain_data_probs
    max_samples m module
    """),
)  # fmt: skip
