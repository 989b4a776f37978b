"""Slurm scripts for training: `srun` starts accelerate with one of TRL's trainers on each node, or Megatron-LM.

Directives and variables: slurm.schedmd.com/sbatch.html; flags: accelerate src/accelerate/commands/launch.py (1.12),
megatron/training/arguments.py (exit_duration_in_mins); TRL 1.16 resumes from the checkpoint that it is given.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.interop.huggingface import ADDED, SAYS, accelerate_configuration, as_words, trl_settings, trl_trainer
from xe_sizer.interop.megatron import SAYS as MEGATRON
from xe_sizer.interop.megatron import SCHEDULE
from xe_sizer.interop.tools.megatron_lm import megatron_batch
from xe_sizer.interop.write import LEARNING_RATE, RATES, Exporter, ToolFiles, command_text, yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.interop.write import Plan

CONFIGURATION = "accelerate.yaml"
PORT = 29_500
_FOLDERS = (("output_dir", "output"), ("save", "checkpoints"))  # of TRL, and of Megatron-LM
_RANKS, _PRETRAINS = ("tp", "pp", "cp", "ep"), "pretrain"
_DIRECTIVES = """\
#!/bin/bash
#SBATCH --job-name=training
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={per_node}
"""
_HEAD = 'head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'


def is_megatrons(plan: Plan) -> bool:
    """Whether Megatron-LM runs a plan, which pre-trains and splits the model; all else is TRL's."""
    return plan.peek("job") == _PRETRAINS or any(plan.peek(f"layout.{ranks}", 1) > 1 for ranks in _RANKS)


def launcher_words(configuration: Mapping[str, Any], file: str, nodes: int, host: str) -> list[str]:
    """accelerate on each node: how the processes of a configuration meet at the first one, whose name is `host`."""
    words = ["accelerate", "launch", "--config_file", file]
    if nodes > 1:
        words += ["--rdzv_backend", "c10d", "--main_process_ip", host, "--main_process_port", str(PORT)]
    if nodes > 1 and configuration["distributed_type"] == "DEEPSPEED":
        words += ["--deepspeed_multinode_launcher", "standard"]
    return words


def _write(plan: Plan) -> ToolFiles:
    """One run, or an array with a task for each learning rate, which may run side by side."""
    directives = f"#SBATCH --array=0-{len(plan.rates) - 1}\n" if plan.rates else ""
    found = megatron_batch(plan, directives) if is_megatrons(plan) else _write_trl(plan, directives)
    if not plan.rates:
        return found
    plan.said(RATES)
    # Tasks write to folders of their own; the placeholder of the rate becomes that of the task.
    head, rest = _after_directives(found.text)
    for flag, folder in _FOLDERS:
        rest = rest.replace(f"--{flag} {folder}", f'--{flag} "{folder}/lr-$rate"')
    rest = rest.replace(LEARNING_RATE, '"$rate"')
    chosen = f"rates=({' '.join(plan.rates)})\nrate=${{rates[$SLURM_ARRAY_TASK_ID]}}\n"
    return replace(found, text=f"{head}{chosen}{rest}", told=(*found.told, runs_told(plan)))


def runs_told(plan: Plan) -> str:
    """What a plan of several learning rates costs."""
    return f"{len(plan.rates)} runs, one for each learning rate: so many times the GPU-hours of the plan"


def _after_directives(text: str) -> tuple[str, str]:
    """A script after the last line that is a directive."""
    lines = text.splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    return "".join(lines[:place]), "".join(lines[place:])


def _write_trl(plan: Plan, directives: str = "", before: str = "", after: str = "") -> ToolFiles:
    """TRL's trainer on every node; with further directives, lines before the command, and words behind it."""
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", plan.peek("gpus", 1))
    configuration = accelerate_configuration(plan)
    launch = " ".join(launcher_words(configuration, CONFIGURATION, nodes, '"$head_node"'))
    trainer = command_text(["-m", f"trl.scripts.{trl_trainer(plan)}"], as_words(trl_settings(plan)))
    head = _HEAD if nodes > 1 else ""
    directives = _DIRECTIVES.format(nodes=nodes, per_node=per_node) + directives
    command = f"srun {launch} \\\n  {trainer.rstrip()}{after}\n"
    return ToolFiles(
        f"{directives}\n{before}{head}{command}", beside={CONFIGURATION: yaml_text(configuration)}, run="sbatch FILE"
    )


# Arrays: a run that is longer than a task may be, cut into tasks that go on where the one before stopped.

_TASK_H = 24
_MARGIN_MIN = 15  # for saving the last checkpoint of a task, and for starting
_RESUME = "last=$(ls -d output/checkpoint-* 2>/dev/null | sort -V | tail -n 1)\n"
_SAVED = "train.checkpoint_every"


def _write_array(plan: Plan) -> ToolFiles:
    """Tasks one after the other, as many as the run takes at most.

    Raises
    ------
    InputError : nothing is saved that a task could go on from, or too seldom
    """
    every = plan.peek(_SAVED)
    if not every:
        what = f"a task of a Slurm array goes on from a checkpoint, and the plan has no {_SAVED}"
        raise InputError(Problem(what, Location("--to"), "--checkpoint-every N saves one after so many steps"))
    again = float(every) * float(plan.peek("step_s", 0.0))  # since the last checkpoint, which a task does over
    useful = _TASK_H * 3600 - 60 * _MARGIN_MIN - again
    if useful <= again:
        what = f"{_SAVED}: {every} steps take {again / 3600:.1f} hours, and a task has {_TASK_H}"
        raise InputError(Problem(what, plan.where(_SAVED), "save more often"))
    tasks = math.ceil(float(plan.peek("total_s", 0.0)) / useful) or 1
    directives = f"#SBATCH --time={_TASK_H}:00:00\n#SBATCH --array=1-{tasks}%1\n"
    if is_megatrons(plan):
        leaves = _TASK_H * 60 - _MARGIN_MIN
        found = megatron_batch(plan, directives, {"load": "checkpoints", "exit-duration-in-mins": leaves})
    else:
        found = _write_trl(plan, directives, _RESUME, ' \\\n  ${last:+--resume_from_checkpoint "$last"}')
    limit = f"the time limit of a task (--time is {_TASK_H} hours, of which --array follows)"
    return replace(found, yours=(*found.yours, limit))


TRAINING_SAYS = tuple(key for key in SAYS if key in MEGATRON)
TRAINING_ADDED = replace(ADDED, schedule=f"{ADDED.schedule} of TRL, or {SCHEDULE} of Megatron-LM")
EXPORTERS = (
    Exporter("slurm", "Slurm", ".sbatch", _write, TRAINING_SAYS, TRAINING_ADDED),
    Exporter("slurm-array", "a Slurm array", ".sbatch", _write_array, TRAINING_SAYS, TRAINING_ADDED),
)
