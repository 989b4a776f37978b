"""Unsloth: scripts and notebooks that load a FastModel and train it with TRL's trainers.

Defaults: unsloth/models/loader.py, models/llama.py and models/vision.py (read at 2026.8); TRL's configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Table, globs
from xe_sizer.interop.huggingface import state_group_answers
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import Expression, Written, is_on, listed, plain

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.python_values import Call
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys

_LOADS = (
    "FastLanguageModel.from_pretrained", "FastModel.from_pretrained", "FastVisionModel.from_pretrained",
    "FastTextModel.from_pretrained", "FastSentenceTransformer.from_pretrained",
)  # fmt: skip
_ADAPTS = tuple(name.replace("from_pretrained", "get_peft_model") for name in _LOADS)
_TRAINERS = {
    "SFTConfig": "sft", "TrainingArguments": "sft", "UnslothTrainingArguments": "pretrain", "DPOConfig": "dpo",
    "ORPOConfig": "orpo", "KTOConfig": "kto", "GRPOConfig": "grpo", "RewardConfig": "reward", "CPOConfig": "simpo",
    "Seq2SeqTrainingArguments": "sft", "SentenceTransformerTrainingArguments": "sft",
}  # fmt: skip
_STARTS = ("SFTTrainer", "UnslothTrainer", "DPOTrainer", "ORPOTrainer", "KTOTrainer", "GRPOTrainer", "Trainer")
_PLAIN = "sft"
_BITS = 4
_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_LENGTH, _RANK = 2048, 16
TABLE = Table(file="unsloth", further=(huggingface.TRAINER,))


def _recognises(source: Source) -> Certainty:
    if source.kind != "python" or "unsloth" not in source.text:
        return 0
    return 95 if _call(source, _LOADS) is not None else 0


def _call(source: Source, wanted: tuple[str, ...]) -> Call | None:
    """The first call of one of these."""
    return huggingface.find_call(source, *wanted)


def _configuration(source: Source) -> Call | None:
    """The trainer's arguments; those of its own call where older releases take them there."""
    return _call(source, tuple(_TRAINERS)) or _call(source, _STARTS)


def _keys(source: Source) -> Keys:
    """Arguments of the calls that load, adapt and train; of the trainer too, where older releases have them there."""
    found = huggingface.trainings_told(source)
    for call in (_call(source, _LOADS), _call(source, _ADAPTS), _call(source, _STARTS), _configuration(source)):
        if call is not None:
            found |= {name: _plain(name, written) for name, written in call.kwargs.items() if name not in _OBJECTS}
    load = _call(source, _LOADS)
    if load is not None and load.args and "model_name" not in found:
        found["model_name"] = load.args[0]
    return found


_OBJECTS = frozenset(globs("model tokenizer args train_dataset eval_dataset formatting_func reward_funcs callbacks"))


def _plain(name: str, written: Written) -> Written:
    """Tuples of places as lists of values, and switches that follow the card as such."""
    value = huggingface.BY_CARD if huggingface.is_by_card(name, written) else written.value
    if isinstance(value, tuple):
        return Written([each.value if isinstance(each, Written) else each for each in value], written.where)
    known = isinstance(value, str | int | float | bool | list | dict | None)
    return Written(value if known else Expression(str(value)), written.where)


def _read(draft: Draft, source: Source) -> None:
    adapts, trainer = _call(source, _ADAPTS), _configuration(source)
    huggingface.tell_trainings(draft, source)
    draft.state("stack", TOOL.name, draft.peek("model_name"))
    draft.default("gpus", 1, "Unsloth trains on one GPU unless it is launched on several")
    four, eight, full = draft.take("load_in_4bit"), draft.on("load_in_8bit"), draft.on("full_finetuning")
    kind = next((job for name, job in _TRAINERS.items() if trainer is not None and trainer.is_a(name)), _PLAIN)
    adapted = adapts is not None and full is None
    quantised = full is None and eight is None and (four is None or is_on(four.value))
    _job(draft, kind, Written(True, adapts.where) if adapts is not None and adapted else None, quantised, full)
    if adapted:
        _adapters(draft)
        if quantised:
            place = four or draft.peek("model_name")
            if four is not None:
                huggingface.state_bits(draft, _BITS, four)
            elif place is not None:
                draft.default("train.bits", _BITS)
    else:
        draft.close("lora.rank", "lora.dropout")
    if eight is not None:
        huggingface.state_bits(draft, 8, eight)
    if kind == _TRAINERS["GRPOConfig"]:
        draft.following.append(_whole_groups)
        state_group_answers(draft)
    _padding(draft)
    _recompute(draft)
    huggingface.state_arguments(draft, source, precision="bf16")


def _whole_groups(draft: Draft) -> None:
    """A micro-batch without whole groups of answers becomes one of a group (unsloth/models/rl_replacements.py)."""
    micro, accum, group = (draft.fact(key) for key in ("train.micro_batch", "train.grad_accum", "rollout.group"))
    gpus = draft.trainers
    if isinstance(micro, int) and isinstance(group, int) and isinstance(gpus, int):
        steps = accum if isinstance(accum, int) else 1
        if micro * steps * gpus % group:
            stated = draft.facts["train.micro_batch"]
            note = f"Unsloth takes a group of answers in place of {micro}"
            draft.replace("train.micro_batch", replace(stated, value=group, note=note))


def _job(draft: Draft, kind: str, adapts: Written | None, quantised: bool, full: Written | None) -> None:
    if kind not in (_PLAIN, "pretrain"):
        draft.state("job", kind, draft.peek("per_device_train_batch_size", "model_name"))
    elif adapts is not None:
        draft.state("job", huggingface.QLORA if quantised else huggingface.LORA, draft.peek("load_in_4bit") or adapts)
    else:
        if full is not None:
            draft.state("job", kind, full)
        draft.default("job", kind)


def _adapters(draft: Draft) -> None:
    targets = draft.take("target_modules")
    if targets is not None:
        draft.state("lora.targets", draft.value(targets, huggingface.target_modules), targets)
    draft.default("lora.targets", _TARGETS)
    saved = draft.take("modules_to_save")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)


def _padding(draft: Draft) -> None:
    packed, free = draft.on("packing"), draft.take("padding_free")
    if packed is not None:
        draft.state("train.padding", "packed", packed)
    elif free is not None:
        draft.state("train.padding", "none" if is_on(free.value) else "longest-in-micro-batch", free)
    huggingface.state_grouping(draft)
    draft.default("train.padding", "none", "padding-free batches wherever the trainer allows them")


def _recompute(draft: Draft) -> None:
    """Unsloth's own recomputation keeps the inputs of layers in host memory."""
    found = draft.take("use_gradient_checkpointing", "gradient_checkpointing")
    if found is None:
        draft.default("layout.recompute", "full", "Unsloth's own, with its inputs in host memory")
        draft.default("layout.offload", "activations", "inputs of recomputed layers")
        return
    draft.state("layout.recompute", "full" if is_on(found.value) else "none", found)
    if plain(found.value) == "unsloth":
        draft.state("layout.offload", "activations", found)


TOOL = Tool(
    name="unsloth",
    title="Unsloth",
    reads="Python scripts and notebooks that load a FastModel and train it",
    recognises=_recognises,
    read=_read,
    keys=_keys,
    table=TABLE,
)
