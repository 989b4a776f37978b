"""GitLab's code quality report: what is wrong or doubtful, in the widget of a merge request and beside the lines."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from xe_sizer.report.format import clean
from xe_sizer.report.formats.sarif import rule_name

if TYPE_CHECKING:
    from xe_sizer.report.document import Finding, Options, Remark

SHOWS = "findings"
ENDINGS = ()
_SEVERITIES = {"error": "major", "warning": "minor"}
NOWHERE = "scenario"  # a path is required, also of what no file says


def render(findings: Iterable[Finding], options: Options) -> str:
    """Source: GitLab documentation, Code Quality, 'Code Quality report format'."""
    seen: Counter[str] = Counter()
    remarks = (remark for finding in findings for remark in finding.remarks if remark.level != "notice")
    return json.dumps([_issue(remark, options, seen) for remark in remarks], indent=2) + "\n"


def _issue(remark: Remark, options: Options, seen: Counter[str]) -> dict[str, Any]:
    """An issue is the same one as long as file and kind are, whatever its figures."""
    path = NOWHERE if remark.file is None else options.place(remark.file)
    name = rule_name(remark)
    about = f"{path} {name}"
    seen[about] += 1
    return {
        "description": "; ".join(map(clean, remark.message.splitlines())),
        "check_name": name,
        "fingerprint": hashlib.sha256(f"{about} {seen[about]}".encode(errors="replace")).hexdigest(),
        "severity": _SEVERITIES[remark.level],
        "location": {"path": path, "lines": {"begin": remark.line or 1}},
    }
