// fuse_request.cc: converts inodes and errors for the kernel.
#include "storage/mount/fuse_request.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "platform/base/clock.h"

namespace ff::mount {

namespace {

constexpr uint64_t kDirBytes = 4096;
constexpr uint64_t kStatBlock = 512;

}  // namespace

Error FuseRequest::truncated_error() const {
  return errno_error(
      EIO, fmt::format("a request of the kernel (opcode {}, {} bytes)", header.opcode, header.len));
}

Result<std::string> FuseRequest::name() {
  const size_t end = body.find('\0', at_);
  if (end == body.npos) return truncated_error();
  std::string name = body.substr(at_, end - at_);
  at_ = end + 1;
  return name;
}

bool FuseRequest::is_direct_read() const {
  fuse_read_in in = {};
  if (header.opcode != FUSE_READ || body.size() < sizeof in) return false;
  std::memcpy(&in, body.data(), sizeof in);
  return (in.flags & O_DIRECT) != 0;
}

uint32_t type_of(meta::InodeType kind) {
  switch (kind) {
    case meta::InodeType::file: return S_IFREG;
    case meta::InodeType::directory: return S_IFDIR;
    case meta::InodeType::symlink: return S_IFLNK;
    case meta::InodeType::fifo: return S_IFIFO;
    case meta::InodeType::socket: return S_IFSOCK;
    case meta::InodeType::character: return S_IFCHR;
    case meta::InodeType::block: return S_IFBLK;
  }
  return 0;
}

std::optional<meta::InodeType> kind_of(uint32_t mode) {
  switch (mode & S_IFMT) {
    case 0:
    case S_IFREG: return meta::InodeType::file;
    case S_IFIFO: return meta::InodeType::fifo;
    case S_IFSOCK: return meta::InodeType::socket;
    case S_IFCHR: return meta::InodeType::character;
    case S_IFBLK: return meta::InodeType::block;
    default: return std::nullopt;
  }
}

fuse_attr attributes_of(const meta::Inode& inode) {
  fuse_attr attr = {};
  attr.ino = inode.id;
  switch (inode.kind) {
    case meta::InodeType::file: attr.size = inode.length; break;
    case meta::InodeType::directory: attr.size = kDirBytes; break;
    case meta::InodeType::symlink: attr.size = inode.target.size(); break;
    default: break;
  }
  attr.blocks = align_up(attr.size, kStatBlock) / kStatBlock;
  const auto split = [](int64_t ns, uint64_t& seconds, uint32_t& rest) {
    int64_t whole = ns / kSecond;
    if (ns % kSecond < 0) whole--;
    seconds = static_cast<uint64_t>(whole);
    rest = static_cast<uint32_t>(ns - whole * kSecond);
  };
  split(inode.atime_ns, attr.atime, attr.atimensec);
  split(inode.mtime_ns, attr.mtime, attr.mtimensec);
  split(inode.ctime_ns, attr.ctime, attr.ctimensec);
  attr.mode = type_of(inode.kind) | inode.mode;
  attr.nlink = inode.links;
  attr.uid = inode.uid;
  attr.gid = inode.gid;
  attr.rdev = static_cast<uint32_t>(inode.device);
  // Programs use this as their I/O size.
  const uint64_t chunk = inode.layout.chunk_size;
  const bool file = inode.is(meta::InodeType::file) && chunk != 0;
  attr.blksize = static_cast<uint32_t>(file ? std::min(chunk, kWriteMax) : kDirBytes);
  return attr;
}

int64_t time_of(uint64_t seconds, uint32_t ns) {
  constexpr int64_t kMax = INT64_MAX / kSecond - 1;
  const auto whole = std::clamp(static_cast<int64_t>(seconds), -kMax, kMax);
  return whole * kSecond + ns;
}

int errno_of(const Error& error) {
  if (error.sys != 0) return error.sys;
  switch (error.code) {
    case Errc::usage: return EINVAL;
    case Errc::refused: return EACCES;
    case Errc::deadline: return ETIMEDOUT;
    case Errc::interrupted: return EINTR;
    case Errc::not_found: return ENOENT;
    case Errc::exists: return EEXIST;
    case Errc::disk_full: return ENOSPC;
    case Errc::unsupported: return EOPNOTSUPP;
    case Errc::stale: return ESTALE;
    default: return EIO;
  }
}

}  // namespace ff::mount
