"""The shape of a model in Megatron's arguments.

Names and defaults: megatron/training/arguments.py, core/transformer/transformer_config.py and
core/tokenizers/utils/build_tokenizer.py of Megatron-LM, core 0.19.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from xe_sizer.importers.parts.shapes import Shape, state_shape, vocabulary_of
from xe_sizer.importers.values import number, plain, positive, positive_or_open

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xe_sizer.importers.parts.megatron import Arguments
    from xe_sizer.importers.parts.shapes import Stated
    from xe_sizer.importers.written import Written

_VOCABULARIES: Mapping[str, int] = {
    "gpt2bpetokenizer": 50_257, "bertwordpiecelowercase": 30_522, "bertwordpiececase": 28_996,
    "llama2tokenizer": 32_000, "tiktokenizer": 131_072,
}  # fmt: skip
"""Tokens of tokenizers whose type says them."""
_OWN_SIZE = ("nulltokenizer", "nullmultimodaltokenizer", "tiktokenizer")  # --vocab-size is theirs alone
_PADDING = 128
_SIZES = (
    ("layers", ("num_layers", "encoder_num_layers", "decoder_num_layers")),
    ("hidden", ("hidden_size",)),
    ("heads", ("num_attention_heads",)),
    ("head_dim", ("kv_channels",)),
    ("max_positions", ("max_position_embeddings",)),
)
_LATENT = (
    ("query_rank", "q_lora_rank", None), ("kv_rank", "kv_lora_rank", 32), ("qk_nope_head_dim", "qk_head_dim", 128),
    ("qk_rope_head_dim", "qk_pos_emb_head_dim", 64), ("v_head_dim", "v_head_dim", 128),
)  # fmt: skip
_STATE_SPACE = (
    ("state", "mamba_state_dim", 128), ("head_dim", "mamba_head_dim", 64), ("groups", "mamba_num_groups", 8),
    ("heads", "mamba_num_heads", None),
)  # fmt: skip
_POSITIONS = {"learnedabsolute": "learned", "rope": "rope", "yarn": "rope", "mrope": "rope", "none": "none"}
_ROTARY_BASE, _ROTARY_SCALING = 10_000, 8
_FLEXIBLE = 64  # the width of a gated MLP is rounded down to a multiple of it
_LONGEST = 10_000


def state_model(arguments: Arguments) -> None:
    """State the model that the arguments describe; nothing where a checkpoint is to say its shape."""
    copied = arguments.on("use_checkpoint_args")
    values: dict[str, Stated] = {}
    for key, names in _SIZES:
        _put(values, key, arguments.read(positive, *names))
    if copied is not None and not values:
        arguments.draft.miss("model", "its shape is in the checkpoint (--use-checkpoint-args)", "--model NAME")
        return
    _pattern(arguments, values)
    _attention(arguments, values)
    _mlp(arguments, values)
    _experts(arguments, values)
    _vectors(arguments, values)
    _wavelengths(arguments, values)
    padding = _vocabulary(arguments, values)
    if "layers" in values or "hidden" in values:
        tokenizer = arguments.peek("tokenizer_model", "tokenizer_name_or_path")
        state_shape(arguments.draft, Shape(values, padding, (str(tokenizer.value),) if tokenizer else ()))


def _put(values: dict[str, Stated], key: str, read: Stated | None) -> None:
    if read is not None:
        values[key] = read


def _read(arguments: Arguments, name: str, default: int | None) -> Stated | None:
    """A size, else what Megatron takes without it; None where neither is known."""
    found = arguments.read(positive, name)
    return found or (None if default is None or arguments.open(name) else (default, None))


def _size(values: Mapping[str, Stated], key: str) -> int | None:
    return int(str(values[key][0])) if key in values else None


def _pattern(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Layers of hybrid models, a letter each; what stands behind `/` predicts further tokens, `|` parts stages."""
    found = arguments.take("hybrid_layer_pattern", "hybrid_override_pattern")
    if found is None:
        return
    letters = str(found.value).partition("/")[0].replace("|", "")
    if not letters or set(letters) - set("M*-E") or len(letters) > _LONGEST:
        arguments.lose("hybrid_layer_pattern", "has kinds of layers that are not known here")
        arguments.lose("hybrid_override_pattern", "has kinds of layers that are not known here")
        return
    values["layer_pattern"] = (letters, found)
    values["layers"] = (len(letters), found)
    values["norms_per_layer"] = (1, None)
    if "M" in letters:
        _state_space(arguments, values, found)


def _state_space(arguments: Arguments, values: dict[str, Stated], found: Written) -> None:
    values["state_space.kind"] = ("mamba-2", found)
    for key, name, default in _STATE_SPACE:
        _put(values, f"state_space.{key}", _read(arguments, name, default))
    hidden, head_dim = _size(values, "hidden"), _size(values, "state_space.head_dim")
    if hidden and head_dim:
        values.setdefault("state_space.heads", (2 * hidden // head_dim, None))
        inner = (_size(values, "state_space.heads") or 0) * head_dim
        values["state_space.inner"] = (inner, None)


def _attention(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Latent attention, else query groups: as many as heads without them."""
    latent = arguments.on("multi_latent_attention")
    grouped = arguments.on("group_query_attention")
    groups = arguments.read(positive_or_open, "num_query_groups", "num_key_value_heads")
    if latent is not None:
        for key, name, default in _LATENT:
            _put(values, f"latent_attention.{key}", _read(arguments, name, default))
        values.pop("head_dim", None)
    elif grouped is not None:
        _put(values, "kv_heads", groups or _read(arguments, "num_query_groups", 1))
    elif groups is not None and arguments.peek("group_query_attention") is None and int(str(groups[0])) > 1:
        values["kv_heads"] = groups
    elif "heads" in values and not arguments.open("num_query_groups"):
        values["kv_heads"] = (values["heads"][0], None)


def _mlp(arguments: Arguments, values: dict[str, Stated]) -> None:
    for name, word in (("swiglu", "swiglu"), ("quick_geglu", "geglu"), ("squared_relu", "relu2"),
                       ("openai_gelu", "gelu-new"), ("gated_linear_unit", "swiglu")):  # fmt: skip
        found = arguments.on(name)
        if found is not None:
            values.setdefault("activation", (word, found))
    values.setdefault("activation", ("gelu", None))
    _put(values, "ffn", arguments.read(positive_or_open, "ffn_hidden_size"))
    hidden = _size(values, "hidden")
    if hidden is not None and not arguments.open("ffn_hidden_size"):
        gated = values["activation"][0] in ("swiglu", "geglu")
        width = hidden * 8 // 3 // _FLEXIBLE * _FLEXIBLE if gated else 4 * hidden
        values.setdefault("ffn", (width, None))


def _experts(arguments: Arguments, values: dict[str, Stated]) -> None:
    count = arguments.read(positive_or_open, "num_experts", "num_moe_experts")
    if count is None:
        return
    values["experts.count"] = count
    _put(values, "experts.per_token", _read(arguments, "moe_router_topk", 2))
    own = arguments.read(positive_or_open, "moe_ffn_hidden_size")
    _put(values, "experts.ffn", own or (None if arguments.open("moe_ffn_hidden_size") else values.get("ffn")))
    _put(values, "experts.shared_ffn", arguments.read(positive_or_open, "moe_shared_expert_intermediate_size"))
    gate = arguments.on("moe_shared_expert_gate")
    if gate is not None:
        values["experts.shared_gate"] = (True, gate)
    _put(values, "experts.latent", arguments.read(positive_or_open, "moe_latent_size"))
    written = arguments.take("moe_layer_freq")
    if written is None:
        return
    layers = layers_with_experts(written.value)
    if isinstance(layers, int):
        values["experts.every_n_layers"] = (layers, written)
    elif layers is None or not _are_dense_first(layers):
        arguments.lose("moe_layer_freq", "says which layers have experts, in an order that is not modelled")
    elif layers.index(1):
        values["experts.first_dense_layers"] = (layers.index(1), written)


def _are_dense_first(layers: list[int]) -> bool:
    return 1 in layers and all(layers[layers.index(1) :])


def _vectors(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Norms, biases, positions and the head, with what Megatron does without an argument."""
    norm, one = arguments.take("normalization"), arguments.on("apply_layernorm_1p", "layernorm_zero_centered_gamma")
    if norm is not None and plain(norm.value) == "rmsnorm":
        values["norm"] = ("rmsnorm", norm)
    else:
        values["norm"] = ("layernorm1p", one) if one is not None else ("layernorm", norm)
    values["biases"] = _biases(arguments)
    values["position"] = _position(arguments)
    if values["position"][0] == "learned" and "max_positions" in values:
        values["learned_positions"] = values["max_positions"]
    normed = arguments.on("qk_layernorm")
    if normed is not None and not any(key.startswith("latent_attention.") for key in values):
        values["qk_norm"] = ("perhead", normed)
    untied = arguments.on("untie_embeddings_and_output_weights")
    shared = arguments.take("share_embeddings_and_output_weights")
    if shared is not None:
        values["tied_embeddings"] = (plain(shared.value) != "false", shared)
    else:
        values["tied_embeddings"] = (untied is None, untied)


def _biases(arguments: Arguments) -> Stated:
    off = arguments.on("disable_bias_linear")
    stated = arguments.take("add_bias_linear")
    queries = arguments.on("add_qkv_bias")
    if off is None and (stated is None or plain(stated.value) != "false"):
        return ("qkv", "output", "mlp"), stated
    return (("qkv",) if queries is not None else ()), queries or off or stated


def _position(arguments: Arguments) -> Stated:
    named = arguments.take("position_embedding_type")
    rotary, none = arguments.on("use_rotary_position_embeddings"), arguments.on("no_position_embedding")
    if rotary is not None:
        return "rope", rotary
    if named is not None and plain(named.value) in _POSITIONS:
        return _POSITIONS[plain(named.value)], named
    return ("none", none) if none is not None else ("learned", None)


def _wavelengths(arguments: Arguments, values: dict[str, Stated]) -> None:
    """Base of the rotary positions, and how Llama 3.1 stretches them."""
    if values.get("position", ("", None))[0] != "rope":
        return
    _put(values, "rotary_base", _read(arguments, "rotary_base", _ROTARY_BASE))
    if arguments.on("use_rope_scaling") is not None:
        _put(values, "rotary_scaling", _read(arguments, "rope_scaling_factor", _ROTARY_SCALING))


def _vocabulary(arguments: Arguments, values: dict[str, Stated]) -> int:
    """The vocabulary, and what it is padded to a multiple of."""
    padded = arguments.read(positive, "padded_vocab_size")
    size = arguments.read(positive, "vocab_size")
    kind = arguments.take("tokenizer_type")
    model = arguments.take("tokenizer_model", "tokenizer_name_or_path")
    merges = arguments.take("merge_file")
    word = plain(kind.value) if kind is not None else ("gpt2bpetokenizer" if merges is not None else "")
    known = vocabulary_of(str(model.value)) if model is not None else None
    if padded is not None:
        values["vocab"] = padded
    elif size is not None and (known is None or word in _OWN_SIZE):
        values["vocab"] = size
    elif known is not None and model is not None:
        values["vocab"] = (known, model)
    elif word in _VOCABULARIES:
        values["vocab"] = (_VOCABULARIES[word], kind or merges)
    multiple = arguments.size("make_vocab_size_divisible_by") or _PADDING
    return 1 if padded is not None else multiple * int(str(arguments.draft.fact("layout.tp") or 1))


def layers_with_experts(value: object) -> int | list[int] | None:
    """A frequency, or for each layer 1 where it has experts; None where it is neither.

    Lists are written as Python has them: `[0]*3+[1]*58`, `([0]+[1]*26)*1`.
    """
    if isinstance(value, list | tuple):
        return [int(bool(each)) for each in value]
    text = str(value).strip()
    if text.isdecimal():
        return int(text[:9]) or None
    if len(text) > _LONGEST:
        return None
    try:
        return _listed(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _listed(node: ast.expr) -> list[int]:
    """The list that an expression of lists, `+` and `*` says. Raises ValueError: another expression, a long list."""
    if isinstance(node, ast.List):
        found = [each.value for each in node.elts if isinstance(each, ast.Constant) and each.value in (0, 1)]
        if len(found) == len(node.elts):
            return [int(bool(each)) for each in found]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _bounded(_listed(node.left) + _listed(node.right))
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        times = number(node.right.value)
        if isinstance(times, int) and 0 <= times <= _LONGEST:
            return _bounded(_listed(node.left), times) * times
    raise ValueError


def _bounded(layers: list[int], times: int = 1) -> list[int]:
    if len(layers) * times > _LONGEST:
        raise ValueError
    return layers
