"""The YAML tables of tools: no word stands where it has no effect."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import pytest

from xe_sizer.interop import tools

FILES = sorted(Path(tools.__file__).parent.glob("*.yaml"))


def sections(file: Path) -> list[dict[str, Any]]:
    said = msgspec.yaml.decode(file.read_bytes())
    return [said] if said.keys() & {"keys", "losses", "silent"} else list(said.values())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_silent_word_is_no_key_no_loss_and_said_once(file: Path) -> None:
    """A key whose value is not known would be told as one that changes nothing."""
    for section in sections(file):
        keys, losses = (
            [name for row in section.get(part, ()) for name in row["names"].split()] for part in ("keys", "losses")
        )
        silent = section.get("silent", "").split()
        patterns = [word for word in silent if "*" in word]
        exact = [word for word in silent if "*" not in word]
        assert not set(exact) & {*keys, *losses}
        assert len(silent) == len(set(silent))
        assert not [word for word in exact if any(fnmatchcase(word, each) for each in (*patterns, *losses))]


def test_a_table_refuses_what_it_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xe_sizer.interop import draft

    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "tool.yaml").write_text("losses: [{names: a, why: does, harmles: [0]}]\n")
    monkeypatch.setattr(draft, "__file__", str(tmp_path / "draft.py"))
    with pytest.raises(msgspec.ValidationError, match="harmles"):
        draft._table_of.__wrapped__("tool")
