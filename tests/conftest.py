"""Which tests are slow, and what all start with. Pytest finds `cases` here, which tests share."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import Phase, settings

FOLDER = Path(__file__).parent
# Folders and files that take seconds each; every package has tests besides. CONTRIBUTING.md says when to run them.
SLOW = frozenset({
    "browser",
    "property",
    "trace",
    "cli/test_advice.py",
    "cli/test_commands_of_pages.py",
    "cli/test_every_format.py",
    "cli/test_serve_command.py",
    "contract/test_adding.py",
    "contract/test_through_the_cli.py",
    "measure/test_on_a_cpu.py",
    "studies/test_plan_questions.py",
    "test_notebooks.py",
})  # fmt: skip

# The usual run draws the same examples each time and keeps none; `--hypothesis-profile random` draws others. Neither
# has a limit on the time of an example. Shrinking takes minutes where an example takes a second.
settings.register_profile("usual", derandomize=True, deadline=None, database=None, phases=set(Phase) - {Phase.shrink})
settings.register_profile("random", deadline=None, database=None)
settings.load_profile("usual")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("random jobs", "of tests/property/test_company.py")
    group.addoption("--random-jobs", type=int, default=0, help="so many random jobs of each kind, not the usual few")
    group.addoption("--first-seed", type=int, default=0, help="seed of the first of them")


@pytest.fixture(autouse=True)
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes into a pipe of which nobody says how wide it is, whatever starts the tests."""
    monkeypatch.delenv("COLUMNS", raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        place = item.path.relative_to(FOLDER)
        if {place.as_posix(), place.parts[0]} & SLOW:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Tests are no garbage, and tens of thousands of them are not looked through again and again.

    What is made meanwhile is looked at more rarely than Python does, whose command has no collection at all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_configure() -> None:
    gone = sorted(name for name in SLOW if not (FOLDER / name).exists())
    if gone:
        raise pytest.UsageError(f"tests/conftest.py calls tests slow that are gone: {', '.join(gone)}")
