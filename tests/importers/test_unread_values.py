"""A value that a file leaves to a variable is neither read nor replaced by the tool's default: it is told."""

from __future__ import annotations

from pathlib import Path

from xe_sizer.errors import Location
from xe_sizer.interop import tools
from xe_sizer.interop.draft import Draft, Key, Table
from xe_sizer.interop.read import all_tools
from xe_sizer.interop.values import Unread, Written, positive

TABLE = Table(
    keys=(
        Key(("batch", "old_batch"), "train.micro_batch", positive, default=8),
        Key(("steps",), "train.steps", positive, default=100),
    ),
    silent=("name",),
)


def test_unread_values_are_told_and_no_default_takes_their_place() -> None:
    where = Location("job.yml", 3, 5)
    unread = Written(Unread("${B}", "$B is not known; pass --set B=VALUE"), where)
    draft = Draft("tool", {"batch": unread, "name": unread, "steps": Written(5, where)})
    draft.apply(TABLE)
    draft.finish(TABLE)
    assert draft.facts.keys() == {"train.steps"}
    assert {each.key: (each.effect, str(each.where)) for each in draft.ignored} == {
        "batch": ("memory or time", "job.yml:3:5"),
        "name": ("none", "job.yml:3:5"),
    }
    assert draft.ignored[0].why == "not known from the file: $B is not known; pass --set B=VALUE"


def test_each_file_of_losses_is_that_of_one_tool() -> None:
    files = sorted(path.stem for path in Path(tools.__path__[0]).glob("*.yaml"))
    assert files == sorted(tool.table.file for tool in all_tools().values() if tool.table.file)
    assert all(tool.table.whole.losses and tool.table.whole.silent for tool in all_tools().values() if tool.table.file)
