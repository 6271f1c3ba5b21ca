// c64 and c128: the type, its arithmetic, and its functions. Sums, products and quotients are computed in the type
// itself, as in NumPy. Functions (exponential, log, ...) are computed in double for both types and rounded once,
// like the reference: then no intermediate c64 value overflows, and the logarithm of a number near 1 keeps its
// digits. Infinities, NaNs and signed zeros follow C99, annex G. NVRTC and the host's C++ compiler both read this
// file; device intrinsics are under __CUDA_ARCH__. A line `// @name` starts the definition of a helper, which may
// use the helpers before it.

// @hlo_complex
#ifdef __CUDA_ARCH__
#define HLO_WHOLE(bytes) alignas(bytes)  // one load for both parts
#else
#define HLO_WHOLE(bytes)
#endif
template <typename T> struct HLO_WHOLE(2 * sizeof(T)) hlo_complex {
  T re, im;
  hlo_complex() = default;
  __device__ __forceinline__ hlo_complex(T real, T imaginary = 0) : re(real), im(imaginary) {}
  template <typename U>
  __device__ __forceinline__ explicit hlo_complex(const hlo_complex<U>& other)
      : re(hlo_rounded<T>(other.re)), im(hlo_rounded<T>(other.im)) {}
#ifndef __CUDA_ARCH__
  // part by part: of loops that copy a struct as a whole compilers of CPUs make no vectors
  __device__ __forceinline__ hlo_complex(const hlo_complex& other) : re(other.re), im(other.im) {}
  __device__ __forceinline__ hlo_complex& operator=(const hlo_complex& other) {
    re = other.re;
    im = other.im;
    return *this;
  }
#endif
};
#undef HLO_WHOLE
template <typename T> __device__ __forceinline__ hlo_complex<T> operator-(hlo_complex<T> a) {
  return hlo_complex<T>(-a.re, -a.im);
}
template <typename T> __device__ __forceinline__ hlo_complex<T> operator+(hlo_complex<T> a, hlo_complex<T> b) {
  return hlo_complex<T>(a.re + b.re, a.im + b.im);
}
template <typename T> __device__ __forceinline__ hlo_complex<T> operator-(hlo_complex<T> a, hlo_complex<T> b) {
  return hlo_complex<T>(a.re - b.re, a.im - b.im);
}
template <typename T> __device__ __forceinline__ hlo_complex<T> operator*(hlo_complex<T> a, hlo_complex<T> b) {
  return hlo_complex<T>(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
template <typename T> __device__ __forceinline__ bool operator==(hlo_complex<T> a, hlo_complex<T> b) {
  return a.re == b.re && a.im == b.im;
}
template <typename T> __device__ __forceinline__ bool operator!=(hlo_complex<T> a, hlo_complex<T> b) {
  return !(a == b);
}
// by the real part, then by the imaginary part
template <typename T> __device__ __forceinline__ bool operator>=(hlo_complex<T> a, hlo_complex<T> b) {
  return (a.re > b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im >= b.im);
}
template <typename T> __device__ __forceinline__ bool operator<=(hlo_complex<T> a, hlo_complex<T> b) {
  return (a.re < b.re && a.im == a.im && b.im == b.im) || (a.re == b.re && a.im <= b.im);
}
#if defined(__CUDA_ARCH__) && !defined(__shfl_sync)
// CUDA shuffles real numbers only; the host has macros of its own
template <typename T> __device__ __forceinline__ hlo_complex<T> __shfl_sync(unsigned mask, hlo_complex<T> z, int lane) {
  return hlo_complex<T>(__shfl_sync(mask, z.re, lane), __shfl_sync(mask, z.im, lane));
}
template <typename T>
__device__ __forceinline__ hlo_complex<T> __shfl_down_sync(unsigned mask, hlo_complex<T> z, unsigned lanes) {
  return hlo_complex<T>(__shfl_down_sync(mask, z.re, lanes), __shfl_down_sync(mask, z.im, lanes));
}
template <typename T>
__device__ __forceinline__ hlo_complex<T> __shfl_up_sync(unsigned mask, hlo_complex<T> z, unsigned lanes) {
  return hlo_complex<T>(__shfl_up_sync(mask, z.re, lanes), __shfl_up_sync(mask, z.im, lanes));
}
#endif

// @hlo_bits_128
struct hlo_bits_128 { unsigned long long low, high; };

// @hlo_infinity
template <typename T> __device__ __forceinline__ T hlo_infinity() { return (T)hlo_bit_cast<float>(0x7f800000); }

// @hlo_finite
// infinity minus itself and NaN minus itself are NaN
template <typename T> __device__ __forceinline__ bool hlo_finite(T x) { return x - x == 0; }

// @hlo_infinite
template <typename T> __device__ __forceinline__ bool hlo_infinite(T x) { return x == x && !hlo_finite(x); }

// @hlo_signed
// the magnitude with the sign of the other number
__device__ __forceinline__ float hlo_signed(float magnitude, float sign) { return copysignf(magnitude, sign); }
__device__ __forceinline__ double hlo_signed(double magnitude, double sign) { return copysign(magnitude, sign); }

// @hlo_modulus
// NaN where a part is; no square overflows
__device__ __forceinline__ float hlo_modulus(hlo_complex<float> z) {
  const double x = z.re, y = z.im;
  return hlo_rounded<float>(sqrt(x * x + y * y));
}
__device__ __forceinline__ double hlo_modulus(hlo_complex<double> z) {
  return z.re != z.re || z.im != z.im ? z.re + z.im : hypot(z.re, z.im);
}

// @hlo_direction
// z / |z|, and z where it is 0
template <typename T> __device__ __forceinline__ hlo_complex<T> hlo_direction(hlo_complex<T> z) {
  const T modulus = hlo_modulus(z), divisor = modulus == 0 ? (T)1 : modulus;
  return hlo_complex<T>(z.re / divisor, z.im / divisor);
}

// @hlo_select
// part by part: of a choice between structs compilers of CPUs make branches
template <typename T>
__device__ __forceinline__ hlo_complex<T> hlo_select(bool chosen, hlo_complex<T> a, hlo_complex<T> b) {
  return hlo_complex<T>(chosen ? a.re : b.re, chosen ? a.im : b.im);
}

// @hlo_quotient
// by the larger part of the divisor, so that no square overflows (Smith)
template <typename T> __device__ __forceinline__ hlo_complex<T> hlo_quotient(hlo_complex<T> a, hlo_complex<T> b) {
  const T x = b.re < 0 ? -b.re : b.re, y = b.im < 0 ? -b.im : b.im;
  if (x >= y) {
    if (x == 0) return hlo_complex<T>(a.re / (x + 0), a.im / (x + 0));
    const T ratio = b.im / b.re, scale = (T)1 / (b.re + b.im * ratio);
    return hlo_complex<T>((a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale);
  }
  const T ratio = b.re / b.im, scale = (T)1 / (b.im + b.re * ratio);
  return hlo_complex<T>((a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale);
}

// @hlo_complex_divide
// where zero and infinite parts would give NaN: what C99, annex G.5.1 says
template <typename T> __device__ __forceinline__ hlo_complex<T> hlo_complex_divide(hlo_complex<T> z, hlo_complex<T> w) {
  const hlo_complex<T> exact = hlo_quotient(z, w);
  const bool by_zero = w.re == 0 && w.im == 0;
  if (exact.re == exact.re || exact.im == exact.im)
    if (!by_zero || (hlo_finite(exact.re) && hlo_finite(exact.im))) return exact;
  const T a = z.re, b = z.im, c = w.re, d = w.im, infinity = hlo_infinity<T>();
  if (by_zero && (a == a || b == b)) return hlo_complex<T>(hlo_signed(infinity, c) * a, hlo_signed(infinity, c) * b);
  if ((hlo_infinite(a) || hlo_infinite(b)) && hlo_finite(c) && hlo_finite(d)) {
    const T x = hlo_signed((T)hlo_infinite(a), a), y = hlo_signed((T)hlo_infinite(b), b);
    return hlo_complex<T>(infinity * (x * c + y * d), infinity * (y * c - x * d));
  }
  if ((hlo_infinite(c) || hlo_infinite(d)) && hlo_finite(a) && hlo_finite(b)) {
    const T x = hlo_signed((T)hlo_infinite(c), c), y = hlo_signed((T)hlo_infinite(d), d);
    return hlo_complex<T>((T)0 * (a * x + b * y), (T)0 * (b * x - a * y));
  }
  return exact;
}

// @hlo_exponential
__device__ __forceinline__ hlo_complex<double> hlo_exponential(hlo_complex<double> z) {
  const double x = z.re, y = z.im;
  if (y == 0) return hlo_complex<double>(exp(x), y);
  if (!hlo_finite(y)) {
    if (hlo_infinite(x)) return x < 0 ? hlo_complex<double>(0, copysign(0.0, y)) : hlo_complex<double>(x, y - y);
    return hlo_complex<double>(y - y, y - y);
  }
  if (x != x) return hlo_complex<double>(x, x);
  // in two factors, for exp(x) may overflow where the result does not
  const double first = x > 709.0 ? 8.218407461554972e+307 : 1.0, rest = exp(x > 709.0 ? x - 709.0 : x);
  return hlo_complex<double>(first * cos(y) * rest, first * sin(y) * rest);
}

// @hlo_logarithm
// in parentheses: the logarithm of C, not the lanes' own, as powers count its last digits many times
__device__ __forceinline__ hlo_complex<double> hlo_logarithm(hlo_complex<double> z) {
  double x = fabs(z.re), y = fabs(z.im);
  const double angle = atan2(z.im, z.re);
  if (x < y) { const double other = x; x = y; y = other; }
  if (x != x || y != y)
    return hlo_complex<double>(hlo_infinite(x) || hlo_infinite(y) ? hlo_infinity<double>() : x + y, angle);
  if (x > 0.5 && x < 1.5 && y < 1.5) {  // near 1 the logarithm of the modulus would lose digits
    const double excess = (x - 1.0) * (x + 1.0) + y * y;
    if (fabs(excess) < 0.5) return hlo_complex<double>(0.5 * (log1p)(excess), angle);
  }
  if (x > 8.0e307 && hlo_finite(x))
    return hlo_complex<double>((log)(hypot(x * 0.5, y * 0.5)) + 0.6931471805599453, angle);
  if (x < 1.0e-290)
    return hlo_complex<double>((log)(hypot(x * 18014398509481984.0, y * 18014398509481984.0)) - 37.42994775023705,
                               angle);
  return hlo_complex<double>((log)(hypot(x, y)), angle);
}

// @hlo_logarithm_plus_one
// near 0 by way of |1 + z|^2 - 1
__device__ __forceinline__ hlo_complex<double> hlo_logarithm_plus_one(hlo_complex<double> z) {
  const double excess = z.re * (z.re + 2.0) + z.im * z.im;
  const double real = fabs(excess) < 0.5 ? (log1p)(excess) * 0.5 : (log)(hypot(z.re + 1.0, z.im));
  return hlo_complex<double>(real, atan2(z.im, z.re + 1.0));
}

// @hlo_exponential_minus_one
__device__ __forceinline__ hlo_complex<double> hlo_exponential_minus_one(hlo_complex<double> z) {
  const double half = sin(z.im / 2.0);
  return hlo_complex<double>(expm1(z.re) * cos(z.im) - 2.0 * half * half, exp(z.re) * sin(z.im));
}

// @hlo_square_root
__device__ __forceinline__ hlo_complex<double> hlo_square_root(hlo_complex<double> z) {
  double x = z.re, y = z.im;
  if (hlo_infinite(y)) return hlo_complex<double>(hlo_infinity<double>(), y);
  if (hlo_infinite(x)) {
    if (x > 0) return hlo_complex<double>(x, y != y ? y : copysign(0.0, y));
    return hlo_complex<double>(y != y ? y : 0.0, copysign(hlo_infinity<double>(), y));
  }
  if (x != x || y != y) return hlo_complex<double>(x + y, x + y);
  if (y == 0) return x < 0 ? hlo_complex<double>(0.0, copysign(sqrt(-x), y)) : hlo_complex<double>(fabs(sqrt(x)), y);
  double scale = 1.0;
  if (fabs(x) > 2.0e307 || fabs(y) > 2.0e307) {
    x *= 0.25; y *= 0.25; scale = 2.0;
  } else if (fabs(x) < 1.0e-290 && fabs(y) < 1.0e-290) {
    x *= 18014398509481984.0; y *= 18014398509481984.0; scale = 7.450580596923828e-09;
  }
  const double larger = sqrt(0.5 * (hypot(x, y) + fabs(x))), smaller = 0.5 * (fabs(y) / larger);
  const double real = x > 0 ? larger : smaller, imaginary = x > 0 ? smaller : larger;
  return hlo_complex<double>(real * scale, copysign(imaginary * scale, y));
}

// @hlo_positive_square_root
// an imaginary part of -0 counts as 0, as XLA has it
__device__ __forceinline__ hlo_complex<double> hlo_positive_square_root(hlo_complex<double> z) {
  return hlo_square_root(hlo_complex<double>(z.re, z.im + 0.0));
}

// @hlo_reciprocal_square_root
__device__ __forceinline__ hlo_complex<double> hlo_reciprocal_square_root(hlo_complex<double> z) {
  return hlo_complex_divide(hlo_complex<double>(1.0), hlo_square_root(z));
}

// @hlo_logistic
__device__ __forceinline__ hlo_complex<double> hlo_logistic(hlo_complex<double> z) {
  return hlo_complex_divide(hlo_complex<double>(1.0), hlo_complex<double>(1.0) + hlo_exponential(-z));
}

// @hlo_hyperbolic_sine
__device__ __forceinline__ hlo_complex<double> hlo_hyperbolic_sine(hlo_complex<double> z) {
  const double x = z.re, y = z.im;
  if (!hlo_finite(y)) return hlo_complex<double>(x == 0 ? x : hlo_infinite(x) ? fabs(x) : y - y, y - y);
  if (x != x) return hlo_complex<double>(x, y == 0 ? y : x);
  if (y == 0) return hlo_complex<double>(sinh(x), y);
  if (fabs(x) <= 709.0) return hlo_complex<double>(sinh(x) * cos(y), cosh(x) * sin(y));
  const double half = 4.109203730777486e+307, rest = exp(fabs(x) - 709.0);
  return hlo_complex<double>(copysign(half, x) * cos(y) * rest, half * sin(y) * rest);
}

// @hlo_hyperbolic_cosine
__device__ __forceinline__ hlo_complex<double> hlo_hyperbolic_cosine(hlo_complex<double> z) {
  const double x = z.re, y = z.im;
  if (!hlo_finite(y)) return hlo_complex<double>(hlo_infinite(x) ? fabs(x) : y - y, x == 0 ? 0.0 : y - y);
  if (x != x) return hlo_complex<double>(x, y == 0 ? y : x);
  if (y == 0) return hlo_complex<double>(cosh(x), y * copysign(1.0, x));
  if (fabs(x) <= 709.0) return hlo_complex<double>(cosh(x) * cos(y), sinh(x) * sin(y));
  const double half = 4.109203730777486e+307, rest = exp(fabs(x) - 709.0);
  return hlo_complex<double>(half * cos(y) * rest, copysign(half, x) * sin(y) * rest);
}

// @hlo_hyperbolic_tangent
__device__ __forceinline__ hlo_complex<double> hlo_hyperbolic_tangent(hlo_complex<double> z) {
  const double x = z.re, y = z.im;
  if (hlo_infinite(x)) {
    const double turned = hlo_finite(y) && fabs(y) > 1.0 ? sin(y) * cos(y) : y;
    return hlo_complex<double>(copysign(1.0, x), copysign(0.0, turned));
  }
  if (x != x || !hlo_finite(y)) {
    if (y == 0) return z;
    return hlo_complex<double>(x == 0 ? x : (x + y) - (x + y), (x + y) - (x + y));
  }
  const double s = sin(y), c = cos(y);
  if (fabs(x) > 354.0) {  // the square of cosh would overflow
    const double twice = fabs(x) > 372.0 ? 744.0 : 2.0 * fabs(x);
    return hlo_complex<double>(copysign(1.0, x), fabs(x) > 380.0 ? copysign(0.0, s * c) : 4.0 * s * c * exp(-twice));
  }
  const double sh = sinh(x), ch = cosh(x), divisor = sh * sh + c * c;
  return hlo_complex<double>(sh * ch / divisor, s * c / divisor);
}

// @hlo_sine
// -i sinh(iz)
__device__ __forceinline__ hlo_complex<double> hlo_sine(hlo_complex<double> z) {
  const hlo_complex<double> turned = hlo_hyperbolic_sine(hlo_complex<double>(-z.im, z.re));
  // the sign of an infinite part is open where the angle is no number
  return hlo_complex<double>(turned.im, hlo_finite(z.re) || !hlo_infinite(z.im) ? -turned.re : turned.re);
}

// @hlo_cosine
// cosh(iz)
__device__ __forceinline__ hlo_complex<double> hlo_cosine(hlo_complex<double> z) {
  return hlo_hyperbolic_cosine(hlo_complex<double>(-z.im, z.re));
}

// @hlo_tangent
// -i tanh(iz)
__device__ __forceinline__ hlo_complex<double> hlo_tangent(hlo_complex<double> z) {
  const hlo_complex<double> turned = hlo_hyperbolic_tangent(hlo_complex<double>(-z.im, z.re));
  return hlo_complex<double>(turned.im, -turned.re);
}

// @hlo_complex_multiply
// where both parts would be NaN though a part of a factor is infinite: what C99, annex G.5.1 says
__device__ __forceinline__ hlo_complex<double> hlo_complex_multiply(hlo_complex<double> z, hlo_complex<double> w) {
  const hlo_complex<double> exact = z * w;
  if (exact.re == exact.re || exact.im == exact.im) return exact;
  double a = z.re, b = z.im, c = w.re, d = w.im;
  const bool first = hlo_infinite(a) || hlo_infinite(b), second = hlo_infinite(c) || hlo_infinite(d);
  const bool between = hlo_infinite(a * c) || hlo_infinite(b * d) || hlo_infinite(a * d) || hlo_infinite(b * c);
  if (!first && !second && !between) return exact;
  if (first) { a = copysign((double)hlo_infinite(a), a); b = copysign((double)hlo_infinite(b), b); }
  if (second) { c = copysign((double)hlo_infinite(c), c); d = copysign((double)hlo_infinite(d), d); }
  if (a != a) a = copysign(0.0, a);
  if (b != b) b = copysign(0.0, b);
  if (c != c) c = copysign(0.0, c);
  if (d != d) d = copysign(0.0, d);
  return hlo_complex<double>(hlo_infinity<double>() * (a * c - b * d), hlo_infinity<double>() * (a * d + b * c));
}

// @hlo_complex_power
// whole exponents below 100 by squaring, others by way of the logarithm; 0 only has powers whose exponent is real and
// not negative
__device__ __forceinline__ hlo_complex<double> hlo_complex_power(hlo_complex<double> a, hlo_complex<double> b) {
  const hlo_complex<double> one(1.0);
  if (b.re == 0 && b.im == 0) return one;
  if (a.re == 0 && a.im == 0) {
    if (b.im == 0 && b.re > 0) return hlo_complex<double>(0.0);
    const double infinity = hlo_infinity<double>();
    return hlo_complex<double>(infinity - infinity, infinity - infinity);
  }
  if (b.im == 0 && b.re > -100.0 && b.re < 100.0 && b.re == (int)b.re) {
    int rest = (int)b.re;
    if (rest == 1) return a;
    if (rest == 2) return a * a;
    if (rest == 3) return a * (a * a);
    if (rest < 0) rest = -rest;
    hlo_complex<double> result = one, square = a;
    for (;;) {
      if (rest & 1) result = result * square;
      rest >>= 1;
      if (rest == 0) break;
      square = square * square;
    }
    return b.re < 0 ? hlo_quotient(one, result) : result;
  }
  return hlo_exponential(hlo_complex_multiply(b, hlo_logarithm(a)));
}

// @hlo_complex_atan2
// -i log((x + iy) / sqrt(x^2 + y^2))
__device__ __forceinline__ hlo_complex<double> hlo_complex_atan2(hlo_complex<double> y, hlo_complex<double> x) {
  const hlo_complex<double> i(0.0, 1.0);
  return hlo_complex<double>(-0.0, -1.0) * hlo_logarithm(hlo_quotient(x + i * y, hlo_square_root(x * x + y * y)));
}
