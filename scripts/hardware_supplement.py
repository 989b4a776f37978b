"""What the tables of facts lack: choices and assumptions of the hardware catalogue, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field

PEAK_COLUMNS = {
    "fp32": "fp32_tflops",
    "tf32": "tf32_tflops",
    "bf16": "bf16_tflops",
    "fp16": "fp16_tflops",
    "fp8": "fp8_tflops",
    "fp4": "fp4_tflops",
    "int8": "int8_tops",
}

# Dense, of the data sheet (twice that of int8), which the tables of facts leave out.
INT4_TOPS = {"a100-sxm-80gb": 1248, "a100-sxm-40gb": 1248, "a100-pcie-80gb": 1248, "a100-pcie-40gb": 1248}

GENERATIONS = (  # first matching prefix
    ("v100", "volta"),
    ("t4", "turing"),
    ("titan-rtx", "turing"),
    ("rtx-pro-6000-blackwell", "blackwell-rtx"),
    ("rtx-5090", "blackwell-rtx"),
    ("rtx-6000-ada", "ada"),
    ("rtx-40", "ada"),
    ("l4", "ada"),
    ("rtx-", "ampere"),
    ("a", "ampere"),
    ("h", "hopper"),
    ("gh200", "hopper"),
    ("b", "blackwell"),
    ("gb", "blackwell"),
    ("mi2", "cdna2"),
    ("mi30", "cdna3"),
    ("mi32", "cdna3"),
    ("mi35", "cdna4"),
    ("gaudi2", "gaudi2"),
    ("gaudi3", "gaudi3"),
    ("tpu", "tpu"),
)

# Whose profiles are written by hand: the tables count chips where software counts NeuronCores, or lack them.
BY_HAND = (
    "trainium", "aws-trn", "apple-", "dgx-spark", "ryzen-", "vr200", "rubin-", "mi350p", "mi455x", "jetson-",
)  # fmt: skip

# Rate to the host [GB/s, one direction] of superchips, which have no PCIe link to it.
HOST_RATES = {"gh200-96gb": 450, "gh200-144gb": 450, "gb200": 225, "gb300": 225}
_C2C = "host link: NVLink-C2C at {} GB/s one direction, as announced for the superchip, not measured"
_PCIE = "PCIe: generation {} x16, that of the parts of its time"


def usable_share(name: str) -> tuple[float, str]:
    """Share of the marketed GiB that software sees, where no log of the driver's figure was found."""
    if name in ("a40", "rtx-6000-ada"):
        return 0.925, "L4, L40 and L40S with ECC report 0.92 to 0.93"
    if name == "b100":
        return 0.929, "as B200: 178.35 of 192"
    if name.startswith("mi"):
        return 0.999, "Instinct cards report 0.9999"
    return 0.985, "V100, A100, H100 and H200 report 0.984 to 0.992"


Patch = dict[str, tuple[str, str]]
_GA102_LINK = "link rate: 56.25 GB/s each way between two cards, from the whitepaper of the GA102"
PATCHES: dict[str, Patch] = {
    "rtx-a6000": {"bf16_tflops": ("154.8", "bf16 peak: that of fp16, as on the A40 with the same die")},
    "a10g": {"bf16_tflops": ("70", "bf16 peak: that of fp16, as on every other Ampere part")},
    "rtx-a5000": {"scaleup_onedir_gbs": ("56.25", "bridge rate: that of the RTX A6000, same die")},
    "rtx-3090": {
        "measured_max_bf16_tflops": ("82.92", ""),
        "scaleup_type": ("NVLink3 bridge (pair)", ""),
        "scaleup_onedir_gbs": ("56.25", _GA102_LINK),
    },
    "rtx-3090-ti": {"scaleup_type": ("NVLink3 bridge (pair)", ""), "scaleup_onedir_gbs": ("56.25", _GA102_LINK)},
    "rtx-4080": {"sm_or_cu": ("76", "")},  # 9,728 lanes
    "rtx-4090": {"measured_max_bf16_tflops": ("179.2", ""), "measured_max_fp8_tflops": ("354.31", "")},
    "h20-96gb": {
        "scaleup_onedir_gbs": ("450", "link rate: NVLink 4 in full, as on the H100"),
        "pcie_gen": ("5", _PCIE.format(5)),
        "pcie_lanes": ("16", ""),
    },
    "h100-nvl-94gb": {"scaleup_onedir_gbs": ("300", "bridge rate: that of the H100 PCIe")},
    "h200-nvl-141gb": {"scaleup_onedir_gbs": ("300", "bridge rate: that of the H100 PCIe")},
    "h800-sxm-80gb": {"pcie_gen": ("5", _PCIE.format(5)), "pcie_lanes": ("16", "")},
    "gh200-96gb": {"pcie_gen": ("", _C2C.format(450))},
    "gh200-144gb": {"pcie_gen": ("", _C2C.format(450))},
    "gb200": {"pcie_gen": ("", _C2C.format(225))},
    "gb300": {
        "pcie_gen": ("", _C2C.format(225)),
        "measured_max_bf16_tflops": ("1822", "fastest products: those measured on the GB200, the same compute dies"),
        "measured_max_fp8_tflops": ("3615.6", ""),
        "usable_gib": ("278", "memory: 284672 MiB, from a cloud catalogue"),
        "usable_source": ("", ""),
        "int8_tops": ("", ""),
    },
    "b100": {"pcie_gen": ("5", _PCIE.format(5)), "pcie_lanes": ("16", "")},
    "b300": {
        "pcie_gen": ("5", _PCIE.format(5)),
        "pcie_lanes": ("16", ""),
        "usable_gib": ("262.5", "memory: 268800 MiB, from a cloud catalogue"),
        "usable_source": ("", ""),
        "int8_tops": ("", ""),
    },
    # Of the matrix units, which rocBLAS uses in float32 too (AMD CDNA 2 white paper); tables have that of vectors.
    "mi210": {"fp32_tflops": ("45.3", "")},
    "mi250": {"scaleup_onedir_gbs": ("350", "link rate: that of the MI250X"), "fp32_tflops": ("90.5", "")},
    "mi250x": {"fp32_tflops": ("95.7", "")},
    "gaudi2": {"pcie_gen": ("4", _PCIE.format(4)), "pcie_lanes": ("16", "")},
    "tpu-v4": {
        "scaleup_onedir_gbs": ("300", "link rate: 2400 Gbit/s a chip, from the vendor's public table"),
        "pcie_gen": ("3", _PCIE.format(3)),
        "pcie_lanes": ("16", ""),
    },
    "tpu-v5e": {"pcie_gen": ("3", _PCIE.format(3)), "pcie_lanes": ("16", "")},
    "tpu-v5p": {
        "scaleup_onedir_gbs": ("600", "link rate: 4800 Gbit/s a chip, from the vendor's public table"),
        "pcie_gen": ("3", _PCIE.format(3)),
        "pcie_lanes": ("16", ""),
    },
    "tpu-v6e": {"pcie_gen": ("3", _PCIE.format(3)), "pcie_lanes": ("16", "")},
}

DERIVED = {  # peaks that no datasheet states
    "rtx-3090": "bf16 and fp16 peaks with fp32 accumulation: half of the published fp16-accumulate peak",
    "rtx-3090-ti": "bf16 and fp16 peaks with fp32 accumulation: half of the published fp16-accumulate peak",
    "rtx-4080": "bf16 and fp16 peaks with fp32 accumulation: 2 x fp32, as on the RTX 4090",
    "rtx-5090": "16-bit peaks from the sparse fp16 figure / 4; fp8 from the sparse fp4 figure / 4",
    "rtx-6000-ada": "tensor peaks from the L40S rate per multiprocessor and clock; public tables disagree",
    "rtx-pro-6000-blackwell": "tensor peaks from the sparse fp4 figure: / 8 for 16 bit, / 4 for fp8",
    "rtx-a5000": "tensor peaks from the RTX A6000 by multiprocessors and clock",
    "l4": "tensor peaks: the datasheet's sparse figures / 2",
    "a800-sxm-80gb": "compute and memory: those of the A100 SXM 80GB",
    "h800-sxm-80gb": "compute: that of the H100 SXM",
    "h100-sxm-96gb-hbm2e": "peaks of the H100 SXM 80GB, an upper bound for this 500 W part",
    "mi350x": "peaks: those of the MI355X x 2200 / 2400 MHz",
    "v100-pcie-32gb": "compute and power: those of the 16 GB card",
    "titan-rtx-24gb": "link rate: half of the listed two-way rate",
}

GPU_NOTES = {
    "mi250": "The whole module; software sees two devices of 64 GB with half the peaks each, which is mi250-gcd.",
    "mi250x": "The whole module; software sees two devices of 64 GB with half the peaks each, which is mi250x-gcd.",
    "rtx-4090": "Peaks with fp32 accumulation; with fp16 accumulation they double. Stock drivers have no "
    "peer-to-peer copies.",
    "rtx-5090": "Peaks with fp32 accumulation at the nominal clock; cards clock higher.",
    "l40": "The tensor cores run at half the rate of the L40S.",
    "l40s": "Collectives: the measured host had no peer-to-peer path beyond two cards (5 GB/s on 4, 2 GB/s "
    "on 8). NVIDIA's published time to first token on four cards implies 19 GB/s, which is used instead.",
    "b300": "Sources disagree on the power limit (1000 or 1400 W) and on the int8 peak, left out.",
    "gb300": "The int8 peak is left out: sources disagree.",
    "b200": "Fits were made with 7.7 TB/s (what the memory clock gives); efficiencies are rescaled to 8.0.",
    "h100-sxm-96gb-hbm2e": "Its real peak lies between those of the H100 NVL and SXM; 500 W by default.",
    "gaudi3": "1677 TFLOP/s at 1600 MHz; the white paper's 1835 is at 1750 MHz.",
    "mi300x": "64 GB/s between any pair: a group of two sees one of seven links.",
    "rtx-pro-6000-blackwell": "The Workstation Edition; Server Edition and Max-Q have profiles of their own.",
    "t4": "No bf16.",
    "v100-sxm-16gb": "No bf16.",
    "v100-sxm-32gb": "No bf16.",
    "v100-pcie-32gb": "No bf16.",
    "titan-rtx-24gb": "No bf16.",
}

# Sustained clocks under the power limit lower the efficiency of long runs. Independent timings at large m
# give 0.75 on A100 and 0.68 on H100: 0.86 and 0.85 of the fastest product measured there (271.2 of 312 and
# 794.5 of 989 TFLOP/s), 0.89 and 0.87 of the burst efficiency. Others take the mean, or the lower. Between the other
# kernels of a training step they reach 0.9 to 0.93 of that: published runs of stacks with fused kernels on A100 and
# H100, robust regression over all sources. Ada cards run at the burst efficiency.
SUSTAINED_SHARE_OF_BEST = 0.855
# What recent accelerators sustain follows their power. Products of 16 to 60 TFLOP in aiconfigurator's sweeps (trtllm
# 1.3.0rc20; 3 to 40 ms each) run at the clock that it leaves: 1343 TFLOP/s in 16 bit on the B200 of 1000 W, 1754 on the
# GB300 of 1400 W, which is its 0.8th power; AMD measured 0.61 on one chip at 750 and 1000 W. Others: 0.8.
# Best product and sustained rate as shares of the peak by precision, and where they are from.
_CLOCK = (
    "Sustained: median of 78 products of 16 to 60 TFLOP each, timed by aiconfigurator (trtllm 1.3.0rc20) at the clock "
    "that power leaves{}."
)
_BEST = "fastest measured product {} of {} TFLOP/s. {}"
_WIDE, _NARROW = _CLOCK.format(""), _CLOCK.format(", without the cast in front")
_FOUR_BIT = "fastest and median of 78 products of 16 to 60 TFLOP each, timed by aiconfigurator (trtllm 1.3.0rc20)"
_TYPICAL = "measured by AMD: {} TFLOP/s at most, {} in products of DeepSeek-V3 (Typical Attained FLOPs, October 2026)"
_MOST = "measured by AMD: {} TFLOP/s at most (Max-Achievable FLOPs, part 2)"
# Steps draw full power for longer than the products alone, which on the H100 too leaves 0.92 of these.
_B200_STEPS = (
    " Steps, which draw full power for longer, reach 0.81 of that: fitted to dense steps of five publications (MLPerf "
    "llama2_70b_lora 4.1, 5.0 and 5.1, NeMo 25.02, Megatron Bridge 25.11: 0.70 to 0.86), their geometric mean 0.78 "
    "shrunk by 5 / 6."
)
_B300_STEPS = (
    " Steps, which draw full power for longer, reach 0.92 of that: fitted to dense steps of two publications (MLPerf "
    "llama2_70b_lora 5.1 on whole nodes 0.73, Halo on single GPUs 1.06), their geometric mean 0.88 shrunk by 2 / 3."
)
_AS_IN_16_BIT = " Steps: {} of that, as in 16 bit."
_B200_NARROW = _AS_IN_16_BIT.format(0.81)
_OF_THE_MI355X = "that of the MI355X; sustained: x (1000 / 1400 W)^0.8 of its TFLOP/s, as GB300 to B200"
_OF_CDNA3 = (
    "the share that the MI300X reached in 2024 (668.4 of 1307.4 TFLOP/s); sustained: x 0.855, as on A100 and H100. "
    "With three times the power for each FLOP, clocks need not fall as far; assumed."
)
# Of products in 4 bit, where no accelerator that lends laws has any.
REST_IN_FOUR_BIT = {
    "mi355x": {"floor_us": 12.56, "memory_efficiency": 0.818, "sharpness": 2.77, "cast_bytes_per_element": 7.94},
    "rtx-pro-6000-blackwell": {
        "floor_us": 15.03, "memory_efficiency": 0.737, "sharpness": 2.65, "cast_bytes_per_element": 3.34,
    },
}  # fmt: skip
_CDNA2 = {"bf16": (0.511, 0.437, _OF_CDNA3)}
_GAUDI3_STEPS = (
    "fastest measured product 1243 of 1677 TFLOP/s; sustained: fitted to steps of LoRA on Llama 7B, Gemma 2B and "
    "RoBERTa-large that Optimum Habana's tests time on Gaudi 2 and 3"
)
_SUSTAINED_AS_USUAL = "Sustained: x 0.855, as on A100 and H100."
SUSTAINED: dict[str, dict[str, tuple[float, float, str]]] = {
    "b200": {"fp4": (0.505, 0.369, f"{_FOUR_BIT}.{_B200_NARROW} The rest as in 8 bit, assumed.")},
    "gb200": {
        "bf16": (0.729, 0.574, _BEST.format(1822, 2500, _WIDE)),
        "fp8": (0.723, 0.573, _BEST.format(3615.6, 5000, _NARROW)),
        "fp4": (0.52, 0.446, _FOUR_BIT),
    },
    "gb300": {
        "bf16": (0.729, 0.702, _BEST.format(1822, 2500, _WIDE)),
        "fp8": (0.75, 0.727, _BEST.format(3749, 5000, _NARROW)),
        "fp4": (0.646, 0.428, _FOUR_BIT),
    },
    "b300": {
        "bf16": (0.786, 0.592, _BEST.format(1769, 2250, _WIDE) + _B300_STEPS),
        "fp8": (0.745, 0.6, _BEST.format(3353.3, 4500, _NARROW) + _AS_IN_16_BIT.format(0.92)),
        "fp4": (0.665, 0.426, f"{_FOUR_BIT}.{_AS_IN_16_BIT.format(0.92)}"),
    },
    "mi325x": {"bf16": (0.636, 0.471, _TYPICAL.format(831, 616)), "fp8": (0.54, 0.438, _TYPICAL.format(1409, 1143))},
    "mi300x": {
        "bf16": (
            0.542,
            0.396,
            f"{_MOST.format(708)}. Sustained: that of the MI325X x 708 / 843, what AMD measured on both.",
        ),
        "fp8": (0.488, 0.367, f"{_MOST.format(1273)}; sustained: as in 16 bit"),
    },
    "mi355x": {
        "bf16": (0.626, 0.463, _BEST.format(1565, 2500, "Sustained: x 0.74, as AMD measured on the MI325X.")),
        "fp8": (0.581, 0.43, "16 bit x 1143 / 616, what AMD measured on the MI325X; assumed"),
        "fp4": (0.46, 0.34, "8 bit x 1.6, the mean of four Blackwells; the rest that of the H100 in 8 bit; assumed"),
    },
    "mi350x": {
        "bf16": (0.626, 0.385, _OF_THE_MI355X),
        "fp8": (0.581, 0.357, _OF_THE_MI355X),
        "fp4": (0.46, 0.286, _OF_THE_MI355X),
    },
    "rtx-pro-6000-blackwell": {
        "bf16": (0.915, 0.782, _BEST.format(457.6, 500, _SUSTAINED_AS_USUAL)),
        "fp8": (0.905, 0.774, _BEST.format(905.3, 1000, _SUSTAINED_AS_USUAL)),
        "fp4": (
            0.804,
            0.687,
            _BEST.format(1608, 2000, f"{_SUSTAINED_AS_USUAL} The rest that of the L40S in 8 bit; assumed"),
        ),
    },
    "mi250x": _CDNA2,
    "mi250": _CDNA2,
    "mi210": _CDNA2,
    "gaudi3": {
        "bf16": (
            0.741,
            0.355,
            _GAUDI3_STEPS,
        ),
        "fp8": (0.769, 0.368, "fastest measured product 1289.5 of 1677 TFLOP/s; sustained: as in 16 bit"),
    },
}
_SUSTAINED_IN_TRAINING = (
    "Sustained: 0.92 of linear layers timed by Vidur, fitted to published runs of tuned stacks on A100 and H100."
)
_POWER_LIMITED = "Sustained: that of the H100 x (500 / 700 W)^0.8, as GB300 to B200."
_NOT_SLOWED = "Sustained: the same, fitted to published fine-tuning runs on L40S."


@dataclass(frozen=True)
class MatmulFit:
    """Which fit, the sustained efficiency, and a rescaling to the profile's bandwidth."""

    table: tuple[str, str]
    sustained: float
    note: str
    bandwidth_scale: float = 1.0


_B200_BANDWIDTH = 7.7 / 8.0
MATMUL_FITS: dict[str, dict[str, MatmulFit]] = {
    "a100-sxm-80gb": {
        "bf16": MatmulFit(("a100_sxm", "trtllm/1.0.0"), 0.70, _SUSTAINED_IN_TRAINING),
    },
    "h100-sxm-80gb": {
        "bf16": MatmulFit(("h100_sxm", "trtllm/1.3.0rc20"), 0.62, _SUSTAINED_IN_TRAINING),
        "fp8": MatmulFit(("h100_sxm", "trtllm/1.3.0rc20"), 0.60, _SUSTAINED_IN_TRAINING),
    },
    "h200-sxm-141gb": {
        "bf16": MatmulFit(("h200_sxm", "trtllm/1.3.0rc20"), 0.62, "Sustained: that of the H100."),
        "fp8": MatmulFit(("h200_sxm", "trtllm/1.3.0rc20"), 0.60, "Sustained: that of the H100."),
    },
    "h100-sxm-96gb-hbm2e": {
        "bf16": MatmulFit(("h100_sxm", "trtllm/1.3.0rc20"), 0.474, _POWER_LIMITED),
        "fp8": MatmulFit(("h100_sxm", "trtllm/1.3.0rc20"), 0.458, _POWER_LIMITED),
    },
    "b200": {
        "bf16": MatmulFit(("b200_sxm", "trtllm/1.3.0rc20"), 0.484, _WIDE + _B200_STEPS, _B200_BANDWIDTH),
        "fp8": MatmulFit(("b200_sxm", "trtllm/1.3.0rc20"), 0.497, _NARROW + _B200_NARROW, _B200_BANDWIDTH),
    },
    "l40s": {
        "bf16": MatmulFit(("l40s", "trtllm/1.0.0"), 0.574, f"Weights beyond the cache. {_NOT_SLOWED}"),
        "fp8": MatmulFit(("l40s", "vllm/0.24.0"), 0.563, f"Weights beyond the cache. {_NOT_SLOWED}"),
    },
}


@dataclass(frozen=True)
class Kernel:
    """An attention kernel: a fit of the forward with a published backward, or all from publications."""

    table: tuple[str, str] | None
    values: dict[str, float] = field(default_factory=dict)
    note: str = ""
    bandwidth_scale: float = 1.0


def _published(floor_us: float, forward: float, backward: float, note: str) -> Kernel:
    values = {
        "floor_us": floor_us,
        "flops_efficiency": forward,
        "backward_flops_efficiency": backward,
        "half_length": 80.0,
        "memory_efficiency": 0.5,
    }
    return Kernel(None, values, note)


def _fitted(system: str, engine: str, backward: float, note: str, bandwidth_scale: float = 1.0) -> Kernel:
    return Kernel((system, engine), {"backward_flops_efficiency": backward}, note, bandwidth_scale)


_FA2 = "Backward: FlashAttention-2 (arXiv 2307.08691), up to 0.63 on long sequences, 0.5 at 4k causal."
_FA3 = "Backward: FlashAttention-3 (arXiv 2407.08608), 0.5 to 0.56 on long sequences."
_FA1 = "FlashAttention (arXiv 2205.14135) reaches 25 to 40 % of an A100, per arXiv 2307.08691."
_FA2_HOPPER = "FlashAttention-2 reaches about 35 % of an H100, per arXiv 2407.08608; backward in proportion."
_FA1_HOPPER = "About half of FlashAttention-2, as on the A100; assumed."
_BLACKWELL = "The H100's rate by multiprocessors and clock: the kernels lack the new instructions."
_FA2_BLACKWELL = (
    "FlashAttention-2 on a B200: 315 to 362 TFLOP/s at 1k to 8k tokens (tritonbench pull request 171), backward 334 "
    "(flash-attention issue 1589)."
)
_ULTRA = "The B200's, 1.3 times: Blackwell Ultra takes exponentials at twice the rate, which bound attention; assumed."
_BLACKWELL_ULTRA = {
    "flash-1": _published(11.0, 0.10, 0.08, _BLACKWELL),
    "flash-2": _published(11.0, 0.16, 0.15, _FA2_BLACKWELL),
    "flash-3": _published(11.0, 0.80, 0.59, _ULTRA),
}
ATTENTION: dict[str, dict[str, Kernel]] = {
    "b300": _BLACKWELL_ULTRA,
    "gb300": _BLACKWELL_ULTRA,
    "a100-sxm-80gb": {
        "flash-1": _published(12.0, 0.38, 0.30, _FA1),
        "flash-2": _fitted("a100_sxm", "vllm/0.14.0", 0.50, _FA2),
        "flash-3": _fitted("a100_sxm", "sglang/0.5.10", 0.53, f"The fastest current kernels. {_FA2}"),
    },
    "h100-sxm-80gb": {
        "flash-1": _published(12.0, 0.19, 0.15, _FA1_HOPPER),
        "flash-2": _published(12.0, 0.38, 0.32, _FA2_HOPPER),
        "flash-3": _fitted("h100_sxm", "vllm/0.24.0", 0.50, _FA3),
    },
    "h200-sxm-141gb": {
        "flash-1": _published(12.0, 0.19, 0.15, _FA1_HOPPER),
        "flash-2": _published(12.0, 0.38, 0.32, _FA2_HOPPER),
        "flash-3": _fitted("h200_sxm", "vllm/0.24.0", 0.50, _FA3),
    },
    "b200": {
        "flash-1": _published(11.0, 0.10, 0.08, _BLACKWELL),
        "flash-2": _published(11.0, 0.16, 0.15, _FA2_BLACKWELL),
        "flash-3": _fitted(
            "b200_sxm", "vllm/0.24.0", 0.45, "Backward: 0.73 of it, as on the H100; assumed.", _B200_BANDWIDTH
        ),
    },
    "l40s": {
        "flash-1": _published(8.0, 0.36, 0.29, "0.65 of FlashAttention-2, as on the A100; assumed."),
        "flash-2": _fitted("l40s", "vllm/0.24.0", 0.47, "Backward: 0.85 of it, as on the A100; assumed."),
        "flash-3": _fitted("l40s", "vllm/0.24.0", 0.47, "Backward: 0.85 of it, as on the A100; assumed."),
    },
}

# Width of a head at which exponentials and sums of scores take as long as its products. Forward of 16k tokens on an
# H100, heads of 64 and 128 (arXiv:2407.08608, figure 5): FlashAttention-2 324 and 370 TFLOP/s, FlashAttention-3 497 and
# 648. An A100 runs the kernels of FlashAttention-2. A B200 has the H100's exponentials beside twice its tensor cores, a
# B300 twice as many; that the width goes with them is assumed.
HALF_HEAD_DIM = {"flash-1": 21, "flash-2": 21, "flash-3": 56}
OTHER_HALF_HEAD_DIMS = {
    "a100-sxm-80gb": {"flash-1": 21, "flash-2": 21, "flash-3": 21},
    "l40s": {"flash-1": 21, "flash-2": 21, "flash-3": 21},
    "b200": {"flash-1": 21, "flash-2": 21, "flash-3": 112},
}

# Attention over a cache: system and engine of the fit, and the bandwidth that it took over the profile's.
DECODES = {
    "a100-sxm-80gb": ("a100_sxm", "vllm/0.14.0", 1.0),
    "h100-sxm-80gb": ("h100_sxm", "sglang/0.5.14", 1.0),
    "h200-sxm-141gb": ("h200_sxm", "vllm/0.24.0", 0.95),
    "b200": ("b200_sxm", "vllm/0.24.0", _B200_BANDWIDTH),
    "l40s": ("l40s", "vllm/0.24.0", 1.0),
}

COLLECTIVE_TABLES = {
    "a100-sxm-80gb": ("a100_sxm", "nccl-2.27.3"),
    "h100-sxm-80gb": ("h100_sxm", "nccl-2.29.2"),
    "h200-sxm-141gb": ("h200_sxm", "nccl-2.29.2"),
    "b200": ("b200_sxm", "nccl-2.29.2"),
    "gb200": ("gb200", "nccl-2.29.2"),
    "l40s": ("l40s", "nccl-2.27.3"),
    "rtx-pro-6000-blackwell": ("rtx_pro_6000_server", "nccl-2.29.2"),
}
L40S_BUS_BEYOND_PAIRS = 19.0


def _send(alpha_us: float, bus_gb_per_s: float, note: str) -> dict[str, object]:
    source = f"p2pBandwidthLatencyTest, ml-engineering network/README.md{note}; latency: 2-rank all-to-all"
    return {"ranks": [2], "alpha_us": [alpha_us], "bus_gb_per_s": [bus_gb_per_s], "source": source}


SENDS = {
    "a100-sxm-80gb": _send(10.5, 274, ""),
    "h100-sxm-80gb": _send(6.4, 376, ""),
    "h200-sxm-141gb": _send(6.7, 376, " (H100)"),
    "b200": _send(9.3, 746, " (GB200)"),
    "gb200": _send(10.4, 746, ""),
}

STREAMING = {  # share of the bandwidth, and whose smallest kernels give the floor
    "a100-sxm-80gb": (0.85, ("a100_sxm", "trtllm/1.0.0")),
    "h100-sxm-80gb": (0.85, ("h100_sxm", "trtllm/1.3.0rc20")),
    "h200-sxm-141gb": (0.85, ("h200_sxm", "trtllm/1.3.0rc20")),
    "b200": (0.80, ("b200_sxm", "trtllm/1.3.0rc20")),
    "l40s": (0.82, ("l40s", "trtllm/1.3.0rc20")),
}

# What nodes of a generation usually had for each accelerator; 400 Gbit/s where nothing stands here.
NIC_GBIT_PER_S = {"volta": 100, "ampere": 200, "cdna2": 200}
USUAL_NODES: dict[str, dict[str, object]] = {
    "gh200-96gb": {"scale_up": "none", "gpus": 1},
    "gh200-144gb": {"scale_up": "none", "gpus": 1},
    "gb200": {"gpus": 72, "cooling": "liquid"},  # one NVLink domain a rack
    "gb300": {"gpus": 72, "cooling": "liquid"},
}
# What people buy or rent where memory is short, by growing memory within its segment.
SUGGESTED = (
    "rtx-4090", "rtx-5090", "rtx-a6000", "rtx-pro-6000-blackwell",
    "l40s", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200", "mi300x", "b300",
)  # fmt: skip
DESKTOP = ("rtx-", "titan-")  # how names of cards for desktops and workstations begin
# GeForce and RTX parts of the Blackwell generation run Ada's kind of tensor-core instructions, not those of the
# data-centre parts.
LENDS_TO: dict[str, dict[str, object]] = {
    "a100-sxm-80gb": {"generations": ["volta", "turing", "ampere"]},
    "l40s": {"generations": ["ada"]},
    "rtx-pro-6000-blackwell": {"generations": ["blackwell-rtx"]},
    "h100-sxm-80gb": {"generations": ["hopper"], "others": True},
    "b200": {"generations": ["blackwell"]},
    "mi300x": {"generations": ["cdna2", "cdna3"], "vendors": ["AMD"]},
    "mi355x": {"generations": ["cdna4"]},
    "gaudi2": {"generations": ["gaudi2"]},
    "gaudi3": {"generations": ["gaudi3"], "vendors": ["Intel"]},
}
BORROWS_FROM = dict.fromkeys(("mi300x", "mi355x", "gaudi2", "gaudi3"), "h100-sxm-80gb") | {
    "rtx-pro-6000-blackwell": "l40s",
    # GeForce cards halve their peak in 16 bit, and reach all of it; the L40S is held by its power at 0.57.
    "rtx-4080": "rtx-4090",
    "rtx-3090-ti": "rtx-3090",
}

FABRICS = (  # first matching beginning of the topology's description
    ("nvswitch", "nvswitch"),
    ("nvlink5 nvswitch", "nvswitch"),
    ("nvlink all-to-all", "nvlink-mesh"),
    ("nvlink bridge pairs", "nvlink-pairs"),
    ("nvlink hybrid cube mesh", "nvlink-cube-mesh"),
    ("xgmi", "xgmi-mesh"),
    ("roce", "roce-mesh"),
    ("neuronlink", "neuronlink"),
    ("pcie", "pcie"),
    ("single", "none"),
)
VENDOR_FABRICS = {
    "AWS": "efa",
    "Azure": "infiniband",
    "NVIDIA": "infiniband",
    "OCI": "roce",
    "GCP": "ethernet",
    "Intel": "roce",
}
SERVER_FABRICS = {"gcp-a3-ultragpu-8g": "roce", "dell-xe9680-h100": "infiniband"}

SERVER_PATCHES: dict[str, Patch] = {
    "dell-xe9780-b300": {
        "gpus_per_node": ("8", "8 accelerators, an HGX B300 board; sources mix counts by node and by rack"),
        "intra_topology": ("nvswitch", "fabric: that of the HGX B300 board"),
        "intra_onedir_gbs_per_gpu": ("900", "link rate: that of the B300"),
    },
    "dell-xe7740-l40s": {"gpus_per_node": ("8", "8 double-width cards, a full chassis")},
    "dell-xe7740-rtxpro6000": {"gpus_per_node": ("8", "8 double-width cards, a full chassis")},
}
LIQUID_COOLED = ("dell-xe9680l-b200",)  # where others with the accelerator are cooled by air


SERVER_NOTES = {
    "dell-xe9680-h100": "NICs and host memory of an MLPerf submission, not a fixed configuration.",
    "dell-xe9712-gb200": "Dell's rack of 72 accelerators; nvidia-gb200-nvl72 has more figures.",
    "dell-r760xa-h100-pcie": "Bridges join pairs of cards; across pairs the ranks meet on PCIe 5.",
    "gcp-a2-highgpu-8g": "No price: the catalogue prices machine and accelerators apart.",
}
