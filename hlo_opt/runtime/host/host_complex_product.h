// Products of complex matrices, for `host_routine.h`: those of real ones. A complex number on the left is two
// neighbouring terms, one on the right two rows of two columns, (b, i b).
#pragma once

template <typename T> struct ComplexMultiplier {
typedef typename Multiplier<T>::Product Product;
typedef typename Multiplier<T>::Products Products;

// rows of the left factor one after another
static void copy_left(const Product* p, T* to) {
  for (Word i = 0; i < p->rows; ++i)
    for (Word t = 0; t < p->terms; ++t, to += 2) {
      const T* const from = p->left + 2 * (i * p->left_row + t * p->left_term);
      to[0] = from[0], to[1] = from[1];
    }
}

// rows of the right factor from `begin` up to `end`, each as two; the face of a kernel's launcher
static int copy_right(void** argument, Word begin, Word end) {
  const Product* const p = (const Product*)argument;
  for (Word t = begin; t < end; ++t) {
    T *const first = p->panels + 4 * t * p->columns, *const second = first + 2 * p->columns;
    for (Word j = 0; j < p->columns; ++j) {
      const T* const from = p->right + 2 * (t * p->right_term + j * p->right_column);
      first[2 * j] = from[0], first[2 * j + 1] = from[1];
      second[2 * j] = -from[1], second[2 * j + 1] = from[0];
    }
  }
  return 0;
}

static void copy_result(const Product* p, const T* from) {
  for (Word i = 0; i < p->rows; ++i)
    for (Word j = 0; j < p->columns; ++j, from += 2) {
      T* const to = p->result + 2 * (i * p->result_row + j * p->result_column);
      to[0] = from[0], to[1] = from[1];
    }
}

// strides are of complex numbers; false without memory
static bool multiply(Product* p, int processors) {
  const bool moves_left = p->left_term != 1 && p->terms > 1, moves_result = p->result_column != 1 && p->columns > 1;
  const Word of_right = 4 * p->terms * p->columns, of_left = moves_left ? 2 * p->rows * p->terms : 0;
  const Word of_result = moves_result ? 2 * p->rows * p->columns : 0;
  T* const held = (T*)malloc((size_t)(of_right + of_left + of_result) * sizeof(T));
  if (!held) return false;
  T *const left = held + of_right, *const result = left + of_left;
  p->panels = held;
  launch(copy_right, (void**)p, p->terms, of_right > 1 << 16 ? processors : 1);
  if (moves_left) copy_left(p, left);
  Product real = {moves_left ? left : p->left,
                  held,
                  moves_result ? result : p->result,
                  0,
                  p->rows,
                  2 * p->columns,
                  2 * p->terms,
                  moves_left ? 2 * p->terms : 2 * p->left_row,
                  1,
                  2 * p->columns,
                  1,
                  moves_result ? 2 * p->columns : 2 * p->result_row,
                  1,
                  0,
                  0,
                  0,
                  0};
  Multiplier<T>::turn(&real);
  const bool fine = Multiplier<T>::multiply(&real, processors);
  if (fine && moves_result) copy_result(p, result);
  free(held);
  return fine;
}

static int multiply_some(void** argument, Word begin, Word end) {
  const Products* const all = (const Products*)argument;
  for (Word k = begin; k < end; ++k) {
    Product p = Multiplier<T>::product_number(all, k, 2);
    if (!multiply(&p, 1)) return 1;
  }
  return 0;
}

// false without memory
static bool multiply_all(Products all, int processors) {
  const Word count = Multiplier<T>::number_of(&all), work = all.first.rows * all.first.columns * all.first.terms;
  if (count > 1) return !launch(multiply_some, (void**)&all, count, count * work > 1 << 18 ? processors : 1);
  return multiply(&all.first, processors);
}
};
