// Convolutions with long windows and few places, behind `host_convolution.h`: gradients of weights, whose windows are
// whole images. Their terms are split among processors, not their rows, so that each copies other terms of image and
// weights, a line at a time. Every element is a sum of products feature by feature, in each in the order of the
// window's places, in parts that depend on sizes only.
#pragma once

static const Word least_line = 8, most_parts = 16, most_sums = 1 << 16;

// the terms of a window as lines along its last dimension, `line` places at most: `segments` of them, so many in a
// piece, and so many pieces in a part; sums of each part, tile after tile
struct LongWindows {
  const Convolution* c;
  Word line, cuts, segments, each, pieces, pieces_each, parts, tiles, panels;
  float* sums;
};

// a line of terms: where it begins in the window and in its last dimension, how long it is
struct Line {
  Word feature, place[most_spatial], count;
};

static inline Line line_of(const LongWindows* p, Word number) {
  const Convolution* const c = p->c;
  const Word across = c->count - 1;
  Line line;
  line.place[across] = number % p->cuts * p->line;
  number /= p->cuts;
  for (Word d = across; d-- > 0; number /= c->spatial[d].window) line.place[d] = number % c->spatial[d].window;
  line.feature = number;
  const Word left = c->spatial[across].window - line.place[across];
  line.count = left < p->line ? left : p->line;
  return line;
}

// lines of the weights, `tile_columns` columns of each term beside each other; `count` terms from panel to panel
static void copy_weight_lines(const LongWindows* p, const Line* lines, Word number, Word count, float* to) {
  const Convolution* const c = p->c;
  const Word across = c->count - 1;
  for (Word j = 0; j < c->columns; j += tile_columns, to += count * tile_columns) {
    const Word here = c->columns - j < tile_columns ? c->columns - j : tile_columns;
    float* at = to;
    for (Word n = 0; n < number; at += lines[n++].count * tile_columns) {
      const float* from = c->weights + lines[n].feature * c->weights_feature + j * c->weights_column;
      for (Word d = 0; d < c->count; ++d) {
        const Spatial* const s = &c->spatial[d];
        from += (s->turned ? s->window - 1 - lines[n].place[d] : lines[n].place[d]) * s->weights;
      }
      const Word next = c->spatial[across].turned ? -c->spatial[across].weights : c->spatial[across].weights;
      Floats::pack<tile_columns>(at, from, lines[n].count, here, next, c->weights_column);
    }
  }
}

// lines of the window of a row, zeros where it is outside of the image
static void copy_image_lines(const LongWindows* p, const Row* row, const Line* lines, Word number, float* to) {
  const Convolution* const c = p->c;
  const Word across = c->count - 1;
  const Spatial* const last = &c->spatial[across];
  for (Word n = 0; n < number; to += lines[n++].count) {
    const Word count = lines[n].count;
    const float* from = row->batch + lines[n].feature * c->image_feature;
    bool inside = true;
    for (Word d = 0; d < across; ++d) {
      const Word place = row->first[d] + lines[n].place[d] * c->spatial[d].apart;
      inside &= place >= 0 && place < c->spatial[d].size;
      from += place * c->spatial[d].image;
    }
    const Word first = row->first[across] + lines[n].place[across] * last->apart, step = last->apart * last->image;
    Word low = first < 0 ? (-first + last->apart - 1) / last->apart : 0;
    Word high = first < last->size ? (last->size - first + last->apart - 1) / last->apart : 0;
    high = !inside ? 0 : high < count ? high : count;
    low = low < high ? low : high;
    from += first * last->image;
    for (Word t = 0; t < low; ++t) to[t] = 0;
    if (step == 1)
      for (Word t = low; t < high; ++t) to[t] = from[t];
    else
      for (Word t = low; t < high; ++t) to[t] = from[t * step];
    for (Word t = high; t < count; ++t) to[t] = 0;
  }
}

// parts from `begin` up to `end`; the face of a kernel's launcher
static int convolve_parts(void** argument, Word begin, Word end) {
  const LongWindows* const p = (const LongWindows*)argument;
  const Convolution* const c = p->c;
  const Word area = tile_rows * tile_columns;
  float* const panels = (float*)malloc((size_t)(panel_columns(c) * depth) * sizeof(float));
  if (!panels) return 1;
  alignas(64) float left[tile_rows * depth], tile[tile_rows * tile_columns];
  Line lines[depth];
  for (Word part = begin; part < end; ++part) {
    float* const sums = p->sums + part * p->tiles * p->panels * area;
    for (Word piece = part * p->pieces_each; piece < (part + 1) * p->pieces_each && piece < p->pieces; ++piece) {
      Word number = 0, count = 0;
      for (Word n = piece * p->each; n < (piece + 1) * p->each && n < p->segments; ++n) {
        lines[number] = line_of(p, n);
        count += lines[number++].count;
      }
      copy_weight_lines(p, lines, number, count, panels);
      for (Word i = 0; i < p->tiles; ++i) {
        for (Word r = 0; r < tile_rows; ++r) {
          const Word own = i * tile_rows + r < c->rows ? i * tile_rows + r : c->rows - 1;
          const Row row = row_of(c, own);
          copy_image_lines(p, &row, lines, number, left + r * depth);
        }
        for (Word j = 0; j < p->panels; ++j) {
          float* const to = sums + (i * p->panels + j) * area;
          float* const made = piece == part * p->pieces_each ? to : tile;
          if (c->columns - j * tile_columns <= lanes)
            multiply_windows<1>(left, panels + j * tile_columns * count, count, made);
          else
            multiply_windows<2>(left, panels + j * tile_columns * count, count, made);
          if (made == to) continue;
          for (Word k = 0; k < area; ++k) to[k] += tile[k];
        }
      }
    }
  }
  free(panels);
  return 0;
}

// tiles of rows from `begin` up to `end`, of the sums of all parts; the face of a kernel's launcher
static int add_parts(void** argument, Word begin, Word end) {
  const LongWindows* const p = (const LongWindows*)argument;
  const Convolution* const c = p->c;
  const Word area = tile_rows * tile_columns, apart = p->tiles * p->panels * area;
  alignas(64) float tile[tile_rows * tile_columns];
  for (Word i = begin; i < end; ++i)
    for (Word j = 0; j < p->panels; ++j) {
      const float* from = p->sums + (i * p->panels + j) * area;
      memcpy(tile, from, sizeof tile);
      for (Word part = 1; part < p->parts; ++part)
        for (Word k = 0; k < area; ++k) tile[k] += from[part * apart + k];
      const Word first = j * tile_columns, left = c->columns - first;
      const Word columns = left < tile_columns ? left : tile_columns;
      for (Word r = 0; r < tile_rows && i * tile_rows + r < c->rows; ++r) {
        float* const to = row_of(c, i * tile_rows + r).result + first * c->result_column;
        for (Word k = 0; k < columns; ++k) to[k * c->result_column] = tile[r * tile_columns + k];
      }
    }
  return 0;
}

// whether windows are long, and so few that the sums of all parts take little memory; neighbouring images beside each
// other are copied as quickly in another way
static bool has_long_windows(Convolution* c) {
  count_rows(c);
  if (!c->count || c->spatial[c->count - 1].window < least_line || c->terms < 2 * depth) return false;
  for (Word d = 0; d < c->count; ++d)
    if (c->spatial[d].spread != 1) return false;
  const bool beside = c->image_batch == 1 && c->image_feature != 1 && 2 * c->batch > tile_rows;
  return !beside && !lies_in_lines(c) && c->rows * c->columns <= most_sums;
}

// without groups; false without memory
static bool convolve_long(Convolution* c, int processors) {
  const Word window = c->spatial[c->count - 1].window;
  LongWindows p = {c, window < depth ? window : depth};
  p.cuts = (window + p.line - 1) / p.line;
  p.segments = c->terms / window * p.cuts;
  p.pieces = (p.segments * p.line + depth - 1) / depth;
  p.pieces = (p.pieces + 3) / 4 * 4;  // as many for each of a few processors
  p.each = (p.segments + p.pieces - 1) / p.pieces;
  if (p.each * p.line > depth) p.each = depth / p.line;
  p.pieces = (p.segments + p.each - 1) / p.each;
  p.pieces_each = (p.pieces + most_parts - 1) / most_parts;
  p.parts = (p.pieces + p.pieces_each - 1) / p.pieces_each;
  p.tiles = (c->rows + tile_rows - 1) / tile_rows;
  p.panels = panel_columns(c) / tile_columns;
  const Word sums = p.parts * p.tiles * p.panels * tile_rows * tile_columns;
  p.sums = (float*)malloc((size_t)sums * sizeof(float));
  if (!p.sums) return false;
  const int wanted = c->rows * c->columns * c->terms > 1 << 18 ? processors : 1;
  const bool done = !launch(convolve_parts, (void**)&p, p.parts, wanted);
  if (done) launch(add_parts, (void**)&p, p.tiles, sums > 1 << 16 ? wanted : 1);
  free(p.sums);
  return done;
}

// as it is quickest, without groups; false without memory
static bool convolve_one(Convolution* c, int processors) {
  return has_long_windows(c) ? convolve_long(c, processors) : convolve(c, processors);
}
