"""accelerate's configuration files, read alone or beside the configuration of a trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.interop.huggingface import (
    ACCELERATE_TABLE,
    ADDED,
    SAYS,
    accelerate_configuration,
    as_words,
    miss_model,
    state_accelerate,
    trl_settings,
    trl_trainer,
)
from xe_sizer.interop.source import Tool
from xe_sizer.interop.write import Exporter, ToolFiles, command_text, yaml_text

if TYPE_CHECKING:
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.source import Certainty, Source
    from xe_sizer.interop.write import Plan

# Launch scripts of accelerate that start TRL, with the accelerate configuration beside them.

_CONFIGURATION = "accelerate.yaml"


def _write(plan: Plan) -> ToolFiles:
    words = ["accelerate", "launch", "--config_file", _CONFIGURATION, "-m", f"trl.scripts.{trl_trainer(plan)}"]
    text = "#!/bin/sh\n" + command_text(words, as_words(trl_settings(plan)))
    return ToolFiles(text, beside={_CONFIGURATION: yaml_text(accelerate_configuration(plan))}, run="sh FILE")


EXPORTERS = (
    Exporter(
        name="accelerate",
        title="accelerate",
        ending=".sh",
        write=_write,
        says=(*SAYS, "layout.zero", "layout.tp", "layout.cp", "layout.zero_group", "gpus"),
        added=ADDED,
    ),
)


_OWN = frozenset(
    {
        "compute_environment",
        "num_processes",
        "num_machines",
        "mixed_precision",
        "machine_rank",
        "main_training_function",
    }
)
_SURE = 2


def _recognises(source: Source) -> Certainty:
    """A trainer's file is surer, so that this one is read beside it."""
    return 20 if "distributed_type" in source.keys and len(_OWN & source.keys.keys()) >= _SURE else 0


def _read(draft: Draft, source: Source) -> None:
    draft.default("stack", "hf-trainer", "a loop of accelerate's around models of transformers")
    state_accelerate(draft, source)
    draft.apply(ACCELERATE_TABLE)
    miss_model(draft)


TOOL = Tool(
    name="accelerate",
    title="accelerate",
    reads="YAML and JSON files of `accelerate config`, with the DeepSpeed files that they name",
    recognises=_recognises,
    read=_read,
    table=ACCELERATE_TABLE,
)
