"""Names as people write them: which profiles a name may mean, by its words.

A name is taken apart into words. What tells one item from another (generation, size, form factor, memory, what
follows the number) has to agree; what does not (makers, number formats, dates of a fine-tune) is left out. A word that
nobody knows is a difference: better no match than a wrong one. A form factor that is not said is the commonest, where
that has one memory: H100 is the SXM one, A100 may be any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from xe_sizer.frozen import frozen

Words = tuple[str, ...]
FEW = 8  # names that a list of candidates shows


@frozen(eq=True)
class Known:
    """A profile that a name may mean.

    aliases : other names of it; vendor : maker, lower case
    memory_gib : of an accelerator; gpu : name of a server's accelerator, of which it has `gpus`
    default : whether it stands for its kind where none is named
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    memory_gib: float = 0.0
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
    shown = [f"'{name}'{by_name[name].told}" for name in names[:FEW]]
    more = f", or {len(names) - FEW} others" if len(names) > FEW else ""
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
    r"nvidia|amd|intel|google|cloud|habana|tesla|geforce|instinct|vf|gpu|gpus|card|graphics|accelerator|tensor|core|vram"
    r"|memory|generation|edition"
)
_FORM = re.compile(r"(sxm|pcie|nvl|oam)\d?")
_GLUED_FORM = re.compile(r"(.*\d)((?:sxm|pcie|nvl)\d?)")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)(gb|gib|g|mib)")
_MEMORY_KIND = re.compile(r"hbm\d?e?|gddr\d?x?")
_COMMONEST_FORM = "sxm"
_BRAND = "rtx"  # what shops leave out
_MEMORY_TOLERANCE = 0.08  # between a shop's GB and what the driver reports in GiB
_GB_IN_GIB = 1e9 / 2**30


@frozen
class _Card:
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
    """The accelerator of the commonest form factor; all, where that comes in several sizes of memory."""
    commonest = {name for name in gpus if _card(_gpu_words(name)).form == _COMMONEST_FORM}
    return commonest if len(commonest) == 1 else gpus


def _gpu_words(text: str) -> Words:
    joined = re.sub(r"(?<=\d)\s+(?=(gb|gib|mib)\b)", "", text.lower().replace("_", " "))
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
        memory = _gib_or_gb(size) if size else memory
        if glued or not (shape or size):
            identity.append(glued[1] if glued else word)
    return _Card(tuple(identity), form, memory)


def _gib_or_gb(size: re.Match[str]) -> float:
    return float(size[1]) / 1024 if size[2] == "mib" else float(size[1])


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


_SHARED_MEMORY = {
    "Apple silicon": r"apple|mac(book|mini|studio|pro)?|m[1-9]",
    "DGX Spark": r"spark|gb10",
    "Strix Halo": r"strix|ryzen",
    "Jetson": r"jetson|orin",
}
"""Words of accelerators that no profile describes, by what people call them."""


def unsized(text: str) -> str | None:
    """Why an accelerator that shares one memory with its CPU is not sized; None for all others."""
    words = words_of(text)
    name = next((name for name, word in _SHARED_MEMORY.items() if any(re.fullmatch(word, one) for one in words)), None)
    return name and f"{name} is not sized: its GPU shares one memory with the CPU, and the catalogue has no such card"


_SEVERAL = re.compile(
    r"\s*(?:(?P<before>\d+)\s*[x*]\s*(?P<after>\S.*)|(?P<first>.*\S)\s*[x*]\s*(?P<behind>\d+))\s*", re.IGNORECASE
)


def counted(text: str) -> tuple[int, str] | None:
    """A number of accelerators and their name, where a text says both: "2x 3090" or "rtx-3090 x2"."""
    match = _SEVERAL.fullmatch(text)
    if match is None:
        return None
    return int(match["before"] or match["behind"]), match["after"] or match["first"]


def plain(kind: str, text: str) -> str:
    """A name without what does not count, as names of profiles are written, to look for one that is like it."""
    return "-".join(_WORDS.get(kind, words_of)(text))


_WORDS: Mapping[str, Callable[[str], Words]] = {"model": _model_words, "gpu": _gpu_words, "server": _server_words}
_READERS: Mapping[str, Callable[[str, Sequence[Known]], Iterable[str]]] = {
    "model": _model,
    "gpu": _gpu,
    "server": _server,
}
