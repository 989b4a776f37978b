"""Launch scripts of Megatron-LM: with torchrun, and as a batch script of Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.exporters.as_text import command_text
from xe_sizer.exporters.exporter import Added, Exporter, Written
from xe_sizer.exporters.parts.megatron import SAYS, SCHEDULE, megatron_flags, megatron_lacks

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_RENDEZVOUS = "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"


def _write(plan: Plan) -> Written:
    nodes, per_node = _hardware(plan)
    words = ["torchrun", "--nnodes", str(nodes), "--nproc_per_node", str(per_node)]
    text = "#!/bin/sh\n" + command_text([*words, "pretrain_gpt.py"], megatron_flags(plan))
    return Written(text, run="sh FILE, on each node, from the folder of Megatron-LM", yours=megatron_lacks(plan))


def megatron_batch(plan: Plan) -> Written:
    """A script for sbatch that starts Megatron-LM with torchrun on every node."""
    nodes, per_node = _hardware(plan)
    head = f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={per_node}\n"
    words = [
        "srun", "torchrun", "--nnodes", str(nodes), "--nproc_per_node", str(per_node), "--rdzv_backend", "c10d",
        "--rdzv_endpoint", "$MASTER_ADDR:29500", "pretrain_gpt.py",
    ]  # fmt: skip
    command = command_text(words, megatron_flags(plan)).replace("'$MASTER_ADDR:29500'", '"$MASTER_ADDR:29500"')
    run = "sbatch FILE, from the folder of Megatron-LM"
    return Written(head + _RENDEZVOUS + command, run=run, yours=megatron_lacks(plan))


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
