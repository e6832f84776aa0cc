// batch.cc: prints errors as warnings, and sums them up at the end.
#include "cmd/cli/batch.h"

#include <utility>

#include "platform/base/units.h"

namespace ff::cmd {

bool Failures::add(Error error) {
  const bool fatal = error.code == Errc::interrupted || error.code == Errc::deadline;
  if (fatal) {
    fatal_ = std::move(error);
    return false;
  }
  if (++count_ == 1) {
    first_ = std::move(error);
    return true;
  }
  // Print the first error now: result() returns only the count.
  if (count_ == 2) out_.warn("{}", first_->message);
  out_.warn("{}", error.message);
  if (error.code == Errc::corrupt) first_->code = Errc::corrupt;
  return true;
}

Result<void> Failures::result() const {
  if (fatal_) return *fatal_;
  if (count_ == 0) return {};
  if (count_ == 1) return *first_;
  const bool damage = first_->code == Errc::corrupt;
  return fail(damage ? Errc::corrupt : Errc::failed, "{} errors, see above", format_count(count_));
}

void JsonList::add(const Json& entry) {
  if (!out_.mode().json) return;
  if (any_) text_ += ',';
  any_ = true;
  text_ += entry.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void JsonList::finish() {
  if (out_.mode().json) out_.data_text(text_ + "]}");
}

}  // namespace ff::cmd
