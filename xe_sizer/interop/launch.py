"""Launch commands: launchers, nodes and GPUs, and names of cards, and what of them says the shape of a job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.immutable import Immutable
from xe_sizer.interop.readers.shell_script import Word, parse_flags, unwrapped
from xe_sizer.interop.values import Unread, Written
from xe_sizer.profiles.catalogue import Registry, load_stack
from xe_sizer.profiles.finder import Finder, meant
from xe_sizer.profiles.text import read_text
from xe_sizer.software.stack import EXCHANGES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

    from xe_sizer.errors import Location
    from xe_sizer.graph.model import ModelShape
    from xe_sizer.interop.draft import Draft
    from xe_sizer.interop.readers.shell_script import Arguments, Command, Flag, Script
    from xe_sizer.interop.source import Source
    from xe_sizer.interop.values import Keys
    from xe_sizer.profiles.convert import KeyPath
    from xe_sizer.profiles.yaml_reader import Document

# Values of a document with their places, walked by key.

_WORD = 400  # characters of a key beyond which it is no name


class Node(Immutable):
    """A value of a document and the path to it. Steps to what is not there give None."""

    document: Document
    value: Any
    path: KeyPath = ()

    @property
    def where(self) -> Location:
        """Where the value stands."""
        return self.document.locate(self.path)

    @property
    def written(self) -> Written:
        """The value with its place."""
        return Written(self.value, self.where)

    def get(self, *steps: str) -> Node | None:
        """The value below keys; None where there is none or it is empty."""
        node = self
        for step in steps:
            if not isinstance(node.value, dict) or node.value.get(step) is None:
                return None
            node = Node(self.document, node.value[step], (*node.path, step))
        return node

    def said(self, *steps: str) -> Written | None:
        """`get`, with its place; None for groups and lists."""
        found = self.get(*steps)
        return found.written if found is not None and not isinstance(found.value, dict | list) else None

    def text(self, *steps: str) -> str:
        """Plain text below keys; empty where there is none."""
        found = self.said(*steps)
        return str(found.value) if found is not None else ""

    def each(self) -> Iterator[Node]:
        """The values of a list, or of a group in its order."""
        if isinstance(self.value, dict):
            for key in self.value:
                yield Node(self.document, self.value[key], (*self.path, key))
        elif isinstance(self.value, list):
            for place, value in enumerate(self.value):
                yield Node(self.document, value, (*self.path, place))

    def words(self) -> list[tuple[str, Location]]:
        """A list of plain values, or one plain value, as words of a command."""
        if isinstance(self.value, list):
            return [(str(each.value), each.where) for each in self.each() if not isinstance(each.value, dict | list)]
        return [] if self.value is None or isinstance(self.value, dict) else [(str(self.value), self.where)]

    def keys(self, prefix: str = "") -> Keys:
        """All plain values below, by dotted keys; lists of plain values are one value."""
        return dict(_leaves(self, prefix))


def _leaves(node: Node, prefix: str) -> Iterator[tuple[str, Written]]:
    value = node.value
    groups = isinstance(value, list) and any(isinstance(each, dict | list) for each in value)
    if (isinstance(value, dict) and value) or groups:
        for each in node.each():
            name = str(each.path[-1])[:_WORD]
            yield from _leaves(each, f"{prefix}.{name}" if prefix else name)
    else:
        yield prefix, node.written


def plain_keys(node: Node | None) -> dict[str, Written]:
    """The values of a group by names with underscores, as arguments of a command have them."""
    return {} if node is None else {name.replace("-", "_"): written for name, written in node.keys().items()}


# Launchers: how many GPUs and nodes a launch command starts.
#
# torchrun and torch.distributed.launch (pytorch docs, elastic/run), accelerate launch, the deepspeed launcher, mpirun,
# srun with sbatch directives (Slurm), and variables that launchers and tools read.

_GRES = re.compile(r"(?:gres/)?gpu(?::[\w.-]+)?[:=](\d+)")
_COUNT = re.compile(r"(?:[\w.-]+:)?(\d+)")
_DEVICES = (
    "CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
_NODES_OF = ("NNODES", "NUM_NODES", "PET_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "WORLD_NODES", "N_NODES")
_PER_NODE_OF = (
    "NPROC_PER_NODE", "GPUS_PER_NODE", "PET_NPROC_PER_NODE", "NUM_GPUS_PER_NODE", "N_GPUS_PER_NODE", "NGPU",
    "NUM_GPUS", "NPROC", "GPU_NUM",
)  # fmt: skip


class Hardware(Immutable):
    """What a launch says of hardware; None where it says nothing.

    nodes, per_node : nodes, and GPUs of each; total : GPUs, or processes, of all nodes
    """

    nodes: Written | None = None
    per_node: Written | None = None
    total: Written | None = None

    def __or__(self, other: Hardware) -> Hardware:
        """What this says, and where it says nothing, the other."""
        return Hardware(self.nodes or other.nodes, self.per_node or other.per_node, self.total or other.total)


def state_gpus(draft: Draft, said: Hardware) -> None:
    """State the number of GPUs, and of nodes where only these are known."""
    nodes = _number(said.nodes) or 1
    if said.total is not None:
        draft.state("gpus", _number(said.total), said.total)
    elif said.per_node is not None:
        note = f"{nodes} nodes of {said.per_node.value} GPUs" if nodes > 1 else ""
        draft.state("gpus", nodes * (_number(said.per_node) or 1), said.per_node, note)
    if said.nodes is not None and (nodes > 1 or "gpus" in draft.facts):
        draft.state("nodes", nodes, said.nodes)


def launched_hardware(script: Script, command: Command) -> Hardware:
    """What the launchers of a command, its variables and the directives of its script say, the nearest first."""
    launch = unwrapped(command)
    found = Hardware()
    for runner in reversed((*command.within, *launch.runners)):
        found |= _of_runner(runner)
    variables = {name: word for name, word in script.variables.items() if isinstance(word, Word)}
    variables |= command.environment
    found |= Hardware(_first(variables, _NODES_OF), _first(variables, _PER_NODE_OF))
    return found | _of_directives(script.directives) | _visible(variables)


def _of_runner(runner: Command) -> Hardware:
    """A launcher's own flags."""
    name = runner.words[0].text.rpartition("/")[2]
    flags = parse_flags(runner.words[1:]).flags
    if name == "accelerate":
        return Hardware(_flag(flags, "num_machines"), None, _flag(flags, "num_processes"))
    if name.startswith("deepspeed"):
        return Hardware(_flag(flags, "num_nodes"), _flag(flags, "num_gpus")) | _included(flags)
    if name in ("mpirun", "mpiexec"):
        return Hardware(None, None, _flag(flags, "np", "n"))
    if name in ("srun", "sbatch", "salloc"):
        return _of_directives({flag: values.values[0] for flag, values in flags.items() if values.values})
    return Hardware(_flag(flags, "nnodes", "nnode"), _flag(flags, "nproc_per_node", "nproc-per-node"))


def _flag(flags: Mapping[str, Flag], *names: str) -> Written | None:
    found = next((flags[name] for name in names if name in flags and flags[name].values), None)
    return _whole(found.values[0]) if found is not None else None


def _included(flags: Mapping[str, Flag]) -> Hardware:
    """GPUs of `--include localhost:0,1@worker-1:0,1`."""
    flag = flags.get("include")
    if flag is None or not flag.values or flag.values[0].unknown:
        return Hardware()
    hosts = [host.partition(":")[2] for host in flag.values[0].text.split("@")]
    total = sum(len([gpu for gpu in host.split(",") if gpu.strip()]) for host in hosts)
    return Hardware(total=Written(total, flag.values[0].where)) if total else Hardware()


def _visible(variables: Mapping[str, Word]) -> Hardware:
    """GPUs that a variable makes visible, all of which a tool then uses."""
    word = next((variables[name] for name in _DEVICES if name in variables and not variables[name].unknown), None)
    listed = [part for part in word.text.split(",") if part.strip().isdecimal()] if word is not None else []
    return Hardware(per_node=Written(len(listed), word.where)) if word is not None and listed else Hardware()


def _of_directives(directives: Mapping[str, Word]) -> Hardware:
    """#SBATCH lines, and srun's flags of the same names."""
    named = {name.replace("-", "_"): word for name, word in directives.items()}
    nodes = _first(named, ("nodes", "N"))
    for name, pattern in (("gpus_per_node", _COUNT), ("gres", _GRES), ("G", _COUNT)):
        word = named.get(name)
        found = pattern.fullmatch(word.text) if word is not None else None
        if found and word is not None:
            return Hardware(nodes, Written(int(found[1]), word.where))
    return Hardware(nodes, None, _first(named, ("gpus",)))


def _first(variables: Mapping[str, Word], names: Iterable[str]) -> Written | None:
    return next((found for name in names if name in variables and (found := _whole(variables[name]))), None)


def _whole(word: Word) -> Written | None:
    """A whole number; of a range such as 1:4 the largest. None for `gpu`, `auto` and what is not known."""
    text = word.text.rpartition(":")[2].strip()
    return Written(int(text), word.where) if text.isdecimal() and int(text) > 0 else None


def _number(written: Written | None) -> int | None:
    return written.value if written is not None and isinstance(written.value, int) else None


# GPUs by the names that manifests, recipes and file names give to them.

_MAKERS = re.compile(r"^(nvidia|amd|intel)[-_ ]+(tesla[-_ ]+)?|[-_ ](shared|mig.*)$", re.IGNORECASE)
_GPU_WORD = re.compile(r"[a-z]+[0-9]+[a-z]*(?:-?[0-9]+gb?)?")
_USUAL = ("sxm", "oam")  # form factors of the accelerators of servers


class Gpu(Immutable):
    """A GPU of the catalogue; `clear` where its name can mean no other."""

    name: str
    clear: bool = True


@cache
def gpu_called(name: str) -> Gpu | None:
    """The GPU that a name means; of several, that of eight-way servers, if it is the only one of these; else None."""
    known = Finder().known("gpu")
    for text in dict.fromkeys((name.strip(), _MAKERS.sub("", name.strip()))):
        found = meant("gpu", text, known)
        if len(found) == 1:
            return Gpu(found[0])
        usual = [each for each in found if any(form in each for form in _USUAL)]
        largest = [each for each in usual if each.endswith("80gb")] or usual
        if len(largest) == 1:
            return Gpu(largest[0], clear=False)
    return None


def state_gpu(draft: Draft, written: Written | None, key: str = "") -> None:
    """State the GPU that a file names; where the name leaves the form factor open, that of servers is assumed.

    key : the foreign key, for what is told of a name that nothing here has
    """
    if written is None:
        return
    found = gpu_called(str(written.value))
    if found is None:
        if key:
            draft.lose(key, f"{written.value} is no GPU known here; pass --gpu")
        return
    if found.clear:
        draft.state("gpu", found.name, written)
    else:
        draft.assume("gpu", found.name, f"{written.value}, in the form that servers have", written.where)


def gpus_in(text: str) -> Iterator[Gpu]:
    """GPUs whose names are words of a text, such as that of a file: `dsr1_fp4_b300.sh`."""
    for word in re.split(r"[_/.\s]+", text.lower()):
        for part in dict.fromkeys((word, *word.split("-"))):
            found = gpu_called(part) if _GPU_WORD.fullmatch(part) else None
            if found is not None:
                yield found


# Commands of launch scripts: the one that starts a tool, and its flags as keys.


def find_command(source: Source, starts: Callable[[tuple[str, ...]], bool]) -> Command | None:
    """The command of a script that starts a tool; of several the last, which those before it prepare.

    starts : whether the words of a command do, launchers such as torchrun taken off: `swift sft --model ...`
    """
    commands = source.script.commands if source.script is not None else ()
    return next((each for each in reversed(commands) if starts(_words(each))), None)


def _words(command: Command) -> tuple[str, ...]:
    return tuple(word.text for word in unwrapped(command).command.words)


def command_arguments(command: Command, skipped: int = 1, switches: Collection[str] = frozenset()) -> Arguments:
    """The flags and positional words of what a command starts in the end.

    skipped : words before the arguments: the program, and subcommands
    switches : flags that take no value
    """
    return parse_flags(unwrapped(command).command.words[skipped:], switches)


def flag_keys(arguments: Arguments) -> Keys:
    """Flags as keys, without dashes and with `_` for `-`; a flag that stands alone is true."""
    return {name: Written(_value(flag), flag.where) for name, flag in arguments.flags.items()}


def _value(flag: Flag) -> object:
    if not flag.values:
        return True
    unknown = next((word for word in flag.values if word.unknown), None)
    if unknown is not None and len(flag.values) == 1:
        why = f"{', '.join(unknown.unknown)} is set elsewhere; pass --set {unknown.unknown[0]}=VALUE"
        return Unread(unknown.text, why)
    texts = [word.text for word in flag.values]
    return texts[0] if len(texts) == 1 else texts


# A model whose shape is written out: the catalogue's model of exactly that shape, else the shape itself.
#
# Keys are those of a model profile, dotted: `layers`, `hidden`, `experts.count`, `latent_attention.kv_rank`.

Stated = tuple[object, "Written | None"]
"""A value of a shape and where it stands; None where it is what the tool fills in."""
NEEDED = ("layers", "hidden", "vocab")
"""Keys without which a shape is no model."""
_EXPERTS: Mapping[str, object] = {
    "count": None, "per_token": None, "ffn": None, "shared_ffn": 0, "first_dense_layers": 0, "every_n_layers": 1,
}  # fmt: skip
_LATENT = ("query_rank", "kv_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_STATE_SPACE = ("state", "heads", "head_dim", "groups")
_NEAR = 0.02  # of the vocabulary: what padding, and tokens without a use, add to a published one
_RELEASED = re.compile(r"^released: [\"']?([\d-]+)", re.MULTILINE)


class Shape(Immutable):
    """What is stated of a model's shape.

    values : by key of a model profile
    padding : the vocabulary is rounded up to a multiple of it
    called : names that may be the model's, such as that of its tokenizer
    """

    values: Mapping[str, Stated]
    padding: int = 1
    called: tuple[str, ...] = ()

    def value(self, key: str) -> object:
        """The value of a key; None where nothing states it."""
        return self.values[key][0] if key in self.values else None

    @property
    def padded_vocab(self) -> int | None:
        """Rows of the embedding, with the padding."""
        vocab = self.value("vocab")
        return None if vocab is None else math.ceil(int(str(vocab)) / self.padding) * self.padding


def state_shape(draft: Draft, shape: Shape) -> None:
    """State the catalogue's model of that shape, else the shape as the keys of `model`; say what it lacks."""
    if shape.value("layers") is None and shape.value("hidden") is None:
        return
    found = models_like(shape)
    if found:
        written = shape.values["layers"][1] or shape.values["hidden"][1]
        others = ", ".join(each.name for each in found[1:3])
        draft.state("model", found[0].name, written, f"its shape; also that of {others}" if others else "its shape")
        return
    for key, (value, written) in shape.values.items():
        stated = shape.padded_vocab if key == "vocab" else value
        if written is not None:
            draft.state(f"model.{key}", stated, written)
        else:
            draft.default(f"model.{key}", stated)
    for key in NEEDED:
        if shape.value(key) is None:
            draft.miss(f"model.{key}", f"no file says the model's {key}", "--model NAME in place of the shape")


def models_like(shape: Shape) -> list[ModelShape]:
    """The catalogue's models of a shape, the likeliest first."""
    layers, hidden = shape.value("layers"), shape.value("hidden")
    if layers is None or hidden is None:
        return []
    named = {name for name in map(_profile_called, shape.called) if name}
    found: list[tuple[tuple[object, ...], ModelShape]] = []
    for path, released in _files_with(str(layers), str(hidden)):
        try:
            model = _registry().model(path.stem)
        except (InputError, OSError):
            continue
        if _is_like(model, shape):
            rank = (model.name not in named, model.vision is not None, _differences(model, shape), released, model.name)
            found.append((rank, model))
    return [model for _, model in sorted(found, key=lambda each: each[0])]


def vocabulary_of(name: str) -> int | None:
    """Rows of the embedding of the model that a tokenizer is called after; None where no profile has that name."""
    found = _profile_called(name)
    return _registry().model(found).vocab if found else None


def profile_layers(name: object) -> int | None:
    """Layers of the model that a scenario names; None where no profile has that name."""
    found = _profile_called(str(name))
    return _registry().model(found).layers if found else None


@cache
def _registry() -> Registry:
    return Registry()


@cache
def _profile_called(name: str) -> str | None:
    try:
        return _registry().model(name).name if name.strip() else None
    except (InputError, OSError):
        return None


@cache
def _texts() -> tuple[tuple[Path, str], ...]:
    """The profiles of the catalogue as text."""
    folders = [folder for folder, _ in _registry().places("model")]
    return tuple((path, read_text(path)) for folder in folders for path in sorted(folder.glob("*.yaml")))


def _files_with(layers: str, hidden: str) -> Iterator[tuple[Path, str]]:
    """Profiles of that depth and width, with their dates; a look at the text spares reading the others."""
    for path, text in _texts():
        if f"\nlayers: {layers}\n" in text and f"\nhidden: {hidden}\n" in text:
            released = _RELEASED.search(text)
            yield path, released[1] if released else "9999"


def _is_like(model: ModelShape, shape: Shape) -> bool:
    """Whether a model has all sizes that are stated, and no part that is not."""
    same = all(
        shape.value(key) in (None, value)
        for key, value in {
            "heads": model.heads, "tied_embeddings": model.tied_embeddings, "layer_pattern": model.layer_pattern
        }.items()
    )  # fmt: skip
    activation = shape.value("activation")
    gated = activation is None or replace(model, activation=str(activation)).gated == model.gated
    halves = model.encoder_layers == (shape.value("encoder_layers") or 0)
    causal = model.bidirectional == bool(shape.value("bidirectional"))
    return (
        same and gated and halves and causal and (model.state_space is None) == (not _has(shape, "state_space."))
        and _attention_is_like(model, shape) and _mlp_is_like(model, shape) and _vocab_is_like(model, shape)
    )  # fmt: skip


def _has(shape: Shape, prefix: str) -> bool:
    return any(key.startswith(prefix) for key in shape.values)


def _attention_is_like(model: ModelShape, shape: Shape) -> bool:
    mla, space = model.latent_attention, model.state_space
    if (mla is None) == _has(shape, "latent_attention."):
        return False
    if space is not None:
        stated = {key: shape.value(f"state_space.{key}") for key in _STATE_SPACE}
        if any(value not in (None, getattr(space, key)) for key, value in stated.items()):
            return False
    if mla is not None:
        return all(shape.value(f"latent_attention.{key}") == getattr(mla, key) for key in _LATENT)
    heads = shape.value("heads")
    head_dim = shape.value("head_dim") or (int(str(shape.value("hidden"))) // int(str(heads)) if heads else None)
    return shape.value("kv_heads") in (None, model.kv_heads) and head_dim in (None, model.head_dim)


def _mlp_is_like(model: ModelShape, shape: Shape) -> bool:
    experts = model.experts
    if (experts is None) == _has(shape, "experts."):
        return False
    if experts is not None:
        stated = {key: shape.value(f"experts.{key}") or other for key, other in _EXPERTS.items()}
        if any(value is not None and value != getattr(experts, key) for key, value in stated.items()):
            return False
        if not experts.first_dense_layers and experts.every_n_layers == 1:
            return True
    return shape.value("ffn") in (None, model.ffn)


def _vocab_is_like(model: ModelShape, shape: Shape) -> bool:
    vocab = shape.value("vocab")
    return vocab is None or abs(model.vocab - int(str(vocab))) <= max(shape.padding, _NEAR * model.vocab)


def _differences(model: ModelShape, shape: Shape) -> int:
    """In how much of what hardly changes memory or time a model differs from what is stated."""
    biases = shape.value("biases")
    stated = {
        "norm": model.norm, "position": model.position, "qk_norm": model.qk_norm, "activation": model.activation,
        "max_positions": model.max_positions,
    }  # fmt: skip
    found = sum(shape.value(key) not in (None, value) for key, value in stated.items())
    if isinstance(biases, tuple):
        found += ("qkv" in biases) != model.qkv_bias
        found += ("mlp" in biases) != model.mlp_bias
    if "qk_norm" not in shape.values:
        found += model.qk_norm is not None
    return found


# What compute hides: switches of some exchanges, beside what the stack does of the others.


def state_overlap(draft: Draft, switches: Mapping[str, tuple[Written, bool]]) -> None:
    """State the exchanges that compute hides once the stack is known: what a file says of some, its own of the others.

    switches : words of a file by the exchange that they turn on or off
    """
    if not switches:
        return

    def settle(known: Draft) -> None:
        overlap = load_stack(str(known.fact("stack"))).overlap if "stack" in known.facts else None
        hidden = []
        for exchange in EXCHANGES:
            name = exchange.replace("-", "_")
            # What is hidden all the same where it is off is not switched on.
            usual = overlap is not None and getattr(overlap, name) > overlap.switched_off.get(name, 0.0)
            if switches[exchange][1] if exchange in switches else usual:
                hidden.append(exchange)
        known.state("train.overlap", tuple(hidden) or ("off",), next(iter(switches.values()))[0])

    draft.following.append(settle)
