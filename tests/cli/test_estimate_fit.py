"""`estimate --fit`: the largest that fits, and what the next larger lacks."""

from __future__ import annotations

import json
from collections.abc import Callable

import jsonschema

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = (
    "estimate", "--model", "llama-3.1-8b", "--gpu", "rtx-4090", "--job", "qlora", "--global-batch", "16",
    "--seq-len", "2048", "--padding", "packed",
)  # fmt: skip


def test_the_report_says_what_the_next_lacks(cli: Cli) -> None:
    ran = cli(*JOB, "--fit", "context", "--brief")
    assert ran.code == 0
    line = next(line for line in ran.out.splitlines() if line.startswith("Context"))
    assert " tokens is the largest that fits; " in line
    assert line.endswith(" that it fits")


def test_json_has_it_by_the_schema(cli: Cli) -> None:
    answer = json.loads(cli(*JOB, "--fit", "micro-batch", "-f", "json").out)
    jsonschema.validate(answer, json.loads(cli("profiles", "schema", "result").out))
    assert answer["fit"]["question"] == "micro-batch"
    assert answer["layout"]["micro_batch"] == answer["fit"]["value"]
    assert (
        "fit" not in json.loads(cli(*JOB, "-f", "json").out) or json.loads(cli(*JOB, "-f", "json").out)["fit"] is None
    )


def test_a_typing_error_is_bad_input_with_a_hint(cli: Cli) -> None:
    ran = cli(*JOB, "--fit", "contxt")
    assert ran.code == 2
    assert "did you mean 'context'?" in ran.err
