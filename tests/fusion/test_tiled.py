import pytest

import hlo_opt
from hlo_opt.analysis.tiled_model import TileSizes
from hlo_opt.fusion.tiled import retile, unsupported
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
