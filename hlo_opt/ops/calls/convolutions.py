"""Convolutions as cuDNN has them: forward, or the gradient of its input or of its filter, on arrays with features last
(NHWC) or first (NCHW). Arrays in other layouts are moved before and after.

The window of an HLO convolution says which of the three it is, as in XLA:GPU
(xla/backends/gpu/transforms/conv_rewriter.cc): a dilated input is the gradient of an input, a kernel larger than the
result the gradient of a filter. Sizes and paddings are then those of the forward convolution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hlo_opt.ir import ELEMENT_TYPES
from hlo_opt.library.arrays import Described
from hlo_opt.ops.calls.call import TF32, DeviceCall
from hlo_opt.ops.calls.moves import After, Move

FORWARD, DATA, FILTER = "forward", "data", "filter"
ROLES = {
    FORWARD: ("image", "kernel", "output"),
    DATA: ("output", "kernel", "image"),
    FILTER: ("image", "output", "kernel"),
}
"""What the operands and the result of the HLO convolution are."""
_TYPES = frozenset({"bf16", "f16", "f32", "f64"})
_MOST = 2**31 - 1
_Positions = Sequence[tuple[int, int, Sequence[int]]]
_Window = tuple[int, int, int, int, int, int, bool]
"""As the arguments of `hlo_opt.library`'s `convolution`."""
_TOGETHER = {"f32": 4, "bf16": 8, "f16": 8}
"""Features that tensor cores read at once: 16 bytes."""
_LEAST_SPATIAL, _MOST_SPATIAL = 2, 3
"""cuDNN's convolutions have two or three spatial dimensions; missing ones, of size 1, come first."""


@dataclass(frozen=True)
class Tensor:
    """An array as cuDNN counts it: batch (or features of the result), features, spatial dimensions; and the elements
    from one to the next in each."""

    type_name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return math.prod(self.sizes) * ELEMENT_TYPES[self.type_name].bytes


@dataclass(frozen=True)
class Epilogue:
    """What follows a convolution: `scale * result + side_scale * side + bias`, and of that the larger of it and 0.

    side_scale  0: there is no side input
    is_apart    a kernel of our own computes it, the last of the moves
    """

    scale: float
    side_scale: float
    is_relu: bool
    is_apart: bool = False


@dataclass(frozen=True)
class Convolution:
    """A convolution of cuDNN, by the sizes of the forward one: `image` by `kernel` to `output`, one of which is the
    result: the output (forward), the image (data) or the kernel (filter). The number of groups is the number of the
    image's features over that of the kernel's.

    moves       of both operands and the result: None for what lies as cuDNN wants it
    is_rounded  operands of f32 are rounded to TF32
    """

    direction: str
    image: Tensor
    kernel: Tensor
    output: Tensor
    before: tuple[int, ...]
    after: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    is_rounded: bool
    moves: tuple[Move | None, Move | None, After | None]
    epilogue: Epilogue | None = None

    @property
    def further(self) -> tuple[Tensor, ...]:
        """The tensors of bias and side input, if there are any: the operands after the first two."""
        if self.epilogue is None:
            return ()
        output = self.output
        sizes = tuple(size if d == 1 else 1 for d, size in enumerate(output.sizes))
        steps = tuple(1 if d == 1 else sizes[1] for d in range(len(sizes)))
        bias = Tensor(output.type_name, sizes, steps)
        return (bias, output) if self.epilogue.side_scale else (bias,)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the operands and the result, as cuDNN reads and writes them."""
        by_role = {"image": self.image, "kernel": self.kernel, "output": self.output}
        return tuple(by_role[role] for role in ROLES[self.direction])

    @property
    def moved_bytes(self) -> tuple[int, ...]:
        """Bytes of each of these arrays that is moved; 0 for others."""
        return tuple(0 if m is None else t.bytes for t, m in zip(self.tensors, self.moves, strict=True))

    @property
    def bytes(self) -> tuple[int, ...]:
        """Bytes of the operands and the result of the HLO convolution."""
        operands = zip(self.tensors, self.moves[:2], strict=False)
        last = self.moves[2]
        result = self.tensors[2].bytes if last is None else last.bytes
        return (*(t.bytes if m is None else m.source_bytes for t, m in operands), result)


@dataclass(frozen=True)
class _Spatial:
    """A spatial dimension of the forward convolution: sizes of image, kernel and output, stride, dilation, padding
    before, and whether the kernel that the HLO convolution has must be reversed."""

    image: int
    kernel: int
    output: int
    stride: int
    dilation: int
    before: int
    is_turned: bool

    @property
    def after(self) -> int:
        """The padding behind: the one before, if the sizes of the output allow it, else the nearest one to it."""
        least = (self.output - 1) * self.stride + (self.kernel - 1) * self.dilation + 1 - self.image - self.before
        return min(max(self.before, least), least + self.stride - 1)


def convolutions_of(call: DeviceCall) -> list[Convolution]:
    """The ways in which cuDNN may compute a convolution, those that move the fewest bytes first. Empty where cuDNN has
    no such convolution, and for other calls.

    Ways differ in
    - padding: as it is; where it differs before and behind, also with the difference copied into the image
    - layout: that of most of the arrays; features last, which tensor cores read faster, with zeros up to the number
      that they read at once; for groups, also features first
    - phases: of a strided image with few features, the phases become features"""
    asked = asked_of(call)
    return [] if asked is None else ways_of(asked)


def ways_of(asked: Asked) -> list[Convolution]:
    """What `convolutions_of` gives, of what is asked for."""
    shapes, positions, window, groups = asked.shapes, asked.positions, asked.window, asked.groups
    names = [shape[0] for shape in shapes]
    if not _has_types(names) or len(window) > _MOST_SPATIAL:
        return []
    if any(not 0 < math.prod(shape[2]) <= _MOST for shape in shapes):
        return []
    direction = _direction(shapes, positions, window, groups)
    if direction is None:
        return []
    spatial = [_spatial(direction, shapes, positions, w, k) for k, w in enumerate(window)]
    before, after = tuple(s.before for s in spatial), tuple(s.after for s in spatial)
    is_even = before == after
    apart = [max(0, min(ends)) for ends in zip(before, after, strict=True)]
    # cuDNN's results have the type of its operands; every bf16 and f16 is a number of TF32
    is_rounded = asked.is_rounded or names[0] != names[2]
    forms = []
    if min((*before, *after), default=0) >= 0:
        forms.append((before, after))
    if not is_even or not forms:
        forms.append((tuple(apart), tuple(apart)))
    described = []
    for form in forms:
        extra = [
            (low - own_low, high - own_high) for low, high, own_low, own_high in zip(before, after, *form, strict=True)
        ]
        last, first = (
            _described(direction, shapes, positions, spatial, form, extra, groups, 0, is_last=is_last)
            for is_last in (True, False)
        )
        ways = [last, first] if max(groups) > 1 or _moved(first) < _moved(last) else [last]
        more = -last.image.sizes[1] % _TOGETHER.get(names[0], 1)
        phased = list(_by_phases(shapes, positions, spatial)) if max(groups) == 1 and direction == FORWARD else []
        if form == forms[0]:
            ways += phased
        if more and max(groups) == 1 and not phased:
            ways.append(_described(direction, shapes, positions, spatial, form, extra, groups, more, is_last=True))
        described += [replace(way, is_rounded=is_rounded) for way in sorted(ways, key=_moved)]
    return described


def _moved(way: Convolution) -> int:
    """Bytes that are moved."""
    return sum(move.bytes for move in way.moves if move is not None)


@dataclass(frozen=True)
class Asked:
    """A convolution as a call asks for it: shapes of the operands and the result, and the arguments of
    `hlo_opt.library`'s `convolution`."""

    shapes: tuple[Described, ...]
    positions: _Positions
    window: Sequence[_Window]
    groups: Sequence[int]
    is_rounded: bool


def asked_of(call: DeviceCall) -> Asked | None:
    """What a call asks for; None for other calls than a convolution whose result is at most rounded."""
    arguments = call.arguments
    if call.function == "convolution_call":
        positions, window, groups, _, *rest = arguments
        if any(map(any, (t for t in rest if not isinstance(t, str)))):
            return None
        return Asked(call.shapes, positions, window, groups, TF32 in rest)
    if call.function != "steps_call":
        return None
    steps, results, *rest = arguments
    count = len(call.shapes) - len(results)
    if not steps or steps[0][0] != "convolution" or steps[0][2] != (0, 1) or count != 2:
        return None
    _, positions, window, groups, _ = steps[0][1]
    last = count
    for number, (operation, _, sources) in enumerate(steps[1:], count + 1):
        last = number if operation in ("astype", "narrow") and sources == (last,) else last
    workspaces = call.shapes[count + 1 :]
    if results[0] != last or any(math.prod(shape[2]) for shape in workspaces):
        return None
    return Asked(call.shapes[: count + 1], positions, window, groups, TF32 in rest)


def _has_types(names: Sequence[str]) -> bool:
    left, right, result = names
    return left == right and left in _TYPES and (result == left or (result == "f32" and left in ("bf16", "f16")))


def _direction(
    shapes: Sequence[Described],
    positions: _Positions,
    window: Sequence[_Window],
    groups: Sequence[int],
) -> str | None:
    """Which convolution of cuDNN it is; None where it is none."""
    image, _, result = ([shape[2][d] for d in place[2]] for shape, place in zip(shapes, positions, strict=True))
    if any(w[4] > 1 and size > 1 for w, size in zip(window, image, strict=True)):
        return DATA if groups[1] == 1 and all(w[1] == 1 for w in window) else None
    if groups[1] > 1:
        return FILTER if groups[0] == 1 else None
    is_apart = all(w[1] >= w[0] for w in window)  # windows share no elements, as those of patches
    is_filter = groups[0] == 1 and not is_apart and math.prod(w[0] for w in window) > math.prod(result)
    if not is_filter and groups[0] == 1 and any(w[6] and w[0] > 1 for w in window):
        reaches = [(w[0] - 1) * w[5] - w[2] for w in window]
        return DATA if min(reaches) >= 0 and all(w[1] == 1 for w in window) else FORWARD
    return FILTER if is_filter else FORWARD


def _spatial(
    direction: str,
    shapes: Sequence[Described],
    positions: _Positions,
    w: _Window,
    k: int,
) -> _Spatial:
    left, _, result = (shape[2][place[2][k]] for shape, place in zip(shapes, positions, strict=True))
    size, stride, low, _, base, dilation, is_reversed = w
    if direction == FORWARD:
        return _Spatial(left, size, result, stride, dilation, low, is_reversed)
    if direction == FILTER:  # the result is the kernel, and the window is as large as the output
        return _Spatial(left, result, size, dilation, stride, low, is_reversed)
    return _Spatial(result, size, left, base, dilation, (size - 1) * dilation - low, not is_reversed)


def _described(
    direction: str,
    shapes: Sequence[Described],
    positions: _Positions,
    spatial: Sequence[_Spatial],
    form: tuple[tuple[int, ...], tuple[int, ...]],
    extra: Sequence[tuple[int, int]],
    groups: Sequence[int],
    more_features: int,
    *,
    is_last: bool,
) -> Convolution:
    """The convolution with features last or first. `more_features` features of zeros are appended, and `extra` is the
    padding of each spatial dimension that is copied in because cuDNN does not add it (`form` has what it adds)."""
    tensors: dict[str, Tensor] = {}
    wide = shapes[2][0]
    moves = []
    more = (0,) * max(0, _LEAST_SPATIAL - len(spatial))
    for number, (role, shape, place) in enumerate(zip(ROLES[direction], shapes, positions, strict=True)):
        outer, inner, places = place
        is_for_data = direction == DATA and role == "kernel"  # its output features are those of the image
        if is_for_data or direction == FILTER:  # whose sums go over the batch
            outer, inner = inner, outer
        in_groups = groups[0] if is_for_data else 1
        turned = {d for d, s in zip(places, spatial, strict=True) if number == 1 and s.is_turned and shape[2][d] > 1}
        padding = dict(zip(places, extra, strict=True)) if role == "image" else {}
        if more_features and role != "output":
            padding[inner] = (0, more_features)
        order = [outer, *places, inner] if is_last else [outer, inner, *places]
        move = _move(shape, order, padding, turned, (inner, in_groups), wide, is_result=number == 2)
        counted = [shape[2][d] + sum(padding.get(d, (0, 0))) for d in (outer, inner, *places)]
        sizes = (counted[0] * in_groups, counted[1] // in_groups, *(1 for _ in more), *counted[2:])
        tensors[role] = _tensor(wide, sizes, is_last=is_last)
        moves.append(None if move.is_nothing else move)
    before, after = ((*more, *ends) for ends in form)
    strides, dilations = ((*(1 for _ in more), *(getattr(s, name) for s in spatial)) for name in ("stride", "dilation"))
    return Convolution(
        direction,
        tensors["image"],
        tensors["kernel"],
        tensors["output"],
        before,
        after,
        strides,
        dilations,
        False,
        (moves[0], moves[1], moves[2]),
    )


def _by_phases(
    shapes: Sequence[Described], positions: _Positions, spatial: Sequence[_Spatial]
) -> Iterator[Convolution]:
    """A forward convolution with strides and few features as one without strides: the phases of the image, as many in
    each dimension as the stride, become features, and so do those of the kernel. Padding is moved."""
    phases = math.prod(s.stride for s in spatial)
    (image, kernel, output), (of_image, of_kernel, of_output) = shapes, positions
    wide, together = output[0], _TOGETHER.get(image[0], 0)
    counts = range(image[2][of_image[1]], together)
    features = next((n for n in counts if n * phases % together == 0), 0)  # with those that are zeros
    if not features or phases == 1 or any(s.dilation > 1 or s.is_turned for s in spatial):
        return
    taps = [-(-s.kernel // s.stride) for s in spatial]
    rows = [s.output - 1 + size for s, size in zip(spatial, taps, strict=True)]
    first = _to_phases(image, of_image, spatial, rows, [s.before for s in spatial], features, wide)
    second = _to_phases(kernel, of_kernel, spatial, taps, [0] * len(taps), features, wide)
    back = _move(output, [of_output[0], *of_output[2], of_output[1]], {}, set(), (0, 1), wide, is_result=True)
    more = (1,) * max(0, _LEAST_SPATIAL - len(spatial))
    ones = (*more, *(1 for _ in spatial))
    none, depth, results = tuple(0 for _ in ones), features * phases, [s.output for s in spatial]
    yield Convolution(
        FORWARD,
        _tensor(wide, (image[2][of_image[0]], depth, *more, *rows), is_last=True),
        _tensor(wide, (kernel[2][of_kernel[0]], depth, *more, *taps), is_last=True),
        _tensor(wide, (output[2][of_output[0]], output[2][of_output[1]], *more, *results), is_last=True),
        none,
        none,
        ones,
        ones,
        False,
        (first, second, None if back.is_nothing else back),
    )


def _to_phases(
    shape: Described,
    place: tuple[int, int, Sequence[int]],
    spatial: Sequence[_Spatial],
    counts: Sequence[int],
    lows: Sequence[int],
    features: int,
    wide: str,
) -> Move:
    """The copy of an array into one with `features` features and, for each phase, `counts` elements of each dimension:
    features come last, phases before them."""
    outer, inner, own = place
    there = list(reversed(shape[3]))
    padding = {inner: (0, features - shape[2][inner])}
    for d, s, count, low in zip(own, spatial, counts, lows, strict=True):
        padding[d] = low, s.stride * count - low - shape[2][d]
    divided = {d: count for d, s, count in zip(own, spatial, counts, strict=True) if s.stride > 1}
    at, end = {}, 0
    for d in there:
        at[d] = end
        end += 1 + (d in divided)
    return Move(
        shape[0],
        tuple(shape[2][d] for d in there),
        tuple(padding.get(d, (0, 0)) for d in there),
        (),
        tuple((there.index(d), divided[d]) for d in there if d in divided),
        (at[outer], *(at[d] for d in own), *(at[d] + 1 for d in own if d in divided), at[inner]),
        wide,
    )


def _tensor(type_name: str, sizes: tuple[int, ...], *, is_last: bool) -> Tensor:
    order = [0, *range(2, len(sizes)), 1] if is_last else list(range(len(sizes)))
    strides, step = [0] * len(sizes), 1
    for d in reversed(order):
        strides[d] = step
        step *= sizes[d]
    return Tensor(type_name, sizes, tuple(strides))


def _move(
    shape: Described,
    order: Sequence[int],
    padding: dict[int, tuple[int, int]],
    turned: set[int],
    split: tuple[int, int],
    wide: str,
    *,
    is_result: bool,
) -> Move:
    """The move of an array of a shape to another order of dimensions, or of a result back from it. `split` is a
    dimension and its groups, which then come first."""
    name, _, sizes, minor_to_major = shape
    there = list(reversed(minor_to_major))
    if is_result:  # from the padded array to the one that is asked for
        ends = [padding.get(d, (0, 0)) for d in order]
        padded = tuple(sizes[d] + low + high for d, (low, high) in zip(order, ends, strict=True))
        cut = tuple((-low, -high) for low, high in ends)
        return Move(name, padded, cut, (), (), tuple(order.index(d) for d in there), wide)
    at, count = there.index(split[0]), split[1]
    places = {d: (n,) for n, d in enumerate(there)}
    if count > 1:
        places = {d: (n + (n > at),) for n, d in enumerate(there)}
        places[split[0]] = (at + 1,)
    return Move(
        name,
        tuple(sizes[d] for d in there),
        tuple(padding.get(d, (0, 0)) for d in there),
        tuple(sorted(there.index(d) for d in turned)),
        ((at, count),) if count > 1 else (),
        (*((at,) if count > 1 else ()), *(n for d in order for n in places[d])),
        wide,
    )
