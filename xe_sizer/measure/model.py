"""The model of a measured job: its shape with random weights, what learns of it, and its optimizer.

Of a class of transformers where it is installed and has the shape, else of plain blocks; frozen weights in few bits by
bitsandbytes, adapters by peft where it is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from xe_sizer.errors import InputError, Problem
from xe_sizer.graph.model import Experts
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import BF16, FP16, FP32
from xe_sizer.measure.timer import CUDA
from xe_sizer.profiles.catalogue import load_optimizer
from xe_sizer.profiles.finder import default_name

if TYPE_CHECKING:
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.measure.collectives import Ranks
    from xe_sizer.software.optimizer import Optimizer

EAGER = "eager"
SHARDED = 3
PER_HEAD = "perhead"
# Configurations of transformers by what tells their layers apart: experts, norms of queries, biases of projections.
IN_TRANSFORMERS = {
    (False, None, False): "LlamaConfig",
    (False, None, True): "Qwen2Config",
    (False, PER_HEAD, False): "Qwen3Config",
    (True, None, False): "MixtralConfig",
    (True, PER_HEAD, False): "Qwen3MoeConfig",
}
QUANTISER = default_name("quantiser")  # the library that holds frozen weights in few bits, with optimizers of its own
FOUR_BITS = 4
SPARED = 0.4  # chosen: of the card's memory; more of 16-bit weights than that are quantised on their way from the host


# What runs.


class Plan(Immutable):
    """What runs: a model's shape with as many layers as fit, and how.

    layers : of `shape` that run; load, compute : number formats of weights and of products (autocast where they differ)
    zero : 0 or 3 over several ranks; targets : projections with adapters, empty where all weights learn
    bits : of frozen weights in few bits; 0: as they are loaded
    pairs : a sample is a chosen and a rejected answer; reference : the model that they are compared by, COPY or
    ADAPTERS_OFF; None: none
    """

    shape: ModelShape
    layers: int
    micro_batch: int
    grad_accum: int
    seq_len: int
    load: str
    compute: str
    attention: str
    recompute: bool
    zero: int
    optimizer: str
    rank: int = 0
    targets: tuple[str, ...] = ()
    dropout: float = 0.0
    fine_tunes: bool = True
    job: str = ""
    bits: int = 0
    pairs: bool = False
    reference: str | None = None

    @property
    def autocasts(self) -> bool:
        return self.load == FP32 and self.compute in (BF16, FP16)

    @property
    def plain_optimizer(self) -> bool:
        """Whether it is the root of all optimizers, PyTorch's AdamW."""
        return load_optimizer(self.optimizer).parent is None


# What can be built.


def config_class(shape: ModelShape) -> str | None:
    """The configuration of transformers whose model has the shape; None: no class here has it."""
    if shape.norm != "rmsnorm" or not shape.gated or shape.position != "rope" or shape.output_bias or shape.mlp_bias:
        return None
    experts = shape.experts
    if experts and experts != Experts(experts.count, experts.per_token, experts.ffn, loop=experts.loop):
        return None  # with shared experts, dense layers and the like
    return IN_TRANSFORMERS.get((experts is not None, shape.qk_norm, shape.qkv_bias))


def _transformers(shape: ModelShape) -> Any:
    """The library, where it is installed and has a class for the shape; else None."""
    if config_class(shape) is None:
        return None
    try:
        import transformers
    except ImportError:
        return None
    return transformers


def unbuilt(shape: ModelShape, seq_len: int) -> str | None:
    """What of a shape neither a class nor the plain blocks have, in words; None: it can be built."""
    narrow = shape.windowed_layers and shape.sliding_window is not None and shape.sliding_window < seq_len
    without: dict[str, object] = {
        "latent attention": shape.latent_attention, "state-space layers": shape.state_space,
        "weights that layers share": shape.shared_blocks, "embeddings of layers": shape.layer_embedding,
        "an encoder": shape.encoder_layers or shape.bidirectional, "an encoder of images": shape.vision,
        "learned positions": shape.learned_positions, "norms behind the blocks": shape.post_norm,
        "blocks side by side": shape.parallel_block, "capped logits": shape.soft_caps,
        "attention over a sliding window": narrow,
    }  # fmt: skip
    plain = _transformers(shape) is None
    if plain:
        without |= {"experts": shape.experts, "norms of queries": shape.qk_norm}
    found = [name for name, has in without.items() if has]
    needs = " without transformers" if plain and config_class(shape) else ""
    return f"{shape.name} has {', '.join(found)}, which are not built here{needs}" if found else None


def _bitsandbytes() -> Any:
    try:
        return import_module(QUANTISER)
    except ImportError:
        return None


def unquantised(quantiser: str) -> str | None:
    """Why frozen weights of this library cannot be built, in words; None: they can."""
    if quantiser != QUANTISER:
        return f"weights of {quantiser} are not run: those of {QUANTISER} are"
    if _bitsandbytes() is None:
        return f"weights in few bits need {QUANTISER}, which is not installed: pip install {QUANTISER}"
    return None


def optimizer_class(name: str) -> tuple[Any, dict[str, Any]] | None:
    """The class of an optimizer and what it is made with; None: neither PyTorch's AdamW nor one that is installed."""
    found: Optimizer = load_optimizer(name)
    if found.parent is None:  # the root of all is the plain one
        import torch

        return torch.optim.AdamW, {"fused": True}
    for path in found.aliases:
        if path.startswith(f"{QUANTISER}.") and (library := _bitsandbytes()) is not None:
            return getattr(library.optim, path.rpartition(".")[2]), {}
    return None


# Building it.


def build(plan: Plan, device: str) -> tuple[Any, str]:
    """The model with random weights, ready to train, and what it is made of."""
    model, words = _base(plan, device)
    if plan.bits:
        words += f", {_quantise(model, plan.bits)}"
        model.to(device)
    model.train()
    if plan.rank:
        words += f", {_adapt(model, plan)}"
    return model, words


def reference(plan: Plan, device: str) -> Any:
    """A frozen copy of the model beside the one that learns."""
    return _base(plan, device)[0].eval().requires_grad_(False)


def _base(plan: Plan, device: str) -> tuple[Any, str]:
    import torch

    from xe_sizer.measure.kernels import DTYPES

    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[plan.load])
    try:
        with torch.device(_birthplace(plan, device)):
            made = _of_transformers(plan)
            return made or (_plain(plan), "plain blocks")
    finally:
        torch.set_default_dtype(before)


def _birthplace(plan: Plan, device: str) -> str:
    """Where weights are made: on the device, unless few bits are all that it has the memory for."""
    if not plan.bits or not device.startswith(CUDA):
        return device
    import torch

    from xe_sizer.graph.weights import count_parameters
    from xe_sizer.measure.kernels import element_bytes

    size = count_parameters(plan.shape.with_layers(plan.layers)).total * element_bytes(plan.load)
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return device if size <= SPARED * free else "cpu"


def _of_transformers(plan: Plan) -> tuple[Any, str] | None:
    """A class of transformers with the shape; None where it is not installed, or none has it."""
    shape = plan.shape
    transformers = _transformers(shape)
    if transformers is None:
        return None
    experts: dict[str, int] = {}
    if shape.experts:
        experts = {
            "num_local_experts": shape.experts.count,
            "num_experts": shape.experts.count,
            "num_experts_per_tok": shape.experts.per_token,
            "moe_intermediate_size": shape.experts.ffn,
        }
    config = getattr(transformers, config_class(shape) or "")(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.experts.ffn if shape.experts else shape.ffn,
        num_hidden_layers=plan.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=max(plan.seq_len, 2048),
        tie_word_embeddings=shape.tied_embeddings,
        use_cache=False,
        **experts,
    )
    from xe_sizer.measure.kernels import DTYPES

    attention = EAGER if plan.attention == EAGER else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=DTYPES[plan.load], attn_implementation=attention
    )
    if plan.recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        if plan.rank:
            model.enable_input_require_grads()
    return model, f"transformers {transformers.__version__}"


def _plain(plan: Plan) -> Any:
    from xe_sizer.measure.blocks import Decoder

    return Decoder(plan.shape.with_layers(plan.layers), plan.attention, plan.recompute)


def _quantise(model: Any, bits: int) -> str:
    """Hold the projections of layers in few bits, as transformers does with double quantisation."""
    import torch

    library = _bitsandbytes()
    places = [
        (parent, name, child)
        for path, parent in model.named_modules()
        for name, child in parent.named_children()
        if isinstance(child, torch.nn.Linear) and "layers" in path.split(".")
    ]
    for parent, name, child in places:
        sizes, bias = (child.in_features, child.out_features), child.bias is not None
        weight = child.weight.data
        made: Any
        if bits == FOUR_BITS:
            made = library.nn.Linear4bit(
                *sizes,
                bias,
                compute_dtype=weight.dtype,
                compress_statistics=True,
                quant_type=f"nf{bits}",
                device="meta",
            )
            made.weight = library.nn.Params4bit(
                weight, requires_grad=False, quant_type=f"nf{bits}", compress_statistics=True, module=made
            )
        else:
            made = library.nn.Linear8bitLt(*sizes, bias, has_fp16_weights=False, device="meta")
            made.weight = library.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
        made.bias = child.bias
        setattr(parent, name, made.to(weight.device))
    model.requires_grad_(False)
    setattr(model, "is_loaded_in_4bit" if bits == FOUR_BITS else "is_loaded_in_8bit", True)  # what peft asks for
    return f"{QUANTISER} {library.__version__}, {bits} bit"


def _adapt(model: Any, plan: Plan) -> str:
    """Put adapters beside the projections, by peft where it is installed."""
    try:
        import peft
    except ImportError as error:
        if plan.bits:
            raise InputError(
                Problem(
                    "adapters beside weights in few bits need peft, which is not installed", hint="pip install peft"
                )
            ) from error
        from xe_sizer.measure.blocks import adapt

        return f"{adapt(model, set(plan.targets), plan.rank, plan.dropout)} adapters"
    options = peft.LoraConfig(
        r=plan.rank, lora_alpha=2 * plan.rank, target_modules=list(plan.targets), lora_dropout=plan.dropout
    )
    peft.inject_adapter_in_model(options, model)
    for weight in model.parameters():
        if weight.requires_grad:  # as PeftModel has adapters (autocast_adapter_dtype)
            weight.data = weight.data.float()
    return f"peft {peft.__version__}"


@contextlib.contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """The frozen weights alone."""
    kinds = _adapter_kinds()
    adapted: list[Any] = [layer for layer in model.modules() if isinstance(layer, kinds)]
    for layer in adapted:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in adapted:
            layer.enable_adapters(True)


def _adapter_kinds() -> tuple[type, ...]:
    from xe_sizer.measure.blocks import LowRank

    try:
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ImportError:
        return (LowRank,)
    return LowRank, BaseTunerLayer


def spread(model: Any, plan: Plan, device: str, ranks: Ranks | None) -> Any:
    """The model over the ranks: replicas, or shards of each layer and of the rest."""
    if ranks is None:
        return model
    if plan.zero == SHARDED:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.partition(":")[0], (ranks.size,))
        layers = next(child for name, child in model.named_modules() if name.rpartition(".")[2] == "layers")
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, device_ids=[ranks.local_rank] if device.startswith(CUDA) else None)


def optimizer(learning: Sequence[Any], name: str) -> Any:
    """The optimizer of the weights that learn."""
    made = optimizer_class(name)
    assert made is not None  # whoever plans a job has asked
    class_, settings = made
    return class_(learning, lr=1e-5, **settings)
