"""Settings as the words that flags of Hugging Face scripts take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def as_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Switches as `true` and `false`, which these scripts read after a flag that is on unasked."""
    return {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}
