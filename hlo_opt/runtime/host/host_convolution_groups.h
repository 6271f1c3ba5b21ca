// Convolutions whose features, or whose batch, are in groups that do not mix, behind `host_convolution.h`.
#pragma once

// of several groups side by side, or of one; a template argument would lose the alignment of a vector's elements
struct SideBySide {
  typedef Lanes Side;
};
struct Alone {
  typedef float Side;
};

// sums of the groups from `first` on, side by side: one feature of the result each, at one place of the result
template <typename Ways, int sides>
static inline void sum_groups(const Convolution* c, const Row* row, Word window, Word first) {
  typedef typename Ways::Side Side;
  Side sums[sides] = {};
  const Word across = c->count - 1;
  const Spatial* const last = &c->spatial[across];
  for (Word outer = 0; outer < window / last->window; ++outer) {
    const float *from = row->batch + first, *weight = c->weights + first;
    bool inside = true;
    Word rest = outer;
    for (Word d = across; d-- > 0; rest /= c->spatial[d].window) {
      const Spatial* const s = &c->spatial[d];
      const Word at = rest % s->window, place = row->first[d] + at * s->apart, own = place / s->spread;
      inside &= place >= 0 && own < s->size && own * s->spread == place;
      from += own * s->image;
      weight += (s->turned ? s->window - 1 - at : at) * s->weights;
    }
    for (Word at = 0; inside && at < last->window; ++at) {
      const Word place = row->first[across] + at * last->apart, own = place / last->spread;
      if (place < 0 || own >= last->size || own * last->spread != place) continue;
      const float* line = from + own * last->image;
      const float* factors = weight + (last->turned ? last->window - 1 - at : at) * last->weights;
      for (Word f = 0; f < c->features; ++f, line += c->image_feature, factors += c->weights_feature)
#pragma GCC unroll 4
        for (int k = 0; k < sides; ++k) sums[k] += ((const Side*)line)[k] * ((const Side*)factors)[k];
    }
  }
  for (int k = 0; k < sides; ++k) ((Side*)(row->result + first))[k] = sums[k];
}

static const Word groups_aside = 4 * lanes;

// whether each group has one feature of the result, and neighbours lie side by side: a depthwise convolution whose
// channels come last, and the gradient of its weights
static bool lie_side_by_side(const Convolution* c) {
  return c->count && c->columns == 1 && c->group_image == 1 && c->group_weights == 1 && c->group_result == 1;
}

// stretches of groups from `begin` up to `end`, of one place of the result after another; the face of a kernel's
// launcher
static int convolve_side_by_side(void** argument, Word begin, Word end) {
  const Convolution* const c = (const Convolution*)argument;
  const Word stretches = (c->groups + groups_aside - 1) / groups_aside, window = c->terms / c->features;
  for (Word b = begin; b < end; ++b) {
    const Row row = row_of(c, b / stretches);
    Word first = b % stretches * groups_aside;
    const Word left = c->groups - first, stop = first + (left < groups_aside ? left : groups_aside);
    if (stop - first == groups_aside) {
      sum_groups<SideBySide, 4>(c, &row, window, first);
      continue;
    }
    for (; first + lanes <= stop; first += lanes) sum_groups<SideBySide, 1>(c, &row, window, first);
    for (; first < stop; ++first) sum_groups<Alone, 1>(c, &row, window, first);
  }
  return 0;
}

// groups from `begin` up to `end`, each as a convolution of its own; the face of a kernel's launcher
static int convolve_groups(void** argument, Word begin, Word end) {
  const Convolution* const c = (const Convolution*)argument;
  for (Word g = begin; g < end; ++g) {
    Convolution one = *c;
    one.image += g * c->group_image;
    one.weights += g * c->group_weights;
    one.result += g * c->group_result;
    if (!convolve_one(&one, 1)) return 1;
  }
  return 0;
}

// slots of image, weights and result, where weights and result begin, then what Convolution has from `batch` on:
// numbers, and for each spatial dimension its own. False without memory
static bool convolve_words(void** slots, const Word* w, int processors) {
  Convolution c = {(const float*)slots[w[0]], (const float*)slots[w[1]] + w[3], (float*)slots[w[2]] + w[4], 0,
                   w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15], w[16], w[17], w[18]};
  memcpy(c.spatial, w + 19, (size_t)c.count * sizeof(Spatial));
  if (c.groups == 1) return convolve_one(&c, processors);
  count_rows(&c);
  const int spread_over = c.rows * c.columns * c.terms * c.groups > 1 << 18 ? processors : 1;
  if (!lie_side_by_side(&c)) return !launch(convolve_groups, (void**)&c, c.groups, spread_over);
  const Word stretches = (c.groups + groups_aside - 1) / groups_aside;
  return !launch(convolve_side_by_side, (void**)&c, c.rows * stretches, spread_over);
}
