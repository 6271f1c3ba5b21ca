// CartPole as one writes it by hand: a thread holds the states of PER_THREAD environments in registers and runs all
// steps of them. The arithmetic is that of scripts/programs/cartpole.py, in the same order.
struct State {
  float x, v, angle, spin;
};

__device__ __forceinline__ State advance(State s, float force) {
  float sine, cosine;
  sincosf(s.angle, &sine, &cosine);
  const float push = (force + 0.05f * (s.spin * s.spin) * sine) / 1.1f;
  const float inertia = 0.5f * (1.3333334f - 0.1f * (cosine * cosine) / 1.1f);
  const float turning = (9.8f * sine - cosine * push) / inertia;
  const float pulling = push - 0.05f * turning * cosine / 1.1f;
  return {s.x + 0.02f * s.v, s.v + 0.02f * pulling, s.angle + 0.02f * s.spin, s.spin + 0.02f * turning};
}

__device__ __forceinline__ bool is_over(State s) {
  return s.x < -2.4f || s.x > 2.4f || s.angle < -0.20943952f || s.angle > 0.20943952f;
}

__device__ __forceinline__ State read(const float4* from, long long at) {
  const float4 f = from[at];
  return {f.x, f.y, f.z, f.w};
}

__device__ __forceinline__ void write(float4* to, long long at, State s) { to[at] = make_float4(s.x, s.v, s.angle, s.spin); }

__device__ __forceinline__ unsigned int turned(unsigned int word, int bits) { return word << bits | word >> (32 - bits); }

// Threefry-2x32 with 20 rounds
__device__ __forceinline__ uint2 drawn(uint2 key, unsigned int high, unsigned int low) {
  const unsigned int keys[3] = {key.x, key.y, key.x ^ key.y ^ 0x1BD11BDAu};
  const int bits[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  unsigned int a = high + keys[0], b = low + keys[1];
#pragma unroll
  for (int group = 0; group < 5; ++group) {
#pragma unroll
    for (int round = 0; round < 4; ++round) {
      a += b;
      b = turned(b, bits[group % 2][round]) ^ a;
    }
    a += keys[(group + 1) % 3];
    b += keys[(group + 2) % 3] + group + 1;
  }
  return make_uint2(a, b);
}

__device__ __forceinline__ float uniform(uint2 key, unsigned int at) {  // in [0, 1)
  const uint2 words = drawn(key, 0, at);
  return __uint_as_float((words.x ^ words.y) >> 9 | 0x3F800000u) - 1.0f;
}

__device__ __forceinline__ float near_rest(uint2 key, unsigned int at) {
  return fmaxf(-0.05f, uniform(key, at) * 0.1f + -0.05f);
}

#define FIRST (blockIdx.x * blockDim.x + threadIdx.x)
#define STRIDE (gridDim.x * blockDim.x)

// Under a controller; only the last state leaves the kernel.
extern "C" __global__ void controlled(const float4* __restrict__ start, float4* __restrict__ last, int n, int steps) {
  State s[PER_THREAD];
#pragma unroll
  for (int k = 0; k < PER_THREAD; ++k) s[k] = read(start, FIRST + k * STRIDE < n ? FIRST + k * STRIDE : 0);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int k = 0; k < PER_THREAD; ++k) {
      const float lean = 20.0f * s[k].angle + 4.0f * s[k].spin;
      s[k] = advance(s[k], fminf(10.0f, fmaxf(-10.0f, lean + s[k].x + 2.0f * s[k].v)));
    }
  }
#pragma unroll
  for (int k = 0; k < PER_THREAD; ++k)
    if (FIRST + k * STRIDE < n) write(last, FIRST + k * STRIDE, s[k]);
}

// Actions and the states to start again from come as arrays.
extern "C" __global__ void joined(const float4* __restrict__ start, const int* __restrict__ actions,
                                  const float4* __restrict__ fresh, float4* __restrict__ last,
                                  float* __restrict__ rewards, int n, int steps) {
  State s[PER_THREAD];
  int own[PER_THREAD];
#pragma unroll
  for (int k = 0; k < PER_THREAD; ++k) {
    own[k] = FIRST + k * STRIDE < n ? FIRST + k * STRIDE : 0;
    s[k] = read(start, own[k]);
  }
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const long long row = (long long)step * n;
#pragma unroll
    for (int k = 0; k < PER_THREAD; ++k) {
      const State again = read(fresh, row + own[k]);
      s[k] = advance(s[k], actions[row + own[k]] == 1 ? 10.0f : -10.0f);
      const bool over = is_over(s[k]);
      if (over) s[k] = again;
      if (FIRST + k * STRIDE < n) rewards[row + own[k]] = over ? 0.0f : 1.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < PER_THREAD; ++k)
    if (FIRST + k * STRIDE < n) write(last, own[k], s[k]);
}

// Actions and fresh states are drawn on the way, the latter only where they are wanted.
extern "C" __global__ void random_(const float4* __restrict__ start, const uint2* __restrict__ first,
                                   float4* __restrict__ last, uint2* __restrict__ next, float* __restrict__ rewards,
                                   int n, int steps) {
  State s[PER_THREAD];
  uint2 key = *first;
#pragma unroll
  for (int k = 0; k < PER_THREAD; ++k) s[k] = read(start, FIRST + k * STRIDE < n ? FIRST + k * STRIDE : 0);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const uint2 choose = drawn(key, 0, 1), draw = drawn(key, 0, 2);
    key = drawn(key, 0, 0);
#pragma unroll
    for (int k = 0; k < PER_THREAD; ++k) {
      const int own = FIRST + k * STRIDE;
      s[k] = advance(s[k], uniform(choose, own) < 0.5f ? 10.0f : -10.0f);
      const bool over = is_over(s[k]);
      if (over)
        s[k] = {near_rest(draw, 4 * own), near_rest(draw, 4 * own + 1), near_rest(draw, 4 * own + 2),
                near_rest(draw, 4 * own + 3)};
      if (own < n) rewards[(long long)step * n + own] = over ? 0.0f : 1.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < PER_THREAD; ++k)
    if (FIRST + k * STRIDE < n) write(last, FIRST + k * STRIDE, s[k]);
  if (FIRST == 0) *next = key;
}
