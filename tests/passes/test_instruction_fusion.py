"""Rules of instruction fusion, one by one, on the smallest modules."""

import pytest

import hlo_opt
from hlo_opt.fusion.decision import FusionDecision
from hlo_opt.ir import Module

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"


def fuse(body: str, passes: str = "instruction-fusion", **options: object) -> tuple[Module, list[FusionDecision]]:
    module = hlo_opt.parse(f"HloModule m\n\n{SUM}ENTRY e {{\n{body}\n}}\n")
    fused, decisions = hlo_opt.fuse(module, passes=passes, simplify="never", **options)  # type: ignore[arg-type]
    hlo_opt.verify(fused)
    return fused, decisions


def launched(module: Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions if i.opcode not in ("parameter", "constant", "tuple")]


def codes(decisions: list[FusionDecision]) -> dict[tuple[str, str], list[str]]:
    return {(d.producer, d.consumer): [r.code for r in d.reasons] for d in decisions}


CHAIN = """  p = f32[64]{0} parameter(0)
  s = f32[64]{0} sine(p), metadata={op_name="x" source_file="a.py" source_line=3}
  n = f32[64]{0} negate(s), metadata={op_name="y" source_file="a.py" source_line=4}
  ROOT t = f32[64]{0} tanh(n)"""


def test_a_chain_becomes_one_kernel():
    fused, decisions = fuse(CHAIN)
    root = fused.entry.root
    assert (root.opcode, root.word("kind"), root.name) == ("fusion", "kLoop", "loop_tanh_fusion")
    body = root.called_by("calls")
    assert body.name == "fused_computation"
    assert [i.name for i in body.instructions][1:] == ["s", "n", "t"]
    assert codes(decisions) == {("s", "n"): [], ("n", "t"): []}
    assert all(d.rule == "instruction-fusion" and d.cost is not None and d.cost.us_saved > 0.9 for d in decisions)
    assert decisions[0].producer_source.startswith("a.py:3")


def test_the_root_metadata_stays_on_the_fusion():
    fused, _ = fuse(CHAIN.replace("tanh(n)", 'tanh(n), metadata={op_name="z" source_file="a.py" source_line=5}'))
    assert fused.entry.root.metadata.op_name == "z"


TWO_USERS = """  p = f32[64]{0} parameter(0)
  s = f32[64]{0} OPCODE(p)
  a = f32[64]{0} abs(s)
  b = f32[32]{0} slice(s), slice={[0:32]}
  ROOT r = (f32[64]{0}, f32[32]{0}) tuple(a, b)"""


def test_cheap_producers_are_duplicated_where_allowed():
    cheap = TWO_USERS.replace("OPCODE", "negate")
    fused, decisions = fuse(cheap)
    assert launched(fused) == ["fusion", "fusion"]
    assert codes(decisions) == {("s", "a"): [], ("s", "b"): []}
    fused, decisions = fuse(cheap, "instruction-fusion{may-duplicate=false}")
    assert launched(fused) == ["negate", "abs", "slice"]
    assert codes(decisions) == {("s", "a"): ["FUS501"], ("s", "b"): ["FUS501"]}


def test_expensive_producers_are_not_duplicated():
    fused, decisions = fuse(TWO_USERS.replace("OPCODE", "tanh"))
    assert launched(fused) == ["tanh", "abs", "slice"]
    assert codes(decisions) == {("s", "a"): ["FUS401"], ("s", "b"): ["FUS401"]}
    reason = decisions[0].reasons[0]
    assert "2 users" in reason.message
    _, decisions = fuse(TWO_USERS.replace("OPCODE", "tanh"), what_if=["FUS401"])
    assert all(d.fused for d in decisions)


def test_exponential_is_cheap_on_a_gpu_in_f32_but_not_in_f64():
    assert launched(fuse(TWO_USERS.replace("OPCODE", "exponential"))[0]) == ["fusion", "fusion"]
    wide = TWO_USERS.replace("OPCODE", "exponential").replace("f32", "f64")
    assert launched(fuse(wide)[0]) == ["exponential", "abs", "slice"]


def test_broadcasts_iotas_and_scalar_constants_go_everywhere():
    fused, _ = fuse(
        """  p = f32[64]{0} parameter(0)
  two = f32[] constant(2)
  b = f32[64]{0} broadcast(two), dimensions={}
  x = f32[64]{0} multiply(p, b)
  i = f32[64]{0} iota(), iota_dimension=0
  y = f32[64]{0} add(b, i)
  z = f32[64]{0} subtract(i, p)
  ROOT r = (f32[64]{0}, f32[64]{0}, f32[64]{0}) tuple(x, y, z)""",
        "instruction-fusion{may-duplicate=false},dce",
    )
    assert [i.opcode for i in fused.entry.instructions] == ["parameter", "fusion", "fusion", "fusion", "tuple"]


def test_array_constants_stay_operands():
    fused, _ = fuse(
        """  p = f32[2]{0} parameter(0)
  c = f32[2]{0} constant({1, 2})
  n = f32[2]{0} add(p, c)
  ROOT t = f32[2]{0} tanh(n)"""
    )
    assert [o.opcode for o in fused.entry.root.operands] == ["parameter", "constant"]


def test_library_calls_are_boundaries():
    fused, decisions = fuse(
        """  p = f32[64,64]{1,0} parameter(0)
  n = f32[64,64]{1,0} negate(p)
  d = f32[64,64]{1,0} dot(n, n), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[64,64]{1,0} tanh(d)"""
    )
    assert launched(fused) == ["negate", "dot", "tanh"]
    assert codes(decisions) == {("n", "d"): ["FUS302"], ("d", "t"): ["FUS302"]}


def test_loop_bodies_are_fused_and_reducers_are_not():
    text = """HloModule m

big {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  x = f32[] abs(b)
  ROOT c = f32[] add(a, x)
}

cond {
  s = (s32[], f32[8,64]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT t = pred[] compare(i, n), direction=LT
}

body {
  s = (s32[], f32[8,64]{1,0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,64]{1,0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = f32[] constant(0)
  y = f32[8,64]{1,0} negate(x)
  w = f32[8,64]{1,0} tanh(y)
  r = f32[8]{0} reduce(w, z), dimensions={1}, to_apply=big
  b = f32[8,64]{1,0} broadcast(r), dimensions={0}
  ROOT t = (s32[], f32[8,64]{1,0}) tuple(j, b)
}

ENTRY e {
  s = (s32[], f32[8,64]{1,0}) parameter(0)
  ROOT w = (s32[], f32[8,64]{1,0}) while(s), condition=cond, body=body
}
"""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), passes="instruction-fusion", simplify="never")
    by_name = {c.name: c for c in fused.computations}
    assert [i.opcode for i in by_name["big"].instructions] == ["parameter", "parameter", "abs", "add"]
    assert sum(i.opcode == "fusion" for i in by_name["body"].instructions) >= 1
    assert not any(i.opcode in ("negate", "tanh") for i in by_name["body"].instructions)


SOFTMAX = """  p = f32[128,1000]{1,0} parameter(0)
  z = f32[] constant(0)
  x = f32[128,1000]{1,0} exponential(p)
  r = f32[128]{0} reduce(x, z), dimensions={1}, to_apply=sum
  b = f32[128,1000]{1,0} broadcast(r), dimensions={0}
  ROOT d = f32[128,1000]{1,0} divide(x, b)"""


def test_a_normalisation_is_one_row_kernel():
    fused, decisions = fuse(SOFTMAX)
    assert launched(fused) == ["fusion"]
    assert fused.entry.root.word("kind") == "kInput"
    assert all(d.fused for d in decisions)


COLUMNS = (
    SOFTMAX.replace("f32[128]{0} reduce", "f32[1000]{0} reduce")
    .replace("dimensions={1}, to", "dimensions={0}, to")
    .replace("broadcast(r), dimensions={0}", "broadcast(r), dimensions={1}")
)


def test_a_normalisation_of_columns_is_one_kernel():
    fused, _ = fuse(COLUMNS)
    assert launched(fused) == ["fusion"]


def test_a_column_reduction_stays_the_end_of_its_kernel():
    """What follows has other sizes than the reduction's operand or result."""
    body = COLUMNS.replace("f32[128,1000]{1,0} broadcast", "f32[9,1000]{1,0} broadcast")
    body = body.replace("ROOT d = f32[128,1000]{1,0} divide(x, b)", "ROOT d = f32[9,1000]{1,0} negate(b)")
    fused, decisions = fuse(body)
    assert len(launched(fused)) > 1
    assert "FUS404" in {r.code for d in decisions for r in d.reasons}


def test_forcing_an_edge():
    body = TWO_USERS.replace("OPCODE", "tanh")
    fused, decisions = fuse(body, force=[("s", "a")])
    assert codes(decisions) == {("s", "a"): [], ("s", "b"): ["FUS401"]} or codes(decisions)["s", "a"] == []
    assert launched(fused).count("fusion") == 1


def test_forcing_does_not_make_the_illegal_legal():
    _, decisions = fuse(
        """  z = f32[] constant(0)
  r = f32[64]{0} rng(z, z), distribution=rng_uniform
  ROOT n = f32[64]{0} negate(r)""",
        force=[("r", "n")],
    )
    assert "FUS102" in codes(decisions)["r", "n"]


def test_switching_off_what_keeps_the_program_right_gives_another_refusal():
    _, decisions = fuse(
        """  z = f32[] constant(0)
  r = f32[64]{0} rng(z, z), distribution=rng_uniform
  ROOT n = f32[64]{0} negate(r)""",
        what_if=["FUS102"],
    )
    assert "FUS110" in codes(decisions)["r", "n"]


def test_max_emissions_is_an_option():
    body = "  p = f32[64]{0} parameter(0)\n  n = f32[64]{0} negate(p)\n"
    body += "".join(f"  part{k} = f32[32]{{0}} slice(n), slice={{[{k}:{k + 32}]}}\n" for k in range(3))
    body += "  x = f32[32]{0} add(part0, part1)\n  ROOT y = f32[32]{0} add(x, part2)"
    assert launched(fuse(body)[0]) == ["fusion"]
    fused, decisions = fuse(body, "instruction-fusion{max-emissions=2}")
    assert launched(fused) == ["negate", "fusion"]
    (refused,) = [d for d in decisions if not d.fused]
    assert [r.code for r in refused.reasons] == ["FUS204"]
    assert refused.reasons[0].numbers["count"] == 3
    assert "max-emissions=3" in refused.reasons[0].hint


def test_every_edge_between_kernels_has_a_decision():
    fused, decisions = hlo_opt.fuse(
        hlo_opt.parse(f"HloModule m\n\n{SUM}ENTRY e {{\n{TWO_USERS.replace('OPCODE', 'tanh')}\n}}\n"), passes="dce"
    )
    assert launched(fused) == ["tanh", "abs", "slice"]
    assert codes(decisions) == {("s", "a"): ["FUS503"], ("s", "b"): ["FUS503"]}
    with pytest.raises(AttributeError):
        decisions[0].rule = "x"  # type: ignore[misc]


def test_an_operation_with_outputs_of_several_sizes_takes_what_comes_before_it():
    fused, decisions = fuse(
        """  p = u32[4]{0} parameter(0)
  a = u32[2,2]{1,0} reshape(p)
  b = u64[2]{0} bitcast-convert(a)
  c = (u64[2]{0}, u32[2048,4]{1,0}) rng-bit-generator(b), algorithm=rng_default
  ROOT d = u32[2048,4]{1,0} get-tuple-element(c), index=1"""
    )
    found = codes(decisions)
    assert found["a", "b"] == [] and found["b", "c"] == []
    assert launched(fused) == ["fusion", "get-tuple-element"]


def test_two_elements_of_one_result_are_one_edge():
    _, decisions = fuse(
        """  k = u64[2]{0} parameter(0)
  c = (u64[2]{0}, u64[2]{0}) rng-bit-generator(k), algorithm=rng_default
  s = u64[2]{0} get-tuple-element(c), index=0
  t = u64[2]{0} get-tuple-element(c), index=1
  ROOT d = u64[2]{0} add(s, t)"""
    )
    assert list(codes(decisions)) == [("c", "d")] and len(decisions) == 1


@pytest.mark.parametrize(("rows", "kernels"), [(8, 1), (1024, 2)])
def test_the_norm_of_a_large_array_stays_a_kernel_before_what_it_scales(rows: int, kernels: int) -> None:
    text = f"""HloModule m

sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[{rows},512] parameter(0)
  zero = f32[] constant(0)
  squares = f32[{rows},512] multiply(x, x)
  s = f32[] reduce(squares, zero), dimensions={{0,1}}, to_apply=sum
  norm = f32[] sqrt(s)
  b = f32[{rows},512] broadcast(norm), dimensions={{}}
  ROOT d = f32[{rows},512] divide(x, b)
}}"""
    fused, _ = hlo_opt.fuse(hlo_opt.parse(text), effort=0)
    assert sum(i.opcode in ("fusion", "reduce") for i in fused.entry.instructions) == kernels
