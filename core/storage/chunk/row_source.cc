// row_source.cc: combines changes of rows.
#include "storage/chunk/row_source.h"

#include <algorithm>
#include <utility>

namespace ff::chunk {
namespace {

bool precedes(const RowView& a, const RowView& b) {
  const int order = a.key.compare(b.key);
  if (order != 0) return order < 0;
  return a.kind == RowView::Kind::erase_range && b.kind != RowView::Kind::erase_range;
}

}  // namespace

Result<void> LogRows::apply(std::string_view rows) {
  while (!rows.empty()) {
    const auto row = take_row(rows);
    if (!row) return fail(Errc::corrupt, "the log of the metadata holds a malformed row");
    const std::string key(row->key);
    switch (row->kind) {
      case RowView::Kind::put: rows_.insert_or_assign(key, std::string(row->value)); break;
      case RowView::Kind::erase: rows_.insert_or_assign(key, std::nullopt); break;
      case RowView::Kind::data: break;
      case RowView::Kind::erase_range:
        if (row->value <= row->key) break;
        rows_.erase(rows_.lower_bound(row->key), rows_.lower_bound(row->value));
        std::string& end = ranges_[key];
        if (end < row->value) end = row->value;
        break;
    }
  }
  return {};
}

class LogRows::Source final : public RowSource {
 public:
  explicit Source(const LogRows& from)
      : from_(from), row_(from.rows_.begin()), range_(from.ranges_.begin()) {}

  Result<std::optional<RowView>> next() override {
    const bool range = range_ != from_.ranges_.end() &&
                       (row_ == from_.rows_.end() || range_->first <= row_->first);
    if (range) {
      const RowView view{
          .kind = RowView::Kind::erase_range, .key = range_->first, .value = range_->second};
      ++range_;
      return std::optional(view);
    }
    if (row_ == from_.rows_.end()) return std::optional<RowView>();
    RowView view{.kind = RowView::Kind::erase, .key = row_->first, .value = {}};
    if (row_->second)
      view = {.kind = RowView::Kind::put, .key = row_->first, .value = *row_->second};
    ++row_;
    return std::optional(view);
  }

 private:
  const LogRows& from_;
  decltype(LogRows::rows_)::const_iterator row_;
  decltype(LogRows::ranges_)::const_iterator range_;
};

std::unique_ptr<RowSource> LogRows::source() const { return std::make_unique<Source>(*this); }

RowMerge::RowMerge(std::vector<std::unique_ptr<RowSource>> newest_first, bool whole)
    : whole_(whole) {
  for (auto& source : newest_first) inputs_.push_back({.source = std::move(source)});
}

// Whether a newer source has this row, or erases it.
bool RowMerge::replaced(const Input& input) const {
  if (input.row->key == last_key_) return true;
  return std::any_of(inputs_.data(), &input,
                     [&](const Input& newer) { return input.row->key < newer.erased_to; });
}

Result<std::optional<RowView>> RowMerge::next() {
  if (!std::exchange(begun_, true)) {
    for (Input& input : inputs_) {
      FF_TRY(input.row, input.source->next());
    }
  }
  for (;;) {
    if (Input* const last = std::exchange(taken_, nullptr)) {
      FF_TRY(last->row, last->source->next());
    }
    Input* first = nullptr;
    size_t left = 0;
    for (Input& input : inputs_) {
      left += input.row ? 1 : 0;
      if (input.row && (first == nullptr || precedes(*input.row, *first->row))) first = &input;
    }
    if (first == nullptr) return std::optional<RowView>();
    taken_ = first;
    if (first->row->kind == RowView::Kind::erase_range) {
      if (first->erased_to < first->row->value) first->erased_to = first->row->value;
      if (!whole_) return first->row;
      continue;
    }
    if (replaced(*first)) continue;
    if (left > 1) last_key_ = first->row->key;
    if (!whole_ || first->row->kind == RowView::Kind::put) return first->row;
  }
}

}  // namespace ff::chunk
