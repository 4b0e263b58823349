#include "fakequant/train/data/reader/label_collector.h"

#include <algorithm>
#include <cmath>

#include "fakequant/train/data/reader/csv_fields.h"

namespace fq::detail {
namespace {

/// Numbers before text, by their value.
bool before(const std::string& a, const std::string& b) {
  const auto x = field_number(a), y = field_number(b);
  if (x && y && *x != *y) return *x < *y;
  if (bool(x) != bool(y)) return bool(x);
  return a < b;
}

/// Whether the texts are just "0" .. "K-1".
bool counts_up(const std::vector<std::string>& sorted) {
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != std::to_string(i)) return false;
  return true;
}

}  // namespace

LabelCollector::LabelCollector(std::vector<std::string> names) : names_(std::move(names)) {
  for (std::size_t i = 0; i < names_.size(); ++i) ids_.emplace(names_[i], std::int64_t(i));
}

bool LabelCollector::add(const std::string& text) {
  auto found = ids_.find(text);
  if (found == ids_.end() && names_.empty()) found = ids_.emplace(text, std::int64_t(ids_.size())).first;
  if (found != ids_.end()) {
    values_.push_back(std::int32_t(found->second));
    return true;
  }
  const auto number = field_number(text);
  if (!number || *number != std::floor(*number) || *number < 0 || *number >= double(names_.size()))
    return false;
  values_.push_back(std::int32_t(*number));
  return true;
}

std::vector<std::string> LabelCollector::distinct() const {
  std::vector<std::string> texts;
  for (const auto& [text, id] : ids_) texts.push_back(text);
  return texts;
}

Labels LabelCollector::take() const {
  std::vector<std::int64_t> values(values_.begin(), values_.end());
  if (!names_.empty()) return {Task::classes, Tensor::from(values, {size()}), names_};
  std::vector<std::string> order = distinct();
  std::ranges::sort(order, before);
  std::vector<std::int64_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    place[std::size_t(ids_.find(order[i])->second)] = std::int64_t(i);
  for (auto& value : values) value = place[std::size_t(value)];
  if (counts_up(order)) order.clear();
  return {Task::classes, Tensor::from(values, {size()}), std::move(order)};
}

}  // namespace fq::detail
