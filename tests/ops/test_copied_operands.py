"""What a library copies before a product: said for the price, done by `library.products`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hlo_opt
from hlo_opt.library.products import gemm_operand, matrices
from hlo_opt.ops.calls.call import call_of
from hlo_opt.ops.calls.strided import copied_bytes
from hlo_opt.ops.contraction.table import DotDimensions

LEFT, RIGHT = (5, 2, 3), (2, 4, 3)
ORDERS = ["2,1,0", "1,2,0", "0,1,2", "0,2,1"]


@pytest.mark.parametrize(("left", "right"), list(itertools.product(ORDERS, ORDERS)))
@pytest.mark.parametrize(("first", "second"), [((1, 2), (0, 2)), ((2, 1), (2, 0)), ((2,), (2,)), ((1,), (0,))])
def test_copied_are_the_operands_that_are_no_matrices_as_they_lie(
    left: str, right: str, first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    sizes = [n for d, n in enumerate(LEFT) if d not in first] + [n for d, n in enumerate(RIGHT) if d not in second]
    module = hlo_opt.parse(f"""HloModule m
ENTRY e {{
  x = f32[5,2,3]{{{left}}} parameter(0)
  y = f32[2,4,3]{{{right}}} parameter(1)
  ROOT d = f32[{",".join(map(str, sizes))}] dot(x, y), lhs_contracting_dims={{{",".join(map(str, first))}}},
    rhs_contracting_dims={{{",".join(map(str, second))}}}
}}
""")
    dot = module.entry.root
    call = call_of(dot)
    assert call is not None
    numbers = DotDimensions.of(dot)
    arrays = []
    for operand in dot.operands:
        order = list(reversed(operand.shape.minor_to_major))
        stored = np.zeros([operand.shape.dimensions[d] for d in order], np.float32)
        arrays.append(stored.transpose([order.index(d) for d in range(3)]))
    made = matrices(arrays[0], arrays[1], ((), ()), (numbers.lhs_contracting, numbers.rhs_contracting))[:2]
    read = [gemm_operand(np, matrix)[0] for matrix in made]
    copied = [a.nbytes for a, r in zip(arrays, read, strict=True) if not np.shares_memory(a, r)]
    assert copied_bytes(call) == copied


def test_a_result_that_does_not_lie_in_rows_is_copied() -> None:
    module = hlo_opt.parse("""HloModule m
ENTRY e {
  x = f32[5,2,3] parameter(0)
  y = f32[3,4] parameter(1)
  ROOT d = f32[5,2,4]{1,2,0} dot(x, y), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}
""")
    call = call_of(module.entry.root)
    assert call is not None
    assert copied_bytes(call) == [160]
