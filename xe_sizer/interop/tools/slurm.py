"""Slurm scripts for training: `srun` starts accelerate with one of TRL's trainers on each node, or Megatron-LM.

Directives and variables: slurm.schedmd.com/sbatch.html; flags: accelerate src/accelerate/commands/launch.py (1.12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from xe_sizer.interop.huggingface import ADDED, SAYS, accelerate_configuration, as_words, trl_settings, trl_trainer
from xe_sizer.interop.megatron import SAYS as MEGATRON
from xe_sizer.interop.megatron import SCHEDULE
from xe_sizer.interop.tools.megatron_lm import megatron_batch
from xe_sizer.interop.write import Exporter, ToolFiles, command_text, yaml_text

if TYPE_CHECKING:
    from xe_sizer.interop.write import Plan

_CONFIGURATION = "accelerate.yaml"
_PORT = 29_500
_RANKS, _PRETRAINS = ("tp", "pp", "cp", "ep"), "pretrain"
_DIRECTIVES = """\
#!/bin/bash
#SBATCH --job-name=training
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={per_node}

"""
_HEAD = 'head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'


def _write(plan: Plan) -> ToolFiles:
    """Megatron-LM pre-trains and splits the model; all else is TRL's."""
    split = any(plan.peek(f"layout.{ranks}", 1) > 1 for ranks in _RANKS)
    return megatron_batch(plan) if split or plan.peek("job") == _PRETRAINS else _write_trl(plan)


def _write_trl(plan: Plan) -> ToolFiles:
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", plan.peek("gpus", 1))
    configuration = accelerate_configuration(plan)
    launch = f"srun accelerate launch --config_file {_CONFIGURATION}"
    if nodes > 1:
        launch += f' --rdzv_backend c10d \\\n  --main_process_ip "$head_node" --main_process_port {_PORT}'
    if nodes > 1 and configuration["distributed_type"] == "DEEPSPEED":
        launch += " --deepspeed_multinode_launcher standard"
    trainer = command_text(["-m", f"trl.scripts.{trl_trainer(plan)}"], as_words(trl_settings(plan)))
    head = _HEAD if nodes > 1 else ""
    text = f"{_DIRECTIVES.format(nodes=nodes, per_node=per_node)}{head}{launch} \\\n  {trainer}"
    return ToolFiles(text, beside={_CONFIGURATION: yaml_text(configuration)}, run="sbatch FILE")


EXPORTERS = (
    Exporter(
        name="slurm",
        title="Slurm",
        ending=".sbatch",
        write=_write,
        says=tuple(key for key in SAYS if key in MEGATRON),
        added=replace(ADDED, schedule=f"{ADDED.schedule} of TRL, or {SCHEDULE} of Megatron-LM"),
    ),
)
