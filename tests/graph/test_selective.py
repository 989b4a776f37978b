"""What selective recomputation runs again of a layer and does not keep, by module."""

from __future__ import annotations

import numpy as np
import pytest
from cases import GPT, REGISTRY, graph
from msgspec.structs import replace

from xe_sizer.graph.inputs import Learning
from xe_sizer.graph.model import Experts, ModelShape
from xe_sizer.graph.operators import Attention, Kernels, Matmul, Operator
from xe_sizer.graph.recompute import RECOMPUTE_MODULES, find_modules, recomputed_exchanges
from xe_sizer.graph.transformer import layer_operators

# 512 tokens of 1,024 elements in 2 bytes are 1 MiB; the dense MLP is 4 times as wide, and experts are twice, 2 a token.
MIB = 2**20
MIXTURE = replace(GPT, experts=Experts(count=8, per_token=2, ffn=2048, shared_ffn=1024))


def operators(model: ModelShape, *modules: str) -> dict[str, Operator]:
    kernels = Kernels(selective=modules, routing="fused")
    return {op.name: op for op in layer_operators(graph(model, Learning(True), kernels))}


def again(found: dict[str, Operator]) -> set[str]:
    """Names of what runs again and does something, but for exchanges of groups of one rank."""
    return {name for name, op in found.items() if op.again}


def dropped(found: dict[str, Operator]) -> dict[str, float]:
    sizes = {name: float(np.sum(op.dropped_bytes)) / MIB for name, op in found.items()}
    return {name: size for name, size in sizes.items() if size}


def test_the_dense_mlp_keeps_the_input_of_its_norm() -> None:
    """Of the MLP: 1 of its input, 4 before and 4 behind the activation."""
    found = operators(GPT, "mlp")
    assert again(found) == {"mlp norm", "mlp input", "up", "activation", "down", "mlp output"}
    assert dropped(found) == {"up": 1.0, "activation": 4.0, "down": 4.0}


def test_an_mlp_beside_the_attention_keeps_what_its_first_product_reads() -> None:
    """Without a norm of its own: 4 before and 4 behind the activation are not kept."""
    found = operators(replace(GPT, parallel_block=True, norms_per_layer=1), "mlp")
    assert again(found) == {"mlp input", "up", "activation", "down", "mlp output"}
    assert dropped(found) == {"activation": 4.0, "down": 4.0}


def test_modules_that_are_selected_together_drop_what_each_does() -> None:
    found = dropped(operators(MIXTURE, "moe_act", "shared_experts", "core_attn"))
    each = [dropped(operators(MIXTURE, module)) for module in ("moe_act", "shared_experts", "core_attn")]
    assert found == {name: size for one in each for name, size in one.items()}
    twice = dropped(operators(MIXTURE, "moe", "layernorm"))
    assert twice["router"] == 1.0
    assert twice["shared expert gate and up"] == 1.0


def test_experts_keep_the_input_of_the_router() -> None:
    """Copies of each token for 2 experts are 2, twice as wide around the activation 4; shared ones have 1."""
    found = operators(MIXTURE, "moe")
    assert {"router", "expert dispatch", "expert gate and up", "expert combine", "shared expert down"} <= again(found)
    assert not {"mlp norm", "mlp residual", "attention"} & again(found)
    lost = dropped(found)
    assert lost.pop("dispatch") == lost.pop("combine") == 2.0
    assert lost == {
        "expert activation": 4.0, "expert down": 4.0, "shared expert gate and up": 1.0,
        "shared expert activation": 1.0, "shared expert down": 1.0,
    }  # fmt: skip


def test_shared_experts_keep_their_input() -> None:
    found = operators(MIXTURE, "shared_experts")
    assert dropped(found) == {"shared expert activation": 1.0, "shared expert down": 1.0}
    assert {"experts input", "experts output"} < again(found)


def test_the_activation_of_experts_runs_again_from_its_input() -> None:
    found = operators(MIXTURE, "moe_act")
    assert (again(found), dropped(found)) == ({"expert activation"}, {"expert down": 4.0})


def test_norms_that_products_compute_themselves_are_not_apart() -> None:
    assert (again(operators(GPT, "layernorm")), dropped(operators(GPT, "layernorm"))) == (set(), {})
    found = operators(MIXTURE, "layernorm")
    assert again(found) == {"mlp norm"}
    assert dropped(found) == {"router": 1.0, "shared expert gate and up": 1.0}


def test_the_way_up_from_latents() -> None:
    """DeepSeek-V2-Lite on 512 tokens: 16 heads of 192 and 128; the latent of 512 elements is half a MiB."""
    model = REGISTRY.model("deepseek-v2-lite")
    found = operators(model, "mla_up_proj")
    assert {"kv up", "kv latent norm", "rotary"} <= again(found)
    lost = dropped(found)
    assert lost["kv up"] == 0.5
    queries_keys_values = 512 * 16 * (192 + 192 + 128) * 2 / MIB
    assert lost["attention"] >= queries_keys_values
    one = found["attention"]
    assert isinstance(one, Attention)
    left = float(np.sum(one.saved_bytes - one.dropped_bytes - one.statistics_bytes)) / MIB
    assert left == pytest.approx(512 * 16 * 128 * 2 / MIB)


def test_core_attention_is_what_stacks_select_by_themselves() -> None:
    named, usual = operators(GPT, "core_attn"), layer_operators(graph(GPT, Learning(True), Kernels(routing="fused")))
    assert again(named) == {op.name for op in usual if op.again} == {"attention", "context exchange"}
    assert dropped(named) == {"attention": 512 * 16 * 4 / MIB}


@pytest.mark.parametrize("model", [GPT, MIXTURE, REGISTRY.model("deepseek-v3"), REGISTRY.model("nemotron-h-8b")])
def test_nothing_is_dropped_that_is_not_kept(model: ModelShape) -> None:
    for op in operators(model, *RECOMPUTE_MODULES).values():
        assert np.all(np.asarray(op.dropped_bytes) <= op.saved_bytes)


def test_modules_that_a_model_has() -> None:
    assert find_modules(GPT) == ("core_attn", "mlp")
    assert find_modules(MIXTURE) == ("core_attn", "moe", "moe_act", "layernorm", "shared_experts")
    assert find_modules(REGISTRY.model("deepseek-v3")) == RECOMPUTE_MODULES


def test_every_other_product_is_kept_and_what_only_moves_memory_runs_again() -> None:
    """TorchTitan (distributed/activation_checkpoint.py): outputs of the first, third, ... product of a layer are kept.

    Of 1 MiB of a state queries, keys and values make 3 and the MLP 4; attention keeps its output and a float32 of each
    query and head. The layer's input is kept as well.
    """
    kernels = Kernels(selective="alternate", routing="fused")
    found = {op.name: op for op in layer_operators(graph(GPT, Learning(True), kernels))}
    order = (("qkv", 3.0), ("output projection", 0.0), ("up", 4.0), ("down", 0.0))
    for name, outputs in order:
        one = found[name]
        assert one.again == float(not outputs)
        assert float(np.sum(one.saved_bytes - one.dropped_bytes)) == outputs * MIB
    apart = replace(kernels, fused_qkv=False)
    three = {op.name: op.again for op in layer_operators(graph(GPT, Learning(True), apart))}
    assert [three[name] for name in ("q", "k", "v", "output projection", "up", "down")] == [0, 1, 0, 1, 0, 1]
    several = {op.name: op for op in layer_operators(graph(MIXTURE, Learning(True), kernels))}
    for name in ("router", "expert gate and up", "expert down"):
        assert (several[name].again, float(np.sum(several[name].saved_bytes - several[name].dropped_bytes))) == (1, 0)
    assert several["shared expert gate and up"].again == 0.0  # the third
    attention, norm, exchange = found["attention"], found["mlp norm"], found["mlp output"]
    assert attention.again == 0.0
    assert float(np.sum(attention.saved_bytes - attention.dropped_bytes)) == MIB + 512 * 16 * 4
    assert (norm.again, float(np.sum(norm.dropped_bytes)) / MIB) == (1.0, 1.0)
    assert float(np.sum(found["input norm"].saved_bytes - found["input norm"].dropped_bytes)) == MIB
    assert exchange.again == 0.0
    mixer = {op.name: op for op in layer_operators(graph(REGISTRY.model("nemotron-h-8b"), Learning(True), kernels))}[
        "scan"
    ]
    assert mixer.again == 1.0
    assert float(np.sum(mixer.dropped_bytes)) == float(np.sum(mixer.saved_bytes)) > 0


def test_exchanges_of_checkpointed_modules_run_again() -> None:
    found = operators(MIXTURE, "shared_experts")
    assert {op.name for op in recomputed_exchanges(tuple(found.values()))} == {"experts input", "experts output"}
    assert recomputed_exchanges(tuple(operators(GPT, "layernorm").values())) == ()


def test_latent_ranks_drop_no_more_than_queries_keys_and_values() -> None:
    """16 heads of 192 and 128 on 512 tokens, on one tensor rank of two: half of each."""
    model = REGISTRY.model("deepseek-v2-lite")
    kernels = Kernels(selective=("mla_up_proj",), routing="fused", fused_qkv=False)
    made = graph(model, Learning(True), kernels, tp=2, expert_tp=2)
    found = {op.name: op for op in layer_operators(made)}
    assert float(np.sum(found["attention"].dropped_bytes)) == 512 * 8 * (192 + 192 + 128) * 2
    assert {name for name, op in found.items() if op.again} == {"kv up", "kv latent norm", "rotary"}
    assert operators(GPT, "mla_up_proj")["attention"].dropped_bytes == 0


def test_models_without_experts_or_a_dense_mlp_have_nothing_of_them_to_run_again() -> None:
    for module in ("moe", "moe_act", "shared_experts"):
        assert again(operators(GPT, module)) == set()
    assert again(operators(replace(MIXTURE, experts=replace(MIXTURE.experts, shared_ffn=0)), "shared_experts")) == set()
    assert again(operators(MIXTURE, "mlp")) == set()


def test_latent_attention_has_a_norm_of_its_own() -> None:
    found = operators(REGISTRY.model("deepseek-v3"), "layernorm")
    assert again(found) == {"input norm", "mlp norm"}
    assert set(dropped(found)) == {"q down", "router", "shared expert gate and up"}


# Whole layers that run again stop where all that autograd saves is there (PyTorch's early stop).


def unneeded(model: ModelShape, learning: Learning, early: bool = True) -> set[str]:
    made = layer_operators(graph(model, learning, Kernels(stops_early=early, routing="eager")))
    return {op.name for op in made if op.unneeded}


def test_a_layer_that_runs_again_stops_before_its_last_product() -> None:
    """Its inputs are saved before it runs; with a norm behind it, or with experts' weights, it is needed."""
    base = Learning(True)
    assert unneeded(GPT, base) == {"down", "mlp output", "mlp residual"}
    assert unneeded(GPT, base, early=False) == set()
    assert "expert down" not in unneeded(MIXTURE, base)
    four = replace(REGISTRY.model("gemma-2-2b").with_layers(1), name="four norms")
    assert "down" not in unneeded(four, base)


def test_a_mask_of_dropout_is_needed_too() -> None:
    dropping = layer_operators(
        graph(replace(GPT, dropout=("hidden",)), Learning(True), Kernels(stops_early=True, dropout=True))
    )
    assert not any(op.unneeded for op in dropping)


def test_what_runs_again_is_what_torch_counts() -> None:
    """79.7 of 102.8 MFLOP of the layers' products, by FlopCounterMode of a Llama with 2 layers (transformers 5)."""
    shape = replace(REGISTRY.model("tiny-llama").with_layers(2), hidden=256, heads=4, kv_heads=2, head_dim=64, ffn=640)
    made = layer_operators(graph(shape, Learning(True), Kernels(stops_early=True)))
    flops = {op.name: float(np.sum(op.layers * op.forward_flops)) for op in made if isinstance(op, Matmul)}
    again = sum(flops[op.name] for op in made if isinstance(op, Matmul) and not op.unneeded)
    assert again / sum(flops.values()) == pytest.approx(79.7 / 102.8, abs=0.03)
