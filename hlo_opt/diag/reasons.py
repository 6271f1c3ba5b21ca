"""All refusal reasons, each declared once. Import this module before reasons are made or listed."""

from __future__ import annotations

import hlo_opt.diag.reasons_cost
import hlo_opt.diag.reasons_graph
import hlo_opt.diag.reasons_horizontal
import hlo_opt.diag.reasons_in_place
import hlo_opt.diag.reasons_outputs
import hlo_opt.diag.reasons_priority  # noqa: F401
from hlo_opt.diag.reason import ReasonSpec, register_reason

_SINGLE = "// passes: instruction-fusion\nHloModule example\n\n"

register_reason(
    ReasonSpec(
        "FUS301",
        "no-cuda-lowering",
        "no CUDA lowering for {element_type} `{opcode}`",
        "`hlo-opt ops` shows which operations and types have one; a plugin can add `{opcode}`",
        "A kernel computes every instruction inside it from the CUDA text that the op table declares for the opcode and the element type. Where "
        "there is none, the instruction runs in the reference interpreter or in a library, and nothing can be fused with it.",
        _SINGLE
        + "ENTRY e {\n  p = s1[64]{0} parameter(0)\n  t = s1[64]{0} negate(p)\n  n = s1[64]{0} not(t)\n  ROOT c = s32[64]{0} convert(n)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS302",
        "library-call",
        "`{opcode}` runs as {runs_as}",
        "only a library's own epilogues could take `{opcode}` together with its neighbours",
        "Matrix products, convolutions, sorts, Fourier transforms and the like are left to libraries, which are faster than a generated loop. A "
        "library call reads and writes whole arrays, so it is a boundary of fusion. So is a sort of lines short enough for the kernel of its own that it then gets.",
        _SINGLE
        + "ENTRY e {\n  p = f32[64,64]{1,0} parameter(0)\n  d = f32[64,64]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        "  ROOT t = f32[64,64]{1,0} tanh(d)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS303",
        "large-constant",
        "a constant of {elements} elements is more than the {limit} that kernel code holds",
        "a constant of up to {limit} elements, or one whose elements are all equal, becomes part of the code",
        "Constants inside a kernel become tables in its code. A large one is better kept as an array that the kernel reads.",
        _SINGLE
        + "table {\n  p = s32[1025]{0} parameter(0)\n  c = s32[1025]{0} constant({"
        + ",\n    ".join(", ".join(map(str, range(n, min(n + 25, 1025)))) for n in range(0, 1025, 25))
        + "})\n  ROOT a = s32[1025]{0} add(p, c)\n}\n\nENTRY e {\n  p = s32[1025]{0} parameter(0)\n  n = s32[1025]{0} negate(p)\n"
        "  ROOT f = s32[1025]{0} fusion(n), kind=kLoop, calls=table\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS305",
        "nested-too-deep",
        "operations that read under conditions would nest {depth} deep, more than {limit}",
        "a fusion with fewer pads, concatenates, gathers and reduces inside each other",
        "A pad, a concatenate or a loop over reduced elements asks for its operands inside braces. Compilers limit how deep braces nest.",
        _SINGLE
        + "ENTRY e {\n  p = f32[8]{0} parameter(0)\n  z = f32[] constant(0)\n  v0 = f32[8]{0} negate(p)\n"
        + "".join(f"  v{k + 1} = f32[8]{{0}} pad(v{k}, z), padding=1_-1\n" for k in range(61))
        + "  ROOT r = f32[8]{0} negate(v61)\n}\n",
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
        "// passes: instruction-fusion{max-emissions=1000000}\nHloModule example\n\nENTRY e {\n  p = f32[8]{0} parameter(0)\n  v0 = f32[8]{0} negate(p)\n"
        + "".join(
            f"  r{k} = f32[8]{{0}} reverse(v{k}), dimensions={{0}}\n  v{k + 1} = f32[8]{{0}} add(v{k}, r{k})\n"
            for k in range(15)
        )
        + "  ROOT r = f32[8]{0} negate(v15)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS307",
        "dynamic-dimension",
        "`{shape}` has a dynamic dimension, which kernels cannot address",
        "arrays of fixed size are addressed by strides",
        "Kernels address memory by one stride per dimension. The sizes of a dynamic dimension are known only at run time, and have no such form.",
        _SINGLE
        + "ENTRY e {\n  p = f32[<=8]{0} parameter(0)\n  n = f32[<=8]{0} negate(p)\n  ROOT t = f32[<=8]{0} tanh(n)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS308",
        "opaque-call",
        "custom call `{target}` runs compiled code that the dump does not show",
        "what `{target}` computes, written in HLO, could be fused; a plugin can describe it (`CustomCallSpec`, its `expand`)",
        "A custom call runs a function of a library (cuDNN, a random number generator, a kernel of the program's own) that the compiler cannot look into. "
        "It reads and writes whole arrays and keeps a launch of its own.",
        _SINGLE
        + 'ENTRY e {\n  p = f32[64]{0} parameter(0)\n  n = f32[64]{0} negate(p)\n  c = f32[64]{0} custom-call(n), custom_call_target="generate"\n'
        "  ROOT t = f32[64]{0} tanh(c)\n}\n",
    )
)
register_reason(
    ReasonSpec(
        "FUS309",
        "other-layout-inside",
        "`{fusion}` takes {given} for {taken}, and what it holds can tell",
        "a fusion whose parameters and root have the layouts of its operands and its result",
        "A fusion's computation may call an operand, or the result, by another layout or memory space than the array has. Where it only reads elements by "
        "their index, the operands take the parameters' places; where a bitcast or a call looks at how they lie, that would make another value of it, so "
        "the fusion stays as it is.",
        _SINGLE
        + "f {\n  p = f32[8]{0} parameter(0)\n  b = f32[2,4]{1,0} bitcast(p)\n  ROOT t = f32[2,4]{1,0} tanh(b)\n}\n\n"
        "ENTRY e {\n  x = f32[8]{0} parameter(0)\n  n = f32[8]{0:S(1)} negate(x)\n  ROOT r = f32[2,4]{1,0} fusion(n), kind=kLoop, calls=f\n}\n",
    )
)
