"""Recorded requests: the columns of public traces, their times, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from serving_cases import asked, problems

from xe_sizer.errors import InputError
from xe_sizer.serving.search import constant_arrivals
from xe_sizer.serving.trace import load_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:18:03.9799600,110,27
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,Conversation log
"""
MOONCAKE = """{"timestamp": 27000, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 30500, "input_length": 6472, "output_length": 26, "hash_ids": [46]}

"""
OWN = """{"timestamp_ms": 1500, "input_tokens": 10, "output_tokens": 2}
{"timestamp_ms": 500, "input_tokens": 30, "output_tokens": 4}
"""


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "name", "arrivals", "inputs", "outputs"),
    [
        (AZURE, "azure.csv", [0.0, 0.052, 60.0], [4808, 3180, 110], [10, 8, 27]),
        (BURST, "burst.csv", [0.0, 40.0], [472, 1087], [18, 230]),  # the third has no answer
        (MOONCAKE, "mooncake.jsonl", [0.0, 3.5], [6955, 6472], [52, 26]),
        (OWN, "own.jsonl", [0.0, 1.0], [30, 10], [4, 2]),  # in order of time
    ],
)
def test_public_traces_are_read(
    text: str, name: str, arrivals: list[float], inputs: list[float], outputs: list[float], tmp_path: Path
) -> None:
    trace = load_trace(written(tmp_path, text, name))
    assert trace.arrivals_s == pytest.approx(np.array(arrivals), abs=1e-6)
    assert trace.inputs.tolist() == inputs
    assert trace.outputs.tolist() == outputs


def test_a_trace_gives_rate_and_lengths(tmp_path: Path) -> None:
    path = written(tmp_path, "timestamp,input_tokens,output_tokens\n0,100,10\n1,300,10\n120,200,40\n")
    service = asked(serve__trace=str(path))
    assert (service.load, service.amount, service.requests) == ("request_rate", 3 / 120, 3)
    assert (service.traffic.inputs, service.traffic.outputs) == (200, 20)
    assert service.traffic.input_spread == pytest.approx((20000 / 3) ** 0.5 / 200, abs=5e-4)
    assert service.traffic.output_spread == pytest.approx(200**0.5 / 20, abs=5e-4)
    two = asked(serve__trace=str(path), serve__requests=2)
    assert (two.requests, two.amount, two.traffic.inputs) == (2, 2 / 60, 200), "the rate is over a minute at least"
    assert "the trace has 3 requests" in problems(serve__trace=str(path), serve__requests=4)[0]


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("timestamp,input_tokens\n1,2\n", "a.csv", "a.csv:2: a request without a length of the answer"),
        ("input_tokens,output_tokens\n1,2\n", "a.csv", "a.csv:2: a request without a timestamp"),
        ("timestamp,input_tokens,output_tokens\n1,x,2\n", "a.csv", "'x' is no time and no number"),
        ("timestamp,input_tokens,output_tokens\nsoon,1,2\n", "a.csv", "'soon' is no time and no number"),
        ("timestamp,input_tokens,output_tokens\n1,0,2\n", "a.csv", "no requests with a prompt and an answer"),
        ("", "a.csv", "no requests with a prompt and an answer"),
        ("[1]\n", "a.jsonl", "a.jsonl:1: no JSON object"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(text: str, name: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_trace(written(tmp_path, text, name))
    assert says in str(caught.value)


def test_a_trace_that_is_no_text_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"timestamp,input_tokens,output_tokens\n1,\xff,2\n")
    with pytest.raises(InputError, match=r"a\.csv:2:3: this byte is not valid UTF-8"):
        load_trace(path)


def test_a_trace_that_is_not_there_is_refused() -> None:
    assert "no such file: nowhere.csv" in problems(serve__trace="nowhere.csv")[0]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"serve.trace": "x.csv", "serve.concurrency": 4}, "'concurrency' and 'trace' are both given"),
        ({"serve.trace": "x.csv", "serve.input_tokens": 4}, "'input_tokens' and 'trace' are both given"),
        ({"serve.trace": "x.csv", "serve.arrivals": "constant"}, "'arrivals' and 'trace' are both given"),
        ({"serve.arrivals": "constant", "serve.requests": 5}, "'arrivals' constant needs 'request_rate'"),
        ({"serve.arrivals": "constant", "serve.request_rate": 5}, "'arrivals' constant needs 'requests'"),
        ({"serve.users": 5, "serve.requests": 5}, "'users' and 'requests' are both given"),
        ({"serve.prefill_replicas": 1, "serve.requests": 5}, "'prefill_replicas' and 'requests' are both given"),
    ],
)
def test_keys_that_contradict_a_test_are_refused(flags: dict[str, object], says: str) -> None:
    said = problems(**{key.replace(".", "__"): value for key, value in flags.items()})
    assert any(says in problem for problem in said)


def test_even_arrivals_are_one_gap_apart() -> None:
    assert constant_arrivals(4.0, 3).tolist() == [0.0, 0.25, 0.5]
