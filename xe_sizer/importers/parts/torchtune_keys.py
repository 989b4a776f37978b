"""Torchtune's model builders by the catalogue's names, and its keys.

Builders: torchtune/models/*/_model_builders.py; keys and defaults: recipes/*.py (0.6 and later).
"""

from __future__ import annotations

import re

from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import above_zero, interval, positive, switch

BUILDER = re.compile(r"torchtune\.models\.\w+\.(?:(q?lora)_)?(\w+)")
_SIZE = re.compile(r"_(base|instruct)$")
_FAMILIES = {
    "gemma": "gemma", "gemma2": "gemma-2", "llama2": "llama-2", "llama2_reward": "llama-2", "code_llama2": "codellama",
    "llama3": "llama-3", "llama3_1": "llama-3.1", "llama3_2": "llama-3.2", "llama3_3": "llama-3.3",
    "llama4_scout": "llama-4-scout", "llama4_maverick": "llama-4-maverick", "phi4": "phi-4", "qwen2": "qwen2",
    "qwen2_5": "qwen2.5", "qwen3": "qwen3", "smollm2": "smollm2",
}  # fmt: skip
_NAMED = {
    "mistral_7b": "mistral-7b-v0.1", "mistral_reward_7b": "mistral-7b-v0.1", "mistral_classifier_7b": "mistral-7b-v0.1",
    "phi3_mini": "phi-3-mini-4k", "llama3_2_vision_11b": "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "llama3_2_vision_90b": "meta-llama/Llama-3.2-90B-Vision-Instruct",
}  # fmt: skip
_SIZED = re.compile(r"(\d+(?:_\d+)?[bm])(_\w+)?")
SHAPE = {
    "num_layers": "layers", "embed_dim": "hidden", "num_heads": "heads", "num_kv_heads": "kv_heads",
    "intermediate_dim": "ffn", "vocab_size": "vocab",
}  # fmt: skip
"""Arguments of the builders without a size, by the keys of a model profile."""

TABLE = Table(
    keys=(
        Key(("tokenizer.max_seq_len", "dataset.max_seq_len"), "train.seq_len", positive),
        Key(("batch_size",), "train.micro_batch", positive),
        Key(("gradient_accumulation_steps",), "train.grad_accum", positive),
        Key(("epochs",), "train.epochs", above_zero),
        Key(("tensor_parallel_dim",), "layout.tp", positive, default=1),
        Key(("context_parallel_dim",), "layout.cp", positive, default=1),
        Key(("save_every_n_steps",), "train.checkpoint_every", interval),
        Key(("run_val_every_n_steps",), "train.evaluate_every", interval),
        Key(("enable_async_checkpointing",), "train.async_checkpoint", switch),
        Key(("model.lora_rank",), "lora.rank", positive),
        Key(("model.use_dora",), "lora.dora", switch),
    ),
    losses=(
        Loss(("compile", "compile.*"), "compiles the model and the loss"),
        Loss(("optimizer_in_bwd",), "updates weights during the backward pass, so that gradients are freed early"),
        Loss(("quantizer", "fake_quant_after_n_steps"), "trains with simulated quantisation"),
        Loss(("memory_efficient_fsdp_wrap", "custom_sharded_layers"), "shards embedding and head apart from layers"),
        Loss(("model.apply_lora_to_output",), "puts adapters on the output projection"),
        Loss(("model.encoder_trainable", "model.decoder_trainable", "model.fusion_trainable"),
             "trains, adapts or freezes a part of the model"),
        Loss(("model.image_size", "tokenizer.image_size", "tokenizer.max_num_tiles"), "sets the size of images"),
        Loss(("enable_kv_cache",), "caches keys and values while answers are generated"),
        Loss(("early_exit_loss*", "layer_dropout*"), "skips layers, or adds their losses"),
        Loss(("use_flex",), "runs flex attention"),
        Loss(("teacher_model",), "is the teacher, whose size is not read"),
        Loss(("model.attn_dropout",), "drops attention weights"),
        Loss(names("""
            num_steps grpo_samples ppo_epochs num_generations max_generated_tokens forward_batch_size ppo_batch_size
            orchestration.* inference.* training.* postprocessing.* async_generation*
        """), "sets the generation of answers or the passes over them"),
        Loss(("optimizer_cpu_offload*",), "keeps the optimizer in host memory"),
        Loss(("dataset.pad_to_max_length", "collate_fn.padding*"), "pads samples"),
    ),
    silent=names("""
        ac_option output_dir model_dir base_model_path tokenizer.* dataset dataset.* datasets* dataset_val*
        batch_size_val seed shuffle checkpointer.* resume_from_checkpoint save_* optimizer.* lr_scheduler* loss
        loss.* max_steps_per_epoch clip_grad_norm device dtype metric_logger* log_* profiler* low_cpu_ram
        collate_fn* tensor_parallel_plan* data_parallel_* model.* teacher_checkpointer* teacher_model.* kd_*
        quantizer.* ref_* value_* reward_* policy_model* gamma lmbda kl_coeff whiten_rewards penalise_no_eos
        min_response_length stop_token_ids temperature top_k top_p name batch_size fsdp.cpu_offload checkpoint*
        enable_expandable_segments cudnn_deterministic_mode profile_memory resize_token_embeddings adapter*
        epochs_run total_epochs num_warmup_steps max_new_tokens prompt* chat_template include_path tasks limit
        max_seq_length use_distributed_state_dict debug* apply_chat_template dataloader* project recipe* keep_last*
        enable_activation_* ac_mode fsdp_* model_type
    """),
)  # fmt: skip


def catalogue_name(builder: str) -> str | None:
    """What the catalogue calls the model of a builder (`qwen2_5_7b_instruct`); None for a builder without a size."""
    plain = _SIZE.sub("", builder)
    if plain in _NAMED:
        return _NAMED[plain]
    for family, ours in sorted(_FAMILIES.items(), key=lambda each: -len(each[0])):
        sized = _SIZED.fullmatch(plain.removeprefix(f"{family}_"))
        if plain.startswith(f"{family}_") and sized:
            return f"{ours}-{sized[1].replace('_', '.')}{(sized[2] or '').replace('_', '-')}"
    return None
