from __future__ import annotations

from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.diag import ParseError
from hlo_opt.text import frames, source_location, stack, stack_frames
from hlo_opt.text.frames import source_function

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
TEXT = """HloModule m

FileNames
1 "/home/me/env/site-packages/jax/_src/lax.py"
2 "model.py"
3 "it's \\"odd\\".py"

FunctionNames
1 "add"
2 "layer"

FileLocations
1 {file_name_id=1 function_name_id=1 line=100 end_line=100 column=1 end_column=9}
2 {file_name_id=2 function_name_id=2 line=14, end_line=14, column=5 end_column=8}
3 {file_name_id=3 function_name_id=2 line=7 end_line=7 column=5 end_column=8}

StackFrames
1 {file_location_id=2 parent_frame_id=1}
2 {file_location_id=1 parent_frame_id=2}
3 {file_location_id=1 parent_frame_id=1}
4 {file_location_id=3 parent_frame_id=5}

ENTRY e {
  p = f32[] parameter(0), metadata={op_name="p"}
  a = f32[] negate(p), metadata={stack_frame_id=1}
  b = f32[] negate(p), metadata={stack_frame_id=2}
  c = f32[] negate(p), metadata={stack_frame_id=3}
  d = f32[] negate(p), metadata={stack_frame_id=4}
  f = f32[] negate(p), metadata={source_file="x.py" source_line=3 stack_frame_id=1}
  g = f32[] negate(p), metadata={source_file="x.py"}
  h = f32[] negate(p), metadata={stack_frame_id=99}
  ROOT i = f32[] negate(p)
}
"""


@pytest.mark.parametrize(
    "name, location",
    [
        ("p", ""),
        ("a", "model.py:14"),
        ("b", "model.py:14"),  # a frame of JAX itself: its caller counts
        ("c", "/home/me/env/site-packages/jax/_src/lax.py:100"),  # no caller
        ("d", 'it\'s "odd".py:7'),
        ("f", "x.py:3"),
        ("g", "x.py"),
        ("h", ""),
        ("i", ""),
    ],
)
def test_source_locations(name, location):
    module = hlo_opt.parse(TEXT)
    instruction = next(i for i in module.entry.instructions if i.name == name)
    assert source_location(module, instruction) == location


def test_stacks_go_from_the_innermost_frame_outwards():
    module = hlo_opt.parse(TEXT)
    assert [(f.function, f.line, f.is_library) for f in stack(module, 2)] == [("add", 100, True), ("layer", 14, False)]
    assert stack(module, 0) == []


def test_a_circle_of_frames_ends():
    module = hlo_opt.parse(TEXT)  # frame 4 names itself
    assert len(stack(module, 4)) == 1


def test_modules_without_tables_have_no_frames():
    assert stack_frames(hlo_opt.parse("HloModule m\\nENTRY e { p = f32[] parameter(0) }".replace("\\n", "\n"))) == {}


def test_malformed_tables():
    module = hlo_opt.parse(TEXT.replace("line=100 end", "line=x end"))
    with pytest.raises(ParseError):
        stack_frames(module)
    assert source_location(module, module.entry.root) == ""


@pytest.mark.parametrize("path", sorted(DUMPS.glob("*.frames.hlo")), ids=lambda p: p.stem)
def test_frames_give_the_lines_that_the_metadata_form_gives(path):
    """Each program is dumped twice: with tables, and with the place of the innermost frame in the metadata."""
    other = path.with_name(path.name.replace(".frames", ""))
    if not other.exists():
        pytest.skip("dumped with tables only")
    modules = [hlo_opt.parse(p.read_text()) for p in (path, other)]
    locations = [[source_location(m, i) for c in m.computations for i in c.instructions] for m in modules]
    assert any(locations[0])
    assert {x.rpartition(":")[0] for x in locations[0]} == {x.rpartition(":")[0] for x in locations[1]}


def test_functions_are_those_of_the_frames_or_the_scope_of_the_name():
    dumps = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
    module = hlo_opt.parse((dumps / "adam.frames.hlo").read_text(encoding="utf-8"))
    found = {source_function(module, i) for c in module.computations for i in c.instructions} - {""}
    assert "adam.<locals>.update (scripts/programs/adam.py)" in found
    text = (
        "HloModule m\n\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT n = f32[] negate(p), "
        'metadata={op_name="jit(f)/layer/neg"}\n}\n'
    )
    named = hlo_opt.parse(text)
    assert [source_function(named, i) for i in named.entry.instructions] == ["", "jit(f)/layer"]


@pytest.mark.parametrize(
    "tables",
    [
        'FileNames 1 "a \\" b" FunctionNames 1 "f" FileLocations 1 {file_name_id=1 function_name_id=1 line=2, column=3} '
        "StackFrames 1 {file_location_id=1 parent_frame_id=1}",
        "FileNames FunctionNames FileLocations StackFrames",
    ],
)
def test_the_quick_reader_of_tables_agrees_with_the_grammar(tables: str) -> None:
    assert frames._rows(tables) == frames._parsed(tables)


@pytest.mark.parametrize(
    "tables",
    [
        "FunctionNames FileNames FileLocations StackFrames",
        "FileNames FunctionNames FileLocations",
        "FileNames 1 {line=1} FunctionNames FileLocations StackFrames",
        "FileNames FunctionNames FileLocations 1 {lines=1} StackFrames",
        "FileNames FunctionNames FileLocations StackFrames 1 {parent_frame_id=x}",
    ],
)
def test_unusual_tables_are_left_to_the_grammar(tables: str) -> None:
    assert frames._rows(tables) is None
