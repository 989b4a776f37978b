"""TRL configurations, which `trl sft --config` and the like run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.exporters.as_text import yaml_text
from xe_sizer.exporters.exporter import Exporter, Written
from xe_sizer.exporters.parts.accelerate import trainer_sharding
from xe_sizer.exporters.parts.trl import ADDED, SAYS, trainer_of, trl_settings

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan


def _write(plan: Plan) -> Written:
    values = trl_settings(plan) | trainer_sharding(plan)
    nodes, gpus = plan.take("nodes", 1), plan.take("gpus")
    machines = f" --num_machines {nodes}" if nodes > 1 else ""
    return Written(yaml_text(values), run=f"trl {trainer_of(plan)} --config FILE --num_processes {gpus}{machines}")


EXPORTERS = (Exporter(name="trl", title="TRL", ending=".yaml", write=_write, says=(*SAYS, "layout.zero"), added=ADDED),)
