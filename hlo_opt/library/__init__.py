"""Library calls (products, sorts, FFT, factorizations, ...) over an array module `xp`; emitted drivers copy their
source."""
