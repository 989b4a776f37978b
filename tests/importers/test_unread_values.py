"""A value that a file leaves to a variable is neither read nor replaced by the tool's default: it is told."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
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


def files_of(table: Table) -> Iterator[str]:
    """The YAML files of a table and of those that follow it."""
    yield from [table.file.partition("/")[0]] if table.file else []
    for each in (*table.further, *table.beside):
        yield from files_of(each)


def test_each_yaml_file_belongs_to_the_table_of_a_tool() -> None:
    files = {path.stem for path in Path(tools.__path__[0]).glob("*.yaml")}
    assert files == {file for tool in all_tools().values() for file in files_of(tool.table)}
    assert all(tool.table.whole.losses and tool.table.whole.silent for tool in all_tools().values())


OPENED = """
import sys
from pathlib import Path
from xe_sizer.interop.read import read_foreign
from xe_sizer.interop.source import Asked
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
read_foreign([Path(sys.argv[1])], Asked(hardware={"gpus": 8}))
print(*(Path(each).stem for each in opened if "/interop/tools/" in each and each.endswith(".yaml")))
"""


def test_the_table_of_a_tool_is_opened_only_when_the_file_is_that_tools(tmp_path: Path) -> None:
    job = tmp_path / "job.yml"
    job.write_text("base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\nsequence_len: 4096\nnum_epochs: 1\n")
    ran = subprocess.run([sys.executable, "-c", OPENED, job], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["axolotl", "fsdp"]
