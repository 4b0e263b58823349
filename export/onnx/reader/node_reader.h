#pragma once

/// Reads the attributes of one ONNX node from an untrusted file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/layers/model/model_node.h"

namespace fq::detail {

/// Readers of attributes. Every error is an ArgumentError `[import_onnx] node '/conv1/Conv' (Conv): ..`.
class NodeReader {
 public:
  explicit NodeReader(const OnnxNode& node) : node_(node) {}

  [[nodiscard]] const OnnxNode& node() const noexcept { return node_; }
  [[nodiscard]] bool has(std::string_view key) const { return node_.attribute(key) != nullptr; }
  /// Whether input `i` exists. Optional inputs may be missing.
  [[nodiscard]] bool has_input(std::size_t i) const {
    return i < node_.inputs.size() && !node_.inputs[i].empty();
  }
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                                     std::int64_t high) const;
  /// Returns the integers of the file, without a limit of their count.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  /// Returns `count` integers, each at least `low`. All are `fallback` if the attribute is missing.
  [[nodiscard]] std::vector<std::int64_t> sizes(std::string_view key, std::size_t count,
                                                std::int64_t fallback, std::int64_t low) const;
  /// Returns the shortest decimal number that rounds to the float: 1e-05, not 9.99999974738e-06.
  [[nodiscard]] double number(std::string_view key, double fallback) const;
  [[nodiscard]] std::string text(std::string_view key, const std::string& fallback) const;

  /// Returns the beginning of each error: "[import_onnx] node '/conv1/Conv' (Conv): ".
  [[nodiscard]] std::string origin() const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    fail_text(fmt::format(message, std::forward<Args>(args)...));
  }
  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> message, Args&&... args) const {
    if (!condition) fail_text(fmt::format(message, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void fail_text(const std::string& message) const;
  template <class T>
  [[nodiscard]] const T* find(std::string_view key) const;

  const OnnxNode& node_;
};

/// Largest number of elements that a layer adds at a border, or size of an axis that it creates.
inline constexpr std::int64_t kLargestPad = std::int64_t{1} << 20;
/// Largest size in an attribute.
inline constexpr std::int64_t kLargestSize = (std::int64_t{1} << 31) - 1;

/// Returns the shortest decimal number that rounds to this float.
[[nodiscard]] double shortest(float value);
/// Returns the domain and the operator: "com.example.FusedConv", "Conv".
[[nodiscard]] std::string operator_name(const OnnxNode& node);

/// Window of a convolution or a pool, by axis of the image. `before` and `after` are pads.
struct Window {
  std::vector<std::int64_t> kernel, stride, dilation, before, after;

  [[nodiscard]] bool equal_pads() const { return before == after; }
  /// Returns the number of pixels from the first tap to the last, both included.
  [[nodiscard]] std::int64_t extent(std::size_t axis) const {
    return dilation[axis] * (kernel[axis] - 1) + 1;
  }
};

/// Reads strides, dilations and pads of a node. Computes `auto_pad` for an image of that size. Throws
/// ArgumentError for invalid attributes and negative pads.
[[nodiscard]] Window read_window(const NodeReader& node, std::vector<std::int64_t> kernel,
                                 const std::vector<std::int64_t>& image);

/// Returns a single number if all sizes are equal, else the list.
[[nodiscard]] NodeOption one_or_list(const std::vector<std::int64_t>& sizes);

}  // namespace fq::detail
