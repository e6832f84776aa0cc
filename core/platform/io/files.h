// Small whole-file and whole-tree actions on any Disk, with the durability each promises.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "platform/base/result.h"
#include "platform/io/disk.h"

namespace ff::io {

// DIR + "/" + NAME, without doubling the slash.
std::string join(std::string_view dir, std::string_view name);
// "a/b/c" -> "a/b"; "c" -> "."; "/c" -> "/".
std::string parent(std::string_view path);
// "a/b/c" -> "c".
std::string base_name(std::string_view path);

// The content of a file of at most `limit` bytes; a longer one is Errc::failed.
Result<std::string> read_file(Disk& disk, const std::string& path, uint64_t limit);

// Replaces `path` so that a crash leaves the old or the new content: writes `path`.SUFFIX.tmp,
// syncs it, renames it, syncs the directory.
Result<void> replace_file(Disk& disk, const std::string& path, std::string_view content,
                          std::string_view suffix);

// Makes `path` and its missing parents, syncing each directory that got a new entry.
Result<void> make_dirs(Disk& disk, const std::string& path, uint32_t mode = 0777);

// Removes `path` and everything below it; a missing path is success. Never follows a link.
Result<void> remove_tree(Disk& disk, const std::string& path);

// Whether a name exists (a dangling symbolic link does).
Result<bool> exists(Disk& disk, const std::string& path);

// The exclusive lock of the file `path`, which is made when it is not there; held as long as what
// this returns lives. Null: another holds it.
Result<std::unique_ptr<File>> lock_file(Disk& disk, const std::string& path, uint32_t mode = 0600);

}  // namespace ff::io
