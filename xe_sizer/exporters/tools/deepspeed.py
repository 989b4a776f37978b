"""Launch scripts of DeepSpeed that start TRL, with the DeepSpeed configuration beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from xe_sizer.exporters.as_text import command_text
from xe_sizer.exporters.exporter import Exporter, Written
from xe_sizer.exporters.parts.deepspeed import deepspeed_configuration
from xe_sizer.exporters.parts.trl import ADDED, SAYS, trainer_of, trl_settings
from xe_sizer.exporters.parts.words import as_words

if TYPE_CHECKING:
    from xe_sizer.exporters.plan import Plan

_CONFIGURATION = "deepspeed.json"


def _write(plan: Plan) -> Written:
    values = trl_settings(plan) | {"deepspeed": _CONFIGURATION}
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    words = [
        "deepspeed", "--num_nodes", str(nodes), "--num_gpus", str(per_node), "--module",
        f"trl.scripts.{trainer_of(plan)}",
    ]  # fmt: skip
    configuration = json.dumps(deepspeed_configuration(plan), indent=2) + "\n"
    text = "#!/bin/sh\n" + command_text(words, as_words(values))
    return Written(text, beside={_CONFIGURATION: configuration}, run="sh FILE")


EXPORTERS = (
    Exporter(
        name="deepspeed",
        title="DeepSpeed",
        ending=".sh",
        write=_write,
        says=(*SAYS, "layout.zero", "gpus"),
        added=ADDED,
    ),
)
