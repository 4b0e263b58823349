#include "fakequant/export/onnx/reader/node_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fq::detail {

template <class T>
const T* NodeReader::find(std::string_view key) const {
  const auto* value = node_.attribute(key);
  if (value == nullptr) return nullptr;
  const auto* typed = std::get_if<T>(value);
  check(typed != nullptr, "its attribute '{}' is of another type than the operator's", key);
  return typed;
}

std::int64_t NodeReader::integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                                 std::int64_t high) const {
  const auto* given = find<std::int64_t>(key);
  const std::int64_t value = given != nullptr ? *given : fallback;
  check(value >= low && value <= high, "its attribute '{}' is {}: from {} to {} are supported", key, value,
        low, high);
  return value;
}

std::vector<std::int64_t> NodeReader::integers(std::string_view key) const {
  const auto* given = find<std::vector<std::int64_t>>(key);
  return given != nullptr ? *given : std::vector<std::int64_t>{};
}

std::vector<std::int64_t> NodeReader::sizes(std::string_view key, std::size_t count, std::int64_t fallback,
                                            std::int64_t low) const {
  auto values = integers(key);
  if (values.empty()) return std::vector<std::int64_t>(count, fallback);
  check(values.size() == count, "its attribute '{}' has {} numbers: {} are needed", key, values.size(),
        count);
  for (const auto value : values)
    check(value >= low && value <= kLargestSize, "its attribute '{}' has {}: from {} to {} are supported",
          key, value, low, kLargestSize);
  return values;
}

double NodeReader::number(std::string_view key, double fallback) const {
  const auto* given = find<float>(key);
  if (given == nullptr) return fallback;
  check(std::isfinite(*given), "its attribute '{}' is {}", key, *given);
  return shortest(*given);
}

std::string NodeReader::text(std::string_view key, const std::string& fallback) const {
  const auto* given = find<std::string>(key);
  return given != nullptr ? given->substr(0, 80) : fallback;
}

std::string NodeReader::origin() const {
  const std::string& name = node_.name.empty() && !node_.outputs.empty() ? node_.outputs[0] : node_.name;
  return fmt::format("[import_onnx] node '{}' ({}): ", name.substr(0, 200), operator_name(node_));
}

void NodeReader::fail_text(const std::string& message) const { throw ArgumentError(origin() + message); }

double shortest(float value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  double out = 0;
  std::from_chars(text.data(), end, out);
  return out;
}

std::string operator_name(const OnnxNode& node) {
  const std::string op = node.op.substr(0, 80);
  return node.domain.empty() ? op : node.domain.substr(0, 80) + "." + op;
}

}  // namespace fq::detail
