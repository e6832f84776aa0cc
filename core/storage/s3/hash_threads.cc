// hash_threads.cc: deals the jobs out to the threads.
#include "storage/s3/hash_threads.h"

#include <atomic>
#include <utility>

#include "platform/base/thread_result.h"

namespace ff::s3 {

namespace {

// A thread takes some 50 us to begin.
constexpr size_t kInlineBytes = 16 * kKiB;

void run_job(const HashJob& job) {
  if (job.hasher != nullptr) job.hasher->update(job.bytes);
  if (job.work) job.work();
}

// How many jobs of one run() are not done. The destructor of the wait blocks until none is, so that
// no thread uses what a destroyed task has left.
struct JobsLeft {
  std::atomic<size_t> count;
};
struct WaitForJobs {
  const std::shared_ptr<JobsLeft> left;
  ~WaitForJobs() {
    for (size_t count = left->count; count > 0; count = left->count) left->count.wait(count);
  }
};

}  // namespace

void run_jobs(const std::vector<HashJob>& jobs) {
  for (const HashJob& job : jobs) run_job(job);
}

HashThreads::HashThreads(size_t threads) {
  for (size_t i = 0; i < threads; i++) threads_.push_back(std::make_unique<WorkerThread>());
}

HashThreads::~HashThreads() = default;

Task<void> HashThreads::run(Loop& loop, std::vector<HashJob> jobs) {
  size_t bytes = 0;
  for (const HashJob& job : jobs) bytes += job.bytes.size();
  if (threads_.empty() || bytes < kInlineBytes) {
    run_jobs(jobs);
    co_return;
  }
  const WaitForJobs wait{std::make_shared<JobsLeft>(jobs.size())};
  auto running = ThreadResult<bool>::wait(loop, [&](std::shared_ptr<ThreadResult<bool>> all) {
    for (HashJob& job : jobs) {
      threads_[next_++ % threads_.size()]->post([job = std::move(job), all, left = wait.left] {
        run_job(job);
        if (left->count.fetch_sub(1) == 1) all->set(true);
        left->count.notify_all();
      });
    }
  });
  (void)co_await std::move(running).shielded();
}

}  // namespace ff::s3
