"""The statements of a kernel, and how they are gone through."""

from __future__ import annotations

from typing import Any, get_args

from hlo_opt.codegen.cuda import helpers, kernel_text, statement_lines, table_text
from hlo_opt.codegen.kernel import KernelTree, Pointer, kept_bytes
from hlo_opt.codegen.tree import (
    Aligned,
    Assign,
    AtomicChange,
    Barrier,
    Block,
    BlockRange,
    Break,
    ClusterBarrier,
    ConstantTable,
    DeclaredArray,
    Do,
    Fence,
    For,
    GridBarrier,
    Kept,
    Leave,
    Let,
    Neighbours,
    Network,
    Note,
    Peeled,
    Statement,
    StrideLoop,
    ThreadChain,
    codes_of,
    functions_in,
    kinds_in,
    names_in,
    walk,
    walked_changes,
)
from hlo_opt.ir.index_map import Variable
from hlo_opt.ops.code import Name, address, call, cell, code, of
from hlo_opt.plans.plan import Launch

A, B, K = Name("a"), Name("b"), Name("k")


def do(name: str) -> Do:
    return Do(call(name))


EVERY: list[tuple[Statement, list[str]]] = [
    (Let("float", A, code("1.0f")), ["const float a = 1.0f;"]),
    (Let("float", A, code("1.0f"), constant=False), ["float a = 1.0f;"]),
    (Assign(cell(A, K), of(B)), ["a[k] = b;"]),
    (DeclaredArray("float", A, 3), ["float a[3];"]),
    (DeclaredArray("float", A, 3, shared=True), ["__shared__ float a[3];"]),
    (DeclaredArray("float", A, 3, shared=True, alignment=16), ["__shared__ __align__(16) float a[3];"]),
    (do("f"), ["f();"]),
    (Barrier(), ["__syncthreads();"]),
    (Barrier(warp=True), ["__syncwarp();"]),
    (GridBarrier(A), ["hlo_meet_grid(&a[0]);"]),
    (ClusterBarrier("take", address(A, K)), ["hlo_cluster_take(&a[k]);"]),
    (ClusterBarrier("show"), ["hlo_cluster_show();"]),
    (Fence(), ["hlo_fence();"]),
    (Leave(code("{} > 3", A)), ["if (a > 3) return;"]),
    (Break(code("{} > 3", A)), ["if (a > 3) break;"]),
    (Aligned(A, "const float*", 16), ["a = (const float*)__builtin_assume_aligned(a, 16);"]),
    (Note("so it is"), ["// so it is"]),
    (Block(body=[do("f")]), ["{", "  f();", "}"]),
    (Block(of(A), [do("f")], [do("g")]), ["if (a) {", "  f();", "}", "else {", "  g();", "}"]),
    (For("int", K, of(0), code("{} < 3", K), code("++{}", K), "unroll", [do("f")]),
        ["#pragma unroll", "for (int k = 0; k < 3; ++k) {", "  f();", "}"]),
    (For("int", None, code(""), code(""), code(""), body=[do("f")]), ["for (;;) {", "  f();", "}"]),
    (BlockRange(2, 5, [do("f")]), ["if (blockIdx.x >= 2u && blockIdx.x < 5u) {", "  f();", "}"]),
    (StrideLoop("int", K, Variable(0, 31, "lane"), 99, 32, None, [do("f")]),
        ["for (int k = lane; k < 99; k += 32) {", "  f();", "}"]),
    (StrideLoop("int", K, Variable(0, 31, "lane"), 32, 32, None, [do("f")]),
        ["{", "  const int k = lane;", "  f();", "}"]),
    (StrideLoop("int", K, Variable(0, 31, "lane"), 9, 32, None, [do("f")]),
        ["{", "  const int k = lane;", "  if (k < 9) {", "    f();", "  }", "}"]),
    (Network([do("f")], None), ["f();"]),  # type: ignore[arg-type]  # no merge is printed
    (ThreadChain([do("f")], walking=[do("g")]), ["f();"]),
    (Peeled([do("f")], walking=[do("g")]), ["f();"]),
    (AtomicChange([do("f")], walking=[do("g")]), ["f();"]),
    (Neighbours(2, K, making=[do("f")]), ["#pragma unroll", "for (int k = 0; k < 2; ++k) {", "  f();", "}"]),
]  # fmt: skip


def test_every_statement_is_printed() -> None:
    assert {type(statement) for statement, _ in EVERY} == set(get_args(Statement))
    for statement, lines in EVERY:
        assert list(statement_lines([statement], "")) == lines


def test_what_is_inside_comes_after_what_it_is_in() -> None:
    f, g, h, i = (do(name) for name in "fghi")
    block = Block(of(A), [f], [g])
    loop = For("int", K, of(0), of(1), of(2), body=[block, h])
    segment = BlockRange(0, 1, [loop, i])
    assert list(map(id, walk([segment, f]))) == list(map(id, [segment, loop, block, f, g, h, i, f]))
    vector = Neighbours(4, K, reading=[f], making=[g], writing=[h], filling=[i])
    assert list(map(id, walk([vector]))) == list(map(id, [vector, f, g, h, i]))
    assert list(walk([])) == []


def test_a_single_processor_changes_elements_one_by_one() -> None:
    """Also inside other statements, and of what it does instead."""
    f, g, h = (do(name) for name in "fgh")
    vector = Neighbours(4, K, making=[AtomicChange([f], walking=[g])])
    items = [Block(of(A), [AtomicChange([f], walking=[vector]), h], [AtomicChange([f], walking=[h])])]
    (block,) = walked_changes(items)
    assert list(statement_lines([block], "")) == list(
        statement_lines([Block(of(A), [Neighbours(4, K, making=[g]), h], [h])], "")
    )
    assert items[0].body[0].walking == [vector] and isinstance(vector.making[0], AtomicChange)


def test_what_statements_mention() -> None:
    body: list[Any] = [
        Let("hlo_half", A, code("sinf({})", cell(B, K))),
        StrideLoop("int", K, Variable(0, 31, "lane"), 99, 32, None, [Leave(code("{} > 3", Name("deep")))]),
        Neighbours(4, K, guard=code("{} < 3", Name("guard")), writing=[Assign(of(Name("to")), call("f"))]),
        For("int", K, of(Name("first")), of(Name("test")), of(Name("step"))),
    ]
    named = {name.text for name in names_in(body)}
    assert named >= {"b", "k", "lane", "deep", "guard", "to", "first", "test", "step"}
    assert set(functions_in(body)) == {"sinf", "f"} and "hlo_half" in kinds_in(body)
    assert list(codes_of(Do(call("f")))) == [call("f")] and list(codes_of(Barrier())) == []


def test_a_kernel_brings_its_helpers_and_its_memory() -> None:
    table, kept = (
        ConstantTable("int", Name("table0"), ("1", "2")),
        Kept("unsigned int", Name("arrived"), 4, volatile=True),
    )
    assert table_text(table) == "static __device__ const int table0[] = {\n  1, 2};\n"
    assert table_text(ConstantTable("int", Name("t"), ())) == "static __device__ const int t[] = {\n  0};\n"
    pointers = (Pointer("float", Name("in0"), constant=True), Pointer("float", Name("out0")))
    tree = KernelTree(Launch(1, 32), pointers, (table, kept), (Assign(cell(Name("out0"), 0), cell(Name("in0"), 0)),))
    before, after = kernel_text(tree, "32, 1")
    assert helpers(tree) == "" and before == f'{table_text(table)}extern "C" __global__ void __launch_bounds__(32, 1) '
    assert after == (
        "(\n    const float* __restrict__ in0,\n    float* __restrict__ out0,\n    unsigned char* __restrict__ kept) "
        "{\n"
        "  volatile unsigned int* const arrived = (volatile unsigned int*)(kept + 0);\n  out0[0] = in0[0];\n}\n"
    )
    assert kept_bytes(tree) == 32
