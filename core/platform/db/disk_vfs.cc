// disk_vfs.cc: the functions of sqlite3_vfs and sqlite3_io_methods (version 1: no shared memory, no
// mapped pages) over Disk and File, as specified at https://sqlite.org/c3ref/vfs.html.
//
// They must not throw through SQLite's C code; `noexcept` turns an exception into a crash.
#include "platform/db/disk_vfs.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/check.h"
#include "platform/io/files.h"

namespace ff::db {
namespace {

constexpr int kMaxPath = 4096;  // PATH_MAX of Linux, including the zero byte
// Mode of a new file before the umask; SQLite's own default.
constexpr uint32_t kMode = 0644;
// Julian day of the Unix epoch, in milliseconds.
constexpr int64_t kEpochJulianMs = 210'866'760'000'000;

// The kinds of files that a connection needs with temp_store = MEMORY.
constexpr int kKinds = SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_WAL;

// A frame of the WAL is this header and a page (https://sqlite.org/fileformat2.html#walformat).
constexpr size_t kFrameHeader = 24;
// Offset in the header of the database size after commit; nonzero only in a commit frame.
constexpr size_t kCommitsAt = 4;
constexpr size_t kFramesMax = 256 * kKiB;
// The WAL begins with a header of this size, with a big-endian salt of two u32 in it.
constexpr size_t kLogHeader = 32;
constexpr size_t kLogSaltAt = 16;

}  // namespace

struct DiskVfs::Calls {
  struct Open {
    DiskVfs& vfs;
    std::unique_ptr<io::File> file;
    // The directory entry may not be durable yet: this process may have created the file, or one
    // that died before it synced the directory.
    bool name_unsynced;
    bool is_log;
    // Buffered WAL frames: SQLite appends each header and each page with a separate write; they are
    // combined into one write, which is issued with the last page of a transaction. So no committed
    // data stays in the buffer.
    std::vector<std::byte> frames = {};
    uint64_t frames_at = 0;
    uint64_t end = 0;       // end offset of the last write
    bool in_frame = false;  // the buffer ends with a header whose page follows
    bool commits = false;   // the last header is that of a commit frame

    Result<void> flush_frames() {
      in_frame = false;
      if (frames.empty()) return {};
      auto done = file->write_at(frames, frames_at);
      frames.clear();
      return done;
    }
    void note_salt(ByteView header, uint64_t offset) const {
      if (!is_log || offset != 0 || header.size() != kLogHeader) return;
      vfs.log_salt_ = __builtin_bswap64(load_le<uint64_t>(header.data() + kLogSaltAt));
    }
    Result<void> write(ByteView from, uint64_t offset) {
      note_salt(from, offset);
      const bool follows = offset == std::exchange(end, offset + from.size());
      const bool header = !in_frame && from.size() == kFrameHeader;
      if (!is_log || !follows || !(header || in_frame)) {
        FF_TRY(flush_frames());
        return file->write_at(from, offset);
      }
      if (frames.empty()) frames_at = offset;
      frames.insert(frames.end(), from.begin(), from.end());
      in_frame = header;
      if (header) commits = load_le<uint32_t>(from.data() + kCommitsAt) != 0;
      return !header && (commits || frames.size() >= kFramesMax) ? flush_frames() : Result<void>();
    }
  };
  // SQLite allocates it and knows only the first member.
  struct Handle {
    sqlite3_file base;
    Open* open;
  };

  static DiskVfs& of(sqlite3_vfs* vfs) { return *static_cast<DiskVfs*>(vfs->pAppData); }
  static Open& of(sqlite3_file* file) { return *reinterpret_cast<Handle*>(file)->open; }

  // Methods of sqlite3_io_methods.

  static int close(sqlite3_file* file) noexcept {
    delete &of(file);
    return SQLITE_OK;
  }

  static int read(sqlite3_file* file, void* into, int size, sqlite3_int64 offset) noexcept {
    Open& open = of(file);
    const ByteSpan span(static_cast<std::byte*>(into), static_cast<size_t>(size));
    auto put = open.flush_frames();
    if (!put) return open.vfs.failed(std::move(put).error(), SQLITE_IOERR_READ);
    auto got = open.file->read_at(span, static_cast<uint64_t>(offset));
    if (!got) return open.vfs.failed(std::move(got).error(), SQLITE_IOERR_READ);
    if (*got == span.size()) {
      open.note_salt(span, static_cast<uint64_t>(offset));
      return SQLITE_OK;
    }
    // SQLite requires the rest to be zero-filled.
    std::ranges::fill(span.subspan(*got), std::byte{0});
    return SQLITE_IOERR_SHORT_READ;
  }

  static int write(sqlite3_file* file, const void* from, int size, sqlite3_int64 offset) noexcept {
    Open& open = of(file);
    if (open.vfs.sync_failed_) return open.vfs.failed(*open.vfs.sync_failed_, SQLITE_IOERR_WRITE);
    const ByteView view(static_cast<const std::byte*>(from), static_cast<size_t>(size));
    auto done = open.write(view, static_cast<uint64_t>(offset));
    return done ? SQLITE_OK : open.vfs.failed(std::move(done).error(), SQLITE_IOERR_WRITE);
  }

  static int truncate(sqlite3_file* file, sqlite3_int64 size) noexcept {
    Open& open = of(file);
    if (open.vfs.sync_failed_) {
      return open.vfs.failed(*open.vfs.sync_failed_, SQLITE_IOERR_TRUNCATE);
    }
    auto done = open.flush_frames();
    if (done) done = open.file->truncate(static_cast<uint64_t>(size));
    return done ? SQLITE_OK : open.vfs.failed(std::move(done).error(), SQLITE_IOERR_TRUNCATE);
  }

  // The flags select kinds of sync that Disk does not distinguish: File::sync satisfies all.
  static int sync(sqlite3_file* file, int) noexcept {
    Open& open = of(file);
    DiskVfs& vfs = open.vfs;
    if (!vfs.sync_failed_) {
      auto put = open.flush_frames();
      if (!put) return vfs.failed(std::move(put).error(), SQLITE_IOERR_FSYNC);
      auto done = open.file->sync();
      if (done && open.name_unsynced) done = vfs.disk_.sync_dir(io::parent(open.file->path()));
      if (done) {
        open.name_unsynced = false;
        return SQLITE_OK;
      }
      vfs.sync_failed_ = std::move(done).error();
    }
    return vfs.failed(*vfs.sync_failed_, SQLITE_IOERR_FSYNC);
  }

  static int file_size(sqlite3_file* file, sqlite3_int64* size) noexcept {
    Open& open = of(file);
    auto put = open.flush_frames();
    if (!put) return open.vfs.failed(std::move(put).error(), SQLITE_IOERR_FSTAT);
    auto info = open.file->info();
    if (!info) return open.vfs.failed(std::move(info).error(), SQLITE_IOERR_FSTAT);
    *size = static_cast<sqlite3_int64>(info->size);
    return SQLITE_OK;
  }

  // open() has already locked the file.
  static int lock(sqlite3_file*, int) noexcept { return SQLITE_OK; }
  static int reserved_lock(sqlite3_file*, int* taken) noexcept {
    *taken = 0;
    return SQLITE_OK;
  }
  static int control(sqlite3_file*, int, void*) noexcept { return SQLITE_NOTFOUND; }
  static int sector_size(sqlite3_file*) noexcept { return static_cast<int>(io::kDirectAlign); }
  // A torn write changes no byte outside its range: SimDisk guarantees it, and SQLite's own VFS
  // assumes it for real disks. No other characteristic holds for every Disk: writes are neither
  // atomic nor ordered, and a file may grow before its data is written.
  static int characteristics(sqlite3_file*) noexcept { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

  static const sqlite3_io_methods* methods() {
    static const sqlite3_io_methods all = [] {
      sqlite3_io_methods calls{};
      calls.iVersion = 1;
      calls.xClose = close;
      calls.xRead = read;
      calls.xWrite = write;
      calls.xTruncate = truncate;
      calls.xSync = sync;
      calls.xFileSize = file_size;
      calls.xLock = lock;
      calls.xUnlock = lock;
      calls.xCheckReservedLock = reserved_lock;
      calls.xFileControl = control;
      calls.xSectorSize = sector_size;
      calls.xDeviceCharacteristics = characteristics;
      return calls;
    }();
    return &all;
  }

  // Methods of sqlite3_vfs: the namespace.

  // Locks a database file. False if another process holds the lock or has just renamed the file.
  static Result<bool> lock_database(io::Disk& disk, io::File& file) {
    FF_TRY(const bool locked, file.try_lock());
    if (!locked) return false;
    FF_TRY(const io::FileInfo info, file.info());
    const auto named = disk.info(file.path());
    return named && named->inode == info.inode && named->device == info.device;
  }

  static int open(sqlite3_vfs* of_vfs, const char* path, sqlite3_file* into, int flags,
                  int* flags_given) noexcept {
    DiskVfs& vfs = of(of_vfs);
    into->pMethods = nullptr;  // SQLite calls xClose only if it is set
    if (path == nullptr || (flags & kKinds) == 0) {
      return vfs.failed(Error{Errc::unsupported, "SQLite requested a temporary file", {}},
                        SQLITE_CANTOPEN);
    }
    const bool create = (flags & SQLITE_OPEN_CREATE) != 0;
    const bool writes = (flags & SQLITE_OPEN_READWRITE) != 0;
    auto file =
        vfs.disk_.open(path, {.access = writes ? io::AccessMode::read_write : io::AccessMode::read,
                              .create = create,
                              .exclusive = (flags & SQLITE_OPEN_EXCLUSIVE) != 0,
                              .mode = kMode});
    if (!file) return vfs.failed(std::move(file).error(), SQLITE_CANTOPEN);
    if ((flags & SQLITE_OPEN_MAIN_DB) != 0) {
      auto locked = lock_database(vfs.disk_, **file);
      if (!locked) return vfs.failed(std::move(locked).error(), SQLITE_CANTOPEN);
      if (!*locked) return SQLITE_BUSY;
    }
    reinterpret_cast<Handle*>(into)->open = new Open{.vfs = vfs,
                                                     .file = std::move(*file),
                                                     .name_unsynced = create,
                                                     .is_log = (flags & SQLITE_OPEN_WAL) != 0};
    into->pMethods = methods();
    if (flags_given != nullptr) *flags_given = flags;
    return SQLITE_OK;
  }

  static int remove(sqlite3_vfs* of_vfs, const char* path, int sync_dir) noexcept {
    DiskVfs& vfs = of(of_vfs);
    auto done = vfs.disk_.remove(path);
    if (!done && done.error().code == Errc::not_found) return SQLITE_IOERR_DELETE_NOENT;
    if (!done) return vfs.failed(std::move(done).error(), SQLITE_IOERR_DELETE);
    if (sync_dir == 0) return SQLITE_OK;
    done = vfs.disk_.sync_dir(io::parent(path));
    return done ? SQLITE_OK : vfs.failed(std::move(done).error(), SQLITE_IOERR_DIR_FSYNC);
  }

  // An empty journal counts as missing, as in SQLite's own VFS. The flags for access rights are
  // ignored: SQLite uses them only for directories of temporary files.
  static int access(sqlite3_vfs* of_vfs, const char* path, int, int* found) noexcept {
    DiskVfs& vfs = of(of_vfs);
    *found = 0;
    auto info = vfs.disk_.info(path);
    if (info) {
      *found = info->kind != io::FileKind::regular || info->size > 0 ? 1 : 0;
      return SQLITE_OK;
    }
    if (info.error().code == Errc::not_found) return SQLITE_OK;
    return vfs.failed(std::move(info).error(), SQLITE_IOERR_ACCESS);
  }

  // Paths of a Disk are used unchanged.
  static int full_path(sqlite3_vfs*, const char* path, int size, char* out) noexcept {
    const size_t length = std::strlen(path);
    if (length >= static_cast<size_t>(size)) return SQLITE_CANTOPEN_FULLPATH;
    std::memcpy(out, path, length + 1);
    return SQLITE_OK;
  }

  // Methods of sqlite3_vfs: randomness and time, through the seams.

  static int random(sqlite3_vfs* of_vfs, int size, char* out) noexcept {
    Rng& rng = of(of_vfs).rng_;
    std::generate_n(out, size, [&rng] { return static_cast<char>(rng.next()); });
    return size;
  }

  static int sleep(sqlite3_vfs* of_vfs, int microseconds) noexcept {
    of(of_vfs).clock_.sleep_ns(microseconds * kMicrosecond);
    return microseconds;
  }

  static int now(sqlite3_vfs* of_vfs, sqlite3_int64* julian_ms) noexcept {
    *julian_ms = kEpochJulianMs + of(of_vfs).clock_.wall_ns() / kMillisecond;
    return SQLITE_OK;
  }

  static int last_errno(sqlite3_vfs*, int, char*) noexcept { return 0; }
};

DiskVfs::DiskVfs(io::Disk& disk, Clock& clock, Rng& rng) : disk_(disk), clock_(clock), rng_(rng) {
  static std::atomic<uint64_t> made = 0;
  name_ = fmt::format("ff-disk-{}", made++);
  vfs_.iVersion = 2;  // time in milliseconds
  vfs_.szOsFile = sizeof(Calls::Handle);
  vfs_.mxPathname = kMaxPath;
  vfs_.zName = name_.c_str();
  vfs_.pAppData = this;
  vfs_.xOpen = Calls::open;
  vfs_.xDelete = Calls::remove;
  vfs_.xAccess = Calls::access;
  vfs_.xFullPathname = Calls::full_path;
  vfs_.xRandomness = Calls::random;
  vfs_.xSleep = Calls::sleep;
  vfs_.xGetLastError = Calls::last_errno;
  vfs_.xCurrentTimeInt64 = Calls::now;
  FF_CHECK(sqlite3_vfs_register(&vfs_, 0) == SQLITE_OK);
  // SQLite seeds its generator from the default VFS unless this call sets a nonzero seed.
  const int seed = static_cast<int>(rng.next() >> 33) | 1;
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, seed, static_cast<sqlite3*>(nullptr));
}

DiskVfs::~DiskVfs() { sqlite3_vfs_unregister(&vfs_); }

std::optional<Error> DiskVfs::take_error() { return std::exchange(error_, std::nullopt); }

int DiskVfs::failed(Error error, int otherwise) {
  const int status = error.code == Errc::disk_full ? SQLITE_FULL : otherwise;
  error_ = std::move(error);
  return status;
}

}  // namespace ff::db
