"""The report on a service: what comes first, what a narrow terminal keeps, and what machines read."""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import msgspec
import pytest

from xe_sizer.report.answers.serve import document, pace
from xe_sizer.report.document import EXPLAINABLE, Notes, Options, Steps, Summary, Table
from xe_sizer.report.registry import format_names, render
from xe_sizer.report.verdict import caution, verdict_word
from xe_sizer.result.check import answered, check_result
from xe_sizer.result.common import Limit
from xe_sizer.result.serving import ServeResult
from xe_sizer.result.training import Result

OPTIONS = Options(file="jobs/chat.yaml")


def replaced(result: ServeResult, part: str, **values: Any) -> ServeResult:
    """The result with some fields of one part changed."""
    changed = msgspec.structs.replace(getattr(result, part), **values)
    return msgspec.structs.replace(result, **{part: changed})


def titles(result: ServeResult, explain: tuple[str, ...] = ()) -> list[str]:
    return [getattr(block, "title", "") for block in document(result, Options(explain=explain)).in_characters]


def test_what_it_takes_comes_before_what_it_is_made_of(chat: ServeResult) -> None:
    names = titles(chat)
    assert isinstance(document(chat, Options()).blocks[0], Summary)
    assert names[1:4] == ["Service", "Latency", "Limits"]
    assert names[5].startswith("Memory of the worst GPU")
    assert names[6] == "Time of a decode step"
    assert names[-1] == "Further advice"


def test_what_does_not_fit_has_no_latencies(unservable: ServeResult) -> None:
    names = titles(unservable)
    assert "Latency" not in names
    assert "Service" not in names
    assert names[-1] == "Further advice"


def test_the_headline_answers_the_question(chat: ServeResult) -> None:
    lines = render(chat, "table", Options()).splitlines()
    replicas, spare = chat.replicas.count, chat.replicas.spare
    shape = (
        f"{4 * replicas} GPUs: {replicas} replicas ({replicas - spare} serving + {spare} spare) of 4 x h100-sxm-80gb"
    )
    assert lines[0].startswith(f"FITS, SERVES  20 requests/s of llama-3.1-70b on {shape}")
    assert re.fullmatch(
        r"Latency +at most \S+ ms to the first token \(TTFT\) and \S+ ms per token \(TPOT\) for 95 % of requests",
        lines[3],
    )


@pytest.mark.parametrize(
    ("name", "word"), [("chat", "FITS, SERVES"), ("unservable", "DOES NOT FIT"), ("overloaded", "FITS, OVERLOADED")]
)
def test_the_word(request: pytest.FixtureRequest, name: str, word: str) -> None:
    assert verdict_word(request.getfixturevalue(name)) == word


def test_a_missed_limit_is_said_first(chat: ServeResult) -> None:
    limit = Limit(name="max_tpot_s", limit=0.01, value=0.045, ok=False)
    result = replaced(chat, "verdict", meets_limits=False, limits=(limit,))
    assert verdict_word(result) == "FITS, MISSES LIMITS"
    assert "misses max_tpot_s (limit 10.0 ms, estimate 45.0 ms)" in document(result, Options()).headline


def test_a_range_beyond_the_limit_is_a_caution(chat: ServeResult) -> None:
    for certainty, said in (("unsure", "max_tpot_s met, unsure (70 %, range to 57.0 ms)"), ("sure", "")):
        limit = Limit(
            name="max_tpot_s",
            limit=0.05,
            value=0.0456,
            ok=True,
            probability=0.7,
            certainty=certainty,
            low=0.03,
            high=0.057,
        )
        asked = msgspec.structs.replace(chat, scenario=chat.scenario | {"limits": {"max_tpot_s": 0.05}})
        assert caution(replaced(asked, "verdict", limits=(limit,))) == said


def test_little_room_for_the_cache_is_tight(chat: ServeResult) -> None:
    result = replaced(chat, "verdict", margin="tight")
    assert verdict_word(result) == "TIGHT, SERVES"
    assert caution(result).startswith("tight: ")


def test_unbounded_latencies_are_words_in_a_report_and_null_in_json(overloaded: ServeResult) -> None:
    assert render(overloaded, "table", Options()).count("unbounded") >= 2
    answer = json.loads(render(overloaded, "json", OPTIONS))
    assert answer["latency"]["ttft_s"] == {"low": None, "expected": None, "high": None}
    assert answer["verdict"]["reasons"][0]["code"] == "overloaded"
    assert pace(overloaded)[2].endswith(" per token")


@pytest.mark.parametrize("name", ["chat", "unservable", "overloaded"])
def test_json_is_the_result_again(request: pytest.FixtureRequest, name: str) -> None:
    result = request.getfixturevalue(name)
    text = render(result, "json", OPTIONS)
    assert text.startswith('{\n  "schema_version": 1,')
    assert msgspec.json.decode(text, type=ServeResult) == result


def test_csv_is_one_row_of_numbers(chat: ServeResult) -> None:
    (row,) = csv.DictReader(io.StringIO(render(chat, "csv", OPTIONS)))
    assert float(row["ttft_s"]) == chat.latency.ttft_s.expected
    assert float(row["tpot_p99_s"]) == chat.latency.percentiles[-1].tpot_s
    assert float(row["replicas"]) == chat.replicas.count
    assert float(row["per_million_output_tokens"]) == chat.cost.per_million_output_tokens
    assert (row["model"], row["engine"], row["concurrency"], row["meets_limits"]) == (
        "llama-3.1-70b",
        "vllm",
        "",
        "true",
    )


def test_csv_text_cannot_be_a_formula(chat: ServeResult) -> None:
    scenario = {**chat.scenario, "names": {"model": "=HYPERLINK(1)"}}
    (row,) = csv.DictReader(io.StringIO(render(msgspec.structs.replace(chat, scenario=scenario), "csv", OPTIONS)))
    assert row["model"] == "'=HYPERLINK(1)"


def test_junit_has_a_case_for_the_load(overloaded: ServeResult, chat: ServeResult) -> None:
    root = ET.fromstring(render(overloaded, "junit", OPTIONS))
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert failed == ["load", "limit max_tpot_s"]
    assert ET.fromstring(render(chat, "junit", OPTIONS)).get("failures") == "0"


def test_every_topic_adds_a_section(chat: ServeResult) -> None:
    plain = titles(chat)
    for topic in EXPLAINABLE:
        assert len(titles(chat, (topic,))) > len(plain), topic
    text = render(chat, "table", Options(explain=EXPLAINABLE))
    assert all(part.formula in text and part.source in text for part in chat.memory.components)
    assert all(part.formula in text for part in chat.phases.decode.components)


@pytest.mark.parametrize("name", format_names())
def test_every_format_takes_hostile_text(overloaded: ServeResult, name: str) -> None:
    names = {"model": "\x1b[31m<script>alert(1)</script>\x00", "gpu": "g\nh", "server": "s|t"}
    result = msgspec.structs.replace(
        overloaded, scenario={**overloaded.scenario, "names": names}, warnings=("a\x1bb @all",)
    )
    text = render(result, name, OPTIONS)
    assert text.endswith("\n")
    if name != "json":
        assert "\x1b" not in text
        assert "\x00" not in text
    if name == "html":
        assert "<script>" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["chat", "unservable", "overloaded"])
def test_no_line_is_wider_than_the_terminal(request: pytest.FixtureRequest, name: str, width: int) -> None:
    text = render(request.getfixturevalue(name), "table", Options(width=width))
    too_wide = [line for line in text.splitlines() if len(line) > width and "xe-sizer serve" not in line]
    assert not too_wide


VERDICTS = ("github", "gitlab", "sarif")  # say nothing of a plain yes


def test_a_batch_of_both_kinds(lora: Result, chat: ServeResult, unservable: ServeResult) -> None:
    batch = check_result((answered("train.yaml", lora), answered("chat.yaml", chat), answered("big.yaml", unservable)))
    assert (batch.summary.passed, batch.summary.failed) == (2, 1)
    for name in format_names():
        files = ("chat.yaml", "big.yaml") if name in VERDICTS else ("train.yaml", "chat.yaml", "big.yaml")
        assert all(file in render(batch, name, Options()) for file in files)
    lines = render(batch, "table", Options()).splitlines()
    row = next(line for line in lines if line.startswith("chat.yaml "))
    assert re.search(r" 40\.7 ms per token .* max_tpot_s met, unsure \(70 %, range to 57\.0 ms\)$", row)
    answer = json.loads(render(batch, "json", Options()))
    assert ["latency" in entry["result"] for entry in answer["scenarios"]] == [False, True, True]


def test_blocks_are_those_that_every_format_knows(chat: ServeResult) -> None:
    blocks = document(chat, Options(explain=EXPLAINABLE)).blocks
    tables = [block for block in blocks if isinstance(block, Table)]
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    assert [type(block) for block in blocks[-1:]] == [Steps]
    assert not any(isinstance(block, Notes) and not block.items for block in blocks)
