"""Model servers that a Dockerfile's last ENTRYPOINT and CMD start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from xe_sizer.errors import Location
from xe_sizer.importers.parts.service import VLLM, Service
from xe_sizer.importers.parts.service_commands import arguments_of, engine_of_image, role_of, services_of
from xe_sizer.importers.readers.shell import read_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xe_sizer.importers.source import Source

_INSTRUCTION = re.compile(r"^[ \t]*(FROM|ENTRYPOINT|CMD)[ \t]+((?:[^\n\\]|\\\n|\\.)*)", re.IGNORECASE | re.MULTILINE)
_NAME = re.compile(r"(.*\.)?dockerfile(\..*)?|containerfile", re.IGNORECASE)


def is_dockerfile(source: Source) -> bool:
    """Whether a file is a Dockerfile, by its name."""
    return bool(_NAME.fullmatch(source.path.name))


def services_of_dockerfile(source: Source) -> Iterator[Service]:
    """The server that the image starts; the image of vLLM takes arguments alone."""
    last: dict[str, tuple[str, Location]] = {}
    for found in _INSTRUCTION.finditer(source.text):
        line = source.text.count("\n", 0, found.start()) + 1
        last[found[1].upper()] = found[2].replace("\\\n", " ").strip(), Location(source.name, line, 1)
    words = [word for name in ("ENTRYPOINT", "CMD") if name in last for word in _words(*last[name])]
    started = list(services_of(read_words(words, source.given).commands)) if words else []
    base, where = last.get("FROM", ("", Location(source.name)))
    if started or engine_of_image(base) != VLLM or not words or not words[0][0].startswith("-"):
        yield from started
        return
    keys = arguments_of(words)
    yield Service(VLLM, keys, where, role=role_of(keys))


def _words(text: str, where: Location) -> list[tuple[str, Location]]:
    """The words of an instruction: a JSON list, or a command line."""
    if text.startswith("["):
        try:
            return [(word, where) for word in msgspec.json.decode(text, type=list[str])]
        except msgspec.DecodeError:
            return []
    return [(word, where) for word in text.split()]
