"""TRL: YAML and JSON configurations of its trainers, and the commands that start them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.importers.parts import hf_arguments, hf_calls, hf_scripts, peft, trl_keys
from xe_sizer.importers.parts.group_answers import state_group_answers, state_scored_answers
from xe_sizer.importers.parts.offload import ACTIVATIONS
from xe_sizer.importers.parts.rollout import state_models
from xe_sizer.importers.tool import Tool
from xe_sizer.importers.values import is_on, listed, plain, positive
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.readers.python import Call
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty
    from xe_sizer.importers.written import Keys

_OTHERS = frozenset({"stage", "finetuning_type", "cutoff_len", "template", "tuner_type", "train_type"})
_MAX_LENGTH = 1024
_RANK, _DROPOUT = 16, 0.05
_COMPLETION = 512
_RLOO_BETA = 0.05
_SCORES = {
    "train.critic_model": ("value_model_path", "reward_model_path"),
    "train.reward_model": ("reward_model_path", "reward_model_name_or_path", "reward_model"),
}
_GENERATES = (trl_keys.GRPO, trl_keys.PPO, trl_keys.DISTILL)
_MODULES = "trl.scripts."
_WORDS = re.compile(r"[a-z]+", re.IGNORECASE)


def _called(words: Sequence[str]) -> str | None:
    """The job of the trainer that a command starts: `trl sft`, or a script named after a trainer."""
    if not words or "swift" in words[0]:
        return None
    name = words[0].rpartition("/")[2]
    if name == "trl":
        return trl_keys.TRAINERS.get(plain(words[1])) if len(words) > 1 else None
    if name.startswith(_MODULES):
        return trl_keys.TRAINERS.get(plain(name.removeprefix(_MODULES)))
    flagged = any(word.startswith(("--model_name_or_path", "--config", "--dataset_name")) for word in words)
    stem = name.removesuffix(".py").removeprefix("run_")
    return trl_keys.TRAINERS.get(plain(stem)) if flagged and name.endswith(".py") else None


def _starts(words: Sequence[str]) -> bool:
    return _called(words) is not None


def _called_in(source: Source) -> Call | None:
    """The call in a Python file by which TRL is known: of a trainer's configuration, else of the trainer."""
    if source.kind != "python" or "trl" not in source.text:
        return None
    return hf_calls.call_of(source, *_CONFIGS) or hf_calls.call_of(source, *_CLASSES)


def _keys(source: Source) -> Keys:
    if source.kind == "python":
        return hf_calls.keys_called(source, (*_CONFIGS, *hf_calls.ARGUMENTS), _CLASSES)
    return hf_scripts.keys_started(source, _starts)


def _recognises(source: Source) -> Certainty:
    if hf_scripts.command_of(source, _starts) is not None:
        return 85
    if _called_in(source) is not None:
        return 80
    keys = source.keys
    tops = {name.partition(".")[0] for name in keys}
    if "model_name_or_path" not in keys or tops & _OTHERS:
        return 0
    if tops & trl_keys.OWN:
        return 80
    return 50 if "dataset_name" in keys else 0


def _read(draft: Draft, source: Source) -> None:
    draft.state("stack", TOOL.name, draft.peek("model_name_or_path"))
    trainer = _trainer(draft, source)
    _job(draft, source, trainer)
    hf_arguments.state_dtype(draft, "dtype", "torch_dtype", "model_init_kwargs.dtype", "model_init_kwargs.torch_dtype")
    if draft.fact("train.bits") is None and draft.fact("job") != peft.QLORA:
        draft.default("train.weights_dtype", "fp32")
    hf_arguments.state_arguments(draft, source, precision="bf16", recompute="full")
    hf_arguments.state_attention(draft, "attn_implementation", "model_init_kwargs.attn_implementation")
    _length(draft, trainer)
    if trainer == trl_keys.GRPO:
        state_group_answers(draft, beta=_RLOO_BETA if _is_rloo(draft, source) else 0.0)
    elif trainer == trl_keys.PPO:
        state_scored_answers(draft)
        state_models(draft, _SCORES)
    _padding(draft)
    _loss(draft, trainer)
    offloaded = draft.on("activation_offloading")
    if offloaded is not None:
        draft.state("layout.offload", ACTIVATIONS, offloaded)
    hf_scripts.state_launch(draft, source, _starts)


def _is_rloo(draft: Draft, source: Source) -> bool:
    """Whether the trainer is RLOO's, which keeps a reference unless told otherwise (trl/trainer/rloo_config.py)."""
    call = _called_in(source)
    words = [call.name] if call is not None else [source.name, *hf_scripts.words_started(source, _starts)[:2]]
    return draft.peek("rloo_k") is not None or any("rloo" in word.lower() for word in words)


def _trainer(draft: Draft, source: Source) -> str:
    """The job of the trainer: by keys that it alone has, by its loss, else by what the file or its folder is called."""
    marked = [(job, found) for job, keys in trl_keys.MARKS if (found := _present(draft.keys, keys)) is not None]
    loss = draft.peek("loss_type")
    words = [plain(word) for word in listed(loss.value) or ()] if loss is not None else []
    by_loss = next((job for word, job in _LOSS_JOBS.items() if word in words), None)
    named = _named(source)
    called = _called(hf_scripts.words_started(source, _starts))
    command = hf_scripts.command_of(source, _starts)
    call = _called_in(source)
    if call is not None:
        job = next(job for name, job in _CLASS_JOBS.items() if call.is_a(name))
        draft.state("trainer", job, Written(job, call.where))
    elif called is not None and command is not None:
        draft.state("trainer", called, Written(called, command.words[0].where))
    elif by_loss is not None and loss is not None and by_loss != trl_keys.DPO:
        draft.state("trainer", by_loss, loss)
    elif marked:
        draft.state("trainer", marked[0][0], marked[0][1])
    elif named is not None:
        draft.assume("trainer", named, "from the name of the file or its folder", source.start)
    else:
        paired = loss or _present(draft.keys, trl_keys.OF_PREFERENCES)
        if paired is not None:
            draft.state("trainer", trl_keys.DPO, paired)
        else:
            draft.assume("trainer", trl_keys.SFT, "no key tells the trainer")
    return str(draft.fact("trainer"))


_CLASS_JOBS = {
    f"{name}{ending}": job
    for name, job in {
        "SFT": trl_keys.SFT, "IterativeSFT": trl_keys.SFT, "DPO": trl_keys.DPO, "KTO": trl_keys.KTO,
        "BCO": trl_keys.KTO, "ORPO": trl_keys.ORPO, "CPO": trl_keys.SIMPO, "Reward": trl_keys.REWARD,
        "PRM": trl_keys.REWARD, "PPO": trl_keys.PPO, "GRPO": trl_keys.GRPO, "RLOO": trl_keys.GRPO,
        "OnlineDPO": trl_keys.DPO, "NashMD": trl_keys.DPO, "XPO": trl_keys.DPO, "GKD": trl_keys.DISTILL,
        "GOLD": trl_keys.DISTILL, "MiniLLM": trl_keys.DISTILL,
    }.items()
    for ending in ("Config", "Trainer")
}  # fmt: skip
_CONFIGS = tuple(name for name in _CLASS_JOBS if name.endswith("Config"))
_CLASSES = tuple(name for name in _CLASS_JOBS if name.endswith("Trainer"))
_LOSS_JOBS = {plain(word): job for word, job in trl_keys.LOSS_TYPES.items()}


def _present(keys: Keys, wanted: tuple[str, ...]) -> Written | None:
    return next((keys[name] for name in wanted if name in keys), None)


def _named(source: Source) -> str | None:
    """The job that the name of a file says, or that of a folder that it lies in; the nearest to the file counts."""
    parts = Path(source.name).with_suffix("").parts
    for part in reversed(parts):
        words = [word.lower() for word in _WORDS.findall(part)]
        found = [trl_keys.TRAINERS[word] for word in reversed(words) if word in trl_keys.TRAINERS]
        if found:
            return found[0]
    return None


def _job(draft: Draft, source: Source, trainer: str) -> None:
    """The job, its adapters and quantised weights."""
    stated = draft.facts["trainer"]
    draft.drop("trainer")
    adapters = draft.take("use_peft")
    trained = adapters is not None and is_on(adapters.value)
    four, eight = draft.on("load_in_4bit"), draft.on("load_in_8bit")
    if trainer != trl_keys.SFT:
        draft.replace("job", stated)
    elif adapters is not None and trained:
        quantised = four or eight
        draft.state("job", peft.QLORA if quantised else peft.LORA, quantised or adapters)
    else:
        draft.replace("job", stated)
    if trained:
        _adapters(draft, hf_calls.state_peft if source.kind == "python" else _state_model_config)
        if four is not None:
            peft.state_bits(draft, 4, four)
        elif eight is not None:
            peft.state_bits(draft, 8, eight)
    else:
        for name in ("lora_r", "lora_dropout", "use_dora"):
            if name in draft.keys:
                draft.lose(name, "there are no adapters: use_peft is off", "none")


def _state_model_config(draft: Draft) -> None:
    """State what TRL's own arguments fill in for adapters."""
    for key, name, value in (("lora.rank", "lora_r", _RANK), ("lora.dropout", "lora_dropout", _DROPOUT)):
        if draft.peek(name) is None:
            draft.default(key, value)


def _adapters(draft: Draft, state_defaults: Callable[[Draft], None]) -> None:
    default = peft.usual_targets(draft.peek("model_name_or_path") and draft.keys["model_name_or_path"].value)
    peft.state_targets(draft, draft.take("lora_target_modules"), default, "peft's choice for this family")
    saved = draft.take("lora_modules_to_save")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)
    state_defaults(draft)


def _length(draft: Draft, trainer: str) -> None:
    """The longest sequence; where answers are generated that of prompt and answer together."""
    found = draft.take("max_length", "max_seq_length")
    if trainer in _GENERATES:
        prompt = draft.take("max_prompt_length")
        answer = draft.peek("max_completion_length", "response_length", "max_new_tokens")
        most = draft.value(prompt, positive), draft.value(answer, positive) if answer else _COMPLETION
        if prompt is not None and isinstance(most[0], int) and isinstance(most[1], int):
            draft.state("train.seq_len", most[0] + most[1], prompt, "prompt and answer")
    if found is not None:
        draft.state("train.seq_len", draft.value(found, positive), found)
    elif trainer not in _GENERATES and "max_length" not in draft.keys:
        draft.default("train.seq_len", _MAX_LENGTH)


def _padding(draft: Draft) -> None:
    packed, flat = draft.on("packing"), draft.on("padding_free")
    if packed is not None:
        draft.drop("train.padding")
        draft.state("train.padding", "packed", packed)
    elif flat is not None:
        draft.state("train.padding", "none", flat)
    draft.default("train.padding", "longest-in-micro-batch")


def _loss(draft: Draft, trainer: str) -> None:
    """The loss without the logits of all tokens: Liger's, or that of TRL in chunks of tokens."""
    liger = draft.on("use_liger_loss")
    if liger is not None:
        draft.state("loss", "fused", liger)
    chosen = draft.peek("loss_type")
    if trainer != trl_keys.SFT:
        return
    word = plain(chosen.value) if chosen is not None else ""
    if word == "chunkednll":
        draft.state("loss", "fused", chosen, "in chunks of tokens")
    else:
        draft.default("loss", "fused", "in chunks of tokens")


TOOL = Tool(
    name="trl",
    title="TRL",
    reads="`trl sft` and the like in scripts, Python files that call its trainers, YAML and JSON configurations, with "
    "the accelerate and DeepSpeed files that are named beside them",
    recognises=_recognises,
    read=_read,
    table=trl_keys.TABLE,
    keys=_keys,
)
