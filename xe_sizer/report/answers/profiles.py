"""Profiles with their key figures: what `profiles list` reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from xe_sizer.report.document import TOOL, Case, Column, Document, Finding, Remark, Table
from xe_sizer.report.format import clean, count, given, plural
from xe_sizer.result.studies import Profiles

if TYPE_CHECKING:
    from xe_sizer.report.document import Options

ANSWER = Profiles
NOUNS = {"gpu": "GPU", "dataset": "data set"}  # of kinds that are not called by their name
NETWORK = "NICs x Gbit/s"
# Groups of figures in a profile.
GROUPS = ("peak_tflops", "scale_up", "scale_out", "link", "parameters", "node", "network")


def document(result: Profiles, options: Options) -> Document:
    """One table a kind."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for row in result.profiles:
        by_kind.setdefault(row["kind"], []).append(row)
    tables = tuple(_table(kind, rows) for kind, rows in by_kind.items())
    return Document("PROFILES", True, _counts(result), (), tables)


def _counts(result: Profiles) -> str:
    kinds = [row["kind"] for row in result.profiles]
    return ", ".join(plural(kinds.count(kind), NOUNS.get(kind, clean(kind))) for kind in dict.fromkeys(kinds))


def _table(kind: str, found: list[dict[str, Any]]) -> Table:
    shown = [_shown(row) for row in found]
    keys = list(shown[0])
    numeric = {key: any(isinstance(figures[key], int | float) for figures in shown) for key in keys}
    columns = (Column("name"), *(Column(_words(key), numeric[key]) for key in keys))
    rows = tuple(
        (row["name"], *(_figure(value) for value in figures.values()))
        for row, figures in zip(found, shown, strict=True)
    )
    marked = any(row.get("scale_out_assumed") for row in found)
    return Table(clean(kind), columns, rows, note="* assumed: what is usual for such a node" if marked else "")


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Figures as a table shows them: the network of a server in one column, marked where it is assumed."""
    figures = {key: value for key, value in row.items() if key not in ("kind", "name")}
    if "scale_out_assumed" in figures:
        nics, rate = figures.pop("scale_out_nics"), figures.pop("scale_out_gbit_per_s")
        figures[NETWORK] = f"{nics} x {rate:g}{'*' if figures.pop('scale_out_assumed') else ''}"
    return figures


def _words(key: str) -> str:
    """The name of a figure, a space after the group that it is of."""
    group = next((group for group in GROUPS if key.startswith(f"{group}_")), "")
    return f"{group} {key.removeprefix(f'{group}_')}" if group else clean(key)


def _figure(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and value >= 1_000_000:
        return count(value)
    return given(value) if isinstance(value, int | float) else clean(value)


def rows(result: Profiles, options: Options) -> Iterator[tuple[object, ...]]:
    """One line a profile; figures that others have are empty."""
    names = dict.fromkeys(name for row in result.profiles for name in row)
    yield tuple(names)
    yield from (tuple(row.get(name) for name in names) for row in result.profiles)


def findings(result: Profiles, options: Options) -> Iterator[Finding]:
    """Every profile could be read."""
    cases = tuple(Case(f"{row['kind']} {row['name']}") for row in result.profiles)
    yield Finding("profiles", cases, (Remark("notice", f"{TOOL}: profiles", _counts(result)),))
