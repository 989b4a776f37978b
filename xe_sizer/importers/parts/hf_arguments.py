"""transformers' TrainingArguments, which TRL, LLaMA-Factory, ms-swift and Unsloth have too.

Keys and defaults: transformers src/transformers/training_args.py (read at 4.46, 4.57, 5.0 and 5.23).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.importers.parts import fsdp, hf_calls
from xe_sizer.importers.parts.deepspeed import read_deepspeed, state_deepspeed
from xe_sizer.importers.parts.offload import ACTIVATIONS
from xe_sizer.importers.parts.optimizers import ADAFACTOR, ADAMW, state_optimizer
from xe_sizer.importers.table import Key, Loss, names
from xe_sizer.importers.values import above_zero, interval_or_share, is_on, plain, positive, positive_or_open, word_of

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.written import Written

SAVE_STEPS = 500
LOGGING_STEPS = 500
_GROUPED = ("grouplength", "groupbylength", "batchrebalance")
_RECOMPUTE = ("activation_checkpointing", "gradient_checkpointing")
_LIGER = {
    "rope": "rotary", "rms_norm": "norm", "layer_norm": "norm", "swiglu": "activation", "geglu": "activation",
}  # fmt: skip
LIGER_KERNELS = tuple(dict.fromkeys(_LIGER.values()))
"""What Liger's kernels take the place of."""
ATTENTION = {
    **dict.fromkeys(
        names("""
        flash_attention_2 flash_attention_3 flash_attention_4 flash_attention fa2 fa3 flash_attn flash
        kernels-community/flash-attn2 kernels-community/flash-attn3 kernels-community/flash-attn
        kernels-community/vllm-flash-attn3 kernels-community/vllm-flash-attn
        """),
        "flash",
    ),
    "sdpa": "sdpa", "eager": "eager", "auto": None,
}  # fmt: skip
"""Words of `attn_implementation`."""
DTYPES = {
    "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16", "float32": "fp32",
    "fp32": "fp32", "float": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32",
}  # fmt: skip
"""Words of `dtype` and `torch_dtype` that name a number format; `auto` is that of the checkpoint."""

KEYS = (
    Key(("per_device_train_batch_size", "per_gpu_train_batch_size"), "train.micro_batch", positive, default=8),
    Key(("gradient_accumulation_steps",), "train.grad_accum", positive, default=1),
    Key(("max_steps",), "train.steps", positive_or_open),
    Key(("num_train_epochs",), "train.epochs", above_zero, default=3),
    Key(("torch_empty_cache_steps",), "train.empty_cache_steps", positive_or_open),
)
"""Keys that set a scenario key as they stand. A tool's own rows stand before these where its defaults differ."""

LOSSES = (
    Loss(("torch_compile", "torch_compile_backend", "torch_compile_mode", "torchdynamo"), "compiles the model"),
    Loss(("auto_find_batch_size",), "lowers the batch until it fits"),
    Loss(("optim_target_modules", "optim_target_modules.*"), "updates some modules in a low rank"),
    Loss(("full_determinism",), "chooses kernels that give the same result each time, which are slower"),
    Loss(("use_cpu", "no_cuda"), "trains without a GPU"),
    Loss(("debug",), "looks for overflows in every module", harmless=([],)),
    Loss(("jit_mode_eval", "use_ipex"), "runs on another back end"),
    Loss(("tp_size",), "splits the model by tensor parallelism"),
    Loss(("ddp_find_unused_parameters",), "walks the graph in every step"),
    Loss(
        ("gradient_checkpointing_kwargs.every_n_layers", "activation_checkpointing_kwargs.every_n_layers"),
        "recomputes every n-th layer only",
        harmless=(1,),
    ),
    Loss(("fsdp_config.xla", "fsdp_config.xla_fsdp_grad_ckpt", "fsdp_config.xla_fsdp_v2"), "trains through XLA"),
    Loss(("torch_compile_dynamic",), "compiles the model"),
)  # fmt: skip
"""Arguments that change memory or time and have no counterpart."""

SILENT = (
    *names("""
    output_dir overwrite_output_dir do_train do_eval do_predict prediction_loss_only per_device_eval_batch_size
    per_gpu_eval_batch_size eval_accumulation_steps eval_delay learning_rate weight_decay adam_* max_grad_norm lr_*
    warmup_* cooldown_* log_* logging_* save_total_limit save_safetensors save_on_each_node save_only_model
    restore_callback_states_from_checkpoint enable_jit_checkpoint seed data_seed use_mps_device bf16_full_eval
    fp16_full_eval tf32 fp16_opt_level half_precision_backend fp16_backend local_rank _n_gpu ddp_backend tpu_*
    dataloader_* run_name disable_tqdm remove_unused_columns label_names load_best_model_at_end metric_for_best_model
    greater_is_better ignore_data_skip accelerator_config* label_smoothing_factor optim_args length_column_name
    report_to* project trackio_* wandb_* swanlab_* mlflow_* ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph
    ddp_timeout skip_memory_metrics push_to_hub* resume_from_checkpoint hub_* past_index
    gradient_checkpointing_kwargs* activation_checkpointing_kwargs* include_* mp_parameters ray_scope neftune_*
    batch_eval_metrics eval_on_start eval_do_concat_batches eval_use_gather_object use_liger_kernel use_liger
    liger_kernel_config* use_cache average_tokens_across_devices use_legacy_prediction_loop no_tqdm bf16 fp16
    eval_strategy evaluation_strategy eval_steps save_strategy save_steps split_batches dispatch_batches fsdp
    fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap train_sampling_strategy group_by_length parallelism_config
    parallelism_config.* loss_type_for_logging logging_dir
    """),
    *(f"fsdp_config.{name}" for name in fsdp.SILENT),
)  # fmt: skip
"""Arguments that change neither memory nor time."""


def state_arguments(draft: Draft, source: Source, *, precision: str = "fp32", recompute: str = "none") -> None:
    """State all that TrainingArguments say beside the rows of `KEYS`, from precision to checkpoints.

    precision, recompute : what the tool fills in without the keys
    """
    state_sharding(draft, source)
    state_precision(draft, precision)
    state_optim(draft)
    state_recompute(draft, recompute)
    state_grouping(draft)
    state_liger(draft)
    state_checkpoints(draft)
    state_evaluations(draft)


def state_precision(draft: Draft, default: str = "fp32") -> None:
    """State what mixed precision computes in; without it, what the weights are loaded in."""
    for name in ("bf16", "fp16"):
        found = draft.on(name)
        if found is not None and plain(found.value) != hf_calls.BY_CARD:
            draft.state("precision", name, found)
        elif found is not None and name == "bf16":
            draft.default("precision", name, "where the card has it")
    off = draft.peek("bf16")
    if off is not None and not is_on(off.value):
        weights = draft.fact("train.weights_dtype")
        draft.state("precision", "fp32" if weights is None else weights, off, "no mixed precision")
    draft.default("precision", default)


def state_optim(draft: Draft, default: str = ADAMW) -> None:
    """State the optimizer; `adafactor: true` is the older way to say so."""
    old = draft.on("adafactor")
    state_optimizer(draft, "optim", draft.peek("optim"))
    if old is not None:
        draft.state("optimizer", ADAFACTOR, old)
    draft.default("optimizer", default)


def state_recompute(draft: Draft, default: str = "none") -> None:
    """State whether layers are recomputed, and whether their inputs wait in host memory."""
    found = draft.take(*_RECOMPUTE)
    if found is not None and not isinstance(found.value, dict):
        draft.state("layout.recompute", "full" if is_on(found.value) else "none", found)
    offload = draft.on(*(f"{name}_kwargs.offload" for name in _RECOMPUTE))
    if offload is not None:
        draft.state("layout.offload", ACTIVATIONS, offload)
    draft.default("layout.recompute", default)


def state_grouping(draft: Draft) -> None:
    """State that batches are made of samples of like length, where they are."""
    sampling, grouped = draft.take("train_sampling_strategy"), draft.on("group_by_length")
    if sampling is not None and plain(sampling.value) in _GROUPED:
        draft.state("train.padding", "grouped-by-length", sampling)
    elif grouped is not None:
        draft.state("train.padding", "grouped-by-length", grouped)


def state_sharding(draft: Draft, source: Source) -> None:
    """State how DeepSpeed or FSDP shards; without either nothing is sharded."""
    named, options = draft.on("deepspeed"), draft.take("fsdp")
    _include(draft, source, "fsdp_config")
    configured = any(name.startswith("fsdp_config.") for name in draft.keys)
    if any(name.startswith("deepspeed.") for name in draft.keys):
        state_deepspeed(draft, draft.keys, "deepspeed.")
        draft.count("deepspeed.*")
    elif named is not None:
        read_deepspeed(draft, named, source)
    elif options is not None and is_on(options.value):
        fsdp.state_fsdp(draft, options, "fsdp_config.")
    elif configured and options is None:
        fsdp.state_fsdp(draft, None, "fsdp_config.")
    draft.default("layout.zero", 0, "neither DeepSpeed nor FSDP")


def _include(draft: Draft, source: Source, section: str) -> None:
    """Put the keys of a file that a key names below that key."""
    named = draft.on(section)
    found = source.companion(named.value) if named is not None else None
    if found is not None:
        draft.keys.update({f"{section}.{key}": written for key, written in found.keys.items()})


def state_liger(draft: Draft) -> None:
    """State the kernels that Liger puts in place of the model's own; its loss never holds all logits."""
    found = draft.on("use_liger_kernel", "use_liger")
    if found is None:
        return
    chosen = {
        name.removeprefix("liger_kernel_config."): is_on(written.value)
        for name, written in draft.keys.items()
        if name.startswith("liger_kernel_config.")
    }
    kernels = dict.fromkeys(kind for part, kind in _LIGER.items() if chosen.get(part, True))
    draft.state("train.fused_kernels", tuple(kernels) or None, found)
    if chosen.get("fused_linear_cross_entropy", not chosen.get("cross_entropy", False)):
        draft.state("loss", "fused", found)


def state_checkpoints(draft: Draft, every: int = SAVE_STEPS) -> None:
    """State how many steps lie between checkpoints; a share of the run is read where its steps are stated."""
    strategy, steps = draft.take("save_strategy"), draft.take("save_steps")
    if strategy is not None and plain(strategy.value) != "steps":
        return
    if steps is not None:
        draft.state("train.checkpoint_every", _steps(draft, steps), steps)
    else:
        draft.default("train.checkpoint_every", every)


def state_evaluations(draft: Draft) -> None:
    """State how many steps lie between evaluations; those of every epoch have no counterpart."""
    strategy, steps = draft.take("eval_strategy", "evaluation_strategy"), draft.take("eval_steps")
    word = plain(strategy.value) if strategy is not None else "no"
    if word == "steps":
        every = steps or draft.peek("logging_steps")
        found = _steps(draft, every) if every is not None else LOGGING_STEPS
        draft.state("train.evaluate_every", found, every or strategy)
    elif word == "epoch":
        name = next(each for each in ("eval_strategy", "evaluation_strategy") if each in draft.keys)
        draft.lose(name, "evaluates after every epoch")


def _steps(draft: Draft, written: Written) -> int | None:
    """A number of steps, or a share of the steps of the run."""
    found, most = draft.value(written, interval_or_share), draft.value(draft.peek("max_steps"), positive_or_open)
    if isinstance(found, float):
        return math.ceil(found * most) if isinstance(most, int) else None
    return found if isinstance(found, int) else None


def state_attention(draft: Draft, *keys: str) -> None:
    """State the attention kernel; without the key transformers takes PyTorch's.

    keys : the names of the key, the newest first
    """
    found = draft.take(*(keys or ("attn_implementation",)))
    if found is not None:
        word = plain(found.value)
        known = {plain(name): kernel for name, kernel in ATTENTION.items()}
        if word in known:
            draft.state("attention", known[word], found)
        else:
            name = next(each for each in keys or ("attn_implementation",) if draft.keys.get(each) is found)
            draft.lose(name, "names an attention kernel that is not modelled")
    draft.default("attention", "sdpa", "the choice of transformers")


def state_dtype(draft: Draft, *keys: str) -> Written | None:
    """State the number format that the model is loaded in; None where no key says one.

    keys : the names of the key, the newest first
    """
    found = draft.take(*(keys or ("dtype", "torch_dtype")))
    if found is None or plain(found.value) in ("auto", "none", "null"):
        return None
    draft.state("train.weights_dtype", draft.value(found, word_of(DTYPES)), found)
    return found
