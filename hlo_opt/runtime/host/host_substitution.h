// Triangular systems, for `host_routine.h`: substitution row by row, for some right sides at a time. Neither the
// other triangle nor a unit diagonal is read.
#pragma once

struct Substitution {
  const void *matrix, *right;
  void* solution;
  Word size, columns;
  Word matrix_row, matrix_column, right_row, right_column, solution_row, solution_column;  // strides in elements
  Word systems, matrix_apart, right_apart, solution_apart;
  Word upper, unit;
  bool failed;
};

static const Word rows_together = 4;

// right sides from `first` on, `width` of them at a time; `part` is their columns of the solution
template <typename T, int width> static void substitute(
    const Substitution* s, const T* a, const T* right, T* solution, Word first, T* part) {
  const Word count = s->columns - first < width ? s->columns - first : width;
  const Word row = s->upper ? -s->matrix_row : s->matrix_row, column = s->upper ? -s->matrix_column : s->matrix_column;
  if (s->upper) a += (s->size - 1) * (s->matrix_row + s->matrix_column);
  for (Word begin = 0; begin < s->size; begin += rows_together) {
    const Word rows = s->size - begin < rows_together ? s->size - begin : rows_together;
    T sums[rows_together][width] = {};
    const T* const lines = a + begin * row;
    if (rows == rows_together) {
      for (Word k = 0; k < begin; ++k)
#pragma GCC unroll 4
        for (Word r = 0; r < rows_together; ++r) {
          const T factor = lines[r * row + k * column];
          for (int j = 0; j < width; ++j) sums[r][j] += factor * part[k * width + j];
        }
    } else {
      for (Word k = 0; k < begin; ++k)
        for (Word r = 0; r < rows; ++r) {
          const T factor = lines[r * row + k * column];
          for (int j = 0; j < width; ++j) sums[r][j] += factor * part[k * width + j];
        }
    }
    for (Word r = 0; r < rows; ++r) {
      const Word at = begin + r, own = s->upper ? s->size - 1 - at : at;
      T* const line = part + at * width;
      for (Word k = begin; k < at; ++k) {
        const T factor = lines[r * row + k * column];
        for (int j = 0; j < width; ++j) sums[r][j] += factor * part[k * width + j];
      }
      const T* const from = right + own * s->right_row + first * s->right_column;
      for (Word j = 0; j < width; ++j) line[j] = (j < count ? from[j * s->right_column] : 0) - sums[r][j];
      if (!s->unit) {
        const T divisor = lines[r * row + at * column];
        for (int j = 0; j < width; ++j) line[j] /= divisor;
      }
      T* const to = solution + own * s->solution_row + first * s->solution_column;
      for (Word j = 0; j < count; ++j) to[j * s->solution_column] = line[j];
    }
  }
}

// blocks of right sides from `begin` up to `end`, of one system after another; the face of a kernel's launcher
template <typename T, int width> static int substitute_blocks(void** argument, Word begin, Word end) {
  Substitution* const s = (Substitution*)argument;
  T* part = 0;
  if (posix_memalign((void**)&part, 64, (size_t)(s->size * width) * sizeof(T))) {
    s->failed = true;
    return 0;
  }
  const Word blocks = (s->columns + width - 1) / width;
  for (Word b = begin; b < end; ++b)
    substitute<T, width>(s, (const T*)s->matrix + b / blocks * s->matrix_apart,
                         (const T*)s->right + b / blocks * s->right_apart,
                         (T*)s->solution + b / blocks * s->solution_apart, b % blocks * width, part);
  free(part);
  return 0;
}

// slots of matrix, right sides and solution, then as Substitution from `size` on; false without memory
template <typename T> static bool substitute_words(void** slots, const Word* w, int processors) {
  Substitution s = {slots[w[0]], slots[w[1]], slots[w[2]], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10],
                    w[11], w[12], w[13], w[14], w[15], w[16], false};
  const Word width = s.columns > 4 ? 16 : s.columns > 1 ? 4 : 1;
  const Launcher launcher =
      width == 16 ? substitute_blocks<T, 16> : width == 4 ? substitute_blocks<T, 4> : substitute_blocks<T, 1>;
  const Word blocks = (s.columns + width - 1) / width * s.systems;
  launch(launcher, (void**)&s, blocks, blocks * width * s.size * s.size > 1 << 18 ? processors : 1);
  return !s.failed;
}
