"""ms-swift: `swift sft`, `swift pt`, `swift rlhf` and `megatron sft` in scripts, and their arguments in files.

Rules: ms-swift swift/arguments, swift/trainers/arguments.py and swift/megatron/arguments (read at 4.2).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Key, Loss, Table, globs
from xe_sizer.interop.huggingface import (
    NO_OFFLOAD,
    OPTIMIZER,
    PARAMS,
    state_group_answers,
    state_models,
    state_scored_answers,
)
from xe_sizer.interop.launch import arguments_of, command_of, hardware_of, keys_of_flags, state_gpus
from xe_sizer.interop.megatron import TABLE as MEGATRON
from xe_sizer.interop.megatron import Arguments, state_megatron
from xe_sizer.interop.readers.shell_script import unwrapped
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import interval, is_on, listed, number, plain, positive, text, whole, word_of
from xe_sizer.software.stack import DEEPSPEED

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.shell_script import Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys, Written

# Arguments of ms-swift. Keys and defaults: ms-swift swift/arguments and swift/trainers/arguments.py (read at 4.2).

KEYS = (
    Key(("model", "model_id_or_path", "model_type"), "model", text),
    Key(("max_length",), "train.seq_len", positive),
    Key(("per_device_train_batch_size", "batch_size"), "train.micro_batch", positive, default=1),
    Key(("sequence_parallel_size",), "layout.cp", positive, default=1),
    Key(("lora_dropout", "lora_dropout_p"), "lora.dropout", number),
    Key(("attn_impl",), "attention", word_of(huggingface.ATTENTION)),
    Key(("eval_steps",), "train.evaluate_every", interval),
    Key(("torch_dtype", "dtype"), "train.weights_dtype", word_of(huggingface.DTYPES)),
    *huggingface.KEYS,
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
    Loss(globs("num_generations use_vllm vllm_* sglang_* *_length num_iterations"), "generates answers"),
    Loss(globs("offload_model offload_optimizer sleep_level async_generate"), "moves states while it generates"),
    Loss(("move_model_batches", "steps_per_generation", "generation_batch_size"), "generates answers in batches"),
    Loss(globs("adalora_* boft_* vera_* fourier_* reft_* llamapro_* adapter_length"), "sizes other adapters"),
    Loss(("save_only_model", "no_save_optim"), "writes checkpoints without the optimizer's states"),
    Loss(("lora_ga_batch_size",), "initialises adapters from gradients"),
    *huggingface.TRAINER_LOSSES,
)  # fmt: skip
SILENT = (
    *globs("""
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
    *huggingface.TRAINER_SILENT,
)  # fmt: skip
TABLE = Table(KEYS, LOSSES, SILENT)


_COMMANDS = ("sft", "pt", "rlhf")
_FILES = {"sft.py": "sft", "pt.py": "pt", "rlhf.py": "rlhf"}
_OWN = ("tuner_type", "train_type", "rlhf_type", "swift_type")
_TUNERS = ("lora", "longlora", "adalora", "lora_llm")
_JOBS = {"pt": "pretrain", "sft": "sft"}
_PREFERENCES = {"rm": "reward", "gkd": "distill", "cpo": "simpo"}
_DEEPSPEED = {
    "zero0": (0, None), "zero1": (1, None), "zero2": (2, None), "zero3": (3, None),
    "zero2_offload": (2, "optimizer"), "zero3_offload": (3, "params"),
}  # fmt: skip
_TRAINED_BY = "megatron-lm"  # the stack of `megatron sft`
_GROUP = "train."  # of files that ray starts, beside groups for the rollout and a teacher
_LEAST_BATCH = 16  # sequences of an optimizer step that accumulation makes up unasked
_RANK, _DROPOUT, _QLORA_BITS = 8, 0.05, 4
_BETA, _SHARE, _ANSWER = 0.04, 0.9, 512  # penalty, share of the card and length of an answer in reinforcement learning
_MEGATRON = (
    ("train.seq_len", "max_length", None), ("train.epochs", "num_train_epochs", None),
    ("train.micro_batch", "micro_batch_size", 1), ("train.global_batch", "global_batch_size", 16),
    ("train.checkpoint_every", "save_steps", None), ("train.evaluate_every", "eval_steps", None),
    ("layout.expert_tp", "expert_tensor_parallel_size", 1),
)  # fmt: skip
"""Arguments of `megatron sft` that Megatron calls otherwise, with the defaults of ms-swift."""


def _starts(words: tuple[str, ...]) -> bool:
    if len(words) < 2:
        return False
    name = words[0].rpartition("/")[2]
    return (name in ("swift", "megatron") and words[1] in _COMMANDS) or (name in _FILES and "swift" in words[0])


def _command(source: Source) -> Command | None:
    return command_of(source, _starts)


def _recognises(source: Source) -> Certainty:
    if source.kind == "shell":
        return 95 if _command(source) is not None else 0
    keys = _keys(source).keys()
    return 80 if keys & set(_OWN) and keys & {"model", "dataset", "model_id_or_path"} else 0


def _keys(source: Source) -> Keys:
    command = _command(source)
    if command is None:
        return {name.removeprefix(_GROUP): written for name, written in source.keys.items()}
    first = unwrapped(command).command.words[0].text.rpartition("/")[2]
    return keys_of_flags(arguments_of(command, 1 if first in _FILES else 2))


def _subcommand(source: Source) -> tuple[bool, str]:
    """Whether Megatron trains, and what the command does."""
    command = _command(source)
    words = [word.text for word in command.words] if command is not None else []
    kind = next((word for word in words if word in _COMMANDS), None)
    kind = kind or next((name for file, name in _FILES.items() if any(word.endswith(file) for word in words)), "sft")
    return "megatron" in words[:2] or "train.tensor_model_parallel_size" in source.keys, kind


def _read(draft: Draft, source: Source) -> None:
    megatron, kind = _subcommand(source)
    command = _command(source)
    if command is not None and source.script is not None:
        state_gpus(draft, hardware_of(source.script, command))
    draft.state("stack", _TRAINED_BY if megatron else TOOL.name, draft.peek("model", "model_id_or_path", "model_type"))
    _job(draft, kind, megatron)
    _answers(draft)
    if megatron:
        _megatron(draft)
    else:
        _trainer(draft, source)


def _trainer(draft: Draft, source: Source) -> None:
    _deepspeed(draft)
    _padding(draft)
    draft.apply(Table(keys=tuple(key for key in TABLE.keys if key.to == "train.weights_dtype")))
    draft.default("train.weights_dtype", "bf16", "that of the checkpoint")
    if draft.peek("attn_impl") is None:
        draft.default("attention", "sdpa", "the choice of transformers")
    huggingface.state_arguments(draft, source, precision="bf16", recompute="full")
    _accumulation(draft)


def _accumulation(draft: Draft) -> None:
    """Without a number of its own, as many as make 16 sequences of an optimizer step."""
    if draft.peek("gradient_accumulation_steps") is not None:
        return
    micro = draft.value(draft.peek("per_device_train_batch_size", "batch_size"), positive) or 1
    gpus = draft.fact("gpus")
    if isinstance(gpus, int) and isinstance(micro, int):
        steps = max(1, math.ceil(_LEAST_BATCH / micro / gpus))
        draft.default("train.grad_accum", steps, f"as many as make {_LEAST_BATCH} sequences")


def _job(draft: Draft, kind: str, megatron: bool) -> None:
    rlhf, tuner = draft.take("rlhf_type"), draft.take("tuner_type", "train_type", "sft_type")
    word = plain(tuner.value) if tuner is not None else ("full" if megatron else "lora")
    if kind == "rlhf":
        chosen = plain(rlhf.value) if rlhf is not None else "dpo"
        job = _PREFERENCES.get(chosen, chosen)
        _state(draft, "job", job, rlhf)
    adapted = word in {plain(name) for name in _TUNERS}
    bits = draft.take("quant_bits")
    quantised = adapted and bits is not None and is_on(bits.value)
    if adapted:
        four = quantised and draft.value(bits, whole) == _QLORA_BITS
        _state(draft, "job", huggingface.QLORA if four else huggingface.LORA, bits if four else tuner)
        _adapters(draft)
    elif word == "full":
        _state(draft, "job", _JOBS.get(kind, "sft"), tuner)
    elif tuner is not None:
        draft.lose("tuner_type" if "tuner_type" in draft.keys else "train_type", f"{tuner.value} is priced as LoRA")
        draft.assume("job", huggingface.LORA, f"in place of {tuner.value}", tuner.where)
        _adapters(draft)
    if quantised and bits is not None:
        method = draft.take("quant_method")
        library = huggingface.quantiser_called(method.value) if method is not None else None
        width = draft.value(bits, whole)
        huggingface.state_bits(
            draft, width if isinstance(width, int) else _QLORA_BITS, bits, library or huggingface.BITSANDBYTES
        )


def _answers(draft: Draft) -> None:
    """How answers are written and rated; the critic begins as the reward model (swift/pipelines/train/rlhf.py)."""
    reward = ("reward_model",)
    if draft.fact("job") == "grpo":
        _whole_length(draft)
        state_group_answers(draft, beta=_BETA, share=_SHARE)
        if draft.fact("rollout.engine") == "vllm" and draft.fact("rollout.colocated") is not False:
            draft.default("rollout.sleep", NO_OFFLOAD)
        moved = ((PARAMS, draft.on("offload_model")), (OPTIMIZER, draft.on("offload_optimizer")))
        for states, found in moved:
            if found is not None:
                draft.state("rollout.offload", states, found)
        draft.default("rollout.offload", NO_OFFLOAD)
        state_models(draft, {"train.reward_model": reward})
    elif draft.fact("job") == "ppo":
        state_scored_answers(draft, _ANSWER)
        state_models(draft, {"train.critic_model": reward, "train.reward_model": reward})


def _whole_length(draft: Draft) -> None:
    """A prompt and its answer; `max_length` is of the prompt alone where groups of answers are written."""
    prompt, answer = draft.peek("max_length"), draft.peek("max_completion_length")
    sizes = draft.value(prompt, positive), draft.value(answer, positive) or _ANSWER
    if isinstance(sizes[0], int) and isinstance(sizes[1], int):
        draft.state("train.seq_len", sizes[0] + sizes[1], prompt, f"{sizes[0]} of the prompt, {sizes[1]} of the answer")


def _state(draft: Draft, key: str, value: object, found: Written | None) -> None:
    """A value that is stated, or else the tool's default."""
    if found is not None:
        draft.state(key, value, found)
    else:
        draft.default(key, value)


def _adapters(draft: Draft) -> None:
    rank, dropout = draft.take("lora_rank"), draft.take("lora_dropout", "lora_dropout_p")
    for key, found, value in (("lora.rank", rank, _RANK), ("lora.dropout", dropout, _DROPOUT)):
        if found is not None:
            draft.state(key, draft.value(found, number), found)
        draft.default(key, value)
    huggingface.state_targets(draft, draft.take("target_modules", "lora_target_modules"), (huggingface.ALL_LINEAR,))
    saved = draft.take("modules_to_save")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)
    dora = draft.on("use_dora")
    if dora is not None:
        draft.state("lora.dora", True, dora)
    if draft.peek("target_regex") is not None:
        draft.lose("target_regex", "puts adapters on the modules whose names match")


def _deepspeed(draft: Draft) -> None:
    """The names that ms-swift has for DeepSpeed configurations of its own."""
    named = draft.peek("deepspeed")
    word = text(named.value) if named is not None else None
    if named is not None and word in _DEEPSPEED:
        stage, offload = _DEEPSPEED[word]
        draft.take("deepspeed")
        draft.keys.pop("deepspeed")
        draft.state("train.backend", DEEPSPEED, named)
        draft.state("layout.zero", stage, named)
        if offload is not None:
            draft.state("layout.offload", offload, named)


def _padding(draft: Draft) -> None:
    packed, free = draft.on("packing"), draft.on("padding_free")
    if packed is not None:
        draft.state("train.padding", "packed", packed)
    elif free is not None:
        draft.state("train.padding", "none", free)
    huggingface.state_grouping(draft)
    draft.default("train.padding", "longest-in-micro-batch")


def _megatron(draft: Draft) -> None:
    """`megatron sft`: Megatron's arguments in snake case, with defaults of ms-swift's own."""
    packed, free = draft.on("packing"), draft.take("padding_free")
    if packed is not None:
        draft.state("train.padding", "packed", packed)
    elif free is not None and not is_on(free.value):
        draft.state("train.padding", "longest-in-micro-batch", free)
    draft.default("train.padding", "none")
    for key, name, value in _MEGATRON:
        found = draft.take(name)
        _state(draft, key, draft.value(found, whole) if found is not None else value, found)
    draft.close("train.grad_accum")
    if draft.peek("recompute_granularity") is None:
        draft.default("layout.recompute", "selective")
    if draft.peek("use_distributed_optimizer") is None:
        draft.default("layout.zero", 1, "the distributed optimizer")
    draft.default("train.dropout", 0)
    draft.default("precision", "bf16")
    draft.default("attention", "flash")
    state_megatron(Arguments(draft))


TOOL = Tool(
    name="ms-swift",
    aliases=("swift",),
    title="ms-swift",
    reads="scripts with `swift sft`, `pt` or `rlhf` and `megatron sft`, and YAML or JSON files of their arguments",
    recognises=_recognises,
    read=_read,
    keys=_keys,
    table=Table(TABLE.keys, (*TABLE.losses, *MEGATRON.losses), (*TABLE.silent, *MEGATRON.silent)),
)
