"""Signs of reports for terminals and pipes whose encoding cannot hold them."""

from __future__ import annotations

_TO_ASCII = str.maketrans(
    {
        "└": "+", "█": "#", "▌": "+", "░": ".", "│": "|", "─": "-", "━": "=", "×": "x", "·": "*", "●": "*", "–": "-",
        "—": "-", "…": "...", "≤": "<=", "≥": ">=", "²": "^2", "√": "sqrt", "µ": "u", "μ": "u", "‘": "'", "’": "'",
        "“": '"', "”": '"', "✅": "[yes]", "⚠": "[caution]", "\ufe0f": "", "❌": "[no]", "\u200b": "",
    }
)  # fmt: skip


def encodable(text: str, encoding: str) -> str:
    """`text` as it is where `encoding` can hold it, else with the nearest ASCII signs."""
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return text.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")
    return text
