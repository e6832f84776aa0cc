// Memory that a disk transfers best (io::Disk::make_buffers()), for a few large records at a time:
// a storage node of the same host writes to it, or reads from it, directly. Values are copied from
// there, or to it.
#pragma once

#include <utility>
#include <vector>

#include "platform/base/bytes.h"
#include "platform/base/loop.h"
#include "platform/base/task.h"
#include "platform/base/wait.h"
#include "platform/io/buffers.h"

namespace ff::kvstore {

class TransferBuffers {
 public:
  static constexpr size_t kBytes = 2 * kMiB;  // of one buffer

  // `memory`: slots of kBytes.
  TransferBuffers(Loop& loop, io::Buffers memory)
      : memory_(std::move(memory)), units_(loop, memory_.count()) {
    for (size_t i = 0; i < memory_.count(); ++i) free_.push_back(i);
  }

  // A buffer, until its destruction.
  class Taken {
   public:
    Taken(TransferBuffers& from, Semaphore::Permit permit)
        : permit_(std::move(permit)), from_(&from), slot_(from.free_.back()) {
      from.free_.pop_back();
    }
    Taken(Taken&& other) noexcept
        : permit_(std::move(other.permit_)),
          from_(std::exchange(other.from_, nullptr)),
          slot_(other.slot_) {}
    ~Taken() {
      if (from_ != nullptr) from_->free_.push_back(slot_);
    }
    ByteSpan memory() const { return from_->memory_.slot(slot_); }

   private:
    Semaphore::Permit permit_;
    TransferBuffers* from_;
    size_t slot_;
  };
  // Waits for one.
  Task<Result<Taken>> take() {
    FF_CO_TRY(auto permit, co_await units_.acquire(1));
    co_return Taken(*this, std::move(permit));
  }

 private:
  io::Buffers memory_;
  std::vector<size_t> free_;
  Semaphore units_;
};

}  // namespace ff::kvstore
