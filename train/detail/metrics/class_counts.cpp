#include "fakequant/train/detail/metrics/class_counts.h"

#include <algorithm>
#include <vector>

#include "fakequant/train/detail/answer_table.h"
#include "fakequant/train/detail/metrics/fractions.h"

namespace fq::detail {
namespace {

/// How often each class was there, was answered, and both.
struct Tally {
  std::int64_t there = 0, answered = 0, both = 0;
};

class Counts : public Metric {
 public:
  void add(const Tensor& outputs, const Tensor& labels) override {
    const AnswerTable table(outputs, labels);
    classes_.resize(std::max(classes_.size(), static_cast<std::size_t>(table.columns())));
    binary_ = !table.one_of_many();
    for (std::int64_t i = 0; i < table.rows(); ++i) binary_ ? add_bits(table, i) : add_class(table, i);
  }

 protected:
  std::vector<Tally> classes_;
  bool binary_ = false;
  std::int64_t asked_ = 0, right_ = 0;

 private:
  void add_class(const AnswerTable& table, std::int64_t row) {
    const std::int64_t label = table.label(row), answer = table.answer(row);
    if (label < 0) return;
    ++asked_;
    right_ += label == answer ? 1 : 0;
    ++classes_[static_cast<std::size_t>(label)].there;
    if (answer >= 0) ++classes_[static_cast<std::size_t>(answer)].answered;
    if (label == answer) ++classes_[static_cast<std::size_t>(label)].both;
  }
  void add_bits(const AnswerTable& table, std::int64_t row) {
    for (std::int64_t c = 0; c < table.columns(); ++c) {
      const bool truth = table.target(row, c) > 0.5, answer = table.output(row, c) > 0;
      ++asked_;
      right_ += truth == answer ? 1 : 0;
      auto& tally = classes_[static_cast<std::size_t>(c)];
      tally.there += truth ? 1 : 0;
      tally.answered += answer ? 1 : 0;
      tally.both += truth && answer ? 1 : 0;
    }
  }
};

class Accuracy : public Counts {
  [[nodiscard]] double value() const override { return ratio(right_, asked_); }
};

/// The mean over classes of a fraction of their tally.
template <class Fraction>
class OfClasses : public Counts {
  [[nodiscard]] double value() const override {
    return mean_of(classes_.size(), [&](std::size_t c) { return Fraction{}(classes_[c]); });
  }
};
struct F1 {
  double operator()(const Tally& t) const { return ratio(2 * t.both, t.there + t.answered); }
};
struct Recall {
  double operator()(const Tally& t) const { return ratio(t.both, t.there); }
};
struct Iou {
  double operator()(const Tally& t) const { return ratio(t.both, t.there + t.answered - t.both); }
};

}  // namespace

std::unique_ptr<Metric> make_accuracy() { return std::make_unique<Accuracy>(); }
std::unique_ptr<Metric> make_f1() { return std::make_unique<OfClasses<F1>>(); }
std::unique_ptr<Metric> make_recall() { return std::make_unique<OfClasses<Recall>>(); }
std::unique_ptr<Metric> make_iou() { return std::make_unique<OfClasses<Iou>>(); }

}  // namespace fq::detail
