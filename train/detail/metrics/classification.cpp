#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/detail/metrics/metrics.h"
#include "fakequant/train/detail/prediction_table.h"

namespace fq::detail {
namespace {

/// Number of labels, predictions and correct predictions of a class.
struct Tally {
  std::int64_t labelled = 0, predicted = 0, correct = 0;
};

class Counts : public Metric {
 public:
  void add(const Tensor& outputs, const Tensor& labels) override {
    const PredictionTable table(outputs, labels);
    classes_.resize(std::max(classes_.size(), static_cast<std::size_t>(table.columns())));
    binary_ = !table.one_of_many();
    for (std::int64_t i = 0; i < table.rows(); ++i) binary_ ? add_bits(table, i) : add_class(table, i);
  }

 protected:
  std::vector<Tally> classes_;
  bool binary_ = false;
  std::int64_t total_ = 0, correct_ = 0;

 private:
  void add_class(const PredictionTable& table, std::int64_t row) {
    const std::int64_t label = table.label(row), prediction = table.answer(row);
    if (label < 0) return;
    ++total_;
    correct_ += label == prediction ? 1 : 0;
    ++classes_[static_cast<std::size_t>(label)].labelled;
    // A row with NaN has no prediction. It is wrong for its label, and adds no false positive.
    if (prediction >= 0) ++classes_[static_cast<std::size_t>(prediction)].predicted;
    if (label == prediction) ++classes_[static_cast<std::size_t>(label)].correct;
  }
  void add_bits(const PredictionTable& table, std::int64_t row) {
    for (std::int64_t c = 0; c < table.columns(); ++c) {
      // Logit 0 is probability 1/2.
      const bool truth = table.target(row, c) > 0.5, prediction = table.output(row, c) > 0;
      ++total_;
      correct_ += truth == prediction ? 1 : 0;
      auto& tally = classes_[static_cast<std::size_t>(c)];
      tally.labelled += truth ? 1 : 0;
      tally.predicted += prediction ? 1 : 0;
      tally.correct += truth && prediction ? 1 : 0;
    }
  }
};

class Accuracy : public Counts {
  [[nodiscard]] double value() const override { return ratio(correct_, total_); }
};

/// Mean over classes of a ratio of their tally.
template <class Fraction>
class OfClasses : public Counts {
  [[nodiscard]] double value() const override {
    return defined_mean(classes_.size(), [&](std::size_t c) { return Fraction{}(classes_[c]); });
  }
};
struct F1 {
  double operator()(const Tally& t) const { return ratio(2 * t.correct, t.labelled + t.predicted); }
};
struct Recall {
  double operator()(const Tally& t) const { return ratio(t.correct, t.labelled); }
};
struct Iou {
  double operator()(const Tally& t) const { return ratio(t.correct, t.labelled + t.predicted - t.correct); }
};

/// Mean of -log2 softmax(outputs)[label], per character of the labels.
class BitsPerCharacter : public Metric {
 public:
  explicit BitsPerCharacter(const MetricOptions& options) : characters_(options.characters) {}
  void add(const Tensor& outputs, const Tensor& labels) override {
    const PredictionTable table(outputs, labels);
    FQ_CHECK(table.one_of_many(), "metric", "bpc and perplexity require classes: the labels are {}",
             labels.describe());
    FQ_CHECK(characters_.empty() || std::ssize(characters_) == table.columns(), "metric",
             "characters has {} numbers, there are {} classes", characters_.size(), table.columns());
    for (std::int64_t i = 0; i < table.rows(); ++i) {
      const std::int64_t label = table.label(i);
      if (label < 0) continue;
      // log softmax, relative to the largest output against overflow; ln 2 converts to bits.
      double largest = table.output(i, 0), sum = 0;
      for (std::int64_t c = 1; c < table.columns(); ++c) largest = std::max(largest, table.output(i, c));
      for (std::int64_t c = 0; c < table.columns(); ++c) sum += std::exp(table.output(i, c) - largest);
      bits_ += (std::log(sum) + largest - table.output(i, label)) / std::numbers::ln2;
      total_ += characters_.empty() ? 1 : characters_.at(static_cast<std::size_t>(label));
    }
  }
  [[nodiscard]] double value() const override {
    return total_ == 0 ? kUndefined : bits_ / static_cast<double>(total_);
  }

 private:
  std::vector<std::int64_t> characters_;
  double bits_ = 0;
  std::int64_t total_ = 0;
};

class Perplexity : public BitsPerCharacter {
 public:
  Perplexity() : BitsPerCharacter({}) {}
  [[nodiscard]] double value() const override { return std::exp2(BitsPerCharacter::value()); }
};

class TopK : public Metric {
 public:
  explicit TopK(std::int64_t k) : k_(k) {}
  void add(const Tensor& outputs, const Tensor& labels) override {
    const PredictionTable table(outputs, labels);
    FQ_CHECK(table.one_of_many(), "metric", "top{} requires classes: the labels are {}", k_,
             labels.describe());
    for (std::int64_t i = 0; i < table.rows(); ++i) {
      const std::int64_t label = table.label(i);
      if (label < 0) continue;
      ++total_;
      correct_ += table.rank(i, label) < k_ ? 1 : 0;
    }
  }
  [[nodiscard]] double value() const override { return ratio(correct_, total_); }

 private:
  std::int64_t k_, total_ = 0, correct_ = 0;
};

class Auc : public Metric {
 public:
  void add(const Tensor& outputs, const Tensor& labels) override {
    const PredictionTable table(outputs, labels);
    scores_.resize(std::max(scores_.size(), static_cast<std::size_t>(table.columns())));
    for (std::int64_t i = 0; i < table.rows(); ++i) {
      if (table.one_of_many() && table.label(i) < 0) continue;
      // Softmax first: scores of one class are compared between rows.
      const auto scores = table.scores(i);
      for (std::size_t c = 0; c < scores.size(); ++c)
        scores_[c].push_back({scores[c], table.target(i, static_cast<std::int64_t>(c)) > 0.5});
    }
  }
  [[nodiscard]] double value() const override {
    return defined_mean(scores_.size(), [&](std::size_t c) { return area(scores_[c]); });
  }

 private:
  struct Scored {
    double score;
    bool truth;
  };
  /// Returns the share of pairs of a true and a false sample where the true sample has the higher score.
  /// Ties count half.
  static double area(std::vector<Scored> all) {
    std::ranges::sort(all, {}, &Scored::score);
    double pairs = 0;
    std::int64_t untrue = 0;
    // Mann-Whitney U over runs of equal scores: each true sample of a run wins against all false samples
    // below, and against half of the false samples of the run.
    for (std::size_t begin = 0; begin < all.size();) {
      std::size_t end = begin;
      std::int64_t same[2] = {0, 0};
      for (; end < all.size() && !(all[end].score > all[begin].score); ++end) ++same[all[end].truth ? 1 : 0];
      pairs +=
          static_cast<double>(same[1]) * (static_cast<double>(untrue) + static_cast<double>(same[0]) / 2);
      untrue += same[0];
      begin = end;
    }
    const auto truths = static_cast<std::int64_t>(all.size()) - untrue;
    return truths == 0 || untrue == 0 ? kUndefined
                                      : pairs / (static_cast<double>(truths) * static_cast<double>(untrue));
  }

  std::vector<std::vector<Scored>> scores_;
};

}  // namespace

std::unique_ptr<Metric> make_accuracy() { return std::make_unique<Accuracy>(); }
std::unique_ptr<Metric> make_f1() { return std::make_unique<OfClasses<F1>>(); }
std::unique_ptr<Metric> make_recall() { return std::make_unique<OfClasses<Recall>>(); }
std::unique_ptr<Metric> make_iou() { return std::make_unique<OfClasses<Iou>>(); }

std::unique_ptr<Metric> make_bits_per_character(const MetricOptions& options) {
  return std::make_unique<BitsPerCharacter>(options);
}
std::unique_ptr<Metric> make_perplexity() { return std::make_unique<Perplexity>(); }

std::unique_ptr<Metric> make_top_k(std::int64_t k) { return std::make_unique<TopK>(k); }
std::unique_ptr<Metric> make_auc() { return std::make_unique<Auc>(); }

}  // namespace fq::detail
