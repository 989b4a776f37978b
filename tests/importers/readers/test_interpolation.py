"""References of configurations are filled in from the file and from what was passed; the rest is Unread."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from xe_sizer.errors import InputError, Location
from xe_sizer.interop.readers.documents import flat, overridden, resolved
from xe_sizer.interop.values import Keys, Unread, Written
from xe_sizer.profiles.yaml_reader import documents_of


def keys_of_text(text: str) -> Keys:
    return {key: Written(*each) for key, each in flat(documents_of(Path("x.yml"), text)[0]).items()}


def values(text: str, **given: str) -> dict[str, object]:
    return {key: each.value for key, each in resolved(keys_of_text(text), given).items()}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("${batch}", 4), ("${model.tp}", 8), ("${.near}", "n"), ("${..batch}", 4), ("x-${batch}/${model.tp}", "x-4/8"),
        ("${items[1]}", "q"), ("${items.0}", "p"), ("${list.0.path}", "c4"), ("${oc.env:N,16}", 16),
        ("${oc.env:N,${batch}}", 4), ("${NODES:2}", 2), ("${NODES:-3}", 3), ("${V:a:b}", "a:b"), ("${V:''}", ""),
        ("${oc.select:model.tp,1}", 8), ("${oc.select:model.pp,1}", 1), ("${oc.decode:1e3}", 1000),
        ("${multiply:${batch},${model.tp}}", 32), ("${sum:1,2.5}", 3.5), ("${chain}", 4), ("\\${batch}", "\\${batch}"),
        ("${low:-7}", 7), ("$batch", "$batch"), ("${NODES:true}", True),
    ],
)  # fmt: skip
def test_references(reference: str, expected: object) -> None:
    text = (
        "batch: 4\nchain: ${model.batch}\nitems: [p, q]\nlist: [{path: c4}]\n"
        f"model: {{tp: 8, batch: '${{batch}}', near: n, x: '{reference.replace(chr(39), chr(39) * 2)}'}}\n"
    )
    assert values(text)["model.x"] == expected


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("${eval:1+1}", "'eval' is not computed"), ("${none}", "no key"), ("${oc.env:HOME}", "--set HOME=VALUE"),
        ("${NODES}", "--set NODES=VALUE"), ("a${x}", "itself"), ("${multiply:a,b}", "no number"), ("${.}", "no key"),
        ("${oc.env:V,null}", "not known"), ("n${group}", "group"), ("${}", "no key"), ("${items[9]}", "no key"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_unread(reference: str, why: str) -> None:
    found = values(f"x: '{reference}'\ngroup: {{a: 1}}\nitems: [1]\n")["x"]
    assert isinstance(found, Unread)
    assert why in found.why
    assert found.text == reference


def test_passed_values_come_first() -> None:
    text = "tp: 2\nx: ${tp}\ny: ${oc.env:N,3}\nz: ${N:4}\nw: ${M}\n"
    assert values(text, tp="8", N="5", M="m") == {"tp": 8, "x": 8, "y": 5, "z": 5, "w": "m"}
    assert str(resolved(keys_of_text(text), {"tp": "8"})["tp"].where) == "--set tp"


def test_a_reference_to_a_group_brings_its_keys() -> None:
    text = "base: {lr: 1, sub: {n: '${base.lr}'}}\nx: ${base}\ny: ${x}\nl: [a, '${base.lr}']\n"
    assert values(text) == {
        "base.lr": 1, "base.sub.n": 1, "x.lr": 1, "x.sub.n": 1, "y.lr": 1, "y.sub.n": 1, "l": ["a", 1]
    }  # fmt: skip


def test_a_group_that_refers_to_groups_brings_theirs_but_not_itself() -> None:
    found = values("a: {n: 1}\nb: {a: '${a}'}\nc: {b: '${b}'}\n")
    assert found["c.b.a.n"] == 1
    found = values("a: {n: 1, me: '${a}', too: '${a}'}\n")
    assert isinstance(found["a.me"], Unread)


def test_circles_are_refused() -> None:
    found = values("a: ${b}\nb: ${c}\nc: x${a}\nd: ${d}\ne: ${f}\nf: 1\n")
    assert all(isinstance(found[name], Unread) for name in "abcd")
    assert found["e"] == 1


def test_places_stay_those_of_the_key() -> None:
    assert str(resolved(keys_of_text("a: 1\nb: ${a}\n"))["b"].where) == "x.yml:2:4"


def written(*overrides: str) -> list[Written]:
    return [Written(each, Location("run.sh", line)) for line, each in enumerate(overrides, 1)]


def test_overrides_of_a_command_line() -> None:
    keys = keys_of_text("a: {b: 1, c: 2}\nd: {e: {f: 3}}\ng: 4\n")
    found = overridden(
        keys,
        written("a.b=5", "+n.m=[1,x]", "~g", "++d={e: 6, h:{i:true}}", "t='1'", "m=Qwen/Q-8B", "--flag", "plain", "u="),
    )
    assert {key: each.value for key, each in found.items()} == {
        "a.b": 5, "a.c": 2, "n.m": [1, "x"], "d.e": 6, "d.h.i": True, "t": "1", "m": "Qwen/Q-8B", "u": None
    }  # fmt: skip
    assert str(found["a.b"].where) == "run.sh:1"
    assert overridden(keys, written("a.b=1", "a={z:1}", "a.b=2"))["a.b"].value == 2
    assert isinstance(overridden(keys, written("a=[1"))["a"].value, Unread)


@pytest.mark.parametrize(
    "text",
    [
        "a0: xxxxxxxxxx\n" + "".join(f"a{n}: '{f'${{a{n - 1}}}' * 10}'\n" for n in range(1, 40)),
        "a0: {x: 1}\n" + "".join(f"a{n}: {{x: '${{a{n - 1}}}', y: '${{a{n - 1}}}'}}\n" for n in range(1, 40)),
        "".join(f"a{n}: ${{a{n + 1}}}\n" for n in range(5_000)),
        f"a: '{'${b}' * 100_000}'\nb: 1\n",
        f"a: '{'${' * 100_000}'\n",
        "a: ${a}${a}\n",
    ],
    ids=["texts", "groups", "chain", "many references", "open", "itself"],
)
def test_bombs_end_soon(text: str) -> None:
    start = time.perf_counter()
    values(text, X="${X}")
    assert time.perf_counter() - start < 10


def test_a_passed_value_is_not_filled_in_again() -> None:
    assert isinstance(values("a: x${X}", X="${X}")["a"], Unread)


def test_too_many_overrides_are_refused() -> None:
    with pytest.raises(InputError, match="more than 5,000 overrides"):
        overridden({}, written(*["a=1"] * 6_000))
