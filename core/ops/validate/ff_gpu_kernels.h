// What the kernels of ff-gpu (ff_gpu_kernels.cu) and the program that starts them (ff_gpu_load.c)
// share: sizes, patterns, the values of matrices, and the report of wrong words. Plain C.
#pragma once

#ifdef __CUDACC__
#define FF_ON_DEVICE __device__
#else
#define FF_ON_DEVICE
#endif

enum {
  FF_SIDE = 256,  // of the square matrices
  FF_TILE = 64,   // of the product, by one block of threads
  FF_TILES = FF_SIDE * FF_SIDE / (FF_TILE * FF_TILE),
  FF_MATRIX = FF_SIDE * FF_SIDE,  // elements
  FF_THREADS = 128,               // of a block
  FF_WRONG_MAX = 16,              // wrong words that are kept
};

enum {
  FF_ZEROS_AND_ONES,
  FF_OWN_ADDRESS,
  FF_WALKING_ONES,
  FF_WALKING_ZEROS,
  FF_RANDOM,
  FF_PATTERNS,
};

typedef unsigned long long ff_word;

struct ff_wrong {
  ff_word at;             // index of the word, or of the element of the product
  ff_word expected, got;  // the word; of a product, the bits of a double
  unsigned processor;     // the multiprocessor that has found it
  unsigned copy;          // of the matrices
};

struct ff_report {
  ff_word count;
  struct ff_wrong first[FF_WRONG_MAX];
};

static inline FF_ON_DEVICE ff_word ff_mixed(ff_word value) {  // splitmix64
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

// The word at an index in a pattern.
static inline FF_ON_DEVICE ff_word ff_pattern(unsigned pattern, ff_word at, ff_word seed) {
  switch (pattern) {
    case FF_ZEROS_AND_ONES: return at % 2 == 0 ? 0 : ~0ull;
    case FF_OWN_ADDRESS: return at * 8;
    case FF_WALKING_ONES: return 1ull << at % 64;
    case FF_WALKING_ZEROS: return ~(1ull << at % 64);
    default: return ff_mixed(at ^ seed);
  }
}

// An element of the factors, first A by rows, then B by columns: an integer from -range to range.
// Ranges are such that every sum of FF_SIDE products is exact in the type that it is added up in,
// in whatever order.
static inline FF_ON_DEVICE long long ff_element(ff_word at, ff_word seed, unsigned range) {
  return (long long)(ff_mixed(seed << 32 ^ at) % (2 * range + 1)) - (long long)range;
}
