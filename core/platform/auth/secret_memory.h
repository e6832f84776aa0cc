// Memory for secrets: bytes that are overwritten when they are freed, pages that the kernel writes
// neither to swap space nor to core dumps, and processes that leave none.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <string>

namespace ff::auth {

// Overwrites memory, even if nothing reads it afterwards (OPENSSL_cleanse).
void cleanse(void* memory, size_t size);

// A text that is overwritten when it is destroyed. Reserve its size before you append: a string
// that grows leaves its former content behind.
class SecretText : public std::string {
 public:
  using std::string::string;
  SecretText() = default;
  SecretText(const SecretText&) = default;
  SecretText(SecretText&&) = default;
  SecretText& operator=(const SecretText&) = delete;
  SecretText& operator=(SecretText&&) = delete;
  ~SecretText() {
    resize(capacity());
    cleanse(data(), size());
  }
};

// Memory that is overwritten when it is freed, in pages that are locked (mlock(2)) as far as
// RLIMIT_MEMLOCK allows it, and that core dumps leave out. For keys that a process holds for long.
// Thread-safe; one for the whole process.
std::pmr::memory_resource& locked_memory();

// From now on only root can read the memory of this process (ptrace(2), /proc/PID/mem), and the
// process leaves no core dump: OpenSSL has copies of keys on the ordinary heap. For programs that
// are ff as a whole, not for libraries. A program that the process executes is not affected.
void forbid_dumps();

}  // namespace ff::auth
