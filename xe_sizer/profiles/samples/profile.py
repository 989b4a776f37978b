"""Measured token lengths as a data set profile, in memory and as a YAML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.profiles.dataset import DatasetProfile, LengthHistogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xe_sizer.profiles.samples.measure import Measured

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_PER_LINE = 12
_SHOWN_FILES = 3


def profile_name(path: Path) -> str:
    """A name that a profile of the file can have."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "data"


def profile_of(measured: Measured, name: str) -> DatasetProfile:
    """The profile of what was measured. name : see `NAME`"""
    low, mean, high = measured.mean
    source = {"title": _title(measured), "counted": how_counted(measured)}
    if measured.tokenizer is not None:
        source["tokenizer"] = str(measured.tokenizer.path)
    assumed = measured.tokenizer is None and not measured.counted
    found = measured.histogram
    return DatasetProfile(
        name=name,
        samples=measured.scan.samples,
        mean_tokens=round(mean, 4),
        source=source,
        min_tokens=round(measured.shortest.tokens),
        max_tokens=round(measured.longest.tokens),
        mean_tokens_low=round(low, 4) if assumed else None,
        mean_tokens_high=round(high, 4) if assumed else None,
        sequences_per_sample=max(round(measured.sequences / measured.scan.samples), 1),
        histogram=LengthHistogram(lengths=found.lengths, counts=tuple(map(float, found.counts))),
    )


def _title(measured: Measured) -> str:
    names = [source.path.name for source in measured.sources]
    more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
    return f"{', '.join(names[:_SHOWN_FILES])}{more}"


def how_counted(measured: Measured) -> str:
    """How tokens came about, in words."""
    if measured.tokenizer is None:
        return "token ids" if measured.counted else "assumed from bytes, without a tokenizer"
    if measured.counted:
        return "every sequence tokenised"
    return f"{measured.tokenised:,} of {measured.sequences:,} sequences tokenised, the others by their bytes"


def profile_yaml(profile: DatasetProfile, remarks: Sequence[str]) -> str:
    """The file of a profile. remarks : sentences that stand in it as comments"""
    found = profile.histogram
    assert found is not None
    lines = [*(f"# {_plain(remark)}" for remark in remarks), f"name: {profile.name}"]
    for key in ("samples", "sequences_per_sample", "mean_tokens", "mean_tokens_low", "mean_tokens_high"):
        value = getattr(profile, key)
        lines += [f"{key}: {value}"] if value is not None else []
    lines += [f"min_tokens: {profile.min_tokens}", f"max_tokens: {profile.max_tokens}"]
    lines += ["histogram:", *_list("lengths", found.lengths), *_list("counts", [int(each) for each in found.counts])]
    lines += ["source:", *(f"  {key}: {_quoted(text)}" for key, text in profile.source.items())]
    return "\n".join(lines) + "\n"


def _list(key: str, values: Sequence[int]) -> list[str]:
    rows = [values[start : start + _PER_LINE] for start in range(0, len(values), _PER_LINE)]
    return [f"  {key}: [", *(f"    {', '.join(map(str, row))}," for row in rows), "  ]"]


def _quoted(text: str) -> str:
    escaped = _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain(text: str) -> str:
    """One line that can be shown: names of files may hold anything."""
    return "".join(each if each.isprintable() else " " for each in text)
