"""The one finder: names and paths to the files of every kind of profile, the user's before the built-in ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import msgspec

from xe_sizer.errors import InputError, Problem, did_you_mean, place_of
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.convert import convert
from xe_sizer.profiles.text import at_home, read_text
from xe_sizer.profiles.yaml_reader import PATH_HINT, load_yaml, name_problems
from xe_sizer.software.release import Release, split_release, version

if TYPE_CHECKING:
    from xe_sizer.errors import Where
    from xe_sizer.profiles.yaml_reader import Document

# Names as people write them: which profiles a name may mean, by its words.
#
# A name is taken apart into words. What tells one item from another (generation, size, form factor, memory, what
# follows the number) has to agree; what does not (makers, number formats, dates of a fine-tune) is left out. A word
# that
# nobody knows is a difference: better no match than a wrong one. A form factor that is not said is the commonest, where
# that has one memory: H100 is the SXM one, A100 may be any.

Words = tuple[str, ...]
LISTED_NAMES = 8  # names that a list of candidates shows


class Known(Immutable, eq=True):
    """A profile that a name may mean.

    aliases : other names of it; vendor : maker, lower case
    memory_gib : of an accelerator; gpu : name of a server's accelerator, of which it has `gpus`
    chip, devices : whose part an accelerator is, and how many such parts the chip has
    default : whether it stands for its kind where none is named
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    memory_gib: float = 0.0
    chip: str = ""
    devices: int = 1
    gpu: str = ""
    gpus: int = 0
    default: bool = False

    @property
    def spellings(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def told(self) -> str:
        """What tells it from another of a like name, in brackets: memory, accelerators."""
        if self.gpu:
            return f" ({self.gpus} x {self.gpu})"
        return f" ({self.memory_gib:.0f} GiB)" if self.memory_gib else ""


def meant(kind: str, text: str, known: Sequence[Known]) -> tuple[str, ...]:
    """Names of the profiles that a text may mean: one where it is clear, several, or none."""
    if not (text.isascii() and text.isprintable()):
        return ()
    plain = text.strip().lower()
    spelled = {each.name for each in known if plain in map(str.lower, each.spellings)}
    return tuple(sorted(spelled or set(_READERS.get(kind, _other)(text, known)), key=_by_size))


def _by_size(name: str) -> list[str | float]:
    """Orders names by the numbers in them: 8b stands before 70b."""
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    return [float(part) if place % 2 else part for place, part in enumerate(parts)]


def listed(names: Sequence[str], known: Sequence[Known]) -> str:
    """Several names for a hint, each with what tells it from the others."""
    by_name = {each.name: each for each in known}
    shown = [f"'{name}'{by_name[name].told}" for name in names[:LISTED_NAMES]]
    more = f", or {len(names) - LISTED_NAMES} others" if len(names) > LISTED_NAMES else ""
    return f"{', '.join(shown[:-1])} or {shown[-1]}" if not more else ", ".join(shown) + more


def words_of(text: str) -> Words:
    """Lower-case words of letters and digits; a dot inside a number stays: "Qwen2.5_7B" is (qwen2.5, 7b)."""
    plain = re.sub(r"(?<=\d)_(?=\d)", ".", text.lower())
    return tuple(re.findall(r"[a-z0-9]+(?:\.\d[a-z0-9]*)*", plain))


def _other(text: str, known: Sequence[Known]) -> Iterable[str]:
    """Names that differ by case and separators alone."""
    wanted = "".join(words_of(text))
    return (each.name for each in known if wanted and wanted in {"".join(words_of(one)) for one in each.spellings})


# Models: a family, a generation and a size, then what was done to the weights.

_QUANTISED = re.compile(r"(?<![a-z0-9])(ud[-_])?i?q[2-8](_[0-9a-z]+)*(?![a-z0-9])")  # q4_K_M, IQ3_XS
_SIZE = re.compile(r"[ea]?\d+(\.\d+)?[bmt]|\d+x\d+(\.\d+)?[bm]|\d+b\d|\d+e")
_DATE = re.compile(r"2[0-9](0[1-9]|1[0-2])|(0[1-9]|1[0-2])([0-2]\d|3[01])|20\d{4,6}")
_CONTEXT = re.compile(r"\d+k")
_GENERATION = re.compile(r"([a-z]{3,})(\d.*)")
_SAME_SHAPE = re.compile(
    r"meta|nvidia|hf|instruct|it|chat|base|pt|thinking|bf16|fp16|fp8|fp4|nvfp4|mxfp[48]|nf4|int4|int8|w\d+a\d+|[48]bit|bnb"
    r"|awq|gptq|gguf|ggml|mlx|exl\d|onnx|quantized|quant|dynamic|unsloth|autoround|imatrix|latest|free|turbo|deduped"
    r"|mcore|nemo|sft|dpo|kto|orpo|simpo|grpo|rl|rlhf|lora|qlora|merged|finetuned?|checkpoints?"
)
_OTHER_SHAPE = re.compile(
    r"vl|vision|omni|audio|video|multimodal|ocr|tts|embedding|embeddings|embed|reranker|rerank|guard|reward|rm|prm"
    r"|classifier|moe|mamba|hybrid|linear|diffusion|eagle|medusa|draft|drafter|speculator|mtp|nextn|dflash|dspark"
    r"|assistant|asr|pruned|sparse|minitron|depth"
    r"|width|mini|micro|lite|tiny|small|medium|large|air|max|plus|pro|next|flash|long|yarn"
)
_ONE_SHAPE = {("gpt", "oss"), ("zephyr", "gemma")}.union(
    (name,) for name in ("bloom", "mimo", "mistral", "opt", "pythia", "tinyllama", "zephyr")
)


def _model(text: str, known: Sequence[Known]) -> Iterable[str]:
    exact = _model_words(text)
    table = _model_table(tuple(known))
    for wanted in (exact, _undated(exact)):
        found = {name for words, name in table if wanted and words == wanted}
        if found:
            return found
    wanted = _undated(exact)
    bases = [(len(words), name) for words, name in table if _is_fine_tune(wanted, words)]
    longest = max((length for length, _ in bases), default=0)
    sizes = {name for words, name in table if wanted and _without_size(words) == wanted} if not bases else set()
    return {name for length, name in bases if length == longest} or (sizes if len(sizes) > 1 else ())


def _without_size(words: Words) -> Words:
    return tuple(word for word in words if not _SIZE.fullmatch(word))


@cache
def _model_table(known: tuple[Known, ...]) -> tuple[tuple[Words, str], ...]:
    return tuple((_model_words(spelling), each.name) for each in known for spelling in each.spellings)


def _model_words(text: str) -> Words:
    """Words of the last part of a path, without those that leave a model's shape as it is."""
    last = _QUANTISED.sub(" ", text.lower().rstrip("/").rpartition("/")[2])
    found: list[str] = []
    for word in words_of(last):
        family = _GENERATION.fullmatch(word)
        if not _SAME_SHAPE.fullmatch(word):
            found += family.groups() if family else (word,)
    return tuple(found)


def _undated(words: Words) -> Words:
    return tuple(word for word in words if not _DATE.fullmatch(word))


def _is_fine_tune(words: Words, base: Words) -> bool:
    """Whether words name a fine-tune of a base model.

    They have all of its words, with the same sizes, and no word of another architecture. A family whose name does not
    say the generation is never a base, as Llama may be any, but for those whose models of one size share their shape.
    """
    family = _without_size(base)
    sizes = sorted(word for word in base if _SIZE.fullmatch(word))
    numbered = any(character.isdigit() for word in family for character in word) or family in _ONE_SHAPE
    if not sizes or not (numbered or any("x" in size for size in sizes)):
        return False
    if sizes != sorted(word for word in words if _SIZE.fullmatch(word)):
        return False
    if not _has_run(words, base) and not _has_run(tuple(word for word in words if word not in sizes), family):
        return False
    added = [word for word in words if word not in base]
    return not any(_OTHER_SHAPE.fullmatch(word) or _CONTEXT.fullmatch(word) for word in added)


def _has_run(words: Words, part: Words) -> bool:
    """Whether the words of a part stand side by side."""
    return any(words[start : start + len(part)] == part for start in range(len(words) - len(part) + 1))


# Accelerators: a number with what belongs to it, a form factor, a memory.

_GPU_NOISE = re.compile(
    r"nvidia|amd|intel|aws|google|cloud|habana|tesla|geforce|instinct|vf|gpu|gpus|card|graphics|accelerator|tensor|core|vram"
    r"|memory|generation|edition"
)
_COMPUTER = re.compile(r"\b(mac[- ]?book|mac)[- ]?(pro|air|mini|studio)\b|\bimac\b|\bapple silicon\b")
_FORM = re.compile(r"(sxm|pcie|nvl|oam)\d?")
_GLUED_FORM = re.compile(r"(.*\d)((?:sxm|pcie|nvl)\d?)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(gb|gib|g|mib)")
_MEMORY_KIND = re.compile(r"hbm\d?e?|gddr\d?x?")
_COMMONEST_FORM = "sxm"
_BRAND = "rtx"  # what shops leave out
_MEMORY_TOLERANCE = 0.08  # between a shop's GB and what the driver reports in GiB
_GB_IN_GIB = 1e9 / 2**30


class _Card(Immutable):
    """What a name says of an accelerator."""

    identity: Words
    form: str | None
    memory: float | None


def _gpu(text: str, known: Sequence[Known]) -> Iterable[str]:
    literal = _gpu_words(text)
    in_any_order = sorted(literal)
    same = {each.name for each in known if in_any_order in [sorted(_gpu_words(one)) for one in each.spellings]}
    if same:
        return same
    card = _card(literal)
    named = [each for each in known if _number(card.identity) == _number(_card(_gpu_words(each.name)).identity)]
    found = _of_commonest_form({each.name for each in named if _agrees(card, each)})
    if found or named or not any(word[-1:].isdigit() for word in card.identity):
        return found
    wider = [each.name for each in known if set(card.identity) < set(_card(_gpu_words(each.name)).identity)]
    return wider if len(wider) > 1 else ()


def _of_commonest_form(gpus: set[str]) -> set[str]:
    """The accelerator of the commonest form factor; all, where that comes in several sizes of memory.

    One whose name says neither is what its number alone means: others are variants of it.
    """
    plain = {name for name in gpus if (card := _card(_gpu_words(name))).form is None and card.memory is None}
    if len(plain) == 1:
        return plain
    commonest = {name for name in gpus if _card(_gpu_words(name)).form == _COMMONEST_FORM}
    return commonest if len(commonest) == 1 else gpus


def _gpu_words(text: str) -> Words:
    joined = re.sub(r"(?<=\d)\s+(?=(gb|gib|mib)\b)", "", text.lower().replace("_", " "))
    joined = _COMPUTER.sub(" ", joined)
    joined = re.sub(rf"\b{_BRAND}(?=(pro|[a-z])?\d)", f"{_BRAND} ", joined).replace("pro6000", "pro 6000")
    return tuple(word for word in words_of(joined) if not _GPU_NOISE.fullmatch(word))


def _card(words: Words) -> _Card:
    identity: list[str] = []
    form: str | None = None
    memory: float | None = None
    for word in words:
        glued = _GLUED_FORM.fullmatch(word)
        shape, size = _FORM.fullmatch(glued[2] if glued else word), _MEMORY.fullmatch(word)
        form = shape[1] if shape else form
        memory = float(size[1]) / (1024 if size[2] == "mib" else 1) if size else memory
        if glued or not (shape or size):
            identity.append(glued[1] if glued else word)
    return _Card(tuple(identity), form, memory)


def _number(identity: Words) -> str:
    """What tells one accelerator from another, in one word: people leave out blanks, and a brand before a number."""
    joined = "".join(word for word in identity if not _MEMORY_KIND.fullmatch(word))
    bare = joined.removeprefix(_BRAND)
    return bare if any(character.isdigit() for character in bare) else joined


def _agrees(card: _Card, each: Known) -> bool:
    """Whether form factor and memory, where a name says them, are those of a profile.

    A kind of memory in a profile's name sets it apart from a commoner one, so that it has to be said.
    """
    own = _card(_gpu_words(each.name))
    if card.form and own.form and card.form != own.form:
        return False
    if not {word for word in own.identity if _MEMORY_KIND.fullmatch(word)} <= set(card.identity):
        return False
    if card.memory is None:
        return True
    if own.memory is not None:
        return card.memory == own.memory
    return _is_memory(card.memory, each.memory_gib)


def _is_memory(said: float, gib: float) -> bool:
    return any(abs(size - gib) <= _MEMORY_TOLERANCE * gib for size in (said, said * _GB_IN_GIB))


# Servers and instances: the words of a product, of its accelerator and of its maker.

_SERVER_NOISE = re.compile(r"standard|ml|poweredge|instance|server|node|with|gpu|gpus|hgx|nolssd|system|and|of")
_TIMES = re.compile(r"(\d+)x|x(\d+)")


def _server(text: str, known: Sequence[Known]) -> Iterable[str]:
    if "-" in text and text.strip().lower() in {each.gpu for each in known}:
        return ()  # a part with its form factor or memory, which no server is called by
    literal = _server_words(text)
    same = {each.name for each in known for one in each.spellings if literal in _with_and_without_vendor(each, one)}
    if same or not literal:
        return same
    card = _card(tuple(word for word in literal if not _TIMES.fullmatch(word)))
    counts = {int(times[1] or times[2]) for word in literal if (times := _TIMES.fullmatch(word))}
    fitting = [each for each in known if _is_part(card, each) and counts <= {each.gpus}]
    named = [each.name for each in fitting if any(_is_product(word, each) for word in card.identity)]
    if named:
        return named
    if len(fitting) < 2:
        return ()
    # A number belongs to the name of an instance, of which some cloud has the only one.
    usual = () if counts else _usual(fitting, next((each.vendor for each in known if each.default), ""))
    return [each.name for each in usual or fitting]


def _usual(fitting: Sequence[Known], vendor: str) -> Sequence[Known]:
    """The commonest of servers that are told apart by their maker alone: of the number of accelerators that most have.

    vendor : whose server is meant where a name does not say it. Empty where their accelerators differ in memory.
    """
    gpus = _of_commonest_form({each.gpu for each in fitting})
    alike = [each for each in fitting if each.gpu in gpus]
    number = Counter(each.gpus for each in alike).most_common(1)[0][0] if len(gpus) == 1 else 0
    found = [each for each in alike if each.gpus == number and each.vendor == vendor]
    return found if len(found) == 1 else ()


def _server_words(text: str) -> Words:
    parts = re.sub(r"[._]", " ", text.lower())
    return tuple(word for word in words_of(parts) if not _SERVER_NOISE.fullmatch(word))


def _with_and_without_vendor(each: Known, spelling: str) -> tuple[Words, Words]:
    words = _server_words(spelling)
    return words, words[1:] if words[:1] == (each.vendor,) else words


def _is_part(card: _Card, each: Known) -> bool:
    """Whether all that is said of a server is true of it."""
    own = _card(_server_words(each.name))
    gpu = _card(_gpu_words(each.gpu))
    universe = {*_server_words(each.name), *own.identity, *gpu.identity, each.vendor, "nvidia", "amd", "intel"}
    if not all(_said(card.identity, place, universe) for place in range(len(card.identity))):
        return False
    form = gpu.form or own.form
    if card.form and form and card.form != form:
        return False
    memory = gpu.memory or each.memory_gib
    return card.memory is None or any(_is_memory(card.memory, total) for total in (memory, each.gpus * memory))


def _said(words: Words, place: int, universe: set[str]) -> bool:
    """Whether a word is known, alone or with its neighbour: "gaudi 3" is gaudi3."""
    pairs = ("".join(words[start : start + 2]) for start in (place - 1, place) if start >= 0)
    return words[place] in universe or any(pair in universe for pair in pairs)


def _is_product(word: str, each: Known) -> bool:
    """Whether a word is of the product's own name, not of its maker or its accelerator."""
    gpu = _card(_gpu_words(each.gpu)).identity
    return word in _server_words(each.name) and word != each.vendor and word not in gpu and len(word) > 1


_UNNAMED = {
    r"apple|i?mac(book|mini|studio|pro)?|m[1-9]": "write the chip alone, for example 'M3 Max', and its memory as "
    "host memory: --host-memory-gib 64",
    r"jetson|orin": "Jetson is not sized: the catalogue has no such part",
}
"""What to write in place of names with such a word, which no profile has."""


def unsized(text: str) -> str | None:
    """What to write instead of an accelerator that has other names, or why there is none; None for all others."""
    words = words_of(text)
    return next((told for word, told in _UNNAMED.items() if any(re.fullmatch(word, one) for one in words)), None)


_SEVERAL = re.compile(
    r"\s*(?:(?P<before>\d+)\s*[x*]\s*(?P<after>\S.*)|(?P<first>.*\S)\s*[x*]\s*(?P<behind>\d+))\s*", re.IGNORECASE
)


def counted(text: str) -> tuple[int, str] | None:
    """A number of accelerators and their name, where a text says both: "2x 3090" or "rtx-3090 x2"."""
    match = _SEVERAL.fullmatch(text)
    if match is None:
        return None
    return int(match["before"] or match["behind"]), match["after"] or match["first"]


def plain_name(kind: str, text: str) -> str:
    """A name without what does not count, as names of profiles are written, to look for one that is like it."""
    return "-".join(_WORDS.get(kind, words_of)(text))


_WORDS: Mapping[str, Callable[[str], Words]] = {"model": _model_words, "gpu": _gpu_words, "server": _server_words}
_READERS: Mapping[str, Callable[[str, Sequence[Known]], Iterable[str]]] = {
    "model": _model,
    "gpu": _gpu,
    "server": _server,
}


T = TypeVar("T")
PACKAGE = Path(__file__).resolve().parents[1]
LIST_HINT = "'xe-sizer profiles list' prints all"
HINT_NAMES = 64  # names that a hint can list
_REPOSITORY = re.compile(r"(https?://)?((www\.)?huggingface\.co/|hf\.co/)?[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.:-]*/?")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


class Kind(Immutable, eq=True):
    """One kind of profile.

    folder : where its files lie in a user's folder, and inside `home`
    home : what holds the built-in ones: the catalogue, or a folder of the package
    telling : keys at the top level that no other kind has, by which a file is known that lies anywhere
    scenario_key : of a scenario, that names a profile of the kind
    beside : files of the folder that are no profiles
    heir : the key by which a file names the profile of its kind that it builds on
    """

    name: str
    title: str
    folder: str
    home: str
    telling: frozenset[str]
    scenario_key: str | None = None
    beside: tuple[str, ...] = ()
    heir: str = "parent"

    @property
    def a_title(self) -> str:
        """The title after its article."""
        return f"{'an' if self.title[0] in 'aeio' else 'a'} {self.title}"

    @cached_property
    def shipped(self) -> Path:
        """The folder of the built-in profiles."""
        return (built_in_folder() if self.home == CATALOGUE else PACKAGE / self.home) / self.folder


@cache
def _shipped() -> frozenset[Path]:
    """The folders of the built-in profiles."""
    return frozenset(kind.shipped for kind in KINDS.values())


CATALOGUE = "catalogue"
_HARDWARE = ("gpu", "server")
RELEASED = ("stack", "engine")  # kinds of which a name may end in a release
ALIASES = "aliases"  # a table of other names, and the key of a profile that lists its own
INHERITS = "inherits"  # the key by which a measured accelerator names that of the catalogue
_ALL = (
    Kind(
        "gpu", "gpu", "gpu_profiles", CATALOGUE, frozenset({"peak_tflops", "memory_gib", INHERITS}), "gpu",
        heir=INHERITS,
    ),
    Kind("server", "server", "gpu_profiles/servers", CATALOGUE, frozenset({"scale_up", "scale_out"}), "server"),
    Kind("fabric", "fabric", "gpu_profiles/fabrics", CATALOGUE, frozenset({"link", "node", "network"})),
    Kind("model", "model", "model_profiles", CATALOGUE, frozenset({"layers", "hidden"}), "model", (ALIASES,)),
    Kind("dataset", "data set", "datasets", "profiles", frozenset({"mean_tokens", "samples"}), "data.profile"),
    Kind(
        "stack", "stack", "stacks", "software",
        frozenset({"states", "overlap", "defaults", "supports", "expert_imbalance", "calibrated_on"}), "stack",
    ),
    Kind(
        "optimizer", "optimizer", "optimizers", "software",
        frozenset({"state", "host_bytes", "in_one_kernel", "paged", "newton_schulz_iterations"}), "optimizer",
    ),
    Kind("quantiser", "quantiser", "quantisers", "software", frozenset({"widths", "casts"}), "train.quantiser"),
    Kind(
        "engine", "engine", "engines", "software",
        frozenset({"batching", "exchanges", "narrow", "pipelined", "measured_as", "vendors"}), "serve.engine",
    ),
)  # fmt: skip
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in _ALL}
"""Every kind of profile, in the order in which lists show them. A row makes a kind known to finder and catalogue."""


def built_in_folder() -> Path:
    """Where the catalogue is: inside an installed package, else beside the package in a checkout."""
    catalogue = PACKAGE / CATALOGUE
    return catalogue if catalogue.is_dir() else PACKAGE.parent


class _Kept:
    """What finders have read: advice and searches ask for the same few profiles many times.

    read : what was made of built-in files; meant : names of profiles that a name may mean; gpu_texts : of their files
    """

    def __init__(self) -> None:
        self.read: dict[tuple[str, Path], object] = {}
        self.names: dict[str, tuple[str, ...]] = {}
        self.known: dict[str, tuple[Known, ...]] = {}
        self.meant: dict[tuple[str, str], tuple[str, ...]] = {}
        self.gpu_texts: dict[Path, str] = {}


_OF_BUILT_IN = _Kept()


class Finder:
    """Finds profiles by name; a folder given by the user wins over the built-in ones.

    A user's folder may have a subfolder for each kind (gpu_profiles/, gpu_profiles/servers/, model_profiles/,
    stacks/ ...) or hold the files directly. A name opens one file; folders are listed only to suggest a name or to
    print all.
    """

    def __init__(self, extra: Sequence[Path] = ()) -> None:
        self.user_folders = tuple(extra)
        self._kept = _Kept() if extra else _OF_BUILT_IN
        self._own: dict[tuple[str, Path], object] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._kinds: dict[Path, str | None] = {}
        self.readings: dict[tuple[str, str], str] = {}
        """Kinds and names that were not those of a profile, with the profile that each was read as."""

    def path(self, kind: str, name: str, where: Where = None) -> Path:
        """The file of a name, or the path itself if `name` is one.

        Raises
        ------
        InputError    no such profile (with the nearest names), a name with characters that no profile has
        """
        row = KINDS[kind]
        if is_path(name):
            return _existing_file(name, row, where)
        found = self.find(kind, name, where)
        if found is None:
            possible = name.isascii() and name.isprintable() and re.search(r"\w", name) and ".." not in name
            message = f"unknown {row.title} '{name}'" if possible else f"'{name}' cannot be the name of {row.a_title}"
            raise InputError(Problem(message, place_of(where), self.suggestion(kind, name)))
        return found

    def find(self, kind: str, name: str, where: Where = None) -> Path | None:
        """The file of a profile's name, else of the one profile that the name can mean; None: nothing has that name.

        Raises
        ------
        InputError    a name that several profiles have, with what tells them apart
        """
        known = self._paths.get((kind, name))
        found = known or next(self.files(kind, name), None) or self._as_written(kind, name, where)
        return found and self._paths.setdefault((kind, name), found)

    def _as_written(self, kind: str, name: str, where: Where) -> Path | None:
        names = self._meant(kind, name)
        if len(names) > 1 and not self._of_another_kind(kind, name):
            message = f"'{name}' matches several {KINDS[kind].title}s"
            raise InputError(Problem(message, place_of(where), f"write {listed(names, self.known(kind))}"))
        if len(names) != 1:
            return None
        self.readings[kind, name] = names[0]
        return next(self.files(kind, names[0]))

    def _meant(self, kind: str, name: str) -> tuple[str, ...]:
        """Names of the profiles that a name may mean."""
        kept = self._kept.meant
        if (kind, name) not in kept:
            kept[kind, name] = meant(kind, name, self.known(kind))
        return kept[kind, name]

    def called(self, kind: str, name: str) -> str:
        """The name of the profile that another name was or can be read as; else the name itself."""
        if not is_path(name) or is_repository(name):
            with suppress(InputError):  # which whoever asks for the profile is told
                self.find(kind, name)
        return self.readings.get((kind, name), name)

    def known(self, kind: str) -> tuple[Known, ...]:
        """Every profile of a kind with its other names; reads the folders once."""
        kept = self._kept.known
        if kind not in kept:
            others = self._aliases_beside(kind)
            memory = {each.name: each.memory_gib for each in self.known("gpu")} if kind == "server" else {}
            found = ((name, self._stated_with_heritage(kind, name)) for name in self.names(kind))
            kept[kind] = tuple(_known(name, stated, others.get(name, []), memory) for name, stated in found)
        return kept[kind]

    def _stated_with_heritage(self, kind: str, name: str) -> Mapping[str, Any]:
        """What a profile states that tells what a name means, over what it inherits; its aliases where it is named so.

        A file that takes the place of the one that it inherits from is meant by the other names of that one too.
        """
        stated: dict[str, Any] = {}
        files = self.files(kind, name)
        below: set[Path] = set()
        while (file := next((each for each in files if each not in below), None)) is not None:
            below.add(file)
            found = _stated(file)
            heir = str(found.get(INHERITS, ""))
            own = file.stem == name
            listed = [each[ALIASES] for each in (stated, found) if own and isinstance(each.get(ALIASES), list)]
            stated = {key: value for key, value in found.items() if own or key not in OWN_KEYS} | stated
            stated |= {ALIASES: [*chain.from_iterable(listed)]} if listed else {}
            if not heir:
                break
            files = self.files(kind, heir)
        return stated

    def _aliases_beside(self, kind: str) -> dict[str, list[str]]:
        """Names in the tables of aliases by the profile that each stands for; the user's table wins."""
        tables = [place / f"{ALIASES}.yaml" for place, direct in self.places(kind) if not direct]
        targets: dict[str, str] = {}
        for table in tables if ALIASES in KINDS[kind].beside else ():
            targets = {**_rows(table), **targets}
        found: dict[str, list[str]] = {}
        for name, target in targets.items():
            found.setdefault(target, []).append(name)
        return found

    def files(self, kind: str, name: str) -> Iterator[Path]:
        """Every file of a name, the one that is used first."""
        plain = _plain(name)
        if plain is None or plain in KINDS[kind].beside:
            return
        for place, direct in self.places(kind):
            file = place / f"{plain}.yaml"
            # A file that states no kind is taken for the one asked for: its loader then says which keys it lacks.
            if file.is_file() and (not direct or self._stated_kind(file) in (None, kind)):
                yield file

    def made(self, kind: str, name: str) -> object | None:
        """A profile that stands in no file, for finders that have such; None: there is none of that name."""
        return None

    def is_users_own(self, kind: str, name: str) -> bool:
        """Whether a name or path is that of a file of the user's, not of a built-in one."""
        file = None if is_path(name) else next(self.files(kind, name), None)
        return is_path(name) or (file is not None and file.parent != KINDS[kind].shipped)

    def names(self, kind: str) -> tuple[str, ...]:
        """All names of a kind, sorted; lists the folders once."""
        kept = self._kept.names
        if kind not in kept:
            found = {file.stem for place, direct in self.places(kind) for file in self._listed(kind, place, direct)}
            kept[kind] = tuple(sorted(found))
        return kept[kind]

    def unused(self, kind: str) -> list[tuple[Path, Path]]:
        """Files of a kind that another of the same name keeps from being found, behind that other."""
        found = []
        for name in self.names(kind) if self.user_folders else ():
            used, *others = self.files(kind, name)
            found += [(used, other) for other in others]
        return found

    def unreadable(self) -> list[Path]:
        """Files directly in a user's folder that are no YAML as it is read here, so that nobody knows their kind."""
        found = []
        for file in (file for folder in self.user_folders for file in sorted(folder.glob("*.yaml"))):
            try:
                self.kind_of(file)
            except InputError:
                found.append(file)
        return found

    def once(self, kind: str, path: Path, make: Callable[[Path], T]) -> T:
        """What `make` makes of a file, made once: of a built-in one for all finders that know no others."""
        kept = self._kept.read if path.parent in _shipped() else self._own
        if (kind, path) not in kept:
            kept[kind, path] = make(path)
        return cast(T, kept[kind, path])

    def places(self, kind: str) -> list[tuple[Path, bool]]:
        """Folders that may hold profiles of a kind, and whether they may hold other kinds too."""
        row = KINDS[kind]
        user = [pair for folder in self.user_folders for pair in ((folder / row.folder, False), (folder, True))]
        return [*user, (row.shipped, False)]

    def suggestion(self, kind: str, name: str) -> str:
        """What to say to an unknown name: the kind that it is of, names that begin so, the nearest, or all."""
        plain = name.strip().lower()
        other = self._read_as_another_kind(kind, name)
        if other:
            row, found = KINDS[other[0]], other[1]
            return f"'{name}' is {row.a_title}: write {row.scenario_key}: {found if found != plain else name}"
        told = self._several(name) or self._of_chip(name) if kind == "gpu" else None
        told = told or (unsized(name) if kind in _HARDWARE else None)
        if told:
            return told
        known = self.names(kind)
        begun = [f"'{each}'" for each in known if each.startswith(f"{plain}-")]
        if begun:
            return f"did you mean {' or '.join(begun)}? {LIST_HINT}"
        every = f"known {KINDS[kind].title}s: {', '.join(known)};" if 0 < len(known) <= HINT_NAMES else ""
        spellings = [one for each in self.known(kind) for one in each.spellings if "/" not in one]
        among = spellings if ALIASES in KINDS[kind].beside else known  # those of a table are written as names are
        near = did_you_mean(plain.rstrip("/").rpartition("/")[2], among) or did_you_mean(plain_name(kind, name), among)
        return " ".join(part for part in (near or every, LIST_HINT) if part)

    def _several(self, name: str) -> str | None:
        """What to write for a number of accelerators and their name in one."""
        said, known = counted(name), self.known("gpu")
        found = self._meant("gpu", said[1]) if said else ()
        if said is None or not found:
            return None
        number = f"the number is a value of its own: gpus: {said[0]} (--gpus {said[0]})"
        return f"write {found[0] if len(found) == 1 else listed(found, known)}; {number}"

    def part_of(self, chip: str) -> Known | None:
        """The accelerator that software sees in place of a chip, where it counts parts of it."""
        said = "".join(_gpu_words(chip))
        return next((each for each in self.known("gpu") if each.chip and "".join(_gpu_words(each.chip)) == said), None)

    def _of_chip(self, name: str) -> str | None:
        """What to write for a chip of which software sees several devices."""
        part = self.part_of(name)
        if part is None:
            return None
        return f"software sees {part.devices} devices in each: write {part.name}, and {part.devices} x as many gpus"

    def _of_another_kind(self, kind: str, name: str) -> Kind | None:
        """The kind that has a profile of exactly that name, where it is another than the one asked for."""
        others = (other for other in KINDS.values() if other.name != kind and other.scenario_key)
        return next((other for other in others if name.strip().lower() in self.names(other.name)), None)

    def _read_as_another_kind(self, kind: str, name: str) -> tuple[str, str] | None:
        """Kind and name of the profile that a name means, where it is of another kind than the one asked for."""
        exact = self._of_another_kind(kind, name)
        if exact:
            return exact.name, name.strip().lower()
        others = (other.name for other in KINDS.values() if other.name != kind and other.scenario_key)
        found = ((other, self._meant(other, name)) for other in others)
        return next(((other, names[0]) for other, names in found if len(names) == 1), None)

    def kind_of(self, path: Path) -> str | None:
        """The kind of a file by the keys that it has, else by its parent; None where neither tells.

        Raises
        ------
        InputError    a file that cannot be read
        """
        if path not in self._kinds:
            value = load_yaml(path).value
            assert isinstance(value, dict)
            self._kinds[path] = None  # for a parent whose parent this file is
            told = (kind.name for kind in KINDS.values() if kind.telling & value.keys())
            self._kinds[path] = next(told, None) or self._kind_of_parent(
                str(value.get("parent")).partition("@")[0], path
            )
        return self._kinds[path]

    def _kind_of_parent(self, parent: str, child: Path) -> str | None:
        for kind in KINDS:
            if any((place / f"{parent}.yaml").is_file() for place, direct in self.places(kind) if not direct):
                return kind
        beside = (folder / f"{parent}.yaml" for folder in self.user_folders)
        found = (self.kind_of(file) for file in beside if file.is_file() and file != child)
        return next((kind for kind in found if kind), None)

    def _listed(self, kind: str, place: Path, direct: bool) -> Iterator[Path]:
        for file in place.glob("*.yaml"):
            named = _plain(file.stem) == file.stem and file.stem not in KINDS[kind].beside
            if named and (not direct or self._stated_kind(file) == kind):
                yield file

    def _stated_kind(self, file: Path) -> str | None:
        """The kind that a file states, or None where the file cannot be read or states none."""
        try:
            return self.kind_of(file)
        except InputError:
            return None


def _rows(table: Path) -> dict[str, str]:
    """A file of names, lower-cased here, and what they stand for; empty where there is none. Raises InputError."""
    if not table.is_file():
        return {}
    document = load_yaml(table)
    rows = convert(document.value, dict[str, str], document.locate)
    return {name.lower(): target for name, target in rows.items()}


_KEY = re.compile(r"^(vendor|gpu|gpus|memory_gib|chip|aliases|default|inherits):(.*\n(?:[ -].*\n)*)", re.MULTILINE)


def _stated(file: Path) -> Mapping[str, Any]:
    """Keys of a profile that help to tell what a name means; a look at its text spares reading all of it."""
    try:
        text = "".join(match[0] for match in _KEY.finditer(read_text(file) + "\n"))
        stated = msgspec.yaml.decode(text) if text else {}
    except (InputError, msgspec.DecodeError):
        return {}  # whoever asks for the profile is told what is wrong with it
    return stated


def _known(name: str, stated: Mapping[str, Any], beside: Sequence[str], memory: Mapping[str, float]) -> Known:
    """A profile as names are compared with it. memory : of accelerators [GiB]"""
    gpu, own = str(stated.get("gpu", "")), stated.get(ALIASES)
    aliases = (*(map(str, own) if isinstance(own, list) else ()), *beside)
    size, gpus = stated.get("memory_gib", 0), stated.get("gpus", 0)
    chip = stated.get("chip")
    whole = chip if isinstance(chip, dict) else {}
    return Known(
        name,
        aliases,
        vendor=str(stated.get("vendor", "")).lower(),
        memory_gib=memory.get(gpu, 0.0) or (float(size) if isinstance(size, int | float) else 0.0),
        chip=str(whole.get("name", "")),
        devices=int(whole.get("devices", 1)),
        gpu=gpu,
        gpus=gpus if isinstance(gpus, int) else 0,
        default=stated.get("default") is True,
    )


@cache
def default_name(kind: str, section: str = "") -> str:
    """The built-in profile that stands for its kind where none is named: its file says `default: true`.

    section : a key that the file has too, where profiles of the kind are of several uses
    """
    texts = ((name, BUILT_IN.path(kind, name).read_text(encoding="utf-8")) for name in BUILT_IN.names(kind))
    return next(name for name, text in texts if "\ndefault: true\n" in text and f"\n{section}" in text)


def is_repository(name: str) -> bool:
    """Whether a name can be that of a repository on the Hugging Face Hub: an owner and a name, or its address."""
    return _REPOSITORY.fullmatch(name) is not None and not name.lower().endswith((".yaml", ".yml", ".json"))


def is_path(name: str) -> bool:
    """Whether a profile is named by the path of its file."""
    return "/" in name or "\\" in name or name.lower().endswith((".yaml", ".yml", ".json"))


def file_name(name: str) -> str:
    """The name of a profile for a model that others write otherwise: lower case, and no characters that none has."""
    return re.sub(r"[^a-z0-9._-]+", "-", re.sub(r"[.]{2,}", ".", name.strip().lower())).strip("-._") or "model"


def _plain(name: str) -> str | None:
    """A name as files have it; None where no file can have it."""
    plain = name.strip().lower()
    return plain if _NAME.fullmatch(plain) and ".." not in plain else None


def _existing_file(name: str, kind: Kind, where: Where) -> Path:
    """The profile file at a path. Only YAML files are opened: messages quote what a wrong file holds."""
    path = at_home(name)
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(
            Problem(f"'{name}' is not the path of {kind.a_title} profile", place_of(where), "profiles end in .yaml")
        )
    if not path.is_file():
        raise InputError(Problem(f"no such file: {path}", place_of(where), PATH_HINT))
    return path


BUILT_IN = Finder()


# YAML profiles that name a `parent` of their kind and override what differs; what older releases did otherwise.

# Say something of the file itself, and not of those that inherit from it.
OWN_KEYS = ("default", "aliases", "lighter", "releases", "origins", "stacks")


class _Releases(msgspec.Struct, frozen=True):
    releases: tuple[Release, ...] = ()


class Named(Protocol):
    """A profile as its file has it."""

    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Named)
Check = Callable[[P, "Document", Finder], Iterable[Problem]]
"""What else is wrong with a profile, of its document, where a finder finds the profiles that it names."""


def load_inherited(
    kind: str, struct: type[P], name: str, where: Where, finder: Finder | None, check: Check[P] | None = None
) -> P:
    """The profile of a name, or of a path to a user's own file; each is read once, built-in ones once for all finders.

    A name may end in a release (nemo@24.07) where the profiles of the kind have them.

    Raises
    ------
    InputError    unknown name; problems in the file
    """
    finder = finder or Finder()
    name, release = split_release(name) if hasattr(struct, "release") and not is_path(name) else (name, None)
    if release is None and "@" in name and not is_path(name):
        stem, _, written = name.partition("@")
        message = f"'{written}' is no release of a {KINDS[kind].title}"
        raise InputError(Problem(message, place_of(where), f"write a number or a month: {stem}@4.36, {stem}@24.07"))
    path = finder.path(kind, name, where)
    reader = BUILT_IN if path.parent == KINDS[kind].shipped else finder
    return reader.once(f"{kind}@{release}", path, lambda file: read_profile(kind, struct, file, reader, check, release))


def read_profile(
    kind: str, struct: type[P], path: Path, finder: Finder, check: Check[P] | None = None, release: str | None = None
) -> P:
    """What a file and its parents say of a release. Raises InputError with every problem.

    The file of a user is checked with all of its releases.
    """
    document = load_yaml(path)
    value = read_inherited(document, kind, finder, release=release)
    if release is not None:
        value["release"] = release
    profile = convert(value, struct, document.locate)
    problems = [*name_problems(profile.name, document), *(check(profile, document, finder) if check else ())]
    if finder is not BUILT_IN:
        problems += _of_releases(document, kind, struct, finder)
    if problems:
        raise InputError(problems)
    return profile


def _of_releases(document: Document, kind: str, struct: type[P], finder: Finder) -> Iterator[Problem]:
    """What is wrong with the releases of a file that is right in its newest one, where each says so."""
    rows = releases(document)
    stated: Any = document.value
    for count, row in enumerate(rows, 1):
        index = next(at for at, each in enumerate(stated["releases"]) if each["before"] == row.before)
        locate = document.locate_below(("releases", index, "differs"))
        try:
            convert(_over_parents(_with(document, rows[:count]), document, kind, finder, ()), struct, locate)
        except InputError as error:
            yield from error.problems


def read_inherited(
    document: Document, kind: str, finder: Finder, below: tuple[Path, ...] = (), release: str | None = None
) -> dict[str, Any]:
    """A file's own keys over those of its parent, and so on; a file may override the built-in one of its own name.

    A parent may be named with a release, of which it then is; `release` is one of this file. Where the file names a
    backend of the parent, that is as it runs on this one.

    Raises
    ------
    InputError    an unknown parent; one whose parent is the file itself
    """
    rows = [row for row in releases(document) if release is not None and row.follows(release)]
    return _over_parents(_with(document, rows), document, kind, finder, below)


def _over_parents(
    value: dict[str, Any], document: Document, kind: str, finder: Finder, below: tuple[Path, ...]
) -> dict[str, Any]:
    """The keys of a document over those of the parent that they name. Raises InputError as `read_inherited` does."""
    key = KINDS[kind].heir
    if value.get(key) is None:
        return value
    parent, parent_release = split_release(str(value[key]))
    below = (*below, document.path.resolve())
    files = list(finder.files(kind, parent))
    found = next((file for file in files if file.resolve() not in below), None)
    if found is None:
        place = document.locate((key,))
        if files:
            message = f"'{key}' leads back to this file by way of '{parent}'"
            if files[0].resolve() == below[-1]:
                message = f"'{key}' is '{parent}', which is this file itself"
            raise InputError(Problem(message, place, "name one that does not have this file as a parent"))
        message = f"'{key}' must be a known {KINDS[kind].title}, not '{parent}'"
        raise InputError(Problem(message, place, finder.suggestion(kind, parent)))
    inherited = read_inherited(load_yaml(found), kind, finder, below, parent_release)
    inherited = _merged((inherited.get("backends") or {}).get(value.get("backend")) or {}, inherited)
    return _merged(value, {key: item for key, item in inherited.items() if key not in OWN_KEYS})


def releases(document: Document) -> tuple[Release, ...]:
    """What a file says of older releases, the newest first. Raises InputError with every problem."""
    value: Any = document.value
    found = convert({"releases": value.get("releases", [])}, _Releases, document.locate).releases
    return tuple(sorted(found, key=lambda row: version(row.month), reverse=True))


def _with(document: Document, rows: Iterable[Release]) -> dict[str, Any]:
    """A file's own keys, and what releases say instead, the newest first."""
    whole: Any = document.value
    value = dict(whole)
    for row in rows:
        value = _merged(row.differs, value)
    return value


def _merged(child: dict[str, Any], parent: dict[str, Any]) -> dict[str, Any]:
    merged = dict(parent)
    for key, value in child.items():
        inherited = parent.get(key)
        merged[key] = _merged(value, inherited) if isinstance(value, dict) and isinstance(inherited, dict) else value
    return merged
