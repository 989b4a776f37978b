"""Host memory is part of the verdict: enough is a yes, too little a no, and unknown is neither."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = ("--model", "llama-2-7b", "--gpu", "rtx-4090", "--gpus", 1, "--stack", "deepspeed", "--zero", 3,
       "--offload", "params", "--recompute", "full", "--steps", 10)  # fmt: skip
# 6.74 B parameters: 16-bit weights, float32 master, two moments and gradients.
NEEDED_GIB = 6.738e9 * (2 + 4 + 8 + 4) / 2**30


def ask(cli: Cli, *more: object) -> tuple[int, dict[str, Any]]:
    ran = cli("estimate", *JOB, *more, "--format", "json")
    return ran.code, json.loads(ran.out)


def test_a_host_of_unknown_memory_is_unsure(cli: Cli) -> None:
    code, result = ask(cli)
    verdict = result["verdict"]
    assert (code, verdict["fits"], verdict["margin"]) == (0, True, "tight")
    assert (verdict["fit_probability"], verdict["fit_certainty"]) == (None, "unsure")
    shown = cli("estimate", *JOB).out
    assert shown.startswith("TIGHT  ")
    assert "unsure: offloading needs 113 GiB of host memory per node" in shown
    assert "--host-memory-gib" in shown


def test_what_is_needed_is_counted_by_hand(cli: Cli) -> None:
    assert ask(cli)[1]["memory"]["host_bytes"] / 2**30 == pytest.approx(NEEDED_GIB, rel=0.01)


@pytest.mark.parametrize(
    ("gib", "code", "margin", "word"),
    [(112, 1, "over", "TIGHT, OVER"), (32, 1, "over", "DOES NOT FIT"), (256, 0, "headroom", "FITS ")],
)
def test_a_host_of_known_memory_decides(cli: Cli, gib: int, code: int, margin: str, word: str) -> None:
    found, result = ask(cli, "--host-memory-gib", gib)
    assert (found, result["verdict"]["margin"]) == (code, margin)
    assert result["memory"]["host_available_bytes"] == gib * 2**30
    assert result["scenario"]["origin"]["host_memory_gib"] == "flag"
    assert cli("estimate", *JOB, "--host-memory-gib", gib).out.startswith(word)


def test_a_scenario_may_say_it_of_a_server(cli: Cli, tmp_path: Path) -> None:
    """The profile of the server says 2 TB: the user's word wins."""
    file = tmp_path / "job.yaml"
    file.write_text(
        "model: llama-2-7b\nserver: dell-xe9680-h100\ngpus: 8\nstack: deepspeed\nhost_memory_gib: 64\n"
        "train: {steps: 10}\nlayout: {zero: 3, offload: optimizer}\n"
    )
    ran = cli("estimate", file, "--format", "json")
    assert ran.code == 1
    assert [reason["code"] for reason in json.loads(ran.out)["verdict"]["reasons"]] == ["out-of-host-memory"]


def test_a_confidence_that_is_asked_for_is_not_met_by_an_unknown_host(cli: Cli) -> None:
    code, result = ask(cli, "--confidence", 0.9)
    assert code == 1
    assert "not known" in result["verdict"]["reasons"][0]["message"]
    assert ask(cli, "--confidence", 0.9, "--host-memory-gib", 512)[0] == 0


def test_check_shows_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "model: llama-2-7b\ngpu: rtx-4090\ngpus: 1\nstack: deepspeed\ntrain: {steps: 10}\n"
        "layout: {zero: 3, offload: params, recompute: full}\n"
    )
    ran = cli("check", file)
    assert ran.code == 0
    assert "1 passed (1 unsure)" in ran.out
    assert re.search(r"job\.yaml +TIGHT ", ran.out)
    assert "title=xe-sizer%3A tight::" in cli("check", file, "--format", "github").out


def test_without_offload_the_host_does_not_matter(cli: Cli) -> None:
    asked = ("--model", "llama-3.2-1b", "--gpu", "h100-sxm-80gb", "--gpus", 1, "--steps", 10)
    assert "UNSURE" not in cli("estimate", *asked).out
    assert cli("estimate", *asked, "--host-memory-gib", 1).code == 0


def test_what_every_node_has_to_spare_is_not_doubted(cli: Cli) -> None:
    """Paged moments in 8 bit of adapters of 84 M parameters and the inputs of recomputed layers: less than 4 GiB."""
    asked = ("--model", "llama-3.1-8b", "--gpu", "rtx-4090", "--gpus", 1, "--job", "qlora", "--stack", "unsloth")
    ran = cli("estimate", *asked, "--steps", 10, "--optimizer", "paged-adamw-8bit", "--format", "json")
    result = json.loads(ran.out)
    assert 0 < result["memory"]["host_bytes"] < 2**32
    assert (ran.code, result["verdict"]["margin"]) == (0, "headroom")
