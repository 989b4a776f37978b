"""The accelerators of the machine at hand, by the names that their makers' tools print."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache

WAIT_S = 20.0  # chosen: a driver that answers later hangs


@cache
def installed_accelerators() -> tuple[str, int] | None:
    """Name of the accelerators, and how many there are; where they differ, of the most. None: nobody finds one."""
    for command, read in TOOLS:
        text = _answer(command)
        found = Counter(read(text)) if text else Counter()
        if found:
            return found.most_common(1)[0]
    return None


def _answer(command: tuple[str, ...]) -> str:
    import subprocess

    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _of_nvidia(text: str) -> Iterator[str]:
    """One name a line; of cards for games, of which some come with more than one size, the memory too."""
    for line in text.splitlines():
        name, _, mib = line.partition(",")
        if name.strip():
            size = f" {round(int(mib) / 1024)}GB" if "GeForce" in name and mib.strip().isdecimal() else ""
            yield f"{name.strip()}{size}"


def _of_amd(text: str) -> Iterator[str]:
    try:
        cards = json.loads(text)
    except json.JSONDecodeError:
        return
    for card in cards.values() if isinstance(cards, dict) else ():
        if isinstance(card, dict):
            name = card.get("Card Series") or card.get("Card series")
            if name:
                yield str(name)


TOOLS: tuple[tuple[tuple[str, ...], Callable[[str], Iterator[str]]], ...] = (
    (("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"), _of_nvidia),
    (("rocm-smi", "--showproductname", "--json"), _of_amd),
)
