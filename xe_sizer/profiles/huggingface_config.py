"""`config.json` of the Hugging Face Hub: how it is read, and what families write differently."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.graph.model import (
    CompressedAttention,
    GlobalAttention,
    LatentAttention,
    LayerEmbedding,
    NgramTables,
    SparseIndexer,
)
from xe_sizer.profiles.convert import show
from xe_sizer.profiles.text import read_text

# A Hugging Face `config.json`, read key by key, with every problem noted instead of the first one raised.

MAX_COUNT = 10**9
MAX_LAYERS = 10**5


def load_json(path: Path) -> tuple[dict[str, Any], str]:
    """The object that a JSON file holds, and the file's text.

    Infinity and NaN, which Python writes and JSON has not, are read as they stand in keys that decide nothing here.

    Raises
    ------
    InputError    unreadable or oversized file, malformed JSON (line and column), nested too deeply, no object
    """
    text = read_text(path)
    name = str(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = Location(name, error.lineno, error.colno)
        reason = error.msg[:1].lower() + error.msg[1:].removesuffix(" at").removesuffix(" starting")
        raise InputError(Problem(f"not valid JSON: {reason}", where)) from None
    except RecursionError:
        raise InputError(Problem("nested too deeply", Location(name, 1, 1))) from None
    except ValueError as error:
        raise InputError(Problem(f"not valid JSON: {error}", Location(name, 1, 1))) from None
    if not isinstance(data, dict):
        raise InputError(Problem(f"a config must be a JSON object, not {show(data)}", Location(name, 1, 1)))
    return data, text


class Config:
    """The keys of one configuration; `problems` and `assumptions` grow as they are read.

    A key counts as absent when it is null. Names in a call are alternatives; the first present one is read.
    """

    def __init__(self, path: Path, data: dict[str, Any], text: str) -> None:
        self.path, self.data, self.text = path, data, text
        self.problems: list[Problem] = []
        self.assumptions: list[str] = []
        self.guesses: list[str] = []

    def has(self, *names: str) -> bool:
        return any(self.data.get(name) is not None for name in names)

    def count(self, *names: str, default: int | None = None, least: int = 1, most: int = MAX_COUNT) -> int:
        """A whole number from `least` to `most`; a missing key without a default is a problem."""
        name = self._present(names)
        if name is None:
            if default is None:
                others = f" (or '{names[1]}')" if len(names) > 1 else ""
                self.fail(f"missing key '{names[0]}'{others}")
            return least if default is None else default
        value = self.data[name]
        if type(value) is not int:
            self.fail(f"'{name}' must be a whole number, not {show(value)}", name)
        elif not least <= value <= most:
            self.fail(f"'{name}' must be between {least} and {most}, not {value}", name)
        else:
            return value
        return least

    def optional_count(self, *names: str) -> int | None:
        return self.count(*names) if self.has(*names) else None

    def flag(self, name: str, default: bool) -> bool:
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(f"'{name}' must be true or false, not {show(value)}", name)
            return default
        return value

    def fraction(self, *names: str, default: float) -> float:
        """A number above 0 and up to 1."""
        name = self._present(names)
        value = default if name is None else self.data[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            self.fail(f"'{name}' must be a number above 0 and up to 1, not {show(value)}", name)
            return default
        return float(value)

    def word(self, *names: str) -> str | None:
        name = self._present(names)
        value = self.data.get(name) if name else None
        if value is not None and not isinstance(value, str):
            self.fail(f"'{name}' must be text, not {show(value)}", name)
            return None
        return value

    def items(self, name: str) -> list[Any] | None:
        value = self.data.get(name)
        if value is not None and not isinstance(value, list):
            self.fail(f"'{name}' must be a list, not {show(value)}", name)
            return None
        return value

    def section(self, name: str) -> Config:
        """A nested object, empty when it is absent; its problems are this configuration's."""
        value = self.data.get(name)
        if value is not None and not isinstance(value, dict):
            self.fail(f"'{name}' must be an object, not {show(value)}", name)
            value = None
        nested = Config(self.path, value or {}, self.text)
        nested.problems, nested.assumptions, nested.guesses = self.problems, self.assumptions, self.guesses
        return nested

    def fail(self, message: str, key: str | None = None, hint: str | None = None) -> None:
        self.problems.append(Problem(message, self.locate(key), hint))

    def assume(self, text: str) -> None:
        self.assumptions.append(text)

    def guess(self, text: str) -> None:
        """Assume what the whole shape rests on."""
        self.assume(text)
        self.guesses.append(text)

    def locate(self, key: str | None) -> Location:
        """Where a key first stands in the file; the file alone when it does not."""
        found = re.search(rf'"{re.escape(key)}"\s*:', self.text) if key else None
        if not found:
            return Location(str(self.path))
        before = self.text[: found.start()]
        return Location(str(self.path), before.count("\n") + 1, found.start() - before.rfind("\n"))

    def _present(self, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self.data.get(name) is not None), None)


# What single Hugging Face model types do unlike all others: from their keys to fields of a model's shape.

WINDOWED = frozenset({"sliding_attention", "chunked_attention", "hybrid_sliding"})
"""Types of layers that look back a window."""
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


def _mllama(config: Config, values: Values) -> Values:
    """Llama 3.2 with vision: layers between the others, which a text without images skips, have as many weights."""
    config.assume("its layers that attend to images alone are taken to attend to the text, as the others do")
    return {}


def _gpt_neo(config: Config, values: Values) -> Values:
    """GPT-Neo: every second layer looks back a window, unless `attention_layers` says which."""
    kinds = config.items("attention_layers")
    windowed = values["layers"] // 2 if kinds is None else sum(kind == "local" for kind in kinds)
    window = config.count("window_size", default=256)
    return {"sliding_window": window, "windowed_layers": min(windowed, values["layers"])} if windowed else {}


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


def _cohere_moe(config: Config, values: Values) -> Values:
    config.assume("its attention and its experts, which read the same input, are priced one after the other")
    return {
        "ffn": config.count("prefix_dense_intermediate_size", default=values["ffn"]),
        "norm": "rmsnorm" if config.has("rms_norm_eps") else values["norm"],
    }


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


def streams(config: Config) -> int:
    """Hidden states that hyper-connections carry side by side; 1: there are none."""
    streams = config.count("hc_mult", "hc_count", default=1)
    if streams > 1:
        config.assume("its hyper-connections run as fused kernels, which keep the streams that they read")
    return streams


LETTERS_OF_TYPES = {
    "sliding_attention": "*", "compressed_sparse_attention": "C", "heavily_compressed_attention": "H",
}  # fmt: skip


def _deepseek_v4(config: Config, values: Values) -> Values:
    """DeepSeek-V4: a window in every layer, and in most entries of few or of many tokens besides; hyper-connections."""
    layers, types = int(values["layers"]), config.items("layer_types")
    ratios = config.items("compress_ratios")  # those of layers that predict further tokens come last
    rates = config.section("compress_rates")
    sizes = sorted({ratio for ratio in ratios or () if type(ratio) is int and ratio > 0})
    sparse = rates.count("compressed_sparse_attention", default=sizes[0] if sizes else 4)
    dense = rates.count("heavily_compressed_attention", default=sizes[-1] if len(sizes) > 1 else 128)
    letters = {0: "*", sparse: "C", dense: "H"}
    if types is not None:
        pattern = "".join(LETTERS_OF_TYPES.get(str(kind), "?") for kind in types)
    else:
        pattern = "".join(letters.get(ratio, "?") for ratio in (ratios or ())[:layers])
    if len(pattern) != layers or "?" in pattern:
        config.fail(f"the kinds of attention of {layers} layers must be told", "compress_ratios")
    return _compressed(config, values, pattern, sparse, dense)


def _compressed(config: Config, values: Values, pattern: str, sparse: int, dense: int) -> Values:
    """A window in every layer, and entries of so many tokens besides, by the letters of the layers."""
    return {
        "layer_pattern": pattern,
        "values_are_keys": True,
        "sliding_window": config.count("sliding_window", default=128),
        "windowed_layers": len(pattern),
        "rotary_fraction": min(1.0, config.count("qk_rope_head_dim", default=64) / values["head_dim"]),
        "residual_streams": streams(config),
        "indexer": SparseIndexer(
            config.count("index_n_heads"), config.count("index_head_dim"), config.count("index_topk")
        ),
        "compressed_attention": CompressedAttention(
            query_rank=config.count("q_lora_rank"),
            output_groups=config.count("o_groups"),
            output_rank=config.count("o_lora_rank"),
            sparse_tokens=sparse,
            dense_tokens=dense,
        ),
    }


def _deepseek_v41(config: Config, values: Values) -> Values:
    """DeepSeek-V4.1: entries that few layers make for those behind them, and tables of n-grams."""
    layers, ratios = int(values["layers"]), (config.items("compress_ratios") or [])[: int(values["layers"])]
    sizes = sorted({ratio for ratio in ratios if type(ratio) is int and ratio > 0}, reverse=True)
    made, picked = set(config.items("kv_source_layer_ids") or ()), set(config.items("index_source_layer_ids") or ())
    if len(ratios) != layers or not 1 <= len(sizes) <= 2 or not made <= picked:
        config.fail(f"how {layers} layers compress, in one way or two, must be told", "compress_ratios")
        return {}
    sparse, dense = sizes[0], sizes[-1]
    letters = {(True, True): "CT", (False, False): "ct", (False, True): "?i"}
    pattern = "".join(
        "*" if not ratio else letters[layer in made, layer in picked][ratio != sparse]
        for layer, ratio in enumerate(ratios)
    )
    if "?" in pattern:
        config.fail(f"layers that pick among lent entries of {sparse} tokens are not supported yet", "compress_ratios")
    config.assume(
        "its DSpark drafter is left out, and every layer reads the whole prompt: engines that replay the last half of "
        "the layers on its end take about half the time for it"
    )
    tables = NgramTables(
        rows=tuple(config.items("engram_num_embeddings") or ()),
        width=config.count("engram_head_dim"),
        lookups=config.count("engram_n_heads") * (config.count("engram_max_ngram_size") - 1),
    )
    own = {"mtp_layers": 0, "ngram_tables": tables if config.items("engram_layer_ids") else None}
    return _compressed(config, values, pattern, sparse, dense) | own


def of_layer(config: Config, layer: int) -> Config:
    """What `per_layer_config` says of one layer, under its number with leading zeros or without; empty where nothing.

    Source: HeterogeneousConfigMixin of transformers 5.24.
    """
    by_layer = config.section("per_layer_config")
    return next((by_layer.section(key) for key in (str(layer), f"{layer:02}", f"{layer:03}") if by_layer.has(key)),
                by_layer.section(""))  # fmt: skip


def _gemma3(config: Config, values: Values) -> Values:
    """EmbeddingGemma attends both ways."""
    return {"bidirectional": config.data.get("use_bidirectional_attention") is True}


def _gemma4(config: Config, values: Values) -> Values:
    """Global layers have heads of their own; a model with experts has its dense MLP beside them, as a shared expert.

    The small ones embed every token again in every layer, and their last layers have no keys and values of their own.
    """
    unified = (config.word("model_type") or "").startswith("gemma4_unified")
    size = config.count("hidden_size_per_layer_input", default=0 if unified else 256, least=0)
    borrowing = config.count("num_kv_shared_layers", default=0, least=0, most=int(values["layers"]) - 1)
    wide = config.section("rope_parameters").section("full_attention")
    types = config.items("layer_types") or []
    pattern = "".join("*" if kind == "sliding_attention" else "G" for kind in types)
    own = of_layer(config, pattern.find("G"))
    kv_heads = config.count("num_global_key_value_heads", default=values["kv_heads"])
    rows = config.count("vocab_size_per_layer_input", default=values["vocab"])
    return {
        "layer_pattern": pattern or None,
        "borrowing_layers": borrowing,
        "borrowing_ffn": 2 * values["ffn"] if borrowing and config.flag("use_double_wide_mlp", False) else None,
        "layer_embedding": LayerEmbedding(size, rows) if size else None,
        "global_attention": GlobalAttention(
            kv_heads=own.count("num_key_value_heads", default=kv_heads),
            head_dim=own.count("head_dim", default=config.count("global_head_dim", default=512)),
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


def _muse_spark(config: Config, values: Values) -> Values:
    latent = config.count("moe_hidden_size", default=values["hidden"])
    return _gated(config, values) | {"experts": replace(values["experts"], latent=latent)}


def _bailing(config: Config, values: Values) -> Values:
    return {"qk_norm": "perhead" if config.flag("use_qk_norm", False) else None}


def _hunyuan_moe(config: Config, values: Values) -> Values:
    shared = values["ffn"] * config.count("num_shared_expert", default=1, least=0)
    return {"experts": replace(values["experts"], shared_ffn=shared)}


MINIMAX_SPARSE = "minimax_m3_sparse"  # of `layer_types`


def _minimax_3(config: Config, values: Values) -> Values:
    """MiniMax-M3: queries pick blocks of keys, a ranking for each head of keys; some layers attend to all tokens.

    The local blocks are among those that are picked (MiniMaxM3VLIndexer of transformers lifts their scores).
    """
    ffn = {"ffn": config.count("dense_intermediate_size", default=values["ffn"]), **_rotary_dim(config, values)}
    sparse, types = config.section("sparse_attention_config"), config.items("layer_types")
    picks = sparse.items("sparse_attention_freq") or [] if types is None else [kind == MINIMAX_SPARSE for kind in types]
    if not any(picks) or not sparse.flag("use_sparse_attention", True):
        return ffn | {"indexer": None}
    if len(picks) != values["layers"]:
        config.fail(f"the kinds of attention of {values['layers']} layers must be told", "sparse_attention_freq")
    scored = sparse.items("sparse_disable_index_value") or []
    if any(picked and not disabled for picked, disabled in zip(picks, scored, strict=False)):
        config.fail("an indexer with values of its own is not supported yet", "sparse_disable_index_value")

    def count(name: str, flat: str, default: int) -> int:
        return sparse.count(name, default=config.count(flat, default=default))

    heads = count("sparse_num_index_heads", "index_n_heads", 4)
    block = count("sparse_block_size", "index_block_size", 128)
    if heads != values["kv_heads"]:
        config.fail(f"{heads} heads of the indexer must be as many as {values['kv_heads']} KV heads", "index_n_heads")
    return ffn | {
        "layer_pattern": "".join("*" if picked else "D" for picked in picks) if not all(picks) else None,
        "indexer": SparseIndexer(
            heads=heads,
            head_dim=count("sparse_index_dim", "index_head_dim", 128),
            top_k=block * count("sparse_topk_blocks", "index_topk_blocks", 16),
            kind="msa",
            block_tokens=block,
        ),
    }


def _minicpm(config: Config, values: Values) -> Values:
    """MiniCPM4: blocks that are near are attended to beside those that are picked, the first ones among them.

    Source: InfLLMv2Attention of MiniCPM4.1's code; MiniCPMSparseBackend of SGLang (sparse_topk).
    """
    recurrent = sorted({str(mixer) for mixer in config.items("mixer_types") or ()} - {"minicpm4", "attention"})
    if recurrent:
        config.fail(f"layers of type '{recurrent[0]}' are not supported yet", "mixer_types")
    if not config.has("sparse_config"):
        return {"indexer": None}
    sparse = config.section("sparse_config")
    block, window = sparse.count("block_size", default=64), sparse.count("window_size", default=2048, least=0)
    return {
        "indexer": SparseIndexer(
            heads=values["heads"],
            head_dim=values["head_dim"],
            top_k=block * (sparse.count("topk", default=64) + window // block),
            kind="infllm-v2",
            block_tokens=block,
            key_tokens=sparse.count("kernel_stride", default=16),
            dense_tokens=max(sparse.count("dense_len", default=8192, least=-1), 0),  # -1: never dense
        )
    }


def _apertus(config: Config, values: Values) -> Values:
    """Apertus 1.5 has tokens of images and sounds, which its head does not answer with."""
    return {"head_vocab": config.optional_count("output_vocab_size")}


def _hy_v4(config: Config, values: Values) -> Values:
    """Hunyuan 4: latent attention with sinks and a gated output, and hyper-connections of fewer weights than others."""
    return {"attention_sinks": True, "output_gate": True, "residual_streams": streams(config)}


def _axk2(config: Config, values: Values) -> Values:
    config.assume("the gates of its norms, through a narrow width, are left out")
    return {"output_gate": True, "latent_attention": replace(values["latent_attention"], joint_gate=True)}


def _dots3(config: Config, values: Values) -> Values:
    """dots3: layers with a window have latent attention of other ranks and heads than those that see everything."""
    types, layers = config.items("layer_types"), int(values["layers"])
    if types is None:
        types = ["full_attention" if layer < 2 or layer % 4 == 1 else "sliding_attention" for layer in range(layers)]
    windowed = [layer for layer, kind in enumerate(types) if kind in WINDOWED]
    _head_gate(config, values)
    shared = config.count("shared_experts_intermediate_size", "moe_shared_expert_intermediate_size", default=0, least=0)
    experts = replace(values["experts"], shared_ffn=shared * config.count("n_shared_experts", default=1, least=0))
    if not windowed:
        return {"experts": experts}
    stated = of_layer(config, windowed[0])
    own, prefix = (stated, "") if stated.data else (config, "swa_")

    def width(name: str, otherwise: int) -> int:
        return own.count(f"{prefix}{name}", default=otherwise)

    wide, heads = values["latent_attention"], width("num_attention_heads", 64)
    nope = width("qk_nope_head_dim", 192)
    rope = width("qk_rope_head_dim", max(width("head_dim", 256) - nope, 1))
    ranks = width("q_lora_rank", 1024), width("kv_lora_rank", 1024)
    latent = LatentAttention(*ranks, nope, rope, width("v_head_dim", 128))
    return {
        "experts": experts,
        "layer_pattern": "".join("*" if kind in WINDOWED else "G" for kind in types),
        "heads": heads,
        "kv_heads": heads,
        "head_dim": nope + rope,
        "latent_attention": latent,
        "sliding_window": config.count("sliding_window", "sliding_window_size", default=512),
        "windowed_layers": len(windowed),
        "global_attention": GlobalAttention(
            values["heads"], wide.qk_nope_head_dim + wide.qk_rope_head_dim, heads=values["heads"], latent=wide
        ),
    }


def _inkling(config: Config, values: Values) -> Values:
    """Inkling: windowed and global layers have heads of their own, and positions are biases of the scores."""
    config.assume("its relative positions, and the short convolutions of keys, values and outputs, are left out")
    layers, local = int(values["layers"]), config.items("local_layer_ids")
    types = config.items("layer_types")
    if types is None:
        near = set(local) if local is not None else {layer for layer in range(layers) if (layer + 1) % 6}
        types = ["hybrid_sliding" if layer in near else "hybrid" for layer in range(layers)]
    wide = GlobalAttention(values["kv_heads"], values["head_dim"], heads=values["heads"])
    return {
        "ffn": config.count("dense_intermediate_size", default=values["ffn"], least=0),
        "layer_pattern": "".join("*" if kind in WINDOWED else "G" for kind in types),
        "heads": config.count("swa_num_attention_heads", default=values["heads"]),
        "kv_heads": config.count("swa_num_key_value_heads", default=values["kv_heads"]),
        "head_dim": config.count("swa_head_dim", default=values["head_dim"]),
        "sliding_window": config.count("sliding_window_size", "sliding_window", default=512),
        "windowed_layers": sum(kind in WINDOWED for kind in types),
        "global_attention": wide,
        "head_vocab": config.optional_count("unpadded_vocab_size"),
        "soft_caps": ("logits",) if config.has("final_logit_softcapping") else (),
    }


def _longcat(config: Config, values: Values) -> Values:
    """LongCat: two attentions and two MLPs in a layer, and experts beside the first of them, which some tokens skip."""
    experts, idle = values["experts"], config.count("zero_expert_num", default=0, least=0)
    visited = max(round(experts.per_token * experts.count / (experts.count + idle)), 1)
    config.assume(
        f"a token visits {visited} experts on average, since {idle} of {experts.count + idle} do nothing; its experts, "
        "which work beside the next attention, are priced one after the other"
    )
    return {
        "layers": 2 * values["layers"],
        "experts": replace(experts, per_token=visited, shared_ffn=values["ffn"], every_n_layers=2),
        "layer_pattern": "*S" * int(values["layers"]) if "indexer" in values else None,  # both attend to one choice
        "ngram_tables": _longcat_ngrams(config, values),
    }


def _longcat_ngrams(config: Config, values: Values) -> NgramTables | None:
    """Tables of the runs of 2 to N tokens, several of each length, each of some more rows than the one before it.

    Source: NgramEmbedding of LongCat-Flash-Lite (arXiv:2601.21204).
    """
    ratio = config.data.get("oe_vocab_size_ratio", config.data.get("ngram_vocab_size_ratio"))
    if not isinstance(ratio, int | float) or isinstance(ratio, bool) or ratio <= 0:
        return None
    tables = config.count("oe_split_num", "emb_split_num") * (config.count("oe_neighbor_num", "emb_neighbor_num") - 1)
    rows = sum(int(ratio * values["vocab"] + 2 * table + 1) for table in range(tables))
    return NgramTables(rows=(rows,), width=max(values["hidden"] // max(tables, 1), 1), lookups=tables, gated=False)


def _k2_horizon(config: Config, values: Values) -> Values:
    """K2-Horizon: a Llama whose norms take four parts of a row each; larger ones mix values, and experts."""
    for key in ("mova_num_experts", "num_experts"):
        if config.data.get(key):
            config.fail("mixtures of values, and of experts beside them, are not supported yet", key)
    return {"qk_norm": "perhead" if config.flag("query_key_norm", False) else None}


def _head_gate(config: Config, values: Values) -> Values:
    config.assume("the gate of each head's output, one row of a projection, is left out")
    return {}


def _heads_by_layer(config: Config, values: Values) -> Values:
    """Families whose layers with a window have more query heads; the gate of each head is one row of a projection."""
    heads, types = config.items("num_attention_heads_per_layer") or (), config.items("layer_types") or ()
    near = {each for each, kind in zip(heads, types, strict=False) if kind in WINDOWED}
    wide = {each for each, kind in zip(heads, types, strict=False) if kind not in WINDOWED}
    if len(heads) != values["layers"] or len(types) != values["layers"] or (len(near), len(wide)) != (1, 1):
        config.assume("every layer is taken to have the query heads of those without a window")
        return {}
    rotated = config.section("rope_parameters").section("full_attention")
    return {
        "heads": near.pop(),
        "layer_pattern": "".join("*" if kind in WINDOWED else "G" for kind in types),
        "global_attention": GlobalAttention(
            kv_heads=values["kv_heads"],
            head_dim=values["head_dim"],
            rotary_fraction=rotated.fraction("partial_rotary_factor", default=values["rotary_fraction"]),
            heads=wide.pop(),
        ),
        "windowed_layers": values["layers"],
    } | _head_gate(config, values)


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
    "codegen": _rotary_dim,
    "gpt_neo": _gpt_neo,
    "mllama_text_model": _mllama,
    "gpt_neox": _gpt_neox,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "mpt": _mpt,
    "stablelm": _stablelm,
    "stablelm_epoch": _stablelm,
    "cohere": _cohere,
    "cohere2_moe": _cohere_moe,
    "glm4_moe": _glm4_moe,
    "sarvam_moe": _glm4_moe,
    "deepseek_v4": _deepseek_v4,
    "deepseek_v41_text": _deepseek_v41,
    "qwen": _qwen,
    "baichuan": _baichuan,
    "chatglm": _chatglm,
    "llama4_text": _llama4,
    "minicpm": _minicpm,
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
    "spark2_5": _head_gate,
    "k2_horizon": _k2_horizon,
    "muse_spark_text": _muse_spark,
    "step3p5": _heads_by_layer,
    "phi": _phi,
    "gemma3_text": _gemma3,
    "gemma4_text": _gemma4,
    "apertus1p5_text": _apertus,
    "hy_v4": _hy_v4,
    "axk2": _axk2,
    "dots3_note_text": _dots3,
    "inkling_text": _inkling,
    "inkling2_text": lambda config, values: _inkling(config, values) | {"output_gate": True},
    "longcat_flash": _longcat,
}
