"""Which grouped products have tuned tables, by engine, release, GPU, format and shape, read off engines' folders."""

import pytest

from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.software import tuned_experts
from xe_sizer.software.tuned_experts import is_tuned


@pytest.mark.parametrize(
    ("engine", "release", "gpu", "form", "experts", "width", "tuned"),
    [
        # vLLM 0.12: E=512,N=256,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json
        ("vllm", "0.12", "h100-sxm-80gb", "fp8-block", 512, 256, True),
        ("vllm", "0.11.0", "h100-sxm-80gb", "fp8-block", 512, 256, False),
        ("vllm", None, "h100-sxm-80gb", "fp8-block", 512, 256, True),
        ("vllm", "0.12.0", "h100-sxm-80gb", "fp8-block", 512, 257, False),
        ("vllm", "0.12.0", "h100-pcie-80gb", "fp8-block", 512, 256, False),
        # A release without its last number has what its first has.
        ("vllm", "0.6", "a100-sxm-80gb", "fp16", 64, 640, True),
        ("vllm", "0.5.9", "a100-sxm-80gb", "bf16", 64, 640, False),
        # Months of tables are not known.
        ("vllm", "24.01", "a100-sxm-80gb", "bf16", 64, 640, True),
        # An engine of a user's own has none.
        ("mine", None, "a100-sxm-80gb", "bf16", 64, 640, False),
        # SGLang 0.5.4: E=512,N=256,device_name=NVIDIA_H200.json, in 16 bit alone
        ("sglang", "0.5.4", "h200-sxm-141gb", "bf16", 512, 256, True),
        ("sglang", "0.5.4", "h200-sxm-141gb", "fp8", 512, 256, False),
    ],
)
def test_tables(engine: str, release: str | None, gpu: str, form: str, experts: int, width: int, tuned: bool) -> None:
    assert is_tuned(engine, release, gpu, form, experts, width) is tuned


def test_accelerators_of_the_tables_are_those_of_the_catalogue() -> None:
    known = set(BUILT_IN.names("gpu"))
    for gpus in tuned_experts._tables().values():
        assert set(gpus) <= known
