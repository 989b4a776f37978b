"""Time of serving answers, without start-up: python benchmarks/serve.py

One placement, the choice among all placements, tests of so many requests, the Pareto front, and limits on latency over
every GPU of the catalogue, each beside the CPU time of bare imports (yardstick.py), because machines differ.
"""

from __future__ import annotations

from collections.abc import Callable

from yardstick import bare_imports_s, cpu_s

from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.scenario.scenario import Scenario
from xe_sizer.serving.resolve import resolve as resolve_serving
from xe_sizer.serving.search import size
from xe_sizer.serving.summary import summarise
from xe_sizer.studies.estimate import serve
from xe_sizer.studies.hardware import fleet, pareto

CHAT = {
    "model": "llama-3.1-70b",
    "gpu": "h100-sxm-80gb",
    "serve.request_rate": 20,
    "limits.max_ttft_s": 1.0,
    "limits.max_tpot_s": 0.05,
}
TEST = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "serve.requests": 1000}


def asked(**more: object) -> Scenario:
    return read_scenario(None, CHAT | {key.replace("__", "."): value for key, value in more.items()}, {})


def measure() -> dict[str, float]:
    """CPU time of each question [s]."""
    registry = Registry()
    one, any_tp = asked(layout__tp=4, layout__pp=1), asked()
    closed = read_scenario(None, TEST | {"serve.concurrency": 64}, {})
    at_rate = asked(layout__tp=4, layout__pp=1, serve__requests=1000)
    every = [{"gpu": name} for name in registry.names("gpu")]
    runs: tuple[tuple[str, Callable[[], object], int], ...] = (
        ("sizing alone, placement given", lambda: size(resolve_serving(one, registry)), 50),
        ("one estimate, placement given", lambda: summarise(size(resolve_serving(one, registry))), 50),
        ("one estimate, placement chosen", lambda: summarise(size(resolve_serving(any_tp, registry))), 50),
        ("the same with advice", lambda: serve(any_tp, registry), 5),
        ("a test of 1,000 at 64 at a time", lambda: size(resolve_serving(closed, registry)), 10),
        ("a test of 1,000 at 20 a second", lambda: size(resolve_serving(at_rate, registry)), 10),
        ("front of a replica", lambda: pareto(resolve_serving(any_tp, registry)), 20),
        ("limits over every GPU", lambda: fleet(any_tp, registry, every), 1),
    )
    return {name: cpu_s(work, repeats) for name, work, repeats in runs}


def main() -> None:
    unit = bare_imports_s()
    print(f"{'import typer, numpy, yaml':32} {unit * 1e3:9.2f} ms CPU")
    for name, seconds in measure().items():
        print(f"{name:32} {seconds * 1e3:9.2f} ms CPU  {seconds / unit:9.3f} x the imports")


if __name__ == "__main__":
    main()
