"""Write the picture of the README from the example that it shows: python scripts/pictures.py"""

from __future__ import annotations

from pathlib import Path

import xe_sizer
from xe_sizer.report.answers.estimate import memory_picture
from xe_sizer.report.svg import svg_file

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "lora-llama-2-70b.yaml"
IMAGE = ROOT / "docs" / "images" / "memory.svg"


def image() -> str:
    """The memory of the example, as the HTML report draws it."""
    return svg_file(memory_picture(xe_sizer.estimate(xe_sizer.load(EXAMPLE))))


if __name__ == "__main__":
    IMAGE.parent.mkdir(exist_ok=True)
    IMAGE.write_text(image(), encoding="utf-8")
