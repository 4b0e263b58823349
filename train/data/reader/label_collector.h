#pragma once

/// Texts in the place of classes.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fakequant/train/data/reader/sample_source.h"

namespace fq::detail {

/// Takes a text a sample, and keeps each different one once.
class LabelCollector {
 public:
  /// `names` are the classes in their order; empty: those that there are.
  explicit LabelCollector(std::vector<std::string> names = {});

  /// False, and nothing is taken, for a text that is none of the names; a number that is no name counts from
  /// 0.
  [[nodiscard]] bool add(const std::string& text);
  [[nodiscard]] std::int64_t size() const noexcept { return std::int64_t(values_.size()); }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  /// The texts there are, without `names`.
  [[nodiscard]] std::vector<std::string> distinct() const;
  /// Classes by the order of the names; without, the numbers 0 .. K - 1 where the texts are just these, and
  /// else sorted, numbers by their value.
  [[nodiscard]] Labels take() const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, std::int64_t, std::less<>> ids_;
  std::vector<std::int32_t> values_;
};

}  // namespace fq::detail
