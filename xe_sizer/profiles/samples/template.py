"""Chat templates, rendered by a process of their own under limits of time, memory and output."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from xe_sizer.errors import InputError, Location, Problem
from xe_sizer.frozen import frozen
from xe_sizer.profiles.text_file import read_text

if TYPE_CHECKING:
    from types import TracebackType

    from xe_sizer.profiles.samples.fields import Piece

SECONDS = 20.0  # for one conversation
GROWTH = 8  # how many times as long as its conversation a text may be
SLACK = 1 << 20  # and how much longer
_PROCESS = Path(__file__).with_name("render_process.py")
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


class TemplateError(Exception):
    """A conversation that a template does not render."""


@frozen
class ChatTemplate:
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
    tokens = {name: _token(config.get(name)) for name in _SPECIAL}
    return ChatTemplate(path, text, {name: token for name, token in tokens.items() if token is not None})


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


def _token(stated: Any) -> str | None:
    """A special token, which may be an object that holds it."""
    found = stated.get("content") if isinstance(stated, dict) else stated
    return found if isinstance(found, str) else None


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
