#pragma once

/// Class names and scores of each class as text.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::cli {

/// Returns "cat", or "3" without names.
[[nodiscard]] std::string class_label(const std::vector<std::string>& names, std::int64_t index);
/// Returns "cat, dog, .." with at most 12 names.
[[nodiscard]] std::string names_text(const std::vector<std::string>& names);
/// Returns "10 classes: cat, dog, .."; without names "10 classes".
[[nodiscard]] std::string classes_text(std::int64_t count, const std::vector<std::string>& names);

struct ClassScore {
  std::int64_t count = 0, correct = 0;
  std::map<std::int64_t, std::int64_t> mistaken;  ///< count by predicted class; -1: logits with a NaN
};

/// Scores of every class, accumulated over batches.
class ClassScores {
 public:
  explicit ClassScores(std::int64_t classes) : classes_(static_cast<std::size_t>(classes)) {}

  /// Adds predictions and labels, i64 [N] on the host. Labels are valid class indices.
  void add(const Tensor& predicted, const Tensor& labels);
  [[nodiscard]] const std::vector<ClassScore>& classes() const noexcept { return classes_; }
  /// Returns the number of predictions of each class.
  [[nodiscard]] std::vector<std::int64_t> answered() const;

 private:
  std::vector<ClassScore> classes_;
};

/// Returns a line for each class with samples. Of more than 20 classes, returns the 20 worst.
[[nodiscard]] std::string class_table(const ClassScores& scores, const std::vector<std::string>& names);
/// Returns [{"class": 0, "name": "cat" or null, "count": 36, "correct": 35, "f1": 0.97, "mistaken":
/// [{"class": 1, "count": 1}]}, ..]. The F1 of a class without samples and predictions is null.
[[nodiscard]] nlohmann::ordered_json class_json(const ClassScores& scores,
                                                const std::vector<std::string>& names);

}  // namespace fq::cli
