// device_speed.cc: one small table in $FF_STATE/ff.db.
#include "cmd/bench/device_speed.h"

#include <sys/stat.h>

#include <array>

#include "platform/base/state_dir.h"
#include "platform/db/database.h"
#include "platform/io/files.h"
#include "storage/client/url.h"

namespace ff::cmd {
namespace {

constexpr std::array<const char*, 1> kMigrations = {
    "CREATE TABLE device_speed ("
    "  device INTEGER PRIMARY KEY,"  // st_dev
    "  read_rate REAL NOT NULL,"     // bytes a second
    "  write_rate REAL NOT NULL,"
    "  measured_ns INTEGER NOT NULL"
    ") STRICT"};

Result<std::string> state_file() {
  FF_TRY(const auto state, state_dir(StateUse::user, process_state_environment()));
  return io::join(state.path, "ff.db");
}

Result<db::Database> open_state(Clock& clock, const std::string& file) {
  return db::Database::open(file, kMigrations, clock, {.on_corrupt = db::OnCorrupt::recreate});
}

Result<int64_t> device_of(std::string path) {
  struct stat info {};
  while (::stat(path.c_str(), &info) != 0) {
    const std::string above = io::parent(path);
    if (above == path) return errno_error(errno, path);
    path = above;
  }
  return static_cast<int64_t>(info.st_dev);
}

}  // namespace

Result<void> save_device_speed(Clock& clock, const std::string& path, const DeviceSpeed& speed,
                               std::string& warning) {
  FF_TRY(const int64_t device, device_of(path));
  FF_TRY(const std::string file, state_file());
  FF_TRY(auto state, open_state(clock, file));
  if (!state.moved_aside().empty()) {
    warning = fmt::format("{} was damaged; it was moved to {}", state.path(), state.moved_aside());
  }
  FF_TRY(auto insert, state.prepare("INSERT OR REPLACE INTO device_speed VALUES (?, ?, ?, ?)"));
  insert.bind(device, speed.read, speed.write, speed.measured_ns);
  return insert.run();
}

std::optional<DeviceSpeed> load_device_speed(Clock& clock, const std::string& path) {
  if (client::is_url(path)) return std::nullopt;
  const auto device = device_of(path);
  if (!device) return std::nullopt;
  const auto file = state_file();
  struct stat info {};
  if (!file || ::stat(file->c_str(), &info) != 0) return std::nullopt;  // nothing measured yet
  auto state = open_state(clock, *file);
  if (!state) return std::nullopt;
  auto select = state->prepare(
      "SELECT read_rate, write_rate, measured_ns FROM device_speed WHERE device = ?");
  if (!select) return std::nullopt;
  select->bind(*device);
  const auto row = select->step();
  if (!row || !*row) return std::nullopt;
  return DeviceSpeed{select->real(0), select->real(1), select->integer(2)};
}

}  // namespace ff::cmd
