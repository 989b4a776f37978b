"""A process of its own that renders one chat template: templates are code that somebody else wrote.

Reads lines of JSON from stdin: first the template with its special tokens, then one conversation each. Answers each
with a line of JSON: {"text": ...} or {"error": ...}. The sandbox of jinja2 keeps a template from Python's internals,
limits of the process keep it from taking all memory, and who started it ends it when it takes too long. It is run as a
file and imports nothing of the package.
"""

import json
import sys
from datetime import UTC, datetime
from typing import Any

MEMORY_BYTES = 2 << 30
CPU_SECONDS = 3600


def limit_process() -> None:
    """No more memory and time than a template needs, where the system has such limits."""
    try:
        import resource
    except ImportError:
        return
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def environment() -> Any:
    """An environment as chat templates are written for."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The block that marks what the model writes: rendered as if it were not there."""

        tags = {"generation"}  # noqa: RUF012  as jinja2 declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _refused
    made.globals["strftime_now"] = lambda form: datetime.now(tz=UTC).strftime(form)
    return made


def _to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, default=str)


def _refused(message: str) -> None:
    raise ValueError(message)


def answer(template: Any, values: Any, most: int) -> Any:
    """The text of a conversation, or why there is none."""
    parts: list[str] = []
    size = 0
    try:
        for part in template.generate(**values):
            size += len(part)
            if size > most:
                return {"error": "its text is too long"}
            parts.append(part)
    except Exception as error:  # noqa: BLE001  whatever a template raises is about the template
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"text": "".join(parts)}


def main() -> None:
    """Answers line by line until stdin ends."""
    made = environment()
    limit_process()
    head = json.loads(sys.stdin.readline())
    try:
        template = made.from_string(head["template"])
        ready: Any = {"text": ""}
    except Exception as error:  # noqa: BLE001  as above
        template, ready = None, {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(ready), flush=True)
    for line in sys.stdin if template is not None else ():
        asked = json.loads(line)
        print(json.dumps(answer(template, {**head["tokens"], **asked["values"]}, asked["most"])), flush=True)


if __name__ == "__main__":
    main()
