"""Files that mean harm, or are no configuration at all: bad input or an honest import, and nothing in them runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.read import Imported, read_foreign
from xe_sizer.interop.source import Asked, Source

AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\nmicro_batch_size: 2\nsequence_len: 4096\nnum_epochs: 1\n"
ASKED = Asked(hardware={"gpus": 8})


def import_of(folder: Path, name: str, text: str | bytes) -> Imported | list[str]:
    """The import of a file, or what is said of it."""
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return read_foreign([file], ASKED)
    except InputError as error:
        return [problem.message for problem in error.problems]


SCRIPTS = [
    "$(touch {canary})", "`touch {canary}`", "eval 'touch {canary}'", "touch {canary}", "cat <(touch {canary})",
    "x=$(touch {canary}); swift sft --model $x", "source /dev/stdin <<< 'touch {canary}'", "trap 'touch {canary}' EXIT",
    "swift sft --model \"$(touch {canary})\"", "bash -c 'touch {canary}'", "f() {{ touch {canary}; }}; f",
    "swift sft --model x; rm -rf {canary}", ": ${{V:=$(touch {canary})}}", "echo x > {canary}",
]  # fmt: skip


@pytest.mark.parametrize("line", SCRIPTS)
def test_no_command_of_a_script_runs(line: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    import_of(tmp_path, "train.sh", f"#!/bin/bash\n{line.format(canary=canary)}\nswift sft --model Qwen/Qwen3-8B\n")
    assert not canary.exists()


PYTHON = [
    "open({canary!r}, 'w')", "__import__('os').system('touch {canary}')", "exec(\"open({canary!r}, 'w')\")",
    "import os; os.system('touch {canary}')", "eval('open')({canary!r}, 'w')", "[open(n, 'w') for n in [{canary!r}]]",
    "@open({canary!r}, 'w')\ndef f(): ...", "class C:\n    x = open({canary!r}, 'w')",
    "x = f\"{{open({canary!r}, 'w')}}\"", "!touch {canary}", "%system touch {canary}",
]  # fmt: skip


@pytest.mark.parametrize("line", PYTHON)
def test_no_line_of_a_python_file_runs(line: str, tmp_path: Path) -> None:
    canary = str(tmp_path / "canary")
    text = "from unsloth import FastLanguageModel\nFastLanguageModel.from_pretrained(model_name='Qwen/Qwen3-8B')\n"
    import_of(tmp_path, "train.py", f"{line.format(canary=canary)}\n{text}")
    import_of(tmp_path, "last.py", f"{text}{line.format(canary=canary)}\n")
    assert not Path(canary).exists()


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/object/new:open", "!ENV", "!!binary"])
def test_no_tag_of_yaml_is_constructed(tag: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    found = import_of(tmp_path, "job.yml", f"{AXOLOTL}output_dir: {tag} [touch {canary}]\n")
    assert not canary.exists()
    assert isinstance(found, Imported)
    assert found.facts["train.seq_len"].value == 4096


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert isinstance(import_of(tmp_path, "bomb.yml", AXOLOTL + "\n".join(lines)), list)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("binary.yml", bytes(range(256)) * 100),
        ("binary.py", b"\x7fELF" + bytes(1000)),
        ("long.yml", b"base_model: " + b"x" * 11_000_000),
        ("deep.json", b"[" * 100_000),
        ("deep.yml", b"a: " + b"[" * 100_000),
        ("deep.py", b"x = " + b"(" * 100_000),
        ("deep.sh", b"echo " + b"$(echo " * 10_000),
        ("power.py", b"x = 9 ** 9 ** 9 ** 9\n"),
        ("empty.yml", b""),
        ("nothing.sh", b"#!/bin/bash\n"),
        ("prose.yml", b"Dear all, this is no configuration: really.\n"),
        ("utf16.yml", "base_model: x".encode("utf-16")),
    ],
)
def test_what_cannot_be_read_is_bad_input(name: str, data: bytes, tmp_path: Path) -> None:
    found = import_of(tmp_path, name, data)
    assert isinstance(found, list)
    assert all(found)


@pytest.mark.parametrize(("name", "why"), [("notes.md", "no tool that is known"), ("run.sh", "not read as a shell")])
def test_a_text_is_blamed_as_a_script_only_where_its_name_says_so(name: str, why: str, tmp_path: Path) -> None:
    found = import_of(tmp_path, name, "# Notes\n\nTrained on (eight GPUs)) in May.\n")
    assert isinstance(found, list)
    assert why in found[0]


def test_a_file_larger_than_is_read_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "huge.yml"
    with file.open("wb") as stream:
        os.truncate(stream.fileno(), 100_000_000)
    with pytest.raises(InputError, match="larger than"):
        read_foreign([file], ASKED)


@pytest.mark.parametrize("name", ["/etc/passwd", "../../../../../../etc/passwd", "/dev/zero", "~/.ssh/id_rsa", "\x00"])
def test_a_path_does_not_lead_out_of_the_folders(name: str, tmp_path: Path) -> None:
    found = import_of(tmp_path, "job.yml", f'{AXOLOTL}deepspeed: "{name}"\n'.replace("\x00", "\\0"))
    assert isinstance(found, Imported)
    assert "root:" not in found.as_json()


STAGE_THREE = '{"zero_optimization": {"stage": 3}}'


@pytest.mark.parametrize("folder", [False, True])
def test_a_link_does_not_lead_out_of_the_folders(folder: bool, tmp_path: Path) -> None:
    inside, outside = tmp_path.joinpath(*"abcdefg"), tmp_path / "outside"
    inside.mkdir(parents=True)
    outside.mkdir()
    (outside / "states.json").write_text(STAGE_THREE)
    if folder:
        (inside / "link").symlink_to(outside)
    else:
        (inside / "states.json").symlink_to(outside / "states.json")
    found = import_of(inside, "job.yml", f"{AXOLOTL}deepspeed: states.json\n")
    assert isinstance(found, Imported)
    assert found.fact_of("layout.zero") != 3
    assert [each.key for each in found.missing] == ["layout.zero"]


def test_a_link_within_the_folders_is_followed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "stage3.json").write_text(STAGE_THREE)
    (tmp_path / "states.json").symlink_to(tmp_path / "shared" / "stage3.json")
    found = import_of(tmp_path, "job.yml", f"{AXOLOTL}deepspeed: states.json\n")
    assert isinstance(found, Imported)
    assert found.fact_of("layout.zero") == 3


def test_nothing_is_looked_for_in_the_folder_of_the_whole_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path("/etc/passwd").is_file()
    assert Source(Path("/opt/job.yml"), "yaml", AXOLOTL).text_beside("/etc/passwd") is None


def test_a_sourced_file_outside_is_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "a" / "b" / "c" / "d" / "e" / "f"
    inside.mkdir(parents=True)
    (tmp_path / "secret.sh").write_text("MODEL=secret/model\n")
    found = import_of(inside, "train.sh", f"source {tmp_path}/secret.sh\nswift sft --model ${{MODEL:-Qwen/Qwen3-8B}}\n")
    assert isinstance(found, Imported)
    assert found.fact_of("model") == "Qwen/Qwen3-8B"


def test_many_variables_and_arithmetic_end(tmp_path: Path) -> None:
    lines = ["A=xxxxxxxxxx", *(f"A=$A$A$A$A$A$A$A$A$A$A  # {n}" for n in range(30)), "swift sft --model $A"]
    found = import_of(tmp_path, "grow.sh", "\n".join(lines))
    assert isinstance(found, list | Imported)


SHARED = "z = [1]\n" + "z = [z, z]\n" * 24
WIDE = "n = list(range(9999))\n"
MANY = "k = []\nfor i in range(1000):\n  for j in range(1000):\n    "
OF_SHARED = [
    "str(z)", "f'{z}'", "'%s' % (z,)", "'{}'.format(z)", "''.join(z)", "z == [z]", "z != z", "z < z", "1 in z",
    "sorted(z)", "max(z)", "sum(z, [])", "-z", "bool(z)", "{z: 1}", "[1][z]", "z.copy()", "copy.deepcopy(z)",
]  # fmt: skip
BOMBS = {
    **{each: f"import copy\n{SHARED}w = {each}" for each in OF_SHARED},
    "a tuple": "import copy\nz = (1,)\n" + "z = (z, z)\n" * 24 + "w = copy.deepcopy(z)",
    "a group": "z = {'a': 1}\n" + "z = {'a': z, 'b': z}\n" * 24 + "w = str(z)",
    "starred items": "n = [1]\n" + "n = [*n, *n]\n" * 80,
    "starred arguments": "n = [1]\ndef f(*a):\n  return a\n" + "n = f(*n, *n)\n" * 80,
    "one starred list": f"{WIDE}m = [{'*n, ' * 50_000}]",
    "starred targets": WIDE + "".join(f"a, *b{i} = n\n" for i in range(15_000)),
    "slices": f"{WIDE}{MANY}k.append(n[:])",
    "groups": f"n = {{i: i for i in range(9999)}}\n{MANY}k.append({{**n}})",
    "classes": "class C0:\n a0=1\n" + "".join(f"class C{i}(C{i - 1}):\n a{i}=1\n" for i in range(1, 9000)),
    "objects": "class C:\n" + "".join(f" a{i}=1\n" for i in range(9000)) + "k = [C() for i in range(9999)]",
    "texts": "a = 'a' * 10_000\nb = a.replace('a', a)\nc = a.join([''] * 10_000)\nd = ('%(a)s' * 2000) % {'a': a}",
    "widths": "w = 999_999_999\nb = f'{1:{w}}'\nc = '{:{}}'.format(1, w)\nd = round(5, -w)",
    "attributes": "x = f()\nfor i in range(1000):\n  for j in range(1000):\n    x = x.abcdefgh",
    "a long name": f"import {'a.' * 140_000}a",
    "names of a long module": f"from {'a.' * 2_000}a import b\nk = [{'b, ' * 50_000}]",
    "branches": "def f():\n if unknown:\n" + "  x=1\n" * 30_000 + "k = [f() for i in range(9999)]",
    "functions": SHARED + "".join(f"def f{i}():\n return z\n" for i in range(2000)),
    "things": "z = g(1)\n" + "z = g(a=z, b=z)\n" * 16 + "".join(f"def f{i}():\n return z\n" for i in range(2000)),
    "asked for": "x = f()\n" + "".join(f"x.a.b{i}\n" for i in range(12_000)) + "w = [x] * 9999\nv = [w] * 9999",
    "one line": f"y = 'é'; x = [{'1,' * 140_000}]",
    "too long": f"x = [{'1,' * 400_000}]",
}
READ = """
import json, resource, sys
from xe_sizer.errors import InputError
from xe_sizer.interop.readers.python import read_python
from xe_sizer.interop.readers.python_values import call_keys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
for name, text in json.load(sys.stdin).items():
    try:
        module = read_python(text, "x.py")
        for each in (*module.names.values(), *module.entries.values()):
            call_keys(each)
        module.calls
    except InputError:
        pass
    print(name)
"""


def test_python_files_whose_values_share_parts_take_little_memory() -> None:
    asked = json.dumps(BOMBS)
    ran = subprocess.run([sys.executable, "-c", READ], input=asked, capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == list(BOMBS), ran.stderr[-2000:]
