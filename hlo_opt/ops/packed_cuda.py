"""C++ helpers for elements of less than a byte as they lie in memory, several to a byte (see `hlo_opt.ops.packing`)."""

from __future__ import annotations

from collections.abc import Mapping

_BITS = {2: "four to a byte", 4: "two to a byte"}
_SHIFT = {2: 2, 4: 1}
_WORD_SHIFT = {2: 4, 4: 3}


def _get(bits: int, lie: str) -> str:
    return f"""
// elements of {bits} bits lie {lie}, the first in the lowest bits
template <typename I> INLINE unsigned char hlo_get_{bits}(const unsigned char* array, I position) {{
  return (unsigned char)(array[position >> {_SHIFT[bits]}] >> (int)(position & {8 // bits - 1}) * {bits} & {(1 << bits) - 1});
}}
// one of a thread's neighbouring elements, the first of which begins a byte: NVRTC sees that they lie together
template <typename I> INLINE unsigned char hlo_get_{bits}(const unsigned char* array, I first, int number) {{
  return hlo_get_{bits}(array + first / {8 // bits}, number);
}}
"""


def _seen(bits: int) -> str:
    return f"""
// the word in which an element lies, as it is now: 4 bytes, or on the host, where threads take turns, one
template <typename I> INLINE unsigned int hlo_seen_{bits}(unsigned char* array, I position) {{
#ifdef __CUDA_ARCH__
  return ((volatile unsigned int*)array)[position >> {_WORD_SHIFT[bits]}];
#else
  return array[position >> {_SHIFT[bits]}];
#endif
}}
"""


def _taken(bits: int) -> str:
    return f"""
// the element in its word
template <typename I> INLINE unsigned char hlo_taken_{bits}(I position, unsigned int word) {{
#ifdef __CUDA_ARCH__
  const int number = (int)(position & {32 // bits - 1});
#else
  const int number = (int)(position & {8 // bits - 1});
#endif
  return (unsigned char)(word >> number * {bits} & {(1 << bits) - 1});
}}
"""


def _swapped(bits: int) -> str:
    return f"""
// writes the element if its word is as it was seen; else the word is seen anew. The last one of `count` clears what is behind it in its byte
template <typename I>
INLINE bool hlo_swapped_{bits}(unsigned char* array, I position, unsigned int& seen, unsigned char value, long long count = 0) {{
#ifdef __CUDA_ARCH__
  const int shift = (int)(position & {32 // bits - 1}) * {bits};
#else
  const int shift = (int)(position & {8 // bits - 1}) * {bits};
#endif
  const unsigned int mask = (position + 1 == count ? 255u >> shift % 8 : {(1 << bits) - 1}u) << shift;
  const unsigned int made = (seen & ~mask) | ((unsigned int)value << shift);
#ifdef __CUDA_ARCH__
  const unsigned int found = atomicCAS((unsigned int*)array + (position >> {_WORD_SHIFT[bits]}), seen, made);
  const bool done = found == seen;
  seen = found;
  return done;
#else
  array[position >> {_SHIFT[bits]}] = (unsigned char)made;
  return true;
#endif
}}
"""


def _put(bits: int) -> str:
    return f"""
// writes one element and leaves those beside it as they are, which other threads may write at the same time
template <typename I>
INLINE void hlo_put_{bits}(unsigned char* array, I position, unsigned char value, long long count = 0) {{
  unsigned int seen = hlo_seen_{bits}(array, position);
  while (!hlo_swapped_{bits}(array, position, seen, value, count)) {{
  }}
}}
"""


def _fill(bits: int) -> str:
    parts = " | ".join(["values[k]", *(f"values[k + {n}] << {n * bits}" for n in range(1, 8 // bits))])
    return f"""
// writes a thread's neighbouring elements, which fill whole bytes
template <typename I, int size>
INLINE void hlo_fill_{bits}(unsigned char* array, I first, const unsigned char (&values)[size]) {{
#pragma unroll
  for (int k = 0; k < size; k += {8 // bits}) (array + first / {8 // bits})[k / {8 // bits}] = (unsigned char)({parts});
}}
"""


def _helpers() -> Mapping[str, str]:
    made = {}
    for bits, lie in _BITS.items():
        made[f"hlo_get_{bits}"] = _get(bits, lie)
        made[f"hlo_seen_{bits}"] = _seen(bits)
        made[f"hlo_taken_{bits}"] = _taken(bits)
        made[f"hlo_swapped_{bits}"] = _swapped(bits)
        made[f"hlo_put_{bits}"] = _put(bits)
        made[f"hlo_fill_{bits}"] = _fill(bits)
    return made


PACKED_PRELUDE: Mapping[str, str] = _helpers()
"""Definitions by the helper's name, in an order in which each uses earlier ones only; `INLINE` stands for CUDA's qualifiers."""
