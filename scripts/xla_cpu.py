"""Run HLO text on XLA:CPU, as jaxlib has it.

python -m scripts.xla_cpu FILE [--inputs IN.npz | --seed N] [--outputs OUT.npz]

Inputs are drawn from a seed where none are given: floats from a normal distribution, integers small. Arrays in
npz files are named `in0, in1, ...` and `out0, out1, ...`; tuples are flattened in order, and types NumPy lacks are
stored as their raw bits.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jaxlib._hlo as hlo
import jaxlib._jax as xla
import ml_dtypes
import numpy as np
from jaxlib import xla_client

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

FUSION = re.compile(r"^(\s*(?:ROOT )?%?[\w.\-]+ = [^\"]*?) fusion\((.*)$")
UNWANTED_ON_CALL = re.compile(r", (?:kind=k\w+|output_to_operand_aliasing=\{(?:[^{}]|\{[^{}]*\})*\})")
ENTRY = re.compile(r"^ENTRY (%[\w.\-]+) ", re.MULTILINE)
MINUS_ZERO = re.compile(r"(?<=[\s({,])-0(?=[,)}\s])")
MADE = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = (\w+)\[([\d,]*)\](?:\{([\d,]*)\})? ", re.MULTILINE)
BITCAST = re.compile(r"^(\s*(?:ROOT )?%?([\w.\-]+) = \S+) bitcast\(%?([\w.\-]+)\)", re.MULTILINE)
HEADER = re.compile(r"^HloModule ([^\s,]+)[^\n]*")


def reshapes(text: str) -> str:
    """The same module with bitcasts between arrays of one type written as what they do to logical arrays.

    A bitcast takes the elements in the order in which they lie in memory: a transpose of the operand to that order, a
    reshape, and a transpose from the order of the result. jaxlib's way to StableHLO drops layouts, and XLA:CPU takes
    no bitcast before it has assigned its own.
    """
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, kind, sizes, layout in MADE.findall(text):
        found.setdefault(name, []).append((kind, sizes, layout))

    def written(match: re.Match[str]) -> str:
        ends = [*found.get(match[3], []), *found.get(match[2], [])]
        if len(ends) != 2 or ends[0][0] != ends[1][0]:
            return match[0]
        (kind, *operand), (_, *result) = ends
        (given, out), (made, into) = _as_it_lies(*operand), _as_it_lies(*result)
        back = [into.index(d) for d in range(len(into))]
        if sorted(out) == out and sorted(into) == into:
            return f"{match[1]} reshape({match[3]})"
        first, last = f"{match[2]}.in_memory", f"{match[2]}.as_it_lies"
        return (
            f"  {first} = {kind}[{given}] transpose({match[3]}), dimensions={{{_listed(out)}}}\n"
            f"  {last} = {kind}[{made}] reshape({first})\n"
            f"{match[1]} transpose({last}), dimensions={{{_listed(back)}}}"
        )

    return BITCAST.sub(written, text)


def _as_it_lies(sizes: str, layout: str) -> tuple[str, list[int]]:
    """The sizes of an array, slowest dimension in memory first, and these dimensions."""
    dimensions = sizes.split(",") if sizes else []
    order = [int(d) for d in reversed(layout.split(","))] if layout else [*range(len(dimensions))]
    return ",".join(dimensions[d] for d in order), order


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


@dataclass(frozen=True)
class Leaf:
    """An array parameter: its shape, its type and, where known, the range that samples come from."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: float | None = None
    high: float | None = None


def print_module(module: hlo.HloModule, configs: bool = True) -> str:
    """The module's text with all constants; without backend configs each instruction is one line.

    XLA prints -0.0 as -0, which it reads as the integer 0.
    """
    options = hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_backend_config = configs
    text: str = module.to_string(options)
    return MINUS_ZERO.sub("-0.0", text)


def fusions_to_calls(text: str) -> str:
    """The same module with every fusion a call of its computation: XLA:CPU takes no fusions but its own."""
    if " fusion(" not in text:
        return text
    lines = print_module(hlo.hlo_module_from_text(text), configs=False).split("\n")
    for number, line in enumerate(lines):
        match = FUSION.match(line)
        if match is not None:
            operands = UNWANTED_ON_CALL.sub("", match[2]).replace(" calls=", " to_apply=", 1)
            lines[number] = f"{match[1]} call({operands}"
    return "\n".join(lines)


def leaves(shape: hlo.Shape) -> list[hlo.Shape]:
    """The arrays of a shape, in order."""
    if not shape.is_tuple():
        return [shape]
    return [leaf for element in shape.tuple_shapes() for leaf in leaves(element)]


class FlatEntry:
    """Writes an entry computation that takes and returns arrays only, around one that takes or returns tuples."""

    def __init__(self, parameters: Sequence[hlo.Shape], result: hlo.Shape) -> None:
        self.lines: list[str] = []
        self.parameters = 0
        packed = [self.pack(shape) for shape in parameters]
        inner = self.add(str(result), f"call({', '.join(packed)}), to_apply=INNER")
        outputs = self.unpack(inner, result)
        shape = ", ".join(str(leaf) for leaf in leaves(result))
        self.lines.append(f"  ROOT %flat.result = ({shape}) tuple({', '.join(outputs)})")

    def add(self, shape: str, operation: str) -> str:
        name = f"%flat.{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {operation}")
        return name

    def pack(self, shape: hlo.Shape) -> str:
        if shape.is_tuple():
            elements = [self.pack(element) for element in shape.tuple_shapes()]
            return self.add(str(shape), f"tuple({', '.join(elements)})")
        self.parameters += 1
        return self.add(str(shape), f"parameter({self.parameters - 1})")

    def unpack(self, value: str, shape: hlo.Shape) -> list[str]:
        if not shape.is_tuple():
            return [value]
        names: list[str] = []
        for index, element in enumerate(shape.tuple_shapes()):
            names += self.unpack(self.add(str(element), f"get-tuple-element({value}), index={index}"), element)
        return names


def flat(text: str) -> str:
    """The same module with tuples flattened in its parameters and its result, and no word on layouts or aliases."""
    module = hlo.hlo_module_from_text(text)
    shape = hlo.XlaComputation(module.as_serialized_hlo_module_proto()).program_shape()
    parameters, result = shape.parameter_shapes(), shape.result_shape()
    nested = result.is_tuple() and any(element.is_tuple() for element in result.tuple_shapes())
    if not nested and not any(parameter.is_tuple() for parameter in parameters):
        return text
    printed = HEADER.sub(r"HloModule \1", print_module(module), count=1)
    entry = ENTRY.search(printed)
    assert entry is not None, "XLA's print has no entry computation"
    body = "\n".join(FlatEntry(parameters, result).lines).replace("to_apply=INNER", f"to_apply={entry[1]}")
    inner = ENTRY.sub(r"\1 ", printed, count=1).rstrip()
    return f"{inner}\n\nENTRY %flat.entry {{\n{body}\n}}\n"


def count(text: str, name: str) -> int:
    """A number in the header: `replica_count` or `num_partitions`."""
    header = HEADER.search(text)
    found = re.search(rf"\b{name}=(\d+)", header[0]) if header is not None else None
    return int(found[1]) if found is not None else 1


class Program:
    """An HLO text compiled for the CPU; `optimized=False` compiles about twice as fast, for programs that run once.

    Of several partitions it takes only what is partitioned already: every instruction has the sharding `{manual}`. The
    process must have been started with as many devices (XLA_FLAGS=--xla_force_host_platform_device_count=N).
    """

    def __init__(self, text: str, *, optimized: bool = True) -> None:
        replicas, partitions = count(text, "replica_count"), count(text, "num_partitions")
        module = hlo.hlo_module_from_text(flat(fusions_to_calls(reshapes(text))))
        computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
        self.devices = tuple(jax.local_devices(backend="cpu")[: replicas * partitions])
        self.device = self.devices[0]
        stablehlo = xla.mlir.xla_computation_to_mlir_module(computation)
        options = xla_client.CompileOptions()
        if not optimized:
            options.executable_build_options.debug_options.xla_backend_optimization_level = 0
        if replicas * partitions > 1:
            _on_several(options, replicas, partitions)
        self.executable = self.device.client.compile_and_load(stablehlo, xla_client.DeviceList(self.devices), options)
        self.parameters = [
            Leaf(tuple(shape.dimensions()), np.dtype(shape.numpy_dtype()))
            for shape in computation.program_shape().parameter_shapes()
        ]

    def __call__(self, inputs: Sequence[Array]) -> list[Array]:
        """Its outputs on these inputs, which it leaves alone even where it is allowed to overwrite them."""
        with jax.enable_x64(True):
            buffers = [jax.device_put(array.copy(), self.device) for array in inputs]
        return [np.array(output) for output in self.executable.execute(buffers)]

    def on_devices(self, inputs: Sequence[Sequence[Array]]) -> list[Array]:
        """Its outputs on the inputs of each device, one device after the other."""
        if len(self.devices) == 1:
            return self(inputs[0])
        mesh = jax.sharding.Mesh(np.array(self.devices), ("devices",))
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        arguments = []
        with jax.enable_x64(True):
            for own in zip(*inputs, strict=True):
                placed = [jax.device_put(a.copy(), d) for a, d in zip(own, self.devices, strict=True)]
                arguments.append(jax.make_array_from_single_device_arrays(placed[0].shape, sharding, placed))
        results = self.executable.execute_sharded(arguments).disassemble_into_single_device_arrays()
        return [np.array(result[k]) for k in range(len(self.devices)) for result in results]


def _on_several(options: Any, replicas: int, partitions: int) -> None:
    order = np.arange(replicas * partitions).reshape(replicas, partitions)
    assignment = xla_client.DeviceAssignment.create(order)
    options.num_replicas, options.num_partitions, options.device_assignment = replicas, partitions, assignment
    build = options.executable_build_options
    build.num_replicas, build.num_partitions, build.device_assignment = replicas, partitions, assignment
    build.use_spmd_partitioning = partitions > 1


def sample(leaf: Leaf, generator: np.random.Generator) -> Array:
    """A random array for a parameter."""
    dtype, shape = leaf.dtype, leaf.shape
    kind = dtype.kind if dtype.kind != "V" else ("i" if "int" in dtype.name else "f")
    if kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if kind in "iu":
        info = ml_dtypes.iinfo(dtype)
        low = leaf.low if leaf.low is not None else (0 if kind == "u" else max(-3, info.min))
        high = leaf.high if leaf.high is not None else min(5, int(info.max) + 1)
        return generator.integers(int(low), int(high), shape, np.uint64 if kind == "u" else np.int64).astype(dtype)
    if leaf.low is not None and leaf.high is not None:
        return generator.uniform(leaf.low, leaf.high, shape).astype(dtype)
    if kind == "c":
        return np.asarray(generator.normal(size=shape) + 1j * generator.normal(size=shape)).astype(dtype)
    return np.asarray(generator.normal(size=shape)).astype(dtype)


def sample_inputs(parameters: Sequence[Leaf], seed: int) -> list[Array]:
    """Random arrays for all parameters; the same seed gives the same arrays."""
    generator = np.random.default_rng(seed)
    return [sample(leaf, generator) for leaf in parameters]


def raw(array: Array) -> Array:
    """The array as npz files hold it: types that NumPy lacks as unsigned integers of their size."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"uint{8 * array.dtype.itemsize}")


def typed(array: Array, dtype: np.dtype[Any]) -> Array:
    """An array from an npz file in its own type."""
    return array if array.dtype == dtype else array.view(dtype)


def main() -> int:
    """The command."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--inputs", type=Path, metavar="IN.npz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--outputs", type=Path, metavar="OUT.npz")
    arguments = parser.parse_args()
    program = Program(arguments.file.read_text(encoding="utf-8"))
    if arguments.inputs is not None:
        with np.load(arguments.inputs) as stored:
            inputs = [typed(stored[f"in{i}"], leaf.dtype) for i, leaf in enumerate(program.parameters)]
    else:
        inputs = sample_inputs(program.parameters, arguments.seed)
    outputs = program(inputs)
    if arguments.outputs is not None:
        arrays = {f"out{i}": raw(output) for i, output in enumerate(outputs)}
        np.savez_compressed(arguments.outputs, allow_pickle=False, **arrays)
        return 0
    for i, output in enumerate(outputs):
        print(f"out{i}: {output.dtype}{list(output.shape)}\n{output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
