#pragma once

/// How often each class is found, and what it is taken for.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::cli {

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
