"""Sessions that come back, as the report on a service shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Column, Point, Table
from xe_sizer.report.format import NOT_A_NUMBER, count, duration, number, percent, plural

if TYPE_CHECKING:
    from xe_sizer.result.replicas import Fit
    from xe_sizer.result.serving import ServeResult


BOUND = {
    "memory": "more does not fit the KV cache",
    "positions": "the model has no more positions",
    "max_model_len": "as long as max_model_len",
    "max_sequences": "the engine runs no more at once",
}


def fit_points(result: ServeResult) -> Iterator[Point]:
    """The longest context or the most sessions."""
    found = result.fit
    if found is None:
        return
    parts = f"a prompt of {found.input_tokens:,} and an answer of {found.output_tokens:,}"
    each = f", {found.sessions_per_replica:,} per replica" if found.sessions_per_replica < found.sessions else ""
    sessions = f"{plural(found.sessions, 'session')} at once{each}"
    bound = BOUND.get(found.bound, found.bound)
    if found.question == "context":
        yield Point("Longest", f"{found.tokens:,} tokens ({parts}) in {sessions}: {bound}")
    else:
        yield Point("Most", f"{sessions} of {found.tokens:,} tokens ({parts}): {bound}")


def fit_words(found: Fit | None) -> str:
    """What fits in a cell of a table."""
    if found is None:
        return NOT_A_NUMBER
    return f"{found.tokens:,} tokens" if found.question == "context" else plural(found.sessions, "session")


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
