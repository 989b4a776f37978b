"""Write docs/schemas/*.json, what `xe-sizer profiles schema` prints of each kind: python scripts/schemas.py"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xe_sizer.cli.schema import SCHEMAS, schema_of
from xe_sizer.report.document import Options
from xe_sizer.report.formats.json import render

FOLDER = Path(__file__).parents[1] / "docs" / "schemas"


def files() -> Iterator[tuple[Path, str]]:
    """Every schema with its place."""
    import xe_sizer.training.jobs  # noqa: F401  the names of jobs and adapters

    for kind in SCHEMAS:
        schema = schema_of(kind)
        yield FOLDER / schema["$id"].rpartition("/")[2], render(schema, Options())


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in files():
        file.write_text(text, encoding="utf-8")
