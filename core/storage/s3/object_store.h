// Buckets and objects as folders and files below one folder of the file system (--s3-root). Every
// call is made with the rights of a user, and follows no symbolic link.
//
// A new object is written to a hidden file in its folder and then renamed, so that it appears
// whole. What a server leaves that dies meanwhile is removed when somebody lists the folder a day
// later. Folders are made as keys need them, and removed with the last object in them, unless they
// have attributes or a layout of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "platform/base/rng.h"
#include "platform/base/wait.h"
#include "storage/client/file_system.h"
#include "storage/s3/object_attributes.h"
#include "storage/s3/object_key.h"
#include "storage/s3/object_source.h"
#include "storage/s3/transfer_pieces.h"

namespace ff::s3 {

struct StoreOptions {
  std::string root;              // path in the cluster
  uint32_t umask = 022;          // of new files and folders
  bool durable = false;          // objects are durable when calls return
  uint64_t memory = 256 * kMiB;  // for the bytes of all transfers
  // Memory for them that storage nodes of this host can access directly
  // (net/system_transport.h); may be empty or smaller. Outlives the store.
  ByteSpan arena = {};
  // In which digests are computed; null: in the loop. Outlives the store.
  HashThreads* hashing = nullptr;
};

struct BucketInfo {
  std::string name;
  int64_t created_s = 0;
};

struct ObjectInfo {
  meta::InodeView view;
  ObjectAttributes attributes;
  bool marker = false;  // a folder marker
  uint64_t size() const { return marker ? 0 : view.inode.length; }
  int64_t mtime_s() const { return view.inode.mtime_ns / kSecond; }
};

// Bytes of one object, open for reading. Owned by one task.
class ObjectReader final : public ObjectSource {
 public:
  // [offset, offset + size) of the file.
  ObjectReader(std::shared_ptr<client::File> file, uint64_t offset, uint64_t size)
      : file_(std::move(file)), offset_(offset), left_(size) {}

  // What is left.
  std::optional<uint64_t> size() const override { return left_; }
  // Errc::stale: the object has been removed or replaced.
  Task<Result<size_t>> read(ByteSpan into) override;
  // The next bytes, as many as `into` has or are left. Several reads may be under way.
  struct Next {
    uint64_t offset = 0;  // in the file
    ByteSpan into = {};
  };
  Next take(ByteSpan into);
  Task<Result<void>> read_next(Next next);

 private:
  std::shared_ptr<client::File> file_;
  uint64_t offset_;
  uint64_t left_;
};

// What a new object must find. Errors are S3's PreconditionFailed.
struct PutCondition {
  bool must_be_new = false;     // If-None-Match: *
  std::string must_match = {};  // If-Match: the ETag, or "*"; empty: nothing
};

class ObjectStore {
 public:
  // Both outlive it.
  ObjectStore(client::FileSystem& files, Rng& rng, StoreOptions options);

  // Finds the root, as `self`; before all other calls. Errc::not_found, Errc::usage: it is no
  // folder.
  Task<Result<void>> open(meta::Caller self);

  Task<Result<std::vector<BucketInfo>>> list_buckets(meta::Caller caller);
  // Errors of this and of all calls below are S3's, or those of the file system.
  Task<Result<meta::InodeView>> find_bucket(meta::Caller caller, std::string bucket);
  Task<Result<void>> create_bucket(meta::Caller caller, std::string bucket);
  // The attribute with the rules for pages of other sites (cors.h); empty: there is none.
  Task<Result<std::optional<std::string>>> bucket_cors(meta::Caller caller, std::string bucket);
  // Without a text the attribute is removed, if there is one.
  Task<Result<void>> set_bucket_cors(meta::Caller caller, std::string bucket,
                                     std::optional<std::string> text);

  Task<Result<ObjectInfo>> find(meta::Caller caller, std::string bucket, std::string key);
  // The attributes of a file or folder; `marker`: it is a folder.
  Task<Result<ObjectInfo>> info_of(meta::Caller caller, meta::InodeView view, bool marker);
  Task<Result<std::shared_ptr<client::File>>> open_file(meta::Caller caller,
                                                        const ObjectInfo& object);
  struct NewObject {
    meta::Caller caller;
    std::string bucket;
    std::string key;
    ObjectAttributes attributes = {};  // an ETag in it is kept; otherwise it is the MD5
    PutCondition condition = {};
  };
  // Returns the object as it is stored.
  Task<Result<ObjectInfo>> put(NewObject object, ObjectSource& source);
  // No error if there is none.
  Task<Result<void>> remove(meta::Caller caller, std::string bucket, std::string key);
  Task<Result<void>> set_attributes(meta::Caller caller, const ObjectInfo& object);

  // A folder in which a key is, and the folders that were made for it, outermost first.
  struct Folder {
    struct Made {
      meta::InodeView parent;
      std::string name;
    };
    meta::InodeView dir;
    std::vector<Made> made = {};
  };
  // Finds the folders of a key, or makes those that are missing.
  Task<Result<Folder>> make_folders(meta::Caller caller, std::string bucket,
                                    std::vector<std::string> names);
  // The last folder; Errc::not_found.
  Task<Result<meta::InodeView>> find_folder(meta::Caller caller, meta::InodeView from,
                                            std::vector<std::string> names);
  // A name for a hidden file or folder.
  std::string hidden_name(std::string_view kind);
  // A new hidden file, open for writing.
  struct HiddenFile {
    Folder folder;
    std::string name;
    std::optional<meta::InodeView> below = {};  // the folder in that one in which it is
    std::shared_ptr<client::File> file;
  };
  // In the folder of a key, which is made if it is missing.
  Task<Result<HiddenFile>> create_hidden(meta::Caller caller, std::string bucket,
                                         std::vector<std::string> folders);
  // In a folder that exists.
  Task<Result<HiddenFile>> create_hidden_in(meta::Caller caller, meta::InodeView dir);
  // Writes the source to it and closes it.
  struct Written {
    meta::InodeView view;
    std::string md5;  // 32 hex digits; empty: it was not wanted
  };
  Task<Result<Written>> fill(HiddenFile& hidden, ObjectSource& source, bool wants_md5 = true);
  // Writes the source to an open file, from this offset on; returns the MD5 in 32 hex digits, or
  // nothing if it is not wanted. On errors some of the bytes may be there.
  Task<Result<std::string>> write_bytes(client::File& file, uint64_t at, ObjectSource& source,
                                        bool wants_md5);
  // Gives it its name, in place of a file of that name. On errors it is still there.
  Task<Result<void>> publish(meta::Caller caller, HiddenFile& hidden, std::string name,
                             bool must_be_new);
  // Before publish().
  Task<Result<void>> check_condition(const NewObject& object);
  // Removes it, and folders that were made for it; with a time limit and without cancellation.
  Task<void> drop(meta::Caller caller, HiddenFile& hidden);
  Task<Result<void>> set_text(meta::Caller caller, meta::InodeRef inode, std::string text);
  // Removes the folders of a key that nothing is in any more.
  Task<Result<void>> prune_folders(meta::Caller caller, std::string bucket, std::string key);
  Task<Result<void>> finish_change();

  client::FileSystem& files() { return files_; }
  meta::MetaClient& metadata() { return files_.metadata(); }
  Loop& loop() { return files_.loop(); }
  const StoreOptions& options() const { return options_; }
  // Of new files.
  uint32_t file_mode() const;
  const meta::InodeRef& root() const { return root_; }
  // Memory for the pieces of a transfer: one that has all of it, or several, which are smaller and
  // fewer while many transfers run.
  Task<Result<TransferPieces>> acquire_pieces(uint64_t size);

 private:
  Task<Result<meta::InodeView>> lookup_dir(meta::Caller caller, meta::InodeRef dir,
                                           std::string name);
  Task<Result<meta::InodeView>> make_dir(meta::Caller caller, meta::InodeRef dir, std::string name);
  Task<Result<ObjectInfo>> put_marker(NewObject object, ObjectPath path, ObjectSource& source);
  Task<Result<ObjectInfo>> put_file(const NewObject& object, HiddenFile& hidden, std::string name,
                                    ObjectSource& source);
  Task<Result<void>> drop_names(meta::Caller caller, const HiddenFile& hidden);
  // A folder of a key with its name in the one above; the bucket is the first.
  struct Link {
    meta::InodeView dir;
    std::string name = {};
  };
  Task<Result<std::vector<Link>>> find_links(meta::Caller caller, std::string bucket,
                                             std::vector<std::string> names);
  Task<void> prune(meta::Caller caller, std::vector<Link> links);

  client::FileSystem& files_;
  Rng& rng_;
  const StoreOptions options_;
  meta::InodeRef root_;
  Semaphore memory_;  // units: KiB
  chain::BufferPool buffers_;
  HashThreads no_threads_{0};
};

// How long what a server left is kept.
constexpr int64_t kLeftoverNs = 24 * 3600 * kSecond;

// The error of a call on the path of a key: what is missing is the object.
Error as_key_error(Error error);
bool is_missing(const Error& error);

}  // namespace ff::s3
