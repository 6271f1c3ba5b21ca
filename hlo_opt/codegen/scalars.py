"""Scalars in C++: literals, loads, stores, roundings, shuffles. What differs between element types is here and nowhere else."""

from __future__ import annotations

from typing import Any

from hlo_opt.diag import BackendError
from hlo_opt.ir import ElementType
from hlo_opt.ops.complex_cuda import part_type
from hlo_opt.ops.lowering import compute_type, is_rounded, storage_type


def register_type(element_type: ElementType) -> str:
    """The C++ type of a register. Raises BackendError for a type that kernels cannot hold; plans refuse those before."""
    found = compute_type(element_type)
    if found is None:
        raise BackendError(f"kernels cannot hold {element_type} values", code="HLO501")
    return found


def memory_type(element_type: ElementType) -> str:
    """The C++ type of an element in memory. Raises BackendError as `register_type`."""
    found = storage_type(element_type)
    if found is None:
        raise BackendError(f"kernels cannot hold {element_type} values", code="HLO501")
    return found


def loaded(element_type: ElementType, text: str) -> str:
    """The register value of an element as it lies in memory."""
    if element_type.kind == "pred":
        return f"{text} != 0"
    if is_rounded(element_type):
        return f"hlo_{'load' if element_type.is_float else 'round'}_{element_type.name}({text})"
    return text


def stored(element_type: ElementType, text: str) -> str:
    """What is written to memory for a register value."""
    if element_type.kind == "pred":
        return f"{text} ? 1 : 0"
    if is_rounded(element_type):
        return f"hlo_store_{element_type.name}({text})" if element_type.is_float else _low_bits(element_type, text)
    return text


def rounded(element_type: ElementType, text: str) -> str:
    """The text's value rounded to the element type, for types that are narrower than their register."""
    return f"hlo_round_{element_type.name}({text})" if is_rounded(element_type) else text


def _low_bits(element_type: ElementType, text: str) -> str:
    """An integer of less than 8 bits as NumPy keeps it in a byte: the other bits are 0."""
    return text if element_type.kind == "unsigned" else f"{text} & {(1 << element_type.bits) - 1}"


def literal(element_type: ElementType, value: Any) -> str:
    """A C++ constant of the compute type with exactly the value's bits (of a NumPy scalar)."""

    kind = register_type(element_type)
    if element_type.kind == "pred":
        return "true" if value else "false"
    if element_type.is_integer:
        return _integer(kind, int(value))
    if element_type.is_complex:
        return f"{kind}({_real(part_type(element_type), value.real)}, {_real(part_type(element_type), value.imag)})"
    return _real(kind, value)


def zero(element_type: ElementType) -> str:
    """The C++ constant 0 of an element type's compute type."""
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
    """(C++ type, elements) of a constant table that holds an array's elements as they lie in memory; see `from_table`."""
    import numpy as np

    width = element_type.bytes
    if width == 16:
        pairs = np.ascontiguousarray(values).reshape(-1).view(np.uint64).reshape(-1, 2)
        return "hlo_bits_128", [f"{{{int(low)}ull, {int(high)}ull}}" for low, high in pairs]
    unsigned = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}[width]
    raw = np.ascontiguousarray(values).reshape(-1).view(f"u{width}")
    suffix = {4: "u", 8: "ull"}.get(width, "")
    return unsigned, [f"{int(v)}{suffix}" for v in raw]


def from_table(element_type: ElementType, text: str) -> str:
    """The register value of an element of a table."""
    if element_type.name == "f32":
        return f"__int_as_float((int){text})"
    if element_type.name == "f64":
        return f"__longlong_as_double((long long){text})"
    if element_type.is_complex:
        return f"hlo_bit_cast<{register_type(element_type)}>({text})"
    if element_type.is_integer and not is_rounded(element_type):
        return f"({register_type(element_type)}){text}"
    return loaded(element_type, text)


def shuffled(kind: str, function: str, name: str, lane: str) -> str:
    """A warp shuffle of a register of the C++ type `kind`; CUDA shuffles no type narrower than int."""
    call = f"{function}(0xffffffffu, {{}}, {lane})"
    if kind in ("bool", "signed char", "unsigned char", "short", "unsigned short"):
        return f"({kind}){call.format(f'(int){name}')}"
    return call.format(name)
