"""The calls that replace regions in a module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jaxlib import _hlo

from hlo_opt.jax.records import Chosen
from hlo_opt.jax.region_handler import TARGET
from hlo_opt.jax.wire import ModuleBytes, Replacement, WireInstruction

if TYPE_CHECKING:
    from hlo_opt.ir import Shape


SHARED = "output_to_operand_aliasing"
"""The attribute of an instruction whose results lie in the memory of operands."""


def call_text(
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    key: str,
    memory: int = 0,
    in_place: Sequence[tuple[int, int]] = (),
) -> str:
    """The module of `Replacement.text`. `memory` is the size in bytes of a last result that is only scratch memory.
    `in_place`: inputs and results, by number, that the call has in one memory, a copy of the input's."""
    lines = [f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(inputs)]
    held = {number for number, _ in in_place}
    lines += [f"  h{n} = {inputs[n]} copy(p{n})" for n in sorted(held)]
    results = [*map(str, outputs), *([f"u8[{memory}]{{0}}"] if memory else [])]
    result = results[0] if len(results) == 1 else f"({', '.join(results)})"
    operands = ", ".join(f"{'h' if n in held else 'p'}{n}" for n in range(len(inputs)))
    aliases = ", ".join(f"{{{k if len(results) > 1 else ''}}}: ({number}, {{}})" for number, k in in_place)
    lines.append(
        f'  c = {result} custom-call({operands}), custom_call_target="{TARGET}", api_version=API_VERSION_TYPED_FFI, '
        f'backend_config={{key = "{key}"}}' + (f", {SHARED}={{{aliases}}}" if in_place else "")
    )
    if len(results) > 1:
        lines += [f"  e{n} = {shape} get-tuple-element(c), index={n}" for n, shape in enumerate(results)]
        lines.append(f"  r = {result} tuple({', '.join(f'e{n}' for n in range(len(results)))})")
    lines[-1] = "  ROOT" + lines[-1][1:]
    return "HloModule call\n\nENTRY entry {\n" + "\n".join(lines) + "\n}\n"


def call_nodes(change: Replacement) -> list[WireInstruction]:
    """The nodes of the call and of its `get-tuple-element`s."""
    message = _hlo.hlo_module_from_text(change.text).as_serialized_hlo_module_proto()
    (body,) = ModuleBytes(message).bodies
    by_name = {node.name.partition(".")[0]: node for node in body.nodes}
    return [by_name["c"], *(by_name[f"e{n}"] for n in range(len(change.outputs)) if "e0" in by_name)]


def changed(message: bytes, chosen: Iterable[Chosen]) -> bytes:
    """The module with the chosen regions replaced by calls."""
    return replaced(message, chosen).message()


def replaced(message: bytes, chosen: Iterable[Chosen]) -> ModuleBytes:
    """As `changed`, before it is serialized."""
    module = ModuleBytes(message)
    now: dict[str, str] = {}
    """New names of replaced instructions: a call with one result replaces it under its own name."""
    for c in chosen:
        change = replace(c.change, inputs=tuple(now.get(name, name) for name in c.change.inputs))
        call = call_nodes(change)
        module.replace(change, call)
        if len(change.outputs) == 1:
            now[change.outputs[0]] = call[-1].name
    return module
