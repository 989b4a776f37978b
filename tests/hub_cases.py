"""A configuration that no catalogue has, and a package huggingface_hub that stands in for the real one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}


def stand_in(monkeypatch: pytest.MonkeyPatch, hf_hub_download: Callable[[str, str, Path], str]) -> None:
    """Install the package; `hf_hub_download` of repository, file and cache_dir returns the path of the file."""
    package, utils, logging = (ModuleType(f"huggingface_hub{part}") for part in ("", ".utils", ".utils.logging"))
    package.hf_hub_download = hf_hub_download  # type: ignore[attr-defined]
    logging.set_verbosity_error = lambda: None  # type: ignore[attr-defined]
    utils.logging = logging  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils", utils)
