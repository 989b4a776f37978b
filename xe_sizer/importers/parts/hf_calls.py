"""Python scripts that train with transformers, peft and TRL: their calls under the names of command lines.

Defaults: peft src/peft/tuners/lora/config.py, LoraConfig (0.18).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from xe_sizer.importers.readers.python import Name, keys_of
from xe_sizer.importers.values import is_on
from xe_sizer.importers.written import Expression, Unread, Written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.readers.python import Call
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.written import Keys

RANK, DROPOUT = 8, 0
"""What peft fills in."""
ARGUMENTS = ("TrainingArguments", "Seq2SeqTrainingArguments")
_MODEL = "model_name_or_path"
_OTHER_LOADS = ("tokenizer", "processor", "config", "featureextractor", "pipeline")
_QUANTISED = ("BitsAndBytesConfig",)
_ADAPTERS: Mapping[str, str] = {
    "r": "lora_r", "target_modules": "lora_target_modules", "modules_to_save": "lora_modules_to_save",
    "target_parameters": "lora_target_parameters", "task_type": "lora_task_type",
}  # fmt: skip
_OF_TRAINERS = frozenset({"max_seq_length", "packing", "dataset_text_field", "neftune_noise_alpha"})
_OF_LOADS = frozenset({"dtype", "torch_dtype", "attn_implementation", "load_in_4bit", "load_in_8bit"})
BY_CARD = "auto"
"""What a switch of mixed precision says that follows the card."""
_MIXED = ("bf16", "fp16")
_ASKS_CARD = re.compile(r"is_(torch_)?(bf16|bfloat16)_(gpu_)?(supported|available)")
_PREPARES = "prepare_model_for_kbit_training"
_RECOMPUTES = "gradient_checkpointing_enable"


def is_by_card(name: str, written: Written) -> bool:
    """Whether a script asks the card if it has bfloat16: `bf16=is_bfloat16_supported()`, `fp16=not ...`."""
    return name in _MIXED and _ASKS_CARD.search(str(written.value)) is not None


def call_of(source: Source, *wanted: str) -> Call | None:
    """The first call of one of these; None without one, and where a file is no Python."""
    calls = source.module.calls if source.module is not None else ()
    return next((call for call in calls if call.is_a(*wanted)), None)


def keys_called(source: Source, arguments: Iterable[str], trainers: Iterable[str]) -> Keys:
    """Arguments of the calls that load, quantise, adapt and train, by the names of TRL's command line.

    arguments, trainers : the classes that hold a trainer's arguments, and the trainers
    """
    found: dict[str, Written] = {}
    _model(found, source, call_of(source, *trainers))
    quantised, adapters = call_of(source, *_QUANTISED), call_of(source, "LoraConfig")
    if quantised is not None:
        found |= _plain(quantised.kwargs)
    if adapters is not None:
        found["use_peft"] = Written(True, adapters.where)
        found |= _plain({_ADAPTERS.get(name, name): value for name, value in adapters.kwargs.items()})
    _recompute(found, source)
    given = call_of(source, *arguments)
    return found | (_plain(given.kwargs) if given is not None else {})


def state_peft(draft: Draft) -> None:
    """State what peft fills in where a script makes the configuration of its adapters itself."""
    for key, name, value in (("lora.rank", "lora_r", RANK), ("lora.dropout", "lora_dropout", DROPOUT)):
        if draft.peek(name) is None:
            draft.default(key, value)


def _model(found: dict[str, Written], source: Source, trainer: Call | None) -> None:
    """The model that is loaded, and how; trainers of TRL load a model themselves by its name."""
    load = next(iter(_loads(source)), None)
    if load is not None:
        name = load.kwargs.get("pretrained_model_name_or_path") or next(iter(load.args), None)
        if name is not None:
            found[_MODEL] = name
        found |= _plain({key: value for key, value in load.kwargs.items() if key in _OF_LOADS})
    if trainer is not None:
        named = trainer.kwargs.get("model") or next(iter(trainer.args), None)
        if named is not None and isinstance(named.value, str):
            found.setdefault(_MODEL, named)
        found |= _plain({key: value for key, value in trainer.kwargs.items() if key in _OF_TRAINERS})


def _loads(source: Source) -> Iterable[Call]:
    """Calls that load a model: `X.from_pretrained` of all but tokenizers and the like."""
    for call in source.module.calls if source.module is not None else ():
        owner = call.name.removesuffix(".from_pretrained").rpartition(".")[2].lower()
        if call.name.endswith(".from_pretrained") and not any(word in owner for word in _OTHER_LOADS):
            yield call


def _recompute(found: dict[str, Written], source: Source) -> None:
    """Recomputation that a call turns on; peft's preparation of quantised models does so unasked."""
    prepared, enabled = call_of(source, _PREPARES), call_of(source, _RECOMPUTES)
    if prepared is not None:
        asked = prepared.kwargs.get("use_gradient_checkpointing")
        if asked is None or is_on(asked.value):
            found["gradient_checkpointing"] = Written(True, prepared.where)
    if enabled is not None:
        found["gradient_checkpointing"] = Written(True, enabled.where)


def _plain(arguments: Mapping[str, Written]) -> dict[str, Written]:
    """Arguments as configurations have them: groups by dotted key, `torch.bfloat16` as text; objects are left out."""
    found: dict[str, Written] = {}
    for name, each in arguments.items():
        if is_by_card(name, each):
            found[name] = Written(BY_CARD, each.where)
        elif isinstance(each.value, Mapping):
            found |= _plain({f"{name}.{key}": value for key, value in keys_of(each).items()})
        elif isinstance(each.value, str | int | float | bool | list | tuple | Name | Unread | None):
            found[name] = Written(_value(each.value), each.where)
    return found


def _value(value: object) -> object:
    if isinstance(value, Name):
        return Expression(value.text)
    if isinstance(value, list | tuple):
        return [_value(each.value if isinstance(each, Written) else each) for each in value]
    return value
