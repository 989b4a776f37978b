"""DeepSpeed's configuration files, read alone or beside the configuration of a trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xe_sizer.importers.parts.deepspeed import TABLE, state_deepspeed
from xe_sizer.importers.parts.hf_model import miss_model
from xe_sizer.importers.tool import Tool

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft
    from xe_sizer.importers.source import Source
    from xe_sizer.importers.tool import Certainty

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
    table=TABLE,
)
