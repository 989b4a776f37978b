"""Repositories on the Hugging Face Hub: in the local cache, fetched on request, and what is said where they are not."""

import builtins
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hub_cases import stand_in

from xe_sizer.errors import InputError, Location
from xe_sizer.profiles.catalogue import resolve_model
from xe_sizer.profiles.finder import Finder
from xe_sizer.profiles.hub import Hub, asked_hub, cache_folder, fetched, repository_of

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "vocab_size": 10,
    "max_position_embeddings": 64,
}
FIRST, SECOND = "a" * 40, "b" * 40


def stored(cache: Path, snapshot: str = FIRST, main: str | None = None, **changes: Any) -> Path:
    """A repository `maker/Novel-9B` in a cache, with its configuration as a link to a blob, as libraries store it."""
    home = cache / "models--maker--Novel-9B"
    folder, blobs = home / "snapshots" / snapshot, home / "blobs"
    for each in (folder, blobs, home / "refs"):
        each.mkdir(parents=True, exist_ok=True)
    (blobs / snapshot).write_text(json.dumps(CONFIG | changes), encoding="utf-8")
    (folder / "config.json").symlink_to(Path("../../blobs") / snapshot)
    if main is not None:
        (home / "refs" / "main").write_text(main, encoding="utf-8")
    return folder / "config.json"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, "/c"),
        ({"HUGGINGFACE_HUB_CACHE": "/c"}, "/c"),
        ({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({}, str(Path.home() / ".cache/huggingface/hub")),
    ],
)
def test_the_cache_is_where_hugging_face_keeps_it(environment: dict[str, str], expected: str) -> None:
    assert str(cache_folder(environment)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("maker/Novel-9B", "maker/Novel-9B"),
        ("https://huggingface.co/maker/Novel-9B/", "maker/Novel-9B"),
        ("hf.co/maker/Novel-9B:Q4_K_M", "maker/Novel-9B"),
        ("maker/Novel-9B@abc", "maker/Novel-9B"),
        ("Novel-9B", None),
        ("./maker/Novel-9B", None),
        ("../maker/Novel-9B", None),
        ("maker/../Novel", None),
        ("maker/..", None),
        ("/maker/Novel", None),
        ("maker/Novel--9B", None),
        ("$(touch x)/y", None),
        ("maker/No\0vel", None),
    ],
)
def test_what_can_be_a_repository(name: str, expected: str | None) -> None:
    assert repository_of(name) == expected


def test_a_repository_in_the_cache_is_read_and_its_file_is_named(tmp_path: Path) -> None:
    stored(tmp_path, SECOND, num_hidden_layers=5)
    config = stored(tmp_path, FIRST, main=FIRST)
    shape = resolve_model("maker/Novel-9B", Finder(), hub=Hub(tmp_path))
    assert (shape.name, shape.layers) == ("Novel-9B", 3)
    assert shape.assumptions[0] == f"no profile has this name; its shape is that of {config}"


@pytest.mark.parametrize("main", [None, "c" * 40, "../../../elsewhere", "\0" * 300, ""])
def test_without_a_good_reference_the_newest_snapshot_is_read(main: str | None, tmp_path: Path) -> None:
    stored(tmp_path, FIRST, main=main)
    newest = stored(tmp_path, SECOND, num_hidden_layers=5)
    os.utime(newest.parent, (2e9, 2e9))
    assert resolve_model("maker/Novel-9B", Finder(), hub=Hub(tmp_path)).layers == 5


def test_a_link_that_leads_out_of_the_repository_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps(CONFIG), encoding="utf-8")
    folder = tmp_path / "hub" / "models--maker--Novel-9B" / "snapshots" / FIRST
    folder.mkdir(parents=True)
    (folder / "config.json").symlink_to(outside)
    assert Hub(tmp_path / "hub").cached("maker/Novel-9B") is None
    assert Hub(tmp_path / "hub").cached("maker/" + "x" * 5000) is None


def test_a_profile_wins_over_the_cache_and_the_cache_over_a_name_of_several(tmp_path: Path) -> None:
    for name in ("maker--Llama-3.1-8B", "maker--Llama-3.1"):
        folder = tmp_path / f"models--{name}" / "snapshots" / FIRST
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert resolve_model("maker/Llama-3.1-8B", Finder(), hub=Hub(tmp_path)).layers == 32
    assert resolve_model("maker/Llama-3.1", Finder(), hub=Hub(tmp_path)).layers == 3
    with pytest.raises(InputError, match="several models"):
        resolve_model("other/Llama-3.1", Finder(), hub=Hub(tmp_path))


def test_a_repository_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        resolve_model(
            "maker/Novel-9B", Finder(), Location("--model"), asked_hub({"HF_HOME": str(tmp_path)}, False, print)
        )
    (problem,) = caught.value.problems
    assert problem.message == "unknown model 'maker/Novel-9B': config.json of maker/Novel-9B is not on this machine"
    assert problem.hint is not None
    assert problem.hint.startswith("pass --download (needs pip install 'xe-sizer[hub]') or the path of its config.json")


def _package(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[tuple[str, str]]:
    """A package huggingface_hub that answers so; remembers what was asked for."""
    asked: list[tuple[str, str]] = []

    def hf_hub_download(repository: str, file: str, cache_dir: Path) -> str:
        asked.append((repository, file))
        if isinstance(answer, Exception):
            raise answer
        return str(stored(cache_dir, main=FIRST))

    stand_in(monkeypatch, hf_hub_download)
    return asked


def test_download_fetches_the_configuration_alone_once_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, said = _package(monkeypatch, None), list[str]()
    hub = asked_hub({"HF_HUB_CACHE": str(tmp_path)}, True, said.append)
    for _ in range(2):
        assert resolve_model("maker/Novel-9B", Finder(), hub=hub).layers == 3
    resolve_model("meta-llama/Llama-3.1-8B", Finder(), hub=hub)
    assert asked == [("maker/Novel-9B", "config.json")]
    assert said == ["fetching config.json of maker/Novel-9B from the Hugging Face Hub"]


def _error(name: str, *bases: type[Exception]) -> Exception:
    error: Exception = type(name, bases, {})("text of the library")
    return error


class _RepositoryNotFoundError(OSError): ...


_RepositoryNotFoundError.__name__ = "RepositoryNotFoundError"


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (_error("GatedRepoError", _RepositoryNotFoundError), "maker/Novel-9B is gated", "accept its terms at https://"),
        (_error("RepositoryNotFoundError", OSError), "the Hub has no repository maker/Novel-9B", "hf auth login"),
        (_error("RemoteEntryNotFoundError", OSError), "maker/Novel-9B has no config.json", "made from"),
        (_error("LocalEntryNotFoundError", FileNotFoundError), "the Hugging Face Hub cannot be reached", "copy its"),
        (PermissionError(13, "denied"), "cannot be reached", "copy its config.json"),
    ],
)
def test_a_download_that_fails_says_why_and_what_to_do(
    error: Exception, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(monkeypatch, error)
    with pytest.raises(InputError) as caught:
        fetched("maker/Novel-9B", tmp_path, Location("--model"))
    (problem,) = caught.value.problems
    assert message in problem.message
    assert hint in (problem.hint or "")


def test_download_without_the_package_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match="needs the package huggingface_hub") as caught:
        fetched("maker/Novel-9B", tmp_path)
    assert caught.value.problems[0].hint == "pip install 'xe-sizer[hub]'"


@pytest.mark.parametrize(
    "name",
    [
        "/models/Llama-3-8B-hf/",
        "./checkpoints/mcore/Meta-Llama-3-8B",
        "/tmp/Meta-Llama-3-8B/original/",
        "outputs/run/llama-3-8b/checkpoint-500",
        "/weights/models--meta-llama--Meta-Llama-3-8B/snapshots/" + FIRST,
        "s3://bucket/Meta-Llama-3-8B-Instruct",
        r"C:\models\Meta-Llama-3-8B",
    ],
)
def test_the_last_part_of_a_path_that_is_not_there_is_a_name(name: str, tmp_path: Path) -> None:
    finder = Finder()
    assert resolve_model(name, finder, hub=Hub(tmp_path)).name == "llama-3-8b"
    assert finder.readings == {("model", name): "llama-3-8b"}


@pytest.mark.parametrize("name", ["/models/llama-3", "/models/novel-9b", "/", "./checkpoints/", "/" + "x/" * 3000])
def test_a_path_whose_last_part_is_no_one_model_is_unknown(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        resolve_model(name, Finder(), hub=Hub(tmp_path))


def test_a_folder_without_a_configuration_is_read_by_its_name(tmp_path: Path) -> None:
    folder, other = tmp_path / "Qwen3-8B", tmp_path / "novel"
    for each in (folder, other):
        each.mkdir()
    finder = Finder()
    assert resolve_model(str(folder), finder).name == "qwen3-8b"
    assert finder.readings == {("model", str(folder)): "qwen3-8b"}
    with pytest.raises(InputError, match=r"no such file: .*novel/config\.json"):
        resolve_model(str(other), finder)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert resolve_model(str(folder), finder).layers == 3
