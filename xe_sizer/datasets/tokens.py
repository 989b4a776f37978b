"""Tokens of samples: the fields that hold text, the chat template, and the model's tokenizer or an estimate."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

import msgspec
from msgspec.structs import replace

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.immutable import Immutable
from xe_sizer.profiles.text import missing, read_text

if TYPE_CHECKING:
    from types import TracebackType

    from xe_sizer.errors import Where

# Fields that are trained on: conversations, instructions, texts, preference pairs, token ids.

Message = Mapping[str, Any]
MESSAGES = ("messages", "conversations", "conversation", "chat", "dialog", "dialogue")
TOKENS = ("input_ids", "token_ids", "tokens")
TEXTS = ("text", "content", "document", "raw_content", "code", "body")
PROMPTS = ("prompt", "instruction", "question", "query", "input")
ANSWERS = ("output", "response", "completion", "answer", "target", "solution")
CONTEXTS = ("input", "context")
SHOWN_KEYS = 8
_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "function_call": "assistant",
}


class Piece(NamedTuple):
    """One sequence that a trainer reads: text, or messages that a chat template makes into text, or token ids.

    content : all text of it, without what a template adds; tokens : where the row has token ids itself
    images : that are in it besides the text
    """

    content: str
    messages: tuple[Message, ...] = ()
    tools: Sequence[Any] | None = None
    tokens: int | None = None
    images: int = 0


class Sample(NamedTuple):
    """What a row holds. `kind` names how it was read; a preference pair has two sequences, all others one."""

    kind: str
    sequences: tuple[Piece, ...]


def read_sample(row: Any, field: str | None = None) -> Sample:
    """Read what is trained on in a row. field : the key that holds it, where the usual names do not.

    Raises
    ------
    ValueError    nothing in the row is known to be a sample
    """
    if field is not None:
        if not isinstance(row, Mapping) or field not in row:
            raise ValueError(f"no key '{field}'")
        return _of_value(row[field], row)
    if not isinstance(row, Mapping):
        return _of_value(row, {})
    found = _pair(row) or _conversation(row) or _ids(row) or _instruction(row) or _text(row)
    if found is None:
        keys = ", ".join(list(map(str, row))[:SHOWN_KEYS])
        raise ValueError(f"no known field among the keys {keys}" if keys else "no keys")
    return found


def _of_value(value: Any, row: Mapping[str, Any]) -> Sample:
    """A sample that is one value: text, messages or token ids."""
    if isinstance(value, str):
        return Sample("text", (Piece(value),))
    if _is_ids(value):
        return Sample("token ids", (Piece("", tokens=len(value)),))
    if _is_messages(value):
        return Sample("chat", (_chat(value, row),))
    kinds = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    kind = "nothing" if value is None else kinds.get(type(value), "this")
    raise ValueError(f"{kind} is neither text, messages nor token ids")


def _pair(row: Mapping[str, Any]) -> Sample | None:
    """A preferred and a rejected answer, each after the prompt."""
    chosen, rejected = row.get("chosen"), row.get("rejected")
    if chosen is None or rejected is None:
        return None
    before = next((row[key] for key in MESSAGES if _is_messages(row.get(key))), None)
    if before is None:
        before = row.get("prompt", row.get("question", None))
    if before is None and isinstance(row.get("instruction"), str):
        before = [{"role": "user", "content": _instructed(row, "instruction")}]
    return Sample("preference pairs", (_answered(before, chosen, row), _answered(before, rejected, row)))


def _answered(before: Any, answer: Any, row: Mapping[str, Any]) -> Piece:
    """A prompt and an answer, each text or messages, as one sequence."""
    if isinstance(answer, Mapping):
        answer = [answer]
    if _is_messages(answer) or _is_messages(before):
        return _chat([*_as_messages(before, "user"), *_as_messages(answer, "assistant")], row)
    return Piece(_as_text(before) + _as_text(answer))


def _conversation(row: Mapping[str, Any]) -> Sample | None:
    value = next((row[key] for key in MESSAGES if _is_messages(row.get(key))), None)
    return None if value is None else Sample("chat", (_chat(value, row),))


def _ids(row: Mapping[str, Any]) -> Sample | None:
    value = next((row[key] for key in TOKENS if _is_ids(row.get(key))), None)
    return None if value is None else Sample("token ids", (Piece("", tokens=len(value)),))


def _instruction(row: Mapping[str, Any]) -> Sample | None:
    """An instruction or prompt and its answer; a prompt alone where there is no answer."""
    asked = next((key for key in PROMPTS if _is_said(row.get(key))), None)
    if asked is None:
        return None
    answer = next((row[key] for key in ANSWERS if key != asked and _is_said(row.get(key))), None)
    if answer is None:
        if asked != "prompt":
            return None
        return Sample("prompts", (_answered(row[asked], "", row) if isinstance(row[asked], str) else
                                  _chat(row[asked], row),))  # fmt: skip
    if asked == "prompt" or not isinstance(row[asked], str) or not isinstance(answer, str):
        return Sample("prompt and completion", (_answered(row[asked], answer, row),))
    turns, history = [], row.get("history")
    for turn in history if isinstance(history, list) else ():
        if isinstance(turn, list) and len(turn) == 2:  # a question and its answer
            turns += [("user", str(turn[0])), ("assistant", str(turn[1]))]
    turns += [("user", _instructed(row, asked)), ("assistant", answer)]
    system = row.get("system")
    if isinstance(system, str) and system:
        turns.insert(0, ("system", system))
    return Sample("instruction", (_chat([{"role": role, "content": text} for role, text in turns], row),))


def _instructed(row: Mapping[str, Any], asked: str) -> str:
    """An instruction with its input in lines of their own."""
    more = next((row[key] for key in CONTEXTS if key != asked and isinstance(row.get(key), str) and row[key]), "")
    return f"{row[asked]}\n{more}" if more else str(row[asked])


def _text(row: Mapping[str, Any]) -> Sample | None:
    value = next((row[key] for key in (*TEXTS, *ANSWERS) if isinstance(row.get(key), str)), None)
    return None if value is None else Sample("text", (Piece(value),))


def _chat(value: Iterable[Any], row: Mapping[str, Any]) -> Piece:
    """Messages as chat templates expect them, with their text in one."""
    parts: list[str] = []
    images = 0
    messages = []
    for each in value:
        text, pictures = _content(each.get("content", each.get("value")))
        images += pictures
        role = str(each.get("role", each.get("from", "")))
        message = {key: item for key, item in each.items() if key not in ("from", "value")}
        messages.append({**message, "role": _ROLES.get(role, role), "content": text})
        parts += (text, *(_written(each[key]) for key in ("tool_calls", "reasoning_content") if each.get(key)))
    if isinstance(row.get("system"), str) and row["system"] and all(each["role"] != "system" for each in messages):
        messages.insert(0, {"role": "system", "content": row["system"]})
        parts.insert(0, row["system"])
    tools = _tools(row.get("tools", row.get("functions")))
    if tools:
        parts.append(_written(tools))
    return Piece("\n".join(parts), tuple(messages), tools, images=images)


def _tools(value: Any) -> Sequence[Any] | None:
    """Descriptions of functions, which some data sets hold as JSON in a string."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return None
    return value if isinstance(value, list) and value else None


def _content(value: Any) -> tuple[str, int]:
    """The text of a message, and how many images stand in it."""
    if isinstance(value, str) or value is None:
        return value or "", 0
    if not isinstance(value, list):
        return _written(value), 0
    texts, images = [], 0
    for part in value:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and "image" in kind:
            images += 1
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, str):
            texts.append(part)
    return "\n".join(texts), images


def _written(value: Any) -> str:
    """Anything but text as JSON, which is how templates write it."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError):
        return str(type(value))


def _as_messages(value: Any, role: str) -> Sequence[Any]:
    if _is_messages(value):
        return cast(Sequence[Any], value)
    return [{"role": role, "content": value}] if isinstance(value, str) and value else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else _written(value)


def _is_said(value: Any) -> bool:
    return isinstance(value, str) or _is_messages(value)


def _is_messages(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(each, Mapping) and ("content" in each or "value" in each or "role" in each) for each in value)


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], int) and isinstance(value[-1], int)


# Batches of texts for a tokenizer.

T = TypeVar("T")
BATCH_CHARS = 1 << 17  # chosen: a tokenizer needs some 200 bytes a token
_BATCH_TEXTS = 512


def in_batches(items: Iterable[T], chars: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in lists of so many that their text is not much longer than BATCH_CHARS. chars : of an item"""
    batch: list[T] = []
    held = 0
    for item in items:
        batch.append(item)
        held += chars(item)
        if len(batch) >= _BATCH_TEXTS or held >= BATCH_CHARS:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


# Chat templates, rendered by a process of their own under limits of time, memory and output.

SECONDS = 20.0  # for one conversation
GROWTH = 8  # how many times as long as its conversation a text may be
SLACK = 1 << 20  # and how much longer
_PROCESS = Path(__file__).with_name("render_process.py")
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


class TemplateError(Exception):
    """A conversation that a template does not render."""


class ChatTemplate(Immutable):
    """A template with the special tokens that it may name, and the file that it stands in."""

    path: Path
    text: str
    tokens: Mapping[str, str]


def template_beside(folder: Path) -> ChatTemplate | None:
    """The chat template of a folder with a tokenizer: its own file, or in the tokenizer's configuration.

    Raises
    ------
    InputError    a file that cannot be read, or is no configuration
    """
    config, path = _config(folder / "tokenizer_config.json"), folder / "chat_template.jinja"
    text = read_text(path) if path.is_file() else None
    if text is None:
        path, text = folder / "tokenizer_config.json", _default(config.get("chat_template"))
    if text is None:
        return None
    stated = {name: config.get(name) for name in _SPECIAL}
    tokens = {name: token.get("content") if isinstance(token, dict) else token for name, token in stated.items()}
    return ChatTemplate(path, text, {name: token for name, token in tokens.items() if isinstance(token, str)})


def _config(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = msgspec.json.decode(read_text(path))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(Problem(f"this is no JSON: {error}", Location(str(path)))) from None
    if not isinstance(found, dict):
        raise InputError(Problem("not the configuration of a tokenizer", Location(str(path))))
    return found


def _default(stated: Any) -> str | None:
    """The template itself; of several the one that is called default."""
    if isinstance(stated, list):
        named = {each.get("name"): each.get("template") for each in stated if isinstance(each, dict)}
        stated = named.get("default")
    return stated if isinstance(stated, str) and stated else None


class Renderer:
    """Renders conversations; a process runs from the first of them until the block ends."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._process: subprocess.Popen[bytes] | None = None
        self._given_up = ""

    def text(self, piece: Piece) -> str:
        """The text of a conversation. Raises TemplateError: refused, too long, took too long; InputError: no jinja2."""
        values: dict[str, Any] = {"messages": piece.messages, "add_generation_prompt": False, "tools": piece.tools}
        return self._asked({"values": values, "most": GROWTH * len(piece.content) + SLACK})

    def _asked(self, question: Any) -> str:
        if self._given_up:  # a template that hangs once would hang in every conversation
            raise TemplateError(self._given_up)
        process = self._process or self._started()
        return self._answer(process, question)

    def _answer(self, process: subprocess.Popen[bytes], question: Any) -> str:
        assert process.stdin
        assert process.stdout
        alarm = threading.Timer(SECONDS, process.kill)
        alarm.start()
        try:
            process.stdin.write(json.dumps(question, default=str).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = b""
        finally:
            alarm.cancel()
        if not line.endswith(b"\n"):
            self._end()
            self._given_up = f"it took more than {SECONDS:.0f} s, or too much memory"
            raise TemplateError(self._given_up)
        answer = json.loads(line)
        if "text" not in answer:
            raise TemplateError(answer["error"])
        return str(answer["text"])

    def _started(self) -> subprocess.Popen[bytes]:
        """A process with the template. Raises TemplateError: it cannot be parsed; InputError: jinja2 is missing."""
        try:
            import jinja2  # noqa: F401
        except ImportError:
            place, hint = Location(str(self._template.path)), "pip install 'xe-sizer[data]', or --tokens-per-message 5"
            raise InputError(Problem("chat templates need jinja2", place, hint)) from None
        pipe, none = subprocess.PIPE, subprocess.DEVNULL
        self._process = subprocess.Popen([sys.executable, "-P", str(_PROCESS)], stdin=pipe, stdout=pipe, stderr=none)
        self._answer(self._process, {"template": self._template.text, "tokens": dict(self._template.tokens)})
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()


# The tokenizer: a tokenizer.json, with the chat template beside it (extra: data).

MOST_BYTES = 256 << 20  # of a tokenizer.json; the largest known has 35 MB
TOKENS_PER_MESSAGE = 5
"""Assumed: what ChatML, and likewise the template of Llama 3, puts around a message: marks, role, line ends."""
_FILE = "tokenizer.json"


class TokenCounter:
    """Counts the tokens of sequences, chat template included.

    messages_tokens : tokens that are added for each message where no template is applied
    refused : conversations that the template did not render, by reason; they are counted without it
    """

    def __init__(self, path: Path, per_message: int | None) -> None:
        """Raises InputError: no such file, no tokenizer in it, a library that is missing."""
        folder = path if path.is_dir() else path.parent
        self.path = path / _FILE if path.is_dir() else path
        self._tokenizer = _loaded(self.path)
        with _as_bad_input(self.path):
            self._around = len(self._tokenizer.encode(""))  # begin and end of a sequence, as the tokenizer adds them
        self.template: ChatTemplate | None = template_beside(folder) if per_message is None else None
        self.per_message = TOKENS_PER_MESSAGE if per_message is None else per_message
        self.refused: Counter[str] = Counter()
        self._renderer = Renderer(self.template) if self.template else None

    def count(self, pieces: Sequence[Piece]) -> list[int]:
        """Tokens of each sequence [tokens]."""
        texts = [self._text(piece) for piece in pieces]
        lengths = self._lengths([text for text, _ in texts])
        around = (self._around + self.per_message * len(piece.messages) for piece in pieces)
        return [
            length + (0 if templated else added)
            for length, added, (_, templated) in zip(lengths, around, texts, strict=True)
        ]

    def _text(self, piece: Piece) -> tuple[str, bool]:
        """What is tokenised, and whether the template made it."""
        if piece.messages and self._renderer:
            try:
                return self._renderer.text(piece), True
            except TemplateError as error:
                self.refused[str(error)] += 1
        return piece.content, False

    def _lengths(self, texts: Sequence[str]) -> Iterator[int]:
        """Tokens of each text, nothing added; long ones are cut between words."""
        cut = [list(map(_valid, _pieces(text))) for text in texts]
        found = self._counted(part for parts in cut for part in parts)
        for parts in cut:
            yield sum(next(found) for _ in parts)

    def _counted(self, texts: Iterable[str]) -> Iterator[int]:
        for batch in in_batches(texts, len):
            with _as_bad_input(self.path):
                counted = [len(each) for each in self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)]
            yield from counted

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renderer:
            self._renderer.__exit__(kind, error, trace)


def _pieces(text: str) -> Iterator[str]:
    """The text in parts of at most BATCH_CHARS, cut before a blank where there is one."""
    start = 0
    while len(text) - start > BATCH_CHARS:
        cut = text.rfind(" ", start + 1, start + BATCH_CHARS)
        end = cut if cut > start else start + BATCH_CHARS
        yield text[start:end]
        start = end
    yield text[start:]


def _valid(text: str) -> str:
    """Text that can be UTF-8: half a surrogate pair, which JSON can hold, cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _loaded(path: Path, where: Where = None) -> Any:
    place = Location(str(path))
    try:
        from tokenizers import Tokenizer
    except ImportError:
        hint = "pip install 'xe-sizer[data]'"
        raise InputError(Problem("counting tokens needs the library tokenizers", place, hint)) from None
    if not path.is_file():
        problem = missing(path)
        raise InputError(replace(problem, hint=problem.hint or f"give a local {_FILE}, or the folder that has it"))
    if path.stat().st_size > MOST_BYTES:
        raise InputError(Problem(f"a tokenizer is no larger than {MOST_BYTES >> 20} MiB", place))
    with _as_bad_input(path):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return tokenizer


@contextmanager
def _as_bad_input(path: Path) -> Iterator[None]:
    """What the library raises on a broken tokenizer is bad input; so are its panics, which are no `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, InputError, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001
        hint = "a tokenizer.json as transformers writes it"
        reason = str(error).partition("\n")[0][:200]
        raise InputError(Problem(f"not a tokenizer that can be read: {reason}", Location(str(path)), hint)) from None
