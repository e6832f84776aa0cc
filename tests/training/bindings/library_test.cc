// libff.so as a program sees it: its functions between processes, its errors, what it exports.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "training/bindings/ff.h"

namespace ff {
namespace {

constexpr uint32_t kRanks = 3;

std::string new_job() {
  SeededRng rng(system_seed());
  return "library-" + rng.hex_id();
}

// One of loopback that was free a moment ago.
uint16_t free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&at), size), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size), 0);
  ::close(socket);
  return ntohs(at.sin_port);
}

ff_comm_options options_of(uint32_t rank, const std::string& job) {
  ff_comm_options options = {};
  options.size = sizeof options;
  options.rank = rank;
  options.ranks = kRanks;
  options.job = job.c_str();
  options.join_seconds = 30;
  options.operation_seconds = 30;
  return options;
}

// Each rank in a process; all must end with 0. `change` its options.
void with_processes(const std::function<int(ff_comm*)>& body,
                    const std::function<void(ff_comm_options&)>& change = {}) {
  const std::string job = new_job();
  std::vector<pid_t> pids;
  for (uint32_t rank = 0; rank < kRanks; rank++) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    ff_comm_options options = options_of(rank, job);
    if (change) change(options);
    ff_comm* comm = nullptr;
    int code = ff_comm_init(&comm, &options);
    if (code == FF_OK) code = body(comm);
    if (code != 0) std::fprintf(stderr, "rank %u: %d, %s\n", rank, code, ff_error());
    ff_comm_destroy(comm);
    ::_exit(code);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
}

TEST(LibraryTest, RanksOfTwoHosts) {
  const std::string master = "127.0.0.1:" + std::to_string(free_port());
  const auto split = [&](ff_comm_options& options) {
    options.local_ranks = options.rank < 2 ? 2 : 1;
    options.local_rank = options.rank % 2;
    options.master = master.c_str();
    options.wire = "bf16";
  };
  with_processes(
      [](ff_comm* comm) {
        std::vector<float> data(100'000, 1 + 0x1p-12F);
        if (ff_allreduce(comm, data.data(), data.data(), data.size(), FF_FLOAT32, FF_SUM) != 0) {
          return 1;
        }
        return data.front() == 3 && data.back() == 3 ? 0 : 2;  // rounded
      },
      split);
}

TEST(LibraryTest, HostsOfWhichNothingIsSaidAreRefused) {
  const std::string job = "job";
  ff_comm_options options = options_of(0, job);
  options.local_ranks = 2;
  ff_comm* comm = nullptr;
  EXPECT_EQ(ff_comm_init(&comm, &options), FF_USAGE);
  EXPECT_NE(std::string(ff_error()).find("master is null"), std::string::npos) << ff_error();
  EXPECT_EQ(comm, nullptr);
}

TEST(LibraryTest, EveryOperation) {
  with_processes([](ff_comm* comm) {
    const uint32_t rank = ff_comm_rank(comm);
    if (ff_comm_ranks(comm) != kRanks) return 10;
    const auto mine = static_cast<float>(rank + 1);
    std::vector<float> in(1000, mine), out(1000), all(3000);
    if (ff_allreduce(comm, in.data(), out.data(), 1000, FF_FLOAT32, FF_SUM) != FF_OK) return 11;
    if (out != std::vector<float>(1000, 6)) return 12;
    if (ff_reduce(comm, in.data(), out.data(), 1000, FF_FLOAT32, FF_MAX, 1) != FF_OK) return 13;
    if (rank == 1 && out != std::vector<float>(1000, 3)) return 14;
    if (ff_allgather(comm, in.data(), all.data(), 1000, FF_FLOAT32) != FF_OK) return 15;
    if (all[0] != 1 || all[1999] != 2 || all[2000] != 3) return 16;
    if (ff_reduce_scatter(comm, all.data(), out.data(), 1000, FF_FLOAT32, FF_AVG) != FF_OK) {
      return 17;
    }
    if (out != in) return 18;
    if (ff_broadcast(comm, in.data(), in.data(), 1000, FF_FLOAT32, 2) != FF_OK) return 19;
    if (in != std::vector<float>(1000, 3)) return 20;
    return ff_barrier(comm);
  });
}

TEST(LibraryTest, GatherScatterAndAllToAll) {
  with_processes([](ff_comm* comm) {
    const uint32_t rank = ff_comm_rank(comm);
    std::vector<int32_t> in(kRanks, static_cast<int32_t>(rank)), out(10 * kRanks, -1);
    if (ff_gather(comm, in.data(), out.data(), 2, FF_INT32, 1) != FF_OK) return 10;
    if (rank == 1 && (out[1] != 0 || out[2] != 1 || out[5] != 2)) return 11;
    std::vector<int32_t> blocks(2 * kRanks);
    for (size_t i = 0; i < blocks.size(); i++) blocks[i] = static_cast<int32_t>(i + 10);
    if (ff_scatter(comm, blocks.data(), out.data(), 2, FF_INT32, 2) != FF_OK) return 12;
    if (out[0] != static_cast<int32_t>(10 + 2 * rank)) return 13;
    // Rank i gets i elements of each.
    const std::vector<size_t> in_counts = {0, 1, 2}, out_counts(kRanks, rank);
    if (ff_alltoallv(comm, in.data(), in_counts.data(), out.data(), out_counts.data(), FF_INT32) !=
        FF_OK) {
      return 14;
    }
    for (size_t i = 0; i < rank * kRanks; i++) {
      if (out[i] != static_cast<int32_t>(i / rank)) return 15;
    }
    if (ff_alltoallv(comm, in.data(), nullptr, out.data(), nullptr, FF_INT32) != FF_USAGE)
      return 16;
    uint64_t number = 0;
    if (ff_barrier_async(comm, &number) != FF_OK) return 17;
    return ff_wait(comm, number);
  });
}

TEST(LibraryTest, GroupsOfRanks) {
  with_processes([](ff_comm* comm) {
    const uint32_t rank = ff_comm_rank(comm);
    ff_comm* pair = nullptr;
    // Ranks 0 and 2, in reverse order.
    const uint32_t color = rank == 1 ? FF_COLOR_NONE : 7;
    if (ff_comm_split(comm, color, kRanks - rank, &pair) != FF_OK) return 10;
    if (rank == 1) return pair == nullptr ? ff_barrier(comm) : 11;
    if (ff_comm_ranks(pair) != 2 || ff_comm_rank(pair) != (rank == 2 ? 0U : 1U)) return 12;
    float sum = static_cast<float>(rank);
    if (ff_allreduce(pair, &sum, &sum, 1, FF_FLOAT32, FF_SUM) != FF_OK || sum != 2) return 13;
    ff_comm_destroy(pair);
    return ff_barrier(comm);
  });
}

TEST(LibraryTest, TheOthersGoOnWithoutARank) {
  with_processes([](ff_comm* comm) {
    ff_comm* rest = nullptr;
    if (ff_comm_shrink(comm, nullptr) != FF_USAGE || ff_comm_shrink(nullptr, &rest) != FF_USAGE)
      return 10;
    if (ff_barrier(comm) != FF_OK) return 11;
    if (ff_comm_rank(comm) == 1) return 0;
    if (ff_barrier(comm) != FF_FAILED) return 12;
    if (ff_comm_shrink(comm, &rest) != FF_OK) return 13;
    if (ff_comm_ranks(rest) != 2 || ff_comm_rank(rest) != ff_comm_rank(comm) / 2) return 14;
    float sum = 3;
    if (ff_allreduce(rest, &sum, &sum, 1, FF_FLOAT32, FF_SUM) != FF_OK || sum != 6) return 15;
    ff_comm_destroy(rest);
    return 0;
  });
}

TEST(LibraryTest, Messages) {
  with_processes([](ff_comm* comm) {
    const uint32_t rank = ff_comm_rank(comm), to = (rank + 1) % kRanks;
    const uint32_t from = (rank + kRanks - 1) % kRanks;
    std::vector<float> in(1000, static_cast<float>(rank)), out(1000);
    uint64_t sends = 0, receives = 0;
    uint32_t source = FF_RANK_ANY;
    if (ff_recv_async(comm, out.data(), 1000, FF_FLOAT32, FF_RANK_ANY, 3, &source, &receives) !=
            FF_OK ||
        ff_send_async(comm, in.data(), 1000, FF_FLOAT32, to, 3, &sends) != FF_OK) {
      return 10;
    }
    if (ff_wait(comm, receives) != FF_OK || ff_wait(comm, sends) != FF_OK) return 11;
    if (source != from || out != std::vector<float>(1000, static_cast<float>(from))) return 12;
    if (rank == 0 && ff_send(comm, in.data(), 7, FF_UINT8, 1, 0) != FF_OK) return 13;
    if (rank == 1 && ff_recv(comm, out.data(), 7, FF_UINT8, 0, 0, nullptr) != FF_OK) return 14;
    const auto no_type = static_cast<ff_type>(77);
    if (ff_send(comm, in.data(), 1, no_type, 1, 0) != FF_USAGE) return 15;
    if (ff_recv(comm, in.data(), SIZE_MAX, FF_FLOAT32, 1, 0, nullptr) != FF_USAGE) return 16;
    if (ff_send(comm, in.data(), 1, FF_FLOAT32, kRanks, 0) != FF_USAGE) return 17;
    if (std::string(ff_error()).find("the job has 3 ranks") == std::string::npos) return 18;
    if (ff_send(nullptr, in.data(), 1, FF_FLOAT32, 1, 0) != FF_USAGE) return 19;
    return ff_barrier(comm);
  });
}

TEST(LibraryTest, SeveralInFlightInMemoryOfItsOwn) {
  with_processes([](ff_comm* comm) {
    void* memory = nullptr;
    if (ff_alloc(comm, 8 * 4096, &memory) != FF_OK) return 10;
    auto* values = static_cast<int64_t*>(memory);
    std::vector<uint64_t> numbers(8);
    for (size_t i = 0; i < numbers.size(); i++) {
      values[i * 512] = static_cast<int64_t>(i + ff_comm_rank(comm));
      int64_t* const at = values + i * 512;
      if (ff_allreduce_async(comm, at, at, 512, FF_INT64, FF_SUM, &numbers[i]) != FF_OK) return 11;
    }
    for (size_t i = numbers.size(); i > 0; i--) {
      if (ff_wait(comm, numbers[i - 1]) != FF_OK) return 12;
    }
    for (size_t i = 0; i < numbers.size(); i++) {
      if (values[i * 512] != static_cast<int64_t>(3 * i + 3)) return 13;
    }
    if (ff_barrier(comm) != FF_OK) return 14;
    return ff_free(comm, memory);
  });
}

TEST(LibraryTest, ErrorsSayWhatIsWrong) {
  with_processes([](ff_comm* comm) {
    float one = 1;
    const auto said = [](const char* what) {
      return std::string(ff_error()).find(what) != std::string::npos;
    };
    if (ff_allreduce(comm, nullptr, &one, 1, FF_FLOAT32, FF_SUM) != FF_USAGE) return 10;
    if (!said("its input is null")) return 11;
    const auto no_type = static_cast<ff_type>(77);
    if (ff_allreduce(comm, &one, &one, 1, no_type, FF_SUM) != FF_USAGE || !said("77")) return 12;
    const auto no_op = static_cast<ff_op>(9);
    if (ff_allreduce(comm, &one, &one, 1, FF_FLOAT32, no_op) != FF_USAGE || !said("9")) return 13;
    if (ff_broadcast(comm, &one, &one, 1, FF_FLOAT32, kRanks) != FF_USAGE) return 14;
    if (ff_wait(comm, 12345) != FF_USAGE || ff_free(comm, &one) != FF_USAGE) return 15;
    const size_t count = ff_comm_rank(comm) == 2 ? 1 : 2;
    std::vector<float> two(2);
    if (ff_allreduce(comm, two.data(), two.data(), count, FF_FLOAT32, FF_SUM) != FF_USAGE)
      return 16;
    if (!said("rank 2 (process")) return 17;
    return ff_barrier(comm);
  });
}

TEST(LibraryTest, MemoryThatOverlapsIsRefused) {
  with_processes([](ff_comm* comm) {
    void* memory = nullptr;
    if (ff_alloc(comm, 4096, &memory) != FF_OK) return 10;
    auto* const at = static_cast<float*>(memory);
    const uint32_t rank = ff_comm_rank(comm);
    if (ff_allreduce(comm, at, at + 1, 100, FF_FLOAT32, FF_SUM) != FF_USAGE) return 11;
    for (const float* const start : {at, at + 1}) {
      char range[64];
      std::snprintf(range, sizeof range, "%p to %p", static_cast<const void*>(start),
                    static_cast<const void*>(start + 100));
      if (std::string(ff_error()).find(range) == std::string::npos) return 12;
    }
    if (rank > 0 && ff_allgather(comm, at, at, 100, FF_FLOAT32) != FF_USAGE) return 13;
    if (rank > 0 && ff_reduce_scatter(comm, at, at, 100, FF_FLOAT32, FF_SUM) != FF_USAGE) return 14;
    return ff_allgather(comm, at + rank * 100, at, 100, FF_FLOAT32);
  });
}

TEST(LibraryTest, OperationsThatAreDroppedFinish) {
  with_processes([](ff_comm* comm) {
    std::vector<float> data(1000);
    for (int i = 0; i < 500; i++) {
      uint64_t number = 0;
      if (ff_allreduce_async(comm, data.data(), data.data(), 1000, FF_FLOAT32, FF_SUM, &number) !=
          FF_OK) {
        return 10;
      }
      if (i % 8 == 0 && ff_barrier(comm) != FF_OK) return 11;
    }
    return ff_barrier(comm);
  });
}

TEST(LibraryTest, TimeLimitsOfAnySize) {
  for (const double seconds :
       {1e30, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::max()}) {
    with_processes(
        [](ff_comm* comm) {
          float one = 1;
          if (ff_allreduce(comm, &one, &one, 1, FF_FLOAT32, FF_SUM) != FF_OK) return 10;
          return one == 3 ? 0 : 11;
        },
        [&](ff_comm_options& options) {
          options.join_seconds = options.operation_seconds = seconds;
        });
  }
  const std::string job = new_job();
  for (const double seconds :
       {-1.0, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    for (double ff_comm_options::*const field :
         {&ff_comm_options::join_seconds, &ff_comm_options::operation_seconds}) {
      ff_comm_options options = options_of(0, job);
      options.*field = seconds;
      ff_comm* comm = nullptr;
      EXPECT_EQ(ff_comm_init(&comm, &options), FF_USAGE) << seconds;
      EXPECT_NE(std::string(ff_error()).find("_seconds is "), std::string::npos) << ff_error();
    }
  }
}

TEST(LibraryTest, AForkHasNoCommunicator) {
  with_processes([](ff_comm* comm) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int code = ff_barrier(comm);
      const bool said =
          std::string(ff_error()).find("does not outlive a fork") != std::string::npos;
      ff_comm_destroy(comm);
      ::_exit(code == FF_USAGE && said ? 0 : 1);
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 10;
    return ff_barrier(comm);
  });
}

TEST(LibraryTest, OptionsThatCannotBe) {
  const std::string job = new_job();
  ff_comm* comm = nullptr;
  ff_comm_options options = options_of(kRanks, job);
  EXPECT_EQ(ff_comm_init(&comm, &options), FF_USAGE);
  EXPECT_EQ(comm, nullptr);
  options = options_of(0, job);
  options.size = 8;
  EXPECT_EQ(ff_comm_init(&comm, &options), FF_USAGE);
  options = options_of(0, job);
  options.job = "";
  EXPECT_EQ(ff_comm_init(&comm, &options), FF_USAGE);
  options = options_of(0, job);
  options.join_seconds = 0.05;
  EXPECT_EQ(ff_comm_init(&comm, &options), FF_DEADLINE);
  EXPECT_NE(std::string(ff_error()).find("1, 2"), std::string::npos) << ff_error();
  EXPECT_EQ(ff_comm_init(nullptr, &options), FF_USAGE);
  EXPECT_EQ(ff_barrier(nullptr), FF_USAGE);
  EXPECT_EQ(ff_comm_ranks(nullptr), 0u);
  ff_comm_destroy(nullptr);
}

TEST(LibraryTest, TheEnvironmentOfTorchrun) {
  const std::string job = new_job();
  std::vector<pid_t> pids;
  for (uint32_t rank = 0; rank < kRanks; rank++) {
    const pid_t pid = ::fork();
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
    ::setenv("LOCAL_WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
    ::setenv("MASTER_ADDR", job.c_str(), 1);
    ::setenv("MASTER_PORT", "29500", 1);
    ff_comm* comm = nullptr;
    int code = ff_comm_init(&comm, nullptr);
    if (code == FF_OK) code = ff_barrier(comm);
    ff_comm_destroy(comm);
    ::setenv("LOCAL_WORLD_SIZE", "1", 1);
    if (ff_comm_init(&comm, nullptr) != FF_USAGE) code = 20;
    ::unsetenv("RANK");
    if (ff_comm_init(&comm, nullptr) != FF_USAGE) code = 21;
    ::_exit(code);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
}

TEST(LibraryTest, KeysAndValuesThatCannotBe) {
  ff_kv_options options = {};
  options.size = sizeof options;
  options.store = "/nonexistent/kv";
  ff_kv* kv = nullptr;
  EXPECT_EQ(ff_kv_open(&kv, &options), FF_FAILED);
  EXPECT_NE(std::string(ff_error()).find("there is no store"), std::string::npos) << ff_error();
  EXPECT_EQ(kv, nullptr);
  options.max_age_seconds = -1;
  EXPECT_EQ(ff_kv_open(&kv, &options), FF_USAGE);
  options.max_age_seconds = 0;
  options.store = "";
  EXPECT_EQ(ff_kv_open(&kv, &options), FF_USAGE);
  options.size = 8;
  EXPECT_EQ(ff_kv_open(&kv, &options), FF_USAGE);
  EXPECT_EQ(ff_kv_open(&kv, nullptr), FF_USAGE);
  EXPECT_EQ(ff_kv_open(nullptr, &options), FF_USAGE);
  const size_t bytes = 1;
  uint64_t size = 0;
  EXPECT_EQ(ff_kv_refresh(nullptr), FF_USAGE);
  EXPECT_EQ(ff_kv_exists_many(nullptr, "k", &bytes, 1, &size), FF_USAGE);
  EXPECT_EQ(ff_kv_delete_many(nullptr, "k", &bytes, 1, nullptr), FF_USAGE);
  ff_kv_close(nullptr);
}

// Every function of ff.h.
const std::set<std::string> kFunctions = {"ff_version",
                                          "ff_error",
                                          "ff_comm_init",
                                          "ff_comm_destroy",
                                          "ff_comm_shrink",
                                          "ff_comm_split",
                                          "ff_comm_rank",
                                          "ff_comm_ranks",
                                          "ff_alloc",
                                          "ff_free",
                                          "ff_allreduce",
                                          "ff_allreduce_async",
                                          "ff_reduce",
                                          "ff_reduce_async",
                                          "ff_broadcast",
                                          "ff_broadcast_async",
                                          "ff_allgather",
                                          "ff_allgather_async",
                                          "ff_reduce_scatter",
                                          "ff_reduce_scatter_async",
                                          "ff_gather",
                                          "ff_gather_async",
                                          "ff_scatter",
                                          "ff_scatter_async",
                                          "ff_alltoallv",
                                          "ff_alltoallv_async",
                                          "ff_allreduce_on",
                                          "ff_allreduce_on_async",
                                          "ff_reduce_on",
                                          "ff_reduce_on_async",
                                          "ff_broadcast_on",
                                          "ff_broadcast_on_async",
                                          "ff_allgather_on",
                                          "ff_allgather_on_async",
                                          "ff_reduce_scatter_on",
                                          "ff_reduce_scatter_on_async",
                                          "ff_barrier",
                                          "ff_barrier_async",
                                          "ff_send",
                                          "ff_send_async",
                                          "ff_recv",
                                          "ff_recv_async",
                                          "ff_wait",
                                          "ff_kv_open",
                                          "ff_kv_close",
                                          "ff_kv_refresh",
                                          "ff_kv_exists_many",
                                          "ff_kv_get_many",
                                          "ff_kv_put_many",
                                          "ff_kv_delete_many",
                                          "ff_record_open",
                                          "ff_record_close",
                                          "ff_record_samples",
                                          "ff_record_sizes",
                                          "ff_record_read",
                                          "ff_record_create",
                                          "ff_record_write",
                                          "ff_record_finish",
                                          "ff_record_free",
                                          "ff_record_shuffle",
                                          "ff_saver_open",
                                          "ff_saver_close",
                                          "ff_save_begin",
                                          "ff_save_copy_on",
                                          "ff_save_start",
                                          "ff_save_busy",
                                          "ff_save_wait",
                                          "ff_load_begin",
                                          "ff_load_end",
                                          "ff_load_step",
                                          "ff_load_files",
                                          "ff_load_tensors",
                                          "ff_load_file",
                                          "ff_load_text",
                                          "ff_load_tensor",
                                          "ff_load_read",
                                          "ff_latest_step",
                                          "ff_task_should_stop",
                                          "ff_task_saved",
                                          "ff_task_heartbeat",
                                          "ff_task_life_state",
                                          "ff_task_set_life_state"};

// Of the library's file.
TEST(LibraryTest, ExportsItsFunctionsAlone) {
  std::FILE* const said =
      ::popen("nm -D --defined-only " FF_LIBRARY_FILE " | awk '{print $3}'", "r");
  ASSERT_NE(said, nullptr);
  std::set<std::string> names;
  char line[256];
  while (std::fgets(line, sizeof line, said) != nullptr) {
    std::string name(line);
    name.pop_back();
    names.insert(name);
  }
  EXPECT_EQ(::pclose(said), 0);
  EXPECT_EQ(names, kFunctions);
}

}  // namespace
}  // namespace ff
