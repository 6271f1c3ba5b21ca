"""A stand-in for cuDNN's graph API: it keeps attributes, checks what the manual asks of them, and computes convolutions
by their definition, over what lies at the addresses that it gets, tap by tap of the filter."""

import ctypes
import itertools
from typing import Any

import numpy

_TYPES = {0: "float32", 1: "float64", 2: "float16", 9: "uint16"}
_OPERATIONS = {  # image, kernel, output, how, alpha, beta
    10: (704, 703, 705, 702, 700, 701),
    12: (710, 709, 711, 708, 706, 707),
    11: (716, 715, 717, 714, 712, 713),
}
NOTES = {0: [0, 1], 1: [0], 2: [5], 3: []}
"""Numerical notes of the engines that heuristics name: one that rounds further, TF32, Winograd, plain."""


class Cudnn:
    """The library, as `ctypes` loads it."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.kinds: dict[int, int] = {}
        self.attributes: dict[tuple[int, int], list[Any]] = {}
        self.final: set[int] = set()
        self.ran: list[tuple[int, int]] = []
        """The operation and the engine of each run."""
        self.stream: int | None = None
        self.takes_uneven = True
        """Whether padding may differ before and behind."""
        self.is_broken = False
        """Whether there is no plan for anything."""
        self.has_epilogues = True
        """Whether a convolution may be followed by other operations."""
        self.cudnnCreate = self._create
        self.cudnnDestroy = lambda handle: 0
        self.cudnnSetStream = self._use
        self.cudnnBackendCreateDescriptor = self._describe
        self.cudnnBackendDestroyDescriptor = lambda pointer: 0
        self.cudnnBackendSetAttribute = self._set
        self.cudnnBackendGetAttribute = self._get
        self.cudnnBackendFinalize = self._finalize
        self.cudnnBackendExecute = self._execute
        self.cudnnGetLastErrorString = self._say

    def _create(self, handle: Any) -> int:
        handle._obj.value = 9
        return 0

    def _use(self, handle: int, stream: int) -> int:
        assert handle == 9
        self.stream = stream
        return 0

    def _say(self, text: Any, size: int) -> None:
        assert size == len(text)
        text.value = b"uneven"

    def _describe(self, kind: int, pointer: Any) -> int:
        number = len(self.kinds) + 1
        self.kinds[number] = kind
        pointer._obj.value = number
        return 0

    def _set(self, pointer: int, name: int, kind: int, count: int, array: Any) -> int:
        assert pointer not in self.final and len(array) == count
        self.attributes[pointer, name] = list(array)
        return 0

    def of(self, pointer: int, name: int) -> list[Any]:
        assert pointer in self.final
        return self.attributes[pointer, name]

    def _get(self, pointer: int, name: int, kind: int, most: int, count: int, array: Any) -> int:
        assert pointer in self.final
        found: list[int] = []
        if name == 202:
            found = [] if self.is_broken else list(NOTES)
        elif name == 1303:
            found = NOTES[self.attributes[pointer, -1][0]]
        elif name == 402:
            found = [1 << 10]
        ctypes.c_int64.from_address(count).value = 1 if name == 300 else len(found)
        if array is None:
            return 0
        assert most == len(array) and (name in (202, 300) or len(found) <= most)
        if name == 202:
            for number, config in enumerate(array):
                self.attributes[config, -1] = [number]
                self.attributes[config, -2] = self.of(pointer, 201)
                self.final.add(config)
        elif name == 300:
            self.attributes[array[0], -1] = self.attributes[pointer, -1]
            self.final.add(array[0])
        else:
            array[: len(found)] = found
        return 0

    def _finalize(self, pointer: int) -> int:
        self.final.add(pointer)
        if self.kinds[pointer] == 1:
            (rank,) = self.of(pointer, 106)
            parts = [self.of(pointer, name) for name in (102, 103, 104, 105)]
            assert rank >= 2 and all(len(part) == rank for part in parts)
            assert self.of(pointer, 101) == [1] and min(parts[2] + parts[3]) >= 0 < min(parts[0] + parts[1])
        if self.kinds[pointer] in _OPERATIONS:
            self._check_sizes(pointer)
        if self.kinds[pointer] == 5 and not self.takes_uneven:
            (config,) = self.of(pointer, 401)
            how = self._operation(config)[2]
            return 0 if self.of(how, 104) == self.of(how, 105) else 3000
        if self.kinds[pointer] == 15 and not self.has_epilogues:
            return 0 if len(self.of(pointer, 801)) == 1 else 3000
        return 0

    def _operation(self, config: int) -> tuple[int, list[int], int, list[int]]:
        """The operation of an engine's configuration, its tensors, how it goes, and the operations after it."""
        (graph,) = self.attributes[config, -2]
        operation, *others = self.of(graph, 801)
        *names, how, _, _ = _OPERATIONS[self.kinds[operation]]
        return operation, [self.of(operation, name)[0] for name in names], self.of(operation, how)[0], others

    def _check_sizes(self, operation: int) -> None:
        *names, how, alpha, beta = _OPERATIONS[self.kinds[operation]]
        image, kernel, output = (self.of(self.of(operation, name)[0], 902) for name in names)
        assert (self.of(operation, alpha), self.of(operation, beta)) == ([1.0], [0.0])
        assert image[0] == output[0] and kernel[0] == output[1] and image[1] % kernel[1] == 0
        dilations, strides, after, before = (self.of(self.of(operation, how)[0], name) for name in (102, 103, 104, 105))
        for k, stride in enumerate(strides):
            reach = (kernel[2 + k] - 1) * dilations[k] + 1
            assert (image[2 + k] + before[k] + after[k] - reach) // stride + 1 == output[2 + k]

    def _array(self, tensor: int, address: int) -> numpy.ndarray:
        sizes, strides = self.of(tensor, 902), self.of(tensor, 903)
        assert address % self.of(tensor, 900)[0] == 0
        dtype = numpy.dtype(_TYPES[self.of(tensor, 901)[0]])
        count = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
        raw = numpy.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)
        return numpy.lib.stride_tricks.as_strided(raw, sizes, [s * dtype.itemsize for s in strides])

    def _execute(self, handle: int, plan: int, pack: int) -> int:
        assert handle == 9 and self.stream == self.cupy.current[-1].ptr
        (config,) = self.of(plan, 401)
        operation, tensors, how, others = self._operation(config)
        where = dict(zip(self.of(pack, 1000), self.of(pack, 1001), strict=True))
        last = self.of(others[-1], 753)[0] if others else None
        addresses = [where[self.of(last if others and n == 2 else t, 906)[0]] for n, t in enumerate(tensors)]
        (workspace,) = self.of(pack, 1003)
        assert not self.cupy._is_freed(workspace, 1 << 10)
        kind = self.kinds[operation]
        self.ran.append((kind, self.attributes[config, -1][0]))
        firsts = [numpy.ndarray(1, "uint8", (ctypes.c_char * 1).from_address(a)) for a in (*addresses, workspace)]
        if last is None:
            self.cupy._do(lambda *_: self._run(kind, tensors, addresses, how), firsts)
        else:
            self.cupy._do(lambda *_: self._run_whole(tensors, last, where, how, others), firsts)
        return 0

    def _run_whole(self, tensors: list[int], last: int, where: dict[int, int], how: int, others: list[int]) -> None:
        """A forward convolution with operations after it, each of what the one before gives, in no memory."""
        image, kernel = (_wide(self._array(t, where[self.of(t, 906)[0]])) for t in tensors[:2])
        value, source = numpy.zeros(self.of(tensors[2], 902)), tensors[2]
        dilations, strides, after, before = (self.of(how, name) for name in (102, 103, 104, 105))
        convolve(2, [image, kernel, value], before, after, strides, dilations)
        for operation in others:
            assert self.of(source, 907) == [True] and self.of(operation, 751) == [source]
            (mode,) = self.of(self.of(operation, 750)[0], 0)
            (factor,) = self.of(operation, 754)
            if mode == 0:
                (other,), (second,) = self.of(operation, 752), self.of(operation, 755)
                value = factor * value + second * _wide(self._array(other, where[self.of(other, 906)[0]]))
            else:
                assert mode == 100
                value = numpy.maximum(value, 0)
            (source,) = self.of(operation, 753)
        assert source == last
        result = self._array(last, where[self.of(last, 906)[0]])
        result[...] = _narrow(value, result.dtype)

    def _run(self, kind: int, tensors: list[int], addresses: list[int], how: int) -> None:
        raw = [self._array(t, a) for t, a in zip(tensors, addresses, strict=True)]
        result = {10: 2, 12: 0, 11: 1}[kind]
        values = [numpy.zeros(r.shape) if n == result else _wide(r) for n, r in enumerate(raw)]
        dilations, strides, after, before = (self.of(how, name) for name in (102, 103, 104, 105))
        convolve(result, values, before, after, strides, dilations)
        raw[result][...] = _narrow(values[result], raw[result].dtype)


def convolve(result: int, values: Any, before: Any, after: Any, strides: Any, dilations: Any) -> None:
    """Adds to image, kernel or output, whichever number `result` is, what the two others give: the convolution, or its
    gradients."""
    image, kernel, output = values
    padded = numpy.pad(image, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    groups = image.shape[1] // kernel.shape[1]
    for tap in itertools.product(*map(range, kernel.shape[2:])):
        ends = zip(tap, dilations, strides, output.shape[2:], strict=True)
        window = (slice(None), slice(None), *(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in ends))
        at = (slice(None), slice(None), *tap)
        for g in range(groups):
            of = [slice(g * (n // groups), (g + 1) * (n // groups)) for n in (image.shape[1], kernel.shape[0])]
            part, taps, out = padded[window][:, of[0]], kernel[at][of[1]], output[:, of[1]]
            if result == 2:
                out += numpy.einsum("nc...,kc->nk...", part, taps)
            elif result == 0:
                part += numpy.einsum("nk...,kc->nc...", out, taps)
            else:
                places = [a.reshape(*a.shape[:2], -1) for a in (out, part)]
                taps += numpy.einsum("nks,ncs->kc", *places)
    if result == 0:
        inner = (slice(b, b + n) for b, n in zip(before, image.shape[2:], strict=True))
        image[...] = padded[(slice(None), slice(None), *inner)]


def _wide(array: numpy.ndarray) -> numpy.ndarray:
    if array.dtype == numpy.uint16:
        array = (array.astype(numpy.uint32) << 16).view(numpy.float32)
    return array.astype(numpy.float64)


def _narrow(values: numpy.ndarray, dtype: Any) -> numpy.ndarray:
    if dtype != numpy.uint16:
        return values.astype(dtype)
    bits = numpy.ascontiguousarray(values.astype(numpy.float32)).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)
