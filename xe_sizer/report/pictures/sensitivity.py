"""What each factor is worth, as a tornado."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from xe_sizer.report.document import Picture
from xe_sizer.report.format import clean, duration
from xe_sizer.report.picture import Axis, Swing, Tornado
from xe_sizer.result.studies import DEADLINE

if TYPE_CHECKING:
    from xe_sizer.report.document import Figure
    from xe_sizer.result.studies import Factor, Sensitivity

TITLE = "Effect of each factor"


def timed(result: Sensitivity) -> tuple[Factor, ...]:
    """The factors whose steps move the time; those of the deadline move the GPUs."""
    return tuple(factor for factor in result.factors if factor.name != DEADLINE)


def unfit(factors: Iterable[Factor]) -> str:
    """The steps that do not fit, in one line; empty where all do."""
    steps = [clean(effect.step) for factor in factors for effect in factor.effects if not effect.outcome.fits]
    return f"does not fit: {'; '.join(steps)}" if steps else ""


def pictures(result: Sensitivity, figure: Figure) -> Iterator[Picture]:
    """figure : the tornado in characters."""
    swings = tuple(map(_swing, timed(result)))
    if not swings:
        return
    axis = Axis("factor on the time of the whole job", logarithmic=True)
    says = "; ".join(f"{swing.name}: {_ends(swing)}" for swing in swings)
    drawing = Tornado(axis, swings, f"as asked: {duration(result.base.total_s)}")
    short = unfit(timed(result))
    note = "The axis is logarithmic: half and twice are equally far." + (f" * {short}." if short else "")
    yield Picture(TITLE, f"{says}; {short}" if short else says, drawing, note, figure)


def _swing(factor: Factor) -> Swing:
    """The steps that fit and move the figure most to each side."""
    possible = [(effect.time_ratio, effect) for effect in factor.effects if effect.outcome.fits]
    less = min((each for each in possible if each[0] < 1.0), key=lambda each: each[0], default=None)
    more = max((each for each in possible if each[0] > 1.0), key=lambda each: each[0], default=None)
    texts = [f"{clean(each[1].step)} ×{each[0]:.2f}" if each else "" for each in (less, more)]
    if not any(texts):
        texts[0] = "no effect" if possible else "no step fits"
    return Swing(marked(factor), less[0] if less else 1.0, more[0] if more else 1.0, texts[0], texts[1])


def marked(factor: Factor) -> str:
    """The name of a factor, with a star where a step of it does not fit."""
    return clean(factor.name) + ("" if all(effect.outcome.fits for effect in factor.effects) else " *")


def _ends(swing: Swing) -> str:
    return ", ".join(text for text in (swing.low_text, swing.high_text) if text)
