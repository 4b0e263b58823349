#include "fakequant/train/detail/metrics/likelihood.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/detail/answer_table.h"
#include "fakequant/train/detail/metrics/fractions.h"

namespace fq::detail {
namespace {

/// -log2 softmax(outputs)[label] over the characters of the labels.
class BitsPerCharacter : public Metric {
 public:
  explicit BitsPerCharacter(const MetricOptions& options) : characters_(options.characters) {}
  void add(const Tensor& outputs, const Tensor& labels) override {
    const AnswerTable table(outputs, labels);
    FQ_CHECK(table.one_of_many(), "metric", "bpc and perplexity are of classes: the labels are {}",
             labels.describe());
    FQ_CHECK(characters_.empty() || std::ssize(characters_) == table.columns(), "metric",
             "characters are given of {} classes, there are {}", characters_.size(), table.columns());
    for (std::int64_t i = 0; i < table.rows(); ++i) {
      const std::int64_t label = table.label(i);
      if (label < 0) continue;
      double largest = table.output(i, 0), sum = 0;
      for (std::int64_t c = 1; c < table.columns(); ++c) largest = std::max(largest, table.output(i, c));
      for (std::int64_t c = 0; c < table.columns(); ++c) sum += std::exp(table.output(i, c) - largest);
      bits_ += (std::log(sum) + largest - table.output(i, label)) / std::numbers::ln2;
      asked_ += characters_.empty() ? 1 : characters_.at(static_cast<std::size_t>(label));
    }
  }
  [[nodiscard]] double value() const override {
    return asked_ == 0 ? kUndefined : bits_ / static_cast<double>(asked_);
  }

 private:
  std::vector<std::int64_t> characters_;
  double bits_ = 0;
  std::int64_t asked_ = 0;
};

class Perplexity : public BitsPerCharacter {
 public:
  Perplexity() : BitsPerCharacter({}) {}
  [[nodiscard]] double value() const override { return std::exp2(BitsPerCharacter::value()); }
};

}  // namespace

std::unique_ptr<Metric> make_bits_per_character(const MetricOptions& options) {
  return std::make_unique<BitsPerCharacter>(options);
}
std::unique_ptr<Metric> make_perplexity() { return std::make_unique<Perplexity>(); }

}  // namespace fq::detail
