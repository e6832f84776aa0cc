// Threads that compute the digests of bodies, so that the loop goes on meanwhile with other bytes
// of the same body and with other requests. All MD5s are computed in one thread, together
// (simd/md5.h): several bodies at once cost little more than one.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/worker_thread.h"
#include "storage/s3/hash.h"

namespace ff::s3 {

// Bytes for a digest, or other work on them.
struct HashJob {
  Hasher* hasher = nullptr;  // null: there is `work`
  ByteView bytes = {};
  std::function<void()> work = {};
};

class HashThreads {
 public:
  // `threads` for all but MD5. 0: there are none; the caller's thread does all work, as in
  // simulations.
  explicit HashThreads(size_t threads);
  // No run() is under way.
  ~HashThreads();
  HashThreads(const HashThreads&) = delete;
  HashThreads& operator=(const HashThreads&) = delete;

  // Does all jobs, few bytes at once, more side by side, and returns when they are done; the wait
  // ignores cancellation. No two jobs have the same hasher. What the jobs use stays valid until
  // run() has returned or its task is destroyed, which waits for the threads.
  Task<void> run(Loop& loop, std::vector<HashJob> jobs);

 private:
  class Md5Thread;
  void post(HashJob job, std::function<void()> done);

  std::unique_ptr<Md5Thread> md5_;  // null: no threads
  std::vector<std::unique_ptr<WorkerThread>> threads_;
  size_t next_ = 0;
};

// In the caller's thread.
void run_jobs(const std::vector<HashJob>& jobs);

}  // namespace ff::s3
