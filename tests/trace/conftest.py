"""Puts the repository's root on the import path: the trace runs as `tests.trace`, from pytest and by itself."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
