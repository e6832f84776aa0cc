// many.cc: what is told of errors as they come, and in the end.
#include "cmd/cli/many.h"

#include <utility>

#include "platform/base/units.h"

namespace ff::cmd {

bool Failures::add(Error error) {
  const bool over = error.code == Errc::interrupted || error.code == Errc::deadline;
  if (over) {
    last_ = std::move(error);
    return false;
  }
  if (++count_ == 1) {
    first_ = std::move(error);
    return true;
  }
  // The first is told now: there is a second one.
  if (count_ == 2) out_.warn("{}", first_->message);
  out_.warn("{}", error.message);
  if (error.code == Errc::corrupt) first_->code = Errc::corrupt;
  return true;
}

Result<void> Failures::end() const {
  if (last_) return *last_;
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

void JsonList::end() {
  if (out_.mode().json) out_.data_text(text_ + "]}");
}

}  // namespace ff::cmd
