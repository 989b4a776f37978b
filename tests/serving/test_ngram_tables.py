"""Models that look n-grams up in tables larger than the rest of them."""

from __future__ import annotations

import pytest
from cases import REGISTRY

from xe_sizer.errors import InputError
from xe_sizer.graph.weights import count_parameters
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.memory import token_bytes
from xe_sizer.software.number_formats import format_of
from xe_sizer.studies.estimate import serve
from xe_sizer.units import GIB

MODEL = "deepseek-v4.1-flash"


def answered(**keys):
    given = {"model": MODEL, "gpu": "h200-sxm-141gb", "gpus": 8, "layout.tp": 8, "serve.concurrency": 8} | keys
    return serve(read_scenario(None, given, {}), REGISTRY)


def weights_of(result) -> float:
    return next(part.bytes for part in result.memory.components if part.name == "weights")


def test_tables_count_and_what_a_token_does_not_read_of_them_is_idle() -> None:
    model = REGISTRY.model(MODEL)
    counted = count_parameters(model)
    tables = sum(model.ngram_tables.rows) * model.ngram_tables.width
    assert counted.total - tables == pytest.approx(552e9, rel=1e-3)  # published: 552B beside 196B of n-grams
    assert tables == pytest.approx(196e9, rel=5e-3)
    assert counted.active < 17e9


def test_a_rank_has_its_share_of_the_tables_or_none() -> None:
    host, gpu = answered(), answered(**{"serve.ngram_tables": "gpu"})
    tables = 2 * 384_011_425 * 256 * (1 + 1 / 32)  # in fp8, with a scale for 32
    assert weights_of(gpu) - weights_of(host) == pytest.approx(tables / 8, rel=1e-4)
    assert any("host memory: 189 GiB" in note for note in host.warnings)
    assert not any("n-grams" in note for note in gpu.warnings)


def test_tables_of_16_bit_weights_are_in_16_bit() -> None:
    narrow, wide = (
        serve(read_scenario(None, {"model": MODEL, "gpu": "b300", "gpus": 8, "serve.batch": 1} | keys, {}), REGISTRY)
        for keys in ({"serve.ngram_tables": "gpu"}, {"serve.ngram_tables": "gpu", "serve.weights": "bf16"})
    )
    assert weights_of(wide) > 2 * weights_of(narrow)


def test_where_an_engine_keeps_them_hangs_on_its_release() -> None:
    engines = ("vllm", "vllm==0.29", "sglang")
    places = {engine: answered(**{"serve.engine": engine}).scenario["serve"]["ngram_tables"] for engine in engines}
    assert places == {"vllm": "host", "vllm==0.29": "gpu", "sglang": "gpu"}


def test_tables_beside_the_embedding_are_on_the_gpu_unless_told() -> None:
    """LongCat-2.0: what vLLM keeps in host memory are tables of layers."""
    keys = {"model": "longcat-2.0", "gpu": "b300", "gpus": 8, "serve.concurrency": 8, "serve.engine": "vllm"}
    gpu, host = answered(**keys), answered(**keys, **{"serve.ngram_tables": "host"})
    assert gpu.scenario["serve"]["ngram_tables"] == "gpu"
    tables = REGISTRY.model("longcat-2.0").ngram_tables
    assert weights_of(gpu) - weights_of(host) == pytest.approx(tables.rows[0] * 512 * 2 / 8, rel=1e-3)  # in 16 bit


def test_one_memory_for_cpu_and_gpu_holds_them_all_the_same() -> None:
    spark = {"model": MODEL, "gpu": "dgx-spark", "gpus": 8, "serve.engine": "llama.cpp"}
    host, gpu = (
        serve(read_scenario(None, spark | {"serve.ngram_tables": place}, {}), REGISTRY) for place in ("host", "gpu")
    )
    assert weights_of(host) == weights_of(gpu) > 40 * GIB


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"serve.ngram_tables": "host", "host_memory_gib": 128},
            "tables of n-grams take 188.8 of 124.0 GiB of host memory",
        ),
        ({"model": "deepseek-v3", "serve.ngram_tables": "gpu"}, "deepseek-v3 has no tables of n-grams"),
    ],
)
def test_places_that_cannot_be(keys, told) -> None:
    with pytest.raises(InputError) as refused:
        answered(**keys)
    assert told in str(refused.value)


def test_lent_entries_are_cached_once() -> None:
    """Of 38 layers with entries three keep one for two tokens and one keeps each: 2.5 entries a token."""
    model, cache = REGISTRY.model(MODEL), format_of("bf16")
    entry = 512 * 2 + 128 * (1 + 4 / 128)
    assert token_bytes(model, cache) == pytest.approx(2.5 * entry)
