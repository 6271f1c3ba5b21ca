// Discrete Fourier transforms of lines of an array, for `host_routine.h`. Lines lie side by side in vectors, so that
// all of them go through the same passes (Stockham's, one for each factor of the length) whatever the factors are. A
// line that is long, or has too few beside it, is a matrix: its columns are transformed, turned, and then its rows.
// Real lines of even length are complex lines of half of it.
#pragma once

// hlo_opt/runtime/host/own_calls.py has the same
enum Direction : Word { forward, backward, forward_real, backward_real };

static const int most_passes = 32;
static const Word longest_line = 4096;

template <typename T> struct Transformer {
static const int lanes = vector_bytes / sizeof(T);
typedef T Lanes __attribute__((vector_size(vector_bytes), aligned(sizeof(T))));

struct Complex { T real, imaginary; };
struct Complexes { Lanes real, imaginary; };  // of lines side by side

static inline Complexes product(Complexes a, Complex w) {
  return {a.real * w.real - a.imaginary * w.imaginary, a.real * w.imaginary + a.imaginary * w.real};
}
static inline Complexes sum(Complexes a, Complexes b) { return {a.real + b.real, a.imaginary + b.imaginary}; }
static inline Complexes difference(Complexes a, Complexes b) { return {a.real - b.real, a.imaginary - b.imaginary}; }
static inline Complexes scaled(Complexes a, T by) { return {a.real * by, a.imaginary * by}; }

// exp(-2 pi i k / n), from an angle of at most an eighth of a turn
static Complex root(Word k, Word n) {
  k %= n;
  const Word quarter = (k * 8 / n + 1) / 2;  // the nearest quarter turn
  const double angle = 6.283185307179586476925 * ((double)(4 * k - quarter * n) / (double)(4 * n));
  const double c = cos(angle), s = sin(angle);
  switch (quarter & 3) {
    case 0: return {(T)c, (T)-s};
    case 1: return {(T)-s, (T)-c};
    case 2: return {(T)-c, (T)s};
    default: return {(T)s, (T)c};
  }
}

// what transforms of a length need; kept for good
struct Plan {
  Word length, passes, factors[most_passes];
  Complex* turns;   // of all passes, one after another
  Complex* roots;   // of each factor without formulas of its own, one after another
  Word rows;       // of the line as a matrix; 1: no matrix
  Complex* across;  // what an element of that matrix is turned by, between its columns and its rows
  Plan* next;
};

static inline bool has_formulas(Word factor) { return factor <= 5; }

// false without memory
static bool fill(Plan* plan, Word length) {
  Word rest = length, turns = 0, roots = 0;
  plan->length = length;
  plan->rows = 1;
  for (Word factor = 4; rest > 1;) {
    if (rest % factor) {
      factor = factor == 4 ? 2 : factor == 2 ? 3 : factor + 2;
      continue;
    }
    plan->factors[plan->passes++] = factor;
    rest /= factor;
    turns += rest * (factor - 1);
    roots += has_formulas(factor) ? 0 : factor;
  }
  Complex* turn = plan->turns = (Complex*)malloc((size_t)(turns + 1) * sizeof(Complex));
  Complex* at = plan->roots = (Complex*)malloc((size_t)(roots + 1) * sizeof(Complex));
  if (!turn || !at) return false;
  rest = length;
  for (Word k = 0; k < plan->passes; ++k) {
    const Word factor = plan->factors[k];
    for (Word p = 0; p < rest / factor; ++p)
      for (Word j = 1; j < factor; ++j) *turn++ = root(p * j, rest);
    for (Word j = 0; !has_formulas(factor) && j < factor; ++j) *at++ = root(j, factor);
    rest /= factor;
  }
  return true;
}

// the divisor of a length nearest below its root
static Word rows_of(Word length) {
  Word rows = 1;
  for (Word d = 2; d * d <= length; ++d)
    if (length % d == 0) rows = d;
  return rows;
}

// null without memory
static const Plan* plan_of(Word length, bool as_matrix) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static Plan* plans = 0;
  pthread_mutex_lock(&lock);
  Plan* plan = plans;
  while (plan && (plan->length != length || (plan->rows > 1) != as_matrix)) plan = plan->next;
  if (!plan && (plan = (Plan*)calloc(1, sizeof(Plan)))) {
    bool fine = true;
    if (as_matrix) {
      plan->length = length;
      plan->rows = rows_of(length);
      plan->across = (Complex*)malloc((size_t)length * sizeof(Complex));
      fine = plan->across != 0;
      const Word columns = length / plan->rows;
      for (Word k = 0; fine && k < length; ++k) plan->across[k] = root(k / columns * (k % columns), length);
    } else {
      fine = fill(plan, length);
    }
    if (fine) {
      plan->next = plans;
      plans = plan;
    } else {
      free(plan->turns), free(plan->roots), free(plan->across), free(plan);
      plan = 0;
    }
  }
  pthread_mutex_unlock(&lock);
  return plan;
}

// ---- passes over lines side by side

template <int factor> static inline void combine(Complexes* a) {
  if (factor == 2) {
    const Complexes one = a[0], two = a[1];
    a[0] = sum(one, two), a[1] = difference(one, two);
  } else if (factor == 3) {
    const Complexes both = sum(a[1], a[2]), apart = scaled(difference(a[1], a[2]), T(0.86602540378443864676));
    const Complexes middle = sum(a[0], scaled(both, T(-0.5)));
    a[0] = sum(a[0], both);
    a[1] = {middle.real + apart.imaginary, middle.imaginary - apart.real};
    a[2] = {middle.real - apart.imaginary, middle.imaginary + apart.real};
  } else if (factor == 4) {
    const Complexes even = sum(a[0], a[2]), odd = sum(a[1], a[3]);
    const Complexes first = difference(a[0], a[2]), second = difference(a[1], a[3]);
    a[0] = sum(even, odd), a[2] = difference(even, odd);
    a[1] = {first.real + second.imaginary, first.imaginary - second.real};
    a[3] = {first.real - second.imaginary, first.imaginary + second.real};
  } else {
    const T c1 = T(0.30901699437494742410), c2 = T(-0.80901699437494742410);
    const T s1 = T(0.95105651629515357212), s2 = T(0.58778525229247312917);
    const Complexes near = sum(a[1], a[4]), far = sum(a[2], a[3]);
    const Complexes nears = difference(a[1], a[4]), fars = difference(a[2], a[3]);
    const Complexes one = sum(a[0], sum(scaled(near, c1), scaled(far, c2)));
    const Complexes two = sum(a[0], sum(scaled(near, c2), scaled(far, c1)));
    const Complexes first = sum(scaled(nears, s1), scaled(fars, s2));
    const Complexes second = difference(scaled(nears, s2), scaled(fars, s1));
    a[0] = sum(a[0], sum(near, far));
    a[1] = {one.real + first.imaginary, one.imaginary - first.real};
    a[4] = {one.real - first.imaginary, one.imaginary + first.real};
    a[2] = {two.real + second.imaginary, two.imaginary - second.real};
    a[3] = {two.real - second.imaginary, two.imaginary + second.real};
  }
}

// `count` groups, in each `stride` transforms of `factor` elements
template <int factor>
HLO_APART static const Complex* pass(
    const Complexes* from, Complexes* to, Word count, Word stride, const Complex* turns) {
  for (Word p = 0; p < count; ++p, turns += factor - 1)
    for (Word q = 0; q < stride; ++q) {
      Complexes a[factor];
      for (int j = 0; j < factor; ++j) a[j] = from[q + stride * (p + count * j)];
      combine<factor>(a);
      Complexes* const at = to + q + stride * (factor * p);
      at[0] = a[0];
      for (int j = 1; j < factor; ++j) at[stride * j] = count == 1 ? a[j] : product(a[j], turns[j - 1]);
    }
  return turns;
}

// the same for a factor by the definition
HLO_APART static const Complex* plain_pass(const Complexes* from, Complexes* to, Word count, Word stride,
                                          const Complex* turns, Word factor, const Complex* roots) {
  for (Word p = 0; p < count; ++p, turns += factor - 1)
    for (Word q = 0; q < stride; ++q) {
      const Complexes* const a = from + q + stride * p;
      for (Word k = 0; k < factor; ++k) {
        Complexes all = a[0];
        for (Word j = 1, at = k; j < factor; ++j, at += at + k < factor ? k : k - factor)
          all = sum(all, product(a[stride * count * j], roots[at]));
        to[q + stride * (factor * p + k)] = k ? product(all, turns[k - 1]) : all;
      }
    }
  return turns;
}

// the transforms of lines in `held`, with as much memory behind them; where they are then
static Complexes* transform(const Plan* plan, Complexes* held) {
  Complexes* other = held + plan->length;
  const Complex *turns = plan->turns, *roots = plan->roots;
  Word count = plan->length, stride = 1;
  for (Word k = 0; k < plan->passes; ++k) {
    const Word factor = plan->factors[k];
    count /= factor;
    switch (factor) {
      case 2: turns = pass<2>(held, other, count, stride, turns); break;
      case 3: turns = pass<3>(held, other, count, stride, turns); break;
      case 4: turns = pass<4>(held, other, count, stride, turns); break;
      case 5: turns = pass<5>(held, other, count, stride, turns); break;
      default: turns = plain_pass(held, other, count, stride, turns, factor, roots), roots += factor;
    }
    stride *= factor;
    std::swap(held, other);
  }
  return held;
}

// ---- lines of an array

// where lines lie, in complex numbers: groups of them, lines of a group, and elements of a line are so far apart
struct Side {
  Complex* at;
  Word group, line, element;
};

struct Lines {
  const Plan* plan;
  Side from, to;
  Word groups, count;    // groups, and lines of each
  bool backward;
  T scale;
  const Complex* across;  // turns of the results: lines of an element lie one after another; or null
  bool failed;
};

static inline void load(
    const Complex* from, Word here, Word line, Word element, bool swapped, Word n, Complexes* held) {
  for (Word e = 0; e < n; ++e, from += element) {
    T real[lanes] = {}, imaginary[lanes] = {};
    if (line == 1 && here == lanes) {
      for (int l = 0; l < lanes; ++l) real[l] = from[l].real, imaginary[l] = from[l].imaginary;
    } else {
      for (Word l = 0; l < here; ++l) real[l] = from[l * line].real, imaginary[l] = from[l * line].imaginary;
    }
    const Complexes loaded = {*(const Lanes*)real, *(const Lanes*)imaginary};
    held[e] = swapped ? Complexes{loaded.imaginary, loaded.real} : loaded;
  }
}

static inline void store(const Complexes* values, Word here, Word line, Word element, bool swapped, T scale, Word n,
                         Complex* to) {
  for (Word e = 0; e < n; ++e, to += element) {
    const Complexes scaled = swapped ? Complexes{values[e].imaginary * scale, values[e].real * scale} : values[e];
    T real[lanes], imaginary[lanes];
    *(Lanes*)real = scaled.real, *(Lanes*)imaginary = scaled.imaginary;
    if (line == 1 && here == lanes) {
      for (int l = 0; l < lanes; ++l) to[l] = {real[l], imaginary[l]};
    } else {
      for (Word l = 0; l < here; ++l) to[l * line] = {real[l], imaginary[l]};
    }
  }
}

// as many lines as a vector has lanes, from `begin` up to `end`; the face of a kernel's launcher
static int transform_lines(void** argument, Word begin, Word end) {
  Lines* const all = (Lines*)argument;
  const Word n = all->plan->length, pieces = (all->count + lanes - 1) / lanes;
  Complexes* memory = 0;
  if (posix_memalign((void**)&memory, 64, (size_t)(2 * n) * sizeof(Complexes))) {
    all->failed = true;
    return 0;
  }
  for (Word b = begin; b < end; ++b) {
    const Word group = b / pieces, first = b % pieces * lanes;
    const Word here = all->count - first < lanes ? all->count - first : lanes;
    const Side *const from = &all->from, *const to = &all->to;
    const Complex* const source = from->at + group * from->group + first * from->line;
    load(source, here, from->line, from->element, all->backward, n, memory);
    Complexes* const result = transform(all->plan, memory);
    for (Word e = 0; all->across && e < n; ++e) {
      Complexes turn = {};
      load(all->across + e * all->count + first, here, 1, 1, false, 1, &turn);
      result[e] = {result[e].real * turn.real - result[e].imaginary * turn.imaginary,
                 result[e].real * turn.imaginary + result[e].imaginary * turn.real};
    }
    store(result, here, to->line, to->element, all->backward, all->scale, n,
          to->at + group * to->group + first * to->line);
  }
  free(memory);
  return 0;
}

// false without memory
static bool run(Lines* all, int processors) {
  const Word pieces = all->groups * ((all->count + lanes - 1) / lanes);
  launch(transform_lines, (void**)all, pieces, pieces * lanes * all->plan->length > 1 << 13 ? processors : 1);
  return !all->failed;
}

// lines of an array; source and result may be the same. False without memory
static bool transform_side(Word n, Side from, Side to, Word groups, Word count, bool backward, T scale,
                           int processors) {
  const Word rows = rows_of(n), columns = n / rows;
  if (rows == 1 || (n <= longest_line && (count >= lanes || n < 2 * lanes * lanes))) {
    const Plan* const plan = plan_of(n, false);
    Lines all = {plan, from, to, groups, count, backward, scale, 0, false};
    return plan && run(&all, processors);
  }
  const Plan *const whole = plan_of(n, true), *const down = plan_of(rows, false);
  const Plan* const along = plan_of(columns, false);
  Complex* const memory = (Complex*)malloc((size_t)n * sizeof(Complex));
  bool fine = whole && down && along && memory;
  for (Word line = 0; fine && line < groups * count; ++line) {
    Complex* const source = from.at + line / count * from.group + line % count * from.line;
    Complex* const result = to.at + line / count * to.group + line % count * to.line;
    Lines first = {down, {source, 0, from.element, columns * from.element}, {memory, 0, 1, columns}, 1, columns,
                   backward, T(1), whole->across, false};
    Lines second = {along, {memory, 0, columns, 1}, {result, 0, to.element, rows * to.element}, 1, rows,
                    backward, scale, 0, false};
    fine = run(&first, processors) && run(&second, processors);
  }
  free(memory);
  return fine;
}

// ---- real lines

struct RealLines {
  Complex *from, *to;
  const Complex* roots;
  Word half, from_line, to_line;
};

// of complex lines of half the length the transforms of real ones, in place: even elements were real parts, odd ones
// imaginary parts
static int finish_real(void** argument, Word begin, Word end) {
  const RealLines* const r = (const RealLines*)argument;
  const Word half = r->half;
  for (Word line = begin; line < end; ++line) {
    Complex* const at = r->to + line * r->to_line;
    const Complex first = at[0];
    at[0] = {first.real + first.imaginary, 0};
    at[half] = {first.real - first.imaginary, 0};
    for (Word k = 1; 2 * k <= half; ++k) {
      const Complex a = at[k], b = at[half - k], w = r->roots[k];
      const Complex even = {(a.real + b.real) / 2, (a.imaginary - b.imaginary) / 2};
      const Complex odd = {(a.real - b.real) / 2, (a.imaginary + b.imaginary) / 2};
      const Complex turned = {odd.real * w.real - odd.imaginary * w.imaginary,
                             odd.real * w.imaginary + odd.imaginary * w.real};
      at[half - k] = {even.real - turned.imaginary, -(even.imaginary + turned.real)};
      at[k] = {even.real + turned.imaginary, even.imaginary - turned.real};
    }
  }
  return 0;
}

// the opposite, from one array to another, and twice as much
static int prepare_real(void** argument, Word begin, Word end) {
  const RealLines* const r = (const RealLines*)argument;
  const Word half = r->half;
  for (Word line = begin; line < end; ++line) {
    const Complex* const at = r->from + line * r->from_line;
    Complex* const to = r->to + line * r->to_line;
    to[0] = {at[0].real + at[half].real, at[0].real - at[half].real};
    for (Word k = 1; k < half; ++k) {
      const Complex a = at[k], b = at[half - k], w = r->roots[k];
      const Complex even = {a.real + b.real, a.imaginary - b.imaginary};
      const Complex odd = {a.real - b.real, a.imaginary + b.imaginary};
      const Complex turned = {odd.real * w.real + odd.imaginary * w.imaginary,
                             odd.imaginary * w.real - odd.real * w.imaginary};
      to[k] = {even.real - turned.imaginary, even.imaginary + turned.real};
    }
  }
  return 0;
}

// the roots between the even and the odd elements of real lines, kept for good; null without memory
static const Complex* roots_of(Word n) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  struct Known { Word length; Complex* roots; Known* next; };
  static Known* all = 0;
  pthread_mutex_lock(&lock);
  Known* known = all;
  while (known && known->length != n) known = known->next;
  if (!known && (known = (Known*)malloc(sizeof(Known)))) {
    *known = {n, (Complex*)malloc((size_t)(n / 2 + 1) * sizeof(Complex)), all};
    for (Word k = 0; known->roots && k <= n / 2; ++k) known->roots[k] = root(k, n);
    if (known->roots) all = known;
    else free(known), known = 0;
  }
  pthread_mutex_unlock(&lock);
  return known ? known->roots : 0;
}

// rows of `n` real numbers to rows of n / 2 + 1 complex ones; false without memory
static bool transform_real(const T* from, Complex* to, Word rows, Word n, int processors) {
  const Word half = n / 2, line = half + 1;
  if (n % 2 == 0) {
    const Complex* const roots = roots_of(n);
    const Side source = {(Complex*)from, 0, half, 1}, result = {to, 0, line, 1};
    if (!roots || !transform_side(half, source, result, 1, rows, false, T(1), processors)) return false;
    RealLines all = {0, to, roots, half, 0, line};
    launch(finish_real, (void**)&all, rows, rows * half > 1 << 14 ? processors : 1);
    return true;
  }
  Complex* const memory = (Complex*)malloc((size_t)(rows * n) * sizeof(Complex));
  if (!memory) return false;
  for (Word k = 0; k < rows * n; ++k) memory[k] = {from[k], 0};
  const Side side = {memory, 0, n, 1};
  const bool fine = transform_side(n, side, side, 1, rows, false, T(1), processors);
  for (Word r = 0; fine && r < rows; ++r) {
    memcpy(to + r * line, memory + r * n, (size_t)line * sizeof(Complex));
    to[r * line].imaginary = 0;
  }
  free(memory);
  return fine;
}

// the opposite
static bool transform_to_real(const Complex* from, T* to, Word rows, Word n, int processors) {
  const Word half = n / 2, line = half + 1, length = n % 2 ? n : half;
  Complex* const memory = (Complex*)malloc((size_t)(rows * length) * sizeof(Complex));
  if (!memory) return false;
  const Side side = {memory, 0, length, 1};
  bool fine = true;
  if (n % 2 == 0) {
    const Complex* const roots = roots_of(n);
    if ((fine = roots != 0)) {
      RealLines all = {(Complex*)from, memory, roots, half, line, half};
      launch(prepare_real, (void**)&all, rows, rows * half > 1 << 14 ? processors : 1);
      fine = transform_side(half, side, {(Complex*)to, 0, half, 1}, 1, rows, true, T(1) / T(n), processors);
    }
  } else {
    for (Word r = 0; r < rows; ++r) {
      memory[r * n] = {from[r * line].real, 0};
      for (Word k = 1; k <= half; ++k) {
        const Complex a = from[r * line + k];
        memory[r * n + k] = a, memory[r * n + n - k] = {a.real, -a.imaginary};
      }
    }
    fine = transform_side(n, side, side, 1, rows, true, T(1) / T(n), processors);
    for (Word k = 0; fine && k < rows * n; ++k) to[k] = memory[k].real;
  }
  free(memory);
  return fine;
}

// `outer` blocks of lines with `inner` elements between two of a line; false without memory
static bool transform_dimension(const Complex* from, Complex* to, Word outer, Word n, Word inner, bool backward,
                                int processors) {
  const T scale = backward ? T(1) / T(n) : T(1);
  const Side rows = {(Complex*)from, 0, n, 1}, columns = {(Complex*)from, n * inner, 1, inner};
  Side source = inner == 1 ? rows : columns, result = source;
  result.at = to;
  return inner == 1 ? transform_side(n, source, result, 1, outer, backward, scale, processors)
                    : transform_side(n, source, result, outer, inner, backward, scale, processors);
}

// slots of the array and of its transform, direction, arrays, dimensions, and the lengths; false without memory
static bool transform_words(void** slots, const Word* w, int processors) {
  const void* const input = slots[w[0]];
  void* const output = slots[w[1]];
  const Word direction = w[2], arrays = w[3], count = w[4], *const lengths = w + 5, last = lengths[count - 1];
  const bool to_real = direction == backward_real, of_real = direction == forward_real;
  const bool backward = direction == ::backward || to_real;
  const Word own = to_real || of_real ? last / 2 + 1 : last;  // complex numbers of a row
  Word rows = arrays, inner = own;
  for (Word d = 0; d + 1 < count; ++d) rows *= lengths[d];
  const Complex* from = (const Complex*)input;
  Complex* work = to_real && count > 1 ? (Complex*)malloc((size_t)(rows * own) * sizeof(Complex)) : (Complex*)output;
  if (!work) return false;
  bool fine = true;
  if (of_real) {
    fine = transform_real((const T*)input, work, rows, last, processors);
    from = work;
  } else if (!to_real) {
    fine = transform_dimension(from, work, rows, last, 1, backward, processors);
    from = work;
  }
  Word outer = rows;
  for (Word d = count - 1; fine && d-- > 0;) {
    outer /= lengths[d];
    fine = transform_dimension(from, work, outer, lengths[d], inner, backward, processors);
    from = work;
    inner *= lengths[d];
  }
  if (to_real) {
    fine = fine && transform_to_real(from, (T*)output, rows, last, processors);
    if (work != output) free(work);
  }
  return fine;
}
};
