#pragma once

/// config.json of a Hugging Face transformers network.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/model_node.h"

namespace fq::detail {

/// Values of a config.json. null counts as missing. Every error is a FileError with file and line.
class TransformerConfig {
 public:
  explicit TransformerConfig(const std::string& path);
  /// Wraps values from another file. Errors name `file`.
  TransformerConfig(const nlohmann::ordered_json& values, const std::string& file);

  [[nodiscard]] const std::string& path() const noexcept { return text_->file(); }
  [[nodiscard]] bool has(const std::string& key) const;
  /// Returns a size, at least 1.
  [[nodiscard]] std::int64_t size(const std::string& key) const;
  [[nodiscard]] std::int64_t size_or(const std::string& key, std::int64_t fallback) const;
  [[nodiscard]] double number_or(const std::string& key, double fallback, double low, double high) const;
  [[nodiscard]] bool flag_or(const std::string& key, bool fallback) const;
  [[nodiscard]] std::string text_or(const std::string& key, const std::string& fallback) const;
  [[nodiscard]] JsonValue at(const std::string& key) const { return JsonValue(*text_).at(key); }
  /// Returns the first of "architectures", or an empty text.
  [[nodiscard]] std::string architecture() const;
  /// Returns an unnamed node for the activation at that key, for example "gelu_new".
  [[nodiscard]] ModelNode activation(const std::string& key, const std::string& fallback) const;
  /// Throws if the key has another value.
  void expect(const std::string& key, bool value) const;
  /// Throws if a token sees only the nearest tokens.
  void check_no_window() const;

 private:
  [[nodiscard]] bool slides() const;

  std::shared_ptr<const JsonText> text_;
};

}  // namespace fq::detail
