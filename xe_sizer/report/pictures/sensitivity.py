"""What each factor is worth, as a tornado."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import clean, duration
from xe_sizer.report.picture import Axis, Swing, Tornado

if TYPE_CHECKING:
    from xe_sizer.report.document import Figure
    from xe_sizer.result.studies import Effect, Factor, Sensitivity

TITLE = "What each factor is worth"
DEADLINE = "deadline"


def moved(factor: Factor, effect: Effect) -> float:
    """What a step of the factor multiplies the time by; of the deadline, the GPUs."""
    return effect.gpus_ratio if factor.name == DEADLINE else effect.time_ratio


def pictures(result: Sensitivity, figure: Figure) -> Iterator[Picture]:
    """figure : the tornado in characters."""
    swings = tuple(map(_swing, result.factors))
    if not swings:
        return
    axis = Axis("times the time of the whole job (the GPUs, for the deadline)", logarithmic=True)
    says = "; ".join(f"{swing.name}: {_ends(swing)}" for swing in swings)
    drawing = Tornado(axis, swings, f"as asked: {duration(result.base.total_s)}")
    yield Picture(TITLE, says, drawing, "The axis is logarithmic: half and twice are equally far.", figure)


def _swing(factor: Factor) -> Swing:
    """The steps that fit and move the figure most to each side."""
    possible = [(moved(factor, effect), effect) for effect in factor.effects if effect.outcome.fits]
    less = min((each for each in possible if each[0] < 1.0), key=lambda each: each[0], default=None)
    more = max((each for each in possible if each[0] > 1.0), key=lambda each: each[0], default=None)
    texts = [f"{clean(each[1].step)} ×{each[0]:.2f}" if each else "" for each in (less, more)]
    if not any(texts):
        texts[0] = "no effect" if possible else "no step of it fits"
    name = f"{clean(factor.name)} (GPUs)" if factor.name == DEADLINE else clean(factor.name)
    return Swing(name, less[0] if less else 1.0, more[0] if more else 1.0, texts[0], texts[1])


def _ends(swing: Swing) -> str:
    return ", ".join(text for text in (swing.low_text, swing.high_text) if text)
