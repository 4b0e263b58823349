#include <algorithm>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/detail/metrics/metrics.h"
#include "fakequant/train/losses.h"

namespace fq::detail {
namespace {

/// Edit distances between decoded and true sequences.
class Sequences : public Metric {
 public:
  explicit Sequences(std::int64_t blank) : blank_(blank) {}
  void add(const Tensor& outputs, const Tensor& labels) override {
    FQ_CHECK(outputs.rank() == 3 && labels.defined() && !is_floating(labels.dtype()) && labels.rank() <= 2 &&
                 labels.dim(0) == outputs.dim(0),
             "metric", "the outputs are {}, the labels {}: sequences have [N, C, L] and integers [N, S]",
             outputs.describe(), labels.describe());
    // Both sequences lose blanks and padding in the same way.
    const auto truth = label_sequences(labels, outputs.dim(1)),
               read = label_sequences(ctc_decode(outputs, blank_), outputs.dim(1));
    for (std::size_t n = 0; n < truth.size(); ++n) {
      const std::int64_t wrong = edit_distance(truth[n], read[n]);
      wrong_ += wrong;
      exact_ += wrong == 0 ? 1 : 0;
      // The error rate is per label of all sequences, not the mean of the sequences' rates.
      labels_ += static_cast<std::int64_t>(truth[n].size());
    }
    sequences_ += static_cast<std::int64_t>(truth.size());
  }

 protected:
  std::int64_t blank_, wrong_ = 0, labels_ = 0, exact_ = 0, sequences_ = 0;

 private:
  [[nodiscard]] std::vector<std::vector<std::int64_t>> label_sequences(const Tensor& labels,
                                                                       std::int64_t classes) const {
    const auto all = labels.to(Device::cpu()).to(DType::i64).to_vector<std::int64_t>();
    std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(labels.dim(0)));
    // labels: [N, S], or [N] with one label each
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

}  // namespace

std::unique_ptr<Metric> make_label_error_rate(std::int64_t blank) {
  return std::make_unique<LabelErrorRate>(blank);
}
std::unique_ptr<Metric> make_exact_sequences(std::int64_t blank) { return std::make_unique<Exact>(blank); }

}  // namespace fq::detail
