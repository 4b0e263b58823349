#include "fakequant/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/train/ctc.h"
#include "fakequant/train/detail/answer_table.h"

namespace fq {
namespace {

using detail::AnswerTable;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// The mean of f(i) over those that are defined.
template <class F>
double mean_of(std::size_t count, F&& f) {
  double sum = 0;
  std::int64_t defined = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = f(i);
    if (std::isnan(value)) continue;
    sum += value;
    ++defined;
  }
  return defined == 0 ? kNone : sum / static_cast<double>(defined);
}

double ratio(std::int64_t a, std::int64_t b) {
  return b == 0 ? kNone : static_cast<double>(a) / static_cast<double>(b);
}

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

class TopK : public Metric {
 public:
  explicit TopK(std::int64_t k) : k_(k) {}
  void add(const Tensor& outputs, const Tensor& labels) override {
    const AnswerTable table(outputs, labels);
    FQ_CHECK(table.one_of_many(), "metric", "top{} is of classes: the labels are {}", k_, labels.describe());
    for (std::int64_t i = 0; i < table.rows(); ++i) {
      const std::int64_t label = table.label(i);
      if (label < 0) continue;
      ++asked_;
      right_ += table.rank(i, label) < k_ ? 1 : 0;
    }
  }
  [[nodiscard]] double value() const override { return ratio(right_, asked_); }

 private:
  std::int64_t k_, asked_ = 0, right_ = 0;
};

/// -log2 softmax(outputs)[label] over the characters of the labels.
class BitsPerCharacter : public Metric {
 public:
  explicit BitsPerCharacter(const MetricOptions& options = {}) : characters_(options.characters) {}
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
    return asked_ == 0 ? kNone : bits_ / static_cast<double>(asked_);
  }

 private:
  std::vector<std::int64_t> characters_;
  double bits_ = 0;
  std::int64_t asked_ = 0;
};

class Perplexity : public BitsPerCharacter {
  [[nodiscard]] double value() const override { return std::exp2(BitsPerCharacter::value()); }
};

class Auc : public Metric {
 public:
  void add(const Tensor& outputs, const Tensor& labels) override {
    const AnswerTable table(outputs, labels);
    scores_.resize(std::max(scores_.size(), static_cast<std::size_t>(table.columns())));
    for (std::int64_t i = 0; i < table.rows(); ++i) {
      if (table.one_of_many() && table.label(i) < 0) continue;
      const auto scores = table.scores(i);
      for (std::size_t c = 0; c < scores.size(); ++c)
        scores_[c].push_back({scores[c], table.target(i, static_cast<std::int64_t>(c)) > 0.5});
    }
  }
  [[nodiscard]] double value() const override {
    return mean_of(scores_.size(), [&](std::size_t c) { return area(scores_[c]); });
  }

 private:
  struct Scored {
    double score;
    bool truth;
  };
  /// The share of pairs of a true and an untrue one in which the true one is scored higher.
  static double area(std::vector<Scored> all) {
    std::ranges::sort(all, {}, &Scored::score);
    double pairs = 0;
    std::int64_t untrue = 0;
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
    return truths == 0 || untrue == 0 ? kNone
                                      : pairs / (static_cast<double>(truths) * static_cast<double>(untrue));
  }

  std::vector<std::vector<Scored>> scores_;
};

/// Sums over the distances of numbers.
class Distances : public Metric {
 public:
  void add(const Tensor& outputs, const Tensor& labels) override {
    const AnswerTable table(outputs, labels);
    FQ_CHECK(!table.one_of_many(), "metric",
             "the outputs are {}, the labels {}: those of numbers have one "
             "shape",
             outputs.describe(), labels.describe());
    columns_.resize(std::max(columns_.size(), static_cast<std::size_t>(table.columns())));
    for (std::int64_t i = 0; i < table.rows(); ++i)
      for (std::int64_t c = 0; c < table.columns(); ++c) add(c, table.output(i, c), table.target(i, c));
  }

 protected:
  struct Column {
    std::int64_t count = 0;
    double first = 0, sum = 0, squares = 0;  ///< of targets minus the first one
    double absolute = 0, squared = 0;        ///< of distances

    [[nodiscard]] double variation() const { return squares - sum * sum / static_cast<double>(count); }
  };
  [[nodiscard]] double total(double Column::*of) const {
    double sum = 0;
    std::int64_t count = 0;
    for (const auto& column : columns_) {
      sum += column.*of;
      count += column.count;
    }
    return count == 0 ? kNone : sum / static_cast<double>(count);
  }
  std::vector<Column> columns_;

 private:
  void add(std::int64_t c, double output, double target) {
    Column& column = columns_[static_cast<std::size_t>(c)];
    if (column.count++ == 0) column.first = target;
    const double moved = target - column.first, distance = output - target;
    column.sum += moved;
    column.squares += moved * moved;
    column.absolute += std::abs(distance);
    column.squared += distance * distance;
  }
};

class Mae : public Distances {
  [[nodiscard]] double value() const override { return total(&Column::absolute); }
};
class Rmse : public Distances {
  [[nodiscard]] double value() const override { return std::sqrt(total(&Column::squared)); }
};
class R2 : public Distances {
  [[nodiscard]] double value() const override {
    return mean_of(columns_.size(), [&](std::size_t c) {
      const double variation = columns_[c].variation();
      return variation > 0 ? 1 - columns_[c].squared / variation : kNone;
    });
  }
};

/// How far sequences that were read are from what they should be.
class Sequences : public Metric {
 public:
  explicit Sequences(std::int64_t blank) : blank_(blank) {}
  void add(const Tensor& outputs, const Tensor& labels) override {
    FQ_CHECK(outputs.rank() == 3 && labels.defined() && !is_floating(labels.dtype()) && labels.rank() <= 2 &&
                 labels.dim(0) == outputs.dim(0),
             "metric", "the outputs are {}, the labels {}: sequences have [N, C, L] and integers [N, S]",
             outputs.describe(), labels.describe());
    const auto truth = rows_of(labels, outputs.dim(1)),
               read = rows_of(ctc_decode(outputs, blank_), outputs.dim(1));
    for (std::size_t n = 0; n < truth.size(); ++n) {
      const std::int64_t wrong = edit_distance(truth[n], read[n]);
      wrong_ += wrong;
      exact_ += wrong == 0 ? 1 : 0;
      labels_ += static_cast<std::int64_t>(truth[n].size());
    }
    sequences_ += static_cast<std::int64_t>(truth.size());
  }

 protected:
  std::int64_t blank_, wrong_ = 0, labels_ = 0, exact_ = 0, sequences_ = 0;

 private:
  [[nodiscard]] std::vector<std::vector<std::int64_t>> rows_of(const Tensor& labels,
                                                               std::int64_t classes) const {
    const auto all = labels.to(Device::cpu()).to(DType::i64).to_vector<std::int64_t>();
    std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(labels.dim(0)));
    const std::size_t width = all.size() / std::max<std::size_t>(1, rows.size());
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] >= 0 && all[i] < classes && all[i] != blank_) rows[i / width].push_back(all[i]);
    return rows;
  }
};
class LabelErrorRate : public Sequences {
  using Sequences::Sequences;
  [[nodiscard]] double value() const override { return ratio(wrong_, labels_); }
};
class Exact : public Sequences {
  using Sequences::Sequences;
  [[nodiscard]] double value() const override { return ratio(exact_, sequences_); }
};

struct Known {
  std::string name;
  bool higher;
  std::unique_ptr<Metric> (*make)();
};

template <class T>
std::unique_ptr<Metric> made() {
  return std::make_unique<T>();
}

const std::vector<Known>& known_metrics() {
  static const std::vector<Known> all{{"accuracy", true, &made<Accuracy>},
                                      {"f1", true, &made<OfClasses<F1>>},
                                      {"recall", true, &made<OfClasses<Recall>>},
                                      {"iou", true, &made<OfClasses<Iou>>},
                                      {"auc", true, &made<Auc>},
                                      {"bpc", false, &made<BitsPerCharacter>},
                                      {"perplexity", false, &made<Perplexity>},
                                      {"mae", false, &made<Mae>},
                                      {"rmse", false, &made<Rmse>},
                                      {"r2", true, &made<R2>}};
  return all;
}

/// 5 of "top5" after "top"; -1 for other names.
std::int64_t number_of(const std::string& name, const std::string& word) {
  if (!name.starts_with(word) || name.size() == word.size() || name.size() > word.size() + 6) return -1;
  const std::string digits = name.substr(word.size());
  return std::ranges::all_of(digits, [](char c) { return '0' <= c && c <= '9'; }) ? std::stoll(digits) : -1;
}

}  // namespace

std::unique_ptr<Metric> make_metric(const std::string& name, const MetricOptions& options) {
  if (name == "bpc") return std::make_unique<BitsPerCharacter>(options);
  if (const auto k = number_of(name, "top"); k > 0) return std::make_unique<TopK>(k);
  if (const auto blank = name == "ler" ? 0 : number_of(name, "ler"); blank >= 0)
    return std::make_unique<LabelErrorRate>(blank);
  if (const auto blank = name == "exact" ? 0 : number_of(name, "exact"); blank >= 0)
    return std::make_unique<Exact>(blank);
  const auto found = std::ranges::find(known_metrics(), name, &Known::name);
  if (found != known_metrics().end()) return found->make();
  std::vector<std::string> names{"top5", "ler", "exact"};
  for (const auto& entry : known_metrics()) names.push_back(entry.name);
  throw ArgumentError(fmt::format("[metric] there is no metric '{}'{}: use {}", name,
                                  detail::did_you_mean(name, names), detail::alternatives(names)));
}

bool higher_is_better(const std::string& name) {
  const auto found = std::ranges::find(known_metrics(), name, &Known::name);
  return found == known_metrics().end() ? !name.starts_with("ler") : found->higher;
}

}  // namespace fq
