"""What kernels of our own do with arrays before and after a convolution of cuDNN: the text of a module for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hlo_opt.ir import ELEMENT_TYPES


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
