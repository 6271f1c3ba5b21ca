// Products on tensor cores. On a device the lanes of a warp execute one instruction together; in the lanes form on
// the host, each lane computes its own elements. NVRTC and the host's C++ compiler both read this file; device
// intrinsics are under __CUDA_ARCH__. A line `// @name` starts the definition of a helper, which may use the helpers
// before it.

// @HLO_WARP
// instructions of a whole warp; the host has macros of its own
#ifndef HLO_WARP_LOAD
#define HLO_WARP_LOAD_4(name, made, at)                                     \
  asm volatile(name " {%0, %1, %2, %3}, [%4];"                              \
               : "=r"(made[0]), "=r"(made[1]), "=r"(made[2]), "=r"(made[3]) \
               : "r"((unsigned int)__cvta_generic_to_shared(at))            \
               : "memory")
#define HLO_WARP_LOAD_2(name, made, at)                          \
  asm volatile(name " {%0, %1}, [%2];"                           \
               : "=r"(made[0]), "=r"(made[1])                    \
               : "r"((unsigned int)__cvta_generic_to_shared(at)) \
               : "memory")
#define HLO_WARP_MULTIPLY(name, sums, a, b)                                            \
  asm volatile(name " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif

// @hlo_fragment_of
template <int words> struct hlo_fragment_of { unsigned int of[words]; };

// @hlo_piece
// the sums of a lane: rows l / 4 and l / 4 + 8, each of columns 2 * (l % 4) and the next
struct hlo_piece { float of[4]; };

// @hlo_fragment
// What a lane needs of 16 rows by 16 contracted elements (4 words), or of 16 by 8 columns (2), for `hlo_multiply`.
// `across`: lines of the tile go along rows (or columns), not along contracted elements. All lanes of a warp come here
// together.
template <int words, bool across, int line>
__device__ __forceinline__ hlo_fragment_of<words> hlo_fragment(const unsigned short* from, int lane) {
  hlo_fragment_of<words> made = {};
#ifdef __CUDA_ARCH__
  const int near = lane % 8, second = lane / 8 % 2, last = words == 4 ? lane / 16 : second;
  if constexpr (words == 4) {
    if constexpr (across) {
      HLO_WARP_LOAD_4("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", made.of,
                      from + (last * 8 + near) * line + second * 8);
    } else {
      HLO_WARP_LOAD_4("ldmatrix.sync.aligned.m8n8.x4.shared.b16", made.of,
                      from + (second * 8 + near) * line + last * 8);
    }
  } else if constexpr (across) {
    HLO_WARP_LOAD_2("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", made.of, from + (last * 8 + near) * line);
  } else {
    HLO_WARP_LOAD_2("ldmatrix.sync.aligned.m8n8.x2.shared.b16", made.of, from + near * line + last * 8);
  }
#endif
  return made;
}

// @hlo_line_16
#ifndef __CUDA_ARCH__
typedef float hlo_floats __attribute__((vector_size(64)));
// 16 contracted elements of a row (or a column)
template <bool is_bf16, bool across, int line>
static inline hlo_floats hlo_line_16(const unsigned short* from, int number) {
  hlo_floats made;
  for (int k = 0; k < 16; ++k) {
    const unsigned short bits = across ? from[k * line + number] : from[number * line + k];
    made[k] = is_bf16 ? hlo_bit_cast<float>((unsigned int)bits << 16) : hlo_load_f16(bits);
  }
  return made;
}
static inline float hlo_total(hlo_floats products) {
  float sums[8];
  for (int k = 0; k < 8; ++k) sums[k] = products[k] + products[k + 8];
  for (int k = 0; k < 4; ++k) sums[k] += sums[k + 4];
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}
#endif

// @hlo_multiply
// A piece of 16 by 8 sums, and the products of 16 rows by 16 with 16 by 8 columns, of which fragments and places in
// shared memory are given. All lanes of a warp come here together.
template <bool is_bf16, bool rows_across, int rows_line, bool columns_across, int columns_line>
__device__ __forceinline__ hlo_piece hlo_multiply(hlo_piece sums, const hlo_fragment_of<4>& a,
                                                  const hlo_fragment_of<2>& b, const unsigned short* rows,
                                                  const unsigned short* columns, int lane) {
#ifdef __CUDA_ARCH__
  if constexpr (is_bf16) {
    HLO_WARP_MULTIPLY("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", sums.of, a.of, b.of);
  } else {
    HLO_WARP_MULTIPLY("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", sums.of, a.of, b.of);
  }
#else
  for (int high = 0; high < 2; ++high) {
    const hlo_floats left = hlo_line_16<is_bf16, rows_across, rows_line>(rows, lane / 4 + 8 * high);
    for (int low = 0; low < 2; ++low) {
      sums.of[2 * high + low] +=
          hlo_total(left * hlo_line_16<is_bf16, columns_across, columns_line>(columns, lane % 4 * 2 + low));
    }
  }
#endif
  return sums;
}

// @hlo_leaves_out
// Whether values whose weights are 0 need not be looked at: 0 times infinity is no number.
__device__ __forceinline__ bool hlo_leaves_out() {
#ifdef HLO_PRECISE
  return false;
#else
  return true;
#endif
}

// @hlo_tf32
// A float as tensor cores take it: rounded to 10 bits, not cut off.
__device__ __forceinline__ float hlo_tf32(float x) {
#if defined(__CUDA_ARCH__) && !defined(HLO_PRECISE)
  unsigned int made;
  HLO_PTX_1("cvt.rna.tf32.f32", made, "r", x, "f");
  return __uint_as_float(made);
#else
  return x;
#endif
}

// @hlo_fragment_tf32
// What a lane needs of 16 rows by 8 contracted elements (4 words), or of 8 by 8 columns (2), for `hlo_multiply_tf32`.
template <int words, bool across, int line>
__device__ __forceinline__ hlo_fragment_of<words> hlo_fragment_tf32(const float* from, int lane) {
  hlo_fragment_of<words> made = {};
#ifdef __CUDA_ARCH__
  if constexpr (across) {  // `ldmatrix` turns pairs of bytes only
    for (int k = 0; k < words; ++k) made.of[k] = __float_as_uint(from[(lane % 4 + 4 * k) * line + lane / 4]);
  } else {  // a float is two of its elements
    made = hlo_fragment<words, false, 2 * line>((const unsigned short*)from, lane);
  }
#endif
  return made;
}

// @hlo_multiply_tf32
// As `hlo_multiply`, with 8 contracted elements. With HLO_PRECISE what rounding leaves of an operand is multiplied,
// too.
template <int rows_line, bool across, int columns_line>
__device__ __forceinline__ hlo_piece hlo_multiply_tf32(hlo_piece sums, const hlo_fragment_of<4>& a,
                                                       const hlo_fragment_of<2>& b, const float* rows,
                                                       const float* columns, int lane) {
#ifdef __CUDA_ARCH__
#ifdef HLO_PRECISE
  hlo_fragment_of<4> high_a, low_a;
  hlo_fragment_of<2> high_b, low_b;
  for (int k = 0; k < 4; ++k) {
    high_a.of[k] = a.of[k] & 0xffffe000u;
    low_a.of[k] = __float_as_uint(__uint_as_float(a.of[k]) - __uint_as_float(high_a.of[k]));
  }
  for (int k = 0; k < 2; ++k) {
    high_b.of[k] = b.of[k] & 0xffffe000u;
    low_b.of[k] = __float_as_uint(__uint_as_float(b.of[k]) - __uint_as_float(high_b.of[k]));
  }
  HLO_WARP_MULTIPLY("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", sums.of, low_a.of, high_b.of);
  HLO_WARP_MULTIPLY("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", sums.of, high_a.of, low_b.of);
  HLO_WARP_MULTIPLY("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", sums.of, high_a.of, high_b.of);
#else
  HLO_WARP_MULTIPLY("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", sums.of, a.of, b.of);
#endif
#else
  for (int high = 0; high < 2; ++high) {
    for (int low = 0; low < 2; ++low) {
      float total = 0.0f;
      for (int k = 0; k < 8; ++k) {
        const int column = lane % 4 * 2 + low;
        total += rows[(lane / 4 + 8 * high) * rows_line + k] *
                 (across ? columns[k * columns_line + column] : columns[column * columns_line + k]);
      }
      sums.of[2 * high + low] += total;
    }
  }
#endif
  return sums;
}
