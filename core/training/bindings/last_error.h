// How functions of libff.so fail: a code is returned, and the words are kept for ff_error().
#pragma once

#include "platform/base/result.h"

namespace ff::bindings {

// Keeps the error's words for this thread; the ff_status that stands for it.
int failed(const Error& error);
int outcome(const Result<void>& result);

}  // namespace ff::bindings
