"""SARIF 2.1.0: results for code scanning and for editors, one for each thing that is wrong or doubtful."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from xe_sizer.report.document import TOOL
from xe_sizer.report.format import clean
from xe_sizer.version import __version__

if TYPE_CHECKING:
    from xe_sizer.report.document import Finding, Options, Remark

SHOWS = "findings"
ENDINGS = (".sarif",)
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_NO_ID = re.compile(r"[^a-z0-9]+")


def render(findings: Iterable[Finding], options: Options) -> str:
    """Source: OASIS, Static Analysis Results Interchange Format 2.1.0, sections 3.13, 3.18 and 3.27."""
    remarks = [remark for finding in findings for remark in finding.remarks if remark.level != "notice"]
    results = [_result(remark, options) for remark in remarks]
    rules = {result["ruleId"]: remark.title for result, remark in zip(results, remarks, strict=True)}
    driver = {
        "name": TOOL,
        "version": __version__,
        "rules": [{"id": name, "shortDescription": {"text": clean(title)}} for name, title in rules.items()],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, indent=2) + "\n"


def rule_name(remark: Remark) -> str:
    """What a remark is about, as a word for machines."""
    return _NO_ID.sub("-", remark.title.removeprefix(f"{TOOL}: ").lower()).strip("-")


def _result(remark: Remark, options: Options) -> dict[str, Any]:
    message = "\n".join(map(clean, remark.message.splitlines()))
    result: dict[str, Any] = {"ruleId": rule_name(remark), "level": remark.level, "message": {"text": message}}
    if remark.file is not None:
        place: dict[str, Any] = {"artifactLocation": {"uri": quote(options.place(remark.file), errors="replace")}}
        region = {"startLine": remark.line, "startColumn": remark.column}
        if remark.line is not None:
            place["region"] = {key: value for key, value in region.items() if value is not None}
        result["locations"] = [{"physicalLocation": place}]
    return result
