"""Hybrids of the Hugging Face Hub: layers with a recurrent mixer or a short convolution beside some with attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, get_args

from msgspec.structs import replace

from xe_sizer.graph.model import (
    WIDE_STATES,
    GlobalAttention,
    NgramTables,
    SharedBlocks,
    SparseIndexer,
    StateSpace,
    StateType,
)
from xe_sizer.profiles.huggingface_config import WINDOWED, streams

if TYPE_CHECKING:
    from xe_sizer.profiles.huggingface_config import Config, Values

# Types of layers without attention, as `layer_types` calls them.
RECURRENT = frozenset({"linear_attention", "conv", "mamba"})


def _state_dtype(config: Config) -> str | None:
    """The type in which the configuration asks to keep recurrent states; None: it does not say."""
    word = config.word("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    if word not in (None, "auto", *get_args(StateType)):
        config.fail(f"states in {word} are not supported")
    return None if word == "auto" else word


def _mixers(config: Config, values: Values, types: Iterable[object]) -> Values:
    """Letters of layers by their types. Where some attention has a window and some has none, letter G has none."""
    kinds = [str(kind) for kind in types]
    if len(kinds) != values["layers"]:
        config.fail(f"there must be {values['layers']} types of layers, not {len(kinds)}", "layer_types")
    attending = set(kinds) - RECURRENT
    wide = "G" if attending & WINDOWED and attending - WINDOWED else "*"
    letters = {kind: "M" if kind in RECURRENT else "*" if kind in WINDOWED else wide for kind in kinds}
    found: Values = {"layer_pattern": "".join(letters[kind] for kind in kinds)}
    if attending & WINDOWED:
        found |= {"sliding_window": config.count("sliding_window"), "windowed_layers": values["layers"]}
    if wide == "G":
        own = GlobalAttention(values["kv_heads"], values["head_dim"], values["rotary_fraction"])
        found["global_attention"] = own
    return found


def _types(config: Config, values: Values, other: str, attends: Callable[[int], bool]) -> list[object]:
    """The stated types of layers; without them the full attention that a class puts between layers of another type."""
    stated = config.items("layer_types")
    if stated is not None:
        return stated
    return ["full_attention" if attends(layer) else other for layer in range(int(values["layers"]))]


def _delta_net(config: Config, values: Values) -> Values:
    """Qwen3-Next, Qwen3.5, OLMo Hybrid: gated delta nets, with attention in every fourth layer."""
    every, heads = config.count("full_attention_interval", default=4), values["heads"]
    kind = config.word("model_type") or ""
    olmo = kind == "olmo_hybrid"
    value_heads = config.count("linear_num_value_heads", default=heads if olmo else None)
    key_heads = config.count("linear_num_key_heads", default=heads if olmo else None)
    key_size = config.count("linear_key_head_dim", default=3 * values["hidden"] // (4 * key_heads) if olmo else 128)
    size = config.count("linear_value_head_dim", default=2 * key_size if olmo else 128)
    types = _types(config, values, "linear_attention", lambda layer: (layer + 1) % every == 0)
    unrotated = olmo and config.data.get("rope_parameters", {}) is None
    return _mixers(config, values, types) | {
        "output_gate": config.flag("attn_output_gate", kind.startswith("qwen")),
        "position": "none" if unrotated else values["position"],
        "state_space": StateSpace(
            kind="gated-delta-net",
            inner=value_heads * size,
            state=key_size,
            conv_kernel=config.count("linear_conv_kernel_dim", default=4),
            heads=value_heads,
            head_dim=size,
            key_heads=key_heads,
            key_head_dim=key_size,
            input_parts=1 if kind.startswith("qwen3_next") else 2,
            state_dtype=_state_dtype(config),
        ),
    }


def _qwen4(config: Config, values: Values) -> Values:
    """Qwen3.8-Flash-Next: Qwen3.5 with hyper-connections of low rank, and tables of n-grams in some layers."""
    found: Values = _delta_net(config, values) | {
        "residual_streams": streams(config),
        "stream_rank": config.count("hc_lowrank", default=320),
        "indexer": SparseIndexer(
            heads=config.count("indexer_n_heads", default=4),
            head_dim=config.count("indexer_head_dim", default=128),
            top_k=config.count("indexer_budget", default=2048),
            kind="qsa",
            block_tokens=config.count("indexer_compress_ratio", default=4),
            key_tokens=config.count("indexer_compress_ratio", default=4),
        ),
    }
    tabled = config.items("ple_layer_ids") or []
    if tabled:
        lookups = (config.count("ngram_size", default=3) - 1) * config.count("heads_per_ngram", default=8)
        base = config.count("ngram_vocab_size_base", default=20_000_000)
        multiple = config.count("make_ngram_vocab_size_divisible_by", default=128)
        rows = _ngram_rows(base, lookups, len(tabled))
        found["ngram_tables"] = NgramTables(
            rows=tuple(-(-own // multiple) * multiple for own in rows),
            width=config.count("ple_embed_dim", default=values["hidden"]) // lookups,
            lookups=lookups,
            conv_kernel=config.count("ple_conv_kernel_size", default=4),
        )
    return found


def _ngram_rows(base: int, heads: int, tables: int) -> Iterator[int]:
    """Rows of each table: of its heads, which have the next prime numbers from a base on, one after the other."""
    size = base - 1
    for _ in range(tables):
        rows = 0
        for _ in range(heads):
            size += 1
            while not _is_prime(size):
                size += 1
            rows += size
        yield rows


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _kimi_delta(config: Config, values: Values) -> Values:
    """Kimi Linear, Kimi K3, Ling 3, GLM-5.3, Solar Open 2: Kimi delta attention, and other attention in some layers."""
    own, types = config.section("linear_attn_config"), config.items("layer_types")
    layers, listed = int(values["layers"]), own.items("full_attn_layers")
    kind = config.word("model_type")
    ling, solar = kind == "bailing_hybrid", kind == "solar_open2"
    if ling and "BailingMoeV2_5ForCausalLM" in (config.data.get("architectures") or ()):
        config.assume("its lightning attention is priced as Kimi delta attention, with which it shares its state")
    if types is not None:
        full = [kind != "linear_attention" for kind in types]
    elif listed is not None:
        full = [layer + 1 in listed for layer in range(layers)]
    elif solar:
        first, period = config.items("gqa_layers"), config.count("gqa_interval", default=3) + 1
        full = [layer in first if first is not None else layer % period == 0 for layer in range(layers)]
    else:
        every = config.count("layer_group_size", default=4)
        full = [(layer + 1) % every == 0 for layer in range(layers)]
    if len(full) != layers:
        config.fail(f"there must be {layers} types of layers, not {len(full)}", "layer_types")
    part = own if own.data else config
    heads = part.count("num_heads", "linear_num_heads", default=values["heads"])
    size = part.count("linear_head_dim", "head_dim")
    experts = values["experts"]
    full_rank = ling or config.flag("kda_use_full_proj", False)
    return {
        "layer_pattern": "".join("*" if attends else "M" for attends in full),
        "output_gate": config.flag("use_gqa_gate" if solar else "mla_use_output_gate", solar),
        "qk_norm": "perhead" if solar and config.flag("use_qk_norm", False) else values["qk_norm"],
        "experts": experts and replace(experts, latent=config.optional_count("routed_expert_hidden_size")),
        "residual_streams": streams(config),
        "state_space": StateSpace(
            kind="kimi-delta-attention",
            inner=heads * size,
            state=size,
            conv_kernel=part.count("short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
            heads=heads,
            head_dim=size,
            key_heads=heads,
            key_head_dim=size,
            decay_rank=0 if full_rank else size,
            gate_rank=0 if full_rank or part.flag("use_full_rank_gate", False) else size,
        ),
    }


# The second of two words is what transformers 5.24 writes.
NEMOTRON_LETTERS = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}


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
            state_dtype=_state_dtype(config) or WIDE_STATES,  # the default of NemotronHConfig
        ),
    }


def _mamba_2(config: Config, values: Values, inner: int) -> StateSpace:
    """Mamba-2 as Granite 4 and Bamba call its sizes."""
    heads = config.count("mamba_n_heads")
    return StateSpace(
        kind="mamba-2",
        inner=inner,
        state=config.count("mamba_d_state"),
        conv_kernel=config.count("mamba_d_conv", default=4),
        heads=heads,
        head_dim=inner // heads,
        groups=config.count("mamba_n_groups", default=1),
    )


def _mamba(config: Config, values: Values) -> Values:
    """Mamba, Mamba-2 and Falcon Mamba, without any attention, as transformers and as mamba-ssm write them."""
    if config.items("attn_layer_idx"):
        config.fail("attention in some layers of a model of mamba-ssm is not supported yet", "attn_layer_idx")
    ssm, hidden = config.has("ssm_cfg"), values["hidden"]
    part = config.section("ssm_cfg") if ssm else config
    inner = config.count("intermediate_size", "d_inner", default=hidden * part.count("expand", default=2))
    kernel = part.count("d_conv", "conv_kernel", default=4)
    if config.word("model_type") == "mamba2" or (ssm and part.word("layer") == "Mamba2"):
        size = part.count("headdim", "head_dim", default=64)
        space = StateSpace(
            kind="mamba-2",
            inner=inner,
            state=part.count("d_state", "state_size", default=128),
            conv_kernel=kernel,
            heads=part.count("num_heads", default=inner // size),
            head_dim=size,
            groups=part.count("ngroups", "n_groups", default=1 if ssm else 8),
        )
    else:
        rank = config.data.get("time_step_rank")
        space = StateSpace(
            kind="mamba-1",
            inner=inner,
            state=part.count("d_state", "state_size", default=16),
            conv_kernel=kernel,
            dt_rank=math.ceil(hidden / 16) if rank in (None, "auto") else config.count("time_step_rank"),
        )
    multiple = config.count("pad_vocab_size_multiple", default=1)
    shared = space.heads or space.inner  # what tensor parallelism splits in place of heads
    return {
        "layer_pattern": "M" * values["layers"],
        "heads": shared,
        "kv_heads": shared,
        "head_dim": hidden // shared,
        "ffn": 0,
        "vocab": multiple * math.ceil(values["vocab"] / multiple),
        "tied_embeddings": config.flag("tie_embeddings", values["tied_embeddings"]),
        "fused_norms": ssm,
        "state_space": space,
    }


def _falcon_h1(config: Config, values: Values) -> Values:
    """Falcon-H1: attention and Mamba-2 read the same input in every layer."""
    inner = config.count("mamba_d_ssm", default=values["hidden"] * config.count("mamba_expand", default=2))
    space = _mamba_2(config, values, inner)
    return {
        "layer_pattern": "P" * values["layers"],
        "state_space": replace(space, gate_norm=config.flag("mamba_rms_norm", False)),
    }


def _zamba_2(config: Config, values: Values) -> Values:
    """Zamba2: Mamba-2 in every layer, before some of them one of a few transformer blocks, which return in turns.

    The attention of a block reads the token's embedding beside the state, with heads as wide as both together.
    """
    kinds = [str(kind) for kind in config.items("layers_block_type") or config.items("layer_types") or ()]
    layers, hidden = int(values["layers"]), values["hidden"]
    if len(kinds) != layers or not set(kinds) <= RECURRENT | {"hybrid"}:
        config.fail(f"there must be {layers} types of layers, mamba or hybrid, not {len(kinds)}", "layers_block_type")
    pattern = "".join("*-M" if kind == "hybrid" else "M" for kind in kinds)
    inner = hidden * config.count("mamba_expand", default=2)
    heads = config.count("n_mamba_heads", default=8)
    rank = config.count("adapter_rank", default=128)
    return {
        "layers": max(len(pattern), 1),
        "layer_pattern": pattern,
        "head_dim": max(2 * hidden // values["heads"], 1),
        "ffn": config.count("intermediate_size", default=4 * hidden),
        "position": "rope" if config.flag("use_mem_rope", False) else "none",
        "doubled_input": True,
        "shared_blocks": SharedBlocks(
            sets=config.count("num_mem_blocks", default=1),
            mlp_rank=rank,
            attention_rank=rank if config.flag("use_shared_attention_adapter", False) else 0,
            projection=True,
            tied=True,
        ),
        "state_space": StateSpace(
            kind="mamba-2",
            inner=inner,
            state=config.count("mamba_d_state", default=64),
            conv_kernel=config.count("mamba_d_conv", default=4),
            heads=heads,
            head_dim=inner // heads,
            groups=config.count("mamba_ngroups", default=1),
        ),
    }


def _lightning(config: Config, values: Values) -> Values:
    """MiniMax-01 and M1: lightning attention, with full attention in every eighth layer.

    Their own code says 0 and 1 of each layer, that of transformers words, or nothing where every second one has it.
    """
    listed = config.items("attn_type_list")
    types = _types(config, values, "linear_attention", lambda layer: layer % 2 == 0)
    if listed is not None:
        types = ["full_attention" if kind else "linear_attention" for kind in listed]
    heads, size = values["heads"], values["head_dim"]
    rotated = config.count("rotary_dim", default=size)
    return _mixers(config, values, types) | {
        "rotary_fraction": min(1.0, rotated / size),
        "state_space": StateSpace(
            kind="lightning-attention",
            inner=heads * size,
            state=size,
            conv_kernel=1,
            heads=heads,
            head_dim=size,
            input_parts=2,
        ),
    }


def _granite_hybrid(config: Config, values: Values) -> Values:
    """Granite 4: Mamba-2, a layer with attention now and then; a model without experts has the shared one alone."""
    inner = values["hidden"] * config.count("mamba_expand", default=2)
    mixers = _mixers(config, values, config.items("layer_types") or config.items("layers_block_type") or ())
    shared = config.count("shared_intermediate_size", default=0, least=0)
    return mixers | {
        "ffn": values["ffn"] if values["experts"] else shared,
        "position": "rope" if config.word("position_embedding_type") == "rope" else "none",
        "state_space": _mamba_2(config, values, inner),
    }


def _bamba(config: Config, values: Values) -> Values:
    full = config.items("attn_layer_indices") or []
    types = _types(config, values, "mamba", lambda layer: layer in full)
    inner = values["hidden"] * config.count("mamba_expand", default=2)
    return _mixers(config, values, types) | {"state_space": _mamba_2(config, values, inner)}


def _jamba(config: Config, values: Values) -> Values:
    """Jamba: Mamba-1 with norms inside, attention in one layer of a period, experts in every second one."""
    period, offset = config.count("attn_layer_period", default=8), config.count("attn_layer_offset", default=4, least=0)
    experts, first = values["experts"], config.count("expert_layer_offset", default=1, least=0)
    if experts and first != experts.every_n_layers - 1:
        config.fail("experts elsewhere than in the last layer of a period are not supported yet", "expert_layer_offset")
    rank = config.data.get("mamba_dt_rank")
    stated = math.ceil(values["hidden"] / 16) if rank in (None, "auto") else config.count("mamba_dt_rank")
    types = _types(config, values, "mamba", lambda layer: layer % period == offset)
    return _mixers(config, values, types) | {
        "experts": experts if experts and experts.count > 1 else None,
        "state_space": StateSpace(
            kind="mamba-1",
            inner=values["hidden"] * config.count("mamba_expand", default=2),
            state=config.count("mamba_d_state", default=16),
            conv_kernel=config.count("mamba_d_conv", default=4),
            dt_rank=stated,
            inner_norms=True,
        ),
    }


def _short_convolution(config: Config, values: Values) -> Values:
    """LFM2 and LFM3: gated short convolutions, attention in between. LFM2 states three halves of its MLP's width."""
    kind, ffn = config.word("model_type"), config.count("block_ff_dim", default=values["ffn"])
    full = config.items("full_attn_idxs")
    types = _types(config, values, "conv", lambda layer: full is None or layer in full)
    if kind == "lfm2" and config.flag("block_auto_adjust_ff_dim", True):
        multiple = config.count("block_multiple_of", default=256)
        factor = config.data.get("block_ffn_dim_multiplier")
        wide = int((factor if isinstance(factor, float | int) else 1.0) * int(2 * ffn / 3))
        ffn = multiple * math.ceil(wide / multiple)
    if config.flag("use_attention_gate", False):
        config.assume("the gate of each head's output, one row of a projection, is left out")
    return _mixers(config, values, types) | {
        "ffn": ffn,
        "tied_embeddings": config.flag("tie_embedding", values["tied_embeddings"]),
        "norms_per_layer": 4 if config.flag("use_sandwich_norm", False) else 2,
        "state_space": StateSpace(
            kind="short-convolution",
            inner=values["hidden"],
            state=0,
            conv_kernel=config.count("conv_L_cache", default=3),
        ),
    }


HYBRID_QUIRKS: Mapping[str, Callable[[Config, Values], Values]] = {
    "qwen3_next": _delta_net,
    "qwen3_5_text": _delta_net,
    "qwen3_5_moe_text": _delta_net,
    "qwen4_exp_text": _qwen4,
    "olmo_hybrid": _delta_net,
    "lara_mini": _delta_net,
    "kimi_linear": _kimi_delta,
    "bailing_hybrid": _kimi_delta,
    "glm5_next_text": _kimi_delta,
    "solar_open2": _kimi_delta,
    "nemotron_h": _nemotron_h,
    "granitemoehybrid": _granite_hybrid,
    "mamba": _mamba,
    "mamba2": _mamba,
    "mamba_ssm": _mamba,
    "falcon_mamba": _mamba,
    "falcon_h1": _falcon_h1,
    "zamba2": _zamba_2,
    "minimax": _lightning,
    "bamba": _bamba,
    "jamba": _jamba,
    "lfm2": _short_convolution,
    "lfm2_moe": _short_convolution,
    "lfm3": _short_convolution,
}
