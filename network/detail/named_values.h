#pragma once

/// Values of flags that are a name with numbers of its own: "focal,gamma=2,alpha=0.25".

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// The parts of a text between that character, at least one.
[[nodiscard]] std::vector<std::string> parts_of(const std::string& text, char between);

/// Reads all of `text` as a number; false for anything else, NaN and infinity included.
[[nodiscard]] bool read_number(std::string_view text, double& value);

class NamedValues {
 public:
  /// The keys that a name takes.
  using Keys = std::function<std::vector<std::string>(const std::string& name)>;

  /// Throws ArgumentError `[command] --flag ..` for another name than `names` and another key than its own,
  /// naming the nearest, and for one that is given twice.
  NamedValues(std::string command, std::string flag, const std::string& text,
              const std::vector<std::string>& names, const Keys& keys);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool has(const std::string& key) const { return values_.contains(key); }
  /// Empty where it was not given.
  [[nodiscard]] std::string text(const std::string& key) const;
  /// Each throws ArgumentError for what is no such number.
  [[nodiscard]] double number(const std::string& key, double standard) const;
  [[nodiscard]] std::int64_t whole(const std::string& key, std::int64_t standard) const;
  [[nodiscard]] bool on(const std::string& key, bool standard = false) const;
  /// "1:2:0.5".
  [[nodiscard]] std::vector<double> numbers(const std::string& key) const;
  /// Steps: a number, or one of epochs as "3e".
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
