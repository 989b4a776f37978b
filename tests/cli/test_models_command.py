"""`xe-sizer models`: what fits a card, by the answers that each model has alone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from .conftest import Ran

Cli = Callable[..., Ran]


def table(cli: Cli, *options: str) -> dict[str, Any]:
    ran = cli("models", "--gpu", "rtx-4090", *options, "-f", "json")
    assert ran.code == 0, ran.err
    return dict(json.loads(ran.out))


def test_training_rows_are_what_estimate_says_of_each(cli: Cli) -> None:
    found = table(cli, "--part", "llama-3.", "--context", "4k")
    jsonschema.validate(found, json.loads(cli("profiles", "schema", "models").out))
    assert (found["gpus"], found["job"], found["context"]) == (1, "QLoRA", 4096)
    sizes = [row["parameters"] for row in found["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    row = next(row for row in found["rows"] if row["name"] == "llama-3.1-8b")
    asked = "estimate --model llama-3.1-8b --gpu rtx-4090 --gpus 1 --job qlora --padding packed --global-batch 16"
    each = [json.loads(cli(*asked.split(), "--seq-len", str(length), "-f", "json").out)
            for length in (4096, row["context"])]  # fmt: skip
    assert row["peak_bytes"] == each[0]["memory"]["peak_bytes"]
    assert row["tokens_per_s"] == pytest.approx(each[0]["time"]["tokens_per_s_per_gpu"])
    assert [one["verdict"]["memory"] for one in each] == ["fits", "fits"]
    assert found["too_large"] > 0
    assert "llama-3." in found["smallest_too_large"]


def test_services_have_the_widest_format_that_fits(cli: Cli) -> None:
    found = {row["name"]: row for row in table(cli, "--serve", "--part", "llama-2")["rows"]}
    assert (found["llama-2-7b"]["weights"], found["llama-2-13b"]["weights"]) == ("bf16", "fp8")
    alone = json.loads(cli(
        "serve", "--model", "llama-2-7b", "--gpu", "rtx-4090", "--gpus", "1", "--weights", "bf16", "--concurrency", "1",
        "--input-tokens", "3840", "--output-tokens", "256", "-f", "json",
    ).out)  # fmt: skip
    assert 1 / found["llama-2-7b"]["tokens_per_s"] == pytest.approx(alone["latency"]["tpot_s"]["expected"], rel=1e-3)
    assert found["llama-2-7b"]["peak_bytes"] < 0.8 * found["llama-2-7b"]["usable_bytes"]
    four_bit = {row["name"] for row in table(cli, "--serve", "--part", "llama-2", "--weights", "int4")["rows"]}
    assert four_bit >= found.keys()


def test_no_row_is_a_no(cli: Cli) -> None:
    ran = cli("models", "--gpu", "l4", "--part", "llama-3.1-405b")
    assert ran.code == 1
    assert ran.out.startswith("NO MODEL LIKELY FITS  QLoRA on 1 x l4 at 4,096 tokens")
    assert "1 model: memory suffices with a probability below 75 %" in ran.out


def test_every_format_names_the_models(cli: Cli) -> None:
    for name in ("table", "markdown", "html", "csv", "junit", "github"):
        out = cli("models", "--gpu", "rtx-4090", "--part", "gpt2", "-f", name).out
        assert "gpt2" in out
        if name == "csv":
            lines = list(csv.reader(io.StringIO(out)))
            assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--gpu", "rtx-4090", "--context", "x"), "--context: 'x' is no number of tokens"),
        (("--gpu", "rtx-4090", "--context", "0"), "--context: '0' is no number of tokens"),
        (("--gpu", "rtx-409"), "did you mean 'rtx-4090'"),
        ((), "--gpu: name a GPU or a server"),
        (("--gpu", "l4", "--engine", "vllm"), "--engine: is for inference"),
        (("--gpu", "l4", "--job", "loar"), "--job"),
    ],
)
def test_bad_input(cli: Cli, options: tuple[str, ...], said: str) -> None:
    ran = cli("models", *options)
    assert ran.code == 2
    assert said in ran.err
