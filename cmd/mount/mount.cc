// `ff mount`: mounts the file system of a cluster with FUSE.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "cmd/cli/background.h"
#include "cmd/cli/cancel_on_stop.h"
#include "cmd/cli/daemon.h"
#include "cmd/mount/fstab.h"
#include "cmd/mount/worker_reader.h"
#include "cmd/options/meta_option.h"
#include "cmd/options/net_client.h"
#include "cmd/options/net_options.h"
#include "platform/base/log.h"
#include "platform/base/text.h"
#include "platform/base/units.h"
#include "platform/io/files.h"
#include "platform/io/system_disk.h"
#include "platform/rpc/http.h"
#include "storage/client/url.h"
#include "storage/client/walk.h"
#include "storage/mount/caller_resolver.h"
#include "storage/mount/fuse_device.h"
#include "storage/mount/fuse_session.h"
#include "storage/mount/keeper.h"
#include "storage/mount/operations.h"
#include "storage/mount/ring_registry.h"
#include "storage/mount/virtual_dir.h"

namespace ff::cmd {
namespace {

constexpr uint64_t kMemoryMin = 64 * kMiB;
constexpr uint64_t kSlotsMax = 256;
constexpr uint64_t kMountThreadsMax = 64;
constexpr int64_t kRetryNs = 100 * kMillisecond;  // between two attempts to reach the cluster
constexpr int64_t kUpdateNs = kSecond;            // between two updates of gauges and logs
constexpr uint64_t kCommandLineMax = 2 * kMiB;
constexpr int64_t kHandOverNs = 2 * kSecond;  // for the requests under way

struct MountOptions {
  std::string source;
  std::string dir;
  std::string meta = kDefaultMeta;
  NetOptions net;
  uint64_t memory = 512 * kMiB;
  std::optional<uint64_t> threads;
  bool read_only = false;
  bool others = false;
  bool delegations = false;
  bool wait = false;
  bool detach = false;
  bool dry_run = false;
  std::optional<std::string> replace;
  bool log_json = false;
  bool io_uring = true;
  std::string flags;
  std::optional<std::string> log;
  std::optional<std::string> http;
};

// --threads, or by the CPUs of this process. On few CPUs more threads only take turns.
uint64_t threads_of(const MountOptions& options) {
  constexpr uint64_t kFewCpus = 4;
  constexpr uint64_t kDefaultThreads = 16;
  if (options.threads) return *options.threads;
  const uint64_t cpus = std::thread::hardware_concurrency();
  return cpus < kFewCpus ? 1 : std::min(cpus, kDefaultThreads);
}

std::vector<std::string> flags_of(const MountOptions& options) {
  std::vector<std::string> flags;
  for (const std::string_view flag : split(options.flags, ',')) {
    if (!flag.empty()) flags.emplace_back(flag);
  }
  return flags;
}

// Shares of --memory: incoming requests, data for programs, data that waits to be written.
struct Memory {
  ByteSpan slots;
  ByteSpan reads;
  ByteSpan writes;
};

Memory share_out(ByteSpan all) {
  const uint64_t wanted = all.size() / 8 / mount::FuseSession::kSlotBytes;
  const uint64_t slots = std::min(wanted, kSlotsMax) * mount::FuseSession::kSlotBytes;
  const uint64_t rest = align_down((all.size() - slots) / 2, chunk::kChunkMax);
  return {.slots = all.first(slots),
          .reads = all.subspan(all.size() - 2 * rest, rest),
          .writes = all.last(rest)};
}

Task<Result<void>> pause_mount(Loop& loop) {
  const auto waited = co_await sleep_for(loop, kRetryNs);
  co_return waited;
}

// A mount, from the connection to the cluster until the unmount.
class Mounted {
 public:
  // `keeper` null: nobody continues the mount after this process.
  Mounted(Session& session, const MountOptions& options, net::TransportOptions transport,
          mount::KeeperLink* keeper)
      : session_(session),
        options_(options),
        keeper_(keeper),
        client_(session.stop, std::move(transport), "mount") {}
  ~Mounted();

  // The checks of --dry-run.
  Result<void> connect(const client::Url& url);
  Result<void> mount(const client::Url& url);
  // Serves until the unmount or the stop of the session. Calls `on_ready` when it is ready,
  // `on_tick` every second.
  Result<void> run(const std::function<Result<void>(const Json&)>& on_ready,
                   std::function<void()> on_tick);

 private:
  SystemLoop& loop() { return client_.loop; }
  bool delegations() const { return options_.delegations && !options_.read_only; }
  Result<void> find_cluster();
  Result<void> find_root(const std::string& path);
  Result<ByteSpan> data_memory();
  Result<void> open_recovery(uint64_t data);
  Result<void> restore();
  bool replaced();
  [[noreturn]] void hand_over(Gate& serving);
  Result<void> start_http_pages();
  std::string source(const client::Url& url) const;
  std::string status();
  Task<void> update_gauges(std::function<void()> on_tick);
  Task<void> unmount();
  std::vector<mount::FuseSession::WorkerLoop> workers();
  Fd worker_device(size_t worker);
  Result<mount::ClientMemory> adopt(const mount::ClientMemoryFile& file);

  Session& session_;
  const MountOptions& options_;
  mount::KeeperLink* const keeper_;
  std::shared_ptr<const void> mapped_data_, mapped_records_;
  std::unique_ptr<client::RecoveryTable> recovery_;
  std::vector<std::unique_ptr<SystemLoop>> worker_loops_;
  NetClient client_;
  client::ReadSnapshots snapshots_;
  io::SystemDisk disk_;
  Memory shares_;
  std::vector<net::Address> servers_;
  meta::InodeView root_;
  std::optional<chain::BufferPool> memory_;
  std::optional<client::FileSystem> files_;
  std::unique_ptr<mount::FuseDevice> device_;
  std::optional<mount::CallerResolver> callers_;
  std::optional<mount::FuseSession> kernel_;
  bool initialized_ = false;  // the kernel knows what this mount can do
  std::optional<mount::Operations> operations_;
  std::optional<mount::RingRegistry> rings_;
  std::optional<mount::VirtualDir> virtual_dir_;
  std::unique_ptr<rpc::HttpServer> pages_;
};

// With --wait, waits until the cluster is formed and has chains.
Result<void> Mounted::find_cluster() {
  const int64_t until_ns = options_.wait ? INT64_MAX : loop().now_ns() + kConnectTimeoutNs;
  for (std::string logged;;) {
    const auto started =
        run_task(loop(), cancel_on_stop(loop(), session_.stop, files_->start(until_ns)));
    if (started && files_->has_chains()) return {};
    Error why = fail(Errc::not_found, "the cluster has no chains yet");
    why.hint = std::string("Create them: ff admin plan --apply");
    if (!started) why = started.error();
    // No time limit was set.
    if (!options_.wait && why.code == Errc::deadline) why.code = Errc::unreachable;
    if (!options_.wait && (why.hint.empty() || why.code == Errc::unreachable)) {
      why.hint = "Is the cluster up? --wait waits for it.";
    }
    if (!options_.wait || why.code != Errc::not_found) return why;
    if (logged != why.message) log_warning("waits", {{"cause", why.message}, {"hint", why.hint}});
    logged = why.message;
    FF_TRY(run_task(loop(), cancel_on_stop(loop(), session_.stop, pause_mount(loop()))));
    files_->refresh();
  }
}

Result<void> Mounted::find_root(const std::string& path) {
  const bool known = recovery_ != nullptr && recovery_->root() != 0;
  for (;;) {
    const meta::InodeRef before{.id = known ? recovery_->root() : 0,
                                .proof = std::string(known ? recovery_->root_proof() : "")};
    auto finding = known ? files_->metadata().stat(before, false)
                         : client::resolve_path(files_->metadata(), {}, path, true);
    auto seen = run_task(loop(), cancel_on_stop(loop(), session_.stop, std::move(finding)));
    if (seen && !seen->inode.is(meta::InodeType::directory)) return errno_error(ENOTDIR, path);
    if (seen) {
      root_ = std::move(*seen);
      if (recovery_ != nullptr) recovery_->set_root(root_.inode.id, root_.proof);
      return {};
    }
    const Errc code = seen.error().code;
    const bool later = code == Errc::unreachable || code == Errc::deadline;
    if (!options_.wait || !later || !session_.stop.check()) return std::move(seen).error();
  }
}

// A shared mapping of a whole file.
Result<std::pair<ByteSpan, std::shared_ptr<const void>>> map_shared(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return errno_error(errno, "shared memory");
  const auto size = static_cast<size_t>(info.st_size);
  void* const base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return errno_error(errno, "shared memory");
  std::shared_ptr<const void> mapping(base, [size](void* at) { ::munmap(at, size); });
  return std::pair(ByteSpan(static_cast<std::byte*>(base), size), std::move(mapping));
}

// --memory, in a file that the keeper holds.
Result<ByteSpan> Mounted::data_memory() {
  Fd held = keeper_ == nullptr ? Fd() : keeper_->take("data");
  if (held.get() < 0) {
    FF_TRY(const ByteSpan all, client_.transport.allocate_shared_memory(options_.memory));
    if (keeper_ == nullptr) return all;
    FF_TRY(const Fd fd, client_.transport.memory_fd(all));
    FF_TRY(keeper_->hold("data", fd.get()));
    return all;
  }
  FF_TRY(auto mapped, map_shared(held.get()));
  mapped_data_ = std::move(mapped.second);
  client_.transport.continue_shared_memory(mapped.first, std::move(held));
  return mapped.first;
}

Result<void> Mounted::open_recovery(uint64_t data) {
  if (keeper_ == nullptr) return {};
  Fd held = keeper_->take("records");
  if (held.get() < 0) {
    held = Fd(::memfd_create("ff-mount-records", MFD_CLOEXEC));
    const auto size = static_cast<off_t>(client::RecoveryTable::bytes_for(data));
    if (held.get() < 0 || ::ftruncate(held.get(), size) != 0) {
      return errno_error(errno, "memory for recovery records");
    }
    FF_TRY(keeper_->hold("records", held.get()));
  }
  FF_TRY(auto mapped, map_shared(held.get()));
  mapped_records_ = std::move(mapped.second);
  FF_TRY(recovery_, client::RecoveryTable::open(mapped.first));
  return {};
}

Result<void> Mounted::connect(const client::Url& url) {
  servers_ = url.servers;
  if (servers_.empty()) {
    FF_TRY(servers_, parse_meta(options_.meta));
  }
  FF_TRY(const ByteSpan all, data_memory());
  FF_TRY(open_recovery(all.size()));
  shares_ = share_out(all);
  memory_.emplace(shares_.reads);
  files_.emplace(
      client_.context, servers_,
      client::FileSystem::Options{.arena = shares_.writes,
                                  .write_behind = shares_.writes.size(),
                                  .delegations = delegations(),
                                  .recovery = recovery_.get(),
                                  .data = all,
                                  .snapshots = threads_of(options_) > 1 ? &snapshots_ : nullptr,
                                  .on_routing = [this](const auto& routing) {
                                    if (kernel_) kernel_->on_routing(routing);
                                  }});
  FF_TRY(find_cluster());
  return find_root(url.path);
}

// The source in mount tables: unchanged if complete, because `mount -a` compares it.
std::string Mounted::source(const client::Url& url) const {
  if (client::is_url(options_.source)) return options_.source;
  std::string text(client::kUrlScheme);
  for (const net::Address& server : servers_) {
    if (!text.ends_with('/')) text += ',';
    text += server.text();
  }
  return text + url.path;
}

Result<void> Mounted::mount(const client::Url& url) {
  FF_TRY(start_http_pages());
  Fd held = keeper_ == nullptr ? Fd() : keeper_->take("device");
  const bool continues = held.get() >= 0;
  if (continues) {
    FF_TRY(device_, mount::FuseDevice::adopt(std::move(held), keeper_->dir()));
  } else {
    FF_TRY(device_, mount::FuseDevice::mount({.dir = options_.dir,
                                              .source = source(url),
                                              .read_only = options_.read_only,
                                              .allow_other = options_.others || ::geteuid() == 0,
                                              .flags = flags_of(options_)}));
    if (keeper_ != nullptr) {
      FF_TRY(keeper_->hold("device", device_->fd()));
      keeper_->report_mounted(device_->dir());
    }
  }
  callers_.emplace(disk_, client_.loop.clock());
  initialized_ = continues;
  const auto on_init = [this](bool resends) {
    if (keeper_ != nullptr && resends) keeper_->report_resends();
    initialized_ = true;
  };
  const auto on_healthy = [this] {
    if (keeper_ != nullptr) keeper_->report_healthy();
  };
  kernel_.emplace(loop(), *device_, *memory_, *callers_, client_.metrics,
                  mount::FuseSession::Options{
                      .slots = shares_.slots,
                      .name = options_.source,
                      .io_uring = options_.io_uring,
                      .workers = workers(),
                      .snapshots = &snapshots_,
                      .worker_device = [this](size_t worker) { return worker_device(worker); },
                      .resend = continues,
                      .on_init = on_init,
                      .on_healthy = on_healthy});
  operations_.emplace(*files_, *memory_, *kernel_, std::move(root_));
  rings_.emplace(
      loop(), *operations_, *memory_,
      [this](const mount::ClientMemoryFile& file) { return adopt(file); },
      keeper_ != nullptr && keeper_->stores_descriptors() ? keeper_ : nullptr);
  virtual_dir_.emplace(*operations_, *callers_, *rings_, device_->dir());
  const auto rings = rings_->start();
  if (!rings) log_warning("programs cannot use USRBIO", {{"cause", rings.error().message}});
  virtual_dir_->restore();
  FF_TRY(run_task(loop(), cancel_on_stop(loop(), session_.stop, operations_->restore())));
  rings_->restore();
  return {};
}

std::vector<mount::FuseSession::WorkerLoop> Mounted::workers() {
  std::vector<mount::FuseSession::WorkerLoop> all;
  const auto refresh = [this] { loop().post([this] { files_->refresh(); }); };
  for (uint64_t i = 1; i < threads_of(options_); i++) {
    worker_loops_.push_back(std::make_unique<SystemLoop>(session_.stop.clock()));
    SystemLoop& own = *worker_loops_.back();
    all.push_back({own, std::make_unique<WorkerReader>(own, client_, refresh)});
  }
  return all;
}

// The keeper holds it, too: when its last holder closes it, the kernel ends the requests that were
// read from it with errors.
Fd Mounted::worker_device(size_t worker) {
  const std::string name = fmt::format("device-{}", worker);
  if (keeper_ != nullptr) {
    Fd held = keeper_->take(name);
    if (held.get() >= 0) return held;
  }
  auto cloned = device_->clone();
  if (cloned && keeper_ != nullptr) {
    const auto kept = keeper_->hold(name, cloned->get());
    if (!kept) cloned = kept.error();
  }
  if (cloned) return std::move(*cloned);
  log_warning("a thread shares the descriptor of /dev/fuse", {{"cause", cloned.error().message}});
  return Fd();
}

// Storage nodes of this host write directly into it, and RDMA devices register it once.
Result<mount::ClientMemory> Mounted::adopt(const mount::ClientMemoryFile& file) {
  struct Adopted {
    net::SystemTransport& transport;
    Loop& loop;
    mount::ClientMemory memory;
    std::shared_ptr<const net::SharedRegion> region = {};
    ~Adopted() {
      if (region != nullptr) transport.release_memory(loop, *region);
    }
  };
  FF_TRY(auto memory, mount::map_client_memory(file));
  Fd fd(::fcntl(file.fd.get(), F_DUPFD_CLOEXEC, 0));
  if (fd.get() < 0) return errno_error(errno, "memory of a program");
  const ByteSpan bytes = memory.bytes;
  const auto* const sigbus_raised = memory.sigbus_raised;
  auto adopted = std::make_shared<Adopted>(client_.transport, loop(), std::move(memory));
  adopted->region = client_.transport.adopt_memory(loop(), bytes, std::move(fd));
  const auto used_before = [region = adopted->region] { return region->used_before(); };
  return mount::ClientMemory{bytes, sigbus_raised, std::move(adopted), used_before};
}

Result<void> Mounted::start_http_pages() {
  auto pages = cmd::start_http_pages(loop(), client_.metrics, options_.http, "mount",
                                     [this] { return status(); });
  FF_TRY(pages_, std::move(pages));
  return {};
}

std::string Mounted::status() {
  Json json = {{"role", "mount"},
               {"source", options_.source},
               {"dir", options_.dir},
               {"read_only", options_.read_only},
               {"manager", files_->manager_error() ? files_->manager_error()->message : "answers"},
               {"open_files", operations_ ? operations_->open_files() : 0},
               {"restarts", keeper_ != nullptr ? keeper_->restarts() : 0}};
  json["delegations"] = {{"enabled", options_.delegations},
                         {"directories", files_->delegations()},
                         {"pending_changes", files_->pending_changes()},
                         {"files_without_room", files_->waiting_files()}};
  json["memory"] = {{"limit", options_.memory},
                    {"requests", kernel_ ? kernel_->slot_bytes() : 0},
                    {"reads", shares_.reads.size() - memory_->free_bytes()},
                    {"writes", files_->dirty_bytes()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Task<void> Mounted::update_gauges(std::function<void()> on_tick) {
  const auto bytes = [this](const char* use) -> Gauge& {
    return client_.metrics.gauge("ff_mount_memory_bytes", "Memory in use, of --memory",
                                 {{"use", use}});
  };
  Gauge& requests = bytes("requests");
  Gauge& reads = bytes("reads");
  Gauge& writes = bytes("writes");
  Gauge& limit = client_.metrics.gauge("ff_mount_memory_limit_bytes", "--memory");
  Gauge& open = client_.metrics.gauge("ff_mount_open_files", "Files that programs have open");
  Gauge& delegations =
      client_.metrics.gauge("ff_mount_delegations", "Directories that are delegated to this mount");
  Gauge& pending = client_.metrics.gauge(
      "ff_mount_pending_changes", "Answered changes that no metadata server has applied yet");
  Gauge& waiting = client_.metrics.gauge(
      "ff_mount_files_without_room",
      "Closed files whose bytes this mount keeps until storage has room for them");
  limit.set(static_cast<int64_t>(options_.memory));
  for (;;) {
    requests.set(static_cast<int64_t>(kernel_->slot_bytes()));
    reads.set(static_cast<int64_t>(shares_.reads.size() - memory_->free_bytes()));
    writes.set(static_cast<int64_t>(files_->dirty_bytes()));
    open.set(static_cast<int64_t>(operations_->open_files()));
    delegations.set(static_cast<int64_t>(files_->delegations()));
    pending.set(static_cast<int64_t>(files_->pending_changes()));
    waiting.set(static_cast<int64_t>(files_->waiting_files()));
    if (on_tick) on_tick();
    const auto waited = co_await sleep_for(loop(), kUpdateNs);
    if (!waited) co_return;
  }
}

Task<void> Mounted::unmount() {
  Event done(loop());
  // The loop answers requests that the kernel sends during the unmount.
  std::thread unmounting([this, &done] {
    device_->unmount();
    loop().post([&done] { done.set(); });
  });
  (void)co_await done.wait();
  unmounting.join();
}

Result<void> Mounted::run(const std::function<Result<void>(const Json&)>& on_ready,
                          std::function<void()> on_tick) {
  Json where = {{"source", options_.source}, {"dir", device_->dir()}};
  if (pages_ != nullptr) where["http_port"] = pages_->port();
  Gate serving(loop());
  std::optional<Result<void>> served;
  serving.spawn([](Task<Result<void>> running, std::optional<Result<void>>& result) -> Task<void> {
    result = co_await std::move(running);
  }(kernel_->run(*operations_, &*virtual_dir_), served));
  serving.spawn(update_gauges(std::move(on_tick)));
  const auto is_over = [&] {
    return served.has_value() || !session_.stop.check().ok() || replaced();
  };
  // Before that, nobody else could continue the mount.
  run_task(loop(), poll_until(loop(), [&] { return initialized_ || is_over(); }));
  auto reported = initialized_ ? on_ready(where) : Result<void>();
  if (reported) run_task(loop(), poll_until(loop(), is_over));
  if (!served && session_.stop.check().ok() && replaced()) hand_over(serving);
  log_info("stopping");
  pages_.reset();
  if (!served) run_task(loop(), unmount());
  run_task(loop(), rings_->close());
  run_task(loop(), operations_->close());
  run_task(loop(), kernel_->close());
  const auto stored = run_task(loop(), files_->finish_closes());
  Error over = fail(Errc::interrupted, "the mount goes down");
  run_task(loop(), serving.close(std::move(over)));
  // The mount has ended nevertheless: no other process can continue it.
  if (!stored && keeper_ != nullptr) keeper_->report_error(stored.error());
  if (!stored && keeper_ == nullptr) return stored;
  if (!reported) return reported;
  return served && !*served && (*served).error().code != Errc::interrupted ? *served
                                                                           : Result<void>();
}

bool Mounted::replaced() { return keeper_ != nullptr && keeper_->must_hand_over(); }

// Answers the requests under way; the others wait in the kernel. What is acknowledged and not
// stored is in the recovery table, so nothing is closed.
void Mounted::hand_over(Gate& serving) {
  log_info("hands over to another process");
  rings_->pause();
  kernel_->stop_workers_reading();
  Error over = fail(Errc::interrupted, "another process serves the mount");
  run_task(loop(), serving.close(std::move(over)));
  const int64_t until_ns = loop().now_ns() + kHandOverNs;
  run_task(loop(), poll_until(loop(), [this, until_ns] {
             return (kernel_->idle() && rings_->idle()) || loop().now_ns() >= until_ns;
           }));
  ::_exit(mount::KeeperLink::kHandedOver);
}

Mounted::~Mounted() {
  virtual_dir_.reset();
  rings_.reset();
  operations_.reset();
  kernel_.reset();
  device_.reset();
  if (files_) run_task(loop(), files_->close());
}

using OnReady = std::function<Result<void>(const Json&)>;

Result<void> serve(Session& session, const MountOptions& options, mount::KeeperLink* keeper,
                   const OnReady& on_ready, std::function<void()> on_tick) {
  FF_TRY(const auto url, client::parse_cluster_path(options.source));
  io::SystemDisk disk;
  FF_TRY(auto transport, transport_options(disk, options.net, auth::Role::mount));
  Mounted mounted(session, options, std::move(transport), keeper);
  FF_TRY(mounted.connect(url));
  if (options.dry_run) return on_ready({{"source", options.source}, {"dir", options.dir}});
  FF_TRY(mounted.mount(url));
  return mounted.run(on_ready, std::move(on_tick));
}

void print_mount(Session& session, const MountOptions& options, const Json& where) {
  if (options.dry_run) return session.out.note("{} can be mounted", options.source);
  const std::string dir = where["dir"];
  const bool quiet = options.detach && session.out.mode().quiet;
  if (!quiet) session.out.line("{} is mounted on {}", options.source, dir);
  if (!where.contains("http_port")) return;
  session.out.line("pages on port {}", where["http_port"].get<uint64_t>());
}

LogOptions log_options(Session& session, const MountOptions& options) {
  return {.level = session.out.mode().verbose ? LogLevel::debug : LogLevel::info,
          .json = options.log_json,
          .syslog = options.detach && !options.dry_run && !options.log};
}

// A log inside the mount would deadlock: the mount would wait for itself.
Result<std::string> log_path(const MountOptions& options) {
  if (!options.log) return std::string();
  std::error_code error;
  const auto path = std::filesystem::weakly_canonical(*options.log, error).string();
  const auto dir = std::filesystem::weakly_canonical(options.dir, error).string();
  if (error) return errno_error(error.value(), *options.log);
  if (!path.starts_with(dir + "/")) return path;
  return fail(Errc::usage, "--log {}: the file is below the mount point", *options.log);
}

// The process that a keeper has started: it serves and never returns.
[[noreturn]] void serve_for_keeper(Session& session, const MountOptions& options,
                                   mount::KeeperLink& keeper) {
  BackgroundLog log;
  const auto path = log_path(options);
  if (path && !path->empty()) (void)log.open(*path);
  log_setup(log_options(session, options));
  bool ready = false;
  const OnReady on_ready = [&](const Json& where) -> Result<void> {
    ready = true;
    (void)!::chdir("/");
    keeper.report_ready(where.dump(-1, ' ', false, Json::error_handler_t::replace));
    return {};
  };
  const auto served =
      serve(session, options, &keeper, on_ready, [&log] { log.rotate_if_needed(); });
  if (!served) keeper.report_error(served.error());
  if (!served && ready) log_error("has failed", {{"cause", served.error().message}});
  ::_exit(served ? 0 : 1);
}

// This process becomes the keeper.
Result<void> keep(Session& session, const OnReady& on_ready, std::function<void()> on_tick) {
  io::SystemDisk disk;
  FF_TRY(const std::string words, io::read_file(disk, "/proc/self/cmdline", kCommandLineMax));
  std::error_code error;
  mount::KeeperOptions options{.dir = std::filesystem::current_path(error).string(),
                               .on_tick = std::move(on_tick)};
  for (const std::string_view word : split(words, '\0')) options.argv.emplace_back(word);
  options.argv.pop_back();  // each word ends with a NUL
  options.on_ready = [&](const std::string& text) -> Result<void> {
    FF_TRY(on_ready(Json::parse(text, nullptr, false)));
    notify_systemd("READY=1");
    return {};
  };
  const auto kept = mount::keep_mount(session.stop, options);
  notify_systemd("STOPPING=1");
  return kept;
}

Result<void> detach(Session& session, const MountOptions& options) {
  FF_TRY(const std::string path, log_path(options));
  if (path.empty() && ::access("/dev/log", W_OK) != 0) {
    session.out.note("this machine has no syslog: use --log FILE to keep the log");
  }
  auto left =
      start_in_background(session.stop, [&](const ReportReady& report_ready) -> Result<void> {
        BackgroundLog log;
        if (!path.empty()) FF_TRY(log.open(path));
        log_setup(log_options(session, options));
        const OnReady on_ready = [&report_ready](const Json& where) -> Result<void> {
          report_ready(where);
          return {};
        };
        // The serving process begins a new log, and this one follows.
        return keep(session, on_ready, [&log, &path] {
          if (::access(path.c_str(), F_OK) == 0) log.rotate_if_needed();
        });
      });
  FF_TRY(const Json where, std::move(left));
  print_mount(session, options, where);
  session.out.data(where);
  return {};
}

Result<void> check_mount(const MountOptions& options) {
  if (options.memory < kMemoryMin) {
    return fail(Errc::usage, "--memory {}: at least {}", format_size(options.memory),
                format_size(kMemoryMin));
  }
  if (options.log && !options.detach) {
    return fail(Errc::usage,
                "--log requires --detach: in the foreground ff logs to standard error");
  }
  if (options.threads && (*options.threads < 1 || *options.threads > kMountThreadsMax)) {
    return fail(Errc::usage, "--threads {}: from 1 to {}", *options.threads, kMountThreadsMax);
  }
  FF_TRY(mount::check_flags(flags_of(options)));
  // Check before any wait.
  return mount::check_mountable(options.dir);
}

Result<void> replace(Session& session, const std::string& dir) {
  std::error_code error;
  // Only the path of the mount point is resolved: the mount may not answer.
  const std::filesystem::path given(dir);
  const auto parent = std::filesystem::canonical(
      given.has_parent_path() ? given.parent_path() : std::filesystem::path("."), error);
  if (error) return errno_error(error.value(), dir);
  const std::string device = mount::mounted_device((parent / given.filename()).string());
  if (device.empty()) return fail(Errc::not_found, "{}: no ff file system is mounted there", dir);
  FF_TRY(mount::replace_mount(session.stop, device));
  session.out.note("this program serves {} now", dir);
  return {};
}

Result<void> run_mount(Session& session, const MountOptions& options) {
  FF_TRY(const auto keeper, mount::KeeperLink::connect());
  if (keeper != nullptr) serve_for_keeper(session, options, *keeper);
  if (options.replace) return replace(session, *options.replace);
  if (options.source.empty() || options.dir.empty()) {
    return fail(Errc::usage, "SOURCE and DIR are missing");
  }
  FF_TRY(check_mount(options));
  if (options.wait) session.out.note("waiting for the cluster");
  if (options.detach && !options.dry_run) return detach(session, options);
  log_setup(log_options(session, options));
  const OnReady on_ready = [&](const Json& where) {
    print_mount(session, options, where);
    return session.out.emit(where);
  };
  if (options.dry_run) return serve(session, options, nullptr, on_ready, {});
  return keep(session, on_ready, {});
}

void declare_examples_and_link(Command& mount) {
  mount.example("ff mount / /mnt/ff", "the whole file system of the cluster on this machine");
  mount.example("ff mount ff://m1:4400,m2:4400,m3:4400/data /data --key cluster.key",
                "a directory of another cluster");
  mount.example("ff mount ff://m1:4400/ /data --key cluster.key --detach --wait",
                "for scripts: returns when /data is ready");
  mount.example("ff mount --replace /data", "after an upgrade of ff, without an unmount");
  mount.example("ff://m1:4400,m2:4400/ /data ff _netdev,nofail,wait,key=/etc/ff/cluster.key 0 0",
                "a line for /etc/fstab");
  mount.link({.name = "mount.ff",
              .arguments =
                  [&mount](std::vector<std::string> given) {
                    return fstab_arguments(mount, std::move(given));
                  },
              .exit_code = fstab_exit_code});
}

// What the mount may use of the machine.
void declare_shares(Command& mount, MountOptions& options) {
  mount
      .option("--memory", size(options.memory),
              "Memory for data in transit; programs that write wait when it is full")
      .config("mount.memory");
  mount
      .option(
          "--threads", number(options.threads),
          "Threads that answer the programs: more of them read faster with O_DIRECT on many CPUs, "
          "fewer leave CPUs and connections to others; over io_uring there is one; default: one "
          "for "
          "each CPU, at most 16, and one altogether on fewer than 4 CPUs")
      .config("mount.threads");
}

}  // namespace

void declare_mount(Command& mount) {
  auto& options = mount.keep<MountOptions>();
  mount.about(
      "Mounts the file system of a cluster on a directory. SOURCE is ff://HOST:PORT/PATH (several "
      "servers separated by commas), or a path in the cluster of --meta.\n\nThe command stays in "
      "the foreground until the directory is unmounted (umount DIR) or SIGTERM arrives; with "
      "--detach it returns when the mount is ready and continues in the background. It replaces a "
      "dead mount on the same directory.\n\nFor /etc/fstab, 'ff help --install /sbin' creates the "
      "link mount.ff, which mount(8) calls for the type ff. In fstab, write the options of this "
      "command without dashes (key=/etc/ff/key, memory=2GiB, wait), beside those of mount(8); put "
      "a value with a comma in double quotes. mount.ff accepts -s, -f (dry run), -n and -v from "
      "mount(8), and exits with 1 for wrong usage, 8 when interrupted, and 32 if the mount "
      "fails.\n\nLocks (flock, fcntl) work among the programs of one mount only.\n\nIf the process "
      "that serves the mount dies, another one continues within a second: programs wait, open "
      "files and locks stay, and nothing that was acknowledged is lost. That needs Linux 6.9, and "
      "requests through /dev/fuse (--no-io-uring: the kernel loses those of a dead ring). "
      "Otherwise programs get errors and the directory must be mounted again.");
  mount.argument("SOURCE", text(options.source, "SOURCE"), "File system to mount").optional();
  mount.argument("DIR", dir(options.dir), "Mount point").optional();
  declare_meta(mount, options.meta);
  declare_shares(mount, options);
  mount.flag("--read-only", options.read_only, "Mount read-only").config("mount.read-only");
  mount
      .flag("--allow-other", options.others,
            "Users other than the one who mounts can use it; always on when root mounts")
      .config("mount.allow-other")
      .old_config("mount.others")
      .alias("--others");
  mount
      .flag(
          "--delegations", options.delegations,
          "Answer changes in directories that no other mount uses at once, and send them to the "
          "metadata service within 5 ms, with the bytes of small new files: faster for many small "
          "files; if this machine fails, what the mount has not sent is lost unless fsync was "
          "called")
      .config("mount.delegations");
  mount.flag("--wait", options.wait, "Wait until the cluster answers, exists and has chains")
      .config("mount.wait");
  mount
      .flag("--io-uring", options.io_uring,
            "Exchange requests with the kernel over io_uring, where the kernel offers it: Linux "
            "6.14 and later with fuse.enable_uring=1; small requests are faster, large writes take "
            "more CPU time, and the mount does not survive the death of its process")
      .config("mount.io-uring");
  mount.flag("--detach", options.detach,
             "Return when the mount is ready, and continue in the background");
  mount.option(
      "--log", file(options.log),
      "With --detach: log to this file instead of syslog; at 4 MiB it is renamed to FILE.1");
  mount.option("--replace", dir(options.replace),
               "Let this version of ff serve what is mounted on DIR already; programs that use it "
               "only wait");
  mount.flag("--dry-run", options.dry_run, "Only check whether the mount is possible");
  mount
      .option("-o,--options", text(options.flags, "OPTION,..."),
              "Mount options of the kernel, as in mount(8): noexec, noatime, sync, dirsync, and "
              "suid and dev, which are off by default")
      .config("mount.options")
      .old_config("mount.flags")
      .alias("--flags");
  declare_http(mount, options.http, "mount");
  mount.flag("--log-json", options.log_json, "Write log lines as JSON").config("mount.log-json");
  declare_net(mount, options.net);
  declare_examples_and_link(mount);
  mount.run([&options](Session& session) { return run_mount(session, options); });
}

}  // namespace ff::cmd
