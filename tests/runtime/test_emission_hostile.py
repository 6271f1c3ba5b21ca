"""A dump whose names, metadata, targets and configurations try to get out of what is emitted: kernels, driver, page,
manifest and paths."""

import ast
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.diag import BackendError

MARK = "OWNED"
TRICKS = (
    f"*/ int {MARK}; /*",
    f"\\n#include <{MARK}>",
    f'{MARK}"""\nimport {MARK}\n"""',
    f"'''{MARK}",
    f"%n %s {{{MARK}}} {{0}}",
    f"../../{MARK}",
    f"/{MARK}/x.cu",
    f"..\\\\{MARK}",
    f"??/\n{MARK}();//",
    f"$({MARK}) `{MARK}` ; {MARK} | {MARK}",
    f"\u202e{MARK}\u2028{MARK}\x1b[31m\x00",
    f"con{MARK}.cu:{MARK}",
    f'R"({MARK})" {MARK}',
)


def quoted(text: str) -> str:
    return '"' + "".join(f"\\{ord(c):03o}" if c in '"\\\n\x00\x1b' else c for c in text) + '"'


def hostile(trick: str) -> hlo_opt.ir.Module:  # type: ignore[name-defined]
    """Strings of the text carry the trick; names, which the syntax keeps plainer, get it afterwards."""
    text = quoted(trick)
    module = hlo_opt.parse(
        f"""HloModule m, frontend_attributes={{note={text}}}
body {{
  s = f32[4,6]{{1,0}} parameter(0)
  ROOT t = f32[4,6]{{1,0}} tanh(s), metadata={{op_name={text} source_file={text} source_line=3}}
}}
lt {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT c = pred[] compare(x, y), direction=LT
}}
ENTRY e {{
  a = f32[4,6]{{1,0}} parameter(0), metadata={{op_name={text}}}
  f = f32[4,6]{{1,0}} fusion(a), kind=kLoop, calls=body, metadata={{op_type={text} source_file={text} source_line=7}}, backend_config={text}
  o = f32[4,6]{{1,0}} sort(f), dimensions={{1}}, to_apply=lt, backend_config={text}
  p = f32[4,6]{{1,0}} custom-call(o), custom_call_target="Sharding", backend_config={text}
  d = f32[4,4]{{1,0}} dot(p, a), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}, frontend_attributes={{k={text}}}
  ROOT r = (f32[4,4]{{1,0}}, f32[4,6]{{1,0}}) tuple(d, p)
}}
"""
    )
    module.name = trick
    for computation in module.computations:
        computation.name += trick
        for instruction in computation.instructions:
            instruction.name += trick
    return module


@pytest.mark.parametrize("trick", TRICKS)
def test_nothing_of_a_text_gets_out_of_what_is_emitted(trick: str, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "o"
    hlo_opt.emit(hostile(trick), target)
    assert [p.name for p in tmp_path.iterdir()] == ["deep"] and [p.name for p in target.parent.iterdir()] == ["o"]
    files = [p for p in target.rglob("*") if p.is_file()]
    assert all(p.resolve().is_relative_to(target.resolve()) and not p.is_symlink() for p in target.rglob("*"))
    assert {p.name for p in files if p.suffix != ".cu"} == {"README.md", "driver.py", "manifest.json"}
    for path in files:
        assert MARK not in path.name and path.name.isascii()
        data = path.read_bytes()
        assert not {0, 0x1B} & set(data), path.name
        if path.suffix == ".cu":  # plain paths of Python files stand in comments at the top
            data = re.sub(rb"^(// from [A-Za-z0-9_./: -]+\n)*", b"", data)
        if path.suffix == ".cu" or path.name == "README.md":
            assert MARK.encode() not in data and data.isascii()
    # in the driver the mark may stand in comments and in parts of names; what runs is what a dump with harmless names
    # gives, but for names
    driver = (target / "driver.py").read_text(encoding="ascii")
    ast.parse(driver)
    for token in tokenize.generate_tokens(io.StringIO(driver).readline):
        if MARK in token.string:
            assert token.type in (tokenize.COMMENT, tokenize.NAME), token
            assert token.type == tokenize.COMMENT or token.string != MARK
    manifest = json.loads((target / "manifest.json").read_text(encoding="utf-8"))
    assert all((target / k["file"]).resolve().is_relative_to(target.resolve() / "kernels") for k in manifest["kernels"])
    assert [row["call"] for row in manifest["library"]][-1] == "dot"


def test_the_driver_of_a_hostile_text_runs_as_that_of_a_plain_one(tmp_path: Path) -> None:
    drivers = []
    for number, trick in enumerate(("", TRICKS[2])):
        hlo_opt.emit(hostile(trick), tmp_path / str(number))
        tree = ast.parse((tmp_path / str(number) / "driver.py").read_text())
        drivers.append([type(node).__name__ for node in ast.walk(tree)])
    assert drivers[0] == drivers[1]


@pytest.mark.parametrize("trick", TRICKS)
def test_an_unknown_target_is_refused_and_leaves_nothing(trick: str, tmp_path: Path) -> None:
    module = hlo_opt.parse(
        f"HloModule m\nENTRY e {{\n  a = f32[2]{{0}} parameter(0)\n  ROOT b = f32[2]{{0}} custom-call(a), custom_call_target={quoted(trick)}\n}}\n"
    )
    with pytest.raises(BackendError, match="HLO530") as caught:
        hlo_opt.emit(module, tmp_path / "o")
    shown = str(caught.value)
    assert list(tmp_path.iterdir()) == [] and "\x1b" not in shown and "\x00" not in shown
