// Records of work that has ended, which a service keeps for a while: finished tasks, logs. When it
// keeps too many, it removes the oldest record of the user who has the most. So no user loses
// records because another user produces many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace ff::scheduler {

template <class Key>
class KeptRecords {
 public:
  struct Record {
    uint32_t uid = 0;
    int64_t ended_ns = 0;
    Key key = {};
    uint64_t bytes = 0;
  };
  enum class Measure : uint8_t { records, bytes };

  // No record with the same user, time and key may be there.
  void add(const Record& record) {
    User& user = users_[record.uid];
    user.records.emplace(std::pair(record.ended_ns, record.key), record.bytes);
    user.bytes += record.bytes;
    bytes_ += record.bytes;
    count_++;
  }

  // `record` is a copy of what was added.
  void remove(const Record& record) {
    const auto user = users_.find(record.uid);
    if (user == users_.end()) return;
    const auto found = user->second.records.find(std::pair(record.ended_ns, record.key));
    if (found == user->second.records.end()) return;
    user->second.bytes -= found->second;
    bytes_ -= found->second;
    count_--;
    user->second.records.erase(found);
    if (user->second.records.empty()) users_.erase(user);
  }

  size_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t bytes_of(uint32_t uid) const {
    const auto user = users_.find(uid);
    return user == users_.end() ? 0 : user->second.bytes;
  }

  // The oldest record of one user.
  std::optional<Record> oldest_of(uint32_t uid) const {
    const auto user = users_.find(uid);
    if (user == users_.end()) return std::nullopt;
    return first_of(*user);
  }

  // The oldest record of the user who has the most; of equal users, the older record.
  std::optional<Record> oldest_of_largest(Measure by) const {
    const auto size = [by](const User& user) {
      return by == Measure::bytes ? user.bytes : uint64_t{user.records.size()};
    };
    const std::pair<const uint32_t, User>* largest = nullptr;
    for (const auto& one : users_) {
      const bool is_larger =
          largest == nullptr || size(one.second) > size(largest->second) ||
          (size(one.second) == size(largest->second) &&
           one.second.records.begin()->first < largest->second.records.begin()->first);
      if (is_larger) largest = &one;
    }
    if (largest == nullptr) return std::nullopt;
    return first_of(*largest);
  }

  // The oldest record of all users.
  std::optional<Record> oldest() const {
    const std::pair<const uint32_t, User>* found = nullptr;
    for (const auto& one : users_) {
      if (found == nullptr ||
          one.second.records.begin()->first < found->second.records.begin()->first) {
        found = &one;
      }
    }
    if (found == nullptr) return std::nullopt;
    return first_of(*found);
  }

 private:
  // Never without a record.
  struct User {
    std::map<std::pair<int64_t, Key>, uint64_t> records;  // time and key, then bytes
    uint64_t bytes = 0;
  };
  static Record first_of(const std::pair<const uint32_t, User>& user) {
    const auto& [key, bytes] = *user.second.records.begin();
    return {.uid = user.first, .ended_ns = key.first, .key = key.second, .bytes = bytes};
  }

  std::map<uint32_t, User> users_;
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace ff::scheduler
