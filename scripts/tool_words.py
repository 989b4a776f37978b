"""Write the words that a training tool knows, against which `tests/exporters/test_words_of_tools.py` holds exports.

    python scripts/tool_words.py trl|ms-swift|openrlhf|verl|nemo-rl FOLDER VERSION > tests/exporters/words/TOOL.json

FOLDER is the package of the tool as it is installed (NeMo RL: its repository); nothing of it is run. Of TRL and
ms-swift the fields of the classes of arguments are read, with those of transformers, which has to be installed; of
OpenRLHF the flags of its parsers; of verl and NeMo RL the keys of their configurations and the fields of their types.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

CLASSES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "trl": {
        **{job: (f"{name}Config", "ScriptArguments", "ModelConfig") for job, name in
           {"sft": "SFT", "dpo": "DPO", "kto": "KTO", "reward": "Reward"}.items()},
        "grpo": ("GRPOConfig", "GRPOScriptArguments", "ScriptArguments", "ModelConfig"),
        "vllm-serve": ("ScriptArguments",),
    },
    "ms-swift": {
        "rlhf": ("RLHFArguments",), "sft": ("SftArguments",), "pt": ("PretrainArguments", "SftArguments"),
        "rollout": ("RolloutArguments",),
    },
}  # fmt: skip
"""Classes of arguments by the command that has them."""
_VERL = {
    "verl.trainer.main_ppo": ("trainer/config", "ppo"),
    "verl.experimental.one_step_off_policy.main_ppo": ("experimental/one_step_off_policy/config", "one_step_off_ppo"),
    "verl.experimental.fully_async_policy.fully_async_main": (
        "experimental/fully_async_policy/config", "fully_async_ppo",
    ),
}  # fmt: skip
_ASIDE_OF_RECIPES = (
    "logger", "mcore_generation_config", "nemo_gym", "env.math", "env.code", "async_rl", "data_plane", "scheduler",
    "policy.tokenizer", "speculative", "_overrides", "quant", "fp8_cfg.", "freeze", "env_vars", "sglang_router",
)  # fmt: skip
_ASIDE = (
    "profiler", "_target_", "npu", "prometheus", "transfer_queue", "qat", ".checkpoint.", "router_replay", "val_kwargs",
    "trace", "mtp", "disaggregation", "hydra.", "ray_kwargs",
)  # fmt: skip


def fields(folders: list[Path], wanted: tuple[str, ...]) -> set[str]:
    """Annotated names of classes and of those that they inherit from."""
    found: dict[str, list[tuple[set[str], list[str]]]] = {}
    for file in (file for folder in folders for file in ([folder] if folder.is_file() else folder.rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                own = {
                    one.target.id
                    for one in node.body
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
                }
                found.setdefault(node.name, []).append((own, [ast.unparse(base).split(".")[-1] for base in node.bases]))
    names, names_seen, todo = set[str](), set[str](), list(wanted)
    while todo:
        name = todo.pop()
        if name not in names_seen:
            names_seen.add(name)
            for own, bases in found.get(name, []):
                names |= own
                todo += bases
    return names


def flags(file: Path) -> set[str]:
    """Flags of a parser, and those of a prefix that it fills in for actor and critic."""
    text = file.read_text(encoding="utf-8")
    plain = set(re.findall(r"""add_argument\(\s*["']--([\w.\-]+)""", text))
    return plain | {
        f"{role}{name}" for name in re.findall(r'f"--\{prefix\}([\w.]+)"', text) for role in ("actor", "critic")
    }


def keys(value: object, prefix: str = "") -> Iterator[str]:
    """Dotted keys of a configuration."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield f"{prefix}{name}"
            yield from keys(each, f"{prefix}{name}.")


def composed(folder: Path, places: tuple[str, str], megatron: bool) -> set[str]:
    """Keys of a trainer of verl, as Hydra puts its configuration together."""
    from hydra import compose, initialize_config_dir  # type: ignore[import-not-found]
    from omegaconf import OmegaConf  # type: ignore[import-not-found]

    where, name = places
    name = f"{name}_megatron_trainer" if megatron else f"{name}_trainer"
    search = [] if where == "trainer/config" else [f"hydra.searchpath=[file://{folder}/trainer/config]"]
    with initialize_config_dir(str(folder / where), version_base=None):
        whole = OmegaConf.to_container(compose(name, search))
    return {key for key in keys(whole) if not any(part in key for part in _ASIDE)}


def words(tool: str, folder: Path) -> dict[str, set[str]]:
    """The words of each command or configuration."""
    if tool in CLASSES:
        transformers = Path(str(importlib.util.find_spec("transformers").origin)).parent  # type: ignore[union-attr]
        folders = [folder, transformers / "training_args.py", transformers / "training_args_seq2seq.py"]
        if tool == "ms-swift":
            folders.append(Path(str(importlib.util.find_spec("trl").origin)).parent / "trainer")  # type: ignore[union-attr]
        serve = {"vllm-serve": [folder / "scripts" / "vllm_serve.py"]}
        return {name: fields(serve.get(name, folders), each) for name, each in CLASSES[tool].items()}
    if tool == "openrlhf":
        return {file.stem: flags(file) for file in (folder / "cli").glob("train_*.py")}
    if tool == "verl":
        return {
            f"{name}{' megatron' * megatron}": composed(folder, places, megatron)
            for name, places in _VERL.items() for megatron in (False, True)
        }  # fmt: skip
    recipes = (yaml.safe_load(file.read_text()) for file in sorted((folder / "examples/configs").rglob("*.yaml")))
    typed = {"DTensorConfig", "MegatronConfig", "OnPolicyDistillationConfig", "NonColocatedTeachersConfig"}
    classes = (
        *typed,
        "TeacherResourceConfig",
        "GRPOConfig",
        "PPOConfig",
        "LoRAConfig",
        "VllmSpecificArgs",
        "SGLangConfig",
    )
    return {
        "recipes": {
            key for recipe in recipes for key in keys(recipe) if not any(part in key for part in _ASIDE_OF_RECIPES)
        },
        "types": fields([folder / "nemo_rl"], classes),
    }


def main() -> None:
    tool, folder, version = sys.argv[1:]
    found = {name: sorted(each) for name, each in words(tool, Path(folder).absolute()).items()}
    shared = sorted(set.intersection(*map(set, found.values()))) if len(found) > 1 and tool != "nemo-rl" else []
    own = {name: _lines(word for word in each if word not in set(shared)) for name, each in found.items()}
    print(json.dumps({"source": f"{tool} {version}", "shared": _lines(shared), "words": own}, indent=1))


def _lines(found: Iterable[str]) -> list[str]:
    return textwrap.wrap(" ".join(found), 110, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
