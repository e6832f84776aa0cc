// `ff mount`: a cluster's file system in a directory of this machine, for all of its programs.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "client/url.h"
#include "client/walk.h"
#include "cmd/daemon.h"
#include "cmd/meta_option.h"
#include "cmd/net_client.h"
#include "cmd/net_options.h"
#include "cmd/stop_watch.h"
#include "io/system_disk.h"
#include "mount/callers.h"
#include "mount/device.h"
#include "mount/operations.h"
#include "mount/rings.h"
#include "mount/session.h"
#include "mount/virtual_dir.h"

namespace ff::cmd {
namespace {

constexpr int64_t kOpenNs = 15 * kSecond;
constexpr uint64_t kMemoryMin = 64 * kMiB;
constexpr uint64_t kSlotsMax = 64;

struct MountOptions {
  std::string source;
  std::string dir;
  std::string meta = kDefaultMeta;
  NetOptions net;
  uint64_t memory = 512 * kMiB;
  bool read_only = false;
  bool others = false;
  bool wait = false;
  bool log_json = false;
};

// How --memory is used: requests on their way in, data on its way to programs, data that waits to
// be written.
struct Memory {
  ByteSpan slots;
  ByteSpan reads;
  ByteSpan writes;
};

Memory share_out(ByteSpan all) {
  const uint64_t wanted = all.size() / 8 / mount::Session::kSlotBytes;
  const uint64_t slots = std::min(wanted, kSlotsMax) * mount::Session::kSlotBytes;
  const uint64_t rest = align_down((all.size() - slots) / 2, chunk::kChunkMax);
  return {.slots = all.first(slots),
          .reads = all.subspan(all.size() - 2 * rest, rest),
          .writes = all.last(rest)};
}

// A mount from beginning to end.
class Mounted {
 public:
  Mounted(Session& session, const MountOptions& options, net::TransportOptions transport)
      : session_(session),
        options_(options),
        client_(session.stop, std::move(transport), "mount") {}
  ~Mounted();

  Result<void> start(const client::Url& url);
  // Until it is unmounted, or the session's stop.
  Result<void> run();

 private:
  Loop& loop() { return client_.loop; }
  Result<meta::Seen> find_root(const std::string& path);
  Task<void> unmount();
  Result<mount::ForeignMemory> adopt(const mount::ForeignFile& file);

  Session& session_;
  const MountOptions& options_;
  NetClient client_;
  io::SystemDisk disk_;
  std::optional<chain::Memory> memory_;
  std::optional<client::FileSystem> files_;
  std::unique_ptr<mount::Device> device_;
  std::optional<mount::Callers> callers_;
  std::optional<mount::Session> kernel_;
  std::optional<mount::Operations> operations_;
  std::optional<mount::Rings> rings_;
  std::optional<mount::VirtualDir> virtual_dir_;
};

Result<meta::Seen> Mounted::find_root(const std::string& path) {
  auto finding = client::find(files_->names(), {}, path, true);
  FF_TRY(auto seen, run_task(loop(), stoppable(loop(), session_.stop, std::move(finding))));
  if (!seen.inode.is(meta::Kind::directory)) return errno_error(ENOTDIR, path);
  return seen;
}

Result<void> Mounted::start(const client::Url& url) {
  std::vector<net::Address> servers = url.servers;
  if (servers.empty()) {
    FF_TRY(servers, parse_meta(options_.meta));
  }
  FF_TRY(const ByteSpan all, client_.transport.memory(options_.memory));
  const Memory memory = share_out(all);
  memory_.emplace(memory.reads);
  files_.emplace(
      client_.context, servers,
      client::FileSystem::Options{.arena = memory.writes, .write_behind = memory.writes.size()});
  const int64_t until_ns = options_.wait ? INT64_MAX : loop().now_ns() + kOpenNs;
  if (options_.wait) session_.out.note("waiting for the cluster");
  auto started = run_task(loop(), stoppable(loop(), session_.stop, files_->start(until_ns)));
  if (!started) {
    if (started.error().hint.empty()) {
      started.error().hint = "Is the cluster up? --wait waits for it.";
    }
    return started;
  }
  FF_TRY(auto root, find_root(url.path));
  std::string source(client::kUrlScheme);
  for (const net::Address& server : servers) {
    if (!source.ends_with('/')) source += ',';
    source += server.text();
  }
  FF_TRY(device_, mount::Device::mount({.dir = options_.dir,
                                        .source = source + url.path,
                                        .read_only = options_.read_only,
                                        .others = options_.others || ::geteuid() == 0}));
  callers_.emplace(disk_, client_.loop.clock());
  kernel_.emplace(loop(), *device_, *memory_, *callers_, client_.metrics,
                  mount::Session::Options{.slots = memory.slots, .name = options_.source});
  operations_.emplace(*files_, *memory_, *kernel_, std::move(root));
  rings_.emplace(loop(), *operations_, *memory_,
                 [this](const mount::ForeignFile& file) { return adopt(file); });
  virtual_dir_.emplace(*operations_, *callers_, *rings_, device_->dir());
  const auto rings = rings_->start();
  if (!rings) log_warning("programs can make no rings", {{"cause", rings.error().message}});
  return {};
}

// Storage nodes of this host write right there, and devices of RDMA register it once.
Result<mount::ForeignMemory> Mounted::adopt(const mount::ForeignFile& file) {
  struct Adopted {
    net::SystemTransport& transport;
    Loop& loop;
    mount::ForeignMemory memory;
    std::shared_ptr<const net::Region> region = {};
    ~Adopted() {
      if (region != nullptr) transport.give_back(loop, *region);
    }
  };
  FF_TRY(auto memory, mount::map_foreign(file));
  net::Fd fd(::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (fd.get() < 0) return errno_error(errno, "memory of a program");
  const ByteSpan bytes = memory.bytes;
  const auto* const used_guard = memory.used_guard;
  auto adopted = std::make_shared<Adopted>(client_.transport, loop(), std::move(memory));
  adopted->region = client_.transport.adopt(loop(), bytes, std::move(fd));
  return mount::ForeignMemory{bytes, used_guard, std::move(adopted)};
}

Task<void> Mounted::unmount() {
  Event done(loop());
  // The kernel may ask for something first, which the loop answers.
  std::thread unmounting([this, &done] {
    device_->unmount();
    loop().post([&done] { done.set(); });
  });
  (void)co_await done.wait();
  unmounting.join();
}

Result<void> Mounted::run() {
  session_.out.line("{} is mounted on {}", options_.source, device_->dir());
  auto told = session_.out.emit({{"source", options_.source}, {"dir", device_->dir()}});
  notify_systemd("READY=1");
  Gate serving(loop());
  std::optional<Result<void>> served;
  serving.spawn([](Task<Result<void>> running, std::optional<Result<void>>& result) -> Task<void> {
    result = co_await std::move(running);
  }(kernel_->run(*operations_, &*virtual_dir_), served));
  if (told) {
    run_task(loop(),
             poll_until(loop(), [&] { return served.has_value() || !session_.stop.check().ok(); }));
  }
  notify_systemd("STOPPING=1");
  log_info("stopping");
  if (!served) run_task(loop(), unmount());
  run_task(loop(), rings_->close());
  run_task(loop(), operations_->close());
  run_task(loop(), kernel_->close());
  Error over = fail(Errc::interrupted, "the mount goes down");
  run_task(loop(), serving.close(std::move(over)));
  if (!told) return told;
  return served && !*served && (*served).error().code != Errc::interrupted ? *served
                                                                           : Result<void>();
}

Mounted::~Mounted() {
  virtual_dir_.reset();
  rings_.reset();
  operations_.reset();
  kernel_.reset();
  device_.reset();
  if (files_) run_task(loop(), files_->close());
}

Result<void> run_mount(Session& session, const MountOptions& options) {
  log_setup({.level = session.out.mode().verbose ? LogLevel::debug : LogLevel::info,
             .json = options.log_json});
  if (options.memory < kMemoryMin) {
    return fail(Errc::usage, "--memory {}: at least {}", format_size(options.memory),
                format_size(kMemoryMin));
  }
  FF_TRY(const auto url, client::parse_cluster_path(options.source));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net));
  Mounted mounted(session, options, std::move(transport));
  FF_TRY(mounted.start(url));
  return mounted.run();
}

}  // namespace

void declare_mount(Command& mount) {
  auto& options = mount.keep<MountOptions>();
  mount.about(
      "Mounts a cluster's file system on a directory, for programs as they are. SOURCE is "
      "ff://HOST:PORT/PATH (several servers with commas), or a path in the cluster of --meta.\n\n"
      "It stays in the foreground until it is unmounted (umount DIR) or told to stop by SIGTERM. "
      "What a killed one has left on the directory is replaced.");
  mount.argument("SOURCE", text(options.source, "SOURCE"), "What to mount");
  mount.argument("DIR", dir(options.dir), "Where");
  declare_meta(mount, options.meta);
  mount
      .option("--memory", size(options.memory),
              "For data on its way; programs that write wait when it is full")
      .config("mount.memory");
  mount.flag("--read-only", options.read_only, "Nobody changes anything through it")
      .config("mount.read-only");
  mount
      .flag("--others", options.others,
            "Other users may use it as well; always so when root mounts")
      .config("mount.others");
  mount.flag("--wait", options.wait, "Wait until the cluster answers").config("mount.wait");
  mount.flag("--log-json", options.log_json, "Log lines as JSON").config("mount.log-json");
  declare_net(mount, options.net);
  mount.example("ff mount / /mnt/ff", "all of the cluster of this machine");
  mount.example("ff mount ff://m1:4400,m2:4400,m3:4400/data /data --key cluster.key",
                "a directory of another one");
  mount.run([&options](Session& session) { return run_mount(session, options); });
}

}  // namespace ff::cmd
