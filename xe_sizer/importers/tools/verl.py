"""verl: commands of its PPO and SFT trainers with Hydra overrides, and their configurations.

Rules: verl/trainer/config, verl/workers/fsdp_workers.py and megatron_workers.py (read at 0.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts import peft
from xe_sizer.importers.parts.hf_arguments import LIGER_KERNELS
from xe_sizer.importers.parts.launchers import hardware_of, state_gpus
from xe_sizer.importers.parts.megatron import Arguments, state_megatron
from xe_sizer.importers.parts.offload import ACTIVATIONS, PARAMS
from xe_sizer.importers.parts.optimizers import state_optimizer
from xe_sizer.importers.parts.rollout import pair_single_answers, state_reference
from xe_sizer.importers.parts.token_batches import assume_micro_batch
from xe_sizer.importers.parts.verl_answers import state_answers, state_other_models, state_other_pool
from xe_sizer.importers.parts.verl_commands import SFT, command, keys_said, program, recognises
from xe_sizer.importers.parts.verl_keys import ACTOR, MEGATRON_GROUPS, MODEL, ROLLOUT, ROOT, TABLE
from xe_sizer.importers.tool import Tool
from xe_sizer.importers.values import is_on, plain, positive, positive_or_open, word_of

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.written import Written

_OLD_SFT = "fsdp_sft_trainer"
_PPO, _GRPO = "ppo", "grpo"
_LENGTHS = (("data.max_prompt_length", 512), ("data.max_response_length", 512))
_TOKENS = 16_384  # of a dynamic micro-batch of the actor, unasked
_SFT_TOKENS = 8_192
_MINI_BATCH, _SFT_BATCH, _SFT_MICRO, _SFT_LENGTH = 256, 256, 4, 1024
_EPOCHS, _SFT_EPOCHS = 30, 4
_PER_NODE = 8
_RANKS = ("lora_rank", "lora.rank")
_DTYPES = {
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16",
    "float16": "fp16", "half": "fp16",
}  # fmt: skip
_ATTENTION = {
    "flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "sdpa", "eager": "eager",
}  # fmt: skip


def _read(draft: Draft, source: Source) -> None:
    started = program(source)
    tuned = SFT in started or (not started and not any(name.startswith(ROOT) for name in draft.keys))
    _hardware(draft, source, tuned)
    if not tuned:
        state_other_pool(draft)
    if _is_megatron(draft):
        _megatron(draft, tuned)
    else:
        _fsdp(draft, tuned)
    _lora(draft, tuned)
    if tuned:
        _tuning(draft, old=_OLD_SFT in started or draft.peek("model.partial_pretrain") is not None)
    else:
        _reinforcement(draft)
    draft.default("layout.offload", "none")


def _hardware(draft: Draft, source: Source, tuned: bool) -> None:
    """GPUs: those of the trainer's section, or of torchrun, which starts supervised training."""
    started = command(source)
    nodes, per_node = draft.take("trainer.nnodes"), draft.take("trainer.n_gpus_per_node")
    if not tuned and not {"trainer.nnodes", "trainer.n_gpus_per_node"} & draft.unread.keys():
        counts = [draft.value(each, positive_or_open) for each in (nodes, per_node)]
        number, gpus = (counts[0] or 1), (counts[1] or _PER_NODE)
        if isinstance(number, int) and isinstance(gpus, int):
            note = f"{number} nodes of {gpus} GPUs" if number > 1 else ""
            if nodes is not None or per_node is not None:
                draft.state("gpus", number * gpus, per_node or nodes, note)
            draft.default("gpus", number * gpus, "one node of 8")
            if number > 1:
                draft.state("nodes", number, nodes)
    elif started is not None and source.script is not None:
        state_gpus(draft, hardware_of(source.script, started))


def _is_megatron(draft: Draft) -> bool:
    """Whether Megatron trains the actor: by its strategy, by the configuration, or by a key of its section."""
    strategy = draft.take(f"{ACTOR}strategy", "engine.strategy")
    if strategy is not None:
        return plain(strategy.value) == "megatron"
    chosen = draft.take("config_name", "model_engine", f"actor@{ACTOR[:-1]}", "engine")
    if chosen is not None and "megatron" in str(chosen.value):
        return True
    return any(
        name.startswith(f"{ACTOR}megatron.") or name == "engine.tensor_model_parallel_size" for name in draft.keys
    )


def _where(draft: Draft) -> Written | None:
    return next(iter(draft.keys.values()), None)


def _megatron(draft: Draft, tuned: bool) -> None:
    arguments = Arguments(draft, MEGATRON_GROUPS)
    draft.state("stack", "verl-megatron", _where(draft))
    for name, key in (("pipeline", "pp"), ("tensor", "tp")):
        size = draft.peek(*arguments.named(f"{name}_model_parallel_size"))
        if size is not None:
            draft.state(f"layout.{key}", draft.value(size, positive), size)
    _batches(draft, tuned)
    parallel = arguments.take("sequence_parallel")
    if parallel is not None:
        draft.state("layout.sequence_parallel", is_on(parallel.value), parallel)
    tensor = draft.fact("layout.tp")
    draft.default("layout.sequence_parallel", isinstance(tensor, int) and tensor > 1)
    if arguments.peek("use_distributed_optimizer") is None:
        draft.default("layout.zero", 1, "the distributed optimizer")
    dtype = arguments.take("dtype")
    if dtype is not None:
        draft.state("precision", draft.value(dtype, word_of(_DTYPES)), dtype)
    draft.default("precision", "bf16")
    draft.default("train.weights_dtype", "bf16", "weights have the type of the run")
    draft.default("train.dropout", 0)
    state_megatron(arguments)
    _padding(draft, tuned)


def _fsdp(draft: Draft, tuned: bool) -> None:
    section = "model.fsdp_config." if tuned else f"{ACTOR}fsdp_config."
    liger = draft.on(f"{MODEL}use_liger", "model.use_liger")
    draft.state("stack", "verl", _where(draft))
    if liger is not None:
        draft.state("train.fused_kernels", LIGER_KERNELS, liger)
    _sharding(draft, section)
    spread = draft.take(
        f"{ACTOR}ulysses_sequence_parallel_size", f"{section}ulysses_sequence_parallel_size",
        "engine.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size",
    )  # fmt: skip
    if spread is not None:
        draft.state("layout.cp", draft.value(spread, positive), spread, "Ulysses")
    draft.default("layout.cp", 1)
    _batches(draft, tuned)
    _formats(draft, section)
    recompute = draft.take(f"{MODEL}enable_gradient_checkpointing", "model.enable_gradient_checkpointing")
    if recompute is not None:
        draft.state("layout.recompute", "full" if is_on(recompute.value) else "none", recompute)
    draft.default("layout.recompute", "full")
    state_optimizer(draft, *_optimizer(draft))
    draft.default("optimizer", "adamw")
    _padding(draft, tuned)


def _formats(draft: Draft, section: str) -> None:
    """Number formats, and the kernel of attention."""
    dtype = draft.take(f"{section}model_dtype", "engine.model_dtype")
    if dtype is not None:
        draft.state("train.weights_dtype", draft.value(dtype, word_of(_DTYPES)), dtype)
    draft.default("train.weights_dtype", "fp32")
    run = draft.take(f"{section}dtype", "engine.dtype", f"{section}mixed_precision.param_dtype")
    if run is not None:
        draft.state("precision", draft.value(run, word_of(_DTYPES)), run)
    draft.default("precision", "bf16")
    kind = draft.take(f"{MODEL}override_config.attn_implementation", "model.override_config.attn_implementation")
    if kind is not None:
        draft.state("attention", draft.value(kind, word_of(_ATTENTION)), kind)
    draft.default("attention", "flash")


def _optimizer(draft: Draft) -> tuple[str, Written | None]:
    names = (f"{ACTOR}optim.optimizer", "optim.optimizer")
    name = next((each for each in names if draft.peek(each) is not None), names[0])
    return name, draft.peek(name)


def _sharding(draft: Draft, section: str) -> None:
    group = draft.take(f"{section}fsdp_size", "engine.fsdp_size")
    size = draft.value(group, positive_or_open)
    gpus = draft.trainers
    if group is not None and size == 1:
        draft.state("layout.zero", 0, group, "groups of one GPU shard nothing")
    elif group is not None and isinstance(size, int) and size > 1 and not (isinstance(gpus, int) and size >= gpus):
        draft.state("layout.zero_group", size, group)
    kept = draft.take(f"{section}reshard_after_forward", "engine.reshard_after_forward")
    if kept is not None and not is_on(kept.value):
        draft.state("layout.zero", 2, kept, "weights stay gathered after the forward pass")
    draft.default("layout.zero", 3, "FSDP shards all states")
    for name in ("offload_policy", "cpu_offload"):
        offload = draft.on(f"{section}{name}", f"engine.{name}")
        if offload is not None:
            draft.state("layout.offload", PARAMS, offload)
    activations = draft.on(f"{MODEL}enable_activation_offload", "model.enable_activation_offload")
    if activations is not None:
        draft.state("layout.offload", ACTIVATIONS, activations)
    draft.take("model.fsdp_config.offload_params")


def _padding(draft: Draft, tuned: bool) -> None:
    free = draft.take(f"{MODEL}use_remove_padding", "model.use_remove_padding", "use_remove_padding")
    mode = draft.take("data.pad_mode")
    if mode is not None:
        draft.state("train.padding", "none" if plain(mode.value) == "nopadding" else "to-seq-len", mode)
    if free is not None:
        draft.state("train.padding", "none" if is_on(free.value) else "to-seq-len", free)
    if not tuned:
        draft.default("train.padding", "none")


def _lora(draft: Draft, tuned: bool) -> None:
    groups = ("model.",) if tuned else (MODEL,)
    rank = draft.on(*(f"{group}{name}" for group in groups for name in _RANKS))
    if rank is None:
        if tuned:
            draft.default("job", peft.SFT)
        return
    if tuned:
        draft.state("job", peft.LORA, rank)
    draft.state("lora.rank", draft.value(rank, positive_or_open), rank)
    targets = draft.take(*(f"{group}{name}" for group in groups for name in ("target_modules", "lora.target_modules")))
    peft.state_targets(draft, targets, (peft.ALL_LINEAR,))
    draft.default("lora.dropout", 0)


def _batches(draft: Draft, tuned: bool) -> None:
    """Sequences of an optimizer step and of a pass of one GPU; verl counts prompts, each with several answers."""
    if tuned:
        _tuning_batches(draft)
        return
    batch, answers = draft.take(f"{ACTOR}ppo_mini_batch_size"), draft.peek(f"{ROLLOUT}n")
    prompts, each = draft.value(batch, positive) or _MINI_BATCH, draft.value(answers, positive) or 1
    if isinstance(prompts, int) and isinstance(each, int) and f"{ROLLOUT}n" not in draft.unread:
        note = f"{prompts} prompts x {each} answers" if each > 1 else ""
        if batch is not None:
            draft.state("train.global_batch", prompts * each, batch, note)
        elif f"{ACTOR}ppo_mini_batch_size" not in draft.unread:
            draft.default("train.global_batch", prompts * each, note)
    _length(draft)
    _micro_batch(draft)


def _length(draft: Draft) -> None:
    found = [draft.take(name) for name, _ in _LENGTHS]
    sizes = [draft.value(each, positive) or usual for each, (_, usual) in zip(found, _LENGTHS, strict=True)]
    whole_length = sum(size for size in sizes if isinstance(size, int))
    said = next((each for each in found if each is not None), None)
    note = f"{sizes[0]} of the prompt, {sizes[1]} of the answer"
    if {name for name, _ in _LENGTHS} & draft.unread.keys():
        return
    if said is not None:
        draft.state("train.seq_len", whole_length, said, note)
    draft.default("train.seq_len", whole_length, note)


def _micro_batch(draft: Draft) -> None:
    dynamic = draft.on(f"{ACTOR}use_dynamic_bsz")
    micro = draft.take(f"{ACTOR}ppo_micro_batch_size_per_gpu")
    shared = draft.take(f"{ACTOR}ppo_micro_batch_size")
    if dynamic is not None:
        _dynamic(draft, dynamic, draft.take(f"{ACTOR}ppo_max_token_len_per_gpu"), _TOKENS)
    elif micro is not None:
        draft.state("train.micro_batch", draft.value(micro, positive), micro)
    elif shared is not None:
        gpus, split = draft.trainers, draft.fact("layout.cp") or 1
        size = draft.value(shared, positive)
        if isinstance(gpus, int) and isinstance(size, int) and isinstance(split, int) and size * split >= gpus:
            draft.state("train.micro_batch", size * split // gpus, shared, f"{size} over all GPUs")
        else:
            draft.lose(f"{ACTOR}ppo_micro_batch_size", "is of all GPUs together, whose number is not known")


def _dynamic(draft: Draft, dynamic: Written, tokens: Written | None, usual: int) -> None:
    """Micro-batches filled up to a number of tokens: as many sequences of full length as go in."""
    room, split = draft.value(tokens, positive_or_open) or usual, draft.fact("layout.cp") or 1
    name = next((name for name, each in draft.keys.items() if each is dynamic), "")
    draft.lose(name, "fills micro-batches up to a number of tokens")
    if isinstance(room, int) and isinstance(split, int):
        assume_micro_batch(draft, room * split, dynamic.where)


def _tuning_batches(draft: Draft) -> None:
    for key, name, usual in (
        ("train.global_batch", "data.train_batch_size", _SFT_BATCH), ("train.seq_len", "data.max_length", _SFT_LENGTH),
    ):  # fmt: skip
        found = draft.take(name)
        if found is not None:
            draft.state(key, draft.value(found, positive), found)
        elif name not in draft.unread:
            draft.default(key, usual)


def _tuning(draft: Draft, *, old: bool) -> None:
    """Supervised training; the newer trainer fills micro-batches by tokens and pads nothing."""
    dynamic = draft.peek("data.use_dynamic_bsz")
    micro = draft.take("data.micro_batch_size_per_gpu")
    tokens = draft.take("data.max_token_len_per_gpu")
    if dynamic is not None and is_on(dynamic.value):
        _dynamic(draft, dynamic, tokens, _SFT_TOKENS)
    elif dynamic is None and not old:
        room = draft.value(tokens, positive_or_open) or _SFT_TOKENS
        assume_micro_batch(draft, int(str(room)), None)
    elif micro is not None:
        draft.state("train.micro_batch", draft.value(micro, positive), micro)
    if dynamic is not None:
        draft.take("data.use_dynamic_bsz")
    if old or (dynamic is not None and not is_on(dynamic.value)):
        draft.default("train.micro_batch", _SFT_MICRO)
    if draft.peek("data.micro_batch_size") is not None:
        draft.lose("data.micro_batch_size", "an old name that sets nothing", "none")
    draft.default("train.padding", "to-seq-len" if old else "none")
    _duration(draft, _SFT_EPOCHS)


def _reinforcement(draft: Draft) -> None:
    estimator = draft.take("algorithm.adv_estimator")
    if estimator is not None:
        draft.state("job", _PPO if plain(estimator.value) == "gae" else _GRPO, estimator)
    draft.default("job", _PPO, "advantages of a critic")
    state_answers(draft)
    scored = draft.fact("job") == _PPO
    if not scored:
        draft.following.append(pair_single_answers)
    state_reference(draft, (f"{ACTOR}use_kl_loss", "algorithm.use_kl_in_reward"), usual=False)
    state_other_models(draft, scored=scored)
    _duration(draft, _EPOCHS)


def _duration(draft: Draft, usual: int) -> None:
    """Steps or passes over the data; a step of reinforcement learning is an iteration."""
    steps, epochs = draft.take("trainer.total_training_steps"), draft.take("trainer.total_epochs")
    count = draft.value(steps, positive_or_open)
    if isinstance(count, int):
        draft.state("train.steps", count, steps)
    if epochs is not None:
        draft.state("train.epochs", draft.value(epochs, positive), epochs)
    draft.default("train.epochs", usual)


TOOL = Tool(
    name="verl",
    title="verl",
    reads="scripts that start `verl.trainer.main_ppo`, recipes and SFT trainers, and their configurations",
    recognises=recognises,
    read=_read,
    table=TABLE,
    keys=keys_said,
)
