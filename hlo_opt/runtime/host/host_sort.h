// Sorts of lines, for `host_routine.h`: stable, by the bytes of the keys, the last one first. A pass whose elements all
// have the same byte is left out, so that few passes are needed where numbers are small.
#pragma once

// hlo_opt/runtime/host/own_calls.py has the same
enum Key : Word { key_f32, key_f16, key_s32, key_u32, key_s16, key_u16, key_s8, key_u8 };

// what orders the elements: an array among the operands, its type, whether the largest come first; the bits of infinity
// where all NaN are equal, else 0; whether zeros of both signs are
struct SortKey {
  Word operand, key, falls, infinity, joins_zeros;
};

// an operand: the bytes of an element; 0 from `from` where it is the place in the line
struct Carried {
  const char* from;
  char* to;
  Word bytes;
};

struct Sorting {
  const SortKey* keys;
  const Carried* carried;
  Word key_count, carried_count, length, apart;
  bool failed;
};

typedef unsigned long long Item;  // a key, and behind it the place in the line, or what lies there

static const Word short_line = 48;

static inline unsigned float_key(unsigned bits, const SortKey* k) {
  const unsigned magnitude = bits & 0x7fffffff;
  if (k->infinity && magnitude > (unsigned)k->infinity) bits = 0x7fffffff;
  if (k->joins_zeros && !magnitude) bits = 0;
  return bits ^ ((unsigned)((int)bits >> 31) | 0x80000000u);
}

template <typename T, typename Ordered>
static void read_keys(Item* items, Word count, const T* from, Word apart, bool first, bool alone, Ordered ordered) {
  for (Word n = 0; n < count; ++n) {
    const unsigned place = first ? (unsigned)n : (unsigned)items[n];
    const T element = from[(Word)place * apart];
    unsigned bits = 0;
    memcpy(&bits, &element, sizeof(T));
    items[n] = (Item)ordered(element, bits) << 32 | (alone ? bits : place);
  }
}

template <typename T> static void read_integers(Item* items, Word count, const void* from, Word apart, bool first,
                                                bool alone, unsigned turned) {
  read_keys(items, count, (const T*)from, apart, first, alone, [=](T x, unsigned) { return (unsigned)x ^ turned; });
}

static void read_items(Item* items, Word count, const SortKey* k, const void* from, Word apart, bool first,
                       bool alone) {
  const unsigned turned = k->falls ? ~0u : 0, turned_signed = turned ^ 0x80000000u;
  switch (k->key) {
    case key_f32:
      return read_keys(items, count, (const unsigned*)from, apart, first, alone,
                       [=](unsigned, unsigned bits) { return float_key(bits, k) ^ turned; });
    case key_f16:
      return read_keys(items, count, (const unsigned short*)from, apart, first, alone,
                       [=](unsigned short, unsigned bits) { return float_key(bits << 16, k) ^ turned; });
    case key_s32: return read_integers<int>(items, count, from, apart, first, alone, turned_signed);
    case key_s16: return read_integers<short>(items, count, from, apart, first, alone, turned_signed);
    case key_s8: return read_integers<signed char>(items, count, from, apart, first, alone, turned_signed);
    case key_u32: return read_integers<unsigned>(items, count, from, apart, first, alone, turned);
    case key_u16: return read_integers<unsigned short>(items, count, from, apart, first, alone, turned);
    default: return read_integers<unsigned char>(items, count, from, apart, first, alone, turned);
  }
}

// the items in order of their keys; they are in what is returned, of the two arrays
static Item* sort_items(Item* items, Item* spare, Word count) {
  if (count <= short_line) {
    for (Word n = 1; n < count; ++n) {
      const Item taken = items[n];
      Word at = n;
      for (; at > 0 && items[at - 1] >> 32 > taken >> 32; --at) items[at] = items[at - 1];
      items[at] = taken;
    }
    return items;
  }
  Word begins[4][256] = {};
  for (Word n = 0; n < count; ++n)
    for (int byte = 0; byte < 4; ++byte) ++begins[byte][items[n] >> (32 + 8 * byte) & 255];
  for (int byte = 0; byte < 4; ++byte) {
    const int shift = 32 + 8 * byte;
    Word* const begin = begins[byte];
    if (begin[items[0] >> shift & 255] == count) continue;
    Word total = 0;
    for (int digit = 0; digit < 256; ++digit) {
      const Word more = begin[digit];
      begin[digit] = total;
      total += more;
    }
    for (Word n = 0; n < count; ++n) spare[begin[items[n] >> shift & 255]++] = items[n];
    Item* const other = items;
    items = spare;
    spare = other;
  }
  return items;
}

template <typename T>
static void carry(const Item* items, Word count, const void* from, void* to, Word apart, bool alone) {
  for (Word n = 0; n < count; ++n) {
    const unsigned low = (unsigned)items[n];
    T element = (T)low;
    if (from && !alone) element = ((const T*)from)[(Word)low * apart];
    ((T*)to)[n * apart] = element;
  }
}

struct Sixteen {
  Item parts[2];
  Sixteen() {}
  explicit Sixteen(unsigned) {}
};

// lines from `begin` up to `end`; the face of a kernel's launcher
static int sort_some(void** argument, Word begin, Word end) {
  Sorting* const s = (Sorting*)argument;
  Item* const room = (Item*)malloc(2 * (size_t)s->length * sizeof(Item));
  if (!room) {
    s->failed = true;
    return 0;
  }
  const bool alone = s->carried_count == 1 && s->key_count == 1 && s->carried[0].bytes <= 4;
  for (Word line = begin; line < end; ++line) {
    const Word at = line / s->apart * s->apart * s->length + line % s->apart;
    Item *items = room, *spare = room + s->length;
    for (Word k = s->key_count - 1; k >= 0; --k) {
      const Carried* const by = s->carried + s->keys[k].operand;
      read_items(items, s->length, s->keys + k, by->from + at * by->bytes, s->apart, k == s->key_count - 1, alone);
      Item* const sorted = sort_items(items, spare, s->length);
      if (sorted != items) spare = items, items = sorted;
    }
    for (const Carried* c = s->carried; c < s->carried + s->carried_count; ++c) {
      const void* const from = c->from ? c->from + at * c->bytes : 0;
      void* const to = c->to + at * c->bytes;
      switch (c->bytes) {
        case 1: carry<unsigned char>(items, s->length, from, to, s->apart, alone); break;
        case 2: carry<unsigned short>(items, s->length, from, to, s->apart, alone); break;
        case 4: carry<unsigned>(items, s->length, from, to, s->apart, alone); break;
        case 8: carry<Item>(items, s->length, from, to, s->apart, alone); break;
        default: carry<Sixteen>(items, s->length, from, to, s->apart, alone);
      }
    }
  }
  free(room);
  return 0;
}

// the number of operands, and for each its slot (negative: it is the place), that of its result, and bytes; lines,
// elements of a line, how far apart they are; the number of keys, and each as SortKey; false without memory
static bool sort_words(void** slots, const Word* w, int processors) {
  const Word count = *w++;
  Carried* const carried = (Carried*)malloc((size_t)count * sizeof(Carried));
  if (!carried) return false;
  for (Word k = 0; k < count; ++k, w += 3)
    carried[k] = {w[0] < 0 ? 0 : (const char*)slots[w[0]], (char*)slots[w[1]], w[2]};
  Sorting s = {(const SortKey*)(w + 4), carried, w[3], count, w[1], w[2], false};
  launch(sort_some, (void**)&s, w[0], w[0] * s.length > 1 << 13 ? processors : 1);
  free(carried);
  return !s.failed;
}
