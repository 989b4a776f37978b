"""Scripts around the Trainer of transformers: run_clm.py and others that take its arguments, and Python that calls it.

Keys and defaults: transformers examples/pytorch/language-modeling (run_clm.py) and src/transformers/training_args.py
(read at 4.57 and 5.23); scripts of one's own name their further arguments as FastChat, LLaVA and QLoRA do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.interop import huggingface
from xe_sizer.interop.draft import Key, Table
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import listed, number, positive, switch, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys, Written

_PRETRAIN = "pretrain"
_TRAINERS = ("transformers.Trainer", "Seq2SeqTrainer", "Trainer")
_ON_TEXT = ("run_clm", "run_mlm", "run_fim", "run_plm", "pretrain")
"""Parts of the names of scripts that train on text as it comes."""
_BLOCKS = ("run_clm", "run_fim", "run_plm")
"""Scripts that join samples and cut them into blocks."""
_ADAPTED = ("use_peft", "use_lora", "lora_enable", "use_peft_lora", "lora")
_QUANTISED = ("load_in_4bit", "use_4bit_quantization", "q_lora", "use_4bit", "load_in_8bit", "use_8bit_quantization")
_BITS = (4, 8)
_NOT_OURS = ("stage", "finetuning_type", "cutoff_len", "train_type", "tuner_type", "tensor-model-parallel-size")
TABLE = Table(
    keys=(
        Key(("model_name_or_path", "model_id", "model_name", "base_model", "model_path"), "model"),
        Key(("block_size", "model_max_length", "max_seq_length", "max_seq_len", "max_length", "seq_length"),
            "train.seq_len", positive),
        Key(("lora_r", "lora_rank"), "lora.rank", positive),
        Key(("lora_dropout",), "lora.dropout", number),
        Key(("use_dora",), "lora.dora", switch),
    ),
    file="hf_trainer",
    further=(huggingface.PEFT, huggingface.TRAINER),
)  # fmt: skip


def _starts(words: Sequence[str]) -> bool:
    """A script that takes the Trainer's arguments and names a model, and is of no tool that has them too."""
    flags = {word.partition("=")[0].lstrip("-").replace("-", "_") for word in words[1:] if word.startswith("--")}
    if not words or not words[0].endswith(".py") or flags & set(_NOT_OURS):
        return False
    return "per_device_train_batch_size" in flags and bool(flags & set(TABLE.keys[0].names) or "config_name" in flags)


def _keys(source: Source) -> Keys:
    if source.kind == "python":
        return huggingface.keys_called(source, huggingface.ARGUMENTS, _TRAINERS)
    return huggingface.keys_started(source, _starts)


def _recognises(source: Source) -> Certainty:
    if source.kind == "python":
        return 40 if huggingface.find_call(source, *huggingface.ARGUMENTS) is not None else 0
    return 40 if huggingface.find_launch(source, _starts) is not None else 0


def _read(draft: Draft, source: Source) -> None:
    script = next(iter(huggingface.words_started(source, _starts)), "").rpartition("/")[2]
    draft.state("stack", TOOL.name, draft.peek(*TABLE.keys[0].names, "per_device_train_batch_size"))
    huggingface.tell_trainings(draft, source)
    _job(draft, source, script)
    huggingface.state_dtype(draft, "dtype", "torch_dtype")
    _precision(draft)
    _padding(draft, source, script)
    huggingface.state_arguments(draft, source)
    _attention(draft)
    if script.startswith(_BLOCKS) and draft.peek("block_size") is None:
        draft.assume("train.seq_len", 1024, "the script takes what the tokenizer allows, 1024 where that is no limit")
    huggingface.state_launch(draft, source, _starts)


def _job(draft: Draft, source: Source, script: str) -> None:
    """Training of adapters where a key says so, else of all weights."""
    adapted, bits, width = draft.on(*_ADAPTED), _quantised(draft), draft.take("bits")
    if bits is None and width is not None and draft.value(width, whole) in _BITS:
        bits = draft.value(width, whole), width
    if adapted is None and bits is not None:
        adapted = bits[1]
    if adapted is None:
        job = _PRETRAIN if any(part in script for part in _ON_TEXT) else huggingface.SFT
        draft.assume("job", job, "from the name of the script" if script else "no adapters are made", source.start)
        return
    draft.state("job", huggingface.LORA if bits is None else huggingface.QLORA, adapted if bits is None else bits[1])
    if bits is not None and isinstance(bits[0], int):
        huggingface.state_bits(draft, bits[0], bits[1])
    model = draft.peek(*TABLE.keys[0].names)
    targets = draft.take("lora_target_modules", "lora_targets", "target_modules")
    usual = huggingface.usual_targets(model and model.value) if source.kind == "python" else None
    huggingface.state_targets(draft, targets, usual, "peft's choice for this family")
    saved = draft.take("lora_modules_to_save", "modules_to_save")
    if saved is not None:
        draft.state("lora.modules_to_save", draft.value(saved, listed), saved)
    if source.kind == "python":
        huggingface.state_peft(draft)


def _quantised(draft: Draft) -> tuple[object, Written] | None:
    """In how many bits frozen weights are held, by a switch that is on."""
    for name in _QUANTISED:
        found = draft.on(name)
        if found is not None:
            return (_BITS[1] if "8" in name else _BITS[0]), found
    return None


def _precision(draft: Draft) -> None:
    """Without mixed precision the numbers are those of the weights."""
    loaded = draft.facts.get("train.weights_dtype")
    if loaded is not None and draft.peek("bf16") is None and draft.peek("fp16") is None:
        draft.derive("precision", loaded.value, ["train.weights_dtype"], "no mixed precision")
        if loaded.value in ("bf16", "fp16"):
            draft.derive("train.mixed_precision", "none", ["train.weights_dtype"], "neither bf16 nor fp16")


def _padding(draft: Draft, source: Source, script: str) -> None:
    if script.startswith(_BLOCKS):
        command = huggingface.find_launch(source, _starts)
        if command is not None:
            draft.default("train.padding", "packed", "the script joins samples and cuts them into blocks")
    full = draft.on("pad_to_max_length")
    if full is not None:
        draft.state("train.padding", "to-seq-len", full)


def _attention(draft: Draft) -> None:
    flash = draft.on("use_flash_attn", "use_flash_attention_2", "use_flash_attention", "use_flash_attn2")
    if flash is not None:
        draft.state("attention", "flash", flash)
    huggingface.state_attention(draft, "attn_implementation", "model_init_kwargs.attn_implementation")


TOOL = Tool(
    name="hf-trainer",
    title="Hugging Face Trainer",
    reads="commands that start run_clm.py and other scripts with the arguments of the Trainer, and Python files that "
    "call it",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
