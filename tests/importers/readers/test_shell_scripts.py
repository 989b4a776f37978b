"""Launch scripts become the commands that they would run; nothing is run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from xe_sizer.errors import InputError
from xe_sizer.interop.readers.shell_script import Script, parse_flags, read_script, unwrapped


def read(text: str, **given: str) -> Script:
    return read_script(text, "launch.sh", given)


def commands(text: str, **given: str) -> list[list[str]]:
    """The words of all commands."""
    return [[word.text for word in command.words] for command in read(text, **given).commands]


def words(text: str, **given: str) -> list[str]:
    """The words behind the name of a script's last command."""
    return commands(text, **given)[-1][1:]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("TP=8\nrun --tp $TP", ["--tp", "8"]),
        ("run --tp ${TP:-4} ${PP:=2} $PP", ["--tp", "4", "2", "2"]),
        ("X='a b'\nrun $X \"$X\" '$X' \\$X", ["a", "b", "a b", "$X", "$X"]),
        ("A=(--x 1)\nA+=(--y '2 3')\nrun \"${A[@]}\" ${#A[@]} ${A[1]}", ["--x", "1", "--y", "2 3", "4", "1"]),
        ("E=()\nrun \"${E[@]}\" ${E[@]} end", ["end"]),
        ("V='--a 1'\nV+=' --b 2'\nrun $V", ["--a", "1", "--b", "2"]),
        ("run --a 1 \\\n  --b 2 # no --c\n", ["--a", "1", "--b", "2"]),
        ("N=2 G=8\nrun $((N * G)) $(( (N + 1) * 3 % 5 )) $((G > N ? 7 : 0))", ["16", "4", "7"]),
        ("M=meta/Llama-8B\nrun ${M##*/} ${M%%/*} ${M%-*} ${M/Llama/Qwen} ${M,,}", [
            "Llama-8B", "meta", "meta/Llama", "meta/Qwen-8B", "meta/llama-8b",
        ]),
        ("run $(basename /a/b.py .py) $(dirname /a/b) `echo x` $(expr 2 + 3)", ["b", "/a", "x", "5"]),
        ("run $(dirname $(readlink -f ${BASH_SOURCE[0]})) $(cd -P /a && pwd)", [".", "/a"]),
        ("D=0,1,2,3\nrun $(echo $D | tr ',' '\\n' | wc -l)", ["4"]),
        ("run 'a b' \"c\\\"d\" e\\ f", ["a b", 'c"d', "e f"]),
        ("f() { run --n $1 ${2:-d}; }\nf 7", ["--n", "7", "d"]),
        ("IFS=, read -ra L <<< '1,2'\nrun ${L[1]}", ["2"]),
        ("read -r -d '' C <<EOF\n--a 1 \\\n--b 2\nEOF\nrun $C", ["--a", "1", "--b", "2"]),
        ('CMD="run fast $(nproc)"\neval $CMD', ["fast", "$(nproc)"]),
        ("run --x=1 2>&1 | tee log", ["log"]),
        ("run a > out 2>&1 &", ["a"]),
    ],
)  # fmt: skip
def test_expansion(script: str, expected: list[str]) -> None:
    assert words(script) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('T=8\nif [ "$T" -gt 4 ]; then run big; elif [ x = x ]; then run other; else run small; fi', "big"),
        ('D=fp8\nif [[ "$D" == fp* && -n $D ]]; then run yes; else run no; fi', "yes"),
        ('if [ -z "$UNSET" ]; then run default; fi', "default"),
        ("A=1\nif [[ -v A && ! -v B ]]; then run yes; else run no; fi", "yes"),
        ("case 13b in 7b) run a;; 13b|14b) run b;; *) run c;; esac", "b"),
        ("[ 1 -eq 2 ] && run never\n[ 1 -eq 1 ] && run always", "always"),
        ("mkdir x || exit 1\nrun on", "on"),
        ("if [ $# -lt 2 ]; then echo usage; exit 1; fi\nrun on", "on"),
        ("run first\nexit 0\nrun after", "first"),
    ],
)
def test_branches(script: str, expected: str) -> None:
    assert words(script) == [expected]


def test_what_the_user_gives_wins_over_assignments() -> None:
    assert words("TP=1\nrun $TP $1", TP="4") == ["4", "${1}"]


def test_unknown_names_are_told_by_what_can_be_set() -> None:
    last = read("N=$(nproc)\nrun --a $X --b $N --c $((N * 2))").commands[-1]
    assert [word.unknown for word in last.words if word.unknown] == [("X",), ("N",), ("N",)]
    assert [word.text for word in last.words][2:5:2] == ["${X}", "${N}"]


def test_words_keep_the_place_of_their_text() -> None:
    last = read('OPTIONS="--a 1 \\\n  --b 2"\nrun $OPTIONS').commands[-1]
    assert [(word.text, word.where.line, word.where.column) for word in last.words[1:]] == [
        ("--a", 1, 10),
        ("1", 1, 14),
        ("--b", 2, 3),
        ("2", 2, 7),
    ]


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("declare -A TP=([7b]=2 [13b]=4)", "'TP', a list whose items have names,"),
        ("TP[1]=4", "'TP[...]=', which sets one item of a list,"),
        ("((TP += 1))", "'((TP += 1))'"),
        ("let TP=8", "'let'"),
        ("mapfile -t TP < list", "'mapfile'"),
        ("case $A in 1) TP=1;& 2) TP=2;; esac", "a branch that goes on into the next one"),
        ("if [[ a =~ b ]]; then TP=1; fi", "the condition 'a =~ b'"),
        ("[ a = a -o b = c ] && TP=1", "the condition 'a = a -o b = c'"),
        ("if [[ ( a = a ) ]]; then TP=1; fi", "the condition '( a = a )'"),
        ("if [[ -t 1 ]]; then TP=1; fi", "the condition '-t 1'"),
        ("g() { g 1; }; g 2", "'g', whose calls are nested too deep,"),
        ("eval 'source launch.sh'", "a script that starts itself"),
    ],
)
def test_what_launch_scripts_do_without_is_refused_with_its_place(script: str, what: str) -> None:
    text = f"run first\n{script}\nrun on ${{TP}}"
    with pytest.raises(InputError) as error:
        read_script(text, "launch.sh", loader={"launch.sh": text}.get)
    (problem,) = error.value.problems
    assert problem.message == f"{what} is not read"
    assert problem.hint
    assert problem.location
    assert (problem.location.name, problem.location.line) == ("launch.sh", 2)


@pytest.mark.parametrize(
    ("kind", "loop"),
    [
        ("for", "for T in 2 4; do\n  run --tp $T\ndone"),
        ("for", "for ((i = 0; i < 4; i++)); do run $i; done"),
        ("while", "while read -r T; do run --tp $T; done < list"),
    ],
)
def test_a_loop_that_alone_starts_something_is_refused_with_its_place(kind: str, loop: str) -> None:
    with pytest.raises(InputError, match=f"launch.sh:2:1: a '{kind}' loop is not read"):
        read(f"mkdir out\n{loop}\n")


@pytest.mark.parametrize("loop", ["for T in 2 4; do TP=$T; done", "while true; do export TP=2; break; done"])
def test_names_that_a_loop_sets_are_not_known_after_it(loop: str) -> None:
    assert read(f"TP=1\n{loop}\nrun $TP").commands[-1].words[1].unknown == ("TP",)
    assert words(f"TP=1\n{loop}\nrun $TP", TP="8") == ["8"]


@pytest.mark.parametrize(
    "harmless",
    [
        "while [[ $# -gt 0 ]]; do case $1 in --n) N=$2; shift 2;; esac; done",
        'for A in "$@"; do N=$A; done',
        "until true; do N=5; done",
        "until curl -s $URL; do sleep 1; done",
        "if [[ $N =~ ^[0-9]+$ ]]; then echo $N; fi",
        "if ! [[ $N =~ ^[0-9]+$ ]]; then exit 1; fi",
        "never_called() { for T in 2 4; do TP=$T; done; }",
    ],
)
def test_what_is_not_read_and_changes_no_launch_is_stepped_over(harmless: str) -> None:
    assert words(f"N=4\n{harmless}\nrun $N") == ["4"]


@pytest.mark.parametrize(
    "script",
    [
        "${!A}", "${A:0:2}", "${L[@]:1}", "${A//*a*b*c/x}", "${A@Q}", "$((A = 2))", "$((2 ** 3))", "$'a\\tb'",
        "$(printf %s 1)", "$(echo a b | awk '{print NF}')", "<(cat list)",
    ],
)  # fmt: skip
def test_expansions_that_are_not_read_are_not_known(script: str) -> None:
    assert all(word.unknown for word in read(f"A=text\nL=(1 2)\nrun {script}").commands[-1].words[1:])


def test_runners_are_told_from_what_they_start() -> None:
    text = "A=1 srun -N 2 --exclusive bash -c 'torchrun --nproc_per_node 8 train.py --lr 1'"
    launch = unwrapped(read(text).commands[-1])
    assert [each.words[0].text for each in launch.runners] == ["srun", "torchrun"]
    assert [word.text for word in launch.command.words] == ["train.py", "--lr", "1"]
    assert launch.command.environment["A"].text == "1"


@pytest.mark.parametrize("python", ["python", "python3.11 -u", "env X=1 python3"])
def test_modules_are_named(python: str) -> None:
    launch = unwrapped(read(f"{python} -m torch.distributed.run --nnodes 2 -m verl.trainer.main a.b=1").commands[0])
    assert [word.text for word in launch.command.words] == ["verl.trainer.main", "a.b=1"]


def test_flags() -> None:
    text = "run pos --a-b 1 --c=2 -tp 8 --many x y --off --n -1 +k.l=m ~gone.key x.y=[1,2] --e ${EXTRA_ARGS}"
    arguments = parse_flags(read(text).commands[0].words[1:], switches={"off"})
    found = {name: [value.text for value in flag.values] for name, flag in arguments.flags.items()}
    assert found == {
        "a_b": ["1"], "tp": ["8"], "many": ["x", "y"], "off": [], "n": ["-1"], "k.l": ["m"], "gone.key": [],
        "c": ["2"], "x.y": ["[1,2]"], "e": [],
    }  # fmt: skip
    assert (arguments.flags["k.l"].sign, arguments.flags["gone.key"].sign) == ("+", "~")
    assert [word.text for word in arguments.positionals] == ["pos", "${EXTRA_ARGS}"]


def test_files_that_a_script_writes_are_kept() -> None:
    found = read("TP=4\ncat > c.yaml <<EOF\ntp: $TP\nEOF\ncat <<'EOF' >> c.yaml\nraw: $TP\nEOF\n").heredocs
    assert [(each.target, each.text, each.where.line) for each in found] == [
        ("c.yaml", "tp: 4\n", 3),
        ("c.yaml", "raw: $TP\n", 6),
    ]


def test_directives_of_the_scheduler() -> None:
    script = "#SBATCH --nodes=2 # two\n#SBATCH -t 1:00 --exclusive\nsbatch <<EOF\n#SBATCH --gres=gpu:8\nrun\nEOF"
    assert {name: word.text for name, word in read(script).directives.items()} == {
        "nodes": "2", "t": "1:00", "exclusive": "", "gres": "gpu:8",
    }  # fmt: skip


def test_other_scripts_come_from_below_the_folder_alone() -> None:
    files = {"conf/a.sh": "TP=8\n"}
    script = 'source "$(dirname "$0")/conf/a.sh"\n. ../b.sh\nsource /etc/profile\nrun $TP'
    found = read_script(script, "launch.sh", loader=files.get)
    assert found.commands[-1].words[1].text == "8"


def test_nothing_is_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    touch = f"touch {canary}"
    script = f'$({touch}); X=`{touch}`; eval "{touch}"; cat <({touch}); bash -c "{touch}"; run $X $(({touch}))'
    read(script)
    assert not canary.exists()


@pytest.mark.parametrize(
    "script",
    [
        "$(" * 200,
        ")" * 10_000,
        "A+=x\n" * 10_000,
        "a" * 2_000_000,
        "A=" + "a" * 1_900 + "\n" + "B=${A//*a*a*a*b/x}\n" * 20,
        "${A:-" * 200,
        '"$(' * 200,
        "((" * 5000,
        "if true; then " * 100,
        "A=aaaaaaaaaaaaaaaa\n" + "A=$A$A\n" * 40,
    ],
)
def test_bombs_are_refused_or_read(script: str) -> None:
    with suppress(InputError):
        read(script)


def test_numbers_that_are_not_set_count_as_zero_where_shells_say_so() -> None:
    assert words("if [[ $BATCH -eq 0 ]]; then run yes; else run no; fi") == ["yes"]
    assert words("if (( BATCH > 0 )); then run yes; else run no; fi") == ["no"]


def test_placeholders_are_words() -> None:
    assert words("M=<path of model>\nrun --data <your data> $M --n=<n> < in > out") == [
        "--data", "<your data>", "${M}", "--n=<n>",
    ]  # fmt: skip
