"""Build wheel and sdist of the last commit, twice in different places, and refuse what is not the same to the byte.

    python scripts/release.py [FOLDER]        the folder that they go to; default: dist

Needs hatchling (extra `[dev]`). Each build has a folder, a umask, a time zone, a language and file times of its own;
what they share is the commit and its time. A wheel that is built of the unpacked sdist must be the same, too. Prints
the SHA-256 of both files. `WHEEL` in the wheel names the hatchling that built it: with it anybody gets these bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SURROUNDINGS = ((0o022, "UTC", "C.UTF-8"), (0o077, "Asia/Tokyo", "C"))
"""Umask, time zone and locale of each build."""
# Python 3.11 before 3.11.4 has no filters; what is unpacked was packed a moment before.
SAFE: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def build(source: Path, to: Path, epoch: str, umask: int, zone: str, locale: str, kinds: tuple[str, ...]) -> None:
    """Build the kinds of distributions of a source tree, whose files get times of now and modes of the umask."""
    for file in source.rglob("*"):
        file.chmod(file.stat().st_mode & ~umask)
        os.utime(file)
    targets = [word for kind in kinds for word in ("-t", kind)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *targets, "-d", str(to)],
        cwd=source, check=True, capture_output=True, umask=umask,
        env={**os.environ, "SOURCE_DATE_EPOCH": epoch, "TZ": zone, "LC_ALL": locale},
    )  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def main(to: Path) -> int:
    epoch = git("log", "-1", "--format=%ct").decode().strip()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        found = []
        for place, (umask, zone, locale) in enumerate(SURROUNDINGS):
            source = work / ("build" * (place + 1))
            with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
                archive.extractall(source, **SAFE)
            build(source, work / f"dist-{place}", epoch, umask, zone, locale, ("wheel", "sdist"))
            found.append(digests(work / f"dist-{place}"))
        (sdist,) = (work / "dist-0").glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            archive.extractall(work / "unpacked", **SAFE)
        build(
            work / "unpacked" / sdist.name.removesuffix(".tar.gz"), work / "again", epoch, *SURROUNDINGS[0], ("wheel",)
        )
        again = digests(work / "again")
        first, second = found
        differ = [
            name for name in first if first[name] != second.get(name) or first[name] != again.get(name, first[name])
        ]
        if differ:
            print(f"not reproducible: {', '.join(differ)}", file=sys.stderr)
            return 1
        to.mkdir(parents=True, exist_ok=True)
        for file, digest in first.items():
            shutil.copyfile(work / "dist-0" / file, to / file)
            print(f"{digest}  {to / file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
