"""Keys of verl: what is lost and what changes nothing. Rules: verl/trainer/config of verl 0.5 to 0.8."""

from __future__ import annotations

from xe_sizer.importers.parts.megatron import with_groups
from xe_sizer.importers.parts.megatron_arguments import TABLE as MEGATRON_ARGUMENTS
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import interval, plain

ROOT = "actor_rollout_ref."
ACTOR, MODEL, ROLLOUT = f"{ROOT}actor.", f"{ROOT}model.", f"{ROOT}rollout."
MEGATRON_GROUPS = (
    *(
        f"{group}{part}"
        for group in (f"{ACTOR}megatron.", "engine.")
        for part in ("", "override_transformer_config.", "override_ddp_config.", "override_mcore_model_config.")
    ),
    f"{ACTOR}optim.override_optimizer_config.",
    "optim.override_optimizer_config.",
)
"""Groups that have Megatron's own arguments."""
_MEGATRON = with_groups(MEGATRON_ARGUMENTS, MEGATRON_GROUPS)

_ROLES = "critic. reward_model. reward. actor_rollout_ref.ref."
_GENERATION = "sets how the engine writes answers, which its own defaults stand for"
_BETWEEN = "moves states to host memory while answers are generated; they are back while the model trains"
_EVERY_ROLE = tuple(
    f"{role}*{name}"
    for role in _ROLES.split()
    for name in names("""
        path trust_remote_code external_lib tokenizer_path input_tokenizer use_shm optim.* checkpoint* profiler.*
        _target_ kl_ctrl* *clip* cliprange* loss_agg_mode *seed shuffle grad_clip launch_reward_fn_async
        sandbox_fusion* reward_manager* reward_kwargs* custom_* reward_loop_* num_workers nccl_timeout rollout_n
        use_mbridge vanilla_mbridge use_dist_checkpointing dist_checkpointing_* warmup* wrap_policy* use_orig_params
        skip_tokenizer_init disable_log_stats micro_batch_size input_model_config* use_reward_loop load_weight
        router_replay* chat_template* .name .strategy strategy
        """)
)


def _every(value: object) -> int | None:
    """A number of steps; once after each pass over the data, or never, is no number of steps."""
    return None if plain(value) in ("aftereachepoch", "false") else interval(value)


TABLE = Table(
    keys=(
        Key((f"{MODEL}path", "model.path", "model.partial_pretrain"), "model"),
        Key(("trainer.save_freq",), "train.checkpoint_every", _every),
        Key(("trainer.test_freq",), "train.evaluate_every", _every),
    ),
    losses=(
        Loss((f"{ROLLOUT}n",), "sets how many answers are generated, which is not counted", harmless=(1, "1")),
        Loss(tuple(f"{ROLLOUT}{name}" for name in names("""
            name tensor_model_parallel_size gpu_memory_utilization max_num_batched_tokens max_num_seqs enforce_eager
            free_cache_engine enable_chunked_prefill max_model_len data_parallel_size expert_parallel_size
            pipeline_model_parallel_size engine_kwargs.* multi_turn.* agent.* mode response_length prompt_length
            enable_prefix_caching quantization* layered_summon update_weights_bucket_megabytes over_sample_rate
            checkpoint_engine.* cudagraph_capture_sizes dtype multi_stage_wake_up tensor_parallel_size nnodes
            n_gpus_per_node mtp.* skip_rollout limit_images enable_sleep_mode
            """)), _GENERATION),
        Loss((f"{ROLLOUT}log_prob_*",), "sets the passes over answers, which take the micro-batches of the training"),
        Loss((f"{ROOT}ref.*log_prob_*",), "sets the passes of the reference model, which take those of the training"),
        Loss((f"{ROOT}ref.*offload*",), "keeps the reference model in host memory"),
        Loss((f"{ROOT}ref.megatron.*", f"{ROOT}ref.*parallel*", f"{ROOT}ref.fsdp_config.*", f"{ROOT}ref.model.*",
              f"{ROOT}ref.strategy"), "spreads the reference model, which is spread as the actor is"),
        Loss(("critic.*micro_batch*", "critic.*max_token_len*", "critic.*fsdp*", "critic.*megatron*",
              "critic.*offload*", "critic.*gradient_checkpointing*", "critic.*dynamic_bsz", "critic.*parallel*",
              "critic.strategy", "critic.ppo_mini_batch_size", "critic.ppo_epochs", "critic.model.path",
              "critic.enable", "critic.*remove_padding", "critic.*lora*"), "sets the critic, spread as the actor is"),
        Loss(("reward_model.enable", "reward_model.model.path", "reward_model.*micro_batch*", "reward_model.*fsdp*",
              "reward_model.*megatron*", "reward_model.*offload*", "reward_model.rollout.*", "reward_model.*parallel*",
              "reward_model.*dynamic_bsz", "reward_model.*max_token_len*", "reward_model.*remove_padding",
              "reward_model.*n_gpus_per_node", "reward_model.*nnodes", "reward_model.strategy",
              "reward_model.*resource_pool", "reward_model.max_length", "reward.reward_model.*"),
             "sets the reward model, which is spread as the actor is"),
        Loss((f"{ACTOR}fsdp_config.param_offload", f"{ACTOR}fsdp_config.optimizer_offload",
              f"{ACTOR}fsdp_config.grad_offload", f"{ACTOR}megatron.*_offload", "engine.param_offload",
              "engine.optimizer_offload", "engine.grad_offload"), _BETWEEN),
        Loss((f"{ACTOR}use_kl_loss", "algorithm.use_kl_in_reward"), "runs a reference model, which is not counted"),
        Loss((f"{ACTOR}ppo_epochs",), "trains several times on the answers of a step", harmless=(1, "1")),
        Loss(("data.train_batch_size", "data.gen_batch_size"), "sets how many prompts are answered in a step"),
        Loss((f"{ACTOR}use_torch_compile", f"{ACTOR}fsdp_config.use_torch_compile"),
             "compiles the entropy", unless=True),
        Loss((f"{ACTOR}*entropy_checkpointing", f"{ACTOR}*entropy_from_logits_with_chunking",
              f"{ACTOR}calculate_entropy", f"{ACTOR}*sum_pi_squared*"), "changes what the entropy keeps"),
        Loss((f"{MODEL}use_fused_kernels", f"{ACTOR}use_fused_kernels", f"{MODEL}fused_kernel_options.*",
              "model.use_fused_kernels"), "computes log-probabilities without the logits of all tokens"),
        Loss((f"{MODEL}enable_activation_offload", "model.enable_activation_offload"),
             "keeps activations in host memory"),
        Loss((f"{MODEL}tiled_mlp.*", "model.tiled_mlp.*"), "runs the feed-forward layers in parts"),
        Loss((f"{MODEL}mtp.*", "model.mtp.*"), "trains heads that predict several tokens"),
        Loss((f"{ACTOR}use_prefix_grouper",), "runs the shared prompt of a group once"),
        Loss((f"{ACTOR}freeze_vision_tower",), "freezes the vision encoder"),
        Loss((f"{ACTOR}fsdp_config.mixed_precision.*",), "sets the number formats of FSDP"),
        Loss((f"{ACTOR}*router_replay.mode", f"{ROLLOUT}enable_rollout_routing_replay"), "replays the experts' choice",
             harmless=("disabled",)),
        Loss(("trainer.n_rollout_gpus_per_node", "trainer.n_env_gpus_per_node", "rollout.nnodes",
              "rollout.n_gpus_per_node"), "has GPUs of its own that generate answers"),
        Loss(("rollout.*", "async_training.*", f"{ROOT}hybrid_engine", "env.*"),
             "trains while answers are generated elsewhere", harmless=("true", "True", True)),
        Loss(("algorithm.filter_groups.*",), "answers further prompts in place of those that are left out"),
        Loss(("algorithm.rollout_correction.*",), "weighs tokens by what the engine computed"),
        Loss((f"{ACTOR}checkpoint.save_contents", f"{ACTOR}checkpoint.contents", "checkpoint.save_contents",
              "trainer.checkpoint.save_contents"), "says what checkpoints hold"),
        Loss((f"{ACTOR}checkpoint.async_save",), "writes checkpoints while training goes on"),
        Loss(("distillation.*",), "runs a teacher beside the model"),
        *_MEGATRON.losses,
    ),
    silent=(
        *names(f"""
        {ROOT}*.optim.* {ROOT}*lr* {ROOT}*clip* {ROOT}*.profiler.* {ROOT}*.checkpoint.* {ROOT}*kl_* {ROOT}*seed
        {ROOT}*entropy_coeff {ROOT}*loss_agg_mode {ROOT}*loss_scale* {ROOT}*trust_remote_code {ROOT}*external_lib
        {ROOT}*use_shm {ROOT}*tokenizer* {ROOT}*nccl_timeout {ROOT}*val_kwargs.* {ROOT}*temperature {ROOT}*top_*
        {ROOT}*shuffle {ROOT}*wrap_policy* {ROOT}*forward_prefetch {ROOT}*use_orig_params {ROOT}*_target_
        {ROOT}*policy_loss.* {ROOT}*tau_* {ROOT}*use_mbridge {ROOT}*vanilla_mbridge {ROOT}*dist_checkpointing*
        {ROOT}*override_config* {ROOT}*chat_template* {ROOT}*lora_alpha {ROOT}*lora.* {ROOT}*exclude_modules
        {ROOT}*lora_adapter_path {ROOT}*hf_config_path {ROOT}rollout.load_format {ROOT}*ignore_eos {ROOT}*do_sample
        {ROOT}*disable_log_stats {ROOT}rollout.trace.* {ROOT}rollout.prometheus.* {ROOT}*calculate_log_probs
        {ROOT}*logprobs_mode {ROOT}*scheduling_policy {ROOT}*skip_dump_dir {ROOT}*rollout_n {ROOT}*load_weight
        {ROOT}*full_determinism {ROOT}*forward_only {ROOT}*use_rollout_log_probs {ROOT}*fsdp_config.strategy
        {ROOT}*fsdp_config.dtype {ROOT}*num_images_in_input {ROOT}*router_replay.* {ROOT}*warmup* {ROOT}*agent_loop*
        {ROOT}ref.*compile {ROOT}ref.*entropy* {ROOT}*freeze* {ROOT}*custom_* {ROOT}*grad_norm* {ROOT}*seq_len_cap*
        data.* algorithm.* trainer.* custom_reward_function.* reward_manager.* reward_model.* critic.* reward.*
        global_profiler.* profiler.* ray_kwargs.* ray_init.* transfer_queue.* optim.* checkpoint.* hydra.* defaults*
        model.trust_remote_code model.external_lib model.use_shm model.lora_alpha model.*chat_template*
        model.override_config* model.*tokenizer* model.exclude_modules model.hf_config_path model.lora.* model.strategy
        model.fsdp_config.wrap_policy* engine.use_mbridge engine.vanilla_mbridge engine.*seed engine.wrap_policy*
        engine.use_orig_params engine.forward_prefetch engine.*dist_checkpointing* engine.dtype engine._target_
        engine.full_determinism engine.forward_only data_loader* config_path config_name config_dir m searchpath
        *@* model_engine engine optim model actor critic {ROOT}*target_modules model.target_modules
        {ACTOR}ppo_max_token_len_per_gpu data.max_token_len_per_gpu {ROOT}model._target_ _target_ model._target_
        """),
        *_EVERY_ROLE,
        *_MEGATRON.silent,
    ),
)  # fmt: skip
