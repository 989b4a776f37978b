"""The whole answer as JSON: the contract that scripts rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from xe_sizer.report.options import Options

SHOWS = "answer"
ENDINGS = (".json",)


def render(answer: Any, options: Options) -> str:
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n"
