// Instructions of a warp for products on tensor cores, as a GPU's compiler takes them, among fibres (host_fibres.h).

namespace hlo {

// read by the kernel itself, so that the watch sees it
static inline unsigned short element_of(const unsigned short* at) { return *at; }

// ldmatrix: matrix m, of 8 rows of 16 bytes, lies where lanes 8 m to 8 m + 7 say, a row each; lane l gets two elements
// of row l / 4 of each matrix, or, turned, of column l / 4
template <int words, bool turned>
HLO_UNSEEN static inline void load_matrix(int line, unsigned int* made, const unsigned short* at) {
  const unsigned long long mine = (unsigned long long)at;
  const int own = lane();
  if (own < 8 * words && mine % 16) HLO_FOUND("ldmatrix at a place that is no multiple of 16 bytes");
  for (int m = 0; m < words; ++m) {
    unsigned int bits = 0;
    for (int k = 0; k < 2; ++k) {
      const int row = turned ? own % 4 * 2 + k : own / 4, column = turned ? own / 4 : own % 4 * 2 + k;
      const unsigned short* from = (const unsigned short*)taken(line, 0xffffffffu, mine, 8 * m + row);
      bits |= (unsigned int)element_of(from + column) << 16 * k;
    }
    made[m] = bits;
  }
}

// mma.m16n8k16: lane l has sums of rows l / 4 and l / 4 + 8 by columns 2 (l % 4) and the next; of row r and contracted
// element k, lane r % 8 * 4 + k % 8 / 2 has the left side, in word r / 8 + k / 8 * 2; of column c and k, lane
// 4 c + k % 8 / 2 has the right side, in word k / 8 (PTX ISA, "Matrix Fragments for mma.m16n8k16")
template <typename Load>
HLO_UNSEEN static inline void multiply(int line, float* sums, const unsigned int* a, const unsigned int* b, Load load) {
  const int own = lane();
  const unsigned long long near = (unsigned long long)a[1] << 32 | a[0], far = (unsigned long long)a[3] << 32 | a[2],
                           right = (unsigned long long)b[1] << 32 | b[0];
  float left[2][16], columns[2][16];
  for (int q = 0; q < 4; ++q) {
    const unsigned long long rows[2] = {taken(line, 0xffffffffu, near, own / 4 * 4 + q),
                                        taken(line, 0xffffffffu, far, own / 4 * 4 + q)};
    for (int k = 0; k < 16; ++k) {
      if (k % 8 / 2 != q) continue;
      for (int high = 0; high < 2; ++high)
        left[high][k] = load((unsigned short)(rows[k / 8] >> (32 * high + 16 * (k % 2))));
    }
    for (int low = 0; low < 2; ++low) {
      const unsigned long long found = taken(line, 0xffffffffu, right, (own % 4 * 2 + low) * 4 + q);
      for (int k = 0; k < 16; ++k) {
        if (k % 8 / 2 == q) columns[low][k] = load((unsigned short)(found >> (32 * (k / 8) + 16 * (k % 2))));
      }
    }
  }
  for (int high = 0; high < 2; ++high) {
    for (int low = 0; low < 2; ++low) {
      for (int k = 0; k < 16; ++k)
        sums[2 * high + low] = __builtin_fmaf(left[high][k], columns[low][k], sums[2 * high + low]);
    }
  }
}
// mma.m16n8k8 of TF32: as above, but of row r and contracted element k, lane r % 8 * 4 + k % 4 has the left side, in
// word r / 8 + k / 4 * 2; of column c and k, lane 4 c + k % 4 has the right side, in word k / 4. The host multiplies
// all bits of a float, as its library does
HLO_UNSEEN static inline void multiply(Ptx<hash("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")>, int line,
                                       float* sums, const unsigned int* a, const unsigned int* b) {
  const int own = lane();
  const unsigned long long near = (unsigned long long)a[1] << 32 | a[0], far = (unsigned long long)a[3] << 32 | a[2],
                           right = (unsigned long long)b[1] << 32 | b[0];
  float left[2][8], columns[2][8];
  for (int k = 0; k < 8; ++k) {
    const unsigned long long rows = taken(line, 0xffffffffu, k < 4 ? near : far, own / 4 * 4 + k % 4);
    for (int high = 0; high < 2; ++high) left[high][k] = bits_as<float>((unsigned int)(rows >> 32 * high));
    for (int low = 0; low < 2; ++low) {
      const unsigned long long found = taken(line, 0xffffffffu, right, (own % 4 * 2 + low) * 4 + k % 4);
      columns[low][k] = bits_as<float>((unsigned int)(found >> 32 * (k / 4)));
    }
  }
  for (int high = 0; high < 2; ++high) {
    for (int low = 0; low < 2; ++low) {
      for (int k = 0; k < 8; ++k)
        sums[2 * high + low] = __builtin_fmaf(left[high][k], columns[low][k], sums[2 * high + low]);
    }
  }
}
static inline float bf16_value(unsigned short bits) { return bits_as<float>((unsigned int)bits << 16); }
static inline float f16_value(unsigned short bits) { return ptx(Ptx<hash("cvt.f32.f16" "f" "h")>(), bits); }

// the warp's instructions that kernels name
#define HLO_OF_WARP(name) hlo::Ptx<hlo::hash(name)>()
HLO_UNSEEN static inline void load(Ptx<hash("ldmatrix.sync.aligned.m8n8.x4.shared.b16")>, int line, unsigned int* made,
                                   const unsigned short* at) {
  load_matrix<4, false>(line, made, at);
}
HLO_UNSEEN static inline void load(Ptx<hash("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16")>, int line,
                                   unsigned int* made, const unsigned short* at) {
  load_matrix<4, true>(line, made, at);
}
HLO_UNSEEN static inline void load(Ptx<hash("ldmatrix.sync.aligned.m8n8.x2.shared.b16")>, int line, unsigned int* made,
                                   const unsigned short* at) {
  load_matrix<2, false>(line, made, at);
}
HLO_UNSEEN static inline void load(Ptx<hash("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16")>, int line,
                                   unsigned int* made, const unsigned short* at) {
  load_matrix<2, true>(line, made, at);
}
HLO_UNSEEN static inline void multiply(Ptx<hash("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")>, int line,
                                       float* sums, const unsigned int* a, const unsigned int* b) {
  multiply(line, sums, a, b, bf16_value);
}
HLO_UNSEEN static inline void multiply(Ptx<hash("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")>, int line,
                                       float* sums, const unsigned int* a, const unsigned int* b) {
  multiply(line, sums, a, b, f16_value);
}

}  // namespace hlo

#define HLO_WARP_LOAD
#define HLO_WARP_LOAD_4(name, made, at) hlo::load(HLO_OF_WARP(name), __LINE__, made, at)
#define HLO_WARP_LOAD_2(name, made, at) hlo::load(HLO_OF_WARP(name), __LINE__, made, at)
#define HLO_WARP_MULTIPLY(name, sums, a, b) hlo::multiply(HLO_OF_WARP(name), __LINE__, sums, a, b)
