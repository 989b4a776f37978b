"""Inference questions and jobs that tests estimate. Fixed answers only, no logic of the code under test."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cases import REGISTRY
from msgspec.structs import replace

from xe_sizer.errors import InputError
from xe_sizer.scenario.read import read_scenario
from xe_sizer.serving.estimate import ServingEstimate
from xe_sizer.serving.job import ServingJob
from xe_sizer.serving.resolve import resolve as resolve_serving
from xe_sizer.serving.resolved import ResolvedService
from xe_sizer.serving.search import size
from xe_sizer.software.number_formats import FORMATS, Scheme

BF16 = Scheme(FORMATS["bf16"], FORMATS["bf16"], FORMATS["bf16"], "bf16")
HYBRIDS = ("jamba-v0.1", "nemotron-h-8b", "qwen3-next-80b-a3b")


def asked(model: object = "llama-3.1-8b", **flags: object) -> ResolvedService:
    """A question; `serve__batch=1` stands for the key serve.batch. One H100 unless another gpu or server is named."""
    given = {name.replace("__", "."): value for name, value in flags.items()}
    hardware = {} if "gpu" in given or "server" in given else {"gpu": "h100-sxm-80gb"}
    return resolve_serving(read_scenario(None, {"model": model, **hardware, **given}, {}), REGISTRY)


def served(model: object = "llama-3.1-8b", **flags: object) -> ServingEstimate:
    return size(asked(model, **flags))


def altered(found: ServingEstimate, **changes: Any) -> ServingEstimate:
    """The estimate with fields of its point, its choice or what was resolved changed, each by its name."""
    point, choice, resolved = (
        {name: value for name, value in changes.items() if name in set(part.__struct_fields__)}
        for part in (found.point, found.choice, found.resolved)
    )
    choice.setdefault("point", replace(found.point, **point))
    return replace(found, choice=replace(found.choice, **choice), resolved=replace(found.resolved, **resolved))


def problems(**flags: object) -> list[str]:
    """What is said against a question that is refused."""
    with pytest.raises(InputError) as caught:
        served(**flags)
    return [str(problem) for problem in caught.value.problems]


def job(model: object = "llama-3.1-8b", **flags: object) -> ServingJob:
    return asked(model, **flags).job


def engine_file(folder: Path, text: str, name: str = "mine") -> str:
    """Writes a user's own engine and returns its path."""
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def keys(flags: Mapping[str, object]) -> dict[str, object]:
    """Flags with dots as keyword arguments."""
    return {name.replace(".", "__"): value for name, value in flags.items()}
