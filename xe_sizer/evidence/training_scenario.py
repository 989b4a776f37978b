"""Records of training runs as scenarios: what a record states, in the words of scenarios, and what it leaves open."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Problem
from xe_sizer.evidence.names import Flags, choose_stack, compiled, look_up, names, plain, recipes, release_in
from xe_sizer.evidence.records import Lora, Shape
from xe_sizer.graph.inputs import BLOCK_SCALED
from xe_sizer.graph.vision import seen_image
from xe_sizer.graph.weights import count_parameters
from xe_sizer.immutable import Immutable
from xe_sizer.laws.device import BF16, FP4, FP8, FP16, INT8
from xe_sizer.profiles.catalogue import load_dataset, load_engine, load_optimizer, load_quantiser, load_stack
from xe_sizer.profiles.convert import Source
from xe_sizer.profiles.finder import BUILT_IN
from xe_sizer.profiles.server import ScaleOut, ScaleUp, ServerProfile, server, usual_scale_out
from xe_sizer.software.adapter_targets import resolve_targets
from xe_sizer.software.number_formats import casts_of
from xe_sizer.software.release import split_release
from xe_sizer.software.stack import OF_GRADIENTS
from xe_sizer.training.adapters import ADAPTERS
from xe_sizer.training.adapters.low_rank import resolve_end
from xe_sizer.training.layout import OFFLOAD, ROWS, offloaded_parts
from xe_sizer.training.methods import METHODS
from xe_sizer.training.methods.method import TASK

if TYPE_CHECKING:
    from xe_sizer.evidence.names import ChosenStack, Recipes, RecordRegistry
    from xe_sizer.evidence.records import Record
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.laws.hardware import Accelerator, Server
    from xe_sizer.profiles.catalogue import Registry
    from xe_sizer.profiles.dataset import DatasetProfile
    from xe_sizer.software.stack import Defaults
    from xe_sizer.training.adapters import AdapterKind
    from xe_sizer.training.methods import MethodKind

# Adapters and the frozen weights below them.


def _module_names(stated: str | list[str] | None) -> list[str]:
    """Names of modules, without what parentheses say of them."""
    listed = re.sub(r"\([^)]*\)?", " ", stated if isinstance(stated, str) else ",".join(map(str, stated or ())))
    return [word for word in re.split(r"[\s,]+", listed) if word]


def _saved(record: Record, flags: Flags) -> None:
    """Embedding and head that learn beside adapters; other modules are small."""
    saved = []
    for word in _module_names(record.lora.modules_to_save):
        try:
            saved.append(resolve_end(word))
        except InputError:
            flags.assumed.append(f"'{word}' does not learn: neither embedding nor head")
    flags.put("lora.modules_to_save", saved or None)


@cache
def _quantisers() -> Mapping[str, str]:
    """Quantisers by their names and their other names."""
    others = {alias: name for name in BUILT_IN.names("quantiser") for alias in load_quantiser(name).aliases}
    return others | {name: name for name in BUILT_IN.names("quantiser")}


def _settings(job: MethodKind, flags: Flags) -> tuple[str, ...]:
    """Sections of a scenario that say how the job's adapters are made."""
    asked = flags.values.get("adapter")
    return ADAPTERS[asked].settings if asked else job.settings


def _few_bits(record: Record, job: MethodKind, flags: Flags) -> bool:
    """Whether the frozen weights below adapters have few bits."""
    asked = flags.values.get("adapter")
    if asked is None:
        return job.quantises
    narrow = any(word in plain(record.weights or "") for word in names().quantised_weights)
    return job.quantises or ADAPTERS[asked].quantises or narrow


def quantiser(record: Record, job: MethodKind, usual: str, flags: Flags) -> None:
    """The library that quantised the weights, else the one of the stack, and their bits, if it has so many.

    usual : the quantiser of the stack
    """
    if not _few_bits(record, job, flags):
        return
    words = [plain(word) for word in (record.quantiser or "", record.weights or "")]
    name = next((_quantisers()[word] for word in words if word in _quantisers()), None)
    by_format = look_up(names().quantisers_by_format, record.weights or "")
    if by_format and not record.quantiser and name is None and load_quantiser(usual).default:
        name = by_format
        flags.assumed.append(f"{record.weights} weights are those of {name}: the quantiser is not stated")
    if record.quantiser and name is None:
        flags.assumed.append(f"quantiser '{record.quantiser}' is unknown here: the stack's")
    if name is not None and (own := split_release(usual)[0]) == name:
        release = release_in((record.framework or "").lower(), (own, *load_quantiser(own).aliases))
        name = f"{name}@{release}" if release else usual  # in the release that is stated, else in the stack's
    flags.put("train.quantiser", name)
    stated = record.bits or (8.0 if "8" in words[1] else None)  # as int8 does
    has = load_quantiser(name or usual).bits
    if stated is None:
        if not (job.quantises or name):  # what asks for few bits under any adapters
            flags.put("train.bits", has[0])
        return
    bits = min(has, key=lambda each: abs(each - stated))
    flags.put("train.bits", bits, None if bits == stated else f"weights of {stated:g} bits predicted as {bits}")


def adapts(record: Record, job: MethodKind, flags: Flags) -> bool:
    """Whether adapters on projections learn: the job or the record means them, or the record says of which rank."""
    asked = "adapter" in flags.values
    return "lora" in _settings(job, flags) or (not asked and job.implies_adapter and record.lora != Lora())


def adapters(record: Record, job: MethodKind, model: ModelShape, flags: Flags) -> None:
    """Rank and targets of adapters, those that the model has; virtual tokens of a prompt."""
    if "p_tuning" in _settings(job, flags):
        flags.put("p_tuning.virtual_tokens", record.virtual_tokens)
    if not adapts(record, job, flags):
        return
    flags.put("lora.rank", record.lora.rank)
    flags.put("lora.dropout", record.lora.dropout)
    flags.put("lora.dora", True if record.lora.dora else None)
    _saved(record, flags)
    asked = flags.values.get("adapter") or job.adapter
    on_head = ADAPTERS[asked].on_head if asked else job.implies_adapter  # which are the usual ones
    targets = find_targets(record, model, flags, on_head)
    if not targets and _few_bits(record, job, flags):
        targets = list(resolve_targets(model, ["all-linear"]))
        flags.assumed.append("adapters on all linear layers: usual for QLoRA (arXiv:2305.14314)")
    flags.put("lora.targets", targets or None)


def find_targets(record: Record, model: ModelShape, flags: Flags, on_head: bool = False) -> list[str]:
    """Targets of the record's adapters that the model has; none where it names none."""
    targets: list[str] = []
    for word in _module_names(record.lora.targets):
        target = "all-linear" if word.lower() in ("all", "all-linear") else word.lower()
        try:
            found = resolve_targets(model, [target], head=on_head)
        except InputError:
            flags.assumed.append(f"no adapter on '{word}'")
            continue
        if not ("qkv" in found and {"q", "k", "v"} <= set(targets)):
            targets += found
    return list(dict.fromkeys(targets))


# The model: looked up, changed where the record says so, or built from its shape or its size.

SUFFIXES = re.compile(r"[-_](instruct|chat|it|base|hf|sft)$")
CUT = re.compile(r"(-\d+-?layers?)?(-\d+-?experts?)?$")  # a benchmark's small version of a known model
SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s*([bmt])(?![a-z0-9])")
MIXTURE = re.compile(r"moe|expert|\d+x\d+b|a\d+(?:\.\d+)?[bm]")
TOTAL_AND_ACTIVE = re.compile(r"(\d+(?:\.\d+)?)([bm])-a?(\d+(?:\.\d+)?)([bm])(?![a-z0-9])")
UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}
# Hidden size over layers of the GPT-3 family (96 of 12,288) and its parameters per layer and squared hidden size
# (4 for attention, 8 for the MLP; Brown et al. 2020, table 2.1).
ASPECT = 128
PARAMETERS_PER_LAYER = 12
HEAD_DIM = 128


class Model(Immutable):
    """A shape under the name that the scenario asks for, and what was assumed."""

    name: str
    shape: ModelShape
    assumed: tuple[str, ...] = ()


def find_model(record: Record, registry: Registry) -> Model:
    """Find the model of a record: by name, else from its stated shape, else from the size in its name.

    Raises
    ------
    InputError : a model that cannot be sized, or of which neither name, shape nor size says enough
    """
    try:
        known = _known(record.model or "", registry)
    except InputError as error:
        return _built(record, registry, error)
    changed = _overridden(known, record.shape)
    return Model(known.name if changed is known else _own_name(record), changed)


def _known(name: str, registry: Registry) -> ModelShape:
    """The registry's model of that name, of the name without its owner, what a fine-tune adds or what was cut."""
    last = plain(name.rsplit("/", 1)[-1])
    errors = []
    for candidate in dict.fromkeys((name.strip().lower(), last, SUFFIXES.sub("", last), CUT.sub("", last))):
        try:
            return registry.model(candidate)
        except InputError as error:
            errors.append(error)
    raise errors[0]


def _own_name(record: Record) -> str:
    sizes = {key: value for key, value in msgspec.structs.asdict(record.shape).items() if value is not None}
    return f"{record.model} with " + ", ".join(f"{key} {value:g}" for key, value in sizes.items())


def _overridden(known: ModelShape, stated: Shape) -> ModelShape:
    """A known model with the sizes that the record states differently; a new width brings its own heads along."""
    sizes: dict[str, Any] = {
        name: getattr(stated, name)
        for name in ("hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "tied_embeddings")
        if getattr(stated, name) not in (None, getattr(known, name))
    }
    known = known.with_layers(stated.layers or known.layers)
    if known.experts:
        count = known.experts.count if stated.experts is None else stated.experts
        per_token = min(stated.experts_per_token or known.experts.per_token, count)
        experts = replace(known.experts, count=count, per_token=per_token)
        sizes |= {"experts": experts} if experts != known.experts else {}
    if not sizes:
        return known
    if {"hidden", "heads"} & set(sizes) and stated.head_dim is None:
        heads = sizes.get("heads", known.heads)
        sizes["head_dim"] = sizes.get("hidden", known.hidden) // heads
        if stated.kv_heads is None and (known.kv_heads == known.heads or heads % known.kv_heads):
            sizes["kv_heads"] = heads
    return replace(known, **sizes)


def _built(record: Record, registry: Registry, unknown: InputError) -> Model:
    """A model with the proportions of its family, of the stated shape or of the size in its name."""
    name = (record.model or "").lower()
    mixture = _mixture(record, registry)
    if mixture is not None:
        return mixture
    template = registry.model(_nearest(names().families, name))
    stated, size = record.shape, record.shape.params or _size(name)
    if MIXTURE.search(name) or template.experts or (not size and not (stated.layers and stated.hidden)):
        raise unknown
    hidden = stated.hidden or _usual_hidden(size or 0.0)
    layers = stated.layers or _layers(size or 0.0, hidden, stated.vocab or template.vocab)
    heads = stated.heads or max(hidden // HEAD_DIM, 1)
    ratio = template.ffn / template.hidden
    sizes: dict[str, Any] = {
        "name": record.model or "",
        "hidden": hidden,
        "heads": heads,
        "kv_heads": stated.kv_heads or heads,
        "head_dim": stated.head_dim or hidden // heads,
        "ffn": stated.ffn or round(ratio * hidden / 64) * 64,
        "vocab": stated.vocab or template.vocab,
        "released": None,
        "assumptions": (),
    }
    missing = [key for key in ("layers", "hidden", "heads") if getattr(stated, key) is None]
    what = f"; {', '.join(missing)} from its size" if missing else ""
    text = f"model '{record.model}' built with the blocks of {template.name}{what}"
    return Model(_own_name(record), replace(template.with_layers(layers), **sizes), (text,))


def _nearest(table: Mapping[str, str], name: str) -> str:
    """The entry whose key is the longest beginning of the name."""
    return table[max((start for start in table if name.startswith(start)), key=len)]


def _mixture(record: Record, registry: Registry) -> Model | None:
    """A mixture of experts of the total and active size in its name, in the proportions of a known one.

    All widths and the depth grow with the cube root of the size, experts a token with the active share. None where the
    name does not say both sizes, or where the record has sizes of its own.
    """
    name = (record.model or "").lower()
    found = TOTAL_AND_ACTIVE.search(name.replace("_", "-"))
    if found is None or record.shape != Shape():
        return None
    total, active = (float(found[place]) * UNITS[found[place + 1]] for place in (1, 3))
    template = registry.model(_nearest(names().mixtures, name))
    count, experts = count_parameters(template), template.experts
    assert experts is not None
    scale = math.cbrt(total / count.total)
    hidden = max(round(template.hidden * scale / HEAD_DIM), 1) * HEAD_DIM
    heads = max(hidden // template.head_dim, template.kv_heads)
    per_token = round(experts.per_token * (active / total) / (count.active / count.total))
    shape = replace(
        template.with_layers(max(round(template.layers * scale), 1)),
        name=record.model or "",
        hidden=hidden,
        heads=heads - heads % template.kv_heads,
        experts=replace(experts, ffn=round(experts.ffn * scale), per_token=min(max(per_token, 1), experts.count)),
        released=None,
        assumptions=(),
    )
    return Model(_own_name(record), shape, (f"model '{record.model}' built in the proportions of {template.name}",))


def _size(name: str) -> float | None:
    found = SIZE.search(name.replace("_", "-"))
    return float(found[1]) * UNITS[found[2]] if found else None


def _usual_hidden(size: float) -> int:
    """Hidden size of a GPT of that many parameters [-]: N = 12 L h^2 with h = 128 L, in steps of 1,024 (256)."""
    exact = math.cbrt(size * ASPECT / PARAMETERS_PER_LAYER)
    step = 1024 if exact > 3072 else 256
    return max(round(exact / step), 1) * step


def _layers(size: float, hidden: int, vocab: int) -> int:
    """Layers that make up the size beside the embedding [-], an even number, of eight in large models."""
    exact = max(size - vocab * hidden, 0.5 * size) / (PARAMETERS_PER_LAYER * hidden**2)
    step = 8 if exact > 24 else 2
    return max(round(exact / step), 1) * step


# Images, and what is frozen of a model that sees.

# Names of models that are trained on images; others that see are trained on text as well.
SEES = re.compile(r"(?:^|[-_./ ])(?:\w*(?:vl|llava)\d?|v|pixtral|paligemma|idefics\d?|smolvlm|vision)(?=$|[-_. ])")
USUAL_SIZE = 448  # assumed: side of an image where none is stated [pixels]


def put_images(record: Record, model: ModelShape, flags: Flags) -> None:
    """Put the images of a sample as stated; one where a model is named for seeing and learns from data."""
    if model.vision is None:
        return
    stated = record.images
    if stated is None:
        if not SEES.search((record.model or "").lower()):
            return
        flags.put("data.images", 1, "one image in each sample: not stated")
    else:
        flags.put("data.images", stated)
    side = model.vision.side or USUAL_SIZE
    text = f"images of {side} x {side} pixels: size not stated"
    size = record.image_size
    flags.put("data.image_size", size or f"{side}x{side}", None if size else text)
    flags.put("train.freeze", record.freeze)
    _room(record, model, flags)


def _room(record: Record, model: ModelShape, flags: Flags) -> None:
    """No images where the stated sequences cannot hold them, else text beside them."""
    width, height = str(flags.values["data.image_size"]).split("x")
    assert model.vision is not None
    tokens = flags.values["data.images"] * seen_image(model.vision, int(width), int(height)).tokens
    longest = flags.values.get("train.seq_len")
    if longest is not None and tokens >= longest:
        for key in ("data.images", "data.image_size", "train.freeze"):
            flags.values.pop(key, None)
        flags.assumed.append(f"no images: sequences of {longest:,} tokens do not hold them")
    elif "data.mean_tokens" in flags.values and (record.mean_tokens or 0) > tokens:
        _only_text(tokens, flags)


def _only_text(tokens: int, flags: Flags) -> None:
    """Lengths of the text alone, where a record's are those of samples with their images, which do not vary."""
    for key in ("data.mean_tokens", "data.max_tokens"):
        if key in flags.values:
            flags.values[key] -= tokens
    flags.assumed.append(f"{tokens:,} tokens of each sample are images, the others text")


# Accelerator and node, and their links.

VENDOR_WORDS = re.compile(r"\b(nvidia|amd|instinct|geforce|tesla|intel|aws)\b")
NICS = re.compile(r"(\d+)\s*x\s*(?:[^,;:\d]|\d(?!\d*\s*g))*?(\d+)\s*g(?:b|be|bps|bit)\b", re.IGNORECASE)
LINE_RATE = re.compile(r"(\d+)\s*g(?:b|be|bps|bit)?(?:/s(?:ec)?)?\b", re.IGNORECASE)
PER_GPU = re.compile(r"(?:\b(?:per|each|every)[\s-]+|/\s*)(?:gpu|rank|accelerator|device|card|gcd)\b")
LEAST_NIC_GBIT_PER_S = 25.0  # slower ports manage the node
CUBE_MESH_QUAD = 4
RACK_ACCELERATORS = 72  # GB200 and GB300: one NVLink domain a rack


class Hardware(Immutable):
    """A node of a record's, and what was assumed about it. `key` tells nodes apart."""

    key: str
    server: Server
    assumed: tuple[str, ...]


def find_hardware(record: Record, registry: Registry) -> Hardware:
    """Find the node that a record ran on.

    With one node the usual one of its kind stands for it; with several, `gpus_per_node` and `interconnect` do.

    Raises
    ------
    InputError : an accelerator that nothing here describes
    """
    gpu, assumed = _accelerator(record.gpu or "", registry)
    text = _link_text(record.interconnect)
    scale_up = _scale_up(text["intra"], gpu, registry)
    usual = registry.bare_server(gpu, record.gpus_per_node or record.gpus or 8)
    per_node = record.gpus_per_node
    rack = usual.accelerators >= RACK_ACCELERATORS and usual.host_accelerators is None  # and no slice of a torus
    several = record.gpus is not None and per_node is not None and record.gpus > per_node and not rack
    count = per_node if several and per_node else usual.accelerators
    networks = names().networks.items()
    fabric = next((name for name, words in networks if any(word in text["inter"] for word in words)), None)
    scale_out = _scale_out(text["inter"], count, fabric) if several else None
    if several and scale_out is None:
        assumed = (*assumed, "network between nodes not stated: the usual one of such nodes")
    if count == usual.accelerators and scale_up is None and scale_out is None and fabric is None:
        return Hardware(f"{usual.name}", usual, assumed)
    kind = scale_up or usual.scale_up
    network = scale_out or usual_scale_out(gpu, count, registry.fabric(kind).node_fabric())
    if scale_out is None and fabric:  # the usual rate over the fabric that is stated
        network = ScaleOut(gbit_per_s=network.gbit_per_s, nics=network.nics, fabric=fabric)
    node = _node(gpu, count, kind, network, registry)
    words = f"{network.nics}x {network.gbit_per_s:g} Gbit per s {network.fabric or ''}".strip()
    return Hardware(f"{count}x {gpu.name}, {node.scale_up}, {words}", node, assumed)


def counted_in_devices(record: Record, registry: Registry) -> Record:
    """The record with the devices that software sees in its chips, where it counts chips of several.

    Degrees of parallelism count devices, whatever else a publication counts: tensor parallel 32 is all of 16 Trainium1.
    """
    part = registry.part_of(VENDOR_WORDS.sub("", (record.gpu or "").lower()).strip(" -_"))
    if part is None:
        return record
    each, measured = part.devices, record.measured
    rates = ("tokens_per_s_per_gpu", "output_tokens_per_s_per_gpu")
    of_a_device = {name: rate / each for name in rates if (rate := getattr(measured, name)) is not None}
    counts = ("gpus", "gpus_per_node", "trainer_gpus")
    devices = {name: count * each for name in counts if (count := getattr(record, name)) is not None}
    return replace(record, gpu=part.name, measured=replace(measured, **of_a_device), **devices)


def _accelerator(name: str, registry: Registry) -> tuple[Accelerator, tuple[str, ...]]:
    table = names()
    bare = VENDOR_WORDS.sub("", name.lower()).strip(" -_")
    alias = look_up(table.gpus, bare)
    if alias is not None:
        return registry.accelerator(alias), (f"gpu '{name}' read as {alias}",)
    return registry.accelerator(bare), ()


def _link_text(interconnect: Any) -> dict[str, str]:
    """What the record says about links inside and between nodes, in lower case."""
    if isinstance(interconnect, Mapping):
        return {key: f" {interconnect.get(key) or ''} ".lower() for key in ("intra", "inter")}
    return {"intra": f" {interconnect or ''} ".lower(), "inter": ""}


def _scale_up(text: str, gpu: Accelerator, registry: Registry) -> str | None:
    """Fabric inside the node where the record's words differ from what is usual for the accelerator."""
    nodes = names().nodes
    linked = nodes.link_word in text and f"no {nodes.link_word}" not in text
    if nodes.bus_word in text and not linked:
        return nodes.bus
    section = registry.fabric(gpu.link.kind).link if linked and gpu.link is not None else None
    if section is None:
        return None
    # A link that joins pairs of cards, which nodes are not assumed to have.
    bus = registry.fabric(section.usual_node.scale_up).node_fabric().bus
    return None if bus is None else nodes.bridged


def _scale_out(text: str, gpus: int, fabric: str | None) -> ScaleOut | None:
    """NICs of a node from words: '8x HDR 200Gb/s InfiniBand', '1600 Gbps node-node (RoCE)', '400 Gb/s per GPU'.

    Of several sets of NICs the fastest carries the job. A rate is the node's unless it is said to be each GPU's. None
    where no rate is stated.
    """
    sets = [
        (int(found[1]) * (gpus if int(found[1]) < gpus and _is_per_gpu(text, found) else 1), float(found[2]))
        for found in NICS.finditer(text)
        if float(found[2]) >= LEAST_NIC_GBIT_PER_S
    ]
    if not sets and "gb/s;" not in text:
        sets = [(gpus if _is_per_gpu(text, found) else 1, float(found[1])) for found in LINE_RATE.finditer(text)]
    if not sets:
        return None
    nics, rate = max(sets, key=lambda pair: pair[0] * pair[1])
    return ScaleOut(gbit_per_s=rate, nics=nics, fabric=fabric)


def _is_per_gpu(text: str, rate: re.Match[str]) -> bool:
    """Whether the words behind a rate, up to the next figure, or those before it in its clause say 'per GPU'."""
    behind = re.split(r"[\d;]", text[rate.end() :], maxsplit=1)[0]
    before = re.split(r"[\d,;()]", text[: rate.start()])[-1]
    return PER_GPU.search(behind) is not None or PER_GPU.search(before) is not None


def _node(gpu: Accelerator, count: int, scale_up: str, scale_out: ScaleOut, registry: Registry) -> Server:
    """A node of so many accelerators; four V100 are all joined with each other, eight are not."""
    nodes, kind = names().nodes, scale_up
    if count == 1:
        kind = nodes.single
    elif kind == nodes.single:
        kind = nodes.bus
    elif count <= CUBE_MESH_QUAD:
        kind = nodes.quads.get(kind, kind)
    profile = ServerProfile(
        name=f"record-{count}x-{gpu.name}",
        vendor=gpu.vendor,
        gpu=gpu.name,
        gpus=count,
        scale_up=ScaleUp(kind),
        source=Source(gpu.source),
        scale_out=scale_out,
    )
    return server(profile, gpu, registry.fabric)


# The job: by its name, by another name of it, or the nearest that has equations.


@cache
def _named_jobs() -> Mapping[str, MethodKind]:
    """Jobs by their names and their other names."""
    others = {alias: kind for kind in METHODS.values() for alias in kind.aliases}
    return others | METHODS


def find_method(record: Record) -> MethodKind | None:
    """Find the job that a record names, or the nearest to it: of an optimizer's name, all learns. None without one."""
    stated = record.job.strip().lower()
    near = look_up(names().jobs, stated)
    named = METHODS.get(stated) or (METHODS.get(near) if near else None) or _named_jobs().get(plain(stated))
    if named is None and optimizer_of_job(record):
        return next(kind for kind in METHODS.values() if kind.default)
    return named


def optimizer_of_job(record: Record) -> str | None:
    """The optimizer that a record names as its job, as BAdam's and GaLore's authors do; None where it names none."""
    name = BUILT_IN.called("optimizer", record.job.strip().lower())
    return name if name in BUILT_IN.names("optimizer") and plain(record.job) not in _adapters() else None


@cache
def _adapters() -> Mapping[str, AdapterKind]:
    """Kinds of adapters by their names and their other names, spelt as records do."""
    others = {plain(alias): kind for kind in ADAPTERS.values() for alias in kind.aliases}
    return others | {plain(name): kind for name, kind in ADAPTERS.items()}


def find_adapter(record: Record) -> AdapterKind | None:
    """Find the kind of adapters that a record names as its optimizer (some keep to one kind) or its job; else None."""
    by_job = None if find_method(record) else _adapters().get(plain(record.job))
    return _adapters().get(plain(record.optimizer or "")) or by_job


def put_job(record: Record, flags: Flags) -> MethodKind:
    """Put the nearest job with equations into the flags, with the adapters that quantised weights mean; return it.

    What learns from its own answers, but was measured without writing any, is its training phase: fine-tuning.

    Raises
    ------
    InputError : a job that has no equation
    """
    kind = find_method(record)
    if adapter := find_adapter(record):
        kind = _of_task(record, next(other for other in METHODS.values() if other.default), flags)
        flags.put("job", kind.name)
        flags.put("adapter", adapter.name)
        return kind
    if kind is None:
        raise InputError(Problem(f"job '{record.job}': no equation, and none is near"))
    if kind.rollout is not None and not record.reinforces:
        kind = next(other for other in METHODS.values() if other.default)
        if record.lora != Lora() and kind.lighter:
            kind = METHODS[kind.lighter]
        flags.assumed.append(f"job '{record.job}' predicted as {kind.name}: its training phase alone")
    elif kind.name != record.job.strip().lower():
        flags.assumed.append(f"job '{record.job}' predicted as {kind.name}")
    kind = _of_task(record, kind, flags)
    flags.put("job", kind.name)
    return _quantised(record, kind, flags)


def _of_task(record: Record, kind: MethodKind, flags: Flags) -> MethodKind:
    """The job that the record's task is, with the same adapters, or the same job with what its task reads."""
    if TASK not in kind.reads or record.task is None:
        return kind
    own = look_up(names().jobs_by_task, record.task)
    if own is None:
        flags.word(TASK, names().tasks, record.task)
        return kind
    flags.put("adapter", kind.adapter)
    flags.assumed.append(f"job '{record.job}' predicted as {own}: its task")
    return METHODS[own]


def _quantised(record: Record, kind: MethodKind, flags: Flags) -> MethodKind:
    """The job on quantised weights, where the record's are: under the name that means them, or with their adapters."""
    weights = plain(record.weights or "")
    if not any(word in weights for word in names().quantised_weights):
        return kind
    quantised = next(other for other in METHODS.values() if other.quantises)
    if kind.build is not quantised.build and kind.implies_adapter:
        flags.put("adapter", quantised.adapter, f"{record.weights} weights: with the adapters of {quantised.name}")
        return kind
    if kind is not quantised:
        flags.put("job", quantised.name, f"{record.weights} weights: predicted as {quantised.name}")
    return quantised


# Answers of reinforcement learning: their lengths, and the pools that write them.

PROMPT_TOKENS = 110.0  # of mathematical problems in a chat template, where a source counts them with the answers


def reinforces(record: Record) -> bool:
    """Whether a record is of a job that learns from answers which it wrote itself."""
    kind = find_method(record)
    return kind is not None and kind.rollout is not None and record.reinforces


def trainer_of(record: Record) -> Record:
    """The record of those that train: their GPUs, and the batch of an optimizer step.

    An optimizer step takes all answers of an iteration where nothing else is stated.
    """
    batch, gpus = record.batch, record.gpus
    answers = (batch.prompts or 0) * (batch.group or 1)
    total = batch.total or answers or None
    if total and answers:
        total = min(total, answers)
    if gpus is not None and record.trainer_gpus is not None:
        gpus = record.trainer_gpus
    return msgspec.structs.replace(record, gpus=gpus, batch=msgspec.structs.replace(batch, total=total))


def put_rollout(record: Record, registry: RecordRegistry, flags: Flags) -> None:
    """Put the section `rollout`, and the models that stand beside the actor."""
    flags.put("rollout.prompts", record.batch.prompts)
    flags.put("rollout.group", record.batch.group)
    _rollout_lengths(record, flags)
    _pools(record, flags)
    _critic_pool(record, flags)
    rollout = record.rollout
    _engine(record, registry, flags)
    flags.put("rollout.tp", rollout.tp)
    for name in ("pp", "ep"):  # engines have neither unless they are told
        flags.put(f"rollout.{name}", getattr(rollout, name) or 1)
    flags.put("rollout.gpu_memory_utilization", rollout.gpu_memory_utilization)
    flags.put("rollout.weights", rollout.weights)
    flags.put("rollout.offload", rollout.offload)
    flags.put("rollout.max_sequences", rollout.max_sequences)
    for key in ("critic_model", "reward_model"):
        _companion(record, key, registry, flags)


def _engine(record: Record, registry: RecordRegistry, flags: Flags) -> None:
    """What writes the answers, in the release that the framework names, else in the one that came with the stack's."""
    table, stated = names().rollout_engines, record.rollout.engine
    usual = load_stack(str(flags.values["stack"]), finder=registry).rollout.engine
    bare = split_release(usual)[0] if stated is None else look_up(table, stated.lower())
    release = release_in((record.framework or "").lower(), (bare,)) if bare else None
    if bare and release and load_engine(bare).releases:
        flags.put("rollout.engine", f"{bare}@{release}")
    elif stated is not None and bare == split_release(usual)[0]:
        flags.put("rollout.engine", usual)
    else:
        flags.word("rollout.engine", table, stated)


def usual_prompts(record: Record, flags: Flags) -> None:
    """Where the prompts of an iteration are not stated, they make one optimizer step."""
    if record.batch.prompts is None:
        group, batch = record.batch.group or 1, flags.values.get("train.global_batch", 1)
        flags.put("rollout.prompts", -(-batch // group), "an iteration of one optimizer step: prompts not stated")


def _critic_pool(record: Record, flags: Flags) -> None:
    """GPUs that neither train the actor nor write its answers are the critic's, and of its reward model."""
    gpus, actor = record.gpus, record.trainer_gpus
    if record.colocated and gpus is not None and actor is not None and actor < gpus:
        flags.put("critic.gpus", gpus - actor)
        flags.put("reward.with_critic", value=True)


def _rollout_lengths(record: Record, flags: Flags) -> None:
    """Tokens of prompts and answers; where a source counts both together, prompts are as long as problems are."""
    inputs, outputs = record.input_len, record.output_len
    if outputs is None and record.mean_tokens is not None:
        if inputs is None:
            inputs = min(PROMPT_TOKENS, record.mean_tokens / 2.0)
            flags.assumed.append(f"prompts of {inputs:g} tokens: counted with their answers")
        outputs = record.mean_tokens - inputs
    if outputs is None:
        flags.assumed.append("answers as long as is usual: lengths not stated")
    elif inputs is None:
        flags.assumed.append("prompts as long as is usual: not stated")
    flags.put("rollout.input_tokens", inputs)
    flags.put("rollout.output_tokens", outputs)
    flags.put("rollout.max_output_tokens", record.max_output_len)
    if record.max_prompt_len and record.max_output_len:
        flags.put("train.seq_len", record.max_prompt_len + record.max_output_len)


def _pools(record: Record, flags: Flags) -> None:
    """Which GPUs write answers, and whether they do so while others train."""
    gpus, rollout = record.gpus, record.rollout
    if record.colocated is not False:
        flags.put("rollout.colocated", record.colocated)
        return
    apart = rollout.gpus
    if gpus is not None and record.trainer_gpus is not None:
        apart = gpus - record.trainer_gpus
    flags.put("rollout.colocated", value=False)
    flags.put("rollout.gpus", apart)
    flags.put("rollout.asynchronous", record.asynchronous)
    if record.asynchronous:
        flags.put("rollout.max_staleness", rollout.staleness)
        flags.put("rollout.partial", rollout.partial)
    if rollout.gpu and rollout.gpu != record.gpu:
        flags.assumed.append(f"answers are written on {rollout.gpu}: predicted on the trainer's {record.gpu}")


def _companion(record: Record, key: str, registry: RecordRegistry, flags: Flags) -> None:
    """A critic or a reward model, where it is another model than the actor."""
    stated = getattr(record, key)
    if stated is None or stated == record.model:
        return
    try:
        found = find_model(msgspec.structs.replace(record, model=stated, shape=Shape()), registry)
    except InputError:
        flags.assumed.append(f"{key} '{stated}' is unknown here: as is usual")
        return
    registry.built_models[found.name] = found.shape
    flags.put(f"train.{key}", found.name)


# Replicas and batch: what is stated, and what follows.

# Pre-training batches hold about 4 M tokens (LLaMA, arXiv:2302.13971, section 2.3).
PRETRAINING_BATCH_TOKENS = 4 * 2**20
PRETRAINING_SEQ_LEN = 2048
FINE_TUNING_BATCH = 128
ROUNDED_BATCH = 0.05


def replicas_fit(record: Record, flags: Flags) -> None:
    """Stated replicas that do not go with the number of GPUs are dropped; the rest of the GPUs are data parallel."""
    layout, gpus = record.layout, record.gpus
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1)
    if layout.dp is None or gpus is None or group * layout.dp == gpus:
        return
    if layout.tp is None and layout.pp is None and gpus % layout.dp == 0:
        return
    flags.values.pop("layout.dp")
    flags.assumed.append(f"dp {layout.dp} does not go with {gpus} GPUs: the rest of the GPUs")


def _replicas(record: Record) -> int:
    """Data-parallel ranks that the record states or implies, all GPUs where it says nothing of the layout [-]."""
    layout = record.layout
    gpus = record.gpus or layout.dp or 1
    group = (layout.tp or 1) * (layout.pp or 1) * (layout.cp or 1)
    if layout.dp and (record.gpus is None or group * layout.dp == gpus):
        return layout.dp
    return max(gpus // group, 1)


def put_batch(record: Record, job: MethodKind, flags: Flags) -> None:
    """global = micro x accumulation x replicas, whichever two are stated; else what is usual for the job.

    Who accumulates over micro-batches of unstated size is taken to have no room for more than a sequence in each.
    Accumulation that is not stated is none, but for pipelines, which one micro-batch does not fill: before 0.10
    Megatron-Core refuses to interleave fewer than there are stages (pipeline_parallel/schedules.py).
    """
    batch, replicas = record.batch, _replicas(record)
    tokens = _tokens(batch.tokens)
    total, micro = batch.total, batch.micro
    seq_len = flags.values.get("train.seq_len") or PRETRAINING_SEQ_LEN
    if total is None and tokens:
        total = _whole_share(tokens / seq_len / replicas, isinstance(batch.tokens, str)) * replicas
    if total is None and micro is None and batch.grad_accum:
        micro = 1
        flags.assumed.append(
            f"{batch.grad_accum * replicas} sequences a step, one a micro-batch: global batch not stated"
        )
    if total is None and micro is not None and (batch.grad_accum or (record.layout.pp or 1) == 1):
        total = micro * (batch.grad_accum or 1) * replicas
        if batch.grad_accum is None:
            flags.assumed.append("no gradient accumulation: not stated")
    elif total is None:
        usual = FINE_TUNING_BATCH if job.fine_tunes else PRETRAINING_BATCH_TOKENS // seq_len
        shared = replicas * (micro or 1)
        total = -(-max(usual, shared) // shared) * shared
        flags.assumed.append(f"{total} sequences a step: global batch not stated")
    if micro is None and batch.grad_accum and total % (batch.grad_accum * replicas) == 0:
        micro = total // (batch.grad_accum * replicas)
    if micro and total % (micro * replicas):
        rounded = max(round(total / (micro * replicas)), 1) * micro * replicas
        flags.assumed.append(f"global batch {rounded} for {total}, which {replicas} replicas of {micro} cannot share")
        total = rounded
    flags.put("train.global_batch", total)
    flags.put("train.micro_batch", micro)


def _whole_share(sequences: float, rounded: bool) -> int:
    """A replica's sequences of a batch of so many tokens; of a rounded count ("2M") what halves most often within 5 %.

    Batches are powers of two, or a small number of them: GPT-3's 3.2M tokens are 1,536 sequences of 2,048.
    """
    part = 2 ** int(math.log2(max(sequences, 1.0))) if rounded else 1
    while part > 1 and abs(round(sequences / part) * part / sequences - 1.0) > ROUNDED_BATCH:
        part //= 2
    return max(round(sequences / part) * part, 1)


def _tokens(stated: float | str | None) -> float | None:
    """Tokens of a batch, also from words such as '2M'."""
    if not isinstance(stated, str):
        return stated
    found = re.fullmatch(r"([\d.]+)\s*([kKmM]?)", stated.strip())
    return float(found[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[found[2].lower()] if found else None


# The scenario. Nothing here looks at what was measured, at the id or at the source.

# Where a source says nothing about lengths. Public instruction data have means of 77 (Alpaca), 210 (MetaMath) and
# about 300 tokens (Orca-Math).
INSTRUCTION_TOKENS = 200.0
INSTRUCTION_SEQ_LEN = 2048
NOT_STATED = ("lengths not stated", "length not stated", "global batch not stated", "prompts not stated")
FULLY_SHARDED = 3  # ZeRO stage
SAME_MEAN = 1e-4  # means of two data sets differ by more


class Asked(Immutable):
    """Flags of a scenario, what was assumed for them, and how the record's stack counts steps.

    tuned : recomputation is not stated, and the framework's recipes set it to what memory needs
    guessed : neither lengths nor batch may be what the run had, for the record leaves them out; or its optimizer,
    adapters or task, which have a name that is unknown here, or the release of its stack, where neither that nor a
    month is stated
    """

    flags: Mapping[str, Any]
    assumed: tuple[str, ...]
    counts_micro_batches: bool
    tuned: bool
    guessed: bool


def build_scenario(record: Record, registry: RecordRegistry) -> Asked:
    """The flags of `read_scenario` that say what the record says; models and nodes go into the registry.

    Raises
    ------
    InputError : what makes the record impossible to size, in words that fit after "skipped:"
    """
    flags = Flags()
    job = put_job(record, flags)
    model = find_model(record, registry)
    registry.built_models[model.name] = model.shape
    hardware = find_hardware(record, registry)
    registry.built_servers[hardware.key] = hardware.server
    stack = choose_stack(record)
    registry.built_stacks[stack.name] = stack.stack
    flags.assumed += [*model.assumed, *hardware.assumed, *stack.assumed]
    flags.put("model", model.name)
    flags.put("server", hardware.key)
    flags.put("gpus", record.gpus)
    flags.put("stack", stack.name)
    _precision(record, hardware.server.accelerator, stack, adapts(record, job, flags), flags)
    backend = plain(record.backend or "")
    if backend in stack.stack.runs_on:
        flags.put("train.backend", backend)
    elif backend:
        flags.assumed.append(f"backend '{record.backend}': {stack.name} has no choice of it here")
    _software(record, stack, flags)
    _fp8_recipe(record, stack, hardware.server.accelerator, flags)
    known = _batch_and_layout(record, job, model.shape, stack, registry, flags)
    _companions(record, job, registry, flags)
    flags.put("train.dropout", record.dropout)
    flags.put("train.mtp_layers", record.mtp_layers or None)
    flags.put("train.expert_skew", record.expert_skew if model.shape.experts else None)
    flags.put("train.empty_cache_steps", record.empty_cache_steps or None)
    flags.put("train.target_len", record.target_len)
    adapted = adapts(record, job, flags)
    adapters(record, job, model.shape, flags)
    quantiser(record, job, stack.quantiser, flags)
    table = names()
    _optimizer(record, stack.optimizers, flags)
    flags.word("attention", table.attention, record.attention)
    _uneven_stages(model.shape, flags)
    guessed = any(text.endswith(NOT_STATED) for text in flags.assumed)
    # Words that nobody here knows, of which none may become another one unseen.
    said = {"optimizer": record.optimizer, "lora.targets": record.lora.targets if adapted else None}
    said |= {TASK: record.task if TASK in job.reads else None}
    guessed |= any(word is not None and key not in flags.values for key, word in said.items())
    return Asked(
        flags=flags.values,
        assumed=tuple(flags.assumed),
        counts_micro_batches=stack.counts_micro_batches,
        tuned=record.recompute is None and known.tuned,
        guessed=guessed,
    )


def _batch_and_layout(
    record: Record, job: MethodKind, model: ModelShape, stack: ChosenStack, registry: RecordRegistry, flags: Flags
) -> Recipes:
    """What an optimizer step takes and how it is spread; of those that write answers, over the GPUs that train."""
    written = reinforces(record)
    if written:
        put_rollout(record, registry, flags)
    else:
        _lengths(record, job, model.max_positions, flags)
    trained = trainer_of(record) if written else record
    known = recipes(record, stack.plain_name)
    _layout(trained, known, flags)
    _usual_layout(trained, stack.defaults, known, job, flags)
    put_batch(trained, job, flags)
    if written:
        usual_prompts(record, flags)
    put_images(record, model, flags)
    return known


def _companions(record: Record, job: MethodKind, registry: RecordRegistry, flags: Flags) -> None:
    """What stands beside the model that learns: where a reference comes from, and the model that teaches."""
    if "train.reference" in job.reads:
        flags.put("train.reference", record.reference)
    if "train.teacher_model" in job.reads and record.teacher_model is not None:
        teacher = find_model(msgspec.structs.replace(record, model=record.teacher_model, shape=Shape()), registry)
        registry.built_models[teacher.name] = teacher.shape
        flags.put("train.teacher_model", teacher.name)


def _precision(record: Record, gpu: Accelerator, stack: ChosenStack, adapts: bool, flags: Flags) -> None:
    """The precision, or the next one that the accelerator has: fp8 to bf16, bf16 to fp16; int8 where the stack has it.

    Where it is not stated, that of the stack's recipes: NVIDIA's of adapters keep frozen weights in 8 bit.
    """
    if record.precision is None:
        if adapts and FP8 in stack.weights_dtypes and FP8 in gpu.peak_flops_per_s:
            flags.put("precision", FP8, "precision fp8, as recipes of adapters have it: precision not stated")
        return
    stated = record.precision.strip().lower()
    wanted = look_up(names().precisions, stated) or stated
    found = wanted
    if found == INT8 and casts_of(stack.stack, INT8, gpu.peak_flops_per_s) is None:
        found = BF16
    for narrower, wider in ((FP4, FP8), (FP8, BF16), (BF16, FP16)):
        if found == narrower and found not in gpu.peak_flops_per_s:
            found = wider
    if found not in gpu.peak_flops_per_s:
        flags.assumed.append(f"precision '{record.precision}' is unknown here: the stack's default")
        return
    flags.put("precision", found, None if found == stated else f"precision {record.precision} predicted as {found}")


def _gradients(record: Record, stack: ChosenStack, flags: Flags) -> None:
    """What gradients are kept and exchanged in, where the stack has a choice of it."""
    precision = str(flags.values.get("precision") or stack.stack.defaults.precision)
    for (key, choice), stated in zip(OF_GRADIENTS.items(), (record.gradient_dtype, record.reduce_dtype), strict=True):
        dtype = look_up(names().weights_dtypes, stated or "")
        if dtype in stack.stack.gradient_dtypes(choice, precision):
            flags.put(key, dtype)
        elif stated is not None:
            flags.assumed.append(f"gradients in '{stated}': {stack.name} has no choice of it here")


def _software(record: Record, stack: ChosenStack, flags: Flags) -> None:
    """What the weights were loaded in and which kernels were fused, where the stack has that."""
    table = names()
    for stated in (record.load_dtype, record.weights):
        dtype = look_up(table.weights_dtypes, stated or "")
        if dtype in stack.weights_dtypes and "train.weights_dtype" not in flags.values:
            flags.put("train.weights_dtype", dtype)
    _gradients(record, stack, flags)
    if stack.stack.mixes:
        flags.word("train.mixed_precision", table.mixed_precision, record.mixed_precision)
    elif record.mixed_precision is not None:
        flags.assumed.append(f"mixed precision '{record.mixed_precision}': {stack.name} has no choice of it here")
    _overlap(record, stack, flags)
    words = [plain(word) for word in _words(record.fused_kernels)]
    kernels = [name for word in words for name in table.fused_kernels.get(word, ())]
    kernels += _named_kernels(record, flags)
    if compiled(record) and stack.stack.kernels.norm == "eager":
        kernels.append("compiled")
    framework = (record.framework or "").lower()
    fuses = stack.stands_in or stack.stack.kernels.norm == "eager"  # others bring modules of their own
    in_words = table.fused_in_words if fuses else {}
    kernels += [name for word, name in (in_words | table.dispatch_in_words).items() if word in framework]
    flags.put("train.fused_kernels", tuple(dict.fromkeys(kernels)) or None)
    for word in words:
        if word not in table.fused_kernels:
            flags.assumed.append(f"fused kernel '{word}' is unknown here")


def _overlap(record: Record, stack: ChosenStack, flags: Flags) -> None:
    """Exchanges that compute hides as the record says, as far as the stack can."""
    hidden = []
    for word in _words(record.overlap):
        known = look_up(names().overlap, word)
        if known in ("on", "off", *stack.stack.overlap.can_hide):
            hidden.append(known)
        else:
            flags.assumed.append(f"overlap '{word}' is none of {stack.name} here: not hidden")
    if record.overlap is not None:
        flags.put("train.overlap", tuple(hidden) or ("off",))


def _fp8_recipe(record: Record, stack: ChosenStack, gpu: Accelerator, flags: Flags) -> None:
    """The stated recipe of products in 8 bit, or the one that the name of a precision is, where both can do it."""
    stated = look_up(names().fp8_recipes, record.fp8_recipe or record.precision or "")
    if stated is None or flags.values.get("precision") != FP8:
        return
    if stated in stack.fp8_recipes and (stated not in BLOCK_SCALED or FP4 in gpu.peak_flops_per_s):
        flags.put("train.fp8_recipe", stated)
    else:
        flags.assumed.append(f"fp8 recipe '{stated}' is not one of {stack.name} here: the stack's")


def _words(stated: str | bool | tuple[str, ...] | None) -> list[str]:
    """The things that a field lists."""
    if isinstance(stated, tuple):
        return list(stated)
    return [] if stated is None else re.split(r"\s*[,;+]\s*", str(stated).strip().lower())


def _named_kernels(record: Record, flags: Flags) -> list[str]:
    """Fused kernels among those that a run is named by; where these are of attention alone, the norm is not fused."""
    table, words = names(), _words(record.kernel)
    attention = [found for word in words if (found := look_up(table.attention, word.rstrip("0123456789.")))]
    if record.attention is None and attention:
        flags.word("attention", table.attention, attention[0])
    fused = [name for word in words for name in table.fused_kernels.get(plain(word), ())]
    return ["eager-norm"] if words and len(attention) == len(words) else fused


def _lengths(record: Record, job: MethodKind, most: int, flags: Flags) -> None:
    """Sequences of one length where `seq_len` is stated alone, else lengths of samples and how they are padded.

    Those of a known data set stand for what is not stated.

    most : positions that the model has [tokens]
    """
    flags.put("data.samples", record.samples)
    data = _data_set(record, flags)
    if record.mean_tokens is not None:
        _sample_lengths(record, flags, record.mean_tokens, data)
    elif record.seq_len is not None:
        flags.put("train.seq_len", record.seq_len)
        flags.put("train.padding", "packed")
    elif not job.fine_tunes:
        text = f"sequences of {PRETRAINING_SEQ_LEN} tokens: length not stated"
        flags.put("train.seq_len", record.max_seq_len or PRETRAINING_SEQ_LEN, None if record.max_seq_len else text)
        flags.put("train.padding", "packed")
    elif data is not None:
        _sample_lengths(record, flags, data.tokens_read, data)
    else:
        cut = record.longest_sample_tokens or record.max_seq_len or min(INSTRUCTION_SEQ_LEN, most)
        mean = min(INSTRUCTION_TOKENS, cut / 2)
        flags.assumed.append(f"samples of {mean:g} tokens on average: lengths not stated")
        _sample_lengths(record, flags, mean, None)
    said = f"{record.framework or ''} {record.padding or ''}".lower()
    without_padding = bool(record.packing) or any(word in said for word in names().without_padding)
    if record.packing and record.seq_len:
        flags.put("train.padding", "packed")
    elif without_padding and flags.values.get("train.padding") != "packed":
        flags.put("train.padding", "none")
    elif any(word in said for word in names().grouped_by_length):
        flags.put("train.padding", "grouped-by-length")
    elif record.padding is not None:
        flags.word("train.padding", names().padding, record.padding)


def _sample_lengths(record: Record, flags: Flags, mean: float, data: DatasetProfile | None) -> None:
    """Statistics of the samples; those of a known data set where the record names it or the stated mean is its own."""
    longest = record.longest_sample_tokens
    flags.put("train.seq_len", record.max_seq_len or record.seq_len or longest)
    same = [one for one in _data_sets() if math.isclose(one.mean_tokens, mean, rel_tol=SAME_MEAN)]
    whole = data if data and mean == data.tokens_read else next(iter(same), None)
    if whole and longest is None and record.samples is None:
        told = "named" if whole is data else "which has this mean"
        flags.put("data.profile", whole.name, f"lengths of the data set {whole.name}, {told}")
        return
    flags.put("data.mean_tokens", mean, f"samples of {mean:g} tokens, as {data.name} has" if data and whole else None)
    longest = longest or (data.max_tokens if data else None)
    flags.put("data.max_tokens", longest if longest and longest > mean else None)


def _data_set(record: Record, flags: Flags) -> DatasetProfile | None:
    """The known data set that the record names."""
    if record.dataset is None:
        return None
    named = BUILT_IN.called("dataset", record.dataset.strip())
    known = next((data for data in _data_sets() if data.name == named), None)
    if known is None:
        flags.assumed.append(f"data set '{record.dataset}' is unknown here")
    return known


@cache
def _data_sets() -> tuple[DatasetProfile, ...]:
    return tuple(load_dataset(name) for name in BUILT_IN.names("dataset"))


def _layout(record: Record, known: Recipes, flags: Flags) -> None:
    """What the record fixes of the layout.

    Where a pipeline is stated without it, interleaving is off, or left to the search if the recipes interleave or the
    schedule has several chunks by itself.
    """
    layout, table = record.layout, names()
    schedule = look_up(table.schedules, record.pipeline_schedule or "")
    chunked = any(row.least_chunks > 1 for row in ROWS if row.name == schedule)
    for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "zero_group"):
        size = getattr(layout, name)
        flags.put(f"layout.{name}", size if size or name == "zero" else None)
    if (layout.ep or 1) > 1 or (layout.tp or 1) > 1:
        flags.put("layout.expert_tp", layout.expert_tp or None)
    if (layout.cp or 1) > 1:
        flags.put("layout.cp_kind", layout.cp_kind)
    if (layout.pp or 1) > 1:
        flags.put("layout.first_stage_layers", layout.first_stage_layers or None)
        flags.put("layout.last_stage_layers", layout.last_stage_layers or None)
    if layout.pp is not None and layout.vpp is None and not (known.interleaves or chunked):
        flags.put("layout.vpp", 1)
    if layout.megatron_fsdp:
        flags.put("layout.zero", 3)
    if (layout.tp or 1) > 1:
        flags.put("layout.sequence_parallel", layout.sequence_parallel)
    _recompute(record, flags)
    _offload(record, flags)
    for name in ("capacity_factor", "pad_to_capacity"):
        flags.put(f"train.{name}", getattr(record, name))
    flags.word("layout.schedule", table.schedules, record.pipeline_schedule)
    replicas_fit(record, flags)


def _recompute(record: Record, flags: Flags) -> None:
    """What runs again in the backward: whole layers and how many, or what is selected and of which modules."""
    flags.word("layout.recompute", names().recompute, record.recompute)
    for name in ("recompute_policy", "recompute_keep", "recompute_offload"):
        flags.put(f"layout.{name}", getattr(record, name))
    if flags.values.get("layout.recompute") == "selective":
        flags.put("layout.recompute_modules", record.recompute_modules or None)
    if flags.values.get("layout.recompute") == "full":
        flags.put("layout.recompute_layers", record.recompute_layers or None)


def _offload(record: Record, flags: Flags) -> None:
    """What the record keeps in host memory, however many things and in whatever order it names them."""
    if record.offload is None:
        return
    words = re.split(r"\s*(?:[+,;&]|\band\b)\s*", str(record.offload).lower())
    known = {look_up(names().offload, word) for word in words}
    parts = frozenset().union(*(offloaded_parts(word) for word in known if word))
    flags.put("layout.offload", next(name for name in OFFLOAD if offloaded_parts(name) == parts))
    if None in known:
        flags.assumed.append(f"offload '{record.offload}' is not all known here")


def _usual_layout(record: Record, defaults: Defaults, known: Recipes, job: MethodKind, flags: Flags) -> None:
    """Recomputation and sharding as the record's framework has them where the record says nothing of either.

    Who shards with ZeRO-3 is short of memory and may have turned recomputation on: left to the layout search.
    """
    layout, zero = record.layout, defaults.usual_zero
    split = any((size or 1) > 1 for size in (layout.tp, layout.pp, layout.cp, layout.ep)) or layout.megatron_fsdp
    if layout.zero is None and zero is not None and (record.gpus or 1) > 1 and not split and not record.offload:
        flags.put("layout.zero", zero, f"ZeRO {zero}: usual for {record.stack}")
    sharded = flags.values.get("layout.zero") == FULLY_SHARDED
    recompute = defaults.recompute_of(quantised=job.quantises, sharded=sharded) or known.recompute
    may_be_on = recompute == "none" and layout.zero == FULLY_SHARDED
    if record.recompute is None and recompute and not may_be_on:
        flags.put("layout.recompute", recompute, f"recompute {recompute}: usual for {record.stack}")


def _uneven_stages(model: ModelShape, flags: Flags) -> None:
    """Pipelines whose stages differ: published ones count the embedding and the head as layers."""
    pp, vpp = (flags.values.get(f"layout.{name}", 1) for name in ("pp", "vpp"))
    if model.layers % (pp * vpp):
        flags.put("layout.uneven_stages", True, f"{model.layers} layers on {pp} x {vpp} stages: the fullest decides")


def _optimizer(record: Record, known: tuple[str, ...], flags: Flags) -> None:
    """The optimizer as stated, or as the framework names it more exactly; unpaged where the stack has no pages."""
    words, text = names().optimizers_in_words, (record.framework or "").lower()
    named = next((words[word] for word in words if word in text), record.optimizer or optimizer_of_job(record))
    called = BUILT_IN.called("optimizer", str(named).strip()) if named else None
    flags.put("train.optimizer_rank", record.optimizer_rank)
    flags.word("optimizer", names().optimizers | {name: name for name in BUILT_IN.names("optimizer")}, called)
    chosen = flags.values.get("optimizer")
    if chosen is not None and chosen not in known:
        optimizer = load_optimizer(str(chosen))
        if optimizer.paged and optimizer.parent in known:
            flags.put(
                "optimizer", optimizer.parent, f"optimizer '{record.optimizer or chosen}' unpaged: it has no pages"
            )
