"""Models of records: by name, by shape, by size."""

import pytest

from xe_sizer.errors import InputError
from xe_sizer.evidence.records import Record, Shape
from xe_sizer.evidence.training_scenario import model_of
from xe_sizer.graph.weights import count_parameters
from xe_sizer.profiles.registry import Registry

REGISTRY = Registry()


def record(model: str, **shape: float) -> Record:
    return Record(id="r", job="sft", model=model, shape=Shape(**shape))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["llama-2-7b", "Llama-2-7B", "meta-llama/Llama-2-7b-hf", "llama-2-7b-chat"])
def test_names_lead_to_the_catalogue(name: str) -> None:
    found = model_of(record(name), REGISTRY)
    assert found.shape == REGISTRY.model("llama-2-7b")
    assert not found.assumed


def test_stated_sizes_override_those_of_a_known_model() -> None:
    shape = model_of(record("llama-2-7b", layers=8, vocab=128256), REGISTRY).shape
    known = REGISTRY.model("llama-2-7b")
    assert (shape.layers, shape.vocab, shape.hidden) == (8, 128256, known.hidden)


# Layers of the models' own pattern: all windowed, every second, all but every sixth; hybrids repeat theirs.
@pytest.mark.parametrize(
    ("name", "layers", "windowed"),
    [("mistral-7b-v0.1", 4, 4), ("gemma-2-9b", 4, 2), ("gemma-3-27b", 4, 4), ("gemma-3-27b", 12, 10),
     ("modernbert-base", 4, 2), ("llama-2-7b", 4, 0)],
)  # fmt: skip
def test_fewer_layers_are_windowed_as_those_of_the_whole_model_are(name: str, layers: int, windowed: int) -> None:
    shape = model_of(record(name, layers=layers), REGISTRY).shape
    assert (shape.layers, shape.windowed_layers) == (layers, windowed)


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "gemma-3-27b", "gpt-oss-20b", "t5-large", "hunyuan-large"])
def test_twice_the_layers_are_the_model_twice(name: str) -> None:
    known = REGISTRY.model(name)
    doubled = known.with_layers(2 * known.layers)
    assert known.with_layers(known.layers) is known
    assert doubled.windowed_layers == pytest.approx(2 * known.windowed_layers, abs=2)
    assert doubled.encoder_layers == 2 * known.encoder_layers
    assert doubled.kv_layers == (known.kv_layers and 2 * known.kv_layers)


def test_a_new_width_brings_heads_of_its_own_size() -> None:
    shape = model_of(record("llama-2-7b", hidden=2048, heads=16, ffn=5504), REGISTRY).shape
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (16, 16, 128)


# Parameters that the publications print: Narayanan et al. 2021, table 1.
@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "billions"),
    [("gpt-18b", 40, 6144, 48, 18.4), ("gpt-145b", 80, 12288, 96, 145.6), ("gpt-1t", 128, 25600, 160, 1008.0)],
)
def test_a_stated_shape_counts_as_published(name: str, layers: int, hidden: int, heads: int, billions: float) -> None:
    found = model_of(record(name, layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden, vocab=51200), REGISTRY)
    assert count_parameters(found.shape).total == pytest.approx(billions * 1e9, rel=0.005)
    assert found.assumed


@pytest.mark.parametrize(("name", "size"), [("gpt-52b", 52e9), ("gpt-7b", 7e9), ("my-13b", 13e9), ("gpt-760m", 760e6)])
def test_a_size_alone_gives_a_model_of_that_size(name: str, size: float) -> None:
    found = model_of(record(name), REGISTRY)
    assert count_parameters(found.shape).total == pytest.approx(size, rel=0.15)
    assert "from its size" in found.assumed[0]


@pytest.mark.parametrize(
    ("name", "total", "active"), [("granite-moe-7b-1b-active", 7e9, 1e9), ("unknown-16b-a3b", 16e9, 3e9)]
)
def test_two_sizes_give_a_mixture_of_experts(name: str, total: float, active: float) -> None:
    found = model_of(record(name), REGISTRY)
    counted = count_parameters(found.shape)
    assert counted.total == pytest.approx(total, rel=0.1)
    assert counted.active == pytest.approx(active, rel=0.25)
    assert "in the proportions of" in found.assumed[0]


def test_a_mixture_with_sizes_of_its_own_is_not_guessed() -> None:
    with pytest.raises(InputError):
        model_of(record("unknown-16b-a3b", layers=8, experts=8), REGISTRY)


def test_layers_follow_from_the_size_where_only_they_are_missing() -> None:
    found = model_of(record("gpt-205b", hidden=14400, heads=96, ffn=57600, vocab=250880), REGISTRY)
    assert count_parameters(found.shape).total == pytest.approx(205e9, rel=0.05)


@pytest.mark.parametrize("name", ["some-moe-7b", "no size at all"])
def test_what_cannot_be_built_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        model_of(record(name), REGISTRY)


def test_a_benchmark_s_small_version_keeps_the_pattern() -> None:
    small = model_of(record("qwen3.5-35b-a3b-8layer-8expert", layers=8, experts=8), REGISTRY).shape
    assert (small.layers, small.layer_pattern) == (8, "MMM*MMM*")
    assert small.experts is not None
    assert (small.experts.count, small.experts.per_token) == (8, 8)


def test_experts_a_token_goes_through_are_as_stated() -> None:
    found = model_of(record("mixtral-8x7b", experts_per_token=8), REGISTRY)
    assert found.shape.experts is not None
    assert (found.shape.experts.count, found.shape.experts.per_token) == (8, 8)
    assert found.name == "mixtral-8x7b with experts_per_token 8"
    assert model_of(record("mixtral-8x7b", experts_per_token=2), REGISTRY).name == "mixtral-8x7b"
