"""What single Hugging Face model types do unlike all others: from their keys to fields of a model's shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from xe_sizer.graph.model import GlobalAttention, StateSpace

if TYPE_CHECKING:
    from xe_sizer.profiles.config_json import Config

Values = dict[str, Any]
"""Fields of a `ModelShape`; a function below gets those found so far and returns the ones to replace."""


def _opt(config: Config, values: Values) -> Values:
    width = config.count("word_embed_proj_dim", default=values["hidden"])
    return {
        # The class keeps two rows for padding in front of the table.
        "learned_positions": values["max_positions"] + 2,
        "embedding_size": width if width != values["hidden"] else None,
        "final_norm": config.flag("do_layer_norm_before", True),
    }


def _gpt_bigcode(config: Config, values: Values) -> Values:
    return {"kv_heads": 1 if config.flag("multi_query", True) else values["heads"]}


def _rotary_dim(config: Config, values: Values) -> Values:
    """Families that say how many elements of a head are rotated, not which share."""
    return {"rotary_fraction": min(1.0, config.count("rotary_dim", default=64) / values["head_dim"])}


def _gpt_neox(config: Config, values: Values) -> Values:
    return {"parallel_block": config.flag("use_parallel_residual", True)}


def _falcon(config: Config, values: Values) -> Values:
    """Three generations: all heads have keys, or one has, or a group (`new_decoder_architecture`)."""
    heads, new = values["heads"], config.flag("new_decoder_architecture", config.has("n_head_kv"))
    parallel = new or config.flag("parallel_attn", True)
    if new:
        kv_heads = config.count("num_kv_heads", "n_head_kv", default=heads)
        norms = config.count("num_ln_in_parallel_attn", default=2)
    else:
        kv_heads, norms = 1 if config.flag("multi_query", True) else heads, 1 if parallel else 2
    return {
        "kv_heads": kv_heads,
        "norms_per_layer": norms,
        "parallel_block": parallel,
        "position": "alibi" if config.flag("alibi", False) else "rope",
    }


def _mpt(config: Config, values: Values) -> Values:
    attention = config.section("attn_config")
    biased = not config.flag("no_bias", True)
    alibi = attention.flag("alibi", True)
    return {
        "kv_heads": attention.count("kv_n_heads", default=values["heads"]),
        "ffn": values["hidden"] * config.count("expansion_ratio", default=4),
        "position": "alibi" if alibi else "learned",
        "learned_positions": 0 if alibi else values["max_positions"],
        "norm": "layernorm" if biased else "layernorm-nobias",
        "qkv_bias": biased,
        "output_bias": biased,
        "mlp_bias": biased,
    }


def _stablelm(config: Config, values: Values) -> Values:
    parallel = config.flag("use_parallel_residual", False)
    return {
        "parallel_block": parallel,
        "norms_per_layer": 1 if parallel else 2,
        "qk_norm": "full" if config.flag("qk_layernorm", False) else None,
    }


def _cohere(config: Config, values: Values) -> Values:
    return {"qk_norm": "full" if config.flag("use_qk_norm", False) else None}


def _glm4_moe(config: Config, values: Values) -> Values:
    return {"qk_norm": "perhead" if config.flag("use_qk_norm", False) else None}


def _qwen(config: Config, values: Values) -> Values:
    # The first generation's intermediate_size is the sum of gate and up.
    return {"ffn": max(1, values["ffn"] // 2)}


def _baichuan(config: Config, values: Values) -> Values:
    # No key says so: the class of the 13B models (hidden size 5120) uses ALiBi, that of the 7B models rotary.
    return {"position": "alibi"} if values["hidden"] >= 5120 else {}


def _chatglm(config: Config, values: Values) -> Values:
    if not config.has("ffn_hidden_size"):
        config.fail("the first ChatGLM generation is not read from a config; use the profile 'chatglm-6b'")
    biased = config.flag("add_bias_linear", False)
    grouped = config.flag("multi_query_attention", False)
    return {
        "kv_heads": config.count("multi_query_group_num") if grouped else values["heads"],
        "norm": "rmsnorm" if config.flag("rmsnorm", True) else "layernorm",
        "qkv_bias": values["qkv_bias"] or biased,
        "output_bias": biased,
        "mlp_bias": biased,
    }


def _llama4(config: Config, values: Values) -> Values:
    config.assume("chunked attention is computed as a sliding window of the same length")
    if config.has("moe_layers"):
        step = values["experts"].every_n_layers
        if config.items("moe_layers") != list(range(step - 1, values["layers"], step)):
            config.fail("this choice of layers with experts is not supported yet", "moe_layers")
    return {"ffn": config.count("intermediate_size_mlp", default=values["ffn"])}


def _phi(config: Config, values: Values) -> Values:
    if config.flag("qk_layernorm", False):
        config.fail("norms of queries and keys are not supported for this model type yet", "qk_layernorm")
    return {}


def _delta_net(config: Config, values: Values) -> Values:
    """Qwen3-Next and Qwen3.5: gated delta nets, with gated attention in every fourth layer."""
    types, every = config.items("layer_types"), config.count("full_attention_interval", default=4)
    full = [(layer + 1) % every == 0 for layer in range(values["layers"])]
    if types is not None:
        full = [kind == "full_attention" for kind in types]
    heads, size = config.count("linear_num_value_heads"), config.count("linear_value_head_dim", default=128)
    key_size = config.count("linear_key_head_dim", default=128)
    return {
        "layer_pattern": "".join("*" if attends else "M" for attends in full),
        "output_gate": config.flag("attn_output_gate", True),
        "state_space": StateSpace(
            kind="gated-delta-net",
            inner=heads * size,
            state=key_size,
            conv_kernel=config.count("linear_conv_kernel_dim", default=4),
            heads=heads,
            head_dim=size,
            key_heads=config.count("linear_num_key_heads"),
            key_head_dim=key_size,
            input_parts=2 if "3_5" in (config.word("model_type") or "") else 1,
        ),
    }


NEMOTRON_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def _nemotron_h(config: Config, values: Values) -> Values:
    """Nemotron-H and Nemotron 3: a mixer, an MLP or experts in a layer, as a string of letters or a list says."""
    listed = config.items("layers_block_type")
    pattern = config.word("hybrid_override_pattern") or ""
    if listed is not None and not pattern:
        pattern = "".join(NEMOTRON_LETTERS.get(str(kind), "?") for kind in listed)
    if set(pattern) - set(NEMOTRON_LETTERS.values()) or len(pattern) != values["layers"]:
        config.fail(
            f"the pattern of layers must have {values['layers']} of the letters M*-E", "hybrid_override_pattern"
        )
    heads, size = config.count("mamba_num_heads"), config.count("mamba_head_dim")
    experts = values["experts"]
    return {
        "layer_pattern": pattern,
        "experts": replace(experts, latent=config.optional_count("moe_latent_size")) if "E" in pattern else None,
        "state_space": StateSpace(
            kind="mamba-2",
            inner=heads * size,
            state=config.count("ssm_state_size"),
            conv_kernel=config.count("conv_kernel", default=4),
            heads=heads,
            head_dim=size,
            groups=config.count("n_groups", default=1),
        ),
    }


def _gemma4(config: Config, values: Values) -> Values:
    """Global layers have heads of their own; a model with experts has its dense MLP beside them, as a shared expert."""
    if config.count("hidden_size_per_layer_input", default=0, least=0):
        config.fail("layers that embed every token again are not supported yet", "hidden_size_per_layer_input")
    wide = config.section("rope_parameters").section("full_attention")
    types = config.items("layer_types") or []
    return {
        "layer_pattern": "".join("*" if kind == "sliding_attention" else "G" for kind in types) or None,
        "global_attention": GlobalAttention(
            kv_heads=config.count("num_global_key_value_heads", default=values["kv_heads"]),
            head_dim=config.count("global_head_dim", default=values["head_dim"]),
            rotary_fraction=wide.fraction("partial_rotary_factor", default=1.0),
            values_are_keys=config.flag("attention_k_eq_v", False),
        ),
        "experts": replace(values["experts"], own_norms=True) if values["experts"] else None,
        "soft_caps": ("logits",) if config.has("final_logit_softcapping") else (),
    }


def _routed(config: Config, values: Values) -> Values:
    """Families whose correction of the routing, one value for each expert, is a parameter."""
    return {"experts": replace(values["experts"], router_bias=True)}


def _gated(config: Config, values: Values) -> Values:
    """Attention whose output is gated, element by element, as by a second half of the query projection."""
    return {"output_gate": True, "soft_caps": ("logits",) if config.has("final_logit_softcapping") else ()}


def _bailing(config: Config, values: Values) -> Values:
    return {"qk_norm": "perhead" if config.flag("use_qk_norm", False) else None}


def _hunyuan_moe(config: Config, values: Values) -> Values:
    shared = values["ffn"] * config.count("num_shared_expert", default=1, least=0)
    return {"experts": replace(values["experts"], shared_ffn=shared)}


def _minimax_3(config: Config, values: Values) -> Values:
    config.assume("the indexer of its sparse attention is left out: every layer attends to all tokens")
    return {"ffn": config.count("dense_intermediate_size", default=values["ffn"]), **_rotary_dim(config, values)}


def _heads_by_layer(config: Config, values: Values) -> Values:
    """Families whose layers with a window have more query heads; the gate of each head is one row of a projection."""
    config.assume("every layer is taken to have the query heads of those without a window")
    return {}


def _mimo_v2(config: Config, values: Values) -> Values:
    """Keys of 192 and values of 128 elements count, cost and cache as two of 160 each do."""
    size, value_size = values["head_dim"], config.count("v_head_dim", default=values["head_dim"])
    windowed = config.items("hybrid_layer_pattern") or []
    kinds = config.items("layer_types") or ["sliding_attention" if kind == 1 else "full_attention" for kind in windowed]
    return {
        "head_dim": (size + value_size) // 2,
        "layer_pattern": "".join("*" if kind in ("sliding_attention", 1) else "G" for kind in kinds) or None,
        "kv_heads": config.count("swa_num_key_value_heads", default=2 * values["kv_heads"]),
        "global_attention": GlobalAttention(values["kv_heads"], (size + value_size) // 2, values["rotary_fraction"]),
        "sliding_window": config.count("sliding_window", default=128),
        "windowed_layers": sum(kind == "sliding_attention" for kind in kinds),
    }


QUIRKS: Mapping[str, Callable[[Config, Values], Values]] = {
    "opt": _opt,
    "gpt_bigcode": _gpt_bigcode,
    "gptj": _rotary_dim,
    "gpt_neox": _gpt_neox,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "mpt": _mpt,
    "stablelm": _stablelm,
    "stablelm_epoch": _stablelm,
    "cohere": _cohere,
    "glm4_moe": _glm4_moe,
    "qwen": _qwen,
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "llama4_text": _llama4,
    "minimax_m2": _rotary_dim,
    "minimax_m3": _minimax_3,
    "minimax_m3_vl_text": _minimax_3,
    "afmoe": lambda config, values: _gated(config, values) | _routed(config, values),
    "ernie4_5_moe": _routed,
    "bailing_moe": _bailing,
    "bailing_moe_v2": _bailing,
    "hunyuan_v1_moe": _hunyuan_moe,
    "laguna": _heads_by_layer,
    "mimo_v2_flash": _mimo_v2,
    "muse_glimmer_text": _gated,
    "step3p5": _heads_by_layer,
    "phi": _phi,
    "qwen3_next": _delta_net,
    "qwen3_5_text": _delta_net,
    "qwen3_5_moe_text": _delta_net,
    "nemotron_h": _nemotron_h,
    "gemma4_text": _gemma4,
}
