"""What an engine chooses by the card, and what its share of the memory is of."""

import pytest
from serving_cases import asked, served

from xe_sizer.software.engine import load_engine
from xe_sizer.units import GIB


@pytest.mark.parametrize(
    ("memory_gib", "tokens", "share"),
    [(16, 2048, 0.77), (24, 2048, 0.85), (48, 4096, 0.83), (80, 8192, 0.83), (141, 8192, 0.9), (180, 16384, 0.855)],
)
def test_sglang_chooses_prefill_steps_and_share_by_the_memory(memory_gib: float, tokens: int, share: float) -> None:
    """Of 80 GiB: 0.5 + 8,192 x 1.5 / 1,024 + 2 x 256 / 1,024 + 1 / 8 GiB are left, which is 13.1 GiB or 16 %."""
    engine = load_engine("sglang").on_card(memory_gib * GIB, "hopper")
    assert (engine.batching.max_step_tokens, engine.memory.utilization) == (tokens, share)


def test_settings_of_the_user_come_before_the_choice_of_the_engine() -> None:
    found = asked(serve__engine="sglang", serve__max_step_tokens=777).job.engine
    assert (found.batching.max_step_tokens, found.memory.utilization) == (777, 0.83)


def test_a_static_share_holds_weights_and_cache_and_leaves_the_step_its_rest() -> None:
    """pool = share x (card - context) - weights, whatever a step needs beside."""
    found = served(serve__engine="sglang", serve__batch=4)
    card, memory = found.memory.usable_bytes, found.memory
    expected = 0.83 * (card - memory.fixed["CUDA context"][0]) - memory.fixed["weights"][0]
    assert memory.pool_bytes[0] == pytest.approx(expected)
    more = served(serve__engine="sglang", serve__batch=4, serve__max_step_tokens=2048)
    assert more.memory.pool_bytes[0] == pytest.approx(expected)


def test_options_that_delay_admission_reach_the_scheduler() -> None:
    found = asked(serve__engine="sglang", serve__scheduler_recv_interval=10, serve__batch_wait_iters=20)
    batching = found.job.engine.batching
    assert (batching.scheduler_recv_interval, batching.batch_wait_iters) == (10, 20)
    assert asked(serve__engine="sglang").job.engine.batching.scheduler_recv_interval == 1
