"""A calibrated stack as a YAML file that `--stack` reads, with what it rests on in its first lines."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

WIDTH = 100


def calibration_yaml(
    name: str,
    parent: str,
    changed: Mapping[str, Mapping[str, float]],
    uncertainty: float,
    remarks: Sequence[str],
    source: str,
) -> str:
    """The stack file.

    Parameters
    ----------
    changed : section of a stack file -> key -> fitted value
    remarks : sentences that explain the fit; they become comments
    """
    lines = [f"# {line}" for remark in remarks for line in textwrap.wrap(remark, WIDTH)]
    lines += [f"name: {name}", f"parent: {parent}", f"describes: {_quoted(f'{parent}, calibrated')}"]
    lines += [f"source: {_quoted(source)}", f"calibrated_on: {_quoted(source)}", ""]
    for section, values in changed.items():
        lines += [f"{section}:", *(f"  {key}: {value:.4g}" for key, value in values.items()), ""]
    lines.append(f"uncertainty: {uncertainty:.3g}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
