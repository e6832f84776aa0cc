// The operations of the file system on names and inodes, each one transaction (kv/engine.h), and
// so atomic for whoever looks, on every engine. Nothing here knows of connections, or of storage.
//
// Paths and names are bytes. Errors carry the errno that POSIX gives (Error::sys) in the order in
// which Linux looks: what is not there, then what is there already, then rights, then the rest.
//
// A change is done once, however often it is asked for: each has a Request, which names a slot of
// its client and counts up there, as in NFSv4.1 (RFC 8881, 2.10.6). The answer of a slot's last
// request is kept in the same transaction as its effect. A refusal leaves nothing; so one that may
// have been tried before, and may still be done by that try, is to be given up (give_up()).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/clock.h"
#include "platform/base/rng.h"
#include "platform/kv/engine.h"
#include "storage/meta/access.h"
#include "storage/meta/inode.h"
#include "storage/meta/inode_ids.h"
#include "storage/meta/room.h"

namespace ff::meta {

constexpr size_t kSlots = 256;         // of a client: changes under way at once
constexpr size_t kLinksFollowed = 40;  // symbolic links on one path, as Linux has it
constexpr size_t kPathMax = 64 * kKiB;

struct Request {
  uint64_t client = 0;
  uint32_t slot = 0;      // below kSlots
  uint64_t sequence = 0;  // from 1 on
};

class Chunks;

// The newest version of each chain table.
using Tables = std::map<cluster::TableId, uint64_t>;

class Names {
 public:
  struct Options {
    InodeIds& ids;
    Rng& rng;
    // Those of now.
    std::function<std::shared_ptr<const Tables>()> tables;
    std::function<std::shared_ptr<const Room>()> room = {};  // none: nothing is known of it
    int64_t patience_ns = 10 * kSecond;                      // for a transaction
  };
  // All outlive it.
  Names(kv::Engine& engine, Clock& clock, Options options);

  // All that has returned is durable: with engines that put that off (kv::Engine::run_soon), names
  // and attributes are a moment later, like the bytes of a file, and in the order in which they
  // were changed.
  Task<Result<void>> sync();
  // Makes the root if there is none.
  Task<Result<void>> make_root();

  // The request was refused with `error`, and is not done any more, whatever becomes of earlier
  // tries. False: it has been done by one, or refused.
  Task<Result<bool>> give_up(Request request, Error error);

  Task<Result<Inode>> stat(InodeId id);
  Task<Result<Inode>> lookup(Caller caller, InodeId dir, std::string name);

  struct Walked {
    Inode dir;                   // the directory that has the last name
    std::string name;            // the last name; empty when the path is the root, or ends in ".."
    std::optional<Inode> inode;  // nothing: there is no such name
  };
  // From `from` (a leading '/' goes to the root), over symbolic links; over one at the end only if
  // `follow`. ENOENT before the last name is an error.
  Task<Result<Walked>> walk(Caller caller, InodeId from, std::string path, bool follow);

  struct Listed {
    std::string name;
    InodeId id = 0;
    Kind kind = Kind::file;
    std::optional<Inode> inode;  // if asked for; nothing: it has just gone
  };
  struct Page {
    std::vector<Listed> entries;
    bool end = false;  // there are no more
  };
  // Names after `after` (empty: from the first), in order of their bytes; at most `limit`.
  Task<Result<Page>> list(Caller caller, InodeId dir, std::string after, size_t limit,
                          bool with_inodes);

  struct Make {
    Kind kind = Kind::file;
    uint32_t mode = 0;
    std::string target = {};                // symlink
    uint64_t device = 0;                    // character, block
    std::optional<Layout> layout = {};      // file or directory: instead of what the parent says
    bool exclusive = true;                  // file: EEXIST when it is there, else it is returned
    std::optional<SessionId> session = {};  // file: opened for writing at the same time
    uint32_t rights = 0;                    // that an existing file must give the caller
    uint64_t chunk_size = 0;                // file: where neither layout says
  };
  Task<Result<Inode>> make(Caller caller, Request request, InodeId dir, std::string name,
                           Make make);

  // `rights` are checked; with a session the file is open for writing from now on.
  Task<Result<Inode>> open(Caller caller, InodeId id, uint32_t rights,
                           std::optional<SessionId> session);

  Task<Result<Inode>> link(Caller caller, Request request, InodeId id, InodeId dir,
                           std::string name);
  // A name that is no directory's. `holder`: has the file open, which keeps its bytes.
  Task<Result<Inode>> unlink(Caller caller, Request request, InodeId dir, std::string name,
                             std::optional<SessionId> holder);
  Task<Result<Inode>> rmdir(Caller caller, Request request, InodeId dir, std::string name);
  // Takes a whole directory out at once; what was in it is removed by and by (collector.h). The
  // caller must be allowed to empty every directory in it.
  Task<Result<Inode>> remove_tree(Caller caller, Request request, InodeId dir, std::string name);

  struct Rename {
    InodeId from_dir = 0;
    std::string from = {};
    InodeId to_dir = 0;
    std::string to = {};
    bool no_replace = false;
    bool exchange = false;
    std::optional<SessionId> holder = {};  // of what is replaced
  };
  Task<Result<Inode>> rename(Caller caller, Request request, Rename rename);

  struct Attributes {
    std::optional<uint32_t> mode = {};
    std::optional<uint32_t> uid = {};
    std::optional<uint32_t> gid = {};
    std::optional<int64_t> atime_ns = {};
    std::optional<int64_t> mtime_ns = {};
    bool times_now = false;  // both times are the present, which a writer may set, too
  };
  Task<Result<Inode>> set_attributes(Caller caller, Request request, InodeId id,
                                     Attributes attributes);
  // Of a directory: for files made in it from now on. Table 0: as its parent says.
  Task<Result<Inode>> set_layout(Caller caller, Request request, InodeId id, Layout layout);

  Task<Result<std::optional<std::string>>> get_xattr(Caller caller, InodeId id, std::string name);
  Task<Result<std::vector<std::string>>> list_xattrs(InodeId id);
  enum class XattrMode : uint8_t { any, create, replace };
  // Nothing for a value removes it.
  Task<Result<Inode>> set_xattr(Caller caller, Request request, InodeId id, std::string name,
                                std::optional<std::string> value, XattrMode mode);

  // Lengths: names_lengths.cc.

  // The file is `length` bytes long from now on, and has `cutting` set: its storage is still to be
  // cut (cut_done()). `opened`: the caller has it open for writing, its mode does not matter.
  Task<Result<Inode>> truncate(Caller caller, Request request, InodeId id, uint64_t length,
                               bool opened);
  // Its storage holds nothing past the floor that was there when it was truncated so often.
  Task<Result<void>> cut_done(InodeId id, uint64_t truncations);

  struct Written {
    uint64_t end = 0;          // no shorter than this, as far as the writer knows
    uint64_t truncations = 0;  // that it knew of
    int64_t mtime_ns = 0;      // 0: nothing was written
    bool perhaps = false;      // something may have been written, nobody knows when
    bool closed = false;       // the session ends
  };
  // Told by a writer. ESTALE: the file is gone. The inode's `truncations` differ from those told:
  // the end did not count, and must be asked of storage.
  Task<Result<Inode>> wrote(InodeId id, SessionId session, Written written);
  // Sessions end that have nothing to tell any more; at most kEndMax (service.h).
  struct Ended {
    InodeId inode = 0;
    SessionId session = {};
  };
  Task<Result<void>> end(std::vector<Ended> ended);
  // The end that storage tells, of a file truncated so often: no shorter from now on.
  Task<Result<Inode>> grow(InodeId id, uint64_t end, uint64_t truncations);
  // The file once a truncation that is still being done is done.
  Task<Result<Inode>> finish_cut(InodeId id, Chunks& chunks);
  // The same, and its length as storage has it.
  Task<Result<Inode>> measure(InodeId id, Chunks& chunks);
  // Sets `size` bytes aside, which are from now on the last ones of the file. Errc::busy: a
  // truncation is to be finished first.
  Task<Result<Inode>> append(Request request, InodeId id, uint64_t size);

  // Locks: names_locks.cc.

  // Takes the file's advisory lock for `owner`, or keeps it for him: a lock that its owner does not
  // ask for again and again is taken from him (lock_watch.h). False: another has it.
  Task<Result<bool>> lock(Caller caller, InodeId id, SessionId owner);
  Task<Result<void>> unlock(InodeId id, SessionId owner);

  // The client lives.
  Task<Result<void>> alive(uint64_t client);

 private:
  using Body = std::function<Task<Result<Inode>>(kv::Txn&)>;
  // `durable`: before it returns.
  Task<Result<Inode>> once(Request request, Body body, bool durable = false);
  Task<Result<void>> change(kv::Function function);
  Task<Result<void>> look(kv::Function function);
  Task<Result<bool>> cuts_still(InodeId id, uint64_t truncations);
  Task<Result<void>> view(kv::Function function);
  Task<Result<void>> check_tree(Caller caller, InodeId root);
  struct Moved;
  Task<Result<Moved>> check_moves(const Rename& rename);
  int64_t deadline() { return clock_.steady_ns() + options_.patience_ns; }

  kv::Engine& engine_;
  Clock& clock_;
  const Options options_;
};

}  // namespace ff::meta
