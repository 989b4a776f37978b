"""The report on one scenario, whatever it asks."""

from __future__ import annotations

from xe_sizer.report.document import Document
from xe_sizer.report.options import Options
from xe_sizer.result.serving import Answer, ServeResult


def document(result: Answer, options: Options) -> Document:
    """The whole report; `options.explain` adds sections. Words of the other kind of answer are not imported."""
    if isinstance(result, ServeResult):
        from xe_sizer.report.serve import serve_document

        return serve_document(result, options)
    from xe_sizer.report import content

    return content.document(result, options)
