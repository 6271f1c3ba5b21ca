"""What kernels of our own do with arrays before and after a convolution of cuDNN: the text of a module for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.library.arrays import Described


class After(Protocol):
    """What a kernel of our own computes of the result: the text of its module, and the bytes that it writes."""

    @property
    def text(self) -> str: ...

    @property
    def bytes(self) -> int: ...


@dataclass(frozen=True)
class Move:
    """The elements of an array in another order, row by row, perhaps in a wider type.

    sizes   of the source, the outermost first
    padding zeros before and after each dimension; negative: elements that are cut off
    turned  dimensions that are reversed
    splits  dimensions that become two each: (dimension, size of the outer one), in order
    order   the dimensions of the result, by their places after the splits
    wide    the type of the result
    """

    type_name: str
    sizes: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    turned: tuple[int, ...]
    splits: tuple[tuple[int, int], ...]
    order: tuple[int, ...]
    wide: str

    @property
    def is_nothing(self) -> bool:
        """Whether the elements lie that way already."""
        places = [d for d in self.order if self._after_splits[d] > 1]
        is_same = self.wide == self.type_name and not self.turned and not any(map(any, self.padding))
        return is_same and places == sorted(places)

    @property
    def padded(self) -> tuple[int, ...]:
        return tuple(size + low + high for size, (low, high) in zip(self.sizes, self.padding, strict=True))

    @property
    def _after_splits(self) -> tuple[int, ...]:
        sizes = list(self.padded)
        for at, outer in reversed(self.splits):
            sizes[at : at + 1] = outer, sizes[at] // outer
        return tuple(sizes)

    @property
    def source_bytes(self) -> int:
        return math.prod(self.sizes) * ELEMENT_TYPES[self.type_name].bytes

    @property
    def bytes(self) -> int:
        """Bytes of the result."""
        return math.prod(self.padded) * ELEMENT_TYPES[self.wide].bytes

    @property
    def text(self) -> str:
        """A module of one fusion that moves the elements."""

        def array(sizes: Sequence[int], name: str = self.type_name) -> str:
            layout = ",".join(map(str, reversed(range(len(sizes)))))
            return f"{name}[{','.join(map(str, sizes))}]{{{layout}}}"

        lines, last, sizes = [f"p = {array(self.sizes)} parameter(0)"], "p", self.padded
        if any(map(any, self.padding)):
            ends = "x".join(f"{low}_{high}" for low, high in self.padding)
            lines += [
                f"zero = {self.type_name}[] constant(0)",
                f"padded = {array(sizes)} pad({last}, zero), padding={ends}",
            ]
            last = "padded"
        if self.turned:
            lines.append(f"turned = {array(sizes)} reverse({last}), dimensions={{{','.join(map(str, self.turned))}}}")
            last = "turned"
        if self.splits:
            sizes = self._after_splits
            lines.append(f"split = {array(sizes)} reshape({last})")
            last = "split"
        if self.wide != self.type_name:
            lines.append(f"wide = {array(sizes, self.wide)} convert({last})")
            last = "wide"
        result = array([sizes[d] for d in self.order], self.wide)
        lines.append(f"ROOT moved = {result} transpose({last}), dimensions={{{','.join(map(str, self.order))}}}")
        body = "\n  ".join(lines)
        return (
            f"HloModule move\n\nbody {{\n  {body}\n}}\n\nENTRY main {{\n  a = {array(self.sizes)} parameter(0)\n"
            f"  ROOT move = {result} fusion(a), kind=kLoop, calls=body\n}}\n"
        )


@dataclass(frozen=True)
class FromPhases:
    """The gradient of a filter from one whose features are the phases of the image: these become elements of the window
    again.

    shape   of the result
    place   its dimensions: output features, features, and spatial ones
    taps    elements of the window in each phase
    strides phases in each dimension
    features  that each phase has, with zeros
    """

    shape: Described
    place: tuple[int, int, Sequence[int]]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    features: int

    @property
    def bytes(self) -> int:
        return math.prod(self.shape[2]) * ELEMENT_TYPES[self.shape[0]].bytes

    @property
    def text(self) -> str:
        """A module of one fusion that moves the elements."""
        name, _, sizes, minor_to_major = self.shape
        outer, inner, own = self.place
        divided = [k for k, stride in enumerate(self.strides) if stride > 1]
        source = [sizes[outer], *self.taps, *(self.strides[k] for k in divided), self.features]
        order, whole, cut = [], [], []
        for d in reversed(minor_to_major):
            if d in (outer, inner):
                order.append(0 if d == outer else len(source) - 1)
                whole.append(source[order[-1]])
            else:
                k = list(own).index(d)
                order += [1 + k, *([1 + len(self.taps) + divided.index(k)] if k in divided else [])]
                whole.append(self.taps[k] * self.strides[k])
            cut.append(f"[0:{sizes[d]}]")

        def array(counts: Sequence[int]) -> str:
            return f"{name}[{','.join(map(str, counts))}]{{{','.join(map(str, reversed(range(len(counts)))))}}}"

        result = array([sizes[d] for d in reversed(minor_to_major)])
        return (
            f"HloModule phases\n\nbody {{\n  p = {array(source)} parameter(0)\n"
            f"  turned = {array([source[k] for k in order])} transpose(p), dimensions={{{','.join(map(str, order))}}}\n"
            f"  joined = {array(whole)} reshape(turned)\n"
            f"  ROOT cut = {result} slice(joined), slice={{{', '.join(cut)}}}\n}}\n\n"
            f"ENTRY main {{\n  a = {array(source)} parameter(0)\n"
            f"  ROOT move = {result} fusion(a), kind=kLoop, calls=body\n}}\n"
        )
