"""The TOML file of `--config`: what it may say, which word wins, and faults with their line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlo_opt.cli.fusing import KINDS, Fusing, read_config
from hlo_opt.diag import UsageError
from hlo_opt.passes import parse_pipeline
from hlo_opt.passes.instruction_fusion import InstructionFusion


def config(folder: Path, text: str) -> str:
    path = folder / "c.toml"
    path.write_text(text)
    return str(path)


def test_every_option_of_the_example_is_read(root: Path) -> None:
    text = (root / "testdata" / "hlo-opt.toml").read_text()
    found = read_config(str(root / "testdata" / "hlo-opt.toml"))
    assert found["max_bytes"] == 10**9 and found["fail_on"] == ("FUS201", "FUS202")
    assert found["options"]["fusion-merger"] == {"max_emissions": 15, "max_copies": 256}
    named = set(re.findall(r"^(?:# )?([a-z-]+) = ", text, re.MULTILINE))
    assert set(KINDS) <= named


def test_the_commented_lines_of_the_example_are_options_too(root: Path, tmp_path: Path) -> None:
    text = (root / "testdata" / "hlo-opt.toml").read_text()
    for line in re.findall(r"^# ([a-z-]+ = .*)$", text, re.MULTILINE):
        assert read_config(config(tmp_path, line))


def test_options_of_passes_replace_a_presets_but_not_ones_that_are_spelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlo_opt.cli.fusing.preset", lambda name: "instruction-fusion{max-emissions=7},cse")
    name = config(tmp_path, "[options.instruction-fusion]\nmax-emissions = 3\nmay_duplicate = false\n")
    by_preset = Fusing.of({"config": name}).pipeline().steps[0]
    assert by_preset == InstructionFusion(may_duplicate=False, max_emissions=3)
    spelt = Fusing.of({"config": name, "passes": "instruction-fusion{max-emissions=5}"}).pipeline().steps[0]
    assert spelt == InstructionFusion(may_duplicate=False, max_emissions=5)


def test_what_is_typed_wins(tmp_path: Path) -> None:
    name = config(tmp_path, 'passes = "dce"\nmax-kernels = 3\nmax-bytes = "1.5 KiB"\nfail-on = ["FUS201"]\n')
    given = Fusing.of({"config": name, "preset": "default", "max_kernels": 9, "fail_on": ()})
    assert (given.passes, given.max_kernels, given.max_bytes, given.fail_on) == (None, 9, 1536, ("FUS201",))
    assert Fusing.of({"config": name}).pipeline() == parse_pipeline("dce")


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("\npreset = 'default'\nmax-kernel = 3\n", "there is no option 'max-kernel'", 3, 1),
        ("max-kernels = 'many'\n", "max-kernels must be a whole number from 0 on, not 'many'", 1, 1),
        ("max-kernels = -1\n", "max-kernels must be", 1, 1),
        ("max-kernels = true\n", "max-kernels must be", 1, 1),
        ("# x\nmax-bytes = '12 bananas'\n", "'12 bananas' is not a size", 2, 1),
        ("fail-on = ['FUS201', 3]\n", "fail-on must be a list of strings, not 'list'", 1, 1),
        ("preset = 'default'\npasses = 'dce'\n", "preset and passes exclude each other", 2, 1),
        ("[options.instruction-fusoin]\nmax-emissions = 3\n", "there is no pass 'instruction-fusoin'", 1, 1),
        ("[options.dce]\nx = 1\n", "dce has no option 'x'", 2, 1),
        ("[options.cse]\n\n[options.instruction-fusion]\nmax-emission = 3\n", "no option 'max-emission'", 4, 1),
        ("[options.instruction-fusion]\nmax-emissions = 1.5\n", "max-emissions must be a whole number, not 1.5", 2, 1),
        ("[options.instruction-fusion]\nmay-duplicate = 1\n", "may-duplicate must be true or false", 2, 1),
        ("[options.instruction-fusion]\nmax-emissions = 1\nmax_emissions = 2\n", "given twice", 3, 1),
        ("options.dce.x = 1\n", "dce has no option 'x'", 1, 13),
        ("options = 3\n", "options is a table of passes", 1, 1),
        ("options.dce = 3\n", "the options of dce are a table", 1, 9),
        ("target = 'h100_sxm'\ntarget = 'v100'\n", "not TOML: Cannot overwrite a value", 2, 16),
        ("preset = \n", "not TOML: Invalid value", 1, 10),
        ("[budget]\nmax-kernels = 1\n", "there is no option 'budget'", 1, 1),
        ("preset = 'x", "not TOML", 1, None),
    ],
)
def test_a_fault_has_its_line(text: str, message: str, line: int, column: int | None, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read_config(config(tmp_path, text))
    assert caught.value.line == line
    assert column is None or caught.value.column == column


def test_the_nearest_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_config(config(tmp_path, "max-kernel = 3\n"))
    assert caught.value.hint == "did you mean max-kernels?"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_bytes(b"\xff")
    (tmp_path / "large.toml").write_bytes(b"#" * 1_000_001)
    for name, why in (
        ("no.toml", "no such file"),
        (".", "Is a directory"),
        ("c.toml", "UTF-8"),
        ("large.toml", "larger"),
    ):
        with pytest.raises(UsageError, match=why) as caught:
            read_config(str(tmp_path / name))
        assert caught.value.filename == str(tmp_path / name)
    with pytest.raises(UsageError, match="not TOML"):
        read_config(config(tmp_path, "a = " + "[" * 100_000))


def test_a_code_that_does_not_exist_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no reason 'FUS999'"):
        Fusing.of({"config": config(tmp_path, 'fail-on = ["FUS999"]\n')})
