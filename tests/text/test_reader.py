"""Text to module: every syntactic form, and where each fault is found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import hlo_opt
from hlo_opt.diag import ParseError
from hlo_opt.ir import Called

DUMPS = Path(__file__).resolve().parents[2] / "testdata" / "dumps"
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"


def entry(body, before=""):
    return hlo_opt.parse(f"HloModule m\n{before}ENTRY e {{\n  p = f32[2]{{0}} parameter(0)\n{body}\n}}\n")


def root(body, before=""):
    return entry(body, before).entry.root


@pytest.mark.parametrize("length", [4, 30, 45, 55])
def test_the_hint_where_a_text_is_cut_off(length: int) -> None:
    head = "HloModule m\nENTRY e {\n"
    text = '  p = f32[2,3]{1,0} parameter(0), metadata={op_name="p" source_line=3}\n  ROOT n = f32[2,3]{1,0} negate(p)\n}\n'
    for whole in (text, f"{text}\n"):
        hlo_opt.parse(head + whole)
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse(head + text[:length])
    assert caught.value.hint == "the text ends inside a computation: is the file cut off?"
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse(head + text.replace("negate(p)", "negate(p"))
    assert caught.value.hint is None
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse(head + text.replace("negate(p)", "negate(p").replace("\n}\n", "\n}  // e\n// CHECK: ENTRY\n"))
    assert caught.value.hint is None


def test_a_module_with_everything():
    text = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%body (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} negate(%x), metadata={op_name="neg"}
}, execution_thread="host"

ENTRY %main.3 (x.1: f32[8]) -> f32[8] {
  %x.1 = f32[8]{0} parameter(0)
  %c = f32[] constant(1.5)
  %w = f32[8]{0} fusion(f32[8]{0} %x.1), kind=kLoop, calls=%body, control-predecessors={%c}
  ROOT %z = f32[8]{0} negate(%w), backend_config={"a": {"b": "}"}}
}
"""
    module = hlo_opt.parse(text, "m.hlo")
    assert module.name == "jit_f"
    assert {n: a.text for n, a in module.attributes.items()} == {
        "is_scheduled": "true",
        "entry_computation_layout": "{(f32[8]{0})->f32[8]{0}}",
    }
    body, main = module.computations
    assert body.attributes["execution_thread"].text == '"host"'
    assert (main.name, main is module.entry, main.root.name) == ("main.3", True, "z")
    x, c, w, z = main.instructions
    assert x.parameter_number == 0 and c.literal.value == 1.5
    assert w.operands == [x] and w.control_predecessors == [c] and w.called_by("calls") is body
    assert list(w.attributes) == ["kind", "calls"]
    assert z.attributes["backend_config"].text == '{"a": {"b": "}"}}'
    assert next(iter(body.instructions)).users and z.computation is main
    assert text[w.offset : w.end].startswith("%w = f32[8]{0} fusion(") and text[w.offset : w.end].endswith("={%c}")
    assert text[z.offset : z.end].startswith("ROOT %z") and text[z.offset : z.end].endswith('"}"}}')
    assert module.span(w).line == 11


def test_names_with_and_without_percent_are_one():
    module = entry("%x = f32[2] negate(p)\n ROOT y = f32[2] add(x, %p)")
    assert [i.name for i in module.entry.instructions] == ["p", "x", "y"]


@pytest.mark.parametrize("word", ["tuple", "ROOT_", "infeed.1", "nans", "add", "%ENTRY", "%true", "_x-y.1"])
def test_names_that_look_like_something_else(word):
    assert root(f"ROOT {word} = f32[2] negate(p)").name == word.removeprefix("%")


def test_without_root_and_entry_the_last_ones_count():
    module = hlo_opt.parse(
        "HloModule m\na { p = f32[] parameter(0) }\nb { p = f32[] parameter(0) q = f32[] negate(p) }"
    )
    assert module.entry.name == "b" and module.entry.root.name == "q"


def test_entry_may_come_first():
    module = hlo_opt.parse("HloModule m\nENTRY a { p = f32[] parameter(0) }\nb { p = f32[] parameter(0) }")
    assert module.entry.name == "a" and len(module.computations) == 2


@pytest.mark.parametrize("head", ["ENTRY e {", "e {", "ENTRY %e (p: f32[]) -> f32[] {"])
def test_the_header_may_be_missing(head):
    module = hlo_opt.parse(head + " ROOT p = f32[] parameter(0) }")
    assert module.name == "module_e" and module.entry.root.name == "p"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", " ", "\t", " // a comment\n", "/* a ROOT comment */"])
def test_white_space_and_comments(end):
    text = (
        f"HloModule m{end}ENTRY e {{{end}p = f32[2]{{0}}{end}parameter(0){end}ROOT a = f32[2] add(p,{end}p){end}}}{end}"
    )
    assert [o.name for o in hlo_opt.parse(text).entry.root.operands] == ["p", "p"]


@pytest.mark.parametrize(
    "operands",
    [
        "p, p",
        "p,p",
        "%p, p",
        "f32[2] p, f32[2]{0} %p",
        "p, /*index=1*/p",
        " p ,\n p ",
        "p, p,",
        ",p, p",
        "p,,p",
        "f32[2] p, f32[2], p",
    ],
)
def test_operands(operands):
    assert [o.name for o in root(f"ROOT a = f32[2] add({operands})").operands] == ["p", "p"]


def test_nested_instructions_are_named_after_their_opcode():
    module = entry("ROOT a = f32[2] add(f32[2] negate(p), negate(f32[2] negate(p)))")
    assert [(i.name, i.opcode) for i in module.entry.instructions] == [
        ("p", "parameter"),
        ("negate.anon", "negate"),
        ("negate.anon.1", "negate"),
        ("negate.anon.2", "negate"),
        ("a", "add"),
    ]
    assert [o.name for o in module.entry.root.operands] == ["negate.anon", "negate.anon.2"]


def test_nested_constants_and_parameters():
    found = hlo_opt.parse(
        "HloModule m\nENTRY e { ROOT a = f32[2] add(f32[2] parameter(0), f32[2] constant({1, 2})) }"
    ).entry
    assert [i.opcode for i in found.instructions] == ["parameter", "constant", "add"]
    assert found.root.operands[1].literal.value.tolist() == [1, 2]


@pytest.mark.parametrize(
    "body, shape",
    [
        ("ROOT a = add(p, p)", "f32[2]{0}"),
        ("ROOT a = tuple(p, p)", "(f32[2]{0}, f32[2]{0})"),
        ("t = tuple(p) ROOT a = get-tuple-element(t), index=0", "f32[2]{0}"),
        ("ROOT a = compare(p, p), direction=LT", "pred[2]{0}"),
        ("q = f32[2,3]{0,1} parameter(1) ROOT a = transpose(q), dimensions={1,0}", "f32[3,2]{1,0}"),
    ],
)
def test_a_missing_shape_is_inferred(body, shape):
    assert str(root(body).shape) == shape


def test_called_computations():
    module = entry(
        "c = f32[] constant(0)\n i = s32[] constant(0)\n r = f32[] reduce(p, c), dimensions={0}, to_apply=%add\n"
        "ROOT a = f32[] conditional(i, r, r), branch_computations={%f, g}",
        ADD + "f { a = f32[] parameter(0) } g { a = f32[] parameter(0) }\n",
    )
    branch = module.entry.root.attributes["branch_computations"]
    assert isinstance(branch, Called) and branch.is_list
    assert [c.name for c in module.entry.root.called()] == ["f", "g"]
    assert [c.name for i in module.entry.instructions if i.opcode == "reduce" for c in i.called()] == ["add"]


def test_computations_written_inline_come_before_their_caller():
    module = entry(
        "ROOT a = f32[2] call(p), to_apply={ x = f32[2] parameter(0)"
        " ROOT y = f32[2] call(x), to_apply={ x = f32[2] parameter(0) ROOT z = f32[2] negate(x) } }"
    )
    assert [c.name for c in module.computations] == ["_", "_.1", "e"]
    assert module.entry.root.called_by("to_apply").name == "_.1"


@pytest.mark.parametrize(
    "text, value",
    [
        ("replica_groups=[2,4]<=[8]T(1,0)", "[2,4]<=[8]T(1,0)"),
        ("replica_groups=mesh['a'=2] {'a'}", "mesh['a'=2] {'a'}"),
        ("literal=f32[] 0.1", "f32[] 0.1"),
        ("literal=(f32[2]{0}, s32[]) ({1, 2}, 3)", "(f32[2]{0}, s32[]) ({1, 2}, 3)"),
        ("outfeed_shape=(s32[])", "(s32[])"),
        ("dim_labels=?b01f_0?1io->b01?f", "?b01f_0?1io->b01?f"),
        ("padding=-1_0x0_1_2", "-1_0x0_1_2"),
        ('custom_call_target= "a\nb"', '"a\nb"'),
        ('custom_call_target="{"', '"{"'),
        ('frontend_attributes={k="v",j={"x":1}}', '{k="v",j={"x":1}}'),
        ("backend_config={x = 1 : i64, {y}}", "{x = 1 : i64, {y}}"),
        ('sharding={devices=[2,1]<=[2] metadata={op_name="}"}}', '{devices=[2,1]<=[2] metadata={op_name="}"}}'),
    ],
)
def test_attribute_values_are_kept_as_they_are_written(text, value):
    module = entry(f"a = f32[2] negate(p), {text}\nT = f32[2] negate(a), {text}\nROOT nan.1 = f32[2] negate(T)")
    assert [i.name for i in module.entry.instructions] == ["p", "a", "T", "nan.1"]
    for instruction in list(module.entry.instructions)[1:3]:
        assert instruction.attributes[text.partition("=")[0]].text == value


def test_attributes_of_one_spelling_are_shared():
    module = entry('a = f32[2] negate(p), metadata={op_name="x"}\nROOT b = f32[2] negate(a), metadata={op_name="x"}')
    a, b = list(module.entry.instructions)[1:]
    assert a.attributes["metadata"] is b.attributes["metadata"]


def test_nothing_is_decoded_while_reading():
    found = root("c = f32[2] constant({1, 2, 3})\n ROOT a = f32[2] negate(p), metadata={no such key}")
    with pytest.raises(ParseError):
        _ = found.attributes["metadata"].value


def test_unknown_opcodes_and_attributes_are_read():
    found = root("ROOT a = f32[2] frobnicate(p), widget={[1:2], x}")
    assert (found.opcode, found.attributes["widget"].text) == ("frobnicate", "{[1:2], x}")


HEAD = "HloModule m\n\nENTRY e {\n  p = f32[2]{0} parameter(0)\n"


@pytest.mark.parametrize(
    "text, line, column, message",
    [
        ("", 1, 1, "the text is empty"),
        ("  \n", 1, 1, "the text is empty"),
        ("HloModule", 1, 10, "expected a name"),
        ("HloModule m\n", 2, 1, "expected ENTRY or a name"),
        ("HloModule m, foo\nENTRY", 1, 17, "expected '=' right after foo"),
        ("foo bar", 1, 5, "expected '{' or a signature"),
        ("\x00\x01", 1, 1, "expected ENTRY, HloModule or a name"),
        (HEAD, 5, 1, "expected ROOT or a name, found the end"),
        ("HloModule m\nENTRY e { }", 2, 11, "has no instructions"),
        (HEAD + "  ROOT a = f32[2] negate(q)\n}", 5, 26, "q is not defined"),
        (HEAD + "  ROOT a = f32[2] negate(b)\n  b = f32[2] negate(p)\n}", 5, 26, "b is not defined"),
        (HEAD + "  ROOT a = f32[2] negate(p\n}", 6, 1, "expected ')' or ','"),
        (HEAD + "  ROOT a = f32[2] negate(p]\n}", 5, 27, "expected ')' or ','"),
        (HEAD + "  ROOT a = f32[2] negate(p", 5, 25, "is never closed"),
        (HEAD + "  ROOT a = f32[2] add(p p)\n}", 5, 25, "expected ')' or ','"),
        (HEAD + "  ROOT a = f32[2] negate p\n}", 5, 25, "expected operands in parentheses after the opcode negate"),
        (HEAD + "  ROOT a = f32[2] add(f32[3] p, p)\n}", 5, 23, "p is f32[2]{0}, not f32[3]"),
        (HEAD + "  p = f32[2] negate(p)\n}", 5, 3, "p is defined twice"),
        (HEAD + "  ROOT f32 = f32[2] negate(p)\n}", 5, 8, "element type"),
        (HEAD + "  ROOT a f32[2] negate(p)\n}", 5, 10, "expected '='"),
        (HEAD + "  ROOT a = f33[2] negate(p)\n}", 5, 12, "unknown element type"),
        (HEAD + "  ROOT a = f32[2]{1,0} negate(p)\n}", 5, 18, "does not list each"),
        (HEAD + "  ROOT a = (f32[2], f33[]) tuple(p)\n}", 5, 21, "unknown element type"),
        (HEAD + "  ROOT a = custom-call(p), custom_call_target=\"x\"\n}", 5, 12, "cannot be inferred"),
        (HEAD + "  ROOT a = f32[2] parameter(x)\n}", 5, 29, "expected an integer"),
        (HEAD + "  ROOT a = f32[2] parameter(-1)\n}", 5, 29, "0 or more"),
        (HEAD + "  ROOT a = f32[2] negate(p);\n}", 5, 28, "expected ROOT or a name"),
        (HEAD + "  ROOT a = f32[2] negate(p), }", 5, 30, "expected an attribute"),
        (HEAD + "  ROOT a = f32[2] negate(p), dimensions\n}", 5, 40, "expected '=' right after dimensions"),
        (HEAD + "  ROOT a = f32[2] negate(p), a=1, a=2\n}", 5, 35, "attribute a is given twice"),
        (HEAD + "  ROOT a = f32[2] negate(p), a={[1}]\n}", 5, 35, "is closed by"),
        (HEAD + "  ROOT a = f32[2] negate(p), metadata={op_name=\"x}\n}", 5, 48, "string is never closed"),
        (HEAD + '  a = f32[2] negate(p), b={"c":{"d":1}\n  ROOT e = f32[2] negate(a), f={}\n}', 5, 27,
            "'{' is never closed"),
        (HEAD + "  ROOT a = f32[2] call(p), to_apply=cc\n}", 5, 37, "computation cc is not defined"),
        (HEAD + "  ROOT a = f32[2] call(p), to_apply=\"cc\"\n}", 5, 37, "expected the name of a computation"),
        (HEAD + "  ROOT a = f32[2] negate(p), control-predecessors={b}\n}", 5, 52, "b is not defined"),
        (HEAD + "  ROOT a = f32[2] negate(p)\n  ROOT b = f32[2] negate(p)\n}", 6, 3, "two ROOTs"),
        (HEAD + "  ROOT a = f32[2] negate(p)\n}\nENTRY f {\n  ROOT p = f32[] parameter(0)\n}", 7, 1, "one ENTRY"),
        (HEAD + "  ROOT a = f32[2] negate(p)\n}\ne {\n  ROOT p = f32[] parameter(0)\n}", 7, 1, "e is defined twice"),
        (HEAD + "  ROOT a = f32[2] negate(p)\n}\nfoo", 7, 4, "expected '{' or a signature"),
        ("HloModule m\nENTRY e (p: f32[]) -> f32[2] { ROOT p = f32[] parameter(0) "
         "}", 2, 23, "declared to return f32[2]"),
    ],
)  # fmt: skip
def test_faults_are_placed(text, line, column, message):
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse(text)
    assert message in caught.value.message
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "body, hint",
    [
        ("ROOT a = f33[2] negate(p)", "did you mean f32?"),
        ("result = f32[2] negate(p) ROOT a = f32[2] negate(resalt)", "did you mean result?"),
        ("ROOT a = f32[2] call(p), to_apply=regoin", "did you mean region?"),
    ],
)
def test_hints_name_the_nearest_word(body, hint):
    with pytest.raises(ParseError) as caught:
        entry(body, "region { p = f32[2] parameter(0) }\n")
    assert caught.value.hint == hint


def test_foreign_texts_get_a_hint():
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse("module @jit_f {\n  func.func public @main() { }\n}")
    assert "StableHLO" in caught.value.hint
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse("\x7fELF\x02\x01\x00\x00")
    assert "binary" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "BufferAssignment:\nallocation 0: size 4096",
        "HloLiveRange (max 9):\n  InstructionSequence:",
        "\nTotal bytes used: 8408 (8.2KiB)\n",
        "Memory Space: default (color=0)\nTotal bytes: 8408",
        "; ModuleID = '__compute_module'",
        'xla_dump_to: "dump"',
    ],
)
def test_what_xla_writes_beside_a_module_gets_a_hint(text):
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse(text)
    assert "before_optimizations" in caught.value.hint


def test_a_second_module_gets_a_hint():
    text = "HloModule m\n\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n\n"
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse(text + text)
    assert caught.value.line == 7 and "--split-input-file" in caught.value.hint


HOSTILE = [
    "HloModule m\nENTRY e { ROOT a = f32[] " + "add(" * 10_000 + ")" * 10_000 + " }",
    "HloModule m\nENTRY e { ROOT a = " + "(" * 10_000 + ")" * 10_000 + " tuple() }",
    "HloModule m\nENTRY e { ROOT a = f32[] constant(" + "{" * 10_000 + "}" * 10_000 + ") }",
    "HloModule m, x=" + "{" * 100_000,
    "HloModule m\nENTRY e { p = f32[] parameter(0) ROOT a = f32[] call(p), "
    "to_apply=" + "{ ROOT a = f32[] call(p), to_apply=" * 1_000,
    "HloModule m\nENTRY e { p = f32[" + "9" * 5_000 + "] parameter(0) }",
    "HloModule m\nENTRY e { p = f32[] parameter(" + "9" * 5_000 + ") }",
    "HloModule " + "/*" * 100_000,
    "HloModule m, x=" + '"' * 100_001,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_are_refused_with_a_place(text):
    with pytest.raises(ParseError) as caught:
        hlo_opt.parse(text)
    assert caught.value.line == 1 + text.count("\n") and caught.value.column


def test_every_cut_of_a_dump_is_refused_with_a_place():
    text = (DUMPS / "softmax.frames.hlo").read_text().rstrip()
    last = text.rindex("ENTRY")
    for length in [*range(0, last, 97), *range(last, len(text), 11)]:
        try:
            hlo_opt.parse(text[:length])
        except ParseError as error:
            assert error.line is not None and error.column is not None
            continue
        assert text[:length].rstrip().endswith("}")  # whole computations are a whole module


def test_mutations_of_a_dump_never_end_in_another_error():
    text = (DUMPS / "branch.hlo").read_text()
    generator = random.Random(7)
    pieces = [
        "",
        "\0",
        "(",
        ")",
        "{",
        "}",
        '"',
        "[",
        ",",
        "%",
        "=",
        "\x80",
        "9" * 30,
        "/*",
        "\n",
        "f32",
        "ROOT ",
        "\ud800",
    ]
    for _ in range(300):
        start = generator.randrange(len(text))
        changed = text[:start] + generator.choice(pieces) + text[start + generator.randrange(6) :]
        try:
            hlo_opt.verify(hlo_opt.parse(changed))
        except (hlo_opt.ParseError, hlo_opt.VerifyError) as error:
            assert error.message and str(error)


@pytest.mark.parametrize("path", sorted(DUMPS.glob("*.hlo")), ids=lambda p: p.stem)
def test_our_dumps_are_read_and_verified(path):
    text = path.read_text()
    module = hlo_opt.parse(text, path.name)
    hlo_opt.verify(module)
    assert sum(len(c.instructions) for c in module.computations) == sum(
        " = " in line for line in text.splitlines() if line.startswith("  ")
    )


def test_a_number_among_operands_asks_for_the_opcode():
    with pytest.raises(hlo_opt.ParseError) as caught:
        hlo_opt.parse("HloModule m\n\nENTRY e {\n  ROOT p = f32[2] paramter(0)\n}\n")
    assert caught.value.line == 4 and caught.value.hint == "did you mean parameter?"
