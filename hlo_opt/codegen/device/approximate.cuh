// Functions for which a GPU has a cheaper instruction that is accurate enough for the type of the result.
// `ops/elementwise/math.py` has their errors, from the PTX ISA ("Floating Point Instructions"). Under HLO_PRECISE,
// and on the host, they are the exact functions. A line `// @name` starts the definition of a helper, which may use
// the helpers before it.

// @hlo_rsqrt
__device__ __forceinline__ float hlo_rsqrt(float x) {
#if defined(__CUDA_ARCH__) && !defined(HLO_PRECISE)
  return rsqrtf(x);
#else
  return 1.0f / sqrtf(x);
#endif
}

// @hlo_exp_narrow
// of what is rounded to bf16 or f16
__device__ __forceinline__ float hlo_exp_narrow(float x) {
#if defined(__CUDA_ARCH__) && !defined(HLO_PRECISE)
  float r;  // of half of it, which is no denormal number where the square is one: without `ftz` each takes four
            // instructions more
  HLO_PTX_1("ex2.approx.ftz.f32", r, "f", x * 0.72134752f, "f");
  return r * r;
#else
  return expf(x);
#endif
}

// @hlo_divide_narrow
// of what is rounded to bf16 or f16. Where the divisor or its reciprocal is no normal number, both are scaled; all but
// two products is of the divisor alone
__device__ __forceinline__ float hlo_divide_narrow(float a, float b) {
#if defined(__CUDA_ARCH__) && !defined(HLO_PRECISE)
  const float size = fabsf(b), scale = size > 8.50705917e+37f ? 0.25f : size < 1.17549435e-38f ? 16777216.0f : 1.0f;
  float r;
  HLO_PTX_1("rcp.approx.ftz.f32", r, "f", b * scale, "f");
  return a * scale * r;
#else
  return a / b;
#endif
}

// @hlo_logistic_narrow
// of what is rounded to bf16 or f16
__device__ __forceinline__ float hlo_logistic_narrow(float x) {
#if defined(__CUDA_ARCH__) && !defined(HLO_PRECISE)
  float r;  // beside 1, a denormal number is nothing
  HLO_PTX_1("ex2.approx.ftz.f32", r, "f", x * -1.44269504f, "f");
  return 1.0f / (1.0f + r);
#else
  return 1.0f / (1.0f + expf(-(x)));
#endif
}

// @hlo_log_bf16
// of a bf16, of which none is so near to 1 that the absolute error of lg2.approx counts
__device__ __forceinline__ float hlo_log_bf16(float x) {
#if defined(__CUDA_ARCH__) && !defined(HLO_PRECISE)
  float r;
  HLO_PTX_1("lg2.approx.f32", r, "f", x, "f");
  return r * 0.693147181f;
#else
  return logf(x);
#endif
}

// @hlo_tanh_bf16
// of what is rounded to bf16
__device__ __forceinline__ float hlo_tanh_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750 && !defined(HLO_PRECISE)
  float r;
  HLO_PTX_1("tanh.approx.f32", r, "f", x, "f");
  return r;
#else
  return tanhf(x);
#endif
}
