"""Shapes that are written out: the catalogue's model, or the keys of a shape."""

import pytest

from xe_sizer.errors import Location
from xe_sizer.interop.draft import READ, TOOL_DEFAULT, Draft
from xe_sizer.interop.megatron import Arguments, layers_with_experts, state_megatron, state_model
from xe_sizer.interop.values import Unread, Written

LLAMA = {
    "num_layers": "32", "hidden_size": "4096", "num_attention_heads": "32", "group_query_attention": True,
    "num_query_groups": "8", "ffn_hidden_size": "14336", "swiglu": True, "normalization": "RMSNorm",
    "position_embedding_type": "rope", "untie_embeddings_and_output_weights": True, "disable_bias_linear": True,
    "vocab_size": "128256", "max_position_embeddings": "8192",
}  # fmt: skip


def draft_of(said: dict[str, object]) -> Draft:
    keys = {name: Written(value, Location("job.sh", line)) for line, (name, value) in enumerate(said.items(), 1)}
    draft = Draft("megatron", keys)
    state_megatron(Arguments(draft))
    state_model(Arguments(draft))
    return draft


def test_a_known_shape_has_its_name() -> None:
    fact = draft_of(LLAMA).facts["model"]
    assert (fact.value, fact.origin, fact.where) == ("llama-3-8b", READ, Location("job.sh", 1))


def test_the_longest_sequence_and_the_tokenizer_tell_models_of_one_shape_apart() -> None:
    assert draft_of(LLAMA | {"max_position_embeddings": 131072}).fact("model") == "llama-3.1-8b"
    named = {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": "meta-llama/Llama-3.1-8B"}
    assert draft_of(LLAMA | named).fact("model") == "llama-3.1-8b"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_layers", 31), ("ffn_hidden_size", 8192), ("num_query_groups", 4), ("vocab_size", 90_000),
        ("kv_channels", 64), ("swiglu", False), ("untie_embeddings_and_output_weights", False), ("num_experts", 8),
    ],
)  # fmt: skip
def test_another_size_is_another_shape(key: str, value: object) -> None:
    draft = draft_of(LLAMA | {key: value})
    assert "model" not in draft.facts
    assert draft.fact("model.hidden") == 4096


def test_an_unknown_shape_is_written_out_with_megatrons_defaults() -> None:
    draft = draft_of({
        "num_layers": 12, "hidden_size": 512, "num_attention_heads": 8, "max_position_embeddings": 1024,
        "vocab_file": "gpt2-vocab.json", "merge_file": "merges.txt", "tensor_model_parallel_size": 2,
    })  # fmt: skip
    shape = {key.removeprefix("model."): fact for key, fact in draft.facts.items() if key.startswith("model.")}
    assert {key: fact.value for key, fact in shape.items()} == {
        "layers": 12, "hidden": 512, "heads": 8, "kv_heads": 8, "max_positions": 1024, "activation": "gelu",
        "ffn": 2048, "norm": "layernorm", "biases": ("qkv", "output", "mlp"), "position": "learned",
        "learned_positions": 1024, "tied_embeddings": True, "vocab": 50432,
    }  # fmt: skip
    assert {key for key, fact in shape.items() if fact.origin == TOOL_DEFAULT} == {
        "kv_heads", "activation", "ffn", "norm", "biases", "position", "tied_embeddings",
    }  # fmt: skip


def test_experts_and_latent_attention() -> None:
    draft = draft_of({
        "num_layers": 27, "hidden_size": 2048, "ffn_hidden_size": 10944, "num_attention_heads": 16, "swiglu": True,
        "multi_latent_attention": True, "kv_lora_rank": 512, "num_experts": 64, "moe_router_topk": 6,
        "moe_layer_freq": "([0]+[1]*26)", "moe_ffn_hidden_size": 1408, "moe_shared_expert_intermediate_size": 2816,
        "untie_embeddings_and_output_weights": True, "vocab_size": 102400, "kv_channels": 16,
    })  # fmt: skip
    assert draft.fact("model") == "deepseek-v2-lite"


def test_hybrids_have_a_letter_for_each_layer() -> None:
    draft = draft_of(
        {"num_layers": 3, "hidden_size": 256, "num_attention_heads": 4, "hybrid_layer_pattern": "M-M*|/MM"}
    )
    assert (draft.fact("model.layers"), draft.fact("model.layer_pattern")) == (4, "M-M*")
    assert (draft.fact("model.state_space.heads"), draft.fact("model.state_space.inner")) == (8, 512)


def test_what_is_left_to_variables_gets_no_default() -> None:
    keys: dict[str, object] = {"num_layers": 12, "hidden_size": 512, "ffn_hidden_size": Unread("${F}", "F is not set")}
    draft = draft_of(keys | {"global_batch_size": Unread("${G}", "G is not set")})
    assert "model.ffn" not in draft.facts
    assert "train.grad_accum" not in draft.facts


def test_a_vocabulary_that_nothing_says_is_missing() -> None:
    draft = draft_of({"num_layers": 13, "hidden_size": 520, "num_attention_heads": 8})
    assert [each.key for each in draft.missing] == ["model.vocab"]


def test_shapes_in_checkpoints_are_missing() -> None:
    assert [each.key for each in draft_of({"use_checkpoint_args": True}).missing] == ["model"]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("2", 2),
        ("([0]*1+[1]*3)*1", [0, 1, 1, 1]),
        ([0, 1], [0, 1]),
        ("[1]*999999999", None),
        ("[1]*9999*9999", None),
        ("__import__('os').system('x')", None),
        ("[" * 9_000, None),
        ("9**9**9", None),
    ],
)
def test_layers_with_experts(text: object, layers: object) -> None:
    assert layers_with_experts(text) == layers
