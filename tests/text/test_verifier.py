from __future__ import annotations

import pytest

import hlo_opt
from hlo_opt.diag import VerifyError
from hlo_opt.ir import Computation, Instruction, Module, edit

HEAD = "HloModule m\n{before}ENTRY e {{\n  p = f32[2]{{0}} parameter(0)\n  {body}\n}}\n"
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"


def check(body, before="", **options):
    hlo_opt.verify(hlo_opt.parse(HEAD.format(before=before, body=body), "m.hlo"), **options)


def fault(body, before="", **options):
    with pytest.raises(VerifyError) as caught:
        check(body, before, **options)
    return caught.value


@pytest.mark.parametrize(
    "body, message, column",
    [
        ("ROOT a = f32[2] negate(p, p)", "negate takes 1 operand, but has 2", 3),
        ("ROOT a = f32[2] add(p)", "add takes 2 operands, but has 1", 3),
        ("ROOT a = f32[3] negate(p)", "a is declared f32[3], but negate returns f32[2]", 3),
        ("ROOT a = s32[2] negate(p)", "a is declared s32[2]", 3),
        ("ROOT a = f32[2] negate(p), dimensionz={0}", "negate has no attribute dimensionz", 30),
        ("ROOT a = f32[2,2] broadcast(p)", "broadcast", 3),
        ("ROOT a = pred[2] compare(p, p)", "compare needs the attribute direction", 3),
        ("ROOT a = f32[2] frobnicate(p)", "unknown opcode frobnicate", 19),
        ("ROOT a = f32[2] parameter(2)", "has a parameter 2 but no parameter 1", 3),
        ("ROOT a = f32[2] parameter(0)", "parameter number 0 is given twice", 3),
        ("ROOT a = f32[2] constant({1, 2, 3})", "2 elements", 3),
        ("ROOT a = s32[] constant(1.5)", "expected an integer", 3),
        ("ROOT a = f32[2] negate(p), metadata={foo=1}", "metadata: expected", 40),
    ],
)
def test_faults(body, message, column):
    error = fault(body)
    assert message in error.message
    assert (error.line, error.column, error.filename) == (4, column, "m.hlo")


def test_hints():
    assert fault("ROOT a = f32[2] negatte(p)").hint == "did you mean negate?"
    assert fault("ROOT a = f32[2] transpose(p), dimension={0}").hint == "did you mean dimensions?"


def test_the_hint_at_an_unknown_opcode():
    assert fault("ROOT a = f32[2] negatee(p)").hint == "did you mean negate?"
    assert "--allow-unknown" in fault("ROOT a = f32[2] frobnicate(p)").hint


def test_unknown_things_may_be_allowed():
    check("a = f32[2] frobnicate(p) ROOT b = f32[2] negate(a), foo=1", allow_unknown=True)
    fault("ROOT a = f32[3] negate(p)", allow_unknown=True)


def test_layouts_and_dynamic_dimensions_do_not_count():
    check("q = f32[2,3]{0,1} parameter(1)\n ROOT a = f32[2,3]{1,0} negate(q)")


def test_async_spellings_are_known():
    check("s = ((f32[2]), f32[2], s32[]) negate-start(p)\n ROOT d = f32[2] negate-done(s)")
    assert "unknown opcode copy-update" in fault("ROOT s = (f32[2], f32[2], u32[]) copy-update(p)").message
    assert "unknown opcode frob-start" in fault("ROOT s = ((f32[2]), f32[2], s32[]) frob-start(p)").message


@pytest.mark.parametrize(
    "body, before, message",
    [
        ("ROOT a = f32[2] fusion(p, p), kind=kLoop, calls=f", "f { x = f32[2] parameter(0) }", "f has 1 parameters"),
        (
            "ROOT a = f32[2] fusion(p), kind=kLoop, calls=f",
            "f { x = f32[3] parameter(0) }",
            "parameter 0 of f is f32[3]",
        ),
        ("ROOT a = f32[3] fusion(p), kind=kLoop, calls=f", "f { x = f32[2] parameter(0) }", "a is declared f32[3]"),
        ("ROOT a = f32[2] call(p), to_apply=f", "f { x = s32[2] parameter(0) }", "parameter 0 of f is s32[2]"),
        (
            "ROOT a = f32[2] while(p), condition=c, body=b",
            "c { x = f32[3] parameter(0) ROOT t = pred[] constant(true) }\nb { x = f32[2] parameter(0) }",
            "c",
        ),
        (
            "i = s32[] constant(0)\n ROOT a = f32[2] conditional(i, p), branch_computations={f, f}",
            "f { x = f32[2] parameter(0) }",
            "2 branches",
        ),
        ("ROOT a = f32[] reduce(p, p), dimensions={0}, to_apply=add", ADD, ""),
    ],
)
def test_called_computations_must_fit(body, before, message):
    error = fault(body, before + "\n")
    assert message in error.message and error.line


def test_header_attributes():
    module = hlo_opt.parse("HloModule m, num_partition=2\nENTRY e { p = f32[] parameter(0) }")
    with pytest.raises(VerifyError, match="no attribute num_partition") as caught:
        hlo_opt.verify(module)
    assert caught.value.hint == "did you mean num_partitions?"
    hlo_opt.verify(module, allow_unknown=True)


def edited(change):
    module = hlo_opt.parse(
        HEAD.format(before="f { x = f32[2] parameter(0) }\n", body="q = f32[2] negate(p)\n ROOT r = f32[2] negate(q)")
    )
    change(module, {i.name: i for i in module.entry.instructions})
    with pytest.raises(VerifyError) as caught:
        hlo_opt.verify(module)
    return caught.value.message


def test_modules_that_code_broke():
    assert "used before" in edited(lambda m, i: edit.replace_operand(i["q"], 0, i["r"]))
    assert "used before" in edited(lambda m, i: i["q"].control_predecessors.append(i["r"]))
    assert "twice" in edited(lambda m, i: setattr(i["q"], "name", "r"))
    assert "twice" in edited(lambda m, i: setattr(m.entry, "name", "f"))
    assert "no root" in edited(lambda m, i: setattr(m.entry, "_root", Instruction("z", "negate", i["p"].shape)))
    assert "no instructions" in edited(lambda m, i: edit.add_computation(m, Computation("empty")))
    assert "no value" in edited(lambda m, i: setattr(i["p"], "opcode", "constant"))
    with pytest.raises(VerifyError, match="no entry"):
        hlo_opt.verify(Module("m"))


def test_callees_must_come_first():
    def change(module, names):
        later = edit.add_computation(module, Computation("later"))
        edit.append(later, Instruction("x", "parameter", names["p"].shape, parameter_number=0), root=True)
        from hlo_opt.ir import Called

        names["r"].attributes["to_apply"] = Called(later)

    assert "defined after its use" in edited(change)


def test_a_map_gives_its_computation_scalars():
    double = "d { x = f32[] parameter(0) ROOT y = f32[] add(x, x) }\n"
    check("ROOT a = f32[2] map(p), dimensions={0}, to_apply=d", double)
    narrow = double.replace("f32", "f16")
    assert "parameter 0 of d is f16[]" in fault("ROOT a = f32[2] map(p), dimensions={0}, to_apply=d", narrow).message


@pytest.mark.parametrize(
    "line, message",
    [
        ("f32[3] rng(z, h), distribution=rng_uniform", "operand 1 of rng is f16[], its result f32[3]"),
        ("s32[3] rng(i, i), distribution=rng_normal", "rng draws floats from rng_normal, not s32"),
    ],
)
def test_rng_has_one_type(line, message):
    scalars = "z = f32[] constant(0)\n h = f16[] constant(1)\n i = s32[] constant(1)\n ROOT a = "
    assert message in fault(scalars + line).message


def test_a_window_over_an_empty_batching_dimension():
    """Nothing is written, and nothing need fit."""
    check(
        "c = f32[] constant(0)\n z = f32[0,2] broadcast(c), dimensions={}\n i = s32[0,1] iota(), iota_dimension=0\n"
        " u = f32[0,1] broadcast(c), dimensions={}\n"
        " ROOT a = f32[0,2] scatter(z, i, u), update_window_dims={1}, inserted_window_dims={}, "
        "scatter_dims_to_operand_dims={1},"
        " input_batching_dims={0}, scatter_indices_batching_dims={0}, index_vector_dim=1, to_apply=add",
        ADD,
    )


def test_several_faults_at_once():
    body = "q = f32[3] negate(p)\n  r = s32[2] negate(p)\n  s = f32[2] negate(p)\n  ROOT a = f32[2] frobnicate(p)"
    error = fault(body, max_errors=5)
    assert [e.line for e in error.errors] == [4, 5, 7] and "frobnicate" in str(error)
    assert [e.line for e in fault(body, max_errors=2).errors] == [4, 5]
    assert [e.line for e in fault(body).errors] == [4]
