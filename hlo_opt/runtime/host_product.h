// Products of f32 matrices that lie anyhow, for `host_runtime.cpp`: panels of both factors are copied so that the innermost loop reads vectors one after another.
// Every element is a sum of products in the order of the contracted index, in pieces of `depth`.
#pragma once

typedef float Lanes __attribute__((vector_size(32), aligned(4)));

static const Word tile_rows = 6, tile_columns = 16, depth = 384, width = 1024, strip = 2;

struct Product {
  const float *left, *right;
  float *result, *panels;
  Word rows, columns, terms;
  Word left_row, left_term, right_term, right_column, result_row, result_column;
  Word first_column, last_column, first_term, last_term;  // the piece at hand
};

static void copy_right(const Product* p) {
  const Word count = p->last_term - p->first_term;
  for (Word j = p->first_column; j < p->last_column; j += tile_columns) {
    float* to = p->panels + (j - p->first_column) * count;
    const Word here = p->last_column - j < tile_columns ? p->last_column - j : tile_columns;
    for (Word t = 0; t < count; ++t, to += tile_columns) {
      const float* from = p->right + (p->first_term + t) * p->right_term + j * p->right_column;
      for (Word c = 0; c < here; ++c) to[c] = from[c * p->right_column];
      for (Word c = here; c < tile_columns; ++c) to[c] = 0;
    }
  }
}

// a tile of the result, without looking at its edges
static inline void multiply_tile(const float* left, const float* right, Word count, float* tile) {
  Lanes sums[tile_rows][2] = {};
  for (Word t = 0; t < count; ++t, left += tile_rows, right += tile_columns) {
    const Lanes first = *(const Lanes*)right, second = *(const Lanes*)(right + 8);
#pragma GCC unroll 6
    for (int r = 0; r < tile_rows; ++r) {
      const Lanes value = {left[r], left[r], left[r], left[r], left[r], left[r], left[r], left[r]};
      sums[r][0] += value * first;
      sums[r][1] += value * second;
    }
  }
  for (int r = 0; r < tile_rows; ++r) {
    *(Lanes*)(tile + r * tile_columns) = sums[r][0];
    *(Lanes*)(tile + r * tile_columns + 8) = sums[r][1];
  }
}

// strips of rows from `begin` up to `end`; the face of a kernel's launcher, so that strips spread over the processors
static int multiply_strips(void** argument, Word begin, Word end) {
  const Product* const p = (const Product*)argument;
  const Word count = p->last_term - p->first_term;
  float left[tile_rows * depth], tile[tile_rows * tile_columns];
  const Word last = end * strip * tile_rows < p->rows ? end * strip * tile_rows : p->rows;
  for (Word i = begin * strip * tile_rows; i < last; i += tile_rows) {
    const Word rows = p->rows - i < tile_rows ? p->rows - i : tile_rows;
    for (Word r = 0; r < tile_rows; ++r)
      for (Word t = 0; t < count; ++t)
        left[t * tile_rows + r] = r < rows ? p->left[(i + r) * p->left_row + (p->first_term + t) * p->left_term] : 0;
    for (Word j = p->first_column; j < p->last_column; j += tile_columns) {
      multiply_tile(left, p->panels + (j - p->first_column) * count, count, tile);
      const Word columns = p->last_column - j < tile_columns ? p->last_column - j : tile_columns;
      for (Word r = 0; r < rows; ++r)
        for (Word c = 0; c < columns; ++c) {
          float* const at = p->result + (i + r) * p->result_row + (j + c) * p->result_column;
          *at = p->first_term ? *at + tile[r * tile_columns + c] : tile[r * tile_columns + c];
        }
    }
  }
  return 0;
}

// false without memory
static bool multiply(Product* p, int processors) {
  const Word panel_columns = (p->columns < width ? p->columns + tile_columns : width);
  p->panels = (float*)malloc((size_t)(panel_columns * (p->terms < depth ? p->terms : depth)) * sizeof(float));
  if (!p->panels) return false;
  const Word strips = (p->rows + strip * tile_rows - 1) / (strip * tile_rows);
  for (p->first_column = 0; p->first_column < p->columns; p->first_column += width) {
    p->last_column = p->first_column + width < p->columns ? p->first_column + width : p->columns;
    for (p->first_term = 0; p->first_term < p->terms; p->first_term += depth) {
      p->last_term = p->first_term + depth < p->terms ? p->first_term + depth : p->terms;
      copy_right(p);
      const Word work = p->rows * (p->last_column - p->first_column) * (p->last_term - p->first_term);
      launch(multiply_strips, (void**)p, strips, work > (1 << 22) ? processors : 1);
    }
  }
  free(p->panels);
  return true;
}
