"""Tells scenarios which jobs are trained, and what learns in them: equations know nothing of scenarios."""

from __future__ import annotations

from xe_sizer.scenario.schema import trains
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.methods import METHODS

trains(METHODS, ADAPTERS)
