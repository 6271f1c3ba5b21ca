"""Modules of one kernel each, for tests of prices: one or more for each kind of plan."""

from __future__ import annotations

from hlo_opt.analysis.targets import DeviceTarget
from hlo_opt.plans import Plan, Region, plan
from hlo_opt.plans.region import array_roots
from hlo_opt.text import parse
from tests.small_modules import H100

_CALLED = """
sum { a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] add(a, b) }
most { a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT c = {t}[] maximum(a, b) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER }
less_of_two { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  u = f32[] abs(a)
  v = f32[] abs(b)
  ROOT e = pred[] compare(u, v), direction=LT }
round { s = (s32[], f32[{columns}], f32[{rows},{columns}], f32[{rows},{columns}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{columns}] get-tuple-element(s), index=1
  o = f32[{rows},{columns}] get-tuple-element(s), index=2
  u = f32[{rows},{columns}] get-tuple-element(s), index=3
  one = s32[] constant(1)
  z = s32[] constant(0)
  n = s32[] add(i, one)
  v = f32[1,{columns}] dynamic-slice(u, i, z), dynamic_slice_sizes={1,{columns}}
  w = f32[{columns}] reshape(v)
  y = f32[{columns}] add(x, w)
  a = f32[1,{columns}] reshape(y)
  d = f32[{rows},{columns}] dynamic-update-slice(o, a, i, z)
  ROOT t = (s32[], f32[{columns}], f32[{rows},{columns}], f32[{rows},{columns}]) tuple(n, y, d, u) }
turn { s = (s32[], f32[{columns}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{columns}] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[{columns}] reverse(x), dimensions={0}
  ROOT t = (s32[], f32[{columns}]) tuple(n, y) }
few { s = (s32[], f32[{columns}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  l = s32[] constant(9)
  ROOT c = pred[] compare(i, l), direction=LT }
turn_all { s = (s32[], f32[16,{columns}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[16,{columns}] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[16,{columns}] reverse(x), dimensions={0,1}
  ROOT t = (s32[], f32[16,{columns}]) tuple(n, y) }
few_of_all { s = (s32[], f32[16,{columns}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  l = s32[] constant(9)
  ROOT c = pred[] compare(i, l), direction=LT }
until { s = (s32[], f32[{columns}], f32[{rows},{columns}], f32[{rows},{columns}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  m = s32[] constant({rows})
  ROOT c = pred[] compare(i, m), direction=LT }
step { a = f32[{columns}] parameter(0)
  b = f32[{columns}] parameter(1)
  c = f32[{columns}] add(a, b)
  ROOT d = (f32[{columns}], f32[{columns}]) tuple(c, c) }
"""

# Only {t}, {rows} and {columns} are filled in, by `replace`: other braces stand as in HLO.
_ENTRIES = {
    "batch": "x = f32[{rows},4] parameter(0)\n n = f32[{rows},4] tan(x)\n b = f32[{rows},4,4] broadcast(n), "
    "dimensions={0,1}\n c = f32[{rows},4,4] broadcast(n), dimensions={0,2}\n ROOT r = f32[{rows},4,4] multiply(b, c)",
    "loop": "x = {t}[{rows},{columns}] parameter(0)\n ROOT r = {t}[{rows},{columns}] negate(x)",
    "pairwise": "x = f32[{rows},3] parameter(0)\n y = f32[{columns},3] parameter(1)\n z = f32[] constant(0)\n"
    " a = f32[{rows},{columns},3] broadcast(x), dimensions={0,2}\n"
    " b = f32[{rows},{columns},3] broadcast(y), dimensions={1,2}\n"
    " d = f32[{rows},{columns},3] subtract(a, b)\n"
    " ROOT r = f32[{rows},{columns}] reduce(d, z), dimensions={2}, to_apply=sum",
    "row-reduction": "x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n"
    " s = f32[{rows}] reduce(x, z), dimensions={1}, to_apply=sum\n b = f32[{rows},{columns}] broadcast(s), "
    "dimensions={0}\n"
    " ROOT r = f32[{rows},{columns}] divide(x, b)",
    "row-reduction in parts": "x = f32[{elements}] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[] reduce(x, z), "
    "dimensions={0}, to_apply=sum",
    "row-and-column-reduction": "x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n"
    " s = f32[{rows}] reduce(x, z), dimensions={1}, to_apply=sum\n b = f32[{rows},{columns}] broadcast(s), "
    "dimensions={0}\n"
    " d = f32[{rows},{columns}] divide(x, b)\n c = f32[{stretches},8,{columns}] reshape(d)\n"
    " p = f32[{stretches},{columns}] reduce(c, z), dimensions={1}, to_apply=sum\n"
    " ROOT r = (f32[{rows},{columns}], f32[{stretches},{columns}]) tuple(d, p)",
    "column-reduction": "x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n ROOT r = f32[{columns}] "
    "reduce(x, z), dimensions={0}, to_apply=sum",
    "column-reduction abreast": "x = f32[{rows},{columns},3] parameter(0)\n w = f32[{rows},{columns}] parameter(1)\n"
    " z = f32[] constant(0)\n e = f32[{rows},{columns}] rsqrt(w)\n b = f32[{rows},{columns},3] broadcast(e), "
    "dimensions={0,1}\n f = f32[{rows},{columns},3] multiply(x, b)\n ROOT r = f32[{rows},3] reduce(f, z), "
    "dimensions={1}, to_apply=sum",
    "register-transpose": "x = {t}[{elements},3] parameter(0)\n ROOT r = {t}[3,{elements}] transpose(x), "
    "dimensions={1,0}",
    "tiled-transpose": "x = {t}[{rows},{columns}] parameter(0)\n ROOT r = {t}[{columns},{rows}] transpose(x), "
    "dimensions={1,0}",
    "tiled-transpose of pairs": "x = f32[{rows},{columns},2] parameter(0)\n ROOT r = f32[{columns},{rows},2] "
    "transpose(x), dimensions={1,0,2}",
    "concatenate": "x = {t}[{rows},{columns}] parameter(0)\n y = {t}[{rows},{columns}] parameter(1)\n z = "
    "{t}[{rows},64] parameter(2)\n"
    " ROOT r = {t}[{rows},{wider}] concatenate(x, y, z), dimensions={1}",
    "gather": "x = f32[{rows},{columns}] parameter(0)\n i = s32[{rows}] parameter(1)\n ROOT r = f32[{rows},{columns}] "
    "gather(x, i), offset_dims={1},"
    " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,{columns}}",
    "dynamic-update-slice": "x = f32[{rows},{columns}] parameter(0)\n y = f32[1,{columns}] parameter(1)\n i = s32[] "
    "parameter(2)\n z = s32[] constant(0)\n"
    " ROOT r = f32[{rows},{columns}] dynamic-update-slice(x, y, i, z)",
    "scatter": "x = {t}[{rows},{columns}] parameter(0)\n i = s32[{rows}] parameter(1)\n y = {t}[{rows},{columns}] "
    "parameter(2)\n"
    " ROOT r = {t}[{rows},{columns}] scatter(x, i, y), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    "block-scatter": "x = {t}[64] parameter(0)\n i = s32[{elements},1] parameter(1)\n y = {t}[{elements}] parameter(2)\n"
    " ROOT r = {t}[64] scatter(x, i, y), update_window_dims={}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=sum",
    "scan": "x = f32[{rows},{columns}] parameter(0)\n y = f32[{columns}] parameter(1)\n"
    " ROOT r = (f32[{rows},{columns}], f32[{columns}]) scan(x, y), dimensions={0}, num_carries=1, to_apply=step",
    "lane-loop": "x = f32[{columns}] parameter(0)\n u = f32[{rows},{columns}] parameter(1)\n z = s32[] constant(0)\n e "
    "= f32[] constant(0)\n"
    " o = f32[{rows},{columns}] broadcast(e), dimensions={}\n"
    " s = (s32[], f32[{columns}], f32[{rows},{columns}], f32[{rows},{columns}]) tuple(z, x, o, u)\n"
    " w = (s32[], f32[{columns}], f32[{rows},{columns}], f32[{rows},{columns}]) while(s), condition=until, body=round\n"
    " v = f32[{columns}] get-tuple-element(w), index=1\n d = f32[{rows},{columns}] get-tuple-element(w), index=2\n"
    " ROOT r = (f32[{columns}], f32[{rows},{columns}]) tuple(v, d)",
    "block-loop": "x = f32[{columns}] parameter(0)\n z = s32[] constant(0)\n s = (s32[], f32[{columns}]) tuple(z, x)\n"
    " w = (s32[], f32[{columns}]) while(s), condition=few, body=turn\n ROOT r = f32[{columns}] get-tuple-element(w), "
    "index=1",
    "grid-loop": "x = f32[16,{columns}] parameter(0)\n z = s32[] constant(0)\n s = (s32[], f32[16,{columns}]) tuple(z, "
    "x)\n"
    " w = (s32[], f32[16,{columns}]) while(s), condition=few_of_all, body=turn_all\n ROOT r = f32[16,{columns}] "
    "get-tuple-element(w), index=1",
    "cumulative": "x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n"
    " ROOT r = f32[{rows},{columns}] reduce-window(x, z), window={size=1x{columns} pad=0_0x{before}_0}, to_apply=sum",
    "look-back": "x = f32[{elements}] parameter(0)\n z = f32[] constant(0)\n"
    " ROOT r = f32[{elements}] reduce-window(x, z), window={size={elements} pad={all_before}_0}, to_apply=sum",
    "sliding-window": "x = f32[{rows},{columns}] parameter(0)\n z = f32[] constant(0)\n"
    " ROOT r = f32[{rows},{columns}] reduce-window(x, z), window={size=1x65 pad=0_0x32_32}, to_apply=sum",
    "window-scatter": "x = f32[512,512] parameter(0)\n y = f32[255,255] parameter(1)\n z = f32[] constant(0)\n"
    " ROOT r = f32[512,512] select-and-scatter(x, y, z), window={size=3x3 stride=2x2}, select=less, scatter=sum",
    "sort": "x = f32[{rows},1024] parameter(0)\n ROOT r = f32[{rows},1024] sort(x), dimensions={1}, to_apply=less",
    "sort across": "x = f32[1024,{columns}] parameter(0)\n ROOT r = f32[1024,{columns}] sort(x), dimensions={0}, "
    "to_apply=less",
    "long-sort": "x = f32[4,{elements}] parameter(0)\n y = s32[4,{elements}] parameter(1)\n"
    " ROOT r = (f32[4,{elements}], s32[4,{elements}]) sort(x, y), dimensions={1}, to_apply=less_of_two",
    "attention": "q = {t}[{rows},4,32] parameter(0)\n k = {t}[{rows},{columns},32] parameter(1)\n"
    " z = {t}[] constant(0)\n l = {t}[] constant(-inf)\n"
    " x = {t}[{rows},4,{columns}] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={2}\n"
    " m = {t}[{rows},4] reduce(x, l), dimensions={2}, to_apply=most\n"
    " b = {t}[{rows},4,{columns}] broadcast(m), dimensions={0,1}\n d = {t}[{rows},4,{columns}] subtract(x, b)\n"
    " e = {t}[{rows},4,{columns}] exponential(d)\n s = {t}[{rows},4] reduce(e, z), dimensions={2}, to_apply=sum\n"
    " a = {t}[{rows},4,{columns}] broadcast(s), dimensions={0,1}\n w = {t}[{rows},4,{columns}] divide(e, a)\n"
    " ROOT r = {t}[{rows},4,32] dot(w, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={1}",
    "tensor-attention": "q = bf16[4,{rows},32] parameter(0)\n k = bf16[4,{columns},32] parameter(1)\n"
    " z = {t}[] constant(0)\n l = {t}[] constant(-inf)\n"
    " x = {t}[4,{rows},{columns}] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={2}\n"
    " m = {t}[4,{rows}] reduce(x, l), dimensions={2}, to_apply=most\n"
    " b = {t}[4,{rows},{columns}] broadcast(m), dimensions={0,1}\n d = {t}[4,{rows},{columns}] subtract(x, b)\n"
    " e = {t}[4,{rows},{columns}] exponential(d)\n s = {t}[4,{rows}] reduce(e, z), dimensions={2}, to_apply=sum\n"
    " a = {t}[4,{rows},{columns}] broadcast(s), dimensions={0,1}\n w = {t}[4,{rows},{columns}] divide(e, a)\n"
    " u = bf16[4,{rows},{columns}] convert(w)\n"
    " ROOT r = bf16[4,{rows},32] dot(u, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_contracting_dims={1}",
    "matmul": "x = f32[{rows},{columns}] parameter(0)\n y = f32[{columns},{rows}] parameter(1)\n"
    " ROOT r = f32[{rows},{rows}] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "tensor-matmul": "x = bf16[{rows},{columns}] parameter(0)\n y = bf16[{columns},{rows}] parameter(1)\n"
    " ROOT r = bf16[{rows},{rows}] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "matrix-vector": "x = {t}[1,{columns}] parameter(0)\n y = {t}[{rows},{columns}] parameter(1)\n"
    " ROOT r = {t}[1,{rows}] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "matrix-vector across": "x = {t}[1,{rows}] parameter(0)\n y = {t}[{rows},{columns}] parameter(1)\n"
    " ROOT r = {t}[1,{columns}] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
}

NAMES = tuple(_ENTRIES)


def planned(entry: str, rows: int = 4096, columns: int = 4096, t: str = "f32", target: DeviceTarget = H100) -> Plan:
    """The plan of an entry: one of `NAMES`, or its text. `{rows}`, `{columns}` and `{t}`, the element type, are filled
    in."""
    text = "HloModule m\n" + _CALLED + "ENTRY e {\n " + _ENTRIES.get(entry, entry) + "\n}\n"
    sizes = {
        "rows": rows,
        "stretches": rows // 8,
        "columns": columns,
        "elements": rows * columns,
        "wider": 2 * columns + 64,
        "before": columns - 1,
        "all_before": rows * columns - 1,
        "t": t,
    }
    for name, size in sizes.items():
        text = text.replace("{" + name + "}", str(size))
    module = parse(text)
    for computation in module.computations:
        computation.index_users()
    whole = module.entry
    region = Region(whole.root, whole, tuple(whole.parameters), tuple(array_roots(whole.root)))
    made = plan(region, target, long_sorts=True)
    assert isinstance(made, Plan), made
    return made
