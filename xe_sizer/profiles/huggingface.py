"""The shape of a model from its Hugging Face `config.json`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import Experts, LatentAttention, ModelShape, SparseIndexer
from xe_sizer.profiles.config_json import MAX_LAYERS, Config, load_json
from xe_sizer.profiles.config_quirks import QUIRKS
from xe_sizer.profiles.encoders import ENCODER_QUIRKS, ENCODERS
from xe_sizer.profiles.families import FAMILIES, LLAMA_LIKE, REFUSED, TEXT_PARTS
from xe_sizer.profiles.vision_config import tower_from

if TYPE_CHECKING:
    from xe_sizer.graph.model import VisionTower
    from xe_sizer.profiles.config_quirks import Values
    from xe_sizer.profiles.families import Family, Flag, Moe

KNOWN = {**FAMILIES, **ENCODERS}
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model", "n_embed", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads")
FFN = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "encoder_ffn_dim", "hidden_dim")
VOCAB = ("padded_vocab_size", "vocab_size")
POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "max_sequence_length",
    "seq_length", "n_ctx",
)  # fmt: skip
ROTARY = ("partial_rotary_factor", "rotary_pct", "rope_pct")
LLAMA_KEYS = (
    "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size",
    "rms_norm_eps",
)  # fmt: skip
WINDOWED = frozenset({"sliding_attention", "chunked_attention"})
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w.-]+")  # as on a hub: the owner, and a name
SNAPSHOT = re.compile(r"[0-9a-f]{40}")
KINDS_OF_MLP = ("mlp_layer_types", "moe_layer_freq")  # where they are lists: a word, or 0 and 1, for each layer
ATTENTION = WINDOWED | {"full_attention", "deepseek_sparse_attention"}


def model_from_config(path: Path) -> tuple[ModelShape, tuple[str, ...]]:
    """The model that a `config.json` describes, and what had to be assumed, in words.

    Raises
    ------
    InputError    malformed JSON; every missing, mistyped or contradictory key; a model type that cannot be
                  sized yet
    """
    data, text = load_json(path)
    whole = Config(path, data, text)
    config, kind = _text_model(whole)
    family = _family(config, kind)
    values = _common(config, family)
    values |= _latent(config) or {}
    values |= _window(config, family, values)
    values["experts"] = _experts(config, family.moe, values["layers"]) if family.moe else None
    quirk = QUIRKS.get(kind) or ENCODER_QUIRKS.get(kind)
    values |= quirk(config, values) if quirk else {}
    _check(config, values)
    values["vision"] = _tower(whole, values)
    if config.problems:
        raise InputError(config.problems)
    values["guesses"] = tuple(config.guesses)
    return ModelShape(name=_name(path, config), family=kind, **values), tuple(config.assumptions)


def _name(path: Path, config: Config) -> str:
    """The file's name; for `config.json` that of the repository which it names, else that of its folder.

    In a download cache, whose folders are named by hashes, the last part of the name that the model was saved under.
    """
    if path.name != "config.json":
        return path.stem
    folder, saved = path.parent.resolve().name, config.data.get("_name_or_path")
    named = saved.strip("/") if isinstance(saved, str) else ""
    if named and (REPOSITORY.fullmatch(named) or not folder or SNAPSHOT.fullmatch(folder)):
        return named.rpartition("/")[2]
    return folder or "config"


def _text_model(config: Config) -> tuple[Config, str]:
    """The configuration of the language model: the whole file, or the text part of a multimodal one."""
    kind = config.word("model_type") or ""
    if not isinstance(config.data.get("text_config"), dict):
        return config, TEXT_PARTS.get(kind, kind)
    text = config.section("text_config")
    if not text.has("tie_word_embeddings") and config.has("tie_word_embeddings"):
        text.data = {**text.data, "tie_word_embeddings": config.data["tie_word_embeddings"]}
    part = text.word("model_type") or kind
    return text, TEXT_PARTS.get(part, part)


def _tower(whole: Config, values: Values) -> VisionTower | None:
    """The encoder of images of a multimodal model, where it is of a kind that is known."""
    if not any(isinstance(whole.data.get(part), dict) for part in ("text_config", "vision_config")):
        return None
    tower = tower_from(whole, whole.word("model_type") or "", values["hidden"])
    if tower is None:
        whole.assume("only the language model is sized; the other towers of this multimodal model are left out")
    return tower


def _family(config: Config, kind: str) -> Family:
    """How the model type is built; an undescribed type with the keys of a Llama is taken for one."""
    where = config.locate("model_type")
    mixes = config.has("linear_num_value_heads", "mamba_d_state", "ssm_cfg")
    if kind in REFUSED or (mixes and kind not in FAMILIES):
        reason = REFUSED.get(kind) or REFUSED["mamba"]
        raise InputError(Problem(f"model type '{kind}' is not supported yet: {reason}", where))
    if config.flag("is_encoder_decoder", False) and kind not in ENCODERS:
        raise InputError(Problem(f"model type '{kind}' is not supported: {REFUSED['umt5']}", where))
    if kind in KNOWN:
        return KNOWN[kind]
    missing = [key for key in LLAMA_KEYS if not config.has(key)]
    if missing or config.has("num_experts", "num_local_experts", "n_routed_experts"):
        lacks = f"it lacks '{missing[0]}'" if missing else "it has experts"
        text = f"model type '{kind}' is not known, and its keys are not those of a Llama: {lacks}"
        raise InputError(Problem(text, where, "describe the model in a profile"))
    config.guess(f"model type '{kind}' is not known; it is built like a Llama, as its keys suggest")
    return LLAMA_LIKE


def _common(config: Config, family: Family) -> Values:
    """What every family has; keys that are absent take the family's defaults."""
    for key, value in family.defaults.items():
        if key not in config.data:
            config.data = {**config.data, key: value}
            config.assume(f"'{key}' is absent; {value} is what its class assumes")
    heads, hidden = config.count(*HEADS), config.count(*HIDDEN)
    positions = config.count(*POSITIONS)
    return {
        "layers": config.count(*LAYERS, default=len(config.items("layers_block_type") or ()) or None, most=MAX_LAYERS),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.count("num_key_value_heads", default=heads),
        "head_dim": _head_dim(config, family, hidden, heads),
        "ffn": config.count(*FFN, default=_usual_ffn(config, family, hidden)),
        "vocab": config.count(*VOCAB),
        "max_positions": positions,
        "learned_positions": positions if family.position == "learned" else 0,
        "tied_embeddings": config.flag("tie_word_embeddings", family.tied),
        "norm": family.norm,
        "norms_per_layer": family.norms,
        "activation": _activation(config, family),
        "position": family.position,
        "rotary_fraction": _rotary(config, family),
        **_wavelengths(config),
        "qkv_bias": _flag(config, family.qkv_bias),
        "output_bias": _flag(config, family.output_bias),
        "mlp_bias": _flag(config, family.mlp_bias),
        "head_bias": _flag(config, family.head_bias),
        "parallel_block": family.parallel,
        "qk_norm": family.qk_norm,
        "embedding_norm": family.embedding_norm,
        "wide_norm": family.wide_norm,
        "attention_sinks": family.sinks,
    }


def _usual_ffn(config: Config, family: Family, hidden: int) -> int | None:
    """Width of the dense MLP where none is stated: what classes assume, or nothing where every layer has experts."""
    if family.moe and config.has(family.moe.count):
        return 0
    return 4 * hidden if family.activation in ("gelu", "relu") else None


def _flag(config: Config, flag: Flag) -> bool:
    return flag if isinstance(flag, bool) else config.flag(*flag)


def _head_dim(config: Config, family: Family, hidden: int, heads: int) -> int:
    stated = config.optional_count("head_dim", "kv_channels", "d_kv")
    if stated:
        return stated
    if "head_dim" not in config.data and family.head_dim:
        return family.head_dim
    if hidden % heads and not config.problems and not config.has("kv_lora_rank"):
        place = next((name for name in HEADS if config.has(name)), None)
        config.fail(f"hidden size {hidden} is not a multiple of {heads} heads, and there is no 'head_dim'", place)
    return max(1, hidden // heads)


def _activation(config: Config, family: Family) -> str:
    """The family's MLP form (gated or not) with the function that the config names."""
    word = config.word("hidden_activation", "hidden_act", "activation_function") or ""
    gated = family.activation in ("swiglu", "geglu")
    for part, name in (("gelu", "geglu"), ("silu", "swiglu"), ("swish", "swiglu")) if gated else ():
        if part in word:
            return name
    for part in ("gelu", "relu2", "relu") if not gated else ():
        if part in word:
            return part
    return family.activation


def _rotary(config: Config, family: Family) -> float:
    if family.position != "rope":
        return 1.0
    if config.has(*ROTARY):
        return config.fraction(*ROTARY, default=family.rotary)
    return config.section("rope_parameters").fraction(*ROTARY, default=family.rotary)


def _wavelengths(config: Config) -> Values:
    """Base of the rotary positions, and how Llama 3.1 stretches them; nothing where they are stretched otherwise."""
    given = config.data.get("rope_parameters") or config.data.get("rope_scaling") or {}
    section = given if isinstance(given, dict) else {}
    kind = section.get("rope_type", section.get("type", "default"))
    base = config.data.get("rope_theta") or section.get("rope_theta")
    factor = section.get("factor") if kind == "llama3" else None
    if kind not in ("default", "llama3") or not _is_factor(base) or not (factor is None or _is_factor(factor)):
        return {}
    return {"rotary_base": base, "rotary_scaling": factor}


def _is_factor(value: object) -> bool:
    return isinstance(value, int | float) and 1 < value < math.inf


def _window(config: Config, family: Family, values: Values) -> Values:
    """Sliding window and the number of layers that have one, from `layer_types` or the family's habit."""
    layers = int(values["layers"])
    types = config.items("layer_types")
    unknown = sorted({str(kind) for kind in types or ()} - ATTENTION)
    if unknown and not family.recurrent:
        config.fail(f"layers of type '{unknown[0]}' are not supported yet", "layer_types")
    tokens = config.optional_count("sliding_window", "attention_chunk_size")
    upper = family.window == "upper"
    if not family.window or not tokens or not config.flag("use_sliding_window", not upper):
        return {}
    if types is not None:
        windowed = sum(kind in WINDOWED for kind in types)
    elif upper:
        windowed = layers - min(layers, config.count("max_window_layers", default=layers, least=0))
    else:
        windowed = _habit(config, family.window, layers)
    if not windowed or tokens >= values["max_positions"]:
        return {}
    return {"sliding_window": tokens, "windowed_layers": min(windowed, layers)}


def _habit(config: Config, pattern: str, layers: int) -> int:
    if pattern == "all":
        return layers
    period = 2 if pattern == "alternate" else int(pattern.split("-of-")[1])
    return layers - layers // config.count("sliding_window_pattern", default=period)


def _latent(config: Config) -> Values | None:
    """Multi-head latent attention and the indexer of sparse attention, where the config has them."""
    if not config.has("kv_lora_rank"):
        return None
    latent = LatentAttention(
        query_rank=config.optional_count("q_lora_rank"),
        kv_rank=config.count("kv_lora_rank"),
        qk_nope_head_dim=config.count("qk_nope_head_dim"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        v_head_dim=config.count("v_head_dim"),
    )
    values: Values = {
        "latent_attention": latent,
        "head_dim": latent.qk_nope_head_dim + latent.qk_rope_head_dim,
    }
    if config.has("index_n_heads"):
        heads, size = config.count("index_n_heads"), config.count("index_head_dim")
        values["indexer"] = SparseIndexer(heads, size, config.count("index_topk"))
    return values


def _experts(config: Config, moe: Moe, layers: int) -> Experts | None:
    """The mixture of experts; None when the config of such a family has no experts."""
    if moe.optional and config.data.get(moe.count) is None:
        return None
    ffn = config.count(moe.ffn)
    shared = config.count(moe.shared, default=0, least=0) if moe.shared else 0
    if moe.shared_count:
        shared = ffn * config.count(moe.shared_count, default=0, least=0)
    return Experts(
        count=config.count(moe.count, "num_experts"),
        per_token=config.count(moe.per_token, "experts_per_token"),
        ffn=ffn,
        shared_ffn=shared,
        shared_gate=moe.shared_gate and shared > 0,
        first_dense_layers=_first_dense(config, moe, layers),
        every_n_layers=_every(config, moe.every),
        router_bias=moe.biased,
        expert_bias=moe.biased,
        loop=moe.loop,
        groups=config.count("n_group", default=1),
        groups_per_token=config.count("topk_group", default=1),
    )


def _every(config: Config, key: str | None) -> int:
    """Of how many layers one has experts; where the key holds a list, `_first_dense` reads it."""
    return 1 if key is None or isinstance(config.data.get(key), list) else config.count(key, default=1)


def _first_dense(config: Config, moe: Moe, layers: int) -> int:
    """Dense layers before the first mixture of experts; other mixtures of layers cannot be expressed."""
    key = next((name for name in KINDS_OF_MLP if isinstance(config.data.get(name), list)), "mlp_only_layers")
    listed = config.items(key) or []
    if key in KINDS_OF_MLP:
        listed = [place for place, kind in enumerate(listed) if kind in ("dense", 0)]
    if listed != list(range(len(listed))):
        config.fail("dense layers between layers with experts are not supported yet", key)
    stated = config.count(moe.first_dense, default=0, least=0) if moe.first_dense else 0
    if max(stated, len(listed)) > layers:
        config.fail(f"more dense layers than the {layers} layers", moe.first_dense or key)
    return max(stated, len(listed))


def _check(config: Config, values: Values) -> None:
    heads, kv_heads, experts = values["heads"], values["kv_heads"], values["experts"]
    if heads % kv_heads:
        config.fail(f"{heads} heads are not a multiple of {kv_heads} KV heads", "num_key_value_heads")
    if experts and experts.per_token > experts.count:
        text = f"a token cannot visit {experts.per_token} of {experts.count} experts"
        config.fail(text, "num_experts_per_tok")
