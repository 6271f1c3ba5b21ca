// Convolutions of f32 arrays that lie anyhow, for `host_routine.h`: products whose left rows are windows of the
// image, copied for a tile of rows at a time. Every element is a sum of products in the order of the window's places
// and, in each, of the features, in pieces of `depth`.
#pragma once

// of a dimension of the image: how many places the result has, window, stride, padding before the first element,
// dilation of the image and of the window, whether the window is turned around, elements of the image, and how far
// apart neighbours are in image, weights and result
struct Spatial {
  Word places, window, stride, low, spread, apart, turned, size, image, weights, result;
};

static const int most_spatial = 3;
typedef Multiplier<float> Floats;
static const int lanes = Floats::lanes;
static const Word tile_columns = Floats::tile_columns, depth = Floats::depth;
typedef Floats::Lanes Lanes;

// a place of the window and a feature: how far from where the window begins, in elements of the image and of its
// dimensions
struct Term {
  Word offset, place[most_spatial];
};

struct Convolution {
  const float *image, *weights;
  float *result, *panels;
  Word batch, features, columns;
  Word image_batch, image_feature, weights_feature, weights_column, result_batch, result_column;
  Word groups, group_image, group_weights, group_result;  // how many, and how far apart; features and columns of one
  Word count;  // of spatial dimensions
  Spatial spatial[most_spatial];
  Term* table;  // null where images have gaps
  Word rows, terms, first_term, last_term;  // the piece at hand
};

static inline Word panel_columns(const Convolution* c) {
  return (c->columns + tile_columns - 1) / tile_columns * tile_columns;
}

// the digits of a window's place
static inline void digits_of(const Convolution* c, Word place, Word* to) {
  for (Word d = c->count; d-- > 0; place /= c->spatial[d].window) to[d] = place % c->spatial[d].window;
}

static void copy_weights(const Convolution* c) {
  const Word count = c->last_term - c->first_term;
  for (Word t = c->first_term; t < c->last_term; ++t) {
    Word at[most_spatial];
    digits_of(c, t / c->features, at);
    const float* from = c->weights + t % c->features * c->weights_feature;
    for (Word d = 0; d < c->count; ++d)
      from += (c->spatial[d].turned ? c->spatial[d].window - 1 - at[d] : at[d]) * c->spatial[d].weights;
    for (Word j = 0; j < c->columns; j += tile_columns) {
      float* const to = c->panels + j * count + (t - c->first_term) * tile_columns;
      const Word here = c->columns - j < tile_columns ? c->columns - j : tile_columns;
      if (here == tile_columns && c->weights_column == 1)
        for (Word k = 0; k < tile_columns; ++k) to[k] = from[j + k];
      else
        for (Word k = 0; k < tile_columns; ++k) to[k] = k < here ? from[(j + k) * c->weights_column] : 0;
    }
  }
}

// as multiply_tile, of so many vectors of columns; the left rows lie one after another, `depth` apart
template <int vectors>
HLO_APART static void multiply_windows(const float* left, const float* right, Word count, float* tile) {
  Lanes sums[tile_rows][vectors];
#pragma GCC unroll 12
  for (int r = 0; r < tile_rows; ++r)
    for (int k = 0; k < vectors; ++k) sums[r][k] = Lanes{};
  for (Word t = 0; t < count; ++t, right += tile_columns) {
    Lanes there[vectors];
    for (int k = 0; k < vectors; ++k) there[k] = *(const Lanes*)(right + k * lanes);
#pragma GCC unroll 12
    for (int r = 0; r < tile_rows; ++r)
      for (int k = 0; k < vectors; ++k) sums[r][k] += left[r * depth + t] * there[k];
  }
#pragma GCC unroll 12
  for (int r = 0; r < tile_rows; ++r)
    for (int k = 0; k < vectors; ++k) *(Lanes*)(tile + r * tile_columns + k * lanes) = sums[r][k];
}

// where the window of a row starts in the padded image, the row's batch, and where the row's results go
struct Row {
  Word first[most_spatial];
  const float* batch;
  float* result;
};

static void find_terms(const Convolution* c) {
  for (Word t = 0; t < c->terms; ++t) {
    Term* const term = c->table + t;
    digits_of(c, t / c->features, term->place);
    term->offset = t % c->features * c->image_feature;
    for (Word d = 0; d < c->count; ++d) {
      term->place[d] *= c->spatial[d].apart;
      term->offset += term->place[d] * c->spatial[d].image;
    }
  }
}

static inline bool lies_inside(const Convolution* c, const Row* row) {
  bool inside = true;
  for (Word d = 0; d < c->count; ++d) {
    const Spatial* const s = &c->spatial[d];
    inside &= row->first[d] >= 0 && row->first[d] + (s->window - 1) * s->apart < s->size;
  }
  return inside;
}

// the terms at hand of a window of an image without gaps, zeros where it is outside
static inline void copy_window(const Convolution* c, const Row* row, float* to) {
  const bool inside = lies_inside(c, row);
  const float* from = row->batch;
  for (Word d = 0; d < c->count; ++d) from += row->first[d] * c->spatial[d].image;
  if (inside && (c->image_feature != 1 || c->features < lanes)) {
    for (Word t = c->first_term; t < c->last_term; ++t) *to++ = from[c->table[t].offset];
    return;
  }
  Word there = c->features - c->first_term % c->features;  // of the first place; others have all features
  for (Word t = c->first_term; t < c->last_term; there = c->features) {
    const Word left = c->last_term - t, here = there < left ? there : left;
    const Term* const term = c->table + t;
    bool exists = true;
    for (Word d = 0; !inside && d < c->count; ++d) {
      const Word place = row->first[d] + term->place[d];
      exists &= place >= 0 && place < c->spatial[d].size;
    }
    if (!exists) {
      for (Word f = 0; f < here; ++f) to[f] = 0;
    } else if (c->image_feature == 1) {
      for (Word f = 0; f < here; ++f) to[f] = from[term->offset + f];
    } else {
      for (Word f = 0; f < here; ++f) to[f] = from[term[f].offset];
    }
    t += here;
    to += here;
  }
}

// the terms at hand of the windows of some rows
static inline void copy_windows(const Convolution* c, const Row* rows, Word count, float* to) {
  if (c->table) {
    for (Word r = 0; r < count; ++r) copy_window(c, rows + r, to + r * depth);
    return;
  }
  for (Word t = c->first_term; t < c->last_term;) {
    Word at[most_spatial];
    digits_of(c, t / c->features, at);
    const Word feature = t % c->features, left = c->last_term - t;
    const Word here = c->features - feature < left ? c->features - feature : left;
    for (Word r = 0; r < count; ++r) {
      const float* from = rows[r].batch + feature * c->image_feature;
      float* const line = to + r * depth;
      bool inside = true;
      for (Word d = 0; d < c->count; ++d) {
        const Spatial* const s = &c->spatial[d];
        const Word place = rows[r].first[d] + at[d] * s->apart, own = s->spread == 1 ? place : place / s->spread;
        inside &= place >= 0 && own < s->size && own * s->spread == place;
        from += inside ? own * s->image : 0;
      }
      if (!inside) {
        for (Word f = 0; f < here; ++f) line[f] = 0;
      } else if (c->image_feature == 1) {
        for (Word f = 0; f < here; ++f) line[f] = from[f];
      } else {
        for (Word f = 0; f < here; ++f) line[f] = from[f * c->image_feature];
      }
    }
    t += here;
    to += here;
  }
}

static inline Row row_of(const Convolution* c, Word number) {
  Row row;
  row.result = c->result;
  for (Word d = c->count; d-- > 0; number /= c->spatial[d].places) {
    const Word place = number % c->spatial[d].places;
    row.first[d] = place * c->spatial[d].stride - c->spatial[d].low;
    row.result += place * c->spatial[d].result;
  }
  row.result += number * c->result_batch;
  row.batch = c->image + number * c->image_batch;
  return row;
}

// tiles of rows from `begin` up to `end`; the face of a kernel's launcher
static int convolve_tiles(void** argument, Word begin, Word end) {
  const Convolution* const c = (const Convolution*)argument;
  const Word count = c->last_term - c->first_term;
  alignas(64) float left[tile_rows * depth], tile[tile_rows * tile_columns];
  for (Word i = begin * tile_rows; i < end * tile_rows && i < c->rows; i += tile_rows) {
    const Word rows = c->rows - i < tile_rows ? c->rows - i : tile_rows;
    Row at[tile_rows];
    for (Word r = 0; r < rows; ++r) at[r] = row_of(c, i + r);
    copy_windows(c, at, rows, left);
    for (Word r = rows; r < tile_rows; ++r)
      for (Word t = 0; t < count; ++t) left[r * depth + t] = 0;
    for (Word j = 0; j < c->columns; j += tile_columns) {
      const Word columns = c->columns - j < tile_columns ? c->columns - j : tile_columns;
      if (columns <= lanes)
        multiply_windows<1>(left, c->panels + j * count, count, tile);
      else
        multiply_windows<2>(left, c->panels + j * count, count, tile);
      if (columns == tile_columns && c->result_column == 1) {
        for (Word r = 0; r < rows; ++r) {
          const Lanes* const sums = (const Lanes*)(tile + r * tile_columns);
          Lanes* const to = (Lanes*)(at[r].result + j);
          to[0] = c->first_term ? to[0] + sums[0] : sums[0];
          to[1] = c->first_term ? to[1] + sums[1] : sums[1];
        }
        continue;
      }
      for (Word k = 0; k < columns; ++k)  // rows lie beside each other where columns do not
        for (Word r = 0; r < rows; ++r) {
          float* const to = at[r].result + (j + k) * c->result_column;
          *to = c->first_term ? *to + tile[r * tile_columns + k] : tile[r * tile_columns + k];
        }
    }
  }
  return 0;
}

// the terms at hand of the windows of neighbouring images, whose elements lie beside each other, term after term
template <int height>
static inline void copy_beside(const Convolution* c, const Row* row, Word images, float* to) {
  const bool inside = lies_inside(c, row);
  const float* from = row->batch;
  for (Word d = 0; d < c->count; ++d) from += row->first[d] * c->spatial[d].image;
  Word there = c->features - c->first_term % c->features;  // of the first place; others have all features
  for (Word t = c->first_term; t < c->last_term; there = c->features) {
    bool exists = true;
    for (Word d = 0; !inside && d < c->count; ++d) {
      const Word place = row->first[d] + c->table[t].place[d];
      exists &= place >= 0 && place < c->spatial[d].size;
    }
    for (const Word end = t + there < c->last_term ? t + there : c->last_term; t < end; ++t, to += height) {
      const float* const first = from + c->table[t].offset;
      if (exists && images == height)
        for (int r = 0; r < height; ++r) to[r] = first[r];
      else
        for (int r = 0; r < height; ++r) to[r] = exists && r < images ? first[r] : 0;
    }
  }
}

// whether as many neighbouring images as a tile has rows lie beside each other: gradients of weights, whose images are
// the features
static inline bool lies_beside(const Convolution* c) {
  return c->table && c->image_batch == 1 && c->image_feature != 1 && 2 * c->batch > tile_rows;
}

// tiles of neighbouring images, so many at most, from `begin` up to `end`, place after place; the face of a kernel's
// launcher
template <int height> static int convolve_beside(void** argument, Word begin, Word end) {
  const Convolution* const c = (const Convolution*)argument;
  const Word count = c->last_term - c->first_term, tiles = (c->batch + height - 1) / height;
  alignas(64) float left[height * depth], tile[height * tile_columns];
  for (Word b = begin; b < end; ++b) {
    const Word image = b % tiles * height, images = c->batch - image < height ? c->batch - image : height;
    Row row = row_of(c, b / tiles);  // of the first image
    row.batch += image;
    row.result += image * c->result_batch;
    copy_beside<height>(c, &row, images, left);
    for (Word j = 0; j < c->columns; j += tile_columns) {
      const Word columns = c->columns - j < tile_columns ? c->columns - j : tile_columns;
      Floats::multiply_tile<height, 2>(left, 1, height, c->panels + j * count, tile_columns, count, tile);
      for (Word r = 0; r < images; ++r)
        for (Word k = 0; k < columns; ++k) {
          float* const to = row.result + r * c->result_batch + (j + k) * c->result_column;
          *to = c->first_term ? *to + tile[r * tile_columns + k] : tile[r * tile_columns + k];
        }
    }
  }
  return 0;
}

static const Word few_columns = 4, line_places = 1024;

// whether the result has so few features that a product would mostly multiply zeros, and neighbours of its last
// dimension can be computed side by side
static bool lies_in_lines(const Convolution* c) {
  if (!c->count || c->columns > few_columns) return false;
  const Spatial* const last = &c->spatial[c->count - 1];
  return last->stride == 1 && last->spread == 1 && last->image == 1 && last->result == 1;
}

// pieces of lines from `begin` up to `end`, of one feature of the result after another; the face of a kernel's launcher
static int convolve_lines(void** argument, Word begin, Word end) {
  const Convolution* const c = (const Convolution*)argument;
  const Word across = c->count - 1, window = c->terms / c->features;
  const Spatial* const last = &c->spatial[across];
  const Word pieces = (last->places + line_places - 1) / line_places;
  alignas(64) float sums[line_places];
  for (Word b = begin; b < end; ++b) {
    const Word first = b % pieces * line_places, column = b / pieces % c->columns;
    const Word count = last->places - first < line_places ? last->places - first : line_places;
    Word rest = b / pieces / c->columns, place[most_spatial], at[most_spatial];
    float* to = c->result + column * c->result_column + first;
    for (Word d = across; d-- > 0; rest /= c->spatial[d].places) {
      place[d] = rest % c->spatial[d].places;
      to += place[d] * c->spatial[d].result;
    }
    to += rest * c->result_batch;
    memset(sums, 0, (size_t)count * sizeof(float));
    for (Word t = 0; t < window; ++t) {
      digits_of(c, t, at);
      const float *from = c->image + rest * c->image_batch, *weight = c->weights + column * c->weights_column;
      bool inside = true;
      for (Word d = 0; d < c->count; ++d) {
        const Spatial* const s = &c->spatial[d];
        weight += (s->turned ? s->window - 1 - at[d] : at[d]) * s->weights;
        if (d == across) continue;
        const Word there = place[d] * s->stride - s->low + at[d] * s->apart, own = there / s->spread;
        inside &= there >= 0 && own < s->size && own * s->spread == there;
        from += inside ? own * s->image : 0;
      }
      if (!inside) continue;
      const Word shift = first - last->low + at[across] * last->apart, left = last->size - shift;
      const Word low = shift < 0 ? -shift : 0, high = left < count ? left : count;
      for (Word f = 0; f < c->features; ++f) {
        const float factor = weight[f * c->weights_feature];
        const float* const line = from + f * c->image_feature;
        for (Word k = low; k < high; ++k) sums[k] += factor * line[k + shift];
      }
    }
    memcpy(to, sums, (size_t)count * sizeof(float));
  }
  return 0;
}

// rows of the result, and terms of an element's sum
static void count_rows(Convolution* c) {
  c->rows = c->batch;
  c->terms = c->features;
  for (Word d = 0; d < c->count; ++d) {
    c->rows *= c->spatial[d].places;
    c->terms *= c->spatial[d].window;
  }
}

// Images whose features come first, moved so that these come last. A window then has runs of neighbours; elements a
// whole image apart mostly share one set of the first cache.
struct LastFeatures {
  const Convolution* c;
  float* to;
};

static const Word places_aside = 16, often_read = 4;

// whether features lie apart, other elements beside each other, and windows read each often enough
static bool has_first_features(const Convolution* c) {
  if (!c->table || !c->count || c->image_feature == 1 || c->features < lanes) return false;
  Word read = 1, size = 1;
  for (Word d = 0; d < c->count; ++d) {
    read *= c->spatial[d].places * c->spatial[d].window;
    size *= c->spatial[d].size;
  }
  return c->spatial[c->count - 1].image == 1 && read >= often_read * size;
}

// lines of images from `begin` up to `end`; the face of a kernel's launcher
static int put_features_last(void** argument, Word begin, Word end) {
  const LastFeatures* const turn = (const LastFeatures*)argument;
  const Convolution* const c = turn->c;
  const Word across = c->count - 1, count = c->spatial[across].size;
  for (Word b = begin; b < end; ++b) {
    const float* from = c->image;
    float* to = turn->to + b * count * c->features;
    Word rest = b;
    for (Word d = across; d-- > 0; rest /= c->spatial[d].size)
      from += rest % c->spatial[d].size * c->spatial[d].image;
    from += rest * c->image_batch;
    for (Word first = 0; first < count; first += places_aside, to += places_aside * c->features) {
      const Word here = count - first < places_aside ? count - first : places_aside;
      for (Word f = 0; f < c->features; ++f)
        for (Word k = 0; k < here; ++k) to[k * c->features + f] = from[f * c->image_feature + first + k];
    }
  }
  return 0;
}

// images with features last in new memory, null without any; the convolution then reads these
static float* with_last_features(Convolution* c, int processors) {
  Word lines = c->batch, apart = c->features;
  for (Word d = 0; d + 1 < c->count; ++d) lines *= c->spatial[d].size;
  const Word elements = lines * c->spatial[c->count - 1].size * c->features;
  float* const to = (float*)malloc((size_t)elements * sizeof(float));
  if (!to) return 0;
  LastFeatures turn = {c, to};
  launch(put_features_last, (void**)&turn, lines, elements > 1 << 16 ? processors : 1);
  c->image = to;
  c->image_feature = 1;
  for (Word d = c->count; d-- > 0; apart *= c->spatial[d].size) c->spatial[d].image = apart;
  c->image_batch = apart;
  find_terms(c);
  return to;
}

// without groups; false without memory
static bool convolve(Convolution* c, int processors) {
  count_rows(c);
  if (lies_in_lines(c)) {
    const Word places = c->spatial[c->count - 1].places, pieces = (places + line_places - 1) / line_places;
    const Word lines = c->rows / places * c->columns;
    launch(convolve_lines, (void**)c, lines * pieces, lines * places * c->terms > 1 << 18 ? processors : 1);
    return true;
  }
  c->panels = (float*)malloc((size_t)(panel_columns(c) * (c->terms < depth ? c->terms : depth)) * sizeof(float));
  if (!c->panels) return false;
  bool gaps = false;
  for (Word d = 0; d < c->count; ++d) gaps |= c->spatial[d].spread != 1;
  c->table = gaps ? 0 : (Term*)malloc((size_t)c->terms * sizeof(Term));
  if (c->table) find_terms(c);
  float* const turned = !lies_beside(c) && has_first_features(c) ? with_last_features(c, processors) : 0;
  const Word tiles = (c->rows + tile_rows - 1) / tile_rows, work = c->rows * c->columns;
  for (c->first_term = 0; c->first_term < c->terms; c->first_term += depth) {
    c->last_term = c->first_term + depth < c->terms ? c->first_term + depth : c->terms;
    copy_weights(c);
    const int wanted = work * (c->last_term - c->first_term) > 1 << 20 ? processors : 1;
    const Word places = c->rows / c->batch, low = 2 * Floats::third;
    if (lies_beside(c) && (c->batch <= low || (c->batch % tile_rows && c->batch % low == 0)))
      launch(convolve_beside<2 * Floats::third>, (void**)c, places * ((c->batch + low - 1) / low), wanted);
    else if (lies_beside(c))
      launch(convolve_beside<tile_rows>, (void**)c, places * ((c->batch + tile_rows - 1) / tile_rows), wanted);
    else
      launch(convolve_tiles, (void**)c, tiles, wanted);
  }
  free(turned);
  free(c->table);
  free(c->panels);
  return true;
}
