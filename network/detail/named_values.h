#pragma once

/// Flag values that consist of a name and named numbers: "focal,gamma=2,alpha=0.25".

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// Splits a text at a character into at least one part.
[[nodiscard]] std::vector<std::string> split_parts(const std::string& text, char between);

/// Reads all of `text` as a number. Returns false for anything else, including NaN and infinity.
[[nodiscard]] bool read_number(std::string_view text, double& value);

class NamedValues {
 public:
  /// Returns the keys that a name accepts.
  using Keys = std::function<std::vector<std::string>(const std::string& name)>;

  /// Throws ArgumentError `[command] --flag ..` for an unknown name, an unknown key or a repeated key. The
  /// message lists the nearest names.
  NamedValues(std::string command, std::string flag, const std::string& text,
              const std::vector<std::string>& names, const Keys& keys);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool has(const std::string& key) const { return values_.contains(key); }
  /// Returns the value of a key; empty if it was not given.
  [[nodiscard]] std::string text(const std::string& key) const;
  /// These functions return `standard` for a missing key. They throw ArgumentError for text that is not a
  /// number of this type.
  [[nodiscard]] double number(const std::string& key, double standard) const;
  [[nodiscard]] std::int64_t whole(const std::string& key, std::int64_t standard) const;
  [[nodiscard]] bool on(const std::string& key, bool standard = false) const;
  /// Returns a list of numbers, "1:2:0.5".
  [[nodiscard]] std::vector<double> numbers(const std::string& key) const;
  /// Returns a number of steps, given as steps or as epochs ("3e").
  [[nodiscard]] std::int64_t steps(const std::string& key, std::int64_t standard,
                                   std::int64_t steps_per_epoch) const;
  [[nodiscard]] std::vector<std::int64_t> step_list(const std::string& key,
                                                    std::int64_t steps_per_epoch) const;

 private:
  [[nodiscard]] double read(const std::string& key, const std::string& text) const;
  [[nodiscard]] std::int64_t read_whole(const std::string& key, const std::string& text) const;
  [[nodiscard]] std::int64_t read_steps(const std::string& key, const std::string& text,
                                        std::int64_t steps_per_epoch) const;

  std::string command_, flag_, name_;
  std::map<std::string, std::string> values_;
};

}  // namespace fq::detail
