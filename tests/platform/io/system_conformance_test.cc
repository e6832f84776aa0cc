// The contract of Disk on the file system of this machine, with each kind of queue, without and
// with a loop.
#include <sys/uio.h>

#include <cerrno>

#include "platform/base/system_loop.h"
#include "platform/io/async_conformance.h"
#include "platform/io/beneath_disk.h"
#include "platform/io/disk_conformance.h"
#include "platform/io/system_disk.h"
#include "platform/io/system_file.h"
#include "platform/io/temp_dir.h"
#include "platform/io/thread_queue.h"
#include "platform/io/uring_queue.h"

namespace ff::io {
namespace {

class TestedSystemDisk : public TestedDisk {
 public:
  using QueueMaker = std::unique_ptr<IoQueue> (*)(QueueOptions);
  explicit TestedSystemDisk(QueueMaker maker, bool beneath = false)
      : beneath_(beneath), maker_(maker) {
    disk_ = std::make_unique<SystemDisk>();
    if (beneath) disk_ = std::move(BeneathDisk::open(dir_.path()).value());
  }

  Disk& disk() override { return *disk_; }
  std::string dir() override { return dir_.path(); }
  std::unique_ptr<IoQueue> make_queue(QueueOptions options) override { return maker_(options); }
  bool follows_links() override { return !beneath_; }
  bool has_cache() override {
    EXPECT_TRUE(ok(put(*disk_, dir_ / "probe", "x")));
    EXPECT_EQ(get(*disk_, dir_ / "probe"), "x");
    auto file = disk_->open(dir_ / "probe", {});
    char byte = 0;
    const iovec whole{&byte, 1};
    const auto& system_file = dynamic_cast<SystemFile&>(**file);
    return preadv2(system_file.fd(), &whole, 1, 0, RWF_NOWAIT) == 1;
  }

 private:
  const bool beneath_;
  TempDir dir_;
  std::unique_ptr<Disk> disk_;
  QueueMaker maker_;
};

class LoopedSystemDisk : public TestedSystemDisk {
 public:
  using TestedSystemDisk::TestedSystemDisk;
  Loop* loop() override { return &loop_; }

 private:
  SystemClock clock_;
  SystemLoop loop_{clock_};
};

DiskMaker maker(const std::string& name, TestedSystemDisk::QueueMaker queue) {
  return {name, [queue] { return std::make_unique<TestedSystemDisk>(queue); }};
}

DiskMaker looped(const std::string& name, TestedSystemDisk::QueueMaker queue) {
  return {name, [queue] { return std::make_unique<LoopedSystemDisk>(queue); }};
}

DiskMaker beneath(const std::string& name, TestedSystemDisk::QueueMaker queue) {
  return {name, [queue] { return std::make_unique<TestedSystemDisk>(queue, true); }};
}

INSTANTIATE_TEST_SUITE_P(System, DiskConformance,
                         testing::Values(maker("io_uring", make_uring_queue),
                                         maker("threads", make_thread_queue),
                                         looped("io_uring_loop", make_uring_queue),
                                         looped("threads_loop", make_thread_queue),
                                         beneath("beneath", make_thread_queue)),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(System, AsyncConformance,
                         testing::Values(looped("io_uring", make_uring_queue),
                                         looped("threads", make_thread_queue)),
                         maker_name);

}  // namespace
}  // namespace ff::io
