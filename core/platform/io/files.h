// Operations on small whole files and directory trees of any Disk, each with its durability.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::io {

// DIR + "/" + NAME, without a double slash.
std::string join(std::string_view dir, std::string_view name);
// "a/b/c" -> "a/b"; "c" -> "."; "/c" -> "/".
std::string parent(std::string_view path);
// "a/b/c" -> "c".
std::string base_name(std::string_view path);

// The content of a file; Errc::failed if it is longer than `limit` bytes.
Result<std::string> read_file(Disk& disk, const std::string& path, uint64_t limit);

// Replaces `path` atomically, so that after a crash it has the old or the new content: writes
// `path`.SUFFIX.tmp, syncs it, renames it, syncs the directory.
Result<void> replace_file(Disk& disk, const std::string& path, std::string_view content,
                          std::string_view suffix);

// Creates `path` and its missing parents, and syncs each directory that got a new entry.
Result<void> make_dirs(Disk& disk, const std::string& path, uint32_t mode = 0777);

// Removes `path` and everything below it; success if it does not exist. Never follows symbolic
// links.
Result<void> remove_tree(Disk& disk, const std::string& path);

// Whether a name exists; a dangling symbolic link exists.
Result<bool> exists(Disk& disk, const std::string& path);

// Creates the file `path` if needed and takes its exclusive lock (File::try_lock); the returned
// File holds the lock. Null if another process holds it.
Result<std::unique_ptr<File>> lock_file(Disk& disk, const std::string& path, uint32_t mode = 0600);

}  // namespace ff::io
