"""Files written whole or not at all, several of them together or none; and where a file stands in its repository."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from xe_sizer.errors import InputError, Location, Problem

_MOST_LINKS = 40  # as many as the kernel follows


def write_files(texts: Sequence[tuple[Path, str]]) -> None:
    """Write each text beside its file, then put all in place: a reader sees the old file or the new one, never half.

    Raises InputError: one cannot be written; then none is replaced.
    """
    with ExitStack() as stack:
        staged = []
        for file, text in texts:
            with _told(file):
                staged.append((file, _staged(file, text, stack)))
        for file, put_in_place in staged:
            with _told(file):
                put_in_place()


def in_repository(name: str) -> str:
    """The path of a file from the root of its repository, as a code host names it.

    Outside of any it starts at GITHUB_WORKSPACE or the working folder; what lies elsewhere keeps its name.
    """
    path = Path(os.path.normpath(Path.cwd() / name))
    roots = [folder for folder in path.parents if (folder / ".git").exists()][:1]
    roots += [Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd()), Path.cwd()]
    inside = next((root for root in roots if path.is_relative_to(root)), None)
    return name if inside is None else path.relative_to(inside).as_posix()


def _staged(file: Path, text: str, stack: ExitStack) -> Callable[[], object]:
    """What puts the text in place, which lies beside the file by then; a device or a pipe is written to instead."""
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if file.exists() and not file.is_file():
        return partial(file.write_text, text, encoding="utf-8", errors="replace")
    target = _followed(file)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with temporary.open("x", encoding="utf-8", errors="replace", newline="") as out:
        stack.callback(temporary.unlink, missing_ok=True)
        out.write(text)
    return partial(temporary.replace, target)


def _followed(file: Path) -> Path:
    """Where the symbolic links of a file end, which need not exist. Raises OSError: they go in a circle."""
    for _ in range(_MOST_LINKS):
        if not file.is_symlink():
            return file
        file = file.parent / file.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """Turns an OSError into bad input that names the file."""
    try:
        yield
    except OSError as error:
        raise InputError(Problem(f"cannot write: {error.strerror}", Location(str(file)))) from error
