"""Names as people write them: tables of names from the Hub, nvidia-smi, clouds and shops; what must not match."""

from pathlib import Path

import pytest

from xe_sizer.errors import InputError, Location
from xe_sizer.profiles.catalogue import Registry
from xe_sizer.profiles.finder import BUILT_IN, Finder

TABLES = Path(__file__).parent / "names"
KIND = {"models": "model", "gpus": "gpu", "servers": "server"}
SEVERAL, UNKNOWN = "several", "unknown"
NEEDED = 0.95  # of the names of a table, read right
NEEDED_UNSEEN = 0.9  # of those that no rule was written for


def rows(table: str) -> list[tuple[str, str]]:
    lines = (TABLES / f"{table}.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(" | ") for line in lines if line and not line.startswith("#"))
    return [(name, expected) for name, expected in pairs]


def read(kind: str, name: str) -> str:
    try:
        found = BUILT_IN.find(kind, name)
    except InputError:
        return SEVERAL
    return found.stem if found else UNKNOWN


@pytest.mark.parametrize("table", sorted(path.stem for path in TABLES.glob("*.txt")))
def test_names_of_a_table_are_read_right_and_none_is_read_wrong(table: str) -> None:
    kind = KIND[table.partition("_")[0]]
    given = rows(table)
    assert len({name for name, _ in given}) == len(given) >= (30 if "_" in table else 70)
    found = {name: read(kind, name) for name, _ in given}
    wrong = {name: found[name] for name, expected in given if found[name] not in (expected, SEVERAL, UNKNOWN)}
    assert wrong == {}
    needed = NEEDED_UNSEEN if "_" in table else NEEDED
    assert sum(found[name] == expected for name, expected in given) >= needed * len(given)


@pytest.mark.parametrize("table", KIND)
def test_expected_names_are_names_of_profiles(table: str) -> None:
    expected = {wanted for path in TABLES.glob(f"{table}*.txt") for _, wanted in rows(path.stem)}
    assert expected - {SEVERAL, UNKNOWN} <= set(BUILT_IN.names(KIND[table]))


@pytest.mark.parametrize("kind", ["gpu", "server", "model", "stack", "engine", "optimizer"])
def test_every_name_and_alias_means_its_own_profile(kind: str) -> None:
    for each in BUILT_IN.known(kind):
        for name in each.spellings:
            assert read(kind, name) == each.name
            assert read(kind, name.upper()) == each.name


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("model", "Llama-3.1-9B"),
        ("model", "meta-llama/Llama-3.4-70B"),
        ("model", "Qwen3-30B-A2B"),
        ("model", "Qwen3-30B"),
        ("model", "Llama-3-8B-Instruct-262k"),
        ("model", "EAGLE-LLaMA3.1-Instruct-8B"),
        ("model", "someone/Llama-70B-story"),
        ("gpu", "A100 SXM 160GB"),
        ("gpu", "H100 SXM 94GB"),
        ("gpu", "RTX 4090 Ti"),
        ("gpu", "RTX 4090M"),
        ("gpu", "MI300"),
        ("gpu", "RTX 4090 32GB"),
        ("server", "DGX H100 with 4x H100"),
        ("server", "XE8545 A100 40GB"),
        ("server", "p5.4xlarge"),
    ],
)
def test_another_size_generation_memory_or_variant_is_not_read(kind: str, name: str) -> None:
    assert read(kind, name) == UNKNOWN


def test_several_are_listed_with_what_tells_them_apart() -> None:
    with pytest.raises(InputError) as caught:
        BUILT_IN.path("gpu", "A100", Location("--gpu"))
    (problem,) = caught.value.problems
    assert str(problem.location) == "--gpu"
    assert problem.message == "'A100' matches several gpus"
    assert problem.hint == (
        "write 'a100-pcie-40gb' (39 GiB), 'a100-pcie-80gb' (79 GiB), 'a100-sxm-40gb' (40 GiB) or "
        "'a100-sxm-80gb' (79 GiB)"
    )


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("gpu", "A100 40GB", "a100-sxm-40gb"),
        ("gpu", "H100 94GB", "h100-nvl-94gb"),
        ("gpu", "V100", SEVERAL),
        ("gpu", "GH200", SEVERAL),
        ("server", "H100", "dell-xe9680-h100"),
        ("server", "HGX H200", "dell-xe9680-h200"),
        ("server", "B200", "dell-xe9680l-b200"),
        ("server", "A100 80GB", "dell-xe9680-a100"),
        ("server", "A100", SEVERAL),
        ("server", "XE9680", SEVERAL),
        ("server", "GCP H100", SEVERAL),
    ],
)
def test_the_commonest_form_factor_and_server_are_meant_where_the_memory_is_clear(
    kind: str, name: str, expected: str
) -> None:
    assert read(kind, name) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("M4 Max 36GB", "write the chip alone, for example 'M3 Max', and its memory as host memory"),
        ("M9 Max", "write the chip alone"),
        ("Jetson Orin", "Jetson is not sized: the catalogue has no such part"),
        ("HGX H200", "'HGX H200' is a server: write server: dell-xe9680-h200"),
    ],
)
def test_a_hint_says_what_a_name_is_that_no_gpu_has(name: str, says: str) -> None:
    assert BUILT_IN.suggestion("gpu", name).startswith(says)


def test_a_name_that_is_read_is_kept_with_its_profile() -> None:
    finder = Finder()
    finder.path("gpu", "RTX 4090")
    finder.path("gpu", "H100-SXM-80GB")
    assert finder.readings == {("gpu", "RTX 4090"): "rtx-4090"}


def test_a_users_profile_has_aliases_and_wins_over_a_built_in_one(tmp_path: Path) -> None:
    folder = tmp_path / "gpu_profiles"
    folder.mkdir()
    text = BUILT_IN.path("gpu", "rtx-4090").read_text(encoding="utf-8")
    own = text.replace("name: rtx-4090\n", "name: our-card\naliases: [the big one, RTX 4090 Z]\n")
    (folder / "our-card.yaml").write_text(own, encoding="utf-8")
    registry = Registry([tmp_path])
    assert registry.accelerator("The Big One").name == "our-card"
    assert registry.accelerator("NVIDIA GeForce RTX 4090 Z").name == "our-card"
    assert registry.accelerator("rtx-4090").name == "rtx-4090"


@pytest.mark.parametrize(
    ("name", "first"),
    [("Llama-3.1-71B", "llama-3.1-"), ("meta-llama/Llama-3.1-70B-Frob-Vision", "llama-3.1-70b")],
)
def test_hints_begin_with_the_same_size(name: str, first: str) -> None:
    hint = BUILT_IN.suggestion("model", name)
    assert hint.startswith(f"did you mean '{first}")
    assert "405b" not in hint.partition(" or ")[0]


@pytest.mark.parametrize(
    ("kind", "name", "nearest"),
    [
        ("gpu", "GeForce RTX 4060 Ti 8GB", "'rtx-4060-ti-16gb'"),
        ("gpu", "NVIDIA RTX 6000 Pro", "'rtx-pro-6000-blackwell'"),
        ("gpu", "mi300", "'mi300x'"),
        ("server", "PowerEdge XE9690 H100", "'dell-xe9680-h100'"),
    ],
)
def test_hints_look_past_the_words_that_do_not_count(kind: str, name: str, nearest: str) -> None:
    found = BUILT_IN.find(kind, name)
    assert (found and f"'{found.stem}'" == nearest) or nearest in BUILT_IN.suggestion(kind, name)


@pytest.mark.parametrize(("tag", "model"), [("deepseek-r1:70b", "llama-3.3-70b"), ("deepseek-r1:7b", "qwen2.5-7b")])
def test_tags_of_distilled_models_are_those_of_their_base(tag: str, model: str) -> None:
    assert read("model", tag) == model
