"""The accelerators of the machine at hand, by the names that their makers' tools print, and the host beside them."""

from __future__ import annotations

import json
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from xe_sizer.immutable import Immutable
from xe_sizer.units import MIB

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


# More of them than a name, and the host.


class Card(Immutable):
    """One accelerator as its driver tells of it; None where it does not.

    memory_bytes : all of it; used_bytes : held at the moment; busy : share of the time that it computes [-]
    power_limit_w : what it may draw; pcie : generation and lanes of its bus; driver : release
    link : what joins it to the others, in the driver's words
    """

    name: str
    memory_bytes: float
    used_bytes: float
    busy: float | None
    power_limit_w: float | None
    pcie: tuple[int, int] | None
    driver: str
    link: str = ""


_ASKED = (
    "name", "memory.total", "memory.used", "utilization.gpu", "power.limit", "pcie.link.gen.max", "pcie.link.width.max",
    "driver_version",
)  # fmt: skip
_NVIDIA = ("nvidia-smi", f"--query-gpu={','.join(_ASKED)}", "--format=csv,noheader,nounits")
_LINKS = ("nvidia-smi", "nvlink", "--status", "-i", "0")
_RATE = re.compile(r"Link \d+:\s*([\d.]+) GB/s")


def installed_cards() -> tuple[Card, ...]:
    """Every accelerator of NVIDIA's that its tool tells of; of others `installed_accelerators` has the name."""
    rows = [[cell.strip() for cell in line.split(",")] for line in _answer(_NVIDIA).splitlines()]
    rows = [row for row in rows if len(row) == len(_ASKED) and _figure(row[1]) is not None]
    rates = [float(rate) for rate in _RATE.findall(_answer(_LINKS))] if len(rows) > 1 else []
    link = f"NVLink, {len(rates)} links of {rates[0]:g} GB/s one way" if rates else "PCIe" if len(rows) > 1 else ""
    return tuple(_card(row, link) for row in rows)


def _card(row: list[str], link: str) -> Card:
    name, total, used, busy, limit, generation, lanes, driver = row
    known_busy, gen, width = _figure(busy), _figure(generation), _figure(lanes)
    return Card(
        name=name,
        memory_bytes=(_figure(total) or 0.0) * MIB,
        used_bytes=(_figure(used) or 0.0) * MIB,
        busy=None if known_busy is None else known_busy / 100.0,
        power_limit_w=_figure(limit),
        pcie=(int(gen), int(width)) if gen and width else None,
        driver=driver,
        link=link,
    )


def _figure(text: str) -> float | None:
    """A number; None for `[N/A]` and its like."""
    try:
        return float(text)
    except ValueError:
        return None


def host_memory_bytes() -> float | None:
    """Memory of the host [bytes]; None where its system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return None


def processor() -> str:
    """The host's processor and how many of its cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = named[1] if named else platform.processor() or platform.machine()
    return f"{' '.join(name.split())}, {cores} {'core' if cores == 1 else 'cores'}"
