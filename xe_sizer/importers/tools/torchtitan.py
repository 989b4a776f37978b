"""TorchTitan: TOML files, registries of configurations in Python, and the commands that start them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.commands import arguments_of, command_of, keys_of_flags
from xe_sizer.importers.parts.launchers import hardware_of, state_gpus
from xe_sizer.importers.parts.optimizers import state_optimizer
from xe_sizer.importers.parts.shapes import Shape, state_shape
from xe_sizer.importers.parts.torchtitan_keys import TABLE, catalogue_name, family_in, tiny_shape
from xe_sizer.importers.parts.torchtitan_layout import state_layout
from xe_sizer.importers.readers.python import keys_of
from xe_sizer.importers.tool import Tool
from xe_sizer.importers.values import is_on, listed, plain, positive, positive_or_open
from xe_sizer.importers.written import Written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.readers.shell import Command
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty
    from xe_sizer.importers.written import Keys

_CONFIGS = ("job.config_file", "config_file", "CONFIG_FILE")
_SECTIONS = frozenset({"training", "parallelism", "activation_checkpoint", "lr_scheduler", "experimental", "job"})
_OWN = frozenset({
    "training.seq_len", "training.local_batch_size", "training.batch_size", "model.flavor",
    "parallelism.data_parallel_shard_degree", "training.data_parallel_shard_degree", "training.tensor_parallel_degree",
    "activation_checkpoint.mode", "lr_scheduler.warmup_steps",
})  # fmt: skip
_ENOUGH = 2
_TOKENS = ("training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step")
_PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_EIGHT = (("mx", "mxfp8"), ("float8", None))
_CHECKPOINTS = {"none": "none", "selective": "selective", "full": "full", "memorybudget": "selective"}


def _starts(words: tuple[str, ...]) -> bool:
    program = words[0] if words else ""
    if program in ("torchtitan.train", "torchtitan/train.py") or program.endswith("/torchtitan/train.py"):
        return True
    flags = any(word.partition("=")[0] in ("--job.config_file", "--module", "--job.config-file") for word in words)
    return (program.endswith("train.py") and flags and "--job" in " ".join(words)) or program.endswith("run_train.sh")


def _launch(source: Source) -> Command | None:
    return command_of(source, _starts)


def _keys(source: Source) -> Keys:
    if source.kind == "toml":
        return source.keys
    if source.kind == "python":
        return _entry(source, source.given.get("config"))
    command = _launch(source)
    return _of_command(source, command) if command is not None else {}


def _of_command(source: Source, command: Command) -> Keys:
    """Keys of the file that a command names, and its flags on top."""
    flags = keys_of_flags(arguments_of(command))
    variables = {name: Written(word.text, word.where) for name, word in command.environment.items()}
    named = next((found for name in _CONFIGS if (found := flags.get(name) or variables.get(name))), None)
    file = source.companion(named.value) if named is not None else None
    keys = dict(file.keys) if file is not None else {}
    chosen = {"module": flags.get("module") or variables.get("MODULE")}
    chosen["config"] = flags.get("config") or variables.get("CONFIG")
    own = {name: each for name, each in flags.items() if name not in _CONFIGS}
    return keys | own | {name: each for name, each in chosen.items() if each is not None}


def _entry(source: Source, name: str | None) -> Keys:
    """Keys of one configuration of a registry: the one that is named, else the first that is not for debugging."""
    module = source.module
    if module is None:
        return {}
    entries = list(module.entries)
    found = name or next((each for each in entries if "debug" not in each), entries[0] if entries else None)
    return keys_of(module.entry(found)) if found is not None else {}


def _recognises(source: Source) -> Certainty:
    if source.kind == "toml":
        tops = {name.partition(".")[0] for name in source.keys}
        return 90 if len(_OWN & source.keys.keys()) >= _ENOUGH and len(tops & _SECTIONS) >= _ENOUGH else 0
    if source.kind == "python":
        return 90 if "torchtitan" in source.text and "Trainer.Config" in source.text else 0
    if source.kind == "shell":
        command = _launch(source)
        own = command is not None and ("torchtitan" in source.text or "run_train" in source.text)
        return 70 if own and "primus" not in source.text.lower() else 0
    return 0


def _read(draft: Draft, source: Source) -> None:
    first = Written(TOOL.name, source.start)
    command = _launch(source) if source.kind == "shell" else None
    if command is not None and source.script is not None:
        state_gpus(draft, hardware_of(source.script, command))
    if source.kind == "python":
        _say_which(draft, source)
    compiled, parts = draft.take("compile.enable", "training.compile"), draft.take("compile.components")
    whole = parts is None or "model" in (listed(parts.value) or ())
    if compiled is not None:
        draft.state("stack", TOOL.name if is_on(compiled.value) and whole else f"{TOOL.name}-eager", compiled)
    draft.default("stack", f"{TOOL.name}-eager", "compile.enable is off")
    _model(draft, source)
    _batch(draft)
    state_layout(draft)
    _precision(draft)
    _optimizer(draft)
    _recompute(draft)
    _job(draft, first)
    loss = draft.take("loss._target_")
    if loss is not None and "Chunked" in str(loss.value):
        draft.state("loss", "fused", loss, "in chunks of tokens")
    draft.default("train.padding", "packed")


def _say_which(draft: Draft, source: Source) -> None:
    """Say which of the configurations of a registry is read, and that others can be chosen."""
    entries = list(source.module.entries) if source.module is not None else []
    if len(entries) > 1 and "config" not in source.given:
        name = next((each for each in entries if "debug" not in each), entries[0])
        others = ", ".join(each for each in entries if each != name)
        draft.keys["config"] = Written(name, source.start)
        draft.lose("config", f"{name} is read; --set config=NAME reads another: {others}", "none")


def _model(draft: Draft, source: Source) -> None:
    """The model: its name and flavour, the flavour of a registry, else the folder of its tokenizer."""
    name, chosen = draft.take("model.name"), draft.peek("config", "module")
    flavor, assets = (
        draft.take("model.flavor", "model_spec._args_.0"),
        draft.take("hf_assets_path", "model.hf_assets_path"),
    )
    foreign = draft.take("hf_transformers.model", "model.hf_model", "job.hf_model")
    family = str(name.value) if name is not None else _family(draft, source)
    size = str(flavor.value) if flavor is not None else ""
    written = flavor or name
    if foreign is not None and not size.startswith("debug"):
        draft.state("model", str(foreign.value), foreign)
    if written is None and chosen is not None:
        written, size = chosen, str(chosen.value).removeprefix(f"{family}_")
        size = size.replace("_", ".") if size[:1].isdigit() and "x" not in size else size
    found = catalogue_name(family, size)
    if found is not None:
        draft.state("model", found, written)
    shape = tiny_shape(family, size)
    if shape is not None and "model" not in draft.facts and foreign is None:
        state_shape(draft, Shape({key: (value, written) for key, value in shape.items()}))
    folder = Path(str(assets.value)).name if assets is not None else ""
    if assets is not None and "debug" not in size and folder not in ("tokenizer", ""):
        draft.state("model", folder, assets)
    if not any(key.partition(".")[0] == "model" for key in draft.facts):
        draft.miss("model", f"flavour '{size}' of '{family}' is not known here", "--model NAME")


def _family(draft: Draft, source: Source) -> str:
    """The family that the name of a configuration, its module, or a folder of the file tells, the nearest first."""
    chosen = [str(draft.keys[name].value) for name in ("config", "module") if name in draft.keys]
    around = [source.given.get("config", ""), *chosen, *reversed(source.path.parts)]
    return next((family for each in around if (family := family_in(each))), "")


def _batch(draft: Draft) -> None:
    """Sequences of a micro-batch where the file says its tokens."""
    tokens, total = draft.take(_TOKENS[0]), draft.take(_TOKENS[1])
    length = draft.peek("training.max_context_length", "training.seq_len")
    each = draft.value(tokens, positive), draft.value(length, positive) or 2048
    if isinstance(each[0], int) and isinstance(each[1], int):
        count = max(1, each[0] // each[1])
        draft.state("train.micro_batch", count, tokens, f"{each[0]:,} tokens of {each[1]:,} each")
    whole = draft.value(total, positive_or_open)
    if isinstance(whole, int) and isinstance(each[1], int):
        draft.state("train.global_batch", max(1, whole // each[1]), total, f"{whole:,} tokens")


def _precision(draft: Draft) -> None:
    weights, products = draft.take("training.dtype"), draft.take("training.mixed_precision_param")
    for name, written in _converters(draft).items():
        for word, recipe in _EIGHT:
            if word in name:
                draft.state("precision", "fp8", written)
                named = draft.take(
                    *(key for key in draft.keys if key.endswith("recipe_name") and word in _near(draft, key))
                )
                said = plain(named.value) if named is not None else ""
                draft.state(
                    "train.fp8_recipe", recipe or (said if said in ("tensorwise", "rowwise") else None), written
                )
        if "nvfp4" in name:
            draft.lose(next(key for key, each in draft.keys.items() if each is written), "trains in 4 bit")
    for key, found, otherwise in (("precision", products, "bf16"), ("train.weights_dtype", weights, "fp32")):
        if found is not None:
            draft.state(key, _PRECISIONS.get(str(found.value)), found)
        draft.default(key, otherwise)


def _near(draft: Draft, key: str) -> str:
    """The group of a key, and what is called there."""
    group = key.rpartition(".")[0]
    target = draft.peek(f"{group}._target_")
    return plain(f"{group} {target.value if target is not None else ''}")


def _converters(draft: Draft) -> Mapping[str, Written]:
    """What converts the model, by the plain name of each converter."""
    found = draft.take("model.converters")
    words = {plain(word): found for word in listed(found.value) or ()} if found is not None else {}
    called = {
        plain(str(each.value)): each
        for name, each in draft.keys.items()
        if "converters." in name and name.endswith("_target_")
    }
    old = draft.on("float8.enable_float8_linear", "training.enable_fp8_training")
    return {**words, **called, **({"float8": old} if old is not None else {})}


def _optimizer(draft: Draft) -> None:
    target = draft.take("optimizer._target_")
    groups = [name for name in draft.keys if name.endswith(".optimizer_name")]
    muon = next((name for name in groups if "muon" in plain(draft.keys[name].value)), None)
    if muon is not None or groups:
        state_optimizer(draft, muon or groups[0], draft.keys[muon or groups[0]])
    elif target is not None and "adamw" in plain(target.value):
        draft.state("optimizer", "adamw", target)
    state_optimizer(draft, "optimizer.name", draft.peek("optimizer.name"))
    draft.default("optimizer", "adamw")


def _recompute(draft: Draft) -> None:
    mode, target = draft.take("activation_checkpoint.mode"), draft.take("activation_checkpoint._target_")
    none = draft.keys.get("activation_checkpoint")
    if mode is not None:
        draft.state("layout.recompute", _CHECKPOINTS.get(plain(mode.value)), mode)
    elif target is not None:
        word = str(target.value)
        draft.state("layout.recompute", "full" if "FullAC" in word else "selective", target)
    elif none is not None and none.value is None:
        draft.state("layout.recompute", "none", none)
    draft.default("layout.recompute", "selective")
    host = draft.on("training.enable_cpu_offload", "experimental.enable_cpu_offload")
    if host is not None:
        draft.state("layout.offload", "params", host)
    saved, interval = draft.take("checkpoint.enable", "checkpoint.enable_checkpoint"), draft.take("checkpoint.interval")
    mode = draft.take("checkpoint.async_mode")
    if saved is not None and is_on(saved.value):
        draft.state("train.checkpoint_every", draft.value(interval, positive_or_open) or 500, interval or saved)
        draft.state("train.async_checkpoint", plain(mode.value) != "disabled" if mode is not None else None, mode)
    tested, every = draft.on("validation.enable", "validator.enable"), draft.take("validation.freq", "validator.freq")
    if tested is not None:
        draft.state("train.evaluate_every", draft.value(every, positive_or_open) or 10, every or tested)


def _job(draft: Draft, first: Written) -> None:
    """Pre-training, unless adapters are added or the data are conversations."""
    adapted = next((name for name in draft.keys if "LoRAConverter" in str(draft.keys[name].value)), None)
    talks = next((each for each in draft.keys.values() if "ChatProcessor" in str(each.value)), None)
    if adapted is not None:
        group = adapted.rpartition(".")[0]
        draft.state("job", "lora", draft.take(adapted))
        rank, targets = draft.take(f"{group}.rank"), draft.take(f"{group}.target_modules")
        draft.state("lora.rank", draft.value(rank, positive), rank)
        draft.default("lora.rank", 8)
        if targets is not None:
            draft.state("lora.targets", listed(targets.value), targets)
        draft.default("lora.targets", ("all-linear",))
    draft.state("job", "sft", talks) if talks is not None else None
    draft.state("job", "pretrain", draft.peek("model.name", "model_spec._target_", "training.dataset") or first)


TOOL = Tool(
    name="torchtitan",
    title="TorchTitan",
    reads="TOML files, registries of configurations in Python, and the commands that start them",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
