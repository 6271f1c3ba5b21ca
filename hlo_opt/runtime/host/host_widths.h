// Numbers in a type of another width, for `host_routine.h`: what products and convolutions take, and what becomes of
// their results.
#pragma once

// hlo_opt/runtime/host/words.py has the same
enum Width : Word { bf16_to_f32, s8_to_s32, u8_to_s32, s16_to_s32, u16_to_s32, f32_to_bf16, s32_to_8, s32_to_16 };

struct Conversion {
  const void* from;
  void* to;
  Word count, width;
};

static const Word numbers_at_a_time = 1 << 13;

template <typename From, typename To>
static inline void convert(const Conversion* c, Word first, Word last) {
  const From* const from = (const From*)c->from;
  To* const to = (To*)c->to;
  for (Word k = first; k < last; ++k) to[k] = (To)from[k];
}

static void widen_bf16(const Conversion* c, Word first, Word last) {
  const unsigned short* const from = (const unsigned short*)c->from;
  unsigned* const to = (unsigned*)c->to;
  for (Word k = first; k < last; ++k) to[k] = (unsigned)from[k] << 16;
}

// to the nearest, ties to even; a NaN stays one, and becomes quiet
static void narrow_to_bf16(const Conversion* c, Word first, Word last) {
  const unsigned* const from = (const unsigned*)c->from;
  unsigned short* const to = (unsigned short*)c->to;
  for (Word k = first; k < last; ++k) {
    const unsigned bits = from[k], rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16, quiet = bits >> 16 | 0x40u;
    to[k] = (unsigned short)((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

// pieces from `begin` up to `end`; the face of a kernel's launcher
static int convert_pieces(void** argument, Word begin, Word end) {
  const Conversion* const c = (const Conversion*)argument;
  const Word first = begin * numbers_at_a_time, all = end * numbers_at_a_time, last = all < c->count ? all : c->count;
  switch (c->width) {
    case bf16_to_f32: widen_bf16(c, first, last); break;
    case s8_to_s32: convert<signed char, int>(c, first, last); break;
    case u8_to_s32: convert<unsigned char, int>(c, first, last); break;
    case s16_to_s32: convert<short, int>(c, first, last); break;
    case u16_to_s32: convert<unsigned short, int>(c, first, last); break;
    case f32_to_bf16: narrow_to_bf16(c, first, last); break;
    case s32_to_8: convert<int, unsigned char>(c, first, last); break;
    case s32_to_16: convert<int, unsigned short>(c, first, last); break;
  }
  return 0;
}

// slots of both arrays, the count of numbers, and their widths
static bool convert_words(void** slots, const Word* w, int processors) {
  Conversion c = {slots[w[0]], slots[w[1]], w[2], w[3]};
  const Word pieces = (c.count + numbers_at_a_time - 1) / numbers_at_a_time;
  launch(convert_pieces, (void**)&c, pieces, pieces > 8 ? processors : 1);
  return true;
}
