"""What a reader of files finds: model servers, and what stands beside them."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from xe_sizer.frozen import frozen

if TYPE_CHECKING:
    from xe_sizer.importers.parts.service import Service
    from xe_sizer.importers.written import Keys


@frozen
class Services:
    """Model servers of a file in their order.

    beside : further keys of the file: the benchmark's (`benchmark.`), and those of what surrounds a server
    """

    services: tuple[Service, ...] = ()
    beside: Keys = field(default_factory=dict)


NO_SERVICES = Services()
