// fork(2) for a child that executes another program. Until execve(2), a child has the signal
// handlers of its parent: a SIGTERM that came then would only be noted in memory that execve()
// discards, and the new program would never end.
#pragma once

#include <sys/types.h>

namespace ff {

// As fork(2). In the child, SIGINT and SIGTERM have their default actions, unless they are ignored;
// none is lost.
pid_t fork_for_exec();

}  // namespace ff
