#include "fakequant/train/detail/metrics/rankings.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/detail/answer_table.h"
#include "fakequant/train/detail/metrics/fractions.h"

namespace fq::detail {
namespace {

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
    return truths == 0 || untrue == 0 ? kUndefined
                                      : pairs / (static_cast<double>(truths) * static_cast<double>(untrue));
  }

  std::vector<std::vector<Scored>> scores_;
};

}  // namespace

std::unique_ptr<Metric> make_top_k(std::int64_t k) { return std::make_unique<TopK>(k); }
std::unique_ptr<Metric> make_auc() { return std::make_unique<Auc>(); }

}  // namespace fq::detail
