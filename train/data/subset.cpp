#include "fakequant/train/data/subset.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/train/data/detail/order.h"
#include "fakequant/train/data/detail/random.h"
#include "fakequant/train/data/detail/rows.h"

namespace fq::detail {
namespace {

/// Divides the rows 0 .. size - 1 into two ascending parts. Each group of 65,536 rows has its own shuffle and
/// holds out the same share, to one row. So a group can be computed independently; the most recent groups are
/// cached (6 MiB at most). Thread-safe.
class SplitRows {
 public:
  enum Part : unsigned char { train = 0, held_out = 1 };

  /// Takes the arguments of `split_validation` and throws its errors.
  SplitRows(std::int64_t size, double fraction, std::uint64_t seed);
  ~SplitRows();
  SplitRows(const SplitRows&) = delete;  // shared by pointer
  SplitRows& operator=(const SplitRows&) = delete;

  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  [[nodiscard]] std::int64_t groups() const noexcept;
  /// Returns the number of rows of a part.
  [[nodiscard]] std::int64_t count(Part part) const noexcept;
  /// Returns row i of a part.
  [[nodiscard]] std::int64_t row(Part part, std::int64_t i) const;
  /// Returns the number of rows of a part below `row`.
  [[nodiscard]] std::int64_t before(Part part, std::int64_t row) const;
  /// Returns the rows of a part in one group.
  [[nodiscard]] std::vector<std::int64_t> rows(Part part, std::int64_t group) const;

 private:
  class Group;

  [[nodiscard]] std::int64_t preceding_rows(Part part, std::int64_t group) const noexcept;
  [[nodiscard]] std::shared_ptr<const Group> group(std::int64_t index) const;

  std::int64_t size_, held_out_;
  std::uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::map<std::int64_t, std::pair<std::int64_t, std::shared_ptr<const Group>>>
      latest_;  // by cache slot
};

// Rows per group, bits per word, and number of cached groups (12 KiB each).
constexpr std::int64_t kGroup = 65536, kWord = 64, kCachedGroups = 512;
constexpr std::int64_t kMostRows = std::int64_t{1} << 40;  // kMostRows^2 / kGroup fits 64 bits
constexpr std::string_view kSplit = "split_validation";

std::int64_t held_out_count(std::int64_t size, double fraction) {
  FQ_CHECK(fraction > 0 && fraction < 1, kSplit, "the fraction is {}: use one between 0 and 1", fraction);
  FQ_CHECK(size >= 2, kSplit, "there are {} samples: at least 2 can be split", size);
  FQ_CHECK(size <= kMostRows, kSplit, "there are {} samples: at most {} can be split", size, kMostRows);
  return std::clamp<std::int64_t>(std::llround(fraction * static_cast<double>(size)), 1, size - 1);
}

/// A group of rows: one bit per row, and the number of held-out rows before each word of bits.
class SplitRows::Group {
 public:
  Group(std::int64_t rows, std::int64_t held_out, std::uint64_t seed, std::int64_t index)
      : bits_(static_cast<std::size_t>((rows + kWord - 1) / kWord), 0), rows_(rows) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    // The constant separates these draws from the other uses of the seed.
    Draws(seed, 0x5911, static_cast<std::uint64_t>(index)).shuffle(order);
    for (std::int64_t i = 0; i < held_out; ++i) {
      const auto row = order[static_cast<std::size_t>(i)];
      bits_[static_cast<std::size_t>(row / kWord)] |= std::uint64_t{1} << (row % kWord);
    }
    before_.push_back(0);
    for (const auto bits : bits_) before_.push_back(before_.back() + std::popcount(bits));
  }

  /// Returns the number of rows of the part below `row` of this group.
  [[nodiscard]] std::int64_t before(Part part, std::int64_t row) const {
    // Rank query: a prefix count per word, then a population count of the bits below `row`.
    const auto word = static_cast<std::size_t>(row / kWord);
    std::int64_t held_rows = before_[word];
    if (row % kWord > 0) held_rows += std::popcount(bits_[word] << (kWord - row % kWord));
    return part == held_out ? held_rows : row - held_rows;
  }

  /// Returns row i of the part: the last row with at most `i` rows of the part below it.
  [[nodiscard]] std::int64_t row(Part part, std::int64_t i) const {
    // Bisection: before(part, low) <= i < before(part, high) holds in each step.
    std::int64_t low = 0, high = rows_;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (before(part, middle) <= i ? low : high) = middle;
    }
    return low;
  }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::int32_t> before_;
  std::int64_t rows_;
};

SplitRows::SplitRows(std::int64_t size, double fraction, std::uint64_t seed)
    : size_(size), held_out_(held_out_count(size, fraction)), seed_(seed) {}
SplitRows::~SplitRows() = default;

std::int64_t SplitRows::groups() const noexcept { return (size_ + kGroup - 1) / kGroup; }

std::int64_t SplitRows::count(Part part) const noexcept {
  return part == held_out ? held_out_ : size_ - held_out_;
}

/// Returns the number of rows of the part before the group. Of its `rows` preceding rows,
/// floor(held_out * rows / size) are held out.
std::int64_t SplitRows::preceding_rows(Part part, std::int64_t group) const noexcept {
  const std::int64_t rows = std::min(group * kGroup, size_);
  // floor(a_group * index / size) without a 128-bit product: the remainder is below size <= 2^40 and index is
  // at most 2^24.
  const auto a_group = static_cast<std::uint64_t>(held_out_ * kGroup),
             size = static_cast<std::uint64_t>(size_);
  const auto index = static_cast<std::uint64_t>(group);
  const auto held_rows =
      group == groups() ? held_out_
                        : static_cast<std::int64_t>(a_group / size * index + a_group % size * index / size);
  return part == held_out ? held_rows : rows - held_rows;
}

std::shared_ptr<const SplitRows::Group> SplitRows::group(std::int64_t index) const {
  const std::lock_guard lock(mutex_);
  // A direct-mapped cache: groups that share an entry replace each other.
  auto& [cached, found] = latest_[index % kCachedGroups];
  if (found == nullptr || cached != index) {
    const std::int64_t held_rows = preceding_rows(held_out, index + 1) - preceding_rows(held_out, index);
    found = std::make_shared<const Group>(std::min(kGroup, size_ - index * kGroup), held_rows, seed_, index);
    cached = index;
  }
  return found;
}

std::int64_t SplitRows::row(Part part, std::int64_t i) const {
  std::int64_t low = 0, high = groups();
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (preceding_rows(part, middle) <= i ? low : high) = middle;
  }
  return low * kGroup + group(low)->row(part, i - preceding_rows(part, low));
}

std::int64_t SplitRows::before(Part part, std::int64_t row) const {
  if (row >= size_) return count(part);
  const std::int64_t index = row / kGroup;
  return preceding_rows(part, index) + group(index)->before(part, row % kGroup);
}

std::vector<std::int64_t> SplitRows::rows(Part part, std::int64_t group) const {
  std::vector<std::int64_t> out;
  for (std::int64_t i = preceding_rows(part, group); i < preceding_rows(part, group + 1); ++i)
    out.push_back(row(part, i));
  return out;
}

}  // namespace
}  // namespace fq::detail

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
