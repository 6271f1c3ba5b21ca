// Products of matrices that lie anyhow, for `host_routine.h`: panels of both factors are copied so that the innermost
// loop reads vectors one after another. Every element is a sum of products in the order of the contracted index, in
// pieces of `depth`. Ts are f32, f64 or integers of 32 bits, which wrap.
#pragma once

// a tile's sums stay in registers: 32 of 64 bytes, or 16 of 32
#if defined(__AVX512F__)
static const int vector_bytes = 64;
static const Word tile_rows = 12;
#else
static const int vector_bytes = 32;
static const Word tile_rows = 6;
#endif

// once for each type, not wherever it is called: compiling takes half as long
#define HLO_APART __attribute__((noinline))

template <typename T> struct Multiplier {
static const int lanes = vector_bytes / sizeof(T);
typedef T Lanes __attribute__((vector_size(vector_bytes), aligned(sizeof(T))));
typedef std::conditional_t<sizeof(T) == 8, Word, int> Index;  // as wide as an element
typedef Index Places __attribute__((vector_size(vector_bytes)));

static const Word tile_columns = 2 * lanes, depth = 384, width = 1024, strip = 12 / tile_rows, third = tile_rows / 3;

struct Product {
  const T *left, *right;
  T *result, *panels;
  Word rows, columns, terms;
  Word left_row, left_term, right_term, right_column, result_row, result_column;
  Word first_column, last_column, first_term, last_term;  // the piece at hand
};

// the first `count` elements of a vector, then zeros
static inline Lanes first_of(const T* from, Index count) {
  T held[lanes];
#pragma omp simd
  for (Index l = 0; l < lanes; ++l) held[l] = l < count ? from[l] : 0;
  return *(const Lanes*)held;
}

// the first `count` elements of a vector
static inline void put_first(T* to, const Lanes* from, Index count) {
  const T* const held = (const T*)from;
#pragma omp simd
  for (Index l = 0; l < lanes; ++l)
    if (l < count) to[l] = held[l];
}

// `count` lines of `size` elements each, of which `here` are there; the rest is zero. Lines and elements lie `line` and
// `element` apart.
template <Word size>
HLO_APART static void pack(T* to, const T* from, Word count, Word here, Word line, Word element) {
  if (here == size && element == 1) {
    for (Word t = 0; t < count; ++t)
      for (Word c = 0; c < size; ++c) to[t * size + c] = from[t * line + c];
  } else if (here == size && line == 1) {
    Word t = 0;
    for (; t + 8 <= count; t += 8)  // a cache line of each element at a time
      for (Word c = 0; c < size; ++c)
        for (Word k = 0; k < 8; ++k) to[(t + k) * size + c] = from[t + k + c * element];
    for (; t < count; ++t)
      for (Word c = 0; c < size; ++c) to[t * size + c] = from[t + c * element];
  } else if (element == 1 && size % lanes == 0) {
    for (Word t = 0; t < count; ++t)
      for (Word c = 0; c < size; c += lanes) {
        const Word rest = here - c;
        *(Lanes*)(to + t * size + c) = first_of(from + t * line + c, rest < 0 ? 0 : rest < lanes ? rest : lanes);
      }
  } else {
    for (Word t = 0; t < count; ++t) {
      for (Word c = 0; c < here; ++c) to[t * size + c] = from[t * line + c * element];
      for (Word c = here; c < size; ++c) to[t * size + c] = 0;
    }
  }
}

// panels of the right factor from `begin` up to `end`; a face as that of `multiply_strips`
static int copy_right(void** argument, Word begin, Word end) {
  const Product* const p = (const Product*)argument;
  const Word count = p->last_term - p->first_term;
  for (Word panel = begin; panel < end; ++panel) {
    const Word j = p->first_column + panel * tile_columns;
    const Word here = p->last_column - j < tile_columns ? p->last_column - j : tile_columns;
    const T* const from = p->right + p->first_term * p->right_term + j * p->right_column;
    pack<tile_columns>(p->panels + panel * tile_columns * count, from, count, here, p->right_term, p->right_column);
  }
  return 0;
}

// a tile of the result, `rows` high and `vectors` wide, without looking at its edges. Elements of the left factor lie
// `row` and `term` apart, vectors of the right one `next`
template <int rows, int vectors>
HLO_APART static void multiply_tile(const T* left, Word row, Word term, const T* right, Word next, Word count,
                                    T* tile) {
  Lanes sums[rows][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < vectors; ++k) sums[r][k] = Lanes{};
  for (Word t = 0; t < count; ++t, left += term, right += next) {
    Lanes there[vectors];
    for (int k = 0; k < vectors; ++k) there[k] = *(const Lanes*)(right + k * lanes);
#pragma GCC unroll 12
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < vectors; ++k) sums[r][k] += left[r * row] * there[k];
  }
#pragma GCC unroll 12
  for (int r = 0; r < rows; ++r)
    for (int k = 0; k < vectors; ++k) *(Lanes*)(tile + (r * vectors + k) * lanes) = sums[r][k];
}

// a tile to where it belongs
HLO_APART static void put_tile(const Product* p, const T* tile, Word i, Word j, Word rows) {
  const Word columns = p->last_column - j < tile_columns ? p->last_column - j : tile_columns;
  for (Word r = 0; r < rows; ++r) {
    const T* const sums = tile + r * tile_columns;
    T* const at = p->result + (i + r) * p->result_row + j * p->result_column;
    if (columns == tile_columns && p->result_column == 1) {
      Lanes *const to = (Lanes*)at, first = *(const Lanes*)sums, second = *(const Lanes*)(sums + lanes);
      to[0] = p->first_term ? to[0] + first : first;
      to[1] = p->first_term ? to[1] + second : second;
    } else {
      for (Word c = 0; c < columns; ++c) {
        T* const to = at + c * p->result_column;
        *to = p->first_term ? *to + sums[c] : sums[c];
      }
    }
  }
}

// the `here` rows of a product from `i` on, up to `height` of them
template <int height> HLO_APART static void multiply_strip(const Product* p, Word i, Word here) {
  const Word count = p->last_term - p->first_term;
  alignas(64) T left[height * depth], tile[height * tile_columns];
  pack<height>(left, p->left + i * p->left_row + p->first_term * p->left_term, count, here, p->left_term, p->left_row);
  for (Word j = p->first_column; j < p->last_column; j += tile_columns) {
    const T* const right = p->panels + (j - p->first_column) * count;
    multiply_tile<height, 2>(left, 1, height, right, tile_columns, count, tile);
    put_tile(p, tile, i, j, here);
  }
}

// strips of rows from `begin` up to `end`; the face of a kernel's launcher, so that strips spread over the processors
static int multiply_strips(void** argument, Word begin, Word end) {
  const Product* const p = (const Product*)argument;
  const Word last = end * strip * tile_rows < p->rows ? end * strip * tile_rows : p->rows;
  for (Word i = begin * strip * tile_rows; i < last; i += tile_rows) {
    const Word here = p->rows - i < tile_rows ? p->rows - i : tile_rows;
    if (here > third)
      multiply_strip<tile_rows>(p, i, here);
    else
      multiply_strip<third>(p, i, here);
  }
  return 0;
}

// small products: both factors are read where they lie, or the right one is copied to the stack. The last tile may
// begin with rows of the one before: its results are the same
static const Word most_copied = 32768 / sizeof(T);

template <int height, int vectors>
static inline void multiply_in_place(const Product* p, Word i, Word j, Word columns, const T* right, Word next) {
  alignas(64) T tile[height * vectors * lanes];
  multiply_tile<height, vectors>(p->left + i * p->left_row, p->left_row, p->left_term, right, next, p->terms, tile);
  for (Word r = 0; r < height; ++r) {
    T* const to = p->result + (i + r) * p->result_row + j;
    const Lanes* const from = (const Lanes*)tile + r * vectors;
    for (int k = 0; k < vectors; ++k)
      if (columns >= (k + 1) * lanes)
        *(Lanes*)(to + k * lanes) = from[k];
      else
        put_first(to + k * lanes, from + k, columns - k * lanes);
  }
}

template <int vectors>
HLO_APART static void multiply_columns(const Product* p, Word j, Word columns, const T* right, Word next) {
  const Word low = 2 * third;
  for (Word i = 0, rest = p->rows; rest > 0; rest = p->rows - i) {
    if (rest >= tile_rows) {
      multiply_in_place<tile_rows, vectors>(p, i, j, columns, right, next);
      i += tile_rows;
    } else if (rest > third && p->rows >= low) {
      multiply_in_place<low, vectors>(p, rest < low ? p->rows - low : i, j, columns, right, next);
      i += low;
    } else {
      multiply_in_place<third, vectors>(p, rest < third ? p->rows - third : i, j, columns, right, next);
      i += third;
    }
  }
}

HLO_APART static void multiply_small(const Product* p) {
  alignas(64) T held[most_copied];
  const bool copied = p->right_column != 1 || p->columns % lanes;
  for (Word j = 0; j < p->columns; j += tile_columns) {
    const Word columns = p->columns - j < tile_columns ? p->columns - j : tile_columns;
    const T* right = p->right + j * p->right_column;
    Word next = p->right_term;
    const bool is_narrow = columns <= lanes;
    if (copied) {
      next = is_narrow ? lanes : tile_columns;
      if (is_narrow)
        pack<lanes>(held, right, p->terms, columns, p->right_term, p->right_column);
      else
        pack<tile_columns>(held, right, p->terms, columns, p->right_term, p->right_column);
      right = held;
    }
    if (is_narrow)
      multiply_columns<1>(p, j, columns, right, next);
    else
      multiply_columns<2>(p, j, columns, right, next);
  }
}

// products of so few numbers that anything else would take longer
static const Word tiny = 48;

static inline void multiply_tiny(const Product* p) {
  for (Word i = 0; i < p->rows; ++i)
    for (Word j = 0; j < p->columns; ++j) {
      const T *left = p->left + i * p->left_row, *right = p->right + j * p->right_column;
      T sum = 0;
      for (Word t = 0; t < p->terms; ++t, left += p->left_term, right += p->right_term) sum += *left * *right;
      p->result[i * p->result_row + j * p->result_column] = sum;
    }
}

// columns of a product with few rows, `few_columns` at a time from `begin` up to `end`: the right factor is read where
// it lies, for a copy would take longer than the product
static const Word few_rows = 3, few_vectors = 8, few_columns = few_vectors * lanes;

// so many vectors of sums, from column `j` on, added to what is there unless they are the `first`
template <int vectors>
HLO_APART static void multiply_vectors(const Product* p, Word i, Word j, Word first, Word last) {
  const T* left = p->left + i * p->left_row + first * p->left_term;
  const T* right = p->right + first * p->right_term + j;
  T* const to = p->result + i * p->result_row + j;
  Lanes held[vectors] = {};
  for (Word t = first; t < last; ++t, left += p->left_term, right += p->right_term) {
#pragma GCC unroll 8
    for (int k = 0; k < vectors; ++k) held[k] += *left * *(const Lanes*)(right + k * lanes);
  }
  for (int k = 0; k < vectors; ++k) {
    Lanes* const at = (Lanes*)(to + k * lanes);
    *at = first ? *at + held[k] : held[k];
  }
}

// the columns of a block, of a row
HLO_APART static void multiply_row(const Product* p, Word i, Word j, Word last_column) {
  for (Word first = 0; first == 0 || first < p->terms; first += depth) {
    const Word last = first + depth < p->terms ? first + depth : p->terms;
    Word at = j;
    for (; at + few_columns <= last_column; at += few_columns) multiply_vectors<few_vectors>(p, i, at, first, last);
    for (; at + 4 * lanes <= last_column; at += 4 * lanes) multiply_vectors<4>(p, i, at, first, last);
    for (; at + lanes <= last_column; at += lanes) multiply_vectors<1>(p, i, at, first, last);
    if (at == last_column) continue;
    const T* left = p->left + i * p->left_row + first * p->left_term;
    const T* right = p->right + first * p->right_term + at;
    T* const to = p->result + i * p->result_row + at;
    T sums[lanes] = {};
    for (Word t = first; t < last; ++t, left += p->left_term, right += p->right_term)
      for (Word c = 0; c < last_column - at; ++c) sums[c] += *left * right[c];
    for (Word c = 0; c < last_column - at; ++c) to[c] = first ? to[c] + sums[c] : sums[c];
  }
}

static int multiply_few(void** argument, Word begin, Word end) {
  const Product* const p = (const Product*)argument;
  for (Word block = begin; block < end; ++block) {
    const Word j = block * few_columns, last_column = j + few_columns < p->columns ? j + few_columns : p->columns;
    for (Word i = 0; i < p->rows; ++i) multiply_row(p, i, j, last_column);
  }
  return 0;
}

// the same where terms are neighbours in both factors: columns from `begin` up to `end`, `few_sums` of them at a time;
// of each, every so many-th term is one lane's
static const Word few_sums = 4, few_steps = 2, most_along = 8 * lanes;
template <Word columns>
HLO_APART static void multiply_along(const Product* p, Word i, Word j) {
  const T* const left = p->left + i * p->left_row;
  const T* const right = p->right + j * p->right_column;
  Lanes held[columns][few_steps] = {};
  Word t = 0;
  for (; t + few_steps * lanes <= p->terms; t += few_steps * lanes) {
#pragma GCC unroll 4
    for (int k = 0; k < columns; ++k) {
#pragma GCC unroll 2
      for (int s = 0; s < few_steps; ++s)
        held[k][s] +=
            *(const Lanes*)(left + t + s * lanes) * *(const Lanes*)(right + k * p->right_column + t + s * lanes);
    }
  }
  for (; t + lanes <= p->terms; t += lanes)
    for (int k = 0; k < columns; ++k)
      held[k][0] += *(const Lanes*)(left + t) * *(const Lanes*)(right + k * p->right_column + t);
  T all[columns][lanes], sums[columns];
  for (int k = 0; k < columns; ++k) *(Lanes*)all[k] = held[k][0] + held[k][1];
#pragma GCC unroll 2
  for (int part = lanes / 2; part >= lanes / 4; part /= 2)
    if (t + part <= p->terms) {
      for (int k = 0; k < columns; ++k)
        for (int l = 0; l < part; ++l) all[k][l] += left[t + l] * right[k * p->right_column + t + l];
      t += part;
    }
  for (int k = 0; k < columns; ++k) {
#pragma GCC unroll 4
    for (int half = lanes / 2; half; half /= 2)
      for (int l = 0; l < half; ++l) all[k][l] += all[k][l + half];
    sums[k] = all[k][0];
  }
  for (; t < p->terms; ++t)
    for (int k = 0; k < columns; ++k) sums[k] += left[t] * right[k * p->right_column + t];
  for (int k = 0; k < columns; ++k) p->result[i * p->result_row + (j + k) * p->result_column] = sums[k];
}

// where the elements of vectors are that hold sums of `2 * half` lanes, those of two vectors one after another: the
// upper or the lower half of each
template <int half, bool upper, Index... at>
static inline Lanes halves(const Lanes& a, const Lanes& b, std::integer_sequence<Index, at...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, (at / half * 2 * half + at % half + (upper ? half : 0))...);
#else
  return __builtin_shuffle(a, b, Places{(at / half * 2 * half + at % half + (upper ? half : 0))...});
#endif
}

// vectors become one whose lanes are their sums
template <int half> static inline void sum_lanes(Lanes* held) {
  typedef std::make_integer_sequence<Index, lanes> Every;
#pragma GCC unroll 8
  for (int k = 0; k < half; ++k) {
    const Lanes a = held[2 * k], b = held[2 * k + 1];
    held[k] = halves<half, false>(a, b, Every()) + halves<half, true>(a, b, Every());
  }
  if constexpr (half > 1) sum_lanes<half / 2>(held);
}

// `lanes` columns, or the first `columns` of them, where terms are too few for sums of each column alone
template <bool whole> HLO_APART static void multiply_along_lanes(const Product* p, Word i, Word j, Word columns) {
  const T *left = p->left + i * p->left_row, *right = p->right + j * p->right_column;
  const Word apart = p->right_column;
  Lanes held[lanes];
#pragma GCC unroll 16
  for (int k = 0; k < lanes; ++k) held[k] = Lanes{};
  Word rest = p->terms;
  for (; rest >= lanes; rest -= lanes, left += lanes, right += lanes) {
    const Lanes first = *(const Lanes*)left;
    const T* at = right;
#pragma GCC unroll 16
    for (int k = 0; k < lanes; ++k) {
      held[k] += first * *(const Lanes*)at;
      if (whole || k + 1 < columns) at += apart;
    }
  }
  if (rest) {
    const Lanes first = first_of(left, rest);
    const T* at = right;
#pragma GCC unroll 16
    for (int k = 0; k < lanes; ++k) {
      held[k] += first * first_of(at, rest);
      if (whole || k + 1 < columns) at += apart;
    }
  }
  sum_lanes<lanes / 2>(held);
  T* const to = p->result + i * p->result_row + j * p->result_column;
  if (p->result_column != 1)
    for (Word k = 0; k < columns; ++k) to[k * p->result_column] = ((const T*)held)[k];
  else if (whole)
    *(Lanes*)to = held[0];
  else
    put_first(to, held, columns);
}

static void multiply_few_short(const Product* p) {
  for (Word i = 0; i < p->rows; ++i) {
    Word j = 0;
    for (; j + lanes <= p->columns; j += lanes) multiply_along_lanes<true>(p, i, j, lanes);
    if (j < p->columns) multiply_along_lanes<false>(p, i, j, p->columns - j);
  }
}

static int multiply_few_along(void** argument, Word begin, Word end) {
  const Product* const p = (const Product*)argument;
  for (Word i = 0; i < p->rows; ++i) {
    Word j = begin * few_sums;
    const Word last = end * few_sums < p->columns ? end * few_sums : p->columns;
    for (; j + few_sums <= last; j += few_sums) multiply_along<few_sums>(p, i, j);
    for (; j < last; ++j) multiply_along<1>(p, i, j);
  }
  return 0;
}

// the same of few rows and few columns that lie anyhow: panels would be mostly zeros
HLO_APART static void multiply_sums(const Product* p) {
  const Word beside = 4;  // sums that do not wait for each other
  for (Word i = 0; i < p->rows; ++i)
    for (Word j = 0; j < p->columns; ++j) {
      const T *left = p->left + i * p->left_row, *right = p->right + j * p->right_column;
      T sums[beside] = {};
      Word t = 0;
      for (; t + beside <= p->terms; t += beside)
        for (Word s = 0; s < beside; ++s, left += p->left_term, right += p->right_term) sums[s] += *left * *right;
      for (; t < p->terms; ++t, left += p->left_term, right += p->right_term) sums[0] += *left * *right;
      p->result[i * p->result_row + j * p->result_column] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    }
}

// the factors the other way round, what were rows are columns, where that leaves few rows, or rows of the result that
// lie one after another. What has been turned is not turned again
static inline bool turn(Product* p) {
  const Product q = *p;
  const bool has_few = q.columns <= few_rows || q.rows <= few_rows;
  if (has_few ? q.columns > few_rows || q.rows <= q.columns : q.result_column == 1 || q.result_row != 1) return false;
  p->left = q.right, p->right = q.left;
  p->rows = q.columns, p->columns = q.rows;
  p->left_row = q.right_column, p->left_term = q.right_term, p->right_term = q.left_term, p->right_column = q.left_row;
  p->result_row = q.result_column, p->result_column = q.result_row;
  return true;
}

// of a product that `turn` has seen; false without memory
HLO_APART static bool multiply(Product* p, int processors) {
  if (p->rows * p->columns * p->terms <= tiny) return multiply_tiny(p), true;
  if (p->rows <= few_rows) {
    const Word work = p->rows * p->columns * p->terms;
    const int wanted = work > (1 << 17) ? processors : 1;
    if (p->right_column == 1 && p->result_column == 1)
      return launch(multiply_few, (void**)p, (p->columns + few_columns - 1) / few_columns, wanted), true;
    if (p->right_term == 1 && p->left_term == 1 && p->terms <= most_along && p->columns > 1)
      return multiply_few_short(p), true;
    if (p->right_term == 1 && p->left_term == 1)
      return launch(multiply_few_along, (void**)p, (p->columns + few_sums - 1) / few_sums, wanted), true;
    if (p->columns <= few_rows) return multiply_sums(p), true;
  }
  if (p->result_column == 1 && p->terms * tile_columns <= most_copied && p->rows >= third &&
      p->rows * p->columns * p->terms <= 1 << 18)
    return multiply_small(p), true;
  const Word panel_columns = (p->columns < width ? p->columns + tile_columns : width);
  p->panels = (T*)malloc((size_t)(panel_columns * (p->terms < depth ? p->terms : depth)) * sizeof(T));
  if (!p->panels) return false;
  const Word strips = (p->rows + strip * tile_rows - 1) / (strip * tile_rows);
  for (p->first_column = 0; p->first_column < p->columns; p->first_column += width) {
    p->last_column = p->first_column + width < p->columns ? p->first_column + width : p->columns;
    for (p->first_term = 0; p->first_term < p->terms; p->first_term += depth) {
      p->last_term = p->first_term + depth < p->terms ? p->first_term + depth : p->terms;
      const Word columns = p->last_column - p->first_column, copied = columns * (p->last_term - p->first_term);
      launch(copy_right, (void**)p, (columns + tile_columns - 1) / tile_columns, copied > 1 << 15 ? processors : 1);
      const Word work = p->rows * copied;
      launch(multiply_strips, (void**)p, strips, work > (1 << 22) ? processors : 1);
    }
  }
  free(p->panels);
  return true;
}

// a dimension of several products: how many, and how far apart their left, right and result are
struct Distance { Word count, left, right, result; };

struct Products {
  Product first;
  Word count;  // of dimensions
  const Distance* distances;
};

static inline Word number_of(const Products* all) {
  Word count = 1;
  for (Word d = 0; d < all->count; ++d) count *= all->distances[d].count;
  return count;
}

// the `k`-th of them, of elements of `parts` numbers each
static inline Product product_number(const Products* all, Word k, Word parts) {
  Product p = all->first;
  for (Word d = all->count; d-- > 0;) {
    const Distance* const at = &all->distances[d];
    const Word place = (d ? k % at->count : k) * parts;
    if (d) k /= at->count;
    p.left += place * at->left;
    p.right += place * at->right;
    p.result += place * at->result;
  }
  return p;
}

static int multiply_some(void** argument, Word begin, Word end) {
  const Products* const all = (const Products*)argument;
  Product p = all->first;
  const bool is_turned = turn(&p);
  for (Word k = begin; k < end; ++k) {
    const Product q = product_number(all, k, 1);
    p.left = is_turned ? q.right : q.left;
    p.right = is_turned ? q.left : q.right;
    p.result = q.result;
    if (!multiply(&p, 1)) return 1;
  }
  return 0;
}

// few large products are spread one after another, others side by side; false without memory
static bool multiply_all(Products all, int processors) {
  const Word count = number_of(&all);
  const Word work = all.first.rows * all.first.columns * all.first.terms;
  const bool is_few = all.first.rows <= few_rows || all.first.columns <= few_rows;  // each factor is read about once
  if (count > 4 * processors || (count > 1 && work <= 1 << 22))
    return !launch(multiply_some, (void**)&all, count, count * work > (is_few ? 1 << 17 : 1 << 20) ? processors : 1);
  for (Word k = 0; k < count; ++k) {
    Product p = product_number(&all, k, 1);
    turn(&p);
    if (!multiply(&p, processors)) return false;
  }
  return true;
}
};

// slots of the factors and the result, rows, columns, terms, strides in elements as in Product, and the dimensions of
// several products as in Products; false without memory
template <typename T, typename By = Multiplier<T>> bool multiply_words(void** slots, const Word* w, int processors) {
  using M = Multiplier<T>;
  const T *left = (const T*)slots[w[0]], *right = (const T*)slots[w[1]];
  const typename M::Product p = {left, right, (T*)slots[w[2]], 0, w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10],
                                 w[11], 0, 0, 0, 0};
  return By::multiply_all({p, w[12], (const typename M::Distance*)(w + 13)}, processors);
}
