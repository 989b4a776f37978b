"""Formats for machines: JSON, CSV, JUnit, GitHub annotations, and HTML."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import msgspec
import pytest

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.report.document import Options
from xe_sizer.report.formats.markdown import MAX_CHARACTERS
from xe_sizer.report.registry import format_names, render
from xe_sizer.result.check import CheckResult, answered, check_result, refused
from xe_sizer.result.common import Advice, Reason
from xe_sizer.result.training import Result

HOSTILE = "a|b <script>alert(1)</script> &amp; `x` @all\n::error::x %0A \x00\x1b[2J =1+1"
OPTIONS = Options(file="jobs/a,b:c.yaml")


def hostile(result: Result) -> Result:
    reasons = (Reason(code="x", message=HOSTILE, fix=HOSTILE),)
    return msgspec.structs.replace(
        result,
        scenario=result.scenario | {"model": HOSTILE},
        verdict=msgspec.structs.replace(result.verdict, fits=False, reasons=reasons),
        warnings=(HOSTILE,),
        advice=(Advice(change=HOSTILE, effect=HOSTILE, command="xe-sizer estimate --model 'a`b```c'"),),
    )


def test_formats_of_the_command_line_exist() -> None:
    assert set(format_names()) == {"table", "json", "markdown", "csv", "html", "junit", "github", "gitlab", "sarif"}


def test_unknown_format_is_bad_input_with_a_hint(lora: Result) -> None:
    with pytest.raises(InputError) as raised:
        render(lora, "jsno", OPTIONS)
    assert raised.value.problems[0].hint == "did you mean 'json'?"


@pytest.mark.parametrize("name", format_names())
def test_every_format_takes_hostile_text_and_ends_its_last_line(lora: Result, too_big: Result, name: str) -> None:
    for result in (lora, too_big, hostile(lora)):
        text = render(result, name, OPTIONS)
        assert text.endswith("\n") or (name == "github" and result is lora)
        if name != "json":
            assert "\x1b" not in text
            assert "\x00" not in text


def test_json_is_the_result_again(lora: Result, too_big: Result) -> None:
    for result in (lora, too_big):
        text = render(result, "json", OPTIONS)
        assert text.startswith('{\n  "schema_version": 1,')
        assert msgspec.json.decode(text, type=Result) == result


def test_csv_has_every_number_once_with_its_unit(lora: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(render(lora, "csv", OPTIONS))))
    by_name = {(row["section"], row["name"]): row for row in rows}
    assert len(by_name) == len(rows)
    assert float(by_name["memory", "components.weights.bytes"]["value"]) == 16.0625 * 1024**3
    assert by_name["memory", "components.weights.bytes"]["unit"] == "bytes"
    assert by_name["time", "step_s.low"] == {
        "section": "time",
        "name": "step_s.low",
        "value": "8.075",
        "unit": "s",
    }
    assert by_name["cost", "price.expected"]["unit"] == "USD"
    assert by_name["verdict", "limits.max_hours.limit"]["unit"] == "h"
    assert by_name["time", "tokens_per_s_per_gpu"]["unit"] == "tokens/s"
    assert by_name["time", "steps"]["unit"] == ""


def test_csv_text_cannot_be_a_formula(lora: Result) -> None:
    result = msgspec.structs.replace(lora, scenario={"model": "=HYPERLINK(1)", "stack": "+1", "job": "-x"})
    rows = [row for row in csv.reader(io.StringIO(render(result, "csv", OPTIONS))) if row[0] == "scenario"]
    assert [row[2] for row in rows] == ["'=HYPERLINK(1)", "'+1", "'-x"]


def _cases_with(root: ET.Element, what: str) -> list[str | None]:
    return [case.get("name") for case in root.iter("testcase") if case.find(what) is not None]


def test_junit_counts_its_cases(lora: Result, too_big: Result) -> None:
    root = ET.fromstring(render(too_big, "junit", OPTIONS))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "0")
    names = [case.get("name") for case in root.iter("testcase")]
    assert names == ["fits", "limit max_hours", "limit max_gpus", "limit max_cost"]
    found = {what: _cases_with(root, what) for what in ("failure", "skipped")}
    assert found == {"failure": ["fits"], "skipped": ["limit max_hours", "limit max_cost"]}  # it will never run
    assert ET.fromstring(render(lora, "junit", OPTIONS)).get("failures") == "0"


def test_junit_stays_xml_with_characters_that_xml_cannot_hold(lora: Result) -> None:
    root = ET.fromstring(render(hostile(lora), "junit", OPTIONS))
    assert "<script>alert(1)</script>" in next(root.iter("failure")).text  # type: ignore[operator]


def test_github_annotations_are_one_line_each_and_escaped(lora: Result) -> None:
    lines = render(hostile(lora), "github", OPTIONS).splitlines()
    assert [line.split(" ")[0] for line in lines] == ["::error"]
    assert lines[0].startswith("::error file=jobs/a%2Cb%3Ac.yaml,title=xe-sizer%3A does not fit::")
    assert "%250A" in lines[0]


def test_github_says_nothing_of_a_plain_yes_and_warns_of_a_narrow_one(lora: Result) -> None:
    assert render(lora, "github", Options()) == ""
    narrow = msgspec.structs.replace(lora, verdict=msgspec.structs.replace(lora.verdict, margin="tight"))
    assert render(narrow, "github", Options()).startswith("::warning title=xe-sizer%3A tight::LoRA of llama-2")


def test_github_names_files_as_the_caller_places_them(too_big: Result) -> None:
    options = Options(file="a/b.yaml", place=lambda name: f"root/{name}")
    assert render(too_big, "github", options).startswith("::error file=root/a/b.yaml,title=")


def test_sarif_and_gitlab_point_at_the_line(lora: Result, too_big: Result) -> None:
    batch, options = a_batch(lora, too_big), Options(place=lambda name: f"a b/{name}")
    (run,) = json.loads(render(batch, "sarif", options))["runs"]
    bad = next(one for one in run["results"] if one["ruleId"] == "bad-input")
    assert bad["level"] == "error"
    assert bad["message"]["text"].startswith("'tp' must be 1 or more, not 0\nuse 1")
    assert bad["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a%20b/bad.yaml"}, "region": {"startLine": 3, "startColumn": 9},
    }  # fmt: skip
    assert {one["ruleId"] for one in run["results"]} == {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    issue = next(one for one in json.loads(render(batch, "gitlab", options)) if one["check_name"] == "bad-input")
    assert issue["location"] == {"path": "a b/bad.yaml", "lines": {"begin": 3}}
    assert issue["severity"] == "major"
    assert issue["description"].startswith("'tp' must be 1 or more, not 0; use 1")


def test_gitlab_knows_an_issue_again_whatever_its_figures(too_big: Result) -> None:
    def prints(result: Result) -> set[str]:
        return {one["fingerprint"] for one in json.loads(render(result, "gitlab", Options(file="a.yaml")))}

    reason = Reason(code="x", message="needs 999 GiB")
    verdict = msgspec.structs.replace(too_big.verdict, reasons=(reason,))
    assert prints(too_big) == prints(msgspec.structs.replace(too_big, verdict=verdict)) != set()
    assert prints(too_big).isdisjoint(
        one["fingerprint"] for one in json.loads(render(too_big, "gitlab", Options(file="b.yaml")))
    )


def test_a_plain_yes_is_no_result_of_code_scanning(lora: Result) -> None:
    assert json.loads(render(lora, "sarif", Options()))["runs"][0]["results"] == []
    assert json.loads(render(lora, "gitlab", Options())) == []


def test_markdown_shows_text_as_it_is(lora: Result) -> None:
    text = render(hostile(lora), "markdown", OPTIONS)
    assert "<script>" not in text
    assert "@all" not in text
    assert "````sh\nxe-sizer estimate --model 'a`b```c'\n````" in text
    rows = [line for line in text.splitlines() if line.startswith("| model |")]
    assert len(rows) == 1
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 4


def test_markdown_is_capped_at_whole_blocks(lora: Result) -> None:
    many = tuple(Advice(change=f"change {place} " * 20, effect="e", command="c") for place in range(300))
    text = render(msgspec.structs.replace(lora, advice=many), "markdown", OPTIONS)
    assert len(text) <= MAX_CHARACTERS
    assert text.endswith("`--format json` has everything._\n")
    assert text.count("<details>") == text.count("</details>")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [value or "" for key, value in attrs if key in ("src", "href")]
        if tag not in ("meta", "wbr"):  # elements without an end
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_closed_escaped_and_alone(lora: Result) -> None:
    text = render(hostile(lora), "html", OPTIONS)
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert page.links == []
    assert "script" not in page.seen
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def a_batch(lora: Result, too_big: Result) -> CheckResult:
    bad = Problem("'tp' must be 1 or more, not 0", Location("bad.yaml", 3, 9), "use 1")
    return check_result((answered("good.yaml", lora), answered("big.yaml", too_big), refused("bad.yaml", (bad, bad))))


def test_batch_json(lora: Result, too_big: Result) -> None:
    answer = json.loads(render(a_batch(lora, too_big), "json", Options()))
    assert next(iter(answer)) == "schema_version"
    assert answer["summary"] == {"total": 3, "passed": 1, "failed": 1, "invalid": 1}
    assert [entry["ok"] for entry in answer["scenarios"]] == [True, False, False]
    assert answer["scenarios"][1]["result"]["verdict"]["fits"] is False
    assert answer["scenarios"][2]["problems"][0] == {
        "file": "bad.yaml",
        "line": 3,
        "column": 9,
        "message": "'tp' must be 1 or more, not 0",
        "hint": "use 1",
    }


def test_batch_junit_tells_failures_from_errors(lora: Result, too_big: Result) -> None:
    root = ET.fromstring(render(a_batch(lora, too_big), "junit", Options()))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("8", "1", "1")
    assert [suite.get("name") for suite in root] == ["good.yaml", "big.yaml", "bad.yaml"]


def test_batch_github_points_at_the_line(lora: Result, too_big: Result) -> None:
    lines = render(a_batch(lora, too_big), "github", Options()).splitlines()
    place = "file=bad.yaml,line=3,col=9"
    said = "'tp' must be 1 or more, not 0%0Ause 1"
    assert any(line.startswith(f"::error {place},title=xe-sizer%3A bad input::{said}") for line in lines)
    assert [line for line in lines if "file=good.yaml" in line] == []


@pytest.mark.parametrize("name", format_names())
def test_batch_formats_name_every_file(lora: Result, too_big: Result, name: str) -> None:
    text = render(a_batch(lora, too_big), name, Options())
    files = {"good.yaml", "big.yaml", "bad.yaml"} - ({"good.yaml"} if name in ("github", "gitlab", "sarif") else set())
    assert all(file in text for file in files)


def test_batch_table_says_pass_or_fail_first(lora: Result, too_big: Result) -> None:
    batch = a_batch(lora, too_big)
    first = render(batch, "table", Options()).splitlines()[0]
    assert first == "FAIL  3 scenarios: 1 passed, 1 failed, 1 with bad input"
    assert render(check_result(batch.scenarios[:1]), "table", Options()).startswith("PASS  1 scenario: 1 passed")
