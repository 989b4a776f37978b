"""JUnit XML: one test suite a scenario; one test case for the fit, one for each limit, one for a load
that is too high."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from xe_sizer.report.batch import Batch, Outcome, problem_text
from xe_sizer.report.options import Options
from xe_sizer.report.phrases import limit_text, reason_text
from xe_sizer.report.verdict import caution, headline, outcome, subject
from xe_sizer.result.common import Limit
from xe_sizer.result.serving import OVERLOADED, Answer

# What XML 1.0 cannot hold, not even escaped (section 2.2, production Char).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(result: Answer, options: Options) -> str:
    return _document([Outcome(options.file or subject(result), result)])


def render_batch(batch: Batch, options: Options) -> str:
    return _document(list(batch.outcomes))


def _document(outcomes: list[Outcome]) -> str:
    root = ET.Element("testsuites", name="xe-sizer")
    for each in outcomes:
        root.append(_suite(each))
    for counter in ("tests", "failures", "errors"):
        root.set(counter, str(sum(int(suite.get(counter, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(each: Outcome) -> ET.Element:
    suite = ET.Element("testsuite", name=_legal(each.file))
    if each.result is None:
        message = "\n".join(problem_text(problem) for problem in each.problems)
        ET.SubElement(_case(suite, each, "input"), "error", message=_legal(message), type="bad-input")
    else:
        _fit_case(suite, each, each.result)
        for reason in each.result.verdict.reasons:
            if reason.code == OVERLOADED:
                case = _case(suite, each, "load")
                ET.SubElement(case, "failure", message=_legal(reason_text(reason)), type=OVERLOADED)
        for limit in each.result.verdict.limits:
            _limit_case(suite, each, limit)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    return suite


def _case(suite: ET.Element, each: Outcome, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_legal(each.file), name=_legal(name), time="0")


def _fit_case(suite: ET.Element, each: Outcome, result: Answer) -> None:
    case = _case(suite, each, "fits")
    if not result.verdict.fits:
        failure = ET.SubElement(case, "failure", message=_legal(outcome(result)), type="does-not-fit")
        failure.text = _legal("\n".join(reason_text(reason) for reason in result.verdict.reasons))
    narrow = caution(result)
    said = f"{headline(result)}\n{narrow}" if narrow else headline(result)
    ET.SubElement(case, "system-out").text = _legal(said)


def _limit_case(suite: ET.Element, each: Outcome, limit: Limit) -> None:
    case = _case(suite, each, f"limit {limit.name}")
    if not limit.ok:
        ET.SubElement(case, "failure", message=_legal(f"misses {limit_text(limit)}"), type="limit")


def _legal(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
