#pragma once

/// Class names and scores of classes as text.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::cli {

/// "cat", or "3" without names.
[[nodiscard]] std::string class_label(const std::vector<std::string>& names, std::int64_t index);
/// "cat, dog, .."; at most 12 of them.
[[nodiscard]] std::string names_text(const std::vector<std::string>& names);
/// "10 classes: cat, dog, .."; without names "10 classes".
[[nodiscard]] std::string classes_text(std::int64_t count, const std::vector<std::string>& names);

struct ClassScore {
  std::int64_t count = 0, correct = 0;
  std::map<std::int64_t, std::int64_t> mistaken;  ///< other class -> how often; -1: logits with a NaN
};

/// Of every class, while batches come in.
class ClassScores {
 public:
  explicit ClassScores(std::int64_t classes) : classes_(static_cast<std::size_t>(classes)) {}

  /// Answers and labels, i64 [N] on the host; labels are within the classes.
  void add(const Tensor& answers, const Tensor& labels);
  [[nodiscard]] const std::vector<ClassScore>& classes() const noexcept { return classes_; }
  /// How often each class was the answer.
  [[nodiscard]] std::vector<std::int64_t> answered() const;

 private:
  std::vector<ClassScore> classes_;
};

/// A line for each class, of more than 20 the 20 worst; those without samples are left out.
[[nodiscard]] std::string class_table(const ClassScores& scores, const std::vector<std::string>& names);
/// [{"class": 0, "name": "cat" or null, "count": 36, "correct": 35, "f1": 0.97, "mistaken": [{"class": 1,
/// "count": 1}]}, ..]; the F1 of a class that neither is there nor was answered is null.
[[nodiscard]] nlohmann::ordered_json class_json(const ClassScores& scores,
                                                const std::vector<std::string>& names);

}  // namespace fq::cli
