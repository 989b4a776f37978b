"""Build anew all that rests on published runs, in this order: python scripts/build_evidence.py FILE...

The residuals that ranges and probabilities are made of (build_residuals.py), docs/reference/accuracy.md and the table
of the README (build_accuracy.py), docs/reference/constants.md (provenance.py). FILE: records as `xe-sizer validate`
reads them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = [str(file) for file in parser.parse_args().files]
    for script, arguments in (("build_residuals.py", files), ("build_accuracy.py", files), ("provenance.py", [])):
        subprocess.run([sys.executable, HERE / script, *arguments], check=True)


if __name__ == "__main__":
    main()
