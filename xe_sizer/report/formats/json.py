"""The whole answer as JSON: the contract that scripts rely on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from xe_sizer.report.document import Options

SHOWS = "answer"
ENDINGS = (".json",)


def render(answer: Any, options: Options) -> str:
    try:
        encoded = msgspec.json.encode(answer)
    except UnicodeEncodeError:  # the name of a file need not be text
        encoded = msgspec.json.encode(_as_text(msgspec.to_builtins(answer)))
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def _as_text(value: Any) -> Any:
    """Plain data with U+FFFD for what is no character."""
    if isinstance(value, dict):
        return {_as_text(key): _as_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_text(item) for item in value]
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value
