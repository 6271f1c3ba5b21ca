// Floats of 8, 6 and 4 bits: their register values are f32, and in memory each has a byte. One template widens and
// one rounds (to nearest even). Values above the range become infinity, NaN or the largest value, and NaN in types
// without it becomes what XLA and ml_dtypes make of it. NVRTC and the host's C++ compiler both read this file;
// device intrinsics are under __CUDA_ARCH__. A line `// @name` starts the definition of a helper, which may use the
// helpers before it.

// @hlo_load_small
// exact, and no step is a denormal f32, which threads of XLA:CPU read as zero: what has no exponent gets the least one,
// and loses it again
template <int exponent, int mantissa, int bias> __device__ __forceinline__ float hlo_load_small(unsigned int bits) {
  const unsigned int magnitude = bits & ((1u << (exponent + mantissa)) - 1u),
                     sign = (bits >> (exponent + mantissa) & 1u) << 31, least = (unsigned int)(128 - bias) << 23;
  const unsigned int wide = (magnitude << (23 - mantissa)) + least;
  const float denormal = hlo_bit_cast<float>(wide) - hlo_bit_cast<float>(least);
  const unsigned int found = magnitude >> mantissa ? wide - (1u << 23) : hlo_bit_cast<unsigned int>(denormal);
  return hlo_bit_cast<float>(sign | found);
}

// @hlo_store_small
// the magnitude's code, to nearest even, as if there were codes enough; x is no NaN
template <int exponent, int mantissa, int bias> __device__ __forceinline__ unsigned int hlo_store_small(float x) {
  const unsigned int magnitude = hlo_bit_cast<unsigned int>(x) & 0x7fffffffu, least = (unsigned int)(128 - bias) << 23;
  // below the least normal number: a sum whose last bit is the least denormal number rounds
  const float shift = hlo_bit_cast<float>((unsigned int)(151 - bias - mantissa) << 23);
  const float sum = hlo_bit_cast<float>(magnitude) + shift;
  const unsigned int denormal = hlo_bit_cast<unsigned int>(sum) - hlo_bit_cast<unsigned int>(shift);
  const unsigned int half = (1u << (22 - mantissa)) - 1u, odd = magnitude >> (23 - mantissa) & 1u;
  const unsigned int normal = (magnitude - ((unsigned int)(127 - bias) << 23) + half + odd) >> (23 - mantissa);
  return magnitude < least ? denormal : normal;
}

// @hlo_load_float
// the largest codes: of `i` the exponent is that of infinities and NaN, as in IEEE 754; `n` has NaN as the largest code
// and no infinity; of `z` the code that would be -0 is NaN; of `f` all codes are numbers
template <int exponent, int mantissa, int bias, char codes>
__device__ __forceinline__ float hlo_load_float(unsigned char bits) {
  const unsigned int negative = 1u << (exponent + mantissa), infinity = ((1u << exponent) - 1u) << mantissa;
  const unsigned int magnitude = bits & (negative - 1u), sign = (bits & negative) << (31 - exponent - mantissa);
  if (codes == 'i' && magnitude >= infinity)
    return hlo_bit_cast<float>(sign | 0x7f800000u | (magnitude - infinity) << (23 - mantissa));
  if (codes == 'n' && magnitude == negative - 1u) return hlo_bit_cast<float>(sign | 0x7fc00000u);
  if (codes == 'z' && bits == negative) return hlo_bit_cast<float>(0xffc00000u);
  return hlo_load_small<exponent, mantissa, bias>(bits);
}

// @hlo_store_float
// a type without NaN has a zero for it, the negative one where there are but 4 bits
template <int exponent, int mantissa, int bias, char codes>
__device__ __forceinline__ unsigned char hlo_store_float(float x) {
  const unsigned int negative = 1u << (exponent + mantissa), infinity = ((1u << exponent) - 1u) << mantissa;
  const unsigned int sign = (hlo_bit_cast<unsigned int>(x) >> 31) << (exponent + mantissa);
  const unsigned int most = codes == 'i' ? infinity : negative - 1u;
  const unsigned int quiet = codes == 'i'   ? sign | infinity | 1u << (mantissa - 1)
                             : codes == 'n' ? sign | most
                                            : sign ^ negative;
  const unsigned int code = hlo_store_small<exponent, mantissa, bias>(x);
  if (x != x) return (unsigned char)(codes == 'z' || exponent + mantissa == 3 ? negative : quiet);
  if (codes == 'z') return (unsigned char)(code > most ? negative : code == 0 ? 0u : sign | code);
  return (unsigned char)(sign | (code > most ? most : code));
}

// @hlo_load_f4e2m1fn
__device__ __forceinline__ float hlo_load_f4e2m1fn(unsigned char bits) { return hlo_load_float<2, 1, 1, 'f'>(bits); }

// @hlo_store_f4e2m1fn
__device__ __forceinline__ unsigned char hlo_store_f4e2m1fn(float x) { return hlo_store_float<2, 1, 1, 'f'>(x); }

// @hlo_load_f6e2m3fn
__device__ __forceinline__ float hlo_load_f6e2m3fn(unsigned char bits) { return hlo_load_float<2, 3, 1, 'f'>(bits); }

// @hlo_store_f6e2m3fn
__device__ __forceinline__ unsigned char hlo_store_f6e2m3fn(float x) { return hlo_store_float<2, 3, 1, 'f'>(x); }

// @hlo_load_f6e3m2fn
__device__ __forceinline__ float hlo_load_f6e3m2fn(unsigned char bits) { return hlo_load_float<3, 2, 3, 'f'>(bits); }

// @hlo_store_f6e3m2fn
__device__ __forceinline__ unsigned char hlo_store_f6e3m2fn(float x) { return hlo_store_float<3, 2, 3, 'f'>(x); }

// @hlo_load_f8e5m2
__device__ __forceinline__ float hlo_load_f8e5m2(unsigned char bits) { return hlo_load_float<5, 2, 15, 'i'>(bits); }

// @hlo_store_f8e5m2
__device__ __forceinline__ unsigned char hlo_store_f8e5m2(float x) { return hlo_store_float<5, 2, 15, 'i'>(x); }

// @hlo_load_f8e4m3
__device__ __forceinline__ float hlo_load_f8e4m3(unsigned char bits) { return hlo_load_float<4, 3, 7, 'i'>(bits); }

// @hlo_store_f8e4m3
__device__ __forceinline__ unsigned char hlo_store_f8e4m3(float x) { return hlo_store_float<4, 3, 7, 'i'>(x); }

// @hlo_load_f8e4m3fn
__device__ __forceinline__ float hlo_load_f8e4m3fn(unsigned char bits) { return hlo_load_float<4, 3, 7, 'n'>(bits); }

// @hlo_store_f8e4m3fn
__device__ __forceinline__ unsigned char hlo_store_f8e4m3fn(float x) { return hlo_store_float<4, 3, 7, 'n'>(x); }

// @hlo_load_f8e4m3b11fnuz
__device__ __forceinline__ float hlo_load_f8e4m3b11fnuz(unsigned char bits) {
  return hlo_load_float<4, 3, 11, 'z'>(bits);
}

// @hlo_store_f8e4m3b11fnuz
__device__ __forceinline__ unsigned char hlo_store_f8e4m3b11fnuz(float x) { return hlo_store_float<4, 3, 11, 'z'>(x); }

// @hlo_load_f8e4m3fnuz
__device__ __forceinline__ float hlo_load_f8e4m3fnuz(unsigned char bits) { return hlo_load_float<4, 3, 8, 'z'>(bits); }

// @hlo_store_f8e4m3fnuz
__device__ __forceinline__ unsigned char hlo_store_f8e4m3fnuz(float x) { return hlo_store_float<4, 3, 8, 'z'>(x); }

// @hlo_load_f8e5m2fnuz
__device__ __forceinline__ float hlo_load_f8e5m2fnuz(unsigned char bits) { return hlo_load_float<5, 2, 16, 'z'>(bits); }

// @hlo_store_f8e5m2fnuz
__device__ __forceinline__ unsigned char hlo_store_f8e5m2fnuz(float x) { return hlo_store_float<5, 2, 16, 'z'>(x); }

// @hlo_load_f8e3m4
__device__ __forceinline__ float hlo_load_f8e3m4(unsigned char bits) { return hlo_load_float<3, 4, 3, 'i'>(bits); }

// @hlo_store_f8e3m4
__device__ __forceinline__ unsigned char hlo_store_f8e3m4(float x) { return hlo_store_float<3, 4, 3, 'i'>(x); }

// @hlo_load_f8e8m0fnu
// a power of two; the largest code is NaN
__device__ __forceinline__ float hlo_load_f8e8m0fnu(unsigned char bits) {
  if (bits == 255u) return hlo_bit_cast<float>(0x7fc00000u);
  return hlo_bit_cast<float>(bits == 0 ? 0x00400000u : (unsigned int)bits << 23);
}

// @hlo_store_f8e8m0fnu
// to the nearest power of two, the greater of two; there is neither a zero nor a sign, and one comparison of bits finds
// these, infinities and NaN
__device__ __forceinline__ unsigned char hlo_store_f8e8m0fnu(float x) {
  const unsigned int bits = hlo_bit_cast<unsigned int>(x);
  if (bits - 1u >= 0x7f7fffffu) return 255;
  // as ml_dtypes has it, 2^-126 is the nearest to all that is above 2^-127 and below it
  if (bits < 0x00800000u) return bits > 0x00400000u ? 1 : 0;
  return (unsigned char)((bits + 0x400000u) >> 23);
}

// @hlo_round_f4e2m1fn
__device__ __forceinline__ float hlo_round_f4e2m1fn(float x) { return hlo_load_f4e2m1fn(hlo_store_f4e2m1fn(x)); }

// @hlo_round_f6e2m3fn
__device__ __forceinline__ float hlo_round_f6e2m3fn(float x) { return hlo_load_f6e2m3fn(hlo_store_f6e2m3fn(x)); }

// @hlo_round_f6e3m2fn
__device__ __forceinline__ float hlo_round_f6e3m2fn(float x) { return hlo_load_f6e3m2fn(hlo_store_f6e3m2fn(x)); }

// @hlo_round_f8e5m2
__device__ __forceinline__ float hlo_round_f8e5m2(float x) { return hlo_load_f8e5m2(hlo_store_f8e5m2(x)); }

// @hlo_round_f8e4m3
__device__ __forceinline__ float hlo_round_f8e4m3(float x) { return hlo_load_f8e4m3(hlo_store_f8e4m3(x)); }

// @hlo_round_f8e4m3fn
__device__ __forceinline__ float hlo_round_f8e4m3fn(float x) { return hlo_load_f8e4m3fn(hlo_store_f8e4m3fn(x)); }

// @hlo_round_f8e4m3b11fnuz
__device__ __forceinline__ float hlo_round_f8e4m3b11fnuz(float x) {
  return hlo_load_f8e4m3b11fnuz(hlo_store_f8e4m3b11fnuz(x));
}

// @hlo_round_f8e4m3fnuz
__device__ __forceinline__ float hlo_round_f8e4m3fnuz(float x) { return hlo_load_f8e4m3fnuz(hlo_store_f8e4m3fnuz(x)); }

// @hlo_round_f8e5m2fnuz
__device__ __forceinline__ float hlo_round_f8e5m2fnuz(float x) { return hlo_load_f8e5m2fnuz(hlo_store_f8e5m2fnuz(x)); }

// @hlo_round_f8e3m4
__device__ __forceinline__ float hlo_round_f8e3m4(float x) { return hlo_load_f8e3m4(hlo_store_f8e3m4(x)); }

// @hlo_round_f8e8m0fnu
__device__ __forceinline__ float hlo_round_f8e8m0fnu(float x) { return hlo_load_f8e8m0fnu(hlo_store_f8e8m0fnu(x)); }
