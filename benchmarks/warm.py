"""Time of an answer from Python once everything is imported: python benchmarks/warm.py

One `xe_sizer.estimate` and one `xe_sizer.serve`, as they are and with details, beside the CPU time of bare imports
(yardstick.py), because machines differ. The jobs leave their layout open.
"""

from __future__ import annotations

from functools import partial

from yardstick import bare_imports_s, cpu_s

import xe_sizer

LORA = {"model": "llama-2-70b", "job": "lora", "server": "dell-xe9680-h100", "gpus": 16, "data": {"profile": "alpaca"}}
CHAT = {
    "model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "serve": {"request_rate": 20},
    "limits": {"max_ttft_s": 1.0, "max_tpot_s": 0.05},
}  # fmt: skip


def measure() -> dict[str, float]:
    """CPU time of each question [s]."""
    return {
        f"{name}, with details" if details else name: cpu_s(partial(ask, **keys, details=details), 10)
        for name, ask, keys in (("estimate", xe_sizer.estimate, LORA), ("serve", xe_sizer.serve, CHAT))
        for details in (False, True)
    }


def main() -> None:
    """One row for each question."""
    unit = bare_imports_s()
    print(f"{'import typer, numpy, yaml':32} {unit * 1e3:9.2f} ms CPU")
    for name, seconds in measure().items():
        print(f"{name:32} {seconds * 1e3:9.2f} ms CPU  {seconds / unit:9.3f} x the imports")


if __name__ == "__main__":
    main()
