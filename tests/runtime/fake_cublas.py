"""What a stand-in for cuBLAS computes: batches of products of what lies at the addresses that it gets."""

import ctypes

import numpy

DTYPES = {0: "float32", 1: "float64", 2: "float16", 4: "complex64", 5: "complex128", 14: "uint16"}


def _matrix(pointer: int, number: int, rows: int, columns: int, step: int) -> numpy.ndarray:
    """A matrix that cuBLAS counts columns first, in `step` elements each."""
    dtype = numpy.dtype(DTYPES[number])
    size = ((columns - 1) * step + rows) * dtype.itemsize
    raw = numpy.frombuffer((ctypes.c_char * size).from_address(pointer), dtype)
    return numpy.lib.stride_tricks.as_strided(raw, (rows, columns), (dtype.itemsize, step * dtype.itemsize))


def _wide(matrix: numpy.ndarray, number: int) -> numpy.ndarray:
    if number == 14:
        return (matrix.astype(numpy.uint32) << 16).view(numpy.float32)
    return matrix.astype(numpy.float32) if number == 2 else matrix


def multiply(handle: int, *numbers: int) -> tuple[int, ...]:
    """Multiplies, and returns the types of operands and result, whether each is transposed, and the type to add in."""
    (b_turned, a_turned, n, m, k, _, b, b_type, b_step, b_batch, a, a_type, a_step, a_batch) = numbers[:14]
    (_, c, c_type, c_step, c_batch, batch, compute, algorithm) = numbers[14:]
    assert handle == 7 and algorithm == -1 and a_type == b_type and n <= c_step
    assert (n if not b_turned else k) <= b_step and (k if not a_turned else m) <= a_step
    item = {t: numpy.dtype(d).itemsize for t, d in DTYPES.items()}
    for number in range(batch):
        left = _matrix(b + number * b_batch * item[b_type], b_type, *((k, n) if b_turned else (n, k)), b_step)
        right = _matrix(a + number * a_batch * item[a_type], a_type, *((m, k) if a_turned else (k, m)), a_step)
        left, right = _wide(left.T if b_turned else left, b_type), _wide(right.T if a_turned else right, a_type)
        made = left @ right
        target = _matrix(c + number * c_batch * item[c_type], c_type, n, m, c_step)
        if c_type == 14:
            bits = numpy.ascontiguousarray(made).view(numpy.uint32)
            target[...] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
        else:
            target[...] = made
    return a_type, c_type, a_turned, b_turned, compute


def multiply_listed(handle: int, *numbers: int) -> tuple[int, ...]:
    """As `multiply`, of matrices whose addresses lie in lists."""
    (b, b_type, b_step, a, a_type, a_step, beta, c, c_type, c_step, batch, compute, algorithm) = numbers[6:]
    found: tuple[int, ...] = ()
    for at in range(batch):
        right, left, target = (ctypes.c_uint64.from_address(place + 8 * at).value for place in (b, a, c))
        assert not right % 16 and not left % 16 and not target % 16
        one = (right, b_type, b_step, 0, left, a_type, a_step, 0, beta, target, c_type, c_step, 0)
        found = multiply(handle, *numbers[:6], *one, 1, compute, algorithm)
    return found
