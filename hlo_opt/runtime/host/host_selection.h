// The largest or smallest elements of rows, and where they are, for `host_routine.h`. Of equal elements those come
// first that lie first; floats are in XLA's total order.
#pragma once

// hlo_opt/runtime/host/own_calls.py has the same
enum Key : Word { key_f32, key_f16, key_s32, key_u32, key_s16, key_u16, key_s8, key_u8 };

struct Selection {
  const void* values;
  void* kept;
  int* places;
  Word columns, count, key, largest;
  bool failed;
};

typedef unsigned long long Ranked;  // a key, then the complement of its place: earlier places rank higher

static const Word keys_at_a_time = 64;

// unsigned numbers in the order of the elements
static inline unsigned in_order(unsigned bits) {
  return bits ^ ((unsigned)((int)bits >> 31) | 0x80000000u);
}

template <typename T> static inline void copy_keys(const T* from, Word count, unsigned turned, Word key, unsigned* to) {
  switch (key) {
    case key_f32:
      for (Word k = 0; k < count; ++k) to[k] = in_order((unsigned)from[k]) ^ turned;
      break;
    case key_f16:
      for (Word k = 0; k < count; ++k) to[k] = in_order((unsigned)from[k] << 16) ^ turned;
      break;
    case key_s32: case key_s16: case key_s8:
      for (Word k = 0; k < count; ++k) to[k] = ((unsigned)(int)from[k] ^ 0x80000000u) ^ turned;
      break;
    default:
      for (Word k = 0; k < count; ++k) to[k] = (unsigned)from[k] ^ turned;
  }
}

// the first of a row by rank; `ranked` has room for twice as many and a few more
template <typename T> static void select_row(const Selection* s, const T* row, T* kept, int* places, Ranked* ranked) {
  const unsigned turned = s->largest ? 0 : ~0u;
  const Word room = 2 * s->count;
  Word held = 0;
  unsigned least = 0;  // once `full`, a key that is not above it is not among the first `count`
  bool full = false;
  for (Word first = 0; first < s->columns; first += keys_at_a_time) {
    const Word count = s->columns - first < keys_at_a_time ? s->columns - first : keys_at_a_time;
    unsigned keys[keys_at_a_time], most = 0;
    copy_keys(row + first, count, turned, s->key, keys);
    for (Word k = 0; k < count; ++k) most = keys[k] > most ? keys[k] : most;
    if (full && most <= least) continue;
    for (Word k = 0; k < count; ++k)
      if (!full || keys[k] > least) ranked[held++] = (Ranked)keys[k] << 32 | (unsigned)~(first + k);
    if (held > room) {
      std::nth_element(ranked, ranked + s->count - 1, ranked + held, std::greater<Ranked>());
      held = s->count;
      least = (unsigned)(ranked[s->count - 1] >> 32);
      full = true;
    }
  }
  std::partial_sort(ranked, ranked + s->count, ranked + held, std::greater<Ranked>());
  for (Word k = 0; k < s->count; ++k) {
    places[k] = (int)~(unsigned)ranked[k];
    kept[k] = row[places[k]];
  }
}

// rows from `begin` up to `end`; it has the signature of a kernel's launcher
template <typename T> static int select_rows(void** argument, Word begin, Word end) {
  Selection* const s = (Selection*)argument;
  Ranked* const ranked = (Ranked*)malloc((size_t)(2 * s->count + keys_at_a_time + 1) * sizeof(Ranked));
  if (!ranked) {
    s->failed = true;
    return 0;
  }
  for (Word r = begin; r < end; ++r)
    select_row(s, (const T*)s->values + r * s->columns, (T*)s->kept + r * s->count, s->places + r * s->count, ranked);
  free(ranked);
  return 0;
}

// slots of values, kept and places, rows, then as Selection from `columns` on; false without memory
static bool select_words(void** slots, const Word* w, int processors) {
  Selection s = {slots[w[0]], slots[w[1]], (int*)slots[w[2]], w[4], w[5], w[6], w[7], false};
  const Word rows = w[3];
  const Launcher launcher = s.key == key_f32 || s.key == key_u32 ? select_rows<unsigned>
                          : s.key == key_s32                     ? select_rows<int>
                          : s.key == key_f16 || s.key == key_u16 ? select_rows<unsigned short>
                          : s.key == key_s16                     ? select_rows<short>
                          : s.key == key_s8                      ? select_rows<signed char>
                                                                 : select_rows<unsigned char>;
  launch(launcher, (void**)&s, rows, rows * s.columns > 1 << 15 ? processors : 1);
  return !s.failed;
}
