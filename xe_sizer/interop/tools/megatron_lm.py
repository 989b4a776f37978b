"""Megatron-LM: launch scripts, model configurations that scripts source, functional tests, and `--yaml-cfg` files."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.interop.draft import Table, globs
from xe_sizer.interop.huggingface import state_rollout
from xe_sizer.interop.launch import find_command, flag_keys, launched_hardware, state_gpus
from xe_sizer.interop.manifests import arguments
from xe_sizer.interop.megatron import (
    SAYS,
    SCHEDULE,
    Arguments,
    megatron_flags,
    megatron_lacks,
    megatron_tells,
    one_connection,
    state_megatron,
    state_model,
)
from xe_sizer.interop.megatron import TABLE as ARGUMENTS
from xe_sizer.interop.readers.shell_script import Word, parse_flags, read_script, unwrapped
from xe_sizer.interop.source import Tool
from xe_sizer.interop.values import Written, above_zero_or_off, plain, positive, switch
from xe_sizer.interop.write import Added, Exporter, ToolFiles, command_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.huggingface import Stated
    from xe_sizer.interop.readers.shell_script import Command
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.interop.write import Plan

# Launch scripts of Megatron-LM: with torchrun, and as a batch script of Slurm.

_SCRIPT = "pretrain_gpt.py"
NOTHING_FURTHER: Mapping[str, Any] = MappingProxyType({})
_FIRST_NODE = "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
_ENDPOINT = "$MASTER_ADDR:29500"
_RENDEZVOUS = ("--rdzv_backend", "c10d", "--rdzv_endpoint", _ENDPOINT)


def _write(plan: Plan) -> ToolFiles:
    nodes, per_node = _hardware(plan)
    words = ["torchrun", "--nnodes", str(nodes), "--nproc_per_node", str(per_node), *(_RENDEZVOUS * (nodes > 1))]
    text = f"#!/bin/sh\n{one_connection(plan)}{_command_text(words, plan)}"
    first = "MASTER_ADDR in the environment of every node: the name of the first one"
    yours = (*megatron_lacks(plan), *([first] if nodes > 1 else []))
    run = "sh FILE, on each node, from the folder of Megatron-LM"
    return ToolFiles(text, run=run, yours=yours, told=megatron_tells(plan))


def _command_text(words: Sequence[str], plan: Plan, further: Mapping[str, Any] = NOTHING_FURTHER) -> str:
    """The command with the plan's arguments; the shell fills in the endpoint."""
    text = command_text([*words, _SCRIPT], {**megatron_flags(plan), **further})
    return text.replace(f"'{_ENDPOINT}'", f'"{_ENDPOINT}"')


def megatron_batch(plan: Plan, directives: str = "", further: Mapping[str, Any] = NOTHING_FURTHER) -> ToolFiles:
    """A script for sbatch that starts Megatron-LM with torchrun on every node.

    directives : further ones; further : arguments beside those of the plan
    """
    nodes, per_node = _hardware(plan)
    head = f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={per_node}\n"
    head += directives
    words = ["srun", "torchrun", "--nnodes", str(nodes), "--nproc_per_node", str(per_node), *_RENDEZVOUS]
    text = f"{head}{_FIRST_NODE}{one_connection(plan)}{_command_text(words, plan, further)}"
    run = "sbatch FILE, from the folder of Megatron-LM"
    return ToolFiles(text, run=run, yours=megatron_lacks(plan), told=megatron_tells(plan))


def megatron_words(plan: Plan, host: str, checkpoints: str) -> list[str]:
    """The command of each node as words.

    host : the name of the first node; checkpoints : the folder that they are saved to
    """
    nodes, per_node = _hardware(plan)
    flags = megatron_flags(plan)
    if flags.get("save"):
        flags |= {"save": checkpoints, "load": checkpoints}
    words = ["torchrun", "--nnodes", str(nodes), "--nproc_per_node", str(per_node)]
    words += ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"{host}:29500"] if nodes > 1 else []
    return [*words, _SCRIPT, *arguments(flags)]


def _hardware(plan: Plan) -> tuple[int, int]:
    plan.said("gpus")
    return plan.take("nodes", 1), plan.take("gpus_per_node", 1)


EXPORTERS = (
    Exporter(
        name="megatron-lm",
        title="Megatron-LM",
        ending=".sh",
        write=_write,
        says=SAYS,
        added=Added(SCHEDULE),
        aliases=("megatron",),
    ),
)


_OWN = frozenset(
    globs("""
    --num-layers --hidden-size --num-attention-heads --seq-length --micro-batch-size --tensor-model-parallel-size
    --pipeline-model-parallel-size --max-position-embeddings --use-mcore-models --train-iters
    --make-vocab-size-divisible-by
    """)
)  # fmt: skip
_ENOUGH = 3  # of these flags, from which on a command is surely Megatron's
_TESTED = "MODEL_ARGS."
_GROUPS = ("language_model.", "model_parallel.")
_CHECKPOINTS = ("TOKENIZER_MODEL", "HF_MODEL_CKPT", "HF_MODEL")
_PREFIXES = ("", *_GROUPS)
_TUNING = ("finetune", "sft", "instruct")
_OWN_KEYS = Table(file="megatron_lm/own")
_SAMPLING = globs("num_tokens_to_generate incoming_requests_per_sec incoming_requests_per_step out_seq_length")
_ANSWERS: Mapping[str, Stated] = {
    "prompts": (("grpo_prompts_per_step",), positive, 32),
    "group": (("grpo_group_size",), positive, 2),
    "updates": (("grpo_iterations",), positive, 2),
    "tp": (("rl_inference_tensor_model_parallel_size",), positive, None),
    "pp": (("rl_inference_pipeline_model_parallel_size",), positive, None),
    "ep": (("rl_inference_expert_model_parallel_size",), positive, None),
    "partial": (("rl_partial_rollouts",), switch, None),
}
TABLE = replace(_OWN_KEYS, further=(replace(ARGUMENTS, prefixes=_PREFIXES),))


def _starts(words: tuple[str, ...]) -> bool:
    """Whether a command starts a program with Megatron's arguments."""
    flags = {word.partition("=")[0] for word in words[1:]}
    return words[0].endswith((".py", "}")) and (len(_OWN & flags) >= _ENOUGH or "--yaml-cfg" in flags)


def _configuration(source: Source) -> Command | None:
    """Variables of a script that holds arguments and starts nothing, as one command."""
    script = source.script
    if script is None:
        return None
    texts = {
        name: value.text if isinstance(value, Word) else " ".join(word.text for word in value)
        for name, value in script.variables.items()
    }
    held = [name for name, text in texts.items() if text.lstrip().startswith("--")]
    if not held:
        return None
    text = " ".join(f"${{{name}[@]}}" for name in held)
    further = read_script(f"{source.text}\npretrain.py {text}\n", source.name, source.given, source.text_beside)
    command = further.commands[-1] if further.commands else None
    return command if command is not None and _OWN & {word.text for word in command.words} else None


def _command(source: Source) -> Command | None:
    return find_command(source, _starts) or _configuration(source)


def _recognises(source: Source) -> Certainty:
    if source.kind == "shell":
        return 85 if find_command(source, _starts) else 70 if _configuration(source) is not None else 0
    if any(name.startswith(f"{_TESTED}--") for name in source.keys):
        return 90
    groups = {name.partition(".")[0] for name in source.keys}
    return 80 if {"language_model", "model_parallel"} <= groups else 0


def _keys(source: Source) -> Keys:
    """Arguments in snake case, without dashes, whatever holds them."""
    if source.kind != "shell":
        return {_plain(name): written for name, written in source.keys.items()}
    command = _command(source)
    if command is None:
        return {}
    keys = dict(flag_keys(parse_flags(unwrapped(command).command.words[1:])))
    variables = source.script.variables if source.script is not None else {}
    for name in _CHECKPOINTS:
        named = variables.get(name)
        if "tokenizer_model" not in keys and isinstance(named, Word) and not named.unknown and named.text:
            keys["tokenizer_model"] = Written(named.text, named.where)
    return keys


def _plain(name: str) -> str:
    return name.removeprefix(_TESTED).lstrip("-").replace("-", "_") if name.startswith(_TESTED) else name


def _read(draft: Draft, source: Source) -> None:
    arguments = Arguments(draft, _PREFIXES)
    command = _command(source) if source.kind == "shell" else None
    draft.state("stack", "megatron-lm", next(iter(draft.keys.values()), None))
    if command is not None and source.script is not None:
        state_gpus(draft, launched_hardware(source.script, command))
        named = arguments.take("yaml_cfg")
        further = source.companion(named.value) if named is not None else None
        for name, written in (further.keys if further is not None else {}).items():
            draft.keys.setdefault(name, written)
    _job(draft, arguments, command)
    stage = draft.peek("zero_stage")
    if stage is not None:
        draft.apply(_OWN_KEYS)
    state_megatron(arguments)
    state_model(arguments)
    if draft.fact("job") == "grpo":
        _answers(draft)
    draft.default("train.padding", "packed", "the data fill every sequence")
    if not any(key == "model" or key.startswith("model.") for key in draft.facts):
        draft.miss("model", "no argument says the shape of the model", "--model NAME")


def _answers(draft: Draft) -> None:
    """How answers are written: `_add_rl_args` of megatron/training/arguments.py."""
    state_rollout(draft, _ANSWERS)
    beta = draft.take("grpo_kl_beta")
    none = beta is not None and not draft.value(beta, above_zero_or_off)
    draft.state("train.reference", "none" if none else None, beta)
    draft.default("train.reference", "copy")
    moved = draft.on("rl_offload_optimizer_during_inference")
    if moved is not None:
        draft.state("rollout.offload", "optimizer", moved)


def _job(draft: Draft, arguments: Arguments, command: Command | None) -> None:
    teacher = arguments.take("export_kd_teacher_load") or arguments.on("distillation")
    rewarded = arguments.on("perform_rl_step") or next(
        (each for name, each in draft.keys.items() if name.startswith("grpo_group_size")), None
    )
    generates = next((draft.keys[name] for name in _SAMPLING if name in draft.keys), None)
    mode = draft.take("MODE")
    if mode is not None and plain(mode.value) == "inference":
        generates = generates or mode
    draft.state("job", "inference" if generates else None, generates)
    tuned = arguments.on("sft") or arguments.peek("finetune_hf_dataset")
    for found, job in ((rewarded, "grpo"), (teacher, "distill"), (tuned, "sft")):
        if found is not None:
            draft.state("job", job, found)
    program = unwrapped(command).command.words[0] if command is not None else None
    if program is not None and command is not None and program.where.line != 0:
        name = program.text.rpartition("/")[2].lower()
        job = "sft" if any(word in name for word in _TUNING) else "pretrain"
        where = Written(name, program.where)
        draft.state("job", job, where) if name.startswith(("pretrain_", *_TUNING)) else None
    draft.default("job", "pretrain", "all weights are trained on a stream of tokens")


TOOL = Tool(
    name="megatron-lm",
    aliases=("megatron",),
    title="Megatron-LM",
    reads="launch scripts of pretrain_gpt.py and its like, sourced model configurations, model_config.yaml of tests",
    recognises=_recognises,
    read=_read,
    table=TABLE,
    keys=_keys,
)
