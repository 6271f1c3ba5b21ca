"""Scalars in C++: literals, loads, stores, roundings, shuffles. All differences between element types are here."""

from __future__ import annotations

from typing import Any

from hlo_opt.diag import BackendError
from hlo_opt.ir import ElementType
from hlo_opt.ops.code import Code, Shuffle, atom, call, code
from hlo_opt.ops.lowering import compute_type, is_rounded, part_type, storage_type


def register_type(element_type: ElementType) -> str:
    """The C++ type of a register. Raises BackendError for a type that kernels cannot hold; no plan has such types."""
    kind = compute_type(element_type)
    if kind is None:
        raise BackendError(f"kernels cannot hold {element_type} values", code="HLO501")
    return kind


def memory_type(element_type: ElementType) -> str:
    """The C++ type of an element in memory. Raises BackendError as `register_type` does."""
    kind = storage_type(element_type)
    if kind is None:
        raise BackendError(f"kernels cannot hold {element_type} values", code="HLO501")
    return kind


def loaded(element_type: ElementType, stored: Code) -> Code:
    """The register value of an element, given its bits in memory."""
    if element_type.kind == "pred":
        return code("{} != 0", stored)
    if is_rounded(element_type):
        return call(f"hlo_{'load' if element_type.is_float else 'round'}_{element_type.name}", stored)
    return stored


def stored(element_type: ElementType, value: Code) -> Code:
    """The bits to write to memory for a register value that is already of the element type."""
    if element_type.kind == "pred":
        return code("{} ? 1 : 0", value)
    if element_type.name == "bf16":
        return call("hlo_upper_bf16", value)
    if is_rounded(element_type):
        return (
            call(f"hlo_store_{element_type.name}", value) if element_type.is_float else _low_bits(element_type, value)
        )
    return value


def rounded(element_type: ElementType, value: Code) -> Code:
    """The value rounded to the element type, if the type is narrower than its register."""
    return call(f"hlo_round_{element_type.name}", value) if is_rounded(element_type) else value


def _low_bits(element_type: ElementType, value: Code) -> Code:
    """The low bits of an integer of less than 8 bits, as NumPy keeps it in a byte: unsigned types have no other
    bits."""
    return value if element_type.kind == "unsigned" else code("{} & {}", value, (1 << element_type.bits) - 1)


def literal(element_type: ElementType, value: Any) -> Code:
    """A C++ constant of the compute type with exactly the bits of a NumPy scalar."""

    kind = register_type(element_type)
    if element_type.kind == "pred":
        return atom("true" if value else "false")
    if element_type.is_integer:
        return atom(_integer(kind, int(value)))
    if element_type.is_complex:
        part = part_type(element_type)
        return code(f"{kind}({_real(part, value.real)}, {_real(part, value.imag)})")
    text = _real(kind, value)
    return code(text) if text.startswith("_") else atom(text)


def zero(element_type: ElementType) -> Code:
    """The C++ constant 0 of the compute type."""
    import numpy as np

    return literal(element_type, np.complex128(0) if element_type.is_complex else np.float64(0))


def _real(kind: str, value: Any) -> str:
    import numpy as np

    wide = np.float64(value) if kind == "double" else np.float32(value)
    if not np.isfinite(wide):
        if kind == "double":
            return f"__longlong_as_double({_integer('long long', int(wide.view(np.int64)))})"
        return f"__int_as_float({_integer('int', int(wide.view(np.int32)))})"
    text = repr(float(wide)) if kind == "double" else np.format_float_scientific(wide, unique=True, trim="0")
    short = repr(float(text)) if kind != "double" else text
    text = short if len(short) <= len(text) else text
    text = text if kind == "double" else f"{text}f"
    return f"({text})" if text.startswith("-") else text


def _integer(kind: str, value: int) -> str:
    suffix = {"unsigned int": "u", "long long": "LL", "unsigned long long": "ull"}.get(kind, "")
    lowest = {"int": -(2**31), "long long": -(2**63)}.get(kind)
    if value == lowest:
        return f"({value + 1}{suffix} - 1{suffix})"
    text = f"{value}{suffix}"
    if kind not in ("int", "unsigned int", "long long", "unsigned long long"):
        return f"({kind})({text})"
    return f"({text})" if value < 0 else text


def bits_table(element_type: ElementType, values: Any) -> tuple[str, list[str]]:
    """(C++ type, elements) of a constant table that holds an array's bits as they lie in memory; see `from_table`."""
    import numpy as np

    width = element_type.bytes
    if width == 16:
        pairs = np.ascontiguousarray(values).reshape(-1).view(np.uint64).reshape(-1, 2)
        return "hlo_bits_128", [f"{{{int(low)}ull, {int(high)}ull}}" for low, high in pairs]
    unsigned = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}[width]
    raw = np.ascontiguousarray(values).reshape(-1).view(f"u{width}")
    suffix = {4: "u", 8: "ull"}.get(width, "")
    return unsigned, [f"{int(v)}{suffix}" for v in raw]


def from_table(element_type: ElementType, stored: Code) -> Code:
    """The register value of an element of a constant table."""
    if element_type.name == "f32":
        return code("__int_as_float((int){})", stored)
    if element_type.name == "f64":
        return code("__longlong_as_double((long long){})", stored)
    if element_type.is_complex:
        return code(f"hlo_bit_cast<{register_type(element_type)}>({{}})", stored)
    if element_type.is_integer and not is_rounded(element_type):
        return code(f"({register_type(element_type)}){{}}", stored)
    return loaded(element_type, stored)


_NARROW = frozenset({"bool", "signed char", "unsigned char", "short", "unsigned short"})


def widened_type(element_type: ElementType) -> str:
    """The C++ type of a register of at least 4 bytes."""
    kind = register_type(element_type)
    return "int" if kind in _NARROW else kind


def shuffled(element_type: ElementType, kind: str, register: Code, lane: Code) -> Code:
    """The register of another thread of the warp (see `Shuffle`). CUDA shuffles no type narrower than int."""
    name, of_register = register.name, register_type(element_type)
    assert name is not None
    return Code((Shuffle(kind, name, lane, of_register if of_register in _NARROW else ""),))
