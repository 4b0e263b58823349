#pragma once

/// config.json of a network of Hugging Face's transformers.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/model_node.h"

namespace fq::detail {

/// Its values, those that are null taken for missing. Every error is a FileError with file and line.
class TransformerConfig {
 public:
  explicit TransformerConfig(const std::string& path);
  /// Of values that another file has, which errors name.
  TransformerConfig(const nlohmann::ordered_json& values, const std::string& file);

  [[nodiscard]] const std::string& path() const noexcept { return text_->file(); }
  [[nodiscard]] bool has(const std::string& key) const;
  /// A size, from 1 on.
  [[nodiscard]] std::int64_t size(const std::string& key) const;
  [[nodiscard]] std::int64_t size_or(const std::string& key, std::int64_t fallback) const;
  [[nodiscard]] double number_or(const std::string& key, double fallback, double low, double high) const;
  [[nodiscard]] bool flag_or(const std::string& key, bool fallback) const;
  [[nodiscard]] std::string text_or(const std::string& key, const std::string& fallback) const;
  [[nodiscard]] JsonValue at(const std::string& key) const { return JsonValue(*text_).at(key); }
  /// The first of "architectures"; empty where there is none.
  [[nodiscard]] std::string architecture() const;
  /// Returns a node, without a name, of the function of that key, "gelu_new".
  [[nodiscard]] ModelNode activation(const std::string& key, const std::string& fallback) const;
  /// Throws where the key has another value.
  void expect(const std::string& key, bool value) const;
  /// Throws where a token sees the nearest ones alone.
  void check_no_window() const;

 private:
  [[nodiscard]] bool slides() const;

  std::shared_ptr<const JsonText> text_;
};

}  // namespace fq::detail
