"""What every refusal of bad input must look like."""

from __future__ import annotations

from .conftest import Ran


def refused(ran: Ran, place: str, *words: str, hint: str | None = None) -> None:
    """Code 2, an empty stdout, no traceback, and a line that starts with the place and has the words."""
    assert ran.code == 2, ran.out[:200] + ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    lines = ran.err.splitlines()
    found = [index for index, line in enumerate(lines) if line.startswith(f"{place}: ")]
    assert found, ran.err
    told = [index for index in found if all(word in lines[index] for word in words)]
    assert told, ran.err
    if hint is not None:
        after = lines[told[0] + 1] if told[0] + 1 < len(lines) else ""
        assert after.startswith("  hint: "), ran.err
        assert hint in after
