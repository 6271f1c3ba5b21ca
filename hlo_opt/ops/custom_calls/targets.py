"""Custom calls: what is known about a target, and the targets that this program knows.

A spec with `expand` alone is complete: evaluation runs the expansion, kernels are made from it. Packages add targets through entry points of the group
`hlo_opt.custom_calls`, each a `CustomCallSpec` or a list of them; a program calls `register_custom_call`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hlo_opt.diag import UsageError
from hlo_opt.diag.plugins import DUPLICATE, Plugin, plugins
from hlo_opt.ir import ELEMENT_TYPES, Computation, Instruction, Module, Shape
from hlo_opt.ops.spec import Evaluator, LibraryCall, ShapeError

if TYPE_CHECKING:
    from hlo_opt.ir.values import Array
    from hlo_opt.ops.values import Value


GROUP = "hlo_opt.custom_calls"


@dataclass(frozen=True)
class CustomCallSpec:
    """One target of custom-call.

    infer     result shape (layouts not set) from the instruction, whose declared shape it may read; raises ShapeError. None: as declared
    evaluate  the NumPy meaning: (evaluator, instruction, operand values) -> value; None: that of the expansion
    expand    a computation in no module that means the same, one parameter per operand: gives index, cost and CUDA
    expands   which instructions `expand` covers; None: all whose inferred shape is the declared one
    aliasing  output (the index of a tuple element, () for an array) -> operand whose memory it may take over, besides what the text says
    flops     floating-point operations of the whole call; None: not known, counted as none
    call      what CuPy computes it with, as in OpSpec
    library   the library that runs it on a GPU; empty when none does
    """

    target: str
    infer: Callable[[Instruction], Shape] | None = None
    evaluate: Callable[[Evaluator, Instruction, list[Any]], Any] | None = None
    expand: Callable[[Module, Instruction], Computation] | None = None
    expands: Callable[[Instruction], bool] | None = None
    aliasing: Callable[[Instruction], Mapping[tuple[int, ...], int]] | None = None
    flops: Callable[[Instruction], float] | None = None
    call: Callable[[Instruction], LibraryCall | None] | None = None
    library: str = ""


_TARGETS: dict[str, CustomCallSpec] = {}


def register_custom_call(spec: CustomCallSpec, *, replace: bool = False) -> CustomCallSpec:
    """Make a target known. Raises ValueError when it is known already."""
    if spec.target in _TARGETS and not replace:
        raise ValueError(f"custom call {spec.target!r} is declared twice")
    _TARGETS[spec.target] = spec
    return spec


def unregister_custom_call(target: str) -> None:
    """Forget a target: for tests and plugins that clean up after themselves."""
    del _TARGETS[target]


def find_custom_call(target: str) -> CustomCallSpec | None:
    """What is known about a target, or None. Raises UsageError for a plugin that cannot be used, where the program itself does not know the target."""
    return _TARGETS.get(target) or _plugged().get(target)


def custom_calls() -> list[CustomCallSpec]:
    """All known targets, by name. Raises UsageError for a plugin that cannot be used."""
    every = {**_plugged(), **_TARGETS}
    return [every[target] for target in sorted(every)]


def _plugged() -> dict[str, CustomCallSpec]:
    """What installed packages add. Raises UsageError for one that is no such thing (HLO310) or declares a target that is known already (HLO311)."""
    found: dict[str, tuple[CustomCallSpec, Plugin]] = {}
    for plugin in plugins(GROUP):
        given = plugin.load()
        for spec in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(spec, CustomCallSpec):
                raise plugin.broken(f"gives {type(spec).__name__}, which is no CustomCallSpec")
            owner = "hlo-opt itself" if spec.target in _TARGETS else None
            if spec.target in found:
                owner = found[spec.target][1].package
            if owner is not None:
                message = f"plugin {plugin.name!r} (from {plugin.package}) declares custom call {spec.target!r}, which {owner} declares already"
                raise UsageError(
                    message, code=DUPLICATE, hint=f"targets of the group {GROUP} must differ; uninstall one of the two"
                )
            found[spec.target] = spec, plugin
    return {target: spec for target, (spec, _) in found.items()}


def _infer_threefry(instruction: Instruction) -> Shape:
    shapes = [operand.shape for operand in instruction.operands]
    if len(shapes) != 4:
        raise ShapeError(f"a ThreeFry call takes two keys and two counts, not {len(shapes)} operands")
    for number, shape in enumerate(shapes):
        if shape.element_type != ELEMENT_TYPES["u32"]:
            raise ShapeError(f"operand {number} of a ThreeFry call must be u32, not {shape}")
        # keys may be scalars
        if shape.dimensions != shapes[2].dimensions and (number > 1 or shape.rank):
            raise ShapeError(f"operands of a ThreeFry call differ in dimensions: {shapes[2]} and {shape}")
    words = shapes[2].without_layout()
    return Shape.tuple_of(words, words)


def expand_threefry(module: Module | None, instruction: Instruction) -> Computation:
    """ThreeFry-2x32 on arrays: the four operands are parameters, the root is the pair of words.

    Source: jax/jaxlib/gpu/prng_kernels.cu.cc. Raises ShapeError for operands that do not fit.
    """
    from hlo_opt.ops.random.expand import Writer, threefry

    _infer_threefry(instruction)
    writer = Writer("threefry2x32")
    key0, key1, count0, count1 = (writer.parameter(k, o.shape) for k, o in enumerate(instruction.operands))
    shapes = instruction.shape.elements
    if shapes is None or len(shapes) != 2 or any(s.dimensions != count0.shape.dimensions for s in shapes):
        raise ShapeError(f"a ThreeFry call gives two words per count, not {instruction.shape}")
    return writer.finish(threefry(writer, (key0, key1), (count0, count1)), shapes)


def _evaluate_threefry(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    import numpy as np

    with np.errstate(over="ignore"):
        return threefry_words(*(np.asarray(value) for value in values))


def threefry_words(key0: Array, key1: Array, count0: Array, count1: Array) -> tuple[Array, Array]:
    """ThreeFry-2x32, 20 rounds, on u32 arrays."""
    import numpy as np

    from hlo_opt.ops.random.expand import PARITY, ROTATIONS

    u32 = np.uint32
    schedule = (key0, key1, key0 ^ key1 ^ u32(PARITY))
    x0, x1 = count0 + key0, count1 + key1
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = ((x1 << u32(rotation)) | (x1 >> u32(32 - rotation))) ^ x0
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + u32(group + 1)
    return x0, x1


for _target in (
    "threefry2x32",
    "cu_threefry2x32",
    "cu_threefry2x32_ffi",
    "hip_threefry2x32",
    "hip_threefry2x32_ffi",
):
    register_custom_call(
        CustomCallSpec(
            _target,
            _infer_threefry,
            _evaluate_threefry,
            expand_threefry,
            library="" if "_" not in _target else "jaxlib",
        )
    )


def _is_identity(instruction: Instruction) -> bool:
    return len(instruction.operands) > 0 and instruction.operands[0].shape.same_values(instruction.shape)


def hands_on(instruction: Instruction) -> bool:
    """Whether a custom call marks its one operand and gives it on as it is."""
    spec = find_custom_call(instruction.word("custom_call_target"))
    return spec is not None and spec.expand is _expand_identity and _is_identity(instruction)


def _is_copy(instruction: Instruction) -> bool:
    return _is_identity(instruction) and instruction.shape.is_array and len(instruction.operands) == 1


def _evaluate_identity(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    if not _is_identity(instruction):
        raise ValueError("operand and result differ in shape, which takes more than one device")
    return values[0]


def _expand_identity(module: Module | None, instruction: Instruction) -> Computation:
    from hlo_opt.ops.random.expand import Writer

    writer = Writer("identity")
    copy = writer.emit("copy", instruction.shape, writer.parameter(0, instruction.operands[0].shape))
    return writer.finish([copy], [instruction.shape])


for _target in (
    "LayoutConstraint",
    "MoveToDevice",
    "MoveToHost",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "SetBound",
    "ShardBarrierFrom",
    "ShardBarrierTo",
    "Sharding",
    "annotate_device_placement",
    "xla.sdy.FuncResultSharding",
):
    register_custom_call(
        CustomCallSpec(
            _target,
            evaluate=_evaluate_identity,
            expand=_expand_identity,
            expands=_is_copy,
            aliasing=lambda instruction: {(): 0} if _is_identity(instruction) else {},
        )
    )


def _evaluate_allocation(evaluator: Evaluator, instruction: Instruction, values: list[Value]) -> Value:
    """Memory that nothing is written to yet; its content is open, and zeros do not change from run to run."""
    import numpy as np

    return np.zeros(instruction.shape.dimensions, instruction.shape.type.dtype)


def _expand_allocation(module: Module | None, instruction: Instruction) -> Computation:
    from hlo_opt.ops.random.expand import Writer

    writer = Writer("allocation")
    zeros = writer.emit("broadcast", instruction.shape, writer.constant(instruction.shape.type, 0), dimensions=())
    return writer.finish([zeros], [instruction.shape])


register_custom_call(
    CustomCallSpec(
        "AllocateBuffer",
        evaluate=_evaluate_allocation,
        expand=_expand_allocation,
        expands=lambda instruction: instruction.shape.is_array,
    )
)
