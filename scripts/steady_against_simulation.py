"""The closed form of a service against the simulation of its scheduler: python scripts/steady_against_simulation.py [N]

N random services (500 by default): model, engine, placement, lengths that spread, and requests in flight. Throughput,
time per token and time to the first token of the middle of a long test are compared with the steady state's.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from xe_sizer.profiles.catalogue import Registry
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.job import ReplicaLayouts, ServingJob, Traffic
from xe_sizer.serving.memory import serving_memory
from xe_sizer.serving.queueing import curve, in_flight
from xe_sizer.serving.resolve import resolve
from xe_sizer.serving.simulation import Outcome, offered, simulate

KINDS = (
    ("llama-3.1-8b", 1), ("mistral-7b-v0.3", 1), ("qwen3-32b", 2), ("llama-3.1-70b", 4), ("mixtral-8x7b", 2),
    ("gemma-2-9b", 1), ("deepseek-v2-lite", 1), ("gpt-oss-20b", 1),
)  # fmt: skip
ENGINES = ("vllm", "vllm-v0", "sglang", "tensorrt-llm", "lmdeploy", "tgi")
WAVES = 40  # answers of a client
BEGUN, ENDED = 0.3, 0.8  # share of a test's time in which it is steady


def service(random: np.random.Generator, registry: Registry) -> tuple[ServingJob, ReplicaLayouts, Traffic, float]:
    """A random service, and requests in flight as a share of its capacity."""
    model, tp = KINDS[random.integers(len(KINDS))]
    keys: dict[str, Any] = {
        "model": model,
        "server": "dell-xe9680-h100",
        "serve.engine": ENGINES[random.integers(len(ENGINES))],
    }
    resolved = resolve(read_scenario(None, keys, {}), registry)
    inputs, outputs = np.exp(random.uniform(np.log([64, 32]), np.log([6000, 1000])))
    traffic = Traffic(float(inputs), float(outputs), 0.5, 0.5)
    return resolved.job, ReplicaLayouts.of(tp=tp), traffic, float(random.uniform(0.0, 1.1))


def middle(found: Outcome) -> tuple[float, float, float]:
    """Requests per second, time per token and to the first token while the test is steady."""
    length_s = found.finish_s.max()
    ended = (found.finish_s > BEGUN * length_s) & (found.finish_s < ENDED * length_s)
    begun = (found.arrival_s > BEGUN * length_s) & (found.arrival_s < ENDED * length_s)
    gained = found.outputs[ended] - 1.0
    tpot_s = (found.finish_s[ended] - found.first_s[ended]).sum() / max(gained.sum(), 1.0)
    rate = found.outputs[ended].sum() / found.outputs.mean() / ((ENDED - BEGUN) * length_s)
    return float(rate), float(tpot_s), float(found.ttft_s[begun].mean())


def compared(number: int) -> tuple[str, np.ndarray[Any, Any]]:
    """Steady over simulated, of the service of that number: rate, time per token, time to the first token."""
    random, registry = np.random.default_rng(number), Registry()
    job, placement, traffic, share = service(random, registry)
    memory = serving_memory(job, placement, traffic.inputs)
    found = curve(job, placement, memory, traffic)
    clients = max(round(float(found.most[0]) ** share), 1)
    rate, at = in_flight(found, traffic, clients)
    requests = min(WAVES * clients + 200, 8 * clients + 2000)
    simulated = simulate(job, placement, memory, traffic, offered(traffic, requests, clients))
    middle_s = middle(simulated)
    steady = np.array([float(rate[0]), float(at.tpot_s[0]), float(at.ttft_s[0])])
    words = f"{job.engine.name:14} {job.model.name:18} {traffic.inputs:6.0f} {traffic.outputs:6.0f} {clients:5d}"
    words += f" of {float(found.most[0]):6.0f}, preempted {simulated.preempted / requests:4.0%}"
    return f"{words}, ttft {middle_s[2] * 1e3:8.1f} ms", steady / np.array(middle_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("services", nargs="?", type=int, default=500)
    parser.add_argument("--worst", type=int, default=10, help="services to print")
    asked = parser.parse_args()
    rows = [compared(number) for number in range(asked.services)]
    ratios = np.array([ratio for _, ratio in rows])
    for index, name in enumerate(("throughput", "time per token", "time to the first token")):
        errors = np.abs(ratios[:, index] - 1.0)
        at = ", ".join(f"{share:.0%} {np.quantile(errors, share):.1%}" for share in (0.5, 0.9, 0.99))
        print(f"{name}: errors {at}; bias {np.median(ratios[:, index]) - 1.0:+.1%}")
        for place in np.argsort(errors)[::-1][: asked.worst]:
            print(f"  {rows[place][0]}  {ratios[place, index]:.3f}")


if __name__ == "__main__":
    main()
