"""Families that the trace runs: a catalogue model's layer shape, and the configuration of the class that has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from msgspec.structs import replace

from xe_sizer.graph.model import ModelShape
from xe_sizer.profiles.catalogue import Registry

Settings = Mapping[str, Any]
SEPARATE = (("q_proj", "v_proj"), ("q", "v"))
MAX_POSITIONS = 8192
DECODER, SEQUENCES = "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
ENCODER = ("AutoModelForMaskedLM", "AutoModelForSequenceClassification")
OPT_POSITION_OFFSET = 2  # rows of the position table that no token uses


@dataclass(frozen=True)
class Subject:
    """One family under trace.

    config_class : configuration of transformers; `sizes` turns the catalogue's shape into its arguments
    narrow_targets : what LoRA "q and v" adapts, in the class's names and in the catalogue's
    wide_targets : what LoRA on all linear layers adapts, in the class's names; peft's all-linear also wraps the
    weights of experts, which the catalogue's does not
    grouped_experts : experts run in PyTorch's grouped matrix product, which takes 16-bit weights only
    ends : embedding and head, in the class's names
    dropout : arguments that switch dropout on as the published model has it; without them there is none
    changes : of the catalogue's shape, where the class does not have the published weights
    classes : of transformers, which learn all weights, and beside which adapters do
    """

    family: str
    model: str
    config_class: str
    sizes: Callable[[ModelShape], dict[str, Any]]
    narrow_targets: tuple[tuple[str, ...], tuple[str, ...]] = SEPARATE
    wide_targets: tuple[str, ...] = ("all-linear",)
    fixed: Settings = field(default_factory=dict)
    dropout: Settings = field(default_factory=dict)
    attentions: tuple[str, ...] = ("sdpa", "eager")
    ends: tuple[str, str] = ("embed_tokens", "lm_head")
    classes: tuple[str, str] = (DECODER, DECODER)
    changes: Settings = field(default_factory=dict)
    grouped_experts: bool = False

    @property
    def answers(self) -> bool:
        """Whether it writes answers token by token, which trainers compare with one another."""
        return self.classes[0] == DECODER

    @property
    def tied(self) -> bool:
        """Whether embedding and head are one."""
        return _catalogue().model(self.model).tied_embeddings or bool(self.changes)


def _common(shape: ModelShape) -> dict[str, Any]:
    """Keys that most classes share."""
    return {
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": shape.tied_embeddings,
    }


def _headed(shape: ModelShape) -> dict[str, Any]:
    return {**_common(shape), "head_dim": shape.head_dim}


def _partly_rotary(shape: ModelShape) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": shape.rotary_fraction}
    return {**_common(shape), "rope_parameters": rope}


def _windowed(shape: ModelShape) -> dict[str, Any]:
    return {**_headed(shape), "sliding_window": shape.sliding_window}


def _experts(shape: ModelShape) -> dict[str, Any]:
    assert shape.experts is not None
    chosen = {"num_experts_per_tok": shape.experts.per_token, "moe_intermediate_size": shape.experts.ffn}
    return {**_headed(shape), **chosen, "num_experts": shape.experts.count}


def _opt(shape: ModelShape) -> dict[str, Any]:
    positions = {"max_position_embeddings": shape.learned_positions - OPT_POSITION_OFFSET}
    sizes = {"ffn_dim": shape.ffn, "word_embed_proj_dim": shape.hidden, "dropout": 0.0}
    return {**_common(shape), **positions, **sizes}


def _gpt2(shape: ModelShape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab, "n_embd": shape.hidden, "n_head": shape.heads, "n_layer": shape.layers,
        "n_inner": shape.ffn, "n_positions": shape.learned_positions,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
    }  # fmt: skip


def _gptj(shape: ModelShape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab, "n_embd": shape.hidden, "n_head": shape.heads, "n_layer": shape.layers,
        "n_inner": shape.ffn, "n_positions": MAX_POSITIONS, "rotary_dim": round(shape.head_dim * shape.rotary_fraction),
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False,
    }  # fmt: skip


def _glm(shape: ModelShape) -> dict[str, Any]:
    return {**_partly_rotary(shape), "head_dim": shape.head_dim, "attention_bias": True, "pad_token_id": None}


def _falcon(shape: ModelShape) -> dict[str, Any]:
    return {**_common(shape), "ffn_hidden_size": shape.ffn, "multi_query": True, "new_decoder_architecture": False}


def _mpt(shape: ModelShape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab, "d_model": shape.hidden, "n_heads": shape.heads, "n_layers": shape.layers,
        "expansion_ratio": shape.ffn // shape.hidden, "max_seq_len": MAX_POSITIONS,
    }  # fmt: skip


def _bloom(shape: ModelShape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab, "hidden_size": shape.hidden, "n_head": shape.heads, "n_layer": shape.layers,
    }  # fmt: skip


def _bert(shape: ModelShape) -> dict[str, Any]:
    return {
        **_common(shape), "max_position_embeddings": shape.learned_positions, "type_vocab_size": shape.token_types,
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    }  # fmt: skip


def _deberta(shape: ModelShape) -> dict[str, Any]:
    own = {"share_att_key": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm", "pooler_dropout": 0.0}
    rows = {"relative_attention": True, "position_buckets": shape.disentangled_positions // 2}
    return {**_bert(shape), **own, **rows, "pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 512}


def _modernbert(shape: ModelShape) -> dict[str, Any]:
    return {**_common(shape), "local_attention": shape.sliding_window, "global_attn_every_n_layers": 3}


def _t5(shape: ModelShape) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab, "d_model": shape.hidden, "d_kv": shape.head_dim, "d_ff": shape.ffn,
        "num_layers": shape.encoder_layers, "num_decoder_layers": shape.layers - shape.encoder_layers,
        "num_heads": shape.heads, "relative_attention_num_buckets": shape.relative_buckets, "dropout_rate": 0.0,
        "feed_forward_proj": "gated-gelu" if shape.gated else "relu", "tie_word_embeddings": shape.tied_embeddings,
    }  # fmt: skip


def _bart(shape: ModelShape) -> dict[str, Any]:
    halves = (("encoder", shape.encoder_layers), ("decoder", shape.layers - shape.encoder_layers))
    sizes = {"attention_heads": shape.heads, "ffn_dim": shape.ffn}
    return {
        "vocab_size": shape.vocab, "d_model": shape.hidden, "activation_function": "gelu", "dropout": 0.0,
        "max_position_embeddings": shape.learned_positions - OPT_POSITION_OFFSET,
        **{f"{half}_layers": layers for half, layers in halves},
        **{f"{half}_{name}": size for half, _ in halves for name, size in sizes.items()},
    }  # fmt: skip


_BERT_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_BERT_TARGETS = (("query", "value"), ("q", "v"))
_START = {"decoder_start_token_id": 0}
_BERT_ENDS = ("word_embeddings", "decoder")
_GPT2_DROPOUT = {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}
_STARCODER_DROPOUT = {"residual_dropout": 0.1, "embedding_dropout": 0.1, "attention_dropout": 0.1}
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_FUSED = (("query_key_value",), ("qkv",))

SUBJECTS = (
    Subject("llama", "llama-2-7b", "LlamaConfig", _headed),
    Subject("llama-3", "llama-3-8b", "LlamaConfig", _headed),
    Subject("mistral", "mistral-7b-v0.1", "MistralConfig", _windowed),
    Subject("qwen2", "qwen2-7b", "Qwen2Config", _common),
    Subject("qwen3", "qwen3-4b", "Qwen3Config", _headed),
    Subject("gemma", "gemma-2b", "GemmaConfig", _headed),
    Subject("gemma2", "gemma-2-2b", "Gemma2Config", _windowed, attentions=("eager",)),
    Subject("gemma3", "gemma-3-1b", "Gemma3TextConfig", _windowed),
    Subject("opt", "opt-1.3b", "OPTConfig", _opt, dropout={"dropout": 0.1}),
    Subject("gpt2", "gpt2-xl", "GPT2Config", _gpt2, (("c_attn",), ("qkv",)), dropout=_GPT2_DROPOUT),
    Subject("gpt_neox", "pythia-1.4b", "GPTNeoXConfig", _partly_rotary, _FUSED, ends=("embed_in", "lm_head")),
    Subject("phi", "phi-2", "PhiConfig", _partly_rotary),
    Subject("phi3", "phi-3-mini-4k", "Phi3Config", _common, (("qkv_proj",), ("qkv",)),
            fixed={"sliding_window": 2047, "pad_token_id": None, "bos_token_id": None, "eos_token_id": None}),
    Subject("falcon", "falcon-7b", "FalconConfig", _falcon, _FUSED),
    Subject("mpt", "mpt-7b", "MptConfig", _mpt, (("Wqkv",), ("qkv",)), attentions=("eager",)),
    Subject("bloom", "bloom-1b7", "BloomConfig", _bloom, _FUSED, attentions=("eager",)),
    Subject("starcoder2", "starcoder2-3b", "Starcoder2Config", _common,
            fixed={"sliding_window": 4096, "residual_dropout": 0.0, "embedding_dropout": 0.0},
            dropout=_STARCODER_DROPOUT),
    Subject("mixtral", "mixtral-8x7b", "MixtralConfig", _headed, wide_targets=_ATTENTION, grouped_experts=True),
    Subject("qwen3_moe", "qwen3-30b-a3b", "Qwen3MoeConfig", _experts, wide_targets=_ATTENTION, grouped_experts=True),
    Subject("olmo2", "olmo-2-7b", "Olmo2Config", _common),
    Subject("granite", "granite-3.0-2b", "GraniteConfig", _common),
    Subject("cohere", "command-r", "CohereConfig", _common),
    Subject("gptj", "gpt-j-6b", "GPTJConfig", _gptj, attentions=("eager",), ends=("wte", "lm_head")),
    Subject("glm4", "glm-4-9b-0414", "Glm4Config", _glm),
    Subject("bert", "bert-large-uncased", "BertConfig", _bert, _BERT_TARGETS, ends=_BERT_ENDS, classes=ENCODER,
            dropout=_BERT_DROPOUT),
    Subject("roberta", "roberta-large", "RobertaConfig", _bert, _BERT_TARGETS, ends=_BERT_ENDS, classes=ENCODER,
            dropout=_BERT_DROPOUT),
    Subject("deberta", "deberta-v3-base", "DebertaV2Config", _deberta, (("query_proj", "value_proj"), ("q", "v")),
            attentions=("eager",), ends=_BERT_ENDS, classes=ENCODER,
            fixed={"problem_type": "single_label_classification"}),
    Subject("modernbert", "modernbert-large", "ModernBertConfig", _modernbert, (("Wqkv",), ("qkv",)),
            ends=("tok_embeddings", "decoder"), classes=ENCODER),
    Subject("t5", "t5-large", "T5Config", _t5, (("q", "v"), ("q", "v")), classes=(SEQUENCES, SEQUENCES),
            attentions=("eager",), ends=("shared", "lm_head"), dropout={"dropout_rate": 0.1}, fixed=_START),
    Subject("flan_t5", "flan-t5-large", "T5Config", _t5, (("q", "v"), ("q", "v")), classes=(SEQUENCES, SEQUENCES),
            attentions=("eager",), ends=("shared", "lm_head"), dropout={"dropout_rate": 0.1}, fixed=_START,
            changes={"tied_embeddings": True}),
    Subject("bart", "bart-large", "BartConfig", _bart, classes=(SEQUENCES, SEQUENCES), ends=("shared", "lm_head"),
            dropout={"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.1}),
)  # fmt: skip
BY_FAMILY = {subject.family: subject for subject in SUBJECTS}


@cache
def _catalogue() -> Registry:
    return Registry()


def shape_of(subject: Subject, layers: int, length: int) -> ModelShape:
    """The catalogue's shape with another number of layers, and learned positions that reach the length.

    Encoder-decoders have so many layers in each half; of the positions, those of padding are no token's.
    """
    shape = _catalogue().model(subject.model)
    reached = length + (OPT_POSITION_OFFSET if shape.learned_positions > shape.max_positions else 0)
    positions = max(shape.learned_positions, reached) if shape.learned_positions else 0
    cut = shape.with_layers(2 * layers if shape.encoder_layers else layers)
    return replace(cut, learned_positions=positions, **subject.changes)
