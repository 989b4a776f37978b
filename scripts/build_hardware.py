"""Write gpu_profiles/ from tables of facts: python scripts/build_hardware.py FACTS_DIR OPS_DIR.

FACTS_DIR holds gpus.csv and servers.csv, OPS_DIR the fitted operator laws (gemm_fits*.csv, gemm_floor.csv,
attention_fits.csv, collectives_fit.csv). What the tables lack stands in hardware_supplement.py with its
reason; prices are those that the profiles have, which refresh_prices.py brings up to date.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path

import hardware_supplement as extra
from refresh_prices import stated_price

from xe_sizer.profiles.write import Value, write

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as stream:
        return [row for row in csv.DictReader(stream) if not row.get("id", "").startswith(extra.BY_HAND)]


def number(text: str) -> float | int | None:
    if not text:
        return None
    value = float(text)
    return int(value) if value == int(value) else value


def without_empty(values: Mapping[str, Value]) -> dict[str, Value]:
    return {key: value for key, value in values.items() if value not in (None, "", {}, [])}


def source(text: str, read_on: str) -> dict[str, Value]:
    """One title that names all sources, and the first complete address among them."""
    text = re.sub(r"\s*\(find_string id \d+\)", "", text)
    urls = [url.rstrip(").,;") for url in re.findall(r"https?://\S+", text)]
    complete = [url for url in urls if not re.search(r"\.\.\.|…|-$", url)]
    title = re.sub(r"https?://(www\.)?", "", text).strip()
    return without_empty({"title": title, "url": complete[0] if complete else None, "read_on": read_on})


# --- accelerators ------------------------------------------------------------


def gpu_profile(row: Row, laws: dict[str, Value], read_on: str) -> dict[str, Value] | None:
    """The profile of one row; None without memory, bandwidth or a 16-bit peak."""
    row, assumed = patched(row)
    memory_gib = memory(row, assumed)
    peaks = {key: number(row[column]) for key, column in extra.PEAK_COLUMNS.items()}
    peaks["int4"] = extra.INT4_TOPS.get(row["id"])
    if memory_gib is None or not row["mem_bw_gbs"] or not (peaks["bf16"] or peaks["fp16"]):
        return None
    profile: dict[str, Value] = {
        "name": row["id"],
        "title": f"{row['vendor']} {row['name']}",
        "vendor": row["vendor"],
        "generation": generation(row["id"]),
        "segment": "desktop" if row["id"].startswith(extra.DESKTOP) else None,
        "memory_gib": memory_gib,
        "memory_bandwidth_gb_per_s": number(row["mem_bw_gbs"]),
        "peak_tflops": without_empty(peaks),
        "streaming_multiprocessors": number(row["sm_or_cu"]),
        "tdp_w": number(row["tdp_w"]),
        **host_link(row),
        "link": link(row),
        "usual_node": usual_node(row["id"]),
        "suggested": True if row["id"] in extra.SUGGESTED else None,
        "lends_to": extra.LENDS_TO.get(row["id"]),
        "borrows_from": extra.BORROWS_FROM.get(row["id"]),
        "laws": laws,
        "assumed": assumed,
        "source": source(row["source"], read_on),
        "sources": {"memory_gib": row["usable_source"]} if row["usable_gib"] and row["usable_source"] else {},
        "notes": extra.GPU_NOTES.get(row["id"]),
    }
    return without_empty(profile)


def patched(row: Row) -> tuple[Row, list[str]]:
    """The row with its gaps filled from the supplement, and the reasons."""
    assumed = [extra.DERIVED[row["id"]]] if row["id"] in extra.DERIVED else []
    for column, (value, reason) in extra.PATCHES.get(row["id"], {}).items():
        row = row | {column: value}
        if reason:
            assumed.append(reason)
    return row, assumed


def memory(row: Row, assumed: list[str]) -> float | None:
    if row["usable_gib"]:
        return number(row["usable_gib"])
    if not row["memory_gb"]:
        return None
    factor, why = extra.usable_share(row["id"])
    assumed.append(f"memory: {row['memory_gb']} GiB as marketed x {factor} ({why})")
    return round(float(row["memory_gb"]) * factor, 2)


def generation(name: str) -> str:
    return next(value for prefix, value in extra.GENERATIONS if name.startswith(prefix))


def host_link(row: Row) -> dict[str, Value]:
    if row["id"] in extra.HOST_RATES:
        return {"pcie_gb_per_s": extra.HOST_RATES[row["id"]]}
    pcie: dict[str, Value] = {"gen": number(row["pcie_gen"]), "lanes": number(row["pcie_lanes"])}
    if "consumer" in row["form_factor"]:
        pcie["peer_to_peer"] = False
    return {"pcie": pcie}


def link(row: Row) -> dict[str, Value]:
    """Kind and rate of the scale-up link; nothing for a part that has none."""
    if not row["scaleup_onedir_gbs"]:
        return {}
    text = row["scaleup_type"].lower()
    kinds = {"xgmi": "xgmi", "infinity": "xgmi", "roce": "roce", "ici": "ici", "neuronlink": "neuronlink"}
    kind = next((value for word, value in kinds.items() if word in text), None)
    version = re.search(r"nvlink(\d?)", text)
    if kind is None and version:
        kind = f"nvlink{version[1] or '4'}"
    bridge = "-bridge" if "bridge" in text else ""
    return {"kind": f"{kind}{bridge}", "one_way_gb_per_s": number(row["scaleup_onedir_gbs"])}


def usual_node(name: str) -> dict[str, Value]:
    """The node that it usually comes in, where that differs from the usual one of its link."""
    rate = extra.NIC_GBIT_PER_S.get(generation(name))
    return without_empty({**extra.USUAL_NODES.get(name, {}), "nic_gbit_per_s": rate})


# --- laws ------------------------------------------------------------


class Fits:
    """The fitted laws of the operator tables."""

    def __init__(self, folder: Path) -> None:
        self.gemm = [
            row | {"median": row["median_abs_rel_err"], "p90": row["p90_abs_rel_err"]}
            for row in [*read(folder / "gemm_fits_fp8_and_filtered.csv"), *read(folder / "gemm_fits.csv")]
            if row["model"].startswith("smooth") and row.get("regime", "all") in ("all", None)
        ]
        self.floors = read(folder / "gemm_floor.csv")
        self.attention = read(folder / "attention_fits.csv")
        self.decodes = read(folder / "attention_decode_fits.csv")
        self.collectives = read(folder / "collectives_fit.csv")

    def laws(self, row: Row) -> dict[str, Value]:
        name = row["id"]
        products = {p: self.matmul(fit, p) for p, fit in extra.MATMUL_FITS.get(name, {}).items()}
        if products and name in extra.SUSTAINED:  # in 4 bit, whose other figures are those of 8 bit
            products |= {p: {**products["fp8"], **law} for p, law in measured_peaks(row).items()}
        laws = {
            "matmul": products or measured_peaks(row),
            "attention": {
                family: self.kernel(law, name, family) for family, law in extra.ATTENTION.get(name, {}).items()
            },
            "decode": self.decode(name),
            "collectives": self.operations(name),
            "memory_bound": self.memory_bound(name),
        }
        return without_empty(laws)

    def matmul(self, fit: extra.MatmulFit, precision: str) -> dict[str, Value]:
        dtypes = {"bf16": ("bfloat16", "bf16"), "fp8": ("fp8",)}[precision]
        row = next(r for r in self.gemm if (r["system"], r["source"]) == fit.table and r["dtype"] in dtypes)
        p = json.loads(row["params"])
        engine = fit.table[1].replace("/", " ")
        return without_empty(
            {
                "floor_us": p["t0_us"],
                "flops_efficiency": p["e_flops"],
                "sustained_flops_efficiency": fit.sustained,
                "memory_efficiency": round(p["e_bw"] * fit.bandwidth_scale, 3),
                "sharpness": p["p"],
                "cast_bytes_per_element": p.get("act_quant_bytes_per_elem"),
                "median_error": round(float(row["median"]), 3),
                "p90_error": round(float(row["p90"]), 3),
                "source": f"{row['n']} matrix products timed by aiconfigurator ({engine}), refitted. " + fit.note,
            }
        )

    def kernel(self, law: extra.Kernel, name: str, family: str) -> dict[str, Value]:
        half_head_dim = extra.OTHER_HALF_HEAD_DIMS.get(name, extra.HALF_HEAD_DIM)[family]
        if law.table is None:
            return {**law.values, "half_head_dim": half_head_dim, "source": law.note}
        row = next(r for r in self.attention if (r["system"], r["source"], r["phase"]) == (*law.table, "prefill"))
        p = json.loads(row["params"])
        engine = law.table[1].replace("/", " ")
        return {
            "floor_us": p["t0_us"],
            "flops_efficiency": p["e_flops_inf"],
            "backward_flops_efficiency": law.values["backward_flops_efficiency"],
            "half_length": p["s0"],
            "half_head_dim": half_head_dim,
            "memory_efficiency": round(p["e_bw"] * law.bandwidth_scale, 3),
            "median_error": round(float(row["med_err"]), 3),
            "p90_error": round(float(row["p90_err"]), 3),
            "source": f"forward: {row['n']} causal prefills timed by aiconfigurator ({engine}). {law.note}",
        }

    def decode(self, name: str) -> dict[str, Value]:
        """Attention over a cache: grouped heads and sequences of 256 and more, which serving has."""
        if name not in extra.DECODES:
            return {}
        system, engine, scale = extra.DECODES[name]
        wanted = (system, engine, "bf16", "gqa S>=256")
        row = next(r for r in self.decodes if (r["system"], r["source"], r["kv"], r["subset"]) == wanted)
        return {
            "floor_us": round(float(row["t0_us"]), 2),
            "memory_efficiency": round(float(row["e_bw"]) * scale, 3),
            "root_us_per_sqrt_mb": round(float(row["c_us_per_sqrtMB"]), 2),
            "median_error": round(float(row["med_err"]), 3),
            "p90_error": round(float(row["p90_err"]), 3),
            "source": f"{row['n']} decode kernels timed by aiconfigurator ({engine.replace('/', ' ')}), refitted.",
        }

    def operations(self, name: str) -> dict[str, Value]:
        system, library = extra.COLLECTIVE_TABLES.get(name, (None, None))
        laws: dict[str, Value] = {}
        for operation in ("all_reduce", "all_gather", "reduce_scatter", "alltoall"):
            rows = [r for r in self.collectives if (r["system"], r["lib"], r["op"]) == (system, library, operation)]
            if rows:
                key = "all_to_all" if operation == "alltoall" else operation
                laws[key] = sweep(sorted(rows, key=lambda r: int(r["gpus"])), name)
        if name in extra.SENDS:
            laws["point_to_point"] = extra.SENDS[name]
        return laws

    def memory_bound(self, name: str) -> dict[str, Value]:
        if name not in extra.STREAMING:
            return {}
        efficiency, table = extra.STREAMING[name]
        floor = next(r for r in self.floors if (r["system"], r["source"]) == table and r["dtype"] == "bf16")
        return {
            "efficiency": efficiency,
            "floor_us": round(float(floor["floor_us_median"]), 2),
            "source": "streaming kernels reach 0.8 to 0.9; floor: smallest kernels in a CUDA graph",
        }


def sweep(rows: list[Row], name: str) -> dict[str, Value]:
    """One collective from its fits by number of ranks."""
    bus = [round(float(r["busbw3_GBps"]), 1) for r in rows]
    note = ""
    if name == "l40s":
        bus = [bus[0], *(extra.L40S_BUS_BEYOND_PAIRS for _ in bus[1:])]
        note = "; beyond 2 ranks 19 GB/s, see notes"
    roots = [0.0 if name == "l40s" else round(float(r["c3_us_per_sqrtMB"]), 2) for r in rows]
    return {
        "ranks": [int(r["gpus"]) for r in rows],
        "alpha_us": [round(float(r["alpha3_us"]), 2) for r in rows],
        "bus_gb_per_s": bus,
        "root_us_per_sqrt_mb": roots,
        "median_error": round(sum(float(r["med_err3"]) for r in rows) / len(rows), 3),
        "p90_error": round(max(float(r["p90_err3"]) for r in rows), 3),
        "source": f"{rows[0]['lib'].replace('nccl-', 'NCCL ')} sweep of aiconfigurator, refitted{note}",
    }


def measured_peaks(row: Row) -> dict[str, dict[str, Value]]:
    """Efficiency from the fastest product that anybody measured; the rest of the law is borrowed."""
    if row["id"] in extra.SUSTAINED:
        return {
            precision: {"flops_efficiency": best, "sustained_flops_efficiency": sustained, "source": text}
            | (extra.REST_IN_FOUR_BIT.get(row["id"], {}) if precision == "fp4" else {})
            for precision, (best, sustained, text) in extra.SUSTAINED[row["id"]].items()
        }
    row, _ = patched(row)
    laws: dict[str, dict[str, Value]] = {}
    for precision in ("bf16", "fp8"):
        best, peak = number(row[f"measured_max_{precision}_tflops"]), number(row[f"{precision}_tflops"])
        if best and peak:
            share = min(1.0, best / peak)
            sustained, why = extra.SUSTAINED_SHARE_OF_BEST, "as on A100 and H100"
            clock = ", above the nominal peak (the card clocks higher), taken as 1" if best > peak else ""
            laws[precision] = {
                "flops_efficiency": round(share, 3),
                "sustained_flops_efficiency": round(share * sustained, 3),
                "source": f"fastest measured product {best} of {peak} TFLOP/s{clock}; sustained: x {sustained}, {why}",
            }
    return laws


# --- servers ------------------------------------------------------------


def server_profile(row: Row, read_on: str, price: Value) -> dict[str, Value] | None:
    """The profile of one row with the price that it has; None where the accelerator is not known."""
    if not row["gpu_id"]:
        return None
    assumed = []
    for column, (value, reason) in extra.SERVER_PATCHES.get(row["id"], {}).items():
        row = row | {column: value}
        assumed.append(reason)
    kind = next(value for word, value in extra.FABRICS if row["intra_topology"].startswith(word))
    supplies = "PSU capacity" in row["notes"]
    profile: dict[str, Value] = {
        "name": row["id"],
        "vendor": row["vendor"],
        "gpu": row["gpu_id"],
        "gpus": number(row["gpus_per_node"]),
        "scale_up": without_empty({"kind": kind, "one_way_gb_per_s": number(row["intra_onedir_gbs_per_gpu"])}),
        "scale_out": scale_out(row),
        "host": without_empty(
            {
                "memory_gb": number(row["host_ram_gb"]),
                "max_memory_gb": number(row["host_ram_max_gb"]),
                "cpu": row["cpu"],
                "vcpus": number(row["vcpus"]),
            }
        ),
        "cooling": "liquid" if row["id"] in extra.LIQUID_COOLED else None,
        "power_supplies_kw" if supplies else "power_kw": number(row["max_power_kw"]),
        "rack_units": number(row["rack_units"]),
        "price": price,
        "assumed": assumed,
        "source": source(row["source"], read_on),
        "notes": extra.SERVER_NOTES.get(row["id"]),
    }
    return without_empty(profile)


def scale_out(row: Row) -> dict[str, Value]:
    if not row["internode_gbps_node"]:
        return {}
    nics = number(row["nic_count"]) or 1
    rate = number(row["nic_gbps_each"]) or number(row["internode_gbps_node"])
    fabric = extra.SERVER_FABRICS.get(row["id"]) or extra.VENDOR_FABRICS.get(row["vendor"])
    return without_empty({"nics": nics, "gbit_per_s": rate, "fabric": fabric})


# --- YAML ------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("facts", type=Path)
    parser.add_argument("ops", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "gpu_profiles")
    parser.add_argument("--read-on", default="2026-11-20", help="when the tables were read from their sources")
    options = parser.parse_args()
    fits = Fits(options.ops)
    for row in read(options.facts / "gpus.csv"):
        profile = gpu_profile(row, fits.laws(row), options.read_on)
        if profile:
            write(options.out, profile)
    for row in read(options.facts / "servers.csv"):
        folder = options.out / "servers"
        profile = server_profile(row, options.read_on, stated_price(folder / f"{row['id']}.yaml"))
        if profile:
            write(folder, profile)


if __name__ == "__main__":
    main()
