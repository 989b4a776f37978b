"""What responses under way do when new weights come, and what an update takes."""

from __future__ import annotations

from typing import Any

import pytest
from reinforcement_cases import POOLS, resolved, sized

from xe_sizer.errors import InputError
from xe_sizer.reinforcement.iteration import whole_bytes
from xe_sizer.reinforcement.summary import summarise

AT_ONCE: dict[str, Any] = {**POOLS, "rollout__asynchronous": True}


def update(**flags: Any) -> tuple[str, dict[str, float]]:
    one = sized(**AT_ONCE, **flags)
    answer = summarise(one).iteration
    assert answer is not None
    return answer.update, one.iteration.parts_s["rollout"]


def test_a_stack_ends_interrupts_or_goes_on() -> None:
    """NeMo RL keeps the cache under new weights, verl asks again for what was written, others wait for the last."""
    assert update()[0] == "drain"
    assert update(rollout__partial=True)[0] == "in-flight"
    nemo = {"stack": "nemo-rl", "layout__pp": None, "layout__zero": None}
    assert update(**nemo)[0] == "in-flight"
    assert update(stack="verl", rollout__partial=True, layout__zero=None)[0] == "abort"
    assert update(rollout__update="abort")[0] == "abort"


def test_interrupted_responses_read_again_what_they_have() -> None:
    """Whatever is under way: prompt and, on average, half of the length in which long responses weigh more."""
    _, goes_on = update(rollout__update="in-flight")
    _, again = update(rollout__update="abort")
    assert goes_on["rollout: contexts read again"] == 0
    one = sized(**AT_ONCE, rollout__update="abort").iteration.rollout
    asked = resolved(**AT_ONCE).settings.asked
    tokens = float(one.writing.started[0]) * (asked.inputs + asked.answers.mean_remaining)
    fastest = 2 * 1.24e9 * tokens / 989e12
    assert fastest < again["rollout: contexts read again"] < 12 * fastest
    assert goes_on["rollout: last answers"] == again["rollout: last answers"] == 0
    assert update(rollout__update="drain")[1]["rollout: last answers"] > 0


def test_weights_through_the_file_system_are_written_and_read() -> None:
    stored = {"storage__write_gb_per_s": 4.0}
    one, other = sized(**AT_ONCE, **stored, rollout__transport="disk").iteration, sized(**AT_ONCE, **stored).iteration
    job = one.resolved.actor
    assert one.synchronisation_s > 2 * whole_bytes(job) / 4e9
    assert one.synchronisation_s == pytest.approx(2 * whole_bytes(job) / 4e9, rel=0.05)
    assert one.synchronisation_s > other.synchronisation_s


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({**AT_ONCE, "rollout__update": "drain", "rollout__partial": True}, "'update: drain' contradicts"),
        ({"rollout__transport": "disk", "rollout__colocated": True}, "'transport: disk' is of GPUs that only generate"),
    ],
)
def test_contradictions_are_told(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        resolved(**flags)
    assert any(message in one.message for one in error.value.problems)
