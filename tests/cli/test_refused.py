"""Command lines that click refuses have a code, and the nearest spelling as their hint."""

import shlex

import pytest

from hlo_opt.cli.group import run


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ("fuze m.hlo", "HLO360 there is no verb 'fuze'", "did you mean fuse?"),
        ("m.hlo", "HLO360 there is no verb 'm.hlo'", "a verb comes before the file: hlo-opt explain m.hlo"),
        ("qqqq", "HLO360 there is no verb 'qqqq'", "`hlo-opt --help` lists the verbs"),
        ("why m.hlo", "HLO360 there is no verb 'why'", "why was this not fused? `hlo-opt explain FILE"),
        ("explain m.hlo --why", "HLO361 hlo-opt explain has no option '--why'", "`hlo-opt explain FILE"),
        ("memory m.hlo --donate", "HLO361 hlo-opt memory has no option '--donate'", "is my donation honoured?"),
        ("bisect m.hlo --kernels", "HLO361 hlo-opt bisect has no option '--kernels'", "--watch WHAT: check"),
        ("lint m.hlo --gpu h100", "HLO361 hlo-opt lint has no option '--gpu'", "--target"),
        ("--colr never fuse m.hlo", "HLO361 hlo-opt has no option '--colr'", "did you mean --color?"),
        ("--seed 3 fuse m.hlo", "HLO361 hlo-opt has no option '--seed'", "those of a verb follow the verb"),
        ("fuse --presett x m.hlo", "HLO361 hlo-opt fuse has no option '--presett'", "did you mean --preset?"),
        ("fuse --color never m.hlo", "HLO361 hlo-opt fuse has no option '--color'", "hlo-opt --color fuse"),
        (
            "check m.hlo --max-kernels 3",
            "HLO361 hlo-opt check has no option '--max-kernels'",
            "an option of fuse and explain; `hlo-opt",
        ),
        (
            "print m.hlo --target h100",
            "HLO361 hlo-opt print has no option '--target'",
            "more; `hlo-opt print --help` lists all",
        ),
        ("run -z m.hlo", "HLO361 hlo-opt run has no option '-z'", "`hlo-opt run --help` lists all"),
        ("fuse", "HLO362 hlo-opt fuse needs FILE", "`hlo-opt fuse --help` shows what it takes"),
        ("convert m.hlo", "HLO362 hlo-opt convert needs OUT", "`hlo-opt convert --help`"),
        ("reduce m.hlo", "HLO362 hlo-opt reduce needs --keep CHECK", "`hlo-opt reduce --help`"),
        (
            "explain --by lines m.hlo",
            "HLO363 --by: 'lines' is not one of 'line', 'function', 'op'",
            "did you mean line?",
        ),
        ("run --seed x m.hlo", "HLO363 --seed: 'x' is not a whole number from 0 on", "`hlo-opt run --help`"),
        ("tune --seconds x m.hlo", "HLO363 --seconds: 'x' is not a number of seconds above 0", "`hlo-opt tune --help`"),
        ("tune --seconds 0 m.hlo", "HLO363 --seconds: '0' is not a number of seconds above 0", "`hlo-opt tune --help`"),
        ("run m.hlo --seed", "HLO364 hlo-opt run: option '--seed' requires an argument", "`hlo-opt run --help`"),
        ("fuse --check=yes m.hlo", "HLO364 hlo-opt fuse: option '--check' does not take a value", "`hlo-opt fuse"),
        ("fuse m.hlo m.hlo", "HLO364 hlo-opt fuse: 'm.hlo' is more than it takes", "`hlo-opt fuse --help`"),
    ],
)
def test_each_has_a_code_and_a_hint(words, message, hint, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.hlo").write_text("HloModule m\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
    assert run(shlex.split(words)) == 2
    done = capfd.readouterr()
    assert done.out == ""
    first, second = done.err.splitlines()
    assert first == message and second.startswith("  hint: ") and hint in second
