"""Checks that the tests of all families share: one line of HLO per case, against XLA:CPU, against compiled kernels, and
against its own index maps."""

from __future__ import annotations

import itertools
import re
import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import hlo_opt
from hlo_opt.evaluate import module_inputs
from hlo_opt.ir import Instruction, Module
from hlo_opt.ir.index_map import Constant, constant
from hlo_opt.ops import spec_of
from hlo_opt.ops.spec import ShapeError

Array = np.ndarray[Any, Any]

COMPUTATIONS = """
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}

add_s32 {
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT z = s32[] add(x, y)
}

add_bf16 {
  x = bf16[] parameter(0)
  y = bf16[] parameter(1)
  ROOT z = bf16[] add(x, y)
}

max {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] maximum(x, y)
}

or {
  x = pred[] parameter(0)
  y = pred[] parameter(1)
  ROOT z = pred[] or(x, y)
}

replace {
  x = f32[] parameter(0)
  ROOT y = f32[] parameter(1)
}

mix {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  two = f32[] constant(2)
  half = f32[] multiply(x, two)
  ROOT z = f32[] add(half, y)
}

argmax {
  x = f32[] parameter(0)
  i = s32[] parameter(1)
  y = f32[] parameter(2)
  j = s32[] parameter(3)
  first = pred[] compare(x, y), direction=GE
  value = f32[] select(first, x, y)
  index = s32[] select(first, i, j)
  ROOT pair = (f32[], s32[]) tuple(value, index)
}

ge {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = pred[] compare(x, y), direction=GE
}

lt {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = pred[] compare(x, y), direction=LT
}

gt_total {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = pred[] compare(x, y), direction=GT, type=TOTALORDER
}

by_magnitude {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  big = f32[] abs(x)
  bigger = f32[] abs(y)
  ROOT z = pred[] compare(big, bigger), direction=LT
}

running {
  x = f32[] parameter(0)
  carry = f32[] parameter(1)
  sum = f32[] add(x, carry)
  twice = f32[] add(sum, sum)
  ROOT both = (f32[], f32[]) tuple(twice, sum)
}
"""

_LINE = re.compile(r"(\([^=]*?\)|\S+) ([a-z\-]+)\((.*?)\)((?:, .*)?)$")
_TYPE = re.compile(r"[a-z][a-z0-9]*\[[^\]]*\](?:\{[^}]*\})?")


@dataclass
class Line:
    """`result opcode(types of operands)attributes`"""

    result: str
    opcode: str
    operands: list[str]
    attributes: str

    @classmethod
    def of(cls, text: str) -> Line:
        match = _LINE.match(text)
        assert match is not None, text
        return cls(match[1], match[2], _TYPE.findall(match[3]), match[4])

    def operation(self, names: list[str]) -> str:
        return f"{self.result} {self.opcode}({', '.join(names)}){self.attributes}"


class Family:
    """The checks."""

    def module(self, text: str) -> tuple[Module, Instruction]:
        """A module whose root is the line's operation, and that root."""
        line = Line.of(text)
        names = [f"p{k}" for k in range(len(line.operands))]
        body = "".join(
            f"  {n} = {t} parameter({k})\n" for k, (n, t) in enumerate(zip(names, line.operands, strict=True))
        )
        made = hlo_opt.parse(f"HloModule m\n{COMPUTATIONS}\nENTRY e {{\n{body}  ROOT r = {line.operation(names)}\n}}\n")
        return made, made.entry.root

    def run(self, text: str, *inputs: object) -> list[Array]:
        """What the line's operation gives for these inputs, what is open in HLO as in kernels; Python lists are
        converted."""
        return hlo_opt.evaluate(self.module(text)[0], inputs)

    def together(self, texts: list[str], *, fused: bool) -> str:
        """One module with all lines, each on parameters of its own; as fusions where asked."""
        functions, body, roots, count = [], [], [], 0
        for number, text in enumerate(texts):
            line = Line.of(text)
            names = []
            for kind in line.operands:
                names.append(f"p{count}")
                body.append(f"  p{count} = {kind} parameter({count})")
                count += 1
            if fused:
                inner = [f"  q{k} = {t} parameter({k})" for k, t in enumerate(line.operands)]
                inner.append(f"  ROOT r = {line.operation([f'q{k}' for k in range(len(names))])}")
                functions.append(f"f{number} {{\n" + "\n".join(inner) + "\n}\n")
                body.append(f"  r{number} = {line.result} fusion({', '.join(names)}), kind=kLoop, calls=f{number}")
            else:
                body.append(f"  r{number} = {line.operation(names)}")
            roots.append(f"r{number}")
        shape = ", ".join(Line.of(t).result for t in texts)
        body.append(f"  ROOT all = ({shape}) tuple({', '.join(roots)})")
        entry = "ENTRY e {\n" + "\n".join(body) + "\n}\n"
        return f"HloModule m\n{COMPUTATIONS}\n" + "\n".join(functions) + "\n" + entry

    def agrees_with_xla(self, texts: list[str], tolerance: float = 1e-5) -> None:
        """XLA:CPU computes the same."""
        pytest.importorskip("jaxlib")
        from scripts.xla_cpu import Program

        text = self.together(texts, fused=False)
        module = hlo_opt.parse(text)
        inputs = module_inputs(module, 1)
        same(hlo_opt.evaluate(module, inputs), Program(text)(inputs), tolerance)

    def agrees_with_kernels(self, texts: list[str], tolerance: float = 1e-5) -> None:
        """The host's compiler, given the CUDA text, computes the same."""
        if not any(map(shutil.which, ("g++", "clang++"))):
            pytest.skip("no C++ compiler")
        module = hlo_opt.parse(self.together(texts, fused=True))
        inputs = module_inputs(module, 2)
        executable = hlo_opt.compile(module, backend="host")
        same(executable(*inputs), hlo_opt.evaluate(module, inputs), tolerance)
        assert executable.report()["fallbacks"] == {}

    def infers(self, text: str) -> None:
        """The `infer` face gives the declared shape."""
        _, root = self.module(text)
        infer = spec_of(root).infer
        assert infer is not None and spec_of(root).arity.accepts(len(root.operands))
        assert infer(root).same_values(root.shape)

    def refuses(self, text: str, message: str) -> None:
        """The `infer` face gives an error with this message."""
        _, root = self.module(text)
        infer = spec_of(root).infer
        assert infer is not None
        with pytest.raises(ShapeError, match=message):
            infer(root)

    def reads_what_its_map_says(self, text: str, others: float = 0.0) -> None:
        """For operations that add up what they read: a result is the sum of the operand at the places that the index
        map names.

        All other operands are `others` everywhere; run-time indices are 1.
        """
        module, root = self.module(text)
        index = spec_of(root).index
        assert index is not None
        for number, operand in enumerate(root.operands):
            shape = operand.shape
            if shape.type.is_integer or not shape.rank:
                continue
            found = index(root, number)
            assert found is not None
            counted = np.arange(1, shape.element_count + 1, dtype=np.float64).reshape(shape.dimensions)
            inputs = []
            for other in root.operands:
                if other is operand:
                    inputs.append(counted.astype(other.shape.type.dtype))
                else:
                    fill = 1 if other.shape.type.is_integer else others if other.shape.rank else 0
                    inputs.append(np.full(other.shape.dimensions, fill, other.shape.type.dtype))
            got = hlo_opt.evaluate(module, inputs)[0].astype(np.float64)
            want = np.zeros(got.shape)
            scale = others if others else 1.0
            runtime = [constant(1)] * len(found.runtime)
            for at in np.ndindex(*got.shape):
                place = [constant(k) for k in at]
                for loop in itertools.product(*map(range, found.symbols)):
                    symbols = [constant(k) for k in loop]
                    if found.conditions_at(place, symbols):
                        continue
                    read = found.apply(place, symbols, runtime)
                    assert all(isinstance(e, Constant) for e in read)
                    want[at] += scale * counted[tuple(e.low for e in read)]
            assert np.array_equal(got, want), f"operand {number}"


def same(got: list[Array], want: list[Array], tolerance: float) -> None:
    """Types, shapes and values are the same; floats within the tolerance relative to their size and to 1."""
    assert len(got) == len(want)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, f"out{number}: {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if a.dtype.kind in "biu":
            assert np.array_equal(a, b), f"out{number}"
            continue
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), tolerance, tolerance, err_msg=f"out{number}")


@pytest.fixture
def family() -> Family:
    """The checks of a family of operations."""
    return Family()
