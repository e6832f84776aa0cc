// Choosing among the ways to compute one thing, by what this CPU has. Not for the units behind
// them, which are compiled for newer CPUs and share no inline function with the rest of the
// program.
#pragma once

#include <stddef.h>

namespace ff::simd {

// Of paths with the fastest first, the last of which every CPU supports.
template <class Path, size_t kCount>
const Path& first_supported(const Path (&paths)[kCount]) {
  size_t i = 0;
  while (!paths[i].supported()) ++i;
  return paths[i];
}

}  // namespace ff::simd
