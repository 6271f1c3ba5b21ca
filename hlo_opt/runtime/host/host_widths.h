// Numbers in a type of another width, for `host_routine.h`: what products and convolutions take, and what becomes of
// their results.
#pragma once

// hlo_opt/runtime/host/words.py has the same
enum Width : Word {
  bf16_to_f32, s8_to_s32, u8_to_s32, s16_to_s32, u16_to_s32, f32_to_bf16, s32_to_8, s32_to_16, f16_to_f32, f32_to_f16
};

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

static inline unsigned bits_of(float x) {
  unsigned bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float of_bits(unsigned bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// 2^112 moves the exponent's bias from 15 to 127, exactly, also for denormal numbers
static void widen_f16(const Conversion* c, Word first, Word last) {
  const unsigned short* const from = (const unsigned short*)c->from;
  unsigned* const to = (unsigned*)c->to;
  for (Word k = first; k < last; ++k) {
    const unsigned sign = (from[k] & 0x8000u) << 16, magnitude = from[k] & 0x7fffu;
    const unsigned finite = bits_of(of_bits(magnitude << 13) * 5.192296858534828e+33f);
    to[k] = sign | (magnitude >= 0x7c00u ? 0x7f800000u | (magnitude & 0x3ffu) << 13 : finite);
  }
}

// to the nearest, ties to even; a NaN stays one, and becomes quiet. Adding 1/2 to what is less than the least normal
// f16 leaves a multiple of the least f16 in the low bits of the sum
static void narrow_to_f16(const Conversion* c, Word first, Word last) {
  const unsigned* const from = (const unsigned*)c->from;
  unsigned short* const to = (unsigned short*)c->to;
  for (Word k = first; k < last; ++k) {
    const unsigned sign = from[k] >> 16 & 0x8000u, magnitude = from[k] & 0x7fffffffu;
    const unsigned normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
    const unsigned small = bits_of(of_bits(magnitude) + 0.5f) - 0x3f000000u;
    const unsigned finite = magnitude < 0x38800000u ? small : normal, quiet = 0x7e00u | (magnitude >> 13 & 0x3ffu);
    const unsigned large = magnitude > 0x7f800000u ? quiet : 0x7c00u;
    to[k] = (unsigned short)(sign | (magnitude >= 0x477ff000u ? large : finite));
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
    case f16_to_f32: widen_f16(c, first, last); break;
    case f32_to_f16: narrow_to_f16(c, first, last); break;
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
