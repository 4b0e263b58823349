#pragma once

/// Reading one ONNX node that may say anything.

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
  /// Whether input `i` is there; inputs may be left out.
  [[nodiscard]] bool has_input(std::size_t i) const {
    return i < node_.inputs.size() && !node_.inputs[i].empty();
  }
  [[nodiscard]] std::int64_t integer(std::string_view key, std::int64_t fallback, std::int64_t low,
                                     std::int64_t high) const;
  /// As the file has them, of any number.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  /// `count` of them, all `fallback` when there are none; each within [low, high].
  [[nodiscard]] std::vector<std::int64_t> sizes(std::string_view key, std::size_t count,
                                                std::int64_t fallback, std::int64_t low) const;
  /// The shortest decimal number that is this float: 1e-05, not 9.99999974738e-06.
  [[nodiscard]] double number(std::string_view key, double fallback) const;
  [[nodiscard]] std::string text(std::string_view key, const std::string& fallback) const;

  /// The begin of each error: "[import_onnx] node '/conv1/Conv' (Conv): ".
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

/// The most elements that a layer adds at a border, and that it makes of an axis.
inline constexpr std::int64_t kLargestPad = std::int64_t{1} << 20;
/// The largest size that an attribute may have.
inline constexpr std::int64_t kLargestSize = (std::int64_t{1} << 31) - 1;

/// The shortest decimal number that is this float.
[[nodiscard]] double shortest(float value);
/// The domain and the operator: "com.example.FusedConv", "Conv".
[[nodiscard]] std::string operator_name(const OnnxNode& node);

/// Window of a convolution or a pool, by axis of the image. `before` and `after` are pads.
struct Window {
  std::vector<std::int64_t> kernel, stride, dilation, before, after;

  [[nodiscard]] bool equal_pads() const { return before == after; }
  /// Pixels from the first tap to the last, both included.
  [[nodiscard]] std::int64_t extent(std::size_t axis) const {
    return dilation[axis] * (kernel[axis] - 1) + 1;
  }
};

/// Reads strides, dilations and pads of a node. Computes `auto_pad` for an image of that size. Throws
/// ArgumentError for attributes that do not fit, and negative pads.
[[nodiscard]] Window read_window(const NodeReader& node, std::vector<std::int64_t> kernel,
                                 const std::vector<std::int64_t>& image);

/// Returns one number if all are the same.
[[nodiscard]] NodeOption one_or_list(const std::vector<std::int64_t>& sizes);

}  // namespace fq::detail
