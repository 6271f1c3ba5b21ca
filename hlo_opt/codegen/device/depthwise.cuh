// Convolutions of each feature by a window of its own. NVRTC and the host's C++ compiler both read this file. A line
// `// @name` starts the definition of a helper, which may use the helpers before it.

// @hlo_side
// a spatial dimension: elements of image and result, taps, stride, padding before, dilation of the kernel and of the
// image, and elements of the kernel from one tap to the next
struct hlo_side { int image, result, taps, stride, low, dilation, base, step; };

// @hlo_place
// the element of the image at a tap of the window of a result; a negative number where there is none
__device__ __forceinline__ int hlo_place(hlo_side side, int result, int tap) {
  const int at = result * side.stride - side.low + tap * side.dilation;
  return at >= 0 && at % side.base == 0 && at / side.base < side.image ? at / side.base : -1;
}

// @hlo_tile
// features, elements of the kernel from one to the next, and what a block has: vectors of features, rows, and strips
struct hlo_tile { int features, step, vectors, rows, strips; };

// @hlo_neighbours
// neighbouring elements that move together: arrays begin at multiples of 16 bytes, and no access is wider
template <typename T, int count>
struct __align__(sizeof(T) * count < 16 ? sizeof(T) * count : 16) hlo_neighbours { T elements[count]; };

// @hlo_widened
template <typename T> __device__ __forceinline__ float hlo_widened(T bits, bool is_bf16) {
  return is_bf16 ? hlo_load_bf16(bits) : hlo_load_f16(bits);
}
__device__ __forceinline__ float hlo_widened(float x, bool) { return x; }
__device__ __forceinline__ double hlo_widened(double x, bool) { return x; }

// @hlo_read
// neighbouring elements that are read at once, and each of them widened; bf16 in pairs: the upper half of a register is
// its place in an f32
template <bool in_pairs, typename T, int count> struct hlo_read {
  hlo_neighbours<T, count> stored;
  __device__ __forceinline__ T bits(int k) const { return stored.elements[k]; }
};
template <typename T, int count> struct hlo_read<true, T, count> {
  hlo_neighbours<unsigned int, count / 2> stored;
  __device__ __forceinline__ float bits(int k) const { return hlo_half_bf16(stored.elements[k / 2], k % 2); }
};

// @hlo_narrowed
__device__ __forceinline__ void hlo_narrowed(unsigned short& to, float x, bool is_bf16) {
  to = is_bf16 ? hlo_store_bf16(x) : hlo_store_f16(x);
}
__device__ __forceinline__ void hlo_narrowed(float& to, float x, bool) { to = x; }
__device__ __forceinline__ void hlo_narrowed(double& to, double x, bool) { to = x; }

// @hlo_fused
__device__ __forceinline__ float hlo_fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double hlo_fused(double a, double b, double c) { return fma(a, b, c); }

// @hlo_depthwise
// A thread has `across` neighbouring results along the last spatial dimension, of `vector` features. It reads each of
// its columns of the image, the first of which is `first_column`, once for each row of the window, as one vector, and
// adds it to all results that need it.
template <bool is_bf16, int vector, int first_column, int columns, int low, int base, int across, int taps, int stride,
          int dilation, int rows_at_once, typename Wide, typename T, typename R>
__device__ __forceinline__ void hlo_depthwise(const T* image, const T* kernel, R* result, hlo_side depth, hlo_side row,
                                              hlo_side column, hlo_tile tile) {
  typedef hlo_read<is_bf16 && vector % 2 == 0, T, vector> read_type;
  const int chunks = (tile.features / vector + tile.vectors - 1) / tile.vectors;
  const int row_tiles = (row.result + tile.rows - 1) / tile.rows;
  const int strips = (column.result + across - 1) / across, strip_tiles = (strips + tile.strips - 1) / tile.strips;
  int thread = threadIdx.x, block = blockIdx.x;
  const int feature = (block % chunks * tile.vectors + thread % tile.vectors) * vector;
  thread /= tile.vectors;
  block /= chunks;
  const int x = (block % strip_tiles * tile.strips + thread / tile.rows) * across;
  block /= strip_tiles;
  const int y = block % row_tiles * tile.rows + thread % tile.rows;
  block /= row_tiles;
  const int z = block % depth.result, batch = block / depth.result;
  if (feature >= tile.features || x >= column.result || y >= row.result) return;
  Wide sums[across][vector] = {};
  for (int a = 0; a < depth.taps; ++a) {
    const int slice = hlo_place(depth, z, a);
    if (slice < 0) continue;
#pragma unroll rows_at_once
    for (int b = 0; b < row.taps; ++b) {
      const int line = hlo_place(row, y, b), begin = x * stride / base + first_column;
      if (line < 0) continue;
      const T* factors = kernel + (a * depth.step + b * row.step + feature * tile.step);
      Wide factor[taps][vector];
#pragma unroll
      for (int c = 0; c < taps; ++c) {
        if (tile.step == 1) {
          const read_type read = *(const read_type*)(factors + c * column.step);
#pragma unroll
          for (int k = 0; k < vector; ++k) factor[c][k] = hlo_widened(read.bits(k), is_bf16);
        } else {
#pragma unroll
          for (int k = 0; k < vector; ++k) {
            factor[c][k] = hlo_widened(factors[c * column.step + k * tile.step], is_bf16);
          }
        }
      }
      const int start = ((batch * depth.image + slice) * row.image + line) * column.image;
#pragma unroll
      for (int j = 0; j < columns; ++j) {
        read_type read = {};
        if ((unsigned int)(begin + j) < (unsigned int)column.image) {
          read = *(const read_type*)(image + (start + begin + j) * tile.features + feature);
        }
#pragma unroll
        for (int c = 0; c < taps; ++c) {
          const int at = (first_column + j) * base + low - c * dilation;
          if (at < 0 || at % stride != 0 || at / stride >= across) continue;
#pragma unroll
          for (int k = 0; k < vector; ++k) {
            sums[at / stride][k] = hlo_fused(hlo_widened(read.bits(k), is_bf16), factor[c][k], sums[at / stride][k]);
          }
        }
      }
    }
  }
  R* to = result + ((batch * depth.result + z) * row.result + y) * column.result * tile.features + feature;
#pragma unroll
  for (int s = 0; s < across; ++s) {
    if (x + s < column.result) {
      hlo_neighbours<R, vector> written;
#pragma unroll
      for (int k = 0; k < vector; ++k) hlo_narrowed(written.elements[k], sums[s][k], is_bf16);
      *(hlo_neighbours<R, vector>*)(to + (x + s) * tile.features) = written;
    }
  }
}

// @hlo_depthwise_features_first
// The same with features first: `wide` neighbouring elements of a line of the image are read at once, the first of them
// `before` elements before the first result of the thread, and `whole` results are written at once.
template <bool is_bf16, int wide, int whole, int before, int low, int across, int taps, int stride, int dilation,
          int rows_at_once, typename Wide, typename T, typename R>
__device__ __forceinline__ void hlo_depthwise_features_first(const T* image, const T* kernel, R* result,
                                                             hlo_side depth, hlo_side row, hlo_side column,
                                                             hlo_tile tile) {
  typedef hlo_read<is_bf16 && wide % 2 == 0, T, wide> read_type;
  constexpr int reads = (before - low + (across - 1) * stride + (taps - 1) * dilation) / wide + 1;
  const int strips = (column.result + across - 1) / across, strip_tiles = (strips + tile.strips - 1) / tile.strips;
  const int row_tiles = (row.result + tile.rows - 1) / tile.rows;
  const int chunks = (tile.features + tile.vectors - 1) / tile.vectors;
  int thread = threadIdx.x, block = blockIdx.x;
  const int x = (block % strip_tiles * tile.strips + thread % tile.strips) * across;
  thread /= tile.strips;
  block /= strip_tiles;
  const int y = block % row_tiles * tile.rows + thread % tile.rows;
  block /= row_tiles;
  const int feature = block % chunks * tile.vectors + thread / tile.rows;
  block /= chunks;
  const int z = block % depth.result, plane = block / depth.result * tile.features + feature;
  if (feature >= tile.features || x >= column.result || y >= row.result) return;
  Wide sums[across] = {};
  for (int a = 0; a < depth.taps; ++a) {
    const int slice = hlo_place(depth, z, a);
    if (slice < 0) continue;
#pragma unroll rows_at_once
    for (int b = 0; b < row.taps; ++b) {
      const int line = hlo_place(row, y, b), begin = x * stride - before;
      if (line < 0) continue;
      const T* factors = kernel + (a * depth.step + b * row.step + feature * tile.step);
      Wide factor[taps];
#pragma unroll
      for (int c = 0; c < taps; ++c) factor[c] = hlo_widened(factors[c * column.step], is_bf16);
      const T* start = image + ((plane * depth.image + slice) * row.image + line) * column.image;
#pragma unroll
      for (int r = 0; r < reads; ++r) {
        read_type read = {};
        if ((unsigned int)(begin + r * wide) < (unsigned int)column.image) {
          read = *(const read_type*)(start + (begin + r * wide));
        }
#pragma unroll
        for (int k = 0; k < wide; ++k) {
#pragma unroll
          for (int c = 0; c < taps; ++c) {
            const int at = r * wide + k - (before - low) - c * dilation;
            if (at < 0 || at % stride != 0 || at / stride >= across) continue;
            sums[at / stride] = hlo_fused(hlo_widened(read.bits(k), is_bf16), factor[c], sums[at / stride]);
          }
        }
      }
    }
  }
  R* to = result + ((plane * depth.result + z) * row.result + y) * column.result;
#pragma unroll
  for (int s = 0; s < across; s += whole) {
    if (x + s < column.result) {
      hlo_neighbours<R, whole> written;
#pragma unroll
      for (int k = 0; k < whole; ++k) hlo_narrowed(written.elements[k], sums[s + k], is_bf16);
      *(hlo_neighbours<R, whole>*)(to + (x + s)) = written;
    }
  }
}
