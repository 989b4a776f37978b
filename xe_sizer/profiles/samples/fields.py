"""What in a row is trained on: conversations, instructions, texts, preference pairs, token ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

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


def sample_of(row: Any, field: str | None = None) -> Sample:
    """What is trained on in a row. field : the key that holds it, where the usual names do not.

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
    raise ValueError(f"{_name_of(value)} is neither text, messages nor token ids")


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
    turns = [*_history(row.get("history")), ("user", _instructed(row, asked)), ("assistant", answer)]
    system = row.get("system")
    if isinstance(system, str) and system:
        turns.insert(0, ("system", system))
    return Sample("instruction", (_chat([{"role": role, "content": text} for role, text in turns], row),))


def _instructed(row: Mapping[str, Any], asked: str) -> str:
    """An instruction with its input in lines of their own."""
    more = next((row[key] for key in CONTEXTS if key != asked and isinstance(row.get(key), str) and row[key]), "")
    return f"{row[asked]}\n{more}" if more else str(row[asked])


def _history(turns: Any) -> Iterator[tuple[str, str]]:
    """Earlier turns, each a question and its answer."""
    for turn in turns if isinstance(turns, list) else ():
        if isinstance(turn, list) and len(turn) == 2:
            yield from (("user", str(turn[0])), ("assistant", str(turn[1])))


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


def _name_of(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return "nothing" if value is None else names.get(type(value), "this")
