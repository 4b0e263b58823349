#include "fakequant/export/onnx/reader/node_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fq::detail {
namespace {

void pads_of_attribute(const NodeReader& node, Window& window) {
  const std::size_t axes = window.kernel.size();
  const auto pads = node.sizes("pads", 2 * axes, 0, 0);
  // ONNX lists the pads before all axes, then the pads after all axes.
  const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes);
  window.before.assign(pads.begin(), middle);
  window.after.assign(middle, pads.end());
}

/// Sets pads so that there is one output per stride within the image.
void pads_of_same(Window& window, const std::vector<std::int64_t>& image, bool upper) {
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    // ONNX's SAME: ceil(image / stride) outputs. An odd pad is at the end for SAME_UPPER.
    const auto outputs = (image[i] + window.stride[i] - 1) / window.stride[i];
    const auto total =
        std::max<std::int64_t>(0, (outputs - 1) * window.stride[i] + window.extent(i) - image[i]);
    window.before.push_back(upper ? total / 2 : total - total / 2);
    window.after.push_back(total - window.before.back());
  }
}

}  // namespace

template <class T>
const T* NodeReader::find(std::string_view key) const {
  const auto* value = node_.attribute(key);
  if (value == nullptr) return nullptr;
  const auto* typed = std::get_if<T>(value);
  // An attribute of another type is an error, never the default.
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
  // Limits untrusted text in messages. No supported value is longer.
  return given != nullptr ? given->substr(0, 80) : fallback;
}

std::string NodeReader::origin() const {
  const std::string& name = node_.name.empty() && !node_.outputs.empty() ? node_.outputs[0] : node_.name;
  return fmt::format("[import_onnx] node '{}' ({}): ", name.substr(0, 200), operator_name(node_));
}

void NodeReader::fail_text(const std::string& message) const { throw ArgumentError(origin() + message); }

// std::to_chars writes the shortest text that reads back as the same float.
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

Window read_window(const NodeReader& node, std::vector<std::int64_t> kernel,
                   const std::vector<std::int64_t>& image) {
  const std::size_t axes = kernel.size();
  Window window{
      std::move(kernel), node.sizes("strides", axes, 1, 1), node.sizes("dilations", axes, 1, 1), {}, {}};
  const auto mode = node.text("auto_pad", "NOTSET");
  if (mode == "NOTSET" || mode.empty())
    pads_of_attribute(node, window);
  else if (mode == "VALID")
    window.before = window.after = std::vector<std::int64_t>(axes, 0);
  else if (mode == "SAME_UPPER" || mode == "SAME_LOWER")
    pads_of_same(window, image, mode == "SAME_UPPER");
  else
    node.fail("its attribute 'auto_pad' is '{}'", mode);
  return window;
}

NodeOption one_or_list(const std::vector<std::int64_t>& sizes) {
  // Model files have a number for windows of equal sizes, like PyTorch's arguments.
  const bool same = std::ranges::all_of(sizes, [&](std::int64_t size) { return size == sizes[0]; });
  return same ? NodeOption(sizes.at(0)) : NodeOption(sizes);
}

}  // namespace fq::detail
