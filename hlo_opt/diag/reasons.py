"""All refusal reasons, each declared once. Import this module before reasons are made or listed."""

from __future__ import annotations

import hlo_opt.diag.reasons_cost
import hlo_opt.diag.reasons_graph
import hlo_opt.diag.reasons_in_place  # noqa: F401
from hlo_opt.diag.reason import ReasonSpec, register_reason

register_reason(
    ReasonSpec(
        "FUS301",
        "no-cuda-lowering",
        "no CUDA lowering for {element_type} `{opcode}`",
        "`hlo-opt ops` shows which operations and types have one; a plugin can add `{opcode}`",
        "A kernel computes every instruction inside it from the CUDA text that the op table declares for the opcode and the element type. Where "
        "there is none, the instruction runs in the reference interpreter or in a library, and nothing can be fused with it.",
        "e = f8e5m2[8]{0} exponential(p)",
    )
)
register_reason(
    ReasonSpec(
        "FUS302",
        "library-call",
        "`{opcode}` runs as a library call",
        "only a library's own epilogues could take `{opcode}` together with its neighbours",
        "Matrix products, convolutions, sorts, Fourier transforms and the like are left to libraries, which are faster than a generated loop. A "
        "library call reads and writes whole arrays, so it is a boundary of fusion.",
        "d = f32[64,64]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    )
)
register_reason(
    ReasonSpec(
        "FUS303",
        "large-constant",
        "a constant of {elements} elements is more than the {limit} that kernel code holds",
        "a constant of up to {limit} elements, or one whose elements are all equal, becomes part of the code",
        "Constants inside a kernel become tables in its code. A large one is better kept as an array that the kernel reads.",
        "c = s32[4096]{0} constant({0, 1, 2, ...})",
    )
)
register_reason(
    ReasonSpec(
        "FUS304",
        "output-sizes-differ",
        "the outputs have {first} and {second} elements; the threads of one kernel walk one index space",
        "outputs of {first} elements each fit together",
        "A loop kernel gives every thread the same positions of every output, and a row reduction writes one element per row or per position. Outputs "
        "of other sizes need a kernel of their own.",
        "(f32[8], f32[9]) tuple(a, b)",
    )
)
register_reason(
    ReasonSpec(
        "FUS305",
        "nested-too-deep",
        "operations that read under conditions would nest {depth} deep, more than {limit}",
        "a fusion with fewer pads, concatenates, gathers and reduces inside each other",
        "A pad, a concatenate or a loop over reduced elements asks for its operands inside braces. Compilers limit how deep braces nest.",
        "pad(pad(pad(...)))",
    )
)
register_reason(
    ReasonSpec(
        "FUS306",
        "code-too-large",
        "the kernel would compute {values} values per element, more than {limit}",
        "a fusion that reads its producers at fewer different indices",
        "An instruction that is needed at several indices is computed at each of them, and so are its operands: without a limit the code could grow "
        "exponentially. XLA's limit is in xla/service/fusion_node_indexing_evaluation.cc.",
        "add(slice(x), slice(x)) of add(slice(y), slice(y)) of ...",
    )
)
register_reason(
    ReasonSpec(
        "FUS307",
        "unsupported-layout",
        "`{shape}` has a tiled layout or a dynamic dimension, which kernels cannot address",
        "arrays of fixed size without tiles are addressed by strides",
        "Kernels address memory by one stride per dimension. Tiles (`T(8,128)`) and sizes known only at run time have no such form.",
        "p = f32[<=8]{0} parameter(0)",
    )
)
