"""Which tests are slow, and what all start with. Pytest finds `cases` here, which tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
# Folders and files that take seconds each; every package has tests besides. CONTRIBUTING.md says when to run them.
SLOW = frozenset({
    "browser",
    "property",
    "trace",
    "cli/test_advice.py",
    "cli/test_every_format.py",
    "cli/test_serve_command.py",
    "contract/test_adding.py",
    "contract/test_through_the_cli.py",
    "studies/test_plan_questions.py",
})  # fmt: skip


@pytest.fixture(autouse=True)
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes into a pipe of which nobody says how wide it is, whatever starts the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(FOLDER)
        if {place.as_posix(), place.parts[0]} & SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_configure() -> None:
    gone = sorted(name for name in SLOW if not (FOLDER / name).exists())
    if gone:
        raise pytest.UsageError(f"tests/conftest.py calls tests slow that are gone: {', '.join(gone)}")
