"""A job that takes little time to answer, and its answer as plain data."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

from .conftest import Ran

Cli = Callable[..., Ran]
JOB = (
    "--model llama-2-7b --server dell-xe9680-h100 --job sft --stack megatron-lm --seq-len 2048 --global-batch 64 "
    "--steps 100"
)


def ask(cli: Cli, command: str, code: int = 0) -> Any:
    ran = cli(*shlex.split(command), "--format", "json")
    assert ran.code == code, ran.err
    return json.loads(ran.out)
