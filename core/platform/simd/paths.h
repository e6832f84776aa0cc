// Run-time dispatch: chooses among code paths by the features of this CPU. Sources that are
// compiled for newer CPUs must not include it: they share no inline function with the rest of the
// program.
#pragma once

#include <stddef.h>

namespace ff::simd {

// The first supported one of `paths`, which are ordered by speed; every CPU supports the last one.
template <class Path, size_t kCount>
const Path& first_supported(const Path (&paths)[kCount]) {
  size_t i = 0;
  while (!paths[i].supported()) ++i;
  return paths[i];
}

}  // namespace ff::simd
