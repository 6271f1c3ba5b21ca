import math
from types import SimpleNamespace

import pytest
from small_modules import module_of, named, state_of

import hlo_opt
from hlo_opt.analysis.xla.tiled_model import TileSizes
from hlo_opt.diag import Reason
from hlo_opt.fusion.legality import Edge
from hlo_opt.fusion.priority_choices import operation_conflict, retile, tiled_kernel_conflict, unsupported
from hlo_opt.ir import Instruction


def instruction(text: str, parameters: str = "p = f32[64,64]{1,0} parameter(0)") -> Instruction:
    reducer = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"
    tiled = "tiled {\n  p = f32[64,64]{1,0} parameter(0)\n  ROOT n = f32[64,64]{1,0} negate(p)\n}\n"
    return hlo_opt.parse(
        f"HloModule m\n\n{reducer}\n{tiled}\nENTRY e {{\n  {parameters}\n  ROOT r = {text}\n}}\n"
    ).entry.root


@pytest.mark.parametrize(
    ("text", "parameters", "fits"),
    [
        ("f32[64,64]{1,0} exponential(p)", "p = f32[64,64]{1,0} parameter(0)", True),
        ("s32[64]{0} negate(p)", "p = s32[64]{0} parameter(0)", True),
        ("u32[64]{0} add(p, p)", "p = u32[64]{0} parameter(0)", False),
        ("s32[64]{0} divide(p, p)", "p = s32[64]{0} parameter(0)", False),
        ("c64[64]{0} add(p, p)", "p = c64[64]{0} parameter(0)", False),
        (
            "f32[64]{0} reduce(p, z), dimensions={1}, to_apply=sum",
            "p = f32[64,64]{1,0} parameter(0)\n  z = f32[] constant(0)",
            True,
        ),
        (
            "f32[] reduce(p, z), dimensions={0,1}, to_apply=sum",
            "p = f32[64,64]{1,0} parameter(0)\n  z = f32[] constant(0)",
            False,
        ),
        ("f32[128,64]{1,0} concatenate(p, p), dimensions={0}", "p = f32[64,64]{1,0} parameter(0)", False),
        ("f32[64,64]{1,0} reverse(p), dimensions={0}", "p = f32[64,64]{1,0} parameter(0)", False),
    ],
)
def test_what_a_tiled_kernel_computes(text: str, parameters: str, fits: bool):
    reason = unsupported(instruction(text, parameters))
    assert (reason is None) == fits
    assert fits or reason.code == "FUS321"


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (
            '{"kind":"__triton","block_level_fusion_config":{"num_warps":"4","output_tiles":[{"sizes":["1","16"]}],"num_ctas":1}}',
            '{"kind":"__triton","block_level_fusion_config":{"num_warps":"8","output_tiles":[{"sizes":["2","32"]}],"num_ctas":1}}',
        ),
        ('{"kind":"__triton"}', '{"kind":"__triton"}'),
    ],
)
def test_tiles_are_written_into_the_config(config: str, found: str):
    fusion = instruction(
        f'f32[64,64]{{1,0}} fusion(p), kind=kCustom, calls=tiled, backend_config={{"fusion_backend_config":{config}}}'
    )
    retile(fusion, TileSizes((2, 32), 8))
    assert fusion.attributes["backend_config"].text == f'{{"fusion_backend_config":{found}}}'


TRITON = 'kind=kCustom, backend_config={"fusion_backend_config":{"kind":"__triton"}}'
WIDE, TALL = "f32[64,96]{1,0}", "f32[96,64]{1,0}"


def edge(producer: str, consumer: str) -> Edge:
    kernels = {f"held_{n}": (f"x{n} = {WIDE} parameter(0)", f"y{n} = {WIDE} negate(x{n})") for n in "ab"}
    module = module_of(f"p = {WIDE} parameter(0)", f"a = {producer}", f"b = {consumer}", **kernels)
    return Edge(named(module, "a"), module.entry.root, state_of(module))


TILED = f"{WIDE} fusion(p), {TRITON}, calls=held_a"


@pytest.mark.parametrize(
    ("producer", "consumer", "odd"),
    [
        (TILED, f"{WIDE} tanh(a)", ""),
        (TILED, f"{WIDE} reverse(a), dimensions={{0}}", "b"),
        (f"{WIDE} reverse(p), dimensions={{0}}", f"{WIDE} fusion(a), {TRITON}, calls=held_b", "a"),
    ],
)
def test_what_one_side_computes_and_a_tiled_kernel_does_not(producer: str, consumer: str, odd: str):
    found = edge(producer, consumer)
    expected = Reason.of("FUS321", instruction=odd, element_type="f32", opcode="reverse") if odd else None
    assert operation_conflict(found) == expected and tiled_kernel_conflict(found) == expected


def test_a_kernel_of_both_for_which_there_are_no_tiles(monkeypatch: pytest.MonkeyPatch):
    found = edge(TILED, f"{TALL} transpose(a), dimensions={{1,0}}")
    monkeypatch.setattr(found.state, "fused_by_xla", lambda producer, consumer: SimpleNamespace(us=math.inf))
    expected = Reason.of("FUS322", producer="ya", consumer="b", sizes="96x64", members=2)
    assert tiled_kernel_conflict(found) == expected


@pytest.mark.parametrize(
    ("text", "parameters", "element_type"),
    [
        ("(f32[64]{0}, f32[64]{0}) tuple(p, p)", "p = f32[64]{0} parameter(0)", ""),
        ("s32[64]{0} convert(p)", "p = u32[64]{0} parameter(0)", "u32"),
        ("pred[64]{0} is-finite(p)", "p = f32[64]{0} parameter(0)", ""),
        ("f32[64]{0} atan2(p, p)", "p = f32[64]{0} parameter(0)", ""),
        ("f8e5m2[64]{0} sine(p)", "p = f8e5m2[64]{0} parameter(0)", "f8e5m2"),
        ("f32[64]{0} add-dependency(p, t)", "p = f32[64]{0} parameter(0)\n  t = token[] after-all()", "f32"),
        ("f32[64]{0} copy(p)", "p = f32[64]{0} parameter(0)", ""),
    ],
)
def test_types_that_a_tiled_kernel_knows(text: str, parameters: str, element_type: str):
    found = instruction(text, parameters)
    expected = (
        Reason.of("FUS321", instruction="r", element_type=element_type, opcode=found.opcode) if element_type else None
    )
    assert unsupported(found) == expected


def test_constants_count_by_their_own_type():
    assert unsupported(instruction("f32[2]{0} constant({1, 2})")) is None
    assert unsupported(instruction("u32[2]{0} constant({1, 2})")) is not None


@pytest.mark.parametrize(
    "text",
    ["f32[64]{0} reduce(p, z), dimensions={0}, to_apply=sum", "f32[] reduce(p, z), dimensions={0,1}, to_apply=sum"],
)
def test_one_dimension_is_reduced(text: str):
    found = instruction(text, "p = f32[64,64]{1,0} parameter(0)\n  z = f32[] constant(0)")
    expected = Reason.of("FUS321", instruction="r", element_type="f32", opcode="reduce")
    assert unsupported(found) == (None if "{0}," in text else expected)
