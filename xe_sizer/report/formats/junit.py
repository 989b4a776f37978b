"""JUnit XML: one test suite a scenario, alternative or plan, one test case for each thing that is judged."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xe_sizer.report.document import Case, Finding, Options

SHOWS = "findings"
ENDINGS = (".xml",)
_ELEMENTS = {"skipped": "skipped", "failed": "failure", "error": "error"}
_COUNTERS = {
    "tests": "testcase",
    "failures": "testcase/failure",
    "errors": "testcase/error",
    "skipped": "testcase/skipped",
}
# What XML 1.0 cannot hold, not even escaped (section 2.2, production Char).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(findings: Iterable[Finding], options: Options) -> str:
    root = ET.Element("testsuites", name="xe-sizer")
    for finding in findings:
        root.append(_suite(finding))
    for counter in _COUNTERS:
        root.set(counter, str(sum(int(suite.get(counter, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(finding: Finding) -> ET.Element:
    suite = ET.Element("testsuite", name=_legal(finding.name))
    if finding.properties:
        properties = ET.SubElement(suite, "properties")
        for name, value in finding.properties:
            ET.SubElement(properties, "property", name=_legal(name), value=_legal(value))
    for case in finding.cases:
        _case(suite, finding.name, case)
    for counter, path in _COUNTERS.items():
        suite.set(counter, str(len(suite.findall(path))))
    return suite


def _case(suite: ET.Element, of: str, case: Case) -> None:
    element = ET.SubElement(suite, "testcase", classname=_legal(of), name=_legal(case.name), time="0")
    if case.state in _ELEMENTS:
        given = {"message": _legal(case.message), **({"type": case.kind} if case.kind else {})}
        why = ET.SubElement(element, _ELEMENTS[case.state], given)
        why.text = _legal(case.details) or None
    if case.output:
        ET.SubElement(element, "system-out").text = _legal(case.output)


def _legal(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
