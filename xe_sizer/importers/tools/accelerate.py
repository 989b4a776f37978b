"""accelerate's configuration files, read alone or beside the configuration of a trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.accelerate import TABLE, state_accelerate
from xe_sizer.importers.parts.hf_model import miss_model
from xe_sizer.importers.tool import Tool

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty

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
    draft.apply(TABLE)
    miss_model(draft)


TOOL = Tool(
    name="accelerate",
    title="accelerate",
    reads="YAML and JSON files of `accelerate config`, with the DeepSpeed files that they name",
    recognises=_recognises,
    read=_read,
    table=TABLE,
)
