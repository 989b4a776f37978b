"""Which grouped products of experts an engine ships tuned block sizes for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from xe_sizer.laws.device import BF16, FP16
from xe_sizer.software.release import is_month, version

_Shapes = dict[str, str]  # experts x width of a slice, and the first release that has it


@cache
def _tables() -> dict[str, dict[str, dict[str, _Shapes]]]:
    """By engine, accelerator and format of weights."""
    stored = msgspec.yaml.decode(Path(__file__).with_name("tuned_experts.yaml").read_bytes())
    return {
        engine: {
            gpu: {
                form: {shape: release for release, shapes in releases.items() for shape in shapes}
                for form, releases in forms.items()
            }
            for gpu, forms in gpus.items()
        }
        for engine, gpus in stored.items()
    }


def is_tuned(engine: str, release: str | None, gpu: str, form: str, experts: int, width: int) -> bool:
    """Whether there is a table for so many experts of a rank, each a slice of that width.

    engine : whose tables; release : of it, None: the newest
    gpu : name of the accelerator; form : of the weights
    """
    form = BF16 if form == FP16 else form  # tables of 16 bit do not tell them apart
    shapes = _tables().get(engine, {}).get(gpu, {}).get(form, {})
    since = shapes.get(f"{experts}x{width}")
    if since is None or release is None or is_month(release):  # months of tables are not known
        return since is not None
    return version(since) <= (*version(release), 0, 0)
