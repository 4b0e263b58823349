#include "fakequant/train/data/dataset.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/train/data/detail/rows.h"

namespace fq {
namespace {

void check_rows(std::span<const std::int64_t> rows, std::int64_t size) {
  for (const auto row : rows)
    FQ_CHECK(0 <= row && row < size, "dataset", "sample {} is out of range: there are {}", row, size);
}

// A fingerprint reads data of up to kReadWhole bytes completely, and kSampled samples of larger data.
constexpr std::int64_t kReadWhole = std::int64_t{64} << 20, kSampled = 64;

std::uint32_t checksum(const Tensor& tensor, std::uint32_t previous) {
  return tensor.defined() ? crc32c(tensor.raw(), static_cast<std::size_t>(tensor.nbytes()), previous)
                          : previous;
}

std::uint32_t checksum(std::span<const std::int64_t> numbers, std::uint32_t previous) {
  return crc32c(numbers.data(), numbers.size_bytes(), previous);
}

std::uint32_t size_checksum(const Dataset& data) {
  const std::vector<std::int64_t> sizes{data.size(), data.classes(), data.token_ids() ? 1 : 0};
  return checksum(data.sample_shape(), checksum(sizes, 0));
}

/// Returns all samples of small data, or evenly spaced samples from the first to the last.
std::vector<std::int64_t> fingerprint_rows(const Dataset& data) {
  const auto bytes = byte_size(data.token_ids() ? DType::i64 : DType::f32, numel(data.sample_shape()));
  const bool all = data.size() <= kSampled || data.size() <= kReadWhole / std::max<std::int64_t>(bytes, 1);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(all ? data.size() : kSampled));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    rows[i] = all ? at : (data.size() - 1) / (kSampled - 1) * at;
  }
  // The rounded step may end before the last sample.
  if (!all) rows.back() = data.size() - 1;
  return rows;
}

}  // namespace

const std::vector<std::string>& Dataset::class_names() const noexcept {
  static const std::vector<std::string> none;
  return none;
}

const SampleNotes& Dataset::sample_notes() const noexcept {
  static const SampleNotes nothing;
  return nothing;
}

std::uint32_t Dataset::fingerprint() const {
  std::uint32_t crc = checksum(labels(), size_checksum(*this));
  const auto rows = fingerprint_rows(*this);
  // Parts of kSampled samples bound the memory. CRC-32C continues over the parts.
  for (std::size_t begin = 0; begin < rows.size(); begin += kSampled) {
    const Batch part =
        read(std::span(rows).subspan(begin, std::min<std::size_t>(kSampled, rows.size() - begin)));
    crc = checksum(part.y, checksum(part.x, crc));
  }
  return crc;
}

std::vector<float> Dataset::background() const {
  return std::vector<float>(static_cast<std::size_t>(sample_shape().empty() ? 1 : sample_shape()[0]), 0.0f);
}

std::vector<float> Dataset::white() const { return std::vector<float>(background().size(), 1.0f); }

TensorDataset::TensorDataset(Tensor x, Tensor y) : x_(std::move(x)), y_(std::move(y)) {
  FQ_CHECK(x_.defined() && x_.rank() >= 1 && x_.dim(0) > 0, "tensor_dataset",
           "x is {}: use [N, ..] with N > 0", x_.describe());
  FQ_CHECK(x_.dtype() == DType::f32 || x_.dtype() == DType::i64, "tensor_dataset",
           "x is {}: use f32, or i64 for token ids", x_.describe());
  x_ = x_.to(Layout::row_major);
  sample_shape_.assign(x_.shape().begin() + 1, x_.shape().end());
  if (!y_.defined()) return;
  FQ_CHECK((y_.dtype() == DType::i64 || y_.dtype() == DType::f32) && y_.rank() >= 1 && y_.dim(0) == size(),
           "tensor_dataset", "y is {}: use i64 [{}], or f32 or i64 [{}, ..] for a loss of your own",
           y_.describe(), size(), size());
  y_ = y_.to(Layout::row_major);
  // Only i64 [N] are class labels; other labels are for a user's loss and are not checked.
  if (y_.dtype() != DType::i64 || y_.rank() != 1) return;
  const auto [low, high] = std::minmax_element(y_.data<std::int64_t>(), y_.data<std::int64_t>() + size());
  FQ_CHECK(*low >= 0, "tensor_dataset", "y holds the label {}: labels start at 0", *low);
  classes_ = *high + 1;
}

Batch TensorDataset::read(std::span<const std::int64_t> rows) const {
  check_rows(rows, size());
  return {detail::select_rows(x_, rows), y_.defined() ? detail::select_rows(y_, rows) : Tensor()};
}

std::uint32_t TensorDataset::fingerprint() const { return checksum(y_, checksum(x_, size_checksum(*this))); }

Subset::Subset(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> rows)
    : data_(std::move(data)), rows_(std::move(rows)) {
  FQ_CHECK(!rows_.empty(), "subset", "it has no samples: choose at least one");
  // less_equal makes the order strict: a repeated row fails, too.
  FQ_CHECK(std::ranges::is_sorted(rows_, std::less_equal<>()), "subset",
           "the rows are not ascending: sort them");
  check_rows(rows_, data_->size());
}

Batch Subset::read(std::span<const std::int64_t> rows) const {
  check_rows(rows, size());
  std::vector<std::int64_t> inner;
  for (const auto row : rows) inner.push_back(rows_[static_cast<std::size_t>(row)]);
  return data_->read(inner);
}

Tensor Subset::labels() const {
  const Tensor all = data_->labels();
  return all.defined() ? detail::select_rows(all, rows_) : all;
}

std::uint32_t Subset::fingerprint() const { return checksum(rows_, data_->fingerprint()); }

std::vector<std::int64_t> Subset::block_starts() const {
  std::vector<std::int64_t> starts;
  for (const auto start : data_->block_starts()) {
    const std::int64_t first = std::ranges::lower_bound(rows_, start) - rows_.begin();
    // A block without a row of the subset begins where the next one does.
    if (first < size() && (starts.empty() || starts.back() < first)) starts.push_back(first);
  }
  return starts;
}

}  // namespace fq
