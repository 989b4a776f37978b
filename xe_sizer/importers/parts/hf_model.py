"""What the files of launchers leave open: they start a job without saying of which model it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.importers.draft import Draft


def miss_model(draft: Draft) -> None:
    """Say that the model is missing, and how to name it."""
    draft.miss("model", f"a file of {draft.tool} names none", "the trainer's configuration too")
