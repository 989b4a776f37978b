"""YAML files of other tools are read as far as they can be, with the places of the file."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.profiles.text import foreign_scalar, read_text
from xe_sizer.profiles.yaml_reader import ForeignDocument, documents_of, load_yaml


def read(text: str) -> ForeignDocument:
    (document,) = documents_of(Path("job.yml"), text)
    return document


def notes(document: ForeignDocument) -> str:
    return "\n".join(str(note) for note in document.notes)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5), ("2E5", 200_000), ("500_000", 500_000), ("1_0.5", 10.5), (".5", 0.5), ("+3", 3),
        ("yes", True), ("Off", False), ("on", True), ("NO", False), ("true", True), ("~", None), ("", None),
        ("017", 15), ("019", "019"), ("0x1F", 31), ("0b101", 5), ("0o17", "0o17"), ("1:30", "1:30"),
        ("2026-11-05", "2026-11-05"), ("inf", math.inf), ("-.inf", -math.inf), ("1e400", math.inf),
        ("9" * 5000, math.inf), ("-", "-"), ("1.2.3", "1.2.3"), ("_1", "_1"), ("None", "None"),
    ],
)  # fmt: skip
def test_scalars_are_what_tools_take_them_for(text: str, value: object) -> None:
    assert foreign_scalar(text) == value
    assert type(foreign_scalar(text)) is type(value)


def test_nan_is_a_number() -> None:
    value = foreign_scalar(".NaN")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_anchors_and_merged_keys_are_expanded_with_the_places_of_their_text() -> None:
    document = read("base: &base\n  lr: 1e-5\n  steps: 10\nrun:\n  <<: *base\n  steps: 20\nboth: [*base, *base]\n")
    assert document.value == {
        "base": {"lr": 1e-5, "steps": 10},
        "run": {"lr": 1e-5, "steps": 20},
        "both": [{"lr": 1e-5, "steps": 10}] * 2,
    }
    assert str(document.locate(("run", "lr"))) == "job.yml:2:7"
    assert str(document.locate(("run", "steps"))) == "job.yml:6:10"
    assert str(document.locate(("run", "lr"), key=True)) == "job.yml:2:3"
    assert str(document.locate(("both", 1))) == "job.yml:7:15"
    assert str(document.locate(("both", 1, "steps"))) == "job.yml:3:10"


def test_a_key_stands_where_it_is_written_whatever_its_value_is_an_alias_of() -> None:
    document = read("base: &base\n  lr: 1\nrun: *base\nagain: {<<: *base, lr: 2}\n")
    assert str(document.locate(("run",), key=True)) == "job.yml:3:1"
    assert str(document.locate(("run", "lr"), key=True)) == "job.yml:2:3"
    assert str(document.locate(("again", "lr"), key=True)) == "job.yml:4:20"


def test_of_merged_groups_the_first_wins_and_written_keys_before_all() -> None:
    document = read("a: &a {x: 1, y: 1}\nb: &b {x: 2, z: 2}\nc:\n  z: 3\n  <<: [*a, *b]\nd:\n  <<: *b\n  <<: *a\n")
    assert isinstance(document.value, dict)
    assert document.value["c"] == {"z": 3, "x": 1, "y": 1}
    assert document.value["d"] == {"x": 2, "z": 2, "y": 1}


def test_a_merge_key_that_names_no_group_stays_a_key() -> None:
    assert read("a: {<<: 3}").value == {"a": {"<<": 3}}


def test_several_documents_are_read_and_empty_ones_left_out() -> None:
    documents = documents_of(Path("k8s.yml"), "---\na: 1\n---\n---\n- b\n...\n")
    assert [each.value for each in documents] == [{"a": 1}, ["b"]]
    assert str(documents[1].locate((0,))) == "k8s.yml:5:3"


def test_tags_are_left_out_and_nothing_is_constructed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    document = read(
        f'a: !ENV ${{X:8}}\nb: !!python/tuple [1, 2]\nc: !!python/object/apply:os.system ["touch {canary}"]\n'
        "d: !!python/name:torch.float32 ''\ne: !!str 12\nf: !!float 3\ng: !Ref {h: 1}\n"
    )
    assert document.value == {
        "a": "${X:8}", "b": [1, 2], "c": [f"touch {canary}"], "d": "torch.float32", "e": "12", "f": 3, "g": {"h": 1},
    }  # fmt: skip
    assert "job.yml:1:4: the tag !ENV is left out" in notes(document)
    assert not canary.exists()


def test_of_a_key_given_twice_the_last_counts_and_keys_are_text() -> None:
    document = read("lr: 1\nlr: 2\n1: x\ntrue: y\nnull: z\n? [a]\n: odd\n")
    assert isinstance(document.value, dict)
    assert document.value["lr"] == 2
    assert {"1", "true", "null"} <= document.value.keys()
    assert "job.yml:2:1: 'lr' is given twice; the last counts" in notes(document)
    assert str(document.locate(("lr",))) == "job.yml:2:5"


def test_an_alias_without_an_anchor_and_one_of_itself_are_noted() -> None:
    document = read("files: *all\nloop: &loop [1, *loop]\n*x : 1\n")
    assert document.value == {"files": "*all", "loop": [1, None], "*x": 1}
    assert "names no anchor" in notes(document)
    assert "stands inside what it names" in notes(document)


def test_templates_stay_text_where_they_are_values() -> None:
    document = read(
        "{{- /* a\n comment */}}\n{{- if .Values.on }}\nmodel: {{ .Values.model | quote }}\n{{- end }}\n"
        'args: [{{ .a }}, "{{ .b }}"]\nurl: x-{{ .c }}:8000\n{% for x in y %}\n- z\n{% endfor %}\n'.replace("- z\n", "")
    )
    assert document.value == {
        "model": "{{ .Values.model | quote }}",
        "args": ["{{ .a }}", "{{ .b }}"],
        "url": "x-{{ .c }}:8000",
    }
    assert str(document.locate(("model",))) == "job.yml:4:8"
    assert "job.yml:5:1: left out, since it is a template: {{- end }}" in notes(document)


def test_a_chat_template_is_not_taken_apart() -> None:
    document = read('a: |\n  {% for m in messages %}\n  {{ m["content"] }}\nb: "{{ x }}"\n')
    assert document.value == {"a": '{% for m in messages %}\n{{ m["content"] }}\n', "b": "{{ x }}"}
    assert not document.notes


def test_tabs_are_read_as_spaces_where_nothing_else_helps() -> None:
    document = read("train:\n\tsteps:\t5\n\tlr: 1e-4\t# tuned\n")
    assert document.value == {"train": {"steps": 5, "lr": 1e-4}}
    assert notes(document) == "job.yml:2: tabs are read as spaces"


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert read("\ufeffa: 1\n").value == {"a": 1}


def test_broken_text_names_its_place() -> None:
    with pytest.raises(InputError, match=r"job\.yml:2:"):
        read("a: [1\nb: 2\n")


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
        "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{x: *a{n - 1}}}\n" for n in range(1, 400)),
        "[" * 100_000,
        "{a: " * 100_000,
        "- " * 100_000,
        "a: 1\n" * 300_000,
    ],
    ids=["billion laughs", "chained aliases", "lists", "groups", "items", "many keys"],
)
def test_bombs_are_refused_at_once(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(InputError):
        read(text)
    assert time.perf_counter() - start < 15


def test_binary_and_huge_files_are_refused(tmp_path: Path) -> None:
    binary, huge = tmp_path / "b.yml", tmp_path / "h.yml"
    binary.write_bytes(b"a: \x00\xff\n")
    with huge.open("wb") as stream:
        stream.truncate(100_000_000)
    for path in (binary, huge, tmp_path, tmp_path / "none.yml"):
        with pytest.raises(InputError):
            documents_of(path, read_text(path))


def test_the_scenario_reader_stays_strict(tmp_path: Path) -> None:
    path = tmp_path / "s.yml"
    path.write_text("a: &a 1\nb: *a\n", encoding="utf-8")
    assert documents_of(path, read_text(path))[0].value == {"a": 1, "b": 1}
    with pytest.raises(InputError, match="anchors"):
        load_yaml(path)
