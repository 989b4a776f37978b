"""Recorded requests: when each came and how long its prompt and its answer were."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.text import MOST_LOG_BYTES, read_text
from xe_sizer.units import MILLI, MINUTE_S

if TYPE_CHECKING:
    from xe_sizer.graph.operators import Array

LINES = frozenset({".jsonl", ".ndjson", ".json"})
# What public traces call their columns, in small letters without spaces, hyphens and underscores.
TIMES = {"timestamp": 1.0, "timestamps": 1.0, "time": 1.0, "arrivaltime": 1.0, "arrival": 1.0, "timestampms": MILLI}
PROMPTS = ("inputlength", "inputtokens", "contexttokens", "requesttokens", "prompttokens", "promptlen", "isl")
ANSWERS = ("outputlength", "outputtokens", "generatedtokens", "responsetokens", "completiontokens", "outputlen", "osl")
MOONCAKE = "hashids"  # whose timestamps are milliseconds
WANTED = "a trace has a timestamp, the tokens of the prompt and those of the answer, as Azure, BurstGPT and Mooncake"


class Trace(Immutable):
    """Requests in the order in which they came; arrays of shape (requests,).

    arrivals_s : since the first one [s]; inputs, outputs : tokens of each prompt and answer [tokens]
    """

    arrivals_s: Array
    inputs: Array
    outputs: Array

    @property
    def rate(self) -> float:
        """Requests per second in the mean, over a minute at least: a burst is no lasting load [1/s]."""
        return len(self.inputs) / max(float(self.arrivals_s[-1]), MINUTE_S)

    @property
    def lengths(self) -> dict[str, float]:
        """Mean lengths [tokens], and their standard deviations over the means [-], as a scenario names them."""
        found: dict[str, float] = {}
        for name, each in (("input", self.inputs), ("output", self.outputs)):
            mean = float(each.mean())
            found |= {f"{name}_tokens": round(mean, 1), f"{name}_spread": round(float(each.std()) / mean, 3)}
        return found

    def first(self, requests: int) -> Trace:
        """So many of its requests, the first ones."""
        return Trace(self.arrivals_s[:requests], self.inputs[:requests], self.outputs[:requests])


def load_trace(path: Path, where: Location | None = None) -> Trace:
    """Reads a trace: CSV with a line of names, or JSON Lines.

    Times are seconds, dates, or milliseconds where the name of the column says so and in traces of Mooncake. Requests
    without a prompt or an answer are left out.

    Parameters
    ----------
    path : of the file; where : what a problem with it points at, of a file that cannot be read

    Returns
    -------
    Trace, shape (requests,), seconds [s] and tokens

    Raises
    ------
    InputError    no such file, no text, no requests, or a line without one of the three figures

    Source: AzurePublicDataset (AzureLLMInferenceTrace_*.csv), BurstGPT (arXiv:2401.17644), Mooncake
    (FAST25-release/traces).
    """
    if not path.is_file():
        raise InputError(Problem(f"no such file: {path}", where))
    rows = [_figures(path, line, row) for line, row in _rows(path)]
    figures = np.array([row for row in rows if row[1] > 0 and row[2] > 0], dtype=np.float64).reshape(-1, 3)
    if not len(figures):
        raise InputError(Problem("the trace has no requests with a prompt and an answer", Location(str(path)), WANTED))
    figures = figures[np.argsort(figures[:, 0], kind="stable")]
    return Trace(figures[:, 0] - figures[0, 0], figures[:, 1], figures[:, 2])


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Lines with their numbers, by plain names of their columns."""
    text = read_text(path, MOST_LOG_BYTES).splitlines()
    if path.suffix.lower() not in LINES:
        for number, row in enumerate(csv.DictReader(text), 2):
            yield number, {_plain(key): value for key, value in row.items() if key}
        return
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise InputError(Problem(f"no JSON object: {error}", Location(str(path), number))) from None
        yield number, {_plain(key): value for key, value in row.items()}


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _figures(path: Path, line: int, row: Mapping[str, Any]) -> tuple[float, float, float]:
    """Time [s], tokens of the prompt and of the answer."""
    time = next((name for name in TIMES if row.get(name) not in (None, "")), None)
    prompt, answer = (next((name for name in names if name in row), None) for names in (PROMPTS, ANSWERS))
    if time is None or prompt is None or answer is None:
        lacks = "timestamp" if time is None else "length of the prompt" if prompt is None else "length of the answer"
        raise InputError(Problem(f"a request without a {lacks}", Location(str(path), line), WANTED))
    unit = MILLI if MOONCAKE in row else TIMES[time]
    values = unit * _seconds(row[time]), _number(row[prompt]), _number(row[answer])
    if not all(map(math.isfinite, values)):
        wrong = row[(time, prompt, answer)[[math.isfinite(value) for value in values].index(False)]]
        raise InputError(Problem(f"'{wrong}' is no time and no number", Location(str(path), line)))
    return values


def _number(value: object) -> float:
    """The number; not finite where it is none."""
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _seconds(value: object) -> float:
    """A time as a number, or a date with a time of day; not finite where it is neither."""
    number = _number(value)
    if math.isfinite(number):
        return number
    whole, point, part = str(value).partition(".")
    digits = "".join(letter for letter in part if letter.isdigit())[:6]  # Azure's dates have seven
    try:
        moment = datetime.fromisoformat(whole + (f".{digits:0<6}" if point else ""))
    except ValueError:
        return math.nan
    return moment.replace(tzinfo=None).timestamp()
