#pragma once

/// Helpers to assemble the nodes of the built-in models.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/model_node.h"

namespace fq::detail {

constexpr std::int64_t kLargestWidth = 1 << 20;

/// A list of nodes. By default each node reads the node before it.
class BuiltinNodes {
 public:
  using Inputs = std::vector<std::string>;

  explicit BuiltinNodes(bool signals = false) : convolution_(signals ? "conv1d" : "conv2d") {}
  /// Appends a node and returns its name.
  std::string add(const std::string& name, const char* type, NodeOptions options = {}, Inputs inputs = {});
  /// Appends a convolution without bias and its batch norm.
  std::string conv_bn(const std::string& name, std::int64_t width, int kernel, int stride,
                      const Inputs& inputs = {});
  std::string linear(const std::string& name, NodeOption features);
  [[nodiscard]] const ModelNodes& list() const noexcept { return list_; }

 private:
  const char* convolution_;
  ModelNodes list_;
};

/// Options of a built-in model with fallback values. Readers throw as JsonValue.
class BuiltinOptions {
 public:
  explicit BuiltinOptions(const JsonValue* given) : given_(given) {}
  [[nodiscard]] bool has(const char* name) const;
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t fallback, std::int64_t low = 1,
                                     std::int64_t high = kLargestWidth) const;
  [[nodiscard]] bool on(const char* name, bool fallback = false) const;
  /// Returns a number from 0 to 0.999.
  [[nodiscard]] double share(const char* name) const;
  /// Returns one of `allowed`, by default the first.
  [[nodiscard]] std::string choice(const char* name, const std::vector<std::string>& allowed) const;
  /// Returns 1 to 100 widths.
  [[nodiscard]] std::vector<std::int64_t> sizes(const char* name, std::vector<std::int64_t> fallback) const;
  /// Throws with the place of the option. The option must be present.
  [[noreturn]] void fail(const char* name, const std::string& message) const;

 private:
  const JsonValue* given_;
};

/// Returns the nodes of a built-in model: see `builtin_model_text`. `options` may be null.
[[nodiscard]] ModelNodes builtin_nodes(std::string_view name, const JsonValue* options);
/// Reads the options from a text, which may be empty.
[[nodiscard]] ModelNodes builtin_nodes(std::string_view name, std::string_view options);

}  // namespace fq::detail
