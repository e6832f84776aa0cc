// Errors of libff.so: functions return a code, and ff_error() the message.
#pragma once

#include "platform/base/result.h"

namespace ff::bindings {

// Stores the message for this thread and returns its ff_status.
int failed(const Error& error);
int outcome(const Result<void>& result);

}  // namespace ff::bindings
