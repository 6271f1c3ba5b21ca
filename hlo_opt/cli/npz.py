"""Reading npz files: zip archives of arrays, as `np.savez` writes them.

NumPy reads back neither the types of ml_dtypes that it writes (bf16 as `V2`, f8e5m2 as `f1`) nor files that hold Python
objects, for which it recommends to trust them. Here the first are read as what they are, and the others are refused.
Source of the format: numpy/lib/format.py.
"""

from __future__ import annotations

import ast
import math
import re
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, Any

import ml_dtypes
import numpy as np

from hlo_opt.diag import UsageError
from hlo_opt.ir.values import Array, DType

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000
_DAMAGED = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading a damaged archive raises."""
_NO_HEADER = (OSError, EOFError, ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError, zlib.error)
"""What reading the header of something else than an array raises."""
_BARE = re.compile(r"[<>|=]?V([1248])")


@dataclass(frozen=True)
class _Header:
    dtype: DType
    is_fortran: bool
    sizes: tuple[int, ...]


class Npz:
    """An open npz file. Use it in a `with` statement.

    Raises UsageError, with the path: where there is no such file, it is no npz, or (HLO401) an array in it is none that
    an input could be.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        try:
            self._archive = zipfile.ZipFile(name)
        except FileNotFoundError:
            raise UsageError("no such file", filename=name) from None
        except IsADirectoryError:
            raise UsageError("is a folder, not a file", filename=name) from None
        except zipfile.BadZipFile:
            raise UsageError("not an npz file", filename=name, hint="numpy.savez writes one") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot be read: {getattr(error, 'strerror', None) or error}", filename=name) from None
        self._members = {m.removesuffix(".npy"): m for m in self._archive.namelist()}

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()

    @property
    def files(self) -> list[str]:
        """The names of the arrays."""
        return list(self._members)

    def sizes(self, key: str) -> tuple[int, ...]:
        """The dimensions of an array, from its header alone."""
        with self._reading(key) as stream:
            return self._header(key, stream).sizes

    def __getitem__(self, key: str) -> Array:
        """An array. One of a type that NumPy lacks comes as its raw bits, unsigned integers of the same size, or
        (f8e5m2) as ml_dtypes has it."""
        with self._reading(key) as stream:
            header = self._header(key, stream)
            count = math.prod(header.sizes) * header.dtype.itemsize
            try:
                data = stream.read(count)
            except _DAMAGED as error:
                raise self._fault(key, f"cannot be read: {error}") from None
        if len(data) != count:
            raise self._fault(key, f"ends after {len(data)} of {count} bytes")
        flat: Array = np.frombuffer(bytearray(data), header.dtype)
        array: Array = flat.reshape(header.sizes[::-1]).T if header.is_fortran else flat.reshape(header.sizes)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _reading(self, key: str) -> IO[bytes]:
        try:
            return self._archive.open(self._members[key])
        except _DAMAGED as error:
            raise self._fault(key, f"cannot be read: {error}") from None

    def _header(self, key: str, stream: IO[bytes]) -> _Header:
        try:
            start = stream.read(8)
            length = int.from_bytes(stream.read(2 if start[6:7] == b"\x01" else 4), "little")
            if start[:6] != _MAGIC or length > _LONGEST_HEADER:
                raise self._fault(key, "is no array")
            fields = ast.literal_eval(stream.read(length).decode("latin1"))
            descr, sizes = fields["descr"], fields["shape"]
            if not isinstance(sizes, tuple) or not all(type(n) is int and n >= 0 for n in sizes):
                raise self._fault(key, "is no array")
            return _Header(self._dtype(key, descr), bool(fields["fortran_order"]), sizes)
        except _NO_HEADER:
            raise self._fault(key, "is no array") from None
        except zipfile.BadZipFile as error:
            raise self._fault(key, f"cannot be read: {error}") from None

    def _dtype(self, key: str, descr: object) -> DType:
        if not isinstance(descr, str):
            raise self._fault(key, "has several fields in each element; an input has one number")
        if "O" in descr:
            raise self._fault(key, "holds Python objects; an input is an array of numbers")
        bare = _BARE.fullmatch(descr)
        if bare is not None:
            return np.dtype(f"uint{8 * int(bare[1])}")
        if descr[-2:] == "f1":
            small: DType = np.dtype(ml_dtypes.float8_e5m2)
            return small
        try:
            dtype: Any = np.dtype(descr)
        except TypeError:
            raise self._fault(key, f"is of the type {descr!r}, which no input has") from None
        if dtype.kind not in "biufc" or dtype.subdtype is not None:
            raise self._fault(key, f"is of the type {dtype}, which no input has")
        result: DType = dtype
        return result

    def _fault(self, key: str, what: str) -> UsageError:
        return UsageError(f"{key} {what}", code="HLO401", filename=self.name)
