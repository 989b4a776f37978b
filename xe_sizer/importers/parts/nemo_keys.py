"""Keys of NeMo: configurations of NeMo 1 in YAML and recipes of NeMo 2 in Python.

NeMo 1.20 to 2.5: examples/nlp/language_modeling, nemo/collections/llm/recipes, nemo/lightning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.megatron import with_groups
from xe_sizer.importers.parts.megatron_arguments import TABLE as ARGUMENTS
from xe_sizer.importers.table import Key, Loss, Table, names
from xe_sizer.importers.values import interval, positive, positive_or_open, switch

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIXES = (
    "model.", "model.config.", "trainer.strategy.", "trainer.strategy.ddp.", "trainer.", "data.", "optim.config.",
    "optim.", "trainer.plugins.", "model.data.", "",
)  # fmt: skip
PRECISIONS: Mapping[str, tuple[str, str | None]] = {
    "16": ("fp16", None), "16mixed": ("fp16", None), "fp16mixed": ("fp16", None), "bf16": ("bf16", None),
    "bf16mixed": ("bf16", None), "32": ("fp32", None), "32true": ("fp32", None), "fp32": ("fp32", None),
    "bf16withfp8mixed": ("fp8", "delayed"), "fp16withfp8mixed": ("fp8", "delayed"),
    "bf16withfp8currentscalingmixed": ("fp8", "tensorwise"), "bf16withmxfp8mixed": ("fp8", "mxfp8"),
    "bf16withfp8subchannelscalingmixed": ("fp8", "blockwise"), "bf16withnvfp4mixed": ("fp4", None),
    "nemotronhbf16withfp8currentscalingmixed": ("fp8", "tensorwise"),
}  # fmt: skip
"""Precisions of Lightning's trainer and of recipes/precision/mixed_precision.py."""

OWN = Table(
    keys=(
        Key(("trainer.tensor_parallelism",), "layout.tp", positive),
        Key(("trainer.pipeline_parallelism",), "layout.pp", positive),
        Key(("trainer.context_parallelism",), "layout.cp", positive),
        Key(("trainer.expert_model_parallelism", "trainer.expert_parallelism"), "layout.ep", positive),
        Key(("trainer.expert_tensor_parallelism",), "layout.expert_tp", positive),
        Key(("trainer.virtual_pipeline_parallelism",), "layout.vpp", positive_or_open),
        Key(("trainer.sequence_parallelism",), "layout.sequence_parallel", switch),
        Key(("trainer.max_steps",), "train.steps", positive_or_open),
        Key(("model.data.train_ds.max_seq_length",), "train.seq_len", positive),
        Key(("model.data.train_ds.micro_batch_size",), "train.micro_batch", positive),
        Key(("model.data.train_ds.global_batch_size",), "train.global_batch", positive),
        Key(("exp_manager.checkpoint_callback_params.every_n_train_steps", "log.ckpt.every_n_train_steps"),
            "train.checkpoint_every", interval),
        Key(("exp_manager.checkpoint_callback_params.async_save", "trainer.strategy.ckpt_async_save"),
            "train.async_checkpoint", switch),
        Key(("model.peft.p_tuning.virtual_tokens",), "p_tuning.virtual_tokens", positive),
        Key(("model.peft.p_tuning.bottleneck_dim",), "p_tuning.encoder_hidden", positive),
    ),
)  # fmt: skip
"""Keys that set a scenario key as they stand."""

TABLE = Table(
    keys=(),
    losses=(
        Loss(("model.activations_checkpoint_layers_per_pipeline",
              "model.num_micro_batches_with_partial_activation_checkpoints"),
             "recomputes less in later stages"),
        Loss(("model.ub_tp_comm_overlap*",), "hides tensor-parallel exchanges behind products"),
        Loss(("model.transformer_engine",), "takes Transformer Engine's layers", (True,)),
        Loss(("model.megatron_amp_O2",), "keeps weights in 16 bit"),
        Loss(("model.overlap_p2p_comm", "model.batch_p2p_comm"), "hides sends between stages"),
        Loss(("model.fsdp_grad_reduce_dtype",), "sets the number format of the exchange of gradients",
             ("fp32", 32)),
        Loss(("model.peft.selective_tuning.*",), "trains parameters that match"),
        Loss(("model.gradient_accumulation_fusion", "model.bias_activation_fusion", "model.bias_dropout_add_fusion",
              "model.masked_softmax_fusion", "model.apply_rope_fusion"),
             "runs kernels one by one that are otherwise fused", unless=True),
        Loss(("model.optim.overlap_*", "model.optim.grad_sync_dtype", "model.optim.contiguous*"),
             "sets how gradients are exchanged", unless=False),
        Loss(("trainer.callbacks.*.tp_comm_overlap",), "hides tensor-parallel exchanges behind products"),
        Loss(("trainer.callbacks.*.overlap_*", "trainer.callbacks.*.defer_embedding*"), "hides exchanges"),
        Loss(("*.grad_reduce_in_fp32",), "keeps and exchanges gradients in 16 bit", unless=True),
        *with_groups(ARGUMENTS, PREFIXES).losses,
    ),
    silent=names("""
        name trainer.* exp_manager.* model.data.* model.tokenizer.* model.optim.* model.peft.* model.seed
        model.restore_from_path model.resume* model.save_nemo* model.sync_batch* model.answer_only*
        model.gradient_as_bucket* model.fsdp_* model.ffn_dropout model.native_amp* model.mcore_gpt model.pre_process
        model.post_process model.persist_layer_norm model.bias model.activation model.headscale model.transformer_block*
        model.openai_gelu model.normalize_attention* model.inference.* model.nsys_profile.* model.gc_interval
        model.precision model.async_grad* model.rotary_* model.use_cpu* model.onnx_safe model.apex_* model.use_emha
        model.seq_len_interp* model.num_sanity* model.get_attention_mask* model.fp8* model.reduce_amax model.use_*
        model.hidden_dropout model.batch_p2p* model.dist_ckpt* model.target model.name model.delay_*
        log.* resume.* optim.* data.* *._target_ _target_ *._args_* tokenizer* peft* _recipe inference.* model.version
        model.config.* model._target_ defaults* hydra.* mode cluster_type run.* prompt* model.language_model_path
        model.virtual_prompt* model.existing_tasks model.new_tasks model.task_templates* model.precision
        model.grad_* model.do_layer_norm* model.attention_type model.megatron_legacy model.activations_checkpoint_rec*
        chatbot_config.* server port web_* share username password chat
        model.model_type model.skip_* model.nsys* model.mup* model.gc_* model.freeze* fn trainer
    """) + with_groups(ARGUMENTS, PREFIXES).silent,
)  # fmt: skip
