"""Times of the host of stacks and engines, where it was measured what a launch takes; expected numbers by hand."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from serving_cases import job

from xe_sizer.laws.device import Efficiency
from xe_sizer.laws.hardware import Accelerator, Server
from xe_sizer.profiles.catalogue import Registry, load_engine, load_stack
from xe_sizer.reinforcement.resolve import beside_a_trainer
from xe_sizer.serving.job import ReplicaLayouts, ServingJob
from xe_sizer.serving.resolve import build_job
from xe_sizer.serving.step_time import between_steps_s
from xe_sizer.software.host import host_slowdown, on_host

SERVER = Registry().server("dell-xe9680-h100")
GPU = SERVER.accelerator
MADE = job(server="dell-xe9680-h100")


def launching_in(launch_us: float) -> Accelerator:
    return replace(GPU, laws=replace(GPU.laws, launch_s=launch_us * 1e-6))


def served_on(server: Server) -> ServingJob:
    return build_job(MADE.model, server, load_engine("generic-engine"), MADE.scheme, Efficiency(), 4096.0)


def test_nobody_measured_a_launch() -> None:
    assert host_slowdown(GPU) == 1.0
    assert on_host(load_engine("vllm"), GPU) == load_engine("vllm")


def test_all_times_of_a_host_follow_its_launches_and_nothing_else() -> None:
    """A launch of 10 us is twice the usual 5 us; what is around a step stays."""
    twice = launching_in(10.0)
    stack, engine = load_stack("hf-trainer"), load_engine("vllm")
    slow_stack, slow_engine = on_host(stack, twice), on_host(engine, twice)
    for fast, slow in ((stack.host, slow_stack.host), (engine.host, slow_engine.host)):
        for name in fast.__struct_fields__:
            before, after = getattr(fast, name), getattr(slow, name)
            timed = name.endswith(("_us", "_ms")) and before is not None and name != "step_overhead_ms"
            assert after == (pytest.approx(2.0 * before) if timed else before), name
    assert slow_engine.batching == engine.batching
    assert slow_stack.efficiency == stack.efficiency


def test_a_service_waits_for_the_host_at_hand() -> None:
    """Between two steps the generic engine takes 1 ms and 5 us for each of 64 sequences: 1.32 ms."""
    usual, slow = served_on(SERVER), served_on(replace(SERVER, accelerator=launching_in(10.0)))
    assert (usual.engine.host.step_ms, usual.engine.host.sequence_us, usual.engine.request_s) == (1.0, 5.0, 2e-3)
    found = (slow.engine.host.step_ms, slow.engine.host.sequence_us, slow.engine.request_s)
    assert found == pytest.approx((2.0, 10.0, 4e-3))
    waits = [float(between_steps_s(made, ReplicaLayouts.of(), 64)[0]) for made in (usual, slow)]
    assert waits == pytest.approx([1.32e-3, 2.64e-3])


def test_an_engine_beside_a_trainer_takes_longer_on_a_slow_host_too() -> None:
    """2 x (1 + 3) ms between steps, and launches from Python of 2 x 19.1 us."""
    made = served_on(replace(SERVER, accelerator=launching_in(10.0)))
    trainer = load_stack("trl").rollout
    assert trainer is not None
    alike = msgspec.structs.replace(trainer, step_ms=3.0, graphs=False)
    host = beside_a_trainer(made, alike).engine.host
    assert host.step_ms == pytest.approx(8.0)
    assert host.launch_us == pytest.approx(38.2)
