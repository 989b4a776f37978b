"""Encoders and encoder-decoders by `model_type` of Hugging Face transformers: BERT and its kin, T5, BART."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from xe_sizer.graph.model import Generator
from xe_sizer.profiles.families import Family

if TYPE_CHECKING:
    from xe_sizer.profiles.config_json import Config
    from xe_sizer.profiles.config_quirks import Values

PADDING_ROWS = 2  # of the position tables of RoBERTa and BART, which no token uses
# Published: widths of generators over those of their discriminators (arXiv:2003.10555, table 6), base and all others.
BASE_WIDTH, BASE_GENERATOR, USUAL_GENERATOR = 768, 1 / 3, 1 / 4
GENERATOR_HEAD = 64  # published: width of an attention head (google-research/electra, get_generator_config)
_BERT = Family(
    norm="layernorm", activation="gelu", position="learned", tied=True, qkv_bias=True, output_bias=True, mlp_bias=True,
    head_bias=True, embedding_norm=True, defaults={"vocab_size": 30522},
)  # fmt: skip
_ROBERTA = replace(_BERT, defaults={})
_T5 = Family(position="relative", tied=True, defaults={"max_position_embeddings": 512})
_BART = replace(_BERT, head_bias=False, defaults={})

ENCODERS: Mapping[str, Family] = {
    "bert": _BERT,
    "distilbert": _BERT,
    "electra": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "deberta-v2": replace(_ROBERTA, position="relative"),
    "modernbert": Family(
        norm="layernorm-nobias", activation="geglu", tied=True, qkv_bias=("attention_bias", False),
        output_bias=("attention_bias", False), mlp_bias=("mlp_bias", False), head_bias=("decoder_bias", True),
        embedding_norm=True,
    ),
    "t5": _T5,
    "mt5": replace(_T5, tied=False),
    "bart": _BART,
    "mbart": _BART,
}  # fmt: skip


def _dropout(config: Config, rates: Mapping[str, tuple[str, float]]) -> tuple[str, ...]:
    """Places where the model drops. rates : place -> key of its rate, and what the class assumes"""
    stated = {place: config.data.get(key, default) for place, (key, default) in rates.items()}
    return tuple(place for place, rate in stated.items() if rate)


def _bert(config: Config, values: Values) -> Values:
    hidden = ("hidden_dropout_prob", 0.1)
    rates = {"embedding": hidden, "attention": ("attention_probs_dropout_prob", 0.1), "hidden": hidden}
    width = config.count("embedding_size", default=values["hidden"])
    return {
        "bidirectional": True,
        "post_norm": True,
        "final_norm": False,
        "narrow_softmax": True,
        "narrow_loss": True,
        "token_types": config.count("type_vocab_size", default=2, least=0),
        "embedding_size": width if width != values["hidden"] else None,
        "head_transform": "biased",
        "dropout": _dropout(config, rates),
    }


def _electra(config: Config, values: Values) -> Values:
    """A discriminator, beside which a generator is pre-trained of as many layers and a part of the width.

    Source: arXiv:2003.10555, table 6; google-research/electra, get_generator_config, whose part is a quarter unless it
    is told otherwise, and whose heads are 64 wide.
    """
    if "ElectraForMaskedLM" in (config.data.get("architectures") or ()):  # the generator itself
        return _bert(config, values)
    part = BASE_GENERATOR if values["hidden"] == BASE_WIDTH else USUAL_GENERATOR
    width = round(part * values["hidden"])
    generator = Generator(values["layers"], width, max(width // GENERATOR_HEAD, 1), 4 * width)
    return {**_bert(config, values), "generator": generator}


def _roberta(config: Config, values: Values) -> Values:
    return {**_bert(config, values), "max_positions": max(values["max_positions"] - PADDING_ROWS, 1)}


def _distilbert(config: Config, values: Values) -> Values:
    rates = {"embedding": ("dropout", 0.1), "attention": ("attention_dropout", 0.1), "hidden": ("dropout", 0.1)}
    return {**_bert(config, values), "token_types": 0, "dropout": _dropout(config, rates)}


def _deberta(config: Config, values: Values) -> Values:
    if not (config.flag("relative_attention", False) and config.flag("share_att_key", False)):
        config.fail("only disentangled attention with shared keys is supported yet", "relative_attention")
    if config.has("conv_kernel_size") and config.count("conv_kernel_size", least=0):
        config.fail("a convolution beside the first layer is not supported yet", "conv_kernel_size")
    buckets = config.data.get("position_buckets")
    span = buckets if isinstance(buckets, int) and buckets > 0 else values["max_positions"]
    absolute = config.flag("position_biased_input", True)
    return {
        **_bert(config, values),
        "token_types": config.count("type_vocab_size", default=0, least=0),
        "learned_positions": values["max_positions"] if absolute else 0,
        "disentangled_positions": 2 * span,
    }


def _modernbert(config: Config, values: Values) -> Values:
    layers, period = values["layers"], config.count("global_attn_every_n_layers", default=3)
    rates = {
        "embedding": ("embedding_dropout", 0.0), "attention": ("attention_dropout", 0.0),
        "mlp": ("mlp_dropout", 0.0),
    }  # fmt: skip
    return {
        "bidirectional": True,
        "norm": "layernorm" if config.flag("norm_bias", False) else "layernorm-nobias",
        "bare_first_layer": True,
        "fused": ("qkv", "gate_up"),
        "sliding_window": config.count("local_attention", default=128),
        "windowed_layers": layers - -(-layers // period),
        "head_transform": "biased" if config.flag("classifier_bias", False) else "unbiased",
        "dropout": _dropout(config, rates),
    }


def _t5(config: Config, values: Values) -> Values:
    projection = config.word("feed_forward_proj") or "relu"
    if projection not in ("relu", "gated-gelu"):
        config.fail(f"'feed_forward_proj' may be relu or gated-gelu, not {projection}", "feed_forward_proj")
    decoder = config.count("num_decoder_layers", default=values["layers"])
    rate = ("dropout_rate", 0.1)
    return {
        "layers": values["layers"] + decoder,
        "encoder_layers": values["layers"],
        "activation": "geglu-new" if projection == "gated-gelu" else "relu",
        "relative_buckets": config.count("relative_attention_num_buckets", default=32),
        "narrow_softmax": True,
        "narrow_loss": True,
        "dropout": _dropout(config, dict.fromkeys(("embedding", "attention", "hidden", "mlp"), rate)),
    }


def _bart(config: Config, values: Values) -> Values:
    encoder = config.count("encoder_layers", default=values["layers"])
    for one, other in (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim")):
        if config.data.get(one) != config.data.get(other):
            config.fail("halves of different widths are not supported yet", other)
    rates = {
        "embedding": ("dropout", 0.1), "attention": ("attention_dropout", 0.0), "hidden": ("dropout", 0.1),
        "mlp": ("activation_dropout", 0.0),
    }  # fmt: skip
    return {
        "layers": encoder + config.count("decoder_layers", default=encoder),
        "encoder_layers": encoder,
        "learned_positions": values["max_positions"] + PADDING_ROWS,
        "post_norm": True,
        "final_norm": False,
        "narrow_softmax": True,
        "narrow_loss": True,
        "whole_targets": True,
        "dropout": _dropout(config, rates),
    }


def _mbart(config: Config, values: Values) -> Values:
    return {**_bart(config, values), "post_norm": False, "final_norm": True}


ENCODER_QUIRKS: Mapping[str, Callable[[Config, Values], Values]] = {
    "bert": _bert,
    "electra": _electra,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "deberta-v2": _deberta,
    "modernbert": _modernbert,
    "t5": _t5,
    "mt5": _t5,
    "bart": _bart,
    "mbart": _mbart,
}
