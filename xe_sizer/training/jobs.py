"""Tells scenarios which jobs are trained. Methods themselves know nothing of scenarios, so that equations do not."""

from __future__ import annotations

from xe_sizer.scenario.jobs import trains
from xe_sizer.training.methods import METHODS

trains(METHODS)
