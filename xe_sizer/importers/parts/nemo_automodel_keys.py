"""NeMo AutoModel's keys. Source: nemo_automodel/components and nemo_automodel/recipes (0.5)."""

from __future__ import annotations

from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import above_zero, positive, positive_or_open, switch, word_of

_ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "te": "flash", "sdpa": "sdpa", "eager": "eager",
    "torch": "eager", "flash": "flash", "flash_varlen": "flash", "kernels-community/flash-attn3": "flash",
}  # fmt: skip
_TYPES = {
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16", "float32": "fp32", "fp32": "fp32",
    "torch.float32": "fp32", "float16": "fp16", "fp16": "fp16", "torch.float16": "fp16", "auto": None,
}  # fmt: skip
DTYPE = word_of(_TYPES)
"""A number format by PyTorch's name of it."""


def _parallel(*sizes: str) -> tuple[str, ...]:
    """Sizes of a dimension of parallelism, which image recipes have in a section of their own."""
    return tuple(f"{section}.{size}" for size in sizes for section in ("distributed", "fsdp"))


TABLE = Table(
    keys=(
        Key(("model.pretrained_model_name_or_path", "model.config.pretrained_model_name_or_path",
             "model.config.name_or_path", "recipe_args.target_model_name_or_path", "model.config"), "model"),
        Key(("step_scheduler.local_batch_size", "recipe_args.micro_batch_size"), "train.micro_batch", positive,
            default=1),
        Key(("step_scheduler.global_batch_size",), "train.global_batch", positive, default=32),
        Key(("recipe_args.grad_accumulation_steps",), "train.grad_accum", positive),
        Key(("step_scheduler.max_steps",), "train.steps", positive_or_open),
        Key(("step_scheduler.num_epochs", "recipe_args.num_epochs"), "train.epochs", above_zero, default=10),
        Key(_parallel("tp_size"), "layout.tp", positive_or_open, default=1),
        Key(_parallel("pp_size"), "layout.pp", positive_or_open, default=1),
        Key(_parallel("cp_size"), "layout.cp", positive_or_open, default=1),
        Key(_parallel("ep_size"), "layout.ep", positive_or_open, default=1),
        Key(("distributed.sequence_parallel",), "layout.sequence_parallel", switch, default=False),
        Key(("model.torch_dtype", "model.dtype"), "train.weights_dtype", DTYPE, default="bf16"),
        Key(("model.attn_implementation", "model.backend.attn", "model.attention_backend",
             "model.config._attn_implementation", "model.config.attn_implementation"), "attention",
            word_of(_ATTENTION)),
        Key(("peft.dim",), "lora.rank", positive),
        Key(("peft.use_dora",), "lora.dora", switch),
    ),
    losses=(
        Loss(("compile.enabled", "compile"), "compiles the model"),
        Loss(names("""
            freeze_config.freeze_vision_tower freeze_config.freeze_language_model freeze_config.freeze_embeddings
            freeze_config.freeze_audio_tower freeze_config.freeze* model.freeze*
        """), "freezes a part of the model"),
        Loss(("model.backend.dispatcher",), "exchanges tokens between experts by another library",
             harmless=("deepep",)),
        Loss(("model.backend.experts",), "chooses the kernels of the experts", harmless=("gmm",)),
        Loss(("model.backend.linear", "model.backend.rms_norm", "model.backend.rope", "model.backend.rope_fusion"),
             "chooses kernels", harmless=("torch", "torch_fp32")),
        Loss(("model.backend.fake_balanced_gate",), "sends equally many tokens to each expert"),
        Loss(("model.num_nextn_predict_layers", "model.config.num_nextn_predict_layers", "model.config.num_mtp*"),
             "predicts further tokens with layers of their own"),
        Loss(("distributed.moe.reshard_after_forward",), "gathers the experts' weights again in the backward pass"),
        Loss(("distributed.activation_checkpointing_scope*", "distributed.moe.ignore_router_for_ac"),
             "recomputes parts of the layers only", harmless=("all",)),
        Loss(("distributed.mp_policy.reduce_dtype",), "adds gradients in 16 bit",
             harmless=("float32", "torch.float32")),
        Loss(("distributed.enable_async_tensor_parallel", "distributed.enable_compile*"),
             "overlaps the exchange of tensor parallelism with products"),
        Loss(("distributed.enable_fsdp2_prefetch", "distributed.fsdp2_*prefetch*"), "gathers weights ahead"),
        Loss(("optimizer.master_weights", "optimizer.master_weight_bits", "optimizer.exp_avg_dtype",
              "optimizer.exp_avg_sq_dtype", "optimizer.store_param_remainders"),
             "sets in how many bits the optimizer keeps its states"),
        Loss(("optimizer.foreach",), "steps the optimizer tensor by tensor", unless=True),
        Loss(("teacher_model", "teacher_model.pretrained_model_name_or_path"),
             "is the teacher, whose size is not read"),
        Loss(("offload_teacher_model",), "keeps the teacher in host memory"),
        Loss(("qat.*", "qat"), "trains with simulated quantisation"),
        Loss(("fp8.enable_fsdp_float8_all_gather",), "gathers weights in 8 bit"),
        Loss(("fp8.force_recompute_fp8_weight_in_bwd",), "casts weights to 8 bit again in the backward pass"),
        Loss(("fp8.emulate",), "emulates 8-bit products"),
        Loss(("dataloader.collate_fn.pad_seq_len_divisible",), "pads sequences to a multiple"),
        Loss(("model.config.num_hidden_layers", "model.num_hidden_layers", "model.text_config.num_hidden_layers"),
             "changes the number of layers"),
        Loss(("model.output_hidden_states",), "keeps the hidden states of all layers"),
        Loss(names("recipe_args.draft_* recipe_args.ttt_steps recipe_args.num_anchors recipe_args.block_size dflash.*"),
             "sets the draft model that is trained"),
        Loss(names("flow_matching.* data.dataloader.base_resolution vae.* ema.*"), "sets the training of images"),
        Loss(("neftune*", "dllm.*"), "changes what is trained on"),
        Loss(("peft.exclude_modules", "peft.moe_rank_scaling", "peft.lora_dtype"), "changes which adapters there are"),
        Loss(("cuda_graph*", "model.backend.enable_cuda_graph*"), "replays recorded kernels"),
        Loss(("autocast*", "distributed.autocast_dtype"), "casts each product's operands"),
        Loss(("autopipeline.*",), "sets the pipeline"),
    ),
    silent=names("""
        recipe _target_ ci* seed rng* dist_env* step_scheduler* model.* model_type distributed distributed.* fsdp*
        ddp* checkpoint* loss_fn* dataset* validation_dataset* dataloader* validation_dataloader* packed_sequence*
        optimizer.* lr_scheduler* wandb* mlflow* comet* logger* benchmark* processor* clip_grad_norm* tokenizer*
        slurm* skypilot* peft* compile.* freeze_config* fp8* recipe_args* kd_* temperature output* inference*
        performance* moe_metrics* quantization* parallelizer* nvtx* data.* prewarm* separate_meshes* teacher_*
        tool_call_eval* mining* longalign* infonce* nce_* mse_* distill_* embedding_row_repair* distributed_config*
        _validation* _dataset* auto_* run* vllm* generation* profil* launcher* k8s* experiment* anchors* *._target_
        _* cluster* log_* report_to max_grad_norm
    """),
)  # fmt: skip
