"""Writes model_profiles/*.yaml from tables of model shapes: python scripts/build_models.py FACTS_DIR

FACTS_DIR holds models.csv (shapes with verified parameter counts), model_aliases.csv and models_hybrid.csv.
A profile that exists is overwritten: correct the table or the dictionaries below, not the profile.
"""

from __future__ import annotations

import csv
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from xe_sizer.profiles.model import load_model_profile
from xe_sizer.profiles.text import parse_scalar

Row = dict[str, str]
TARGET = Path(__file__).resolve().parent.parent / "model_profiles"
WIDTH = 100
UNLIMITED_POSITIONS = 1048576  # state-space models without attention state no longest sequence

# What the columns of the table cannot say.
PARALLEL = {"gptj", "gpt-neox", "pythia", "stablelm-alpha", "falcon", "phi", "command-r"}
# How the transformers classes are written: one matrix for several projections, GELU step by step, dropout.
FUSED = {
    **{key: ["qkv"] for key in ("gpt2", "cerebras-gpt", "gpt-neox", "pythia", "falcon", "bloom", "mpt", "starcoder")},
    **{key: ["qkv"] for key in ("gpt3", "qwen", "internlm2", "baichuan", "santacoder")},
    **{key: ["qkv", "gate_up"] for key in ("phi-3", "phi-4", "chatglm")},
}
ACTIVATIONS = {**dict.fromkeys(("gpt2", "phi", "gptj"), "gelu-new"), "gpt-oss": "swiglu-clamped"}
ALL_DROPOUT = ["embedding", "attention", "hidden"]
DROPOUT = {"gpt2": ALL_DROPOUT, "gpt3": ALL_DROPOUT, "starcoder2": ALL_DROPOUT, "opt": ["hidden"]}
SOFT_CAPS = {"gemma-2": ["scores", "logits"]}
NARROW_SOFTMAX = {"gpt2", "falcon"}
MATH_ATTENTION = {"falcon"}
# modeling_falcon.py, modeling_bloom.py and modeling_mpt.py of transformers 5
HELD_SCORES = {"falcon": ["unmasked", "returned"], "bloom": ["unmasked", "returned"], "mpt": ["returned"]}
# fused_add_norm: mamba_block.py of Zyphra/BlackMamba, modules/block.py of mamba-ssm
FUSED_NORMS = {"blackmamba", "mamba2"}
WIDE_NORM = {"command-r", "gemma", "gemma-2", "gemma-3", "gpt-oss", "olmo-2"}
EXPERT_LOOPS = {"gpt-oss": "sliced", "granite-moe": "split", "granite-4": "split"}
KV_LAYERS = {"hunyuan-large": 32}
CHECKPOINTS = {
    **dict.fromkeys(("gpt-oss-20b", "gpt-oss-120b"), "mxfp4"),
    **dict.fromkeys(("deepseek-v3", "deepseek-r1", "deepseek-v3.1", "deepseek-v3.2", "kimi-k2"), "fp8-block"),
    **dict.fromkeys(("minimax-m2", "minimax-m2.5"), "fp8-block"),
}
# By family. Model cards of their FP8 checkpoints: fine-grained quantisation with a block size of 128.
FP8_CHECKPOINTS = dict.fromkeys(("qwen3", "qwen3-moe", "qwen3-next", "qwen3-vl", "qwen3.5", "glm-5"), "fp8-block")
# Checkpoints that the publisher offers beside them: Qwen/Qwen1.5-7B-Chat-GPTQ-Int8 and the like.
INT8_CHECKPOINTS = dict.fromkeys(("qwen1.5", "qwen2", "qwen2.5"), "gptq-int8")  # by family
WITHOUT_INT8 = {"qwen1.5-32b", "qwen1.5-110b"}
# config.json of the -Instruct repositories; their cards add YaRN beyond it.
INSTRUCT_POSITIONS = dict.fromkeys(("qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen2.5-72b"), 32_768)
INDEXERS = {
    "deepseek-v3.2": {"heads": 64, "head_dim": 128, "top_k": 2048},
    "glm-5": {"heads": 32, "head_dim": 128, "top_k": 2048},
}
ROUTER_BIAS = {"ernie-4.5-21b-a3b"}  # a routing correction of one value per expert, stored as a parameter
SHARED_GATE = {"qwen1.5-moe-a2.7b", "qwen2-57b-a14b"}
KV_LISTS = {
    "decilm-7b": "the number of KV heads differs by layer (4 to 1, 67 in all); this shape gives every layer "
    "4, as engines with one cache layout do, and so counts 0.9 % too many parameters"
}
STATE_SPACES = {"mamba1": "mamba-1", "mamba2": "mamba-2", "gated-delta-net": "gated-delta-net"}
INNER_NORMS = {"jamba"}
EXPERTS_EVERY = {"jamba": 2}
QWEN_1 = "The configured intermediate_size is the sum of gate and up; ffn here is one of them."
DSA = "Sparse attention: an indexer in each layer picks the top_k tokens that a query attends to."
NATIVE_FP8 = "The weights are published in FP8."
TEXT_ONLY = "Text model only; the vision tower is not counted."
NOTES = {
    "opt-350m": "Norms stand after attention and MLP; embeddings are 512 wide, projected to the hidden size.",
    "gpt3-175b": "Other builds pad the vocabulary to 50304 or 51200 and have more position rows.",
    "falcon-7b": "One head for keys and values. The published 7.2B counts the tied head a second time.",
    "falcon-40b": "Attention and MLP run side by side, each behind a norm of its own.",
    "falcon-180b": "Attention and MLP run side by side, each behind a norm of its own.",
    "gemma-3-4b": TEXT_ONLY,
    "gemma-3-12b": TEXT_ONLY,
    "gemma-3-27b": TEXT_ONLY,
    "mistral-nemo-12b": "The configuration allows 1,024,000 positions; 128k are advertised.",
    "mistral-7b-v0.2": "Without the sliding window of v0.1.",
    "phi-3-small-8k": "Every second layer has block-sparse attention, computed as full attention. The tied "
    "embeddings and the biases are inferred: they reproduce the published 7.39B.",
    "phi-4-mini-3.8b": "The configured sliding window is longer than the longest sequence, so there is none.",
    "starcoder2-15b": "The untied head is inferred: the published 16.0B needs it.",
    "mixtral-8x22b": "The instruct version has 32768 vocabulary rows.",
    "gpt-oss-20b": "Expert weights are published in MXFP4.",
    "gpt-oss-120b": "Expert weights are published in MXFP4.",
    "llama-4-scout-17b-16e": f"{TEXT_ONLY} Chunked attention (8192 tokens) on three of four layers is computed "
    "as a sliding window.",
    "llama-4-maverick-17b-128e": f"{TEXT_ONLY} Chunked attention (8192 tokens) on three of four layers is "
    "computed as a sliding window.",
    "deepseek-v3": NATIVE_FP8,
    "deepseek-r1": NATIVE_FP8,
    "deepseek-v3.1": NATIVE_FP8,
    "deepseek-v3.2": f"{DSA} {NATIVE_FP8}",
    "glm-5": DSA,
    "minimax-m2": f"Three configured modules for multi-token prediction are unpublished. {NATIVE_FP8}",
    "minimax-m2.5": f"Three configured modules for multi-token prediction are unpublished. {NATIVE_FP8}",
    "kimi-k2.5": f"{TEXT_ONLY} Expert weights are published in INT4.",
    "starcoder": "One head for keys and values.",
    "santacoder-1.1b": "One head for keys and values.",
    "granite-7b": "Shape of Llama 2 7B; the lab version has 8 to 16 more vocabulary rows.",
    "llama-2-34b": "Described in the Llama 2 paper, never released; the shape is that of Code Llama 34B.",
    "qwen-1.8b": QWEN_1,
    "qwen-7b": QWEN_1,
    "qwen-14b": QWEN_1,
    "qwen-72b": QWEN_1,
    "chatglm-6b": "Two-dimensional rotary positions. The tied head is inferred from the published 6.2B.",
    "chatglm3-6b": "ChatGLM2-6B has the same shape; the 32k version has 32768 positions.",
    "glm-4-9b": "Shape of the chat version; the base has 8192 positions, the 1m version 4 KV heads.",
    "powerlm-3b": "Vocabulary and tied embeddings are inferred: they reproduce the published 3.5B.",
    "command-r": "The configuration says 8192 positions, the model card 131072.",
    "command-r-plus": "The configuration says 8192 positions, the model card 131072.",
    "granite-3.0-3b-a800m": "Vocabulary of the instruct version; the base has 49152 rows.",
    "granite-3.0-1b-a400m": "Vocabulary of the instruct version; the base has 49152 rows.",
    "ernie-4.5-21b-a3b": "The router's bias is the routing correction of 64 values in each MoE layer.",
    "hunyuan-large": "Every second layer reuses the keys and values of the layer before it.",
}
FAMILY_NOTES = {
    "gpt3": "NeMo and Megatron form: learned positions, biases, vocabulary padded to a multiple of 128.",
    "mpt": "A pre-training recipe of llm-foundry, not a released checkpoint: learned positions and biases.",
}


def main(facts: Path) -> None:
    """Write every profile, the aliases and the list of unsupported models, then load each profile again."""
    TARGET.mkdir(exist_ok=True)
    models, hybrids = _rows(facts / "models.csv"), _rows(facts / "models_hybrid.csv")
    for row in models:
        (TARGET / f"{row['id']}.yaml").write_text(_profile(row), encoding="utf-8")
    for row in hybrids:
        (TARGET / f"{row['id']}.yaml").write_text(_hybrid(row), encoding="utf-8")
    known = {row["id"] for row in models} | {row["id"] for row in hybrids}
    aliases = _alias_text(_rows(facts / "model_aliases.csv"), [*models, *hybrids], known)
    (TARGET / "aliases.yaml").write_text(aliases, encoding="utf-8")
    for row in (*models, *hybrids):
        load_model_profile(TARGET / f"{row['id']}.yaml")
    print(f"{len(models)} transformers, {len(hybrids)} models with state-space layers")


def _rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _profile(row: Row) -> str:
    groups = (_identity(row), _size(row), _details(row), _attention(row), _experts(row), _counts(row))
    notes = NOTES.get(row["id"]) or (FAMILY_NOTES.get(row["family"]) if "-7b" not in row["id"] else None)
    tail = {"notes": notes, "source": _source(row)}
    return "\n".join(text for text in map(_block, (*groups, tail)) if text)


def _identity(row: Row) -> dict[str, Any]:
    return {
        "name": row["id"],
        "family": row["family"],
        "released": row["release"],
        "hugging_face": row["hf_repo"],
    }


def _size(row: Row) -> dict[str, Any]:
    latent = bool(row["kv_lora_rank"])
    return {
        "layers": _int(row, "layers"),
        "hidden": _int(row, "hidden"),
        "heads": _int(row, "heads"),
        "kv_heads": None if latent else _int(row, "kv_heads"),
        "head_dim": None if latent else _int(row, "head_dim"),
        "ffn": _int(row, "ffn"),
        "vocab": _int(row, "vocab"),
        "max_positions": _int(row, "max_position"),
        "instruct_positions": INSTRUCT_POSITIONS.get(row["id"]),
    }


def _details(row: Row) -> dict[str, Any]:
    columns = (("qkv", "qkv_bias"), ("output", "o_bias"), ("mlp", "mlp_bias"), ("head", "lm_head_bias"))
    biases = [name for name, column in columns if _flag(row, column)]
    fraction = float(row["rotary_fraction"] or 1)
    return {
        "tied_embeddings": _flag(row, "tied_embeddings"),
        "embedding_size": _int(row, "word_embed_proj_dim"),
        "embedding_norm": row["family"] == "bloom" or None,
        "norm": row["norm"],
        "norms_per_layer": _int(row, "norms_per_layer"),
        "final_norm": False if row["id"] == "opt-350m" else None,
        "activation": ACTIVATIONS.get(row["family"], row["activation"]),
        "biases": biases or None,
        "position": row["position"],
        "learned_positions": _int(row, "learned_position_rows"),
        "rotary_fraction": None if fraction == 1 else fraction,
        "parallel_block": row["family"] in PARALLEL or None,
        "fused": FUSED.get(row["family"]),
        "dropout": DROPOUT.get(row["family"]),
        "soft_caps": SOFT_CAPS.get(row["family"]),
        "held_scores": HELD_SCORES.get(row["family"]),
        "narrow_softmax": row["family"] in NARROW_SOFTMAX or None,
        "wide_norm": row["family"] in WIDE_NORM or None,
        "checkpoint_format": CHECKPOINTS.get(row["id"]),
        "fp8_checkpoint": FP8_CHECKPOINTS.get(row["family"]),
        "int8_checkpoint": None if row["id"] in WITHOUT_INT8 else INT8_CHECKPOINTS.get(row["family"]),
        "math_attention": row["family"] in MATH_ATTENTION or None,
    }


def _attention(row: Row) -> dict[str, Any]:
    latent = None
    if row["kv_lora_rank"]:
        latent = {
            "query_rank": _int(row, "q_lora_rank"),
            "kv_rank": _int(row, "kv_lora_rank"),
            "qk_nope_head_dim": _int(row, "qk_nope_head_dim"),
            "qk_rope_head_dim": _int(row, "qk_rope_head_dim"),
            "v_head_dim": _int(row, "v_head_dim"),
        }
    return {
        "qk_norm": row["qk_norm"] or None,
        "sliding_window": _window(row),
        "attention_sinks": _flag(row, "attention_sinks") or None,
        "kv_layers": KV_LAYERS.get(row["id"]),
        "latent_attention": latent,
        "indexer": INDEXERS.get(row["id"]),
    }


def _window(row: Row) -> dict[str, Any] | None:
    """From texts such as `4096 alternate layers`, `512 on 5 of 6 layers`, `2047 (config)`."""
    text = row["sliding_window"]
    tokens = re.search(r"\d{3,}", text)
    if not tokens or int(tokens[0]) >= int(row["max_position"]):
        return None
    fraction = re.search(r"(\d) of (\d) layers", text)
    layers = f"{fraction[1]}-of-{fraction[2]}" if fraction else "alternate" if "alternate" in text else "all"
    return {"tokens": int(tokens[0]), "layers": layers}


def _experts(row: Row) -> dict[str, Any]:
    if not row["experts"]:
        return {}
    every = _int(row, "moe_every_n_layers")
    experts = {
        "count": _int(row, "experts"),
        "per_token": _int(row, "experts_per_token"),
        "ffn": _int(row, "expert_ffn"),
        "shared_ffn": _int(row, "shared_ffn_total"),
        "shared_gate": row["id"] in SHARED_GATE or None,
        "first_dense_layers": _int(row, "first_dense_layers"),
        "every_n_layers": None if every == 1 else every,
        "router_bias": _flag(row, "router_bias") or row["id"] in ROUTER_BIAS or None,
        "expert_bias": _flag(row, "mlp_bias") or None,
        "loop": EXPERT_LOOPS.get(row["family"]),
    }
    prediction = None
    if _int(row, "mtp_layers"):
        prediction = {"layers": _int(row, "mtp_layers"), "parameters": _int(row, "mtp_params")}
    return {"experts": experts, "multi_token_prediction": prediction}


def _counts(row: Row) -> dict[str, Any]:
    total = int(row["total_params_hf_meta"] or row["total_params_formula"])
    counts = {"total": total, "active": int(row["active_params_incl_embeddings"])}
    return {"parameters": counts, "parameters_note": KV_LISTS.get(row["id"])}


def _source(row: Row) -> dict[str, Any]:
    title = row["source"].replace("github ", "").replace("search code:", "public code:")
    url = re.search(r"https://\S+?(?=[;,)\s]|$)", title)
    check = f"equal to those of {row['hf_meta_class']}" if row["hf_meta_class"] else None
    check = check or f"published as {row['published_params_b']}B ({row['published_source']})"
    return {"title": title, "url": url[0] if url else None, "parameters": check}


def _alias_text(rows: list[Row], models: list[Row], known: set[str]) -> str:
    """Other names first, then the repositories that hold the weights; both in lower case."""
    aliases = {row["alias"].lower(): row for row in rows if row["alias"].lower() not in known}
    unknown = {row["model"] for row in aliases.values()} - known
    if unknown:
        raise SystemExit(f"aliases of unknown models: {', '.join(sorted(unknown))}")
    lines = ["# Other names that models go by.", ""]
    lines += [f"{_key(name)}: {row['model']}" for name, row in sorted(aliases.items())]
    repositories: dict[str, str] = {}
    for row in models:
        if row["hf_repo"]:
            repositories.setdefault(row["hf_repo"].lower(), row["id"])
    lines += ["", "# Repositories of the weights on Hugging Face.", ""]
    lines += [f"{name}: {target}" for name, target in sorted(repositories.items())]
    return "\n".join(lines) + "\n"


def _hybrid(row: Row) -> str:
    """A model with state-space layers; L marks delta nets in the table's patterns."""
    notes = [row["notes"]] if row["notes"] else []
    groups = (_identity(row), _hybrid_size(row), _hybrid_details(row), _state_space(row), _hybrid_experts(row))
    tail = {"notes": "; ".join(notes), "source": _source(row)}
    return "\n".join(text for text in map(_block, (*groups, _counts(row), tail)) if text)


def _hybrid_size(row: Row) -> dict[str, Any]:
    sizes = {key: _int(row, key) for key in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")}
    return {**sizes, "max_positions": _int(row, "max_position") or UNLIMITED_POSITIONS}


def _hybrid_details(row: Row) -> dict[str, Any]:
    fraction = float(row["rotary_fraction"] or 1)
    return {
        "tied_embeddings": _flag(row, "tied_embeddings"),
        "norm": row["norm"],
        "norms_per_layer": _int(row, "norms_per_layer"),
        "fused_norms": row["family"] in FUSED_NORMS or None,
        "activation": row["mlp_activation"] or "swiglu",
        "position": row["position"],
        "rotary_fraction": None if fraction == 1 else fraction,
        "qk_norm": row["qk_norm"] or None,
        "output_gate": _flag(row, "attention_output_gate") or None,
        "layer_pattern": row["layer_pattern"].replace("L", "M"),
    }


def _state_space(row: Row) -> dict[str, Any]:
    groups = _int(row, "ssm_groups")
    section = {
        "kind": STATE_SPACES[row["ssm_kind"]],
        "inner": _int(row, "ssm_inner"),
        "state": _int(row, "ssm_state"),
        "conv_kernel": _int(row, "ssm_conv_kernel"),
        "heads": _int(row, "ssm_heads"),
        "head_dim": _int(row, "ssm_head_dim"),
        "groups": None if groups == 1 else groups,
        "dt_rank": _int(row, "ssm_dt_rank"),
        "inner_norms": row["family"] in INNER_NORMS or None,
        "key_heads": _int(row, "ssm_key_heads"),
        "key_head_dim": _int(row, "ssm_key_head_dim"),
    }
    return {"state_space": section}


def _hybrid_experts(row: Row) -> dict[str, Any]:
    if not row["experts"]:
        return {}
    experts = {
        "count": _int(row, "experts"),
        "per_token": _int(row, "experts_per_token"),
        "ffn": _int(row, "expert_ffn"),
        "latent": _int(row, "moe_latent_size"),
        "shared_ffn": _int(row, "shared_ffn_total"),
        "shared_gate": _flag(row, "shared_expert_gate") or None,
        "every_n_layers": EXPERTS_EVERY.get(row["family"]),
    }
    return {"experts": experts}


def _block(values: dict[str, Any]) -> str:
    lines = [_entry(key, value) for key, value in values.items() if value not in (None, "")]
    return "\n".join(lines) + "\n" if lines else ""


def _entry(key: str, value: Any, indent: str = "") -> str:
    if isinstance(value, dict):
        present = {name: item for name, item in value.items() if item not in (None, "")}
        if len(present) <= 3 and not any(" " in str(item) for item in present.values()):
            return f"{indent}{key}: {{{', '.join(f'{k}: {_scalar(v)}' for k, v in present.items())}}}"
        return "\n".join([f"{indent}{key}:", *(_entry(k, v, indent + "  ") for k, v in present.items())])
    if isinstance(value, list):
        return f"{indent}{key}: [{', '.join(value)}]"
    line = f"{indent}{key}: {_scalar(value)}"
    if len(line) <= WIDTH or not isinstance(value, str):
        return line
    folded = textwrap.wrap(value, WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False)
    return "\n".join([f"{indent}{key}: >-", *(f"{indent}  {text}" for text in folded)])


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return _key(value) if isinstance(value, str) else str(value)


def _key(text: str) -> str:
    """Text as YAML, quoted when it would be read as something else."""
    plain = re.fullmatch(r"[A-Za-z0-9][^#{}\[\]\"]*", text) and ": " not in text and not text.endswith(":")
    return text if plain and isinstance(parse_scalar(text), str) else f'"{text}"'


def _int(row: Row, column: str) -> int | None:
    return int(row[column]) or None if row[column] else None


def _flag(row: Row, column: str) -> bool:
    return row[column] == "True"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
