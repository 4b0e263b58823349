#include "fakequant/train/data/subset.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/train/data/detail/order.h"
#include "fakequant/train/data/detail/rows.h"
#include "fakequant/train/data/detail/split_rows.h"

namespace fq {
namespace {

using detail::SplitRows;

// One side of a validation split. The rows are computed when they are read (SplitRows), not listed.
class SplitPart : public Dataset {
 public:
  SplitPart(std::shared_ptr<const Dataset> data, std::shared_ptr<const SplitRows> rows, SplitRows::Part part)
      : data_(std::move(data)), rows_(std::move(rows)), part_(part) {}

  [[nodiscard]] std::int64_t size() const noexcept override { return rows_->count(part_); }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return data_->sample_shape(); }
  [[nodiscard]] std::int64_t classes() const noexcept override { return data_->classes(); }
  [[nodiscard]] const std::vector<std::string>& class_names() const noexcept override {
    return data_->class_names();
  }
  [[nodiscard]] const SampleNotes& sample_notes() const noexcept override { return data_->sample_notes(); }
  [[nodiscard]] bool token_ids() const noexcept override { return data_->token_ids(); }
  [[nodiscard]] std::vector<float> background() const override { return data_->background(); }
  [[nodiscard]] std::vector<float> white() const override { return data_->white(); }
  [[nodiscard]] std::int64_t blocks_at_once() const noexcept override { return data_->blocks_at_once(); }

  [[nodiscard]] Batch read(std::span<const std::int64_t> samples) const override {
    std::vector<std::int64_t> inner;
    for (const auto sample : samples) {
      FQ_CHECK(0 <= sample && sample < size(), "dataset", "sample {} is out of range: there are {}", sample,
               size());
      inner.push_back(rows_->row(part_, sample));
    }
    return data_->read(inner);
  }

  [[nodiscard]] Tensor labels() const override {
    const Tensor all = data_->labels();
    if (!all.defined()) return all;
    Shape shape = all.shape();
    shape[0] = size();
    Tensor out = Tensor::empty(shape, all.dtype());
    // By groups, because a group's bits are computed once and then cached.
    std::int64_t begin = 0;
    for (std::int64_t group = 0; group < rows_->groups(); ++group) {
      const auto rows = rows_->rows(part_, group);
      if (rows.empty()) continue;
      out.slice(begin, begin + std::ssize(rows)).copy_from(detail::select_rows(all, rows));
      begin += std::ssize(rows);
    }
    return out;
  }

  /// Returns a checksum of the data's fingerprint, of the rows of the first group and, if there are more
  /// groups, of the size and seed that determine the rest.
  [[nodiscard]] std::uint32_t fingerprint() const override {
    const auto first = rows_->rows(part_, 0);
    const std::uint32_t crc = crc32c(first.data(), first.size() * sizeof(first[0]), data_->fingerprint());
    if (rows_->groups() == 1) return crc;
    const std::array<std::int64_t, 3> rest{rows_->size(), size(), static_cast<std::int64_t>(rows_->seed())};
    return crc32c(rest.data(), sizeof(rest), crc);
  }

  [[nodiscard]] std::vector<std::int64_t> block_starts() const override {
    std::vector<std::int64_t> starts;
    for (const auto start : data_->block_starts()) {
      const std::int64_t first = rows_->before(part_, start);
      if (first < size() && (starts.empty() || starts.back() < first)) starts.push_back(first);
    }
    return starts;
  }

 private:
  std::shared_ptr<const Dataset> data_;
  std::shared_ptr<const SplitRows> rows_;
  SplitRows::Part part_;
};

}  // namespace

std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> data, std::int64_t count,
                                            std::uint64_t seed, std::int64_t skip) {
  FQ_CHECK(skip >= 0 && skip < data->size(), "calibrate",
           "skip is {}: use 0 or more, and less than the {} samples", skip, data->size());
  if (skip == 0 && count >= data->size()) return data;
  const std::int64_t end = count < data->size() - skip ? skip + count : data->size();
  // Elements [skip, end) of a permutation: a sample without repetition, and without a list of all rows.
  // `skip` continues where another call with the same seed ended.
  const detail::RowPermutation order(data->size(), seed);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = skip; i < end; ++i) rows.push_back(order[i]);
  // Ascending rows read the file forwards, and Subset requires them.
  std::ranges::sort(rows);
  return std::make_shared<Subset>(std::move(data), std::move(rows));
}

HeldOut hold_out(const std::shared_ptr<const Dataset>& data, double fraction, std::uint64_t seed) {
  const auto rows = std::make_shared<const SplitRows>(data->size(), fraction, seed);
  return {std::make_shared<SplitPart>(data, rows, SplitRows::train),
          std::make_shared<SplitPart>(data, rows, SplitRows::held_out)};
}

std::vector<std::int64_t> some_held_out(std::int64_t size, double fraction, std::uint64_t seed,
                                        std::int64_t most) {
  const SplitRows rows(size, fraction, seed);
  // Evenly spaced over the held-out rows.
  const std::int64_t held_rows = rows.count(SplitRows::held_out), count = std::min(held_rows, most);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i)
    out.push_back(rows.row(SplitRows::held_out, i * held_rows / count));
  return out;
}

ValidationSplit split_validation(std::int64_t size, double fraction, std::uint64_t seed) {
  const SplitRows rows(size, fraction, seed);
  ValidationSplit split;
  for (std::int64_t group = 0; group < rows.groups(); ++group)
    for (const auto part : {SplitRows::train, SplitRows::held_out}) {
      auto& list = part == SplitRows::train ? split.train : split.validation;
      const auto more = rows.rows(part, group);
      list.insert(list.end(), more.begin(), more.end());
    }
  return split;
}

}  // namespace fq
