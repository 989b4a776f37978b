"""Sessions that come back, as the report on a service shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import count, duration, number, percent

if TYPE_CHECKING:
    from xe_sizer.result.serving import ServeResult


def sessions_points(result: ServeResult) -> Iterator[Point]:
    """How many returning users find their cache, and what the others wait longer."""
    found = result.session_cache
    if found is None:
        return
    where = f"{percent(found.hit_gpu)} on the GPU, {percent(found.hit_host)} in host memory"
    words = f"of users who come back {where}, {percent(found.missed)} compute theirs again"
    yield Point("Sessions", f"{words} ({duration(found.ttft_missed_s)} to the first token)")


def sessions_table(result: ServeResult) -> Iterator[Table]:
    """Where sessions stay while their users think, and how soon an answer begins then."""
    found = result.session_cache
    if found is None:
        return
    fetched = f"fetched in {duration(found.fetch_s)}, which {duration(found.recompute_s)} would compute"
    size = f"{number(found.host_gib)} GiB a replica: {fetched}"
    kinds = (
        ("on the GPU", found.on_gpu, found.hit_gpu, found.ttft_gpu_s, "beside the requests that run"),
        ("in host memory", found.in_host, found.hit_host, found.ttft_host_s, size),
        ("gone", None, found.missed, found.ttft_missed_s, "computed again"),
    )
    rows = tuple(
        (place, "" if room is None else count(int(room)), percent(share), duration(ttft_s), note)
        for place, room, share, ttft_s, note in kinds
    )
    columns = (Column("their cache is"), Column("room for", True), Column("of those that come back", True),
               Column("first token, mean", True), Column("note"))  # fmt: skip
    note = f"{number(found.sessions)} sessions of a replica wait for their users"
    yield Table("Sessions that come back", columns, rows, note=note)
