// The declarations of the subcommands of `ff bench`.
#pragma once

#include "cmd/cli/cli.h"

namespace ff::cmd {

void declare_bench_chain(Command& chain);
void declare_bench_files(Command& files);
void declare_bench_io(Command& io);
void declare_bench_kv(Command& kv);
void declare_bench_meta(Command& meta);
void declare_bench_chunk(Command& chunk);
void declare_bench_net(Command& net);
void declare_bench_ring(Command& ring);

}  // namespace ff::cmd
