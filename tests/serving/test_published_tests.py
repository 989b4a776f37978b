"""Tests that others ran and published, answered as tests: what the benchmark tool printed beside what is predicted.

Source: vLLM issue 6781 (https://github.com/vllm-project/vllm/issues/6781), July 2024: Qwen2-72B-Instruct-GPTQ-Int4 on
one H100 with vLLM 0.5.3.post1, `benchmark_serving.py --dataset-name sharegpt --request-rate 12 --num_prompts=1000`, and
`--max-model-len 8000`. Lengths of ShareGPT spread by about their mean. Nothing is fitted to it.
"""

from __future__ import annotations

import numpy as np
import pytest
from serving_cases import served


def test_an_overloaded_server_of_a_72b_model() -> None:
    found = served(
        "qwen2-72b",
        gpus=1,
        serve__engine="vllm@0.5.3",
        serve__weights="int4",
        serve__max_model_len=8000,
        serve__request_rate=12.0,
        serve__requests=1000,
        serve__input_tokens=217.393,
        serve__output_tokens=193.576,
        serve__input_spread=1.0,
        serve__output_spread=0.9,
    )
    test = found.choice.test
    assert test is not None
    assert test.duration_s == pytest.approx(172.44, rel=0.1)
    assert test.output_tokens_per_s == pytest.approx(1122.60, rel=0.1)
    assert test.ttft_s.mean() == pytest.approx(18.799, rel=0.2)
    assert np.percentile(test.ttft_s, 99) == pytest.approx(54.378, rel=0.15)
