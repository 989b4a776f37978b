"""What `profiles list` says: key figures of profiles. Frozen; the names are the JSON contract."""

from __future__ import annotations

from typing import Any, ClassVar

from xe_sizer.result.common import Answer


class Profiles(Answer, frozen=True, kw_only=True):
    """Of each profile its `kind`, its `name`, and figures that depend on the kind."""

    question: ClassVar[str] = "profiles"

    profiles: tuple[dict[str, Any], ...]

    @property
    def ok(self) -> bool:
        """A list is no verdict."""
        return True
