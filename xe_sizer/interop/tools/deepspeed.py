"""Launch scripts of DeepSpeed that start TRL, with the DeepSpeed configuration beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from xe_sizer.interop.huggingface import (
    ADDED,
    DEEPSPEED_TABLE,
    SAYS,
    as_words,
    deepspeed_configuration,
    miss_model,
    state_deepspeed,
    trl_settings,
    trl_trainer,
)
from xe_sizer.interop.source import Tool
from xe_sizer.interop.write import Exporter, ToolFiles, command_text

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.write import Plan

_CONFIGURATION = "deepspeed.json"


def _write(plan: Plan) -> ToolFiles:
    values = trl_settings(plan) | {"deepspeed": _CONFIGURATION}
    nodes, per_node = plan.take("nodes", 1), plan.take("gpus_per_node", 1)
    plan.said("gpus")
    words = [
        "deepspeed", "--num_nodes", str(nodes), "--num_gpus", str(per_node), "--module",
        f"trl.scripts.{trl_trainer(plan)}",
    ]  # fmt: skip
    configuration = json.dumps(deepspeed_configuration(plan), indent=2) + "\n"
    text = "#!/bin/sh\n" + command_text(words, as_words(values))
    return ToolFiles(text, beside={_CONFIGURATION: configuration}, run="sh FILE")


EXPORTERS = (
    Exporter(
        name="deepspeed",
        title="DeepSpeed",
        ending=".sh",
        write=_write,
        says=(*SAYS, "layout.zero", "train.gradient_dtype", "train.reduce_dtype", "gpus"),
        added=ADDED,
    ),
)


# DeepSpeed's configuration files, read alone or beside the configuration of a trainer.

_OWN = frozenset({"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_clipping"})


def _recognises(source: Source) -> Certainty:
    """A trainer's file is surer, so that this one is read beside it."""
    tops = {name.partition(".")[0] for name in source.keys}
    return 20 if _OWN & tops and not {"model", "base_model", "model_name_or_path", "actor"} & tops else 0


def _read(draft: Draft, _: Source) -> None:
    draft.default("stack", TOOL.name, "no trainer's file says what it is used with")
    state_deepspeed(draft, draft.keys)
    miss_model(draft)


TOOL = Tool(
    name="deepspeed",
    title="DeepSpeed",
    reads="JSON configurations",
    recognises=_recognises,
    read=_read,
    table=DEEPSPEED_TABLE,
)
