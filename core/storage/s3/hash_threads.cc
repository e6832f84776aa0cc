// hash_threads.cc: deals the jobs out to the threads.
#include "storage/s3/hash_threads.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "platform/base/thread_result.h"
#include "platform/simd/md5.h"

namespace ff::s3 {

namespace {

// A thread takes some 50 us to begin.
constexpr size_t kInlineBytes = 16 * kKiB;
// After so many bytes of each body, other bodies may join.
constexpr size_t kMd5SliceBytes = 64 * kKiB;

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

// Adds to as many MD5s at once as there are.
class HashThreads::Md5Thread {
 public:
  struct Job {
    simd::Md5* of = nullptr;
    ByteView bytes = {};
    std::function<void()> done = {};
  };

  void post(Job job) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(job));
    }
    thread_.post([this] { run(); });
  }

 private:
  // Until no job is left; the later calls of other post()s find none.
  void run() {
    std::vector<Job> jobs;
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        while (!waiting_.empty() && jobs.size() < simd::md5_lanes()) {
          jobs.push_back(std::move(waiting_.front()));
          waiting_.pop_front();
        }
      }
      if (jobs.empty()) return;
      std::vector<simd::Md5Update> updates;
      for (Job& job : jobs) {
        const ByteView part = job.bytes.first(std::min(job.bytes.size(), kMd5SliceBytes));
        job.bytes = job.bytes.subspan(part.size());
        updates.push_back({job.of, part});
      }
      simd::md5_update(updates);
      for (const Job& job : jobs) {
        if (job.bytes.empty()) job.done();
      }
      std::erase_if(jobs, [](const Job& job) { return job.bytes.empty(); });
    }
  }

  std::mutex mutex_;
  std::deque<Job> waiting_;
  WorkerThread thread_;  // uses the others
};

HashThreads::HashThreads(size_t threads) {
  if (threads > 0) md5_ = std::make_unique<Md5Thread>();
  for (size_t i = 0; i < threads; i++) threads_.push_back(std::make_unique<WorkerThread>());
}

HashThreads::~HashThreads() = default;

void HashThreads::post(HashJob job, std::function<void()> done) {
  simd::Md5* const md5 = job.hasher != nullptr ? job.hasher->md5() : nullptr;
  if (md5 != nullptr) {
    md5_->post({md5, job.bytes, std::move(done)});
    return;
  }
  threads_[next_++ % threads_.size()]->post([job = std::move(job), done = std::move(done)] {
    run_job(job);
    done();
  });
}

Task<void> HashThreads::run(Loop& loop, std::vector<HashJob> jobs) {
  size_t bytes = 0;
  for (const HashJob& job : jobs) bytes += job.bytes.size();
  if (threads_.empty() || bytes < kInlineBytes) {
    run_jobs(jobs);
    co_return;
  }
  const WaitForJobs wait{std::make_shared<JobsLeft>(jobs.size())};
  auto running = ThreadResult<bool>::wait(loop, [&](std::shared_ptr<ThreadResult<bool>> all) {
    const auto done = [all, left = wait.left] {
      if (left->count.fetch_sub(1) == 1) all->set(true);
      left->count.notify_all();
    };
    for (HashJob& job : jobs) post(std::move(job), done);
  });
  (void)co_await std::move(running).shielded();
}

}  // namespace ff::s3
