"""Python files are read as data: what they say is known with its place, the rest is Unread, nothing is run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.readers.python import Module, modules_near, read_python
from xe_sizer.interop.readers.python_values import Call, Name, call_keys
from xe_sizer.interop.values import Unread, Written


def read(text: str, **given: str) -> Module:
    return read_python(text, "job.py", given)


def value(text: str, name: str = "x") -> object:
    return read(text).names[name].value


def keys(written: Written) -> dict[str, object]:
    return {key: each.value for key, each in call_keys(written).items()}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("8 * 2048", 16384), ("2 ** 10 - 24", 1000), ("7 // 2", 3), ("-1", -1), ("1_000_000", 1_000_000),
        ("1e-5", 1e-5), ("'a' + 'b'", "ab"), ("f'{4}-{\"b\"}-{0.5}'", "4-b-0.5"), ("not 0", True),
        ("3 if 1 < 2 else 4", 3), ("None or 5", 5), ("1 and 0", 0), ("2 in [1, 2]", True), ("[1, 2][-1]", 2),
        ("{'a': 3}['a']", 3), ("'A-B'.lower().split('-')[1]", "b"), ("len([1, 2])", 2), ("max(3, 4)", 4),
        ("int('8')", 8), ("sum([i * 2 for i in range(3) if i])", 6), ("'x' is None", False),
        ("{'a': 1}.get('b', 9)", 9), ("(lambda n: n + 1)(2)", 3), ("'{}b'.format(7)", "7b"),
        ("','.join(['a', 'b'])", "a,b"),
    ],
)  # fmt: skip
def test_constant_expressions_are_computed(expression: str, expected: object) -> None:
    assert value(f"x = {expression}") == expected


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("'abc'[:2]", ":2 is not known"),
        ("f'{0.5:.2f}'", "formats are not computed"), ("'{:3}'.format(7)", "formats are not computed"),
        ("'{a}'.format(a=7)", "'format' of a text is not computed"),
        ("'%d' % 3", "it is too large or of no kind that is computed"),
        ("[i * j for i in [1] for j in [2]]", "loops in loops are not computed"),
        ("{'a': 1}.popitem()", "'popitem' of a list or group is not computed"),
        ("1 << 3", "it is too large or of no kind that is computed"),
    ],
)  # fmt: skip
def test_what_configurations_do_without_is_not_computed(expression: str, why: str) -> None:
    assert value(f"x = {expression}") == Unread(expression, why)


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ("for i in [1, 2]:\n    x = i\n    break", "it is set in a loop that is left early"),
        (
            "x = []\nfor i in [1, 2]:\n    if i == 1:\n        continue\n    x.append(i)",
            "it is set in a loop that is left early",
        ),
        ("while True:\n    x = 1", "it is set by a statement that is not evaluated"),
        ("*x, y = [1, 2]", "names with a star are not computed"),
        ("x, y = [1, 2, 3]", "value 1 of it is not known"),
        ("def f():\n    raise E\nx = f()", "an error is raised here"),
    ],
)
def test_statements_that_configurations_do_without_leave_nothing_known(statements: str, why: str) -> None:
    found = value(statements)
    assert isinstance(found, Unread)
    assert found.why == why


@pytest.mark.parametrize(
    "expression",
    [
        "f() + 1", "a.b * 2", "open('x').read() + 'y'", "10 ** 10 ** 10", "1 << 100_000", "'a' * 10 ** 9",
        "[0] * 10 ** 9", "f'{1:1000000000}'", "'%1000000000d' % 1", "'{:1000000000}'.format(1)", "range(10 ** 9)",
        "1 / 0", "[1][5]", "int('x')", "1 if unknown else 2", "b'x'", "1j", "'a' < 1", "len(unknown)", "undefined[0:1]",
    ],
)  # fmt: skip
def test_what_is_not_known_or_too_large_is_unread(expression: str) -> None:
    assert isinstance(value(f"x = {expression}"), Unread)


def test_names_of_other_files_keep_their_full_names() -> None:
    imports = "import torch\nimport nemo.lightning as nl\nfrom a.b import c as d\nfrom . import e\n"
    text = f"{imports}x = [torch.bfloat16, nl.T, d.q, e]"
    names = value(text)
    assert isinstance(names, tuple)
    assert [each.value for each in names] == [
        Name("torch.bfloat16"), Name("nemo.lightning.T"), Name("a.b.c.q"), Name(".e")
    ]  # fmt: skip


RECIPE = '''
from dataclasses import replace
import torch
from titan.config import TrainingConfig
from titan.trainer import Trainer

SEQ = 4096

def optimizer(lr, *, weight_decay=0.1):
    return Adam.Config(lr=lr, weight_decay=weight_decay)

def base(steps: int = 10) -> Trainer.Config:
    """Words."""
    training = TrainingConfig(tokens=4 * SEQ, steps=steps, dtype=torch.float32)
    return Trainer.Config(training=training, optimizer=optimizer(8e-4), datasets=[Data("c4"), Data("pile", weight=2)])

def large() -> Trainer.Config:
    config = base(steps=1000)
    config.parallelism.tensor_parallel_degree = 8
    config.training = replace(config.training, steps=5)
    if config.training.steps > 3:
        config.compile = True
    else:
        config.compile = False
    tuned(config)
    return config

def helper():
    return 3

def _private():
    return Trainer.Config()
'''


def test_recipes_are_functions_that_return_a_configuration() -> None:
    module = read(RECIPE)
    assert list(module.entries) == ["optimizer", "base", "large"]
    assert keys(module.entries["base"]) == {
        "_target_": "titan.trainer.Trainer.Config",
        "training._target_": "titan.config.TrainingConfig",
        "training.tokens": 16384,
        "training.steps": 10,
        "training.dtype": Name("torch.float32"),
        "optimizer._target_": "Adam.Config",
        "optimizer.lr": 8e-4,
        "optimizer.weight_decay": 0.1,
        "datasets.0._target_": "Data",
        "datasets.0._args_.0": "c4",
        "datasets.1._target_": "Data",
        "datasets.1._args_.0": "pile",
        "datasets.1.weight": 2,
    }
    call = module.entries["base"].value
    assert isinstance(call, Call)
    assert call.is_a("Trainer.Config")
    assert call.is_a("Config")
    assert not call.is_a("ner.Config")


def test_values_keep_the_place_where_they_are_written() -> None:
    entry = call_keys(read(RECIPE).entries["large"])
    assert str(entry["training.steps"].where) == "job.py:20:54"
    assert str(entry["training.tokens"].where) == "job.py:14:38"
    assert str(entry["parallelism.tensor_parallel_degree"].where) == "job.py:19:49"
    assert str(call_keys(read(RECIPE).entries["base"])["training.steps"].where) == "job.py:12:23"


def test_attributes_conditions_and_copies() -> None:
    large = read(RECIPE).entries["large"]
    assert keys(large)["training.steps"] == 5
    assert keys(large)["compile"] is True
    assert isinstance(large.value, Call)


def test_a_parameter_without_a_value_is_not_known() -> None:
    module = read(RECIPE)
    with pytest.raises(InputError, match="no function 'bass'"):
        module.entry("bass")
    assert isinstance(keys(module.entry("optimizer"))["lr"], Unread)


def test_given_variables_win_over_assignments_and_the_environment() -> None:
    text = "import os\nBATCH = 2\nN = int(os.environ.get('NODES', '1'))\nM = os.getenv('HOME_OF')\nx = BATCH * 4"
    assert read(text).names["x"].value == 8
    assert read(text, BATCH="3").names["x"].value == 12
    assert str(read(text, BATCH="3").names["BATCH"].where) == "--set BATCH"
    assert read(text).names["N"].value == 1
    assert read(text, NODES="16").names["N"].value == 16
    assert isinstance(read(text).names["M"].value, Unread)


def test_what_depends_on_an_unknown_condition_is_unread() -> None:
    text = "def f():\n  c = Config(a=1, b=2)\n  if flag():\n    c.a = 5\n    n = 1\n  c.n = n\n  return c\n"
    found = keys(read(text).entries["f"])
    assert found["b"] == 2
    assert isinstance(found["a"], Unread)
    assert isinstance(found["n"], Unread)
    assert "flag()" in found["a"].why


def test_an_early_return_on_an_unknown_condition_leaves_the_result_unread() -> None:
    module = read("def f():\n    if flag():\n        return A(x=1)\n    return A(x=2)\n")
    assert isinstance(module.entry("f").value, Unread)
    assert not module.entries


def test_calls_of_a_script_are_kept_in_order_with_known_names() -> None:
    module = read(
        "from unsloth import FastLanguageModel\nfrom trl import SFTConfig, SFTTrainer\nlength = 2048\n"
        'model, tokenizer = FastLanguageModel.from_pretrained("m/x", max_seq_length=length)\n'
        "if __name__ == '__main__':\n    trainer = SFTTrainer(model=model, args=SFTConfig(max_steps=60))\n"
        "    trainer.train()\n"
    )
    assert [call.name for call in module.calls][:3] == [
        "unsloth.FastLanguageModel.from_pretrained", "trl.SFTConfig", "trl.SFTTrainer"
    ]  # fmt: skip
    assert module.calls[0].args[0].value == "m/x"
    assert module.calls[0].kwargs["max_seq_length"].value == 2048
    assert str(module.calls[0].kwargs["max_seq_length"].where) == "job.py:3:10"
    assert keys(module.names["trainer"])["args.max_steps"] == 60


def test_wrappers_that_write_a_call_down_are_that_call() -> None:
    imports = "import nemo_run as run\nfrom functools import partial\n"
    text = f"{imports}x = run.Partial(pretrain, model=run.Config(Llama, layers=2))\ny = partial(f, 1)"
    assert keys(read(text).names["x"]) == {"_target_": "pretrain", "model._target_": "Llama", "model.layers": 2}
    assert keys(read(text).names["y"]) == {"_target_": "f", "_args_.0": 1}


def test_classes_of_the_file_have_their_defaults_and_bases() -> None:
    text = (
        "from dataclasses import dataclass, field\nfrom base import Job\n@dataclass\nclass A(Job):\n    n: int = 4\n"
        "    q: list = field(default_factory=lambda: [1, 2])\n    r: int = field(default=7)\n    s: str\n"
        "class B(A):\n    n: int = 5\n    class Inner:\n        z = 1\nx = B(6, s='t')\ny = B.Inner.z\n"
    )
    assert keys(read(text).names["x"]) == {"_target_": "B", "n": 6, "q": [1, 2], "r": 7, "s": "t"}
    call = read(text).names["x"].value
    assert isinstance(call, Call)
    assert call.is_a("Job")
    assert read(text).names["y"].value == 1


def test_loops_lists_and_groups() -> None:
    text = (
        "x = []\nfor a, b in zip([1, 2], ['p', 'q']):\n    if a != 1:\n        x.append(b)\n"
        "y = {'a': {'b': 1}}\ny['a']['c'] = 2\ny.update(d=3)\nz = {**y, 'd': 4}\nfor k, v in z.items():\n    last = k\n"
        "w = [*x, 'r']\ntotal = 0\nfor i in range(3):\n    total += i\n"
    )
    names = read(text).names
    assert [each.value for each in names["w"].value] == ["q", "r"]  # type: ignore[attr-defined]
    assert keys(names["z"]) == {"a.b": 1, "a.c": 2, "d": 4}
    assert (names["last"].value, names["total"].value) == ("d", 3)


def test_modules_at_hand_are_read_too() -> None:
    modules = {
        "recipes.common": ("from recipes.base import base\nN = 4\ndef tune(c):\n    c.tp = N\n", "common.py"),
        "recipes.base": ("from recipes.common import tune\ndef base():\n    return Config(dp=2)\n", "base.py"),
    }
    imports = "from recipes.base import base\nfrom recipes import common\n"
    text = f"{imports}def job():\n    c = base()\n    common.tune(c)\n    return c\n"
    entry = read_python(text, "job.py", find=modules.get).entries["job"]
    assert keys(entry) == {"_target_": "Config", "dp": 2, "tp": 4}
    assert str(call_keys(entry)["tp"].where) == "common.py:2:5"


def test_functions_of_other_files_that_gave_an_object_are_named() -> None:
    modules = {"a.b": ("def made():\n    return inner()\ndef inner():\n    return Config(x=1)\n", "b.py")}
    entry = read_python("import a.b\ndef job():\n    return a.b.made()\n", "job.py", find=modules.get).entries["job"]
    assert isinstance(entry.value, Call)
    assert entry.value.made_by == ("a.b.inner", "a.b.made")
    assert entry.value.is_a("made")


def test_modules_that_import_a_name_from_each_other_end() -> None:
    modules = {"a": ("from b import x\n", "a.py"), "b": ("from a import x\n", "b.py")}
    module = read_python("from a import x\ny = x\n", "job.py", find=modules.get)
    assert isinstance(module.names["y"].value, Name)


def test_modules_are_found_near_the_file(tmp_path: Path) -> None:
    files = {
        "src/pack/__init__.py": "FLAVOUR = 'f'\n",
        "src/pack/recipes/__init__.py": "",
        "src/pack/recipes/job.py": (
            "from . import common\nfrom .common import N\nfrom .. import FLAVOUR\nfrom pack.sizes import L\n"
            "def job():\n    return Config(n=N, l=L, f=FLAVOUR, m=common.M)\n"
        ),
        "src/pack/recipes/common.py": "from .more import M\nN = 2\n",
        "src/pack/recipes/more.py": "from ..sizes import L as M\n",
        "src/pack/sizes.py": "L = 3\n",
        "companions/src/other/x.py": "Z = 9\n",
        "run.py": "from other.x import Z\nfrom ..secret import S\nz = Z\ns = S\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    job, run = tmp_path / "src/pack/recipes/job.py", tmp_path / "run.py"
    found = read_python(job.read_text(encoding="utf-8"), str(job), find=modules_near(job)).entries["job"]
    assert keys(found) == {"_target_": "Config", "n": 2, "l": 3, "f": "f", "m": 3}
    assert str(call_keys(found)["l"].where) == f"{tmp_path}/src/pack/sizes.py:1:5"
    names = read_python(run.read_text(encoding="utf-8"), str(run), find=modules_near(run)).names
    assert names["z"].value == 9
    assert modules_near(run)("../../etc/passwd") is None
    assert modules_near(run)("a/b") is None
    assert modules_near(Path("-"))("os") is None


def notebook(*cells: str) -> str:
    code = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "source": ["# title"]}, *code]})


def test_notebooks_are_their_code_cells_and_places_name_the_cell() -> None:
    text = notebook(
        "%%capture\n!pip install \\\n  x\nn = 2\n", "%%bash\nrm -rf /", "broken (", "x = Config(\n  n = n * 2)"
    )
    module = read_python(text, "job.ipynb")
    written = call_keys(module.names["x"])["n"]
    assert (written.value, str(written.where)) == (4, "job.ipynb cell 5:2:7")


def test_cells_of_a_marimo_notebook_share_their_names() -> None:
    text = (
        "import marimo\napp = marimo.App()\n@app.cell\ndef _():\n    n = 3\n    return (n,)\n"
        "@app.cell(hide_code=True)\ndef _(n):\n    x = Config(n=n)\n    return\n"
    )
    assert keys(read(text).names["x"])["n"] == 3


CANARIES = """
import os, subprocess, pathlib
os.system("touch {0}")
subprocess.run(["touch", "{0}"])
open("{0}", "w").write("x")
eval("open('{0}', 'w')")
exec("open('{0}', 'w')")
__import__("os").system("touch {0}")
pathlib.Path("{0}").write_text("x")
class A(metaclass=type(open("{0}", "w"))):
    x = open("{0}", "w")
x = (lambda: os.system("touch {0}"))()
"".__class__.__mro__[1].__subclasses__()[0]("{0}")
"{{0.__class__}}".format(open)
assert os.system("touch {0}")
"""


def test_nothing_is_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    read(CANARIES.format(canary))
    assert not canary.exists()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000, "[" * 100_000 + "]" * 100_000, "x = " + "-" * 100_000 + "1", "x = a" + ".a" * 100_000,
        "x = " + "1+" * 100_000 + "1", "x = " + "lambda:" * 100_000 + "1", "\x00", "x = \xff(", "x" * 5_000_000,
        "def f():\n  return f()\nx = f()", "x = []\nx.append(x)\ny = x",
        "class A:\n  pass\nA.a = A()\nA.a.a = A.a\nx = A.a",
        "def f(n):\n  return [f(n), f(n)]\nx = f(1)", "x = [0]\nfor i in range(1000):\n  x = [x, x]",
        "while True:\n  x = 1",
        "for i in range(1000):\n  for j in range(1000):\n    for k in range(1000):\n      x = i",
        "x = 'a'\nfor i in range(1000):\n  x = x + x", "x = 2\nfor i in range(1000):\n  x = x * x",
        "x = [[[i for i in range(9999)] for j in range(9999)] for k in range(9999)]", "from job import *",
        "x = [1] * 10000\ny = [x] * 10000\nz = [y] * 10000", "def f():\n  raise E\nx = f()", "global x", "return 5",
        "x = {}\nx['x'] = x\ny = {**x, 'y': x}", "del x\nx += 1", "a = b = c = [a]\na[0] = b", "break",
    ],
)  # fmt: skip
def test_hostile_files_end_soon(text: str) -> None:
    start = time.perf_counter()
    try:
        module = read(text)
    except InputError:
        pass
    else:
        for each in (*module.names.values(), *module.entries.values()):
            call_keys(each)
        assert len(module.calls) < 1_000_000
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("text", ["[", "{}", '{"cells": 3}', "[" * 100_000, "\ufeff"])
def test_what_is_no_notebook_is_said(text: str) -> None:
    with pytest.raises(InputError, match="notebook"):
        read_python(text, "x.ipynb")
