// Factorizations of matrices, for `host_routine.h`: LU, Cholesky and QR as LAPACK's getrf, potrf, geqrf and orgqr give
// them, one matrix after another. Each is copied by rows and factored in double precision, then rounded once, as
// `hlo_opt.library.linear` does: a small matrix of a loop takes less than a call of Python.
#pragma once

enum { factor_lu, factor_lower, factor_upper, factor_positive_lower, factor_positive_upper, factor_reflections,
       expand_reflections };

// a batch of arrays: where it begins; strides in elements by row, by column and from one system to the next
struct Matrices {
  char* base;
  Word row, column, apart;
};

struct Factorization {
  Word what, rows, columns, systems;
  Matrices arrays[4];  // matrix; then what `factor_words` says
  bool failed;
};

template <typename T> static T& element(const Matrices& m, Word system, Word row, Word column) {
  return ((T*)m.base)[system * m.apart + row * m.row + column * m.column];
}

// L and U in `a`; returns the first zero pivot counted from 1, or 0. A NaN comes first among pivots, as in NumPy.
static int eliminate(double* a, Word rows, Word columns, const Matrices& pivots, Word system) {
  const Word steps = rows < columns ? rows : columns;
  int state = 0;
  for (Word k = 0; k < steps; ++k) {
    Word chosen = k;
    double largest = fabs(a[k * columns + k]);
    for (Word r = k + 1; r < rows && largest == largest; ++r) {
      const double size = fabs(a[r * columns + k]);
      if (size > largest || size != size) largest = size, chosen = r;
    }
    element<int>(pivots, system, k, 0) = (int)chosen + 1;
    double* const own = a + k * columns;
    if (chosen != k) std::swap_ranges(own, own + columns, a + chosen * columns);
    const double pivot = own[k];
    if (pivot == 0 && !state) state = (int)k + 1;
    for (Word r = k + 1; r < rows; ++r) {
      double* const line = a + r * columns;
      const double factor = line[k] /= pivot == 0 ? 1 : pivot;
      for (Word c = k + 1; c < columns; ++c) line[c] -= factor * own[c];
    }
  }
  return state;
}

// U of U' U in the upper triangle of `a`; returns the order of the first minor that is not positive, or 0
static int take_root(double* a, Word size) {
  for (Word k = 0; k < size; ++k) {
    double* const own = a + k * size;
    if (!(own[k] > 0)) return (int)k + 1;
    own[k] = sqrt(own[k]);
    for (Word c = k + 1; c < size; ++c) own[c] /= own[k];
    for (Word r = k + 1; r < size; ++r) {
      double* const line = a + r * size;
      const double factor = own[r];
      for (Word c = r; c < size; ++c) line[c] -= factor * own[c];
    }
  }
  return 0;
}

// (1 - factor v v') a for the rows of `a` from `first` on and its columns from `from` on; `sums` holds a row
static void reflect(double* a, Word rows, Word columns, Word first, Word from, double factor, const double* v,
                    double* sums) {
  for (Word c = from; c < columns; ++c) sums[c] = 0;
  for (Word r = first; r < rows; ++r)
    for (Word c = from; c < columns; ++c) sums[c] += v[r] * a[r * columns + c];
  for (Word r = first; r < rows; ++r) {
    const double own = factor * v[r];
    for (Word c = from; c < columns; ++c) a[r * columns + c] -= own * sums[c];
  }
}

// R above the diagonal, below it the vectors of the reflections, whose first element is 1
template <typename T> static void reduce(double* a, Word rows, Word columns, const Matrices& factors, Word system,
                                         double* v, double* sums) {
  for (Word k = 0; k < rows && k < columns; ++k) {
    const double alpha = a[k * columns + k];
    double below = 0;
    for (Word r = k + 1; r < rows; ++r) below += a[r * columns + k] * a[r * columns + k];
    const double norm = sqrt(alpha * alpha + below);
    const bool still = below == 0;
    const double beta = still ? alpha : alpha < 0 ? norm : -norm, factor = still ? 0 : (beta - alpha) / beta;
    v[k] = 1;
    for (Word r = k + 1; r < rows; ++r) v[r] = still ? 0 : a[r * columns + k] / (alpha - beta);
    reflect(a, rows, columns, k, k + 1, factor, v, sums);
    a[k * columns + k] = beta;
    for (Word r = k + 1; r < rows; ++r) a[r * columns + k] = v[r];
    element<T>(factors, system, k, 0) = (T)factor;
  }
}

// the first columns of the product of the reflections whose vectors lie below the diagonal of `a`
template <typename T> static void expand(const double* a, double* q, Word rows, Word columns, const Matrices& factors,
                                         Word count, Word system, double* v, double* sums) {
  for (Word r = 0; r < rows; ++r)
    for (Word c = 0; c < columns; ++c) q[r * columns + c] = r == c;
  for (Word k = count - 1; k >= 0; --k) {
    v[k] = 1;
    for (Word r = k + 1; r < rows; ++r) v[r] = a[r * columns + k];
    reflect(q, rows, columns, k, 0, (double)element<T>(factors, system, k, 0), v, sums);
  }
}

// one matrix in `a`, which has room for two, a column and a row
template <typename T> static void factor(const Factorization* f, Word system, double* a) {
  const Word rows = f->rows, columns = f->columns;
  const Matrices &given = f->arrays[0], &result = f->arrays[1], &second = f->arrays[2], &third = f->arrays[3];
  double *const other = a + rows * columns, *const v = other + rows * columns, *const sums = v + rows;
  const bool upper = f->what == factor_upper || f->what == factor_positive_upper;
  const bool whole = f->what == factor_lu || f->what == factor_reflections || f->what == expand_reflections;
  for (Word r = 0; r < rows; ++r)
    for (Word c = 0; c < columns; ++c)
      a[r * columns + c] = (double)(whole || upper ? element<T>(given, system, r, c) : element<T>(given, system, c, r));
  const double* from = a;
  switch (f->what) {
    case factor_lu:
      element<int>(third, system, 0, 0) = eliminate(a, rows, columns, second, system);
      break;
    case factor_reflections:
      reduce<T>(a, rows, columns, second, system, v, sums);
      break;
    case expand_reflections:
      expand<T>(a, other, rows, columns, second, third.row, system, v, sums);
      from = other;
      break;
    default: {
      // the triangle that is read lies above the diagonal of `a`, the other below it
      const int state = take_root(a, rows);
      const bool kept = f->what == factor_positive_lower || f->what == factor_positive_upper;
      if (kept) element<int>(second, system, 0, 0) = state;
      for (Word r = 0; r < rows; ++r)
        for (Word c = 0; c < rows; ++c) {
          T& to = upper ? element<T>(result, system, r, c) : element<T>(result, system, c, r);
          if (kept) {
            const T old = upper ? element<T>(given, system, r, c) : element<T>(given, system, c, r);
            to = r <= c && !state ? (T)a[r * columns + c] : old;
          } else {
            to = state ? (T)NAN : r <= c ? (T)a[r * columns + c] : (T)0;
          }
        }
      return;
    }
  }
  for (Word r = 0; r < rows; ++r)
    for (Word c = 0; c < columns; ++c) element<T>(result, system, r, c) = (T)from[r * columns + c];
}

// matrices from `begin` up to `end`; the face of a kernel's launcher
template <typename T> static int factor_each(void** argument, Word begin, Word end) {
  Factorization* const f = (Factorization*)argument;
  const Word room = 2 * f->rows * f->columns + f->rows + f->columns;
  double few[512], *const many = room > 512 ? (double*)malloc((size_t)room * sizeof(double)) : few;
  if (!many) {
    __atomic_store_n(&f->failed, true, __ATOMIC_RELAXED);
    return 0;
  }
  for (Word system = begin; system < end; ++system) factor<T>(f, system, many);
  if (many != few) free(many);
  return 0;
}

// what is computed, rows, columns and matrices; how many arrays there are, and for each its slot, and its strides by
// row, by column and by matrix. Behind the matrix and its factors: pivots and state of LU; the state of what may not be
// positive; the factors of reflections, and to expand them, in place of a fourth array, how many there are. False
// without memory.
template <typename T> static bool factor_words(void** slots, const Word* w, int processors) {
  Factorization f = {w[0], w[1], w[2], w[3], {}, false};
  const Word count = w[4];
  for (Word k = 0; k < count; ++k) {
    const Word* const own = w + 5 + 4 * k;
    f.arrays[k] = {(char*)slots[own[0]], own[1], own[2], own[3]};
  }
  if (f.what == expand_reflections) f.arrays[3].row = w[5 + 4 * count];
  const Word steps = f.rows < f.columns ? f.rows : f.columns;
  launch(factor_each<T>, (void**)&f, f.systems, f.systems * f.rows * f.columns * steps > 1 << 17 ? processors : 1);
  return !f.failed;
}
