"""The whole result as JSON: the contract that scripts rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from xe_sizer.report.batch import Batch
    from xe_sizer.report.options import Options
    from xe_sizer.result.serving import Answer


def render(result: Answer, options: Options) -> str:
    return pretty(result)


def render_batch(batch: Batch, options: Options) -> str:
    from xe_sizer.report.batch import batch_json  # tables and all, which one result does not need

    return pretty(batch_json(batch))


def pretty(value: Any) -> str:
    """A result of any command as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
