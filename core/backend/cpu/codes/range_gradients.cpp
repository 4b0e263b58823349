#include <algorithm>
#include <utility>

#include "fakequant/core/backend/cpu/codes/gradient_kernels.h"
#include "fakequant/core/backend/cpu/codes/grid.h"
#include "fakequant/core/backend/cpu/codes/stretch_values.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"

namespace fq::cpu {
namespace {

using detail::BlockMap;
using detail::GridRow;

/// Elements whose shares one thread adds. The order of sums depends on this size, not on the threads.
constexpr std::int64_t kGradientChunk = 8192;

/// Contribution of a chunk to a range.
using Part = std::pair<std::int64_t, double>;

/// Returns whether clip shares can be found by searching for codes at an end of the range.
// With clipping, only values that reach an end of the range contribute to the gradient of amax. Their codes
// are at that end, and 8-bit codes take a quarter of the memory of values.
bool has_ends(const QuantizedTensor& codes) {
  const DType dtype = codes.codes.dtype();
  return codes.grid.format.is_integer() && (dtype == DType::i8 || dtype == DType::u8);
}

/// The quantized values: the original floats, or values computed from sums on request.
class Values {
 public:
  Values(const detail::RangedValues& x, bool some, Layout layout) {
    const auto* sums = std::get_if<Accumulator>(&x);
    // With few elements to read, computing them from the sums is cheaper than a tensor of all values.
    if (some && sums != nullptr && StretchValues::can_read(*sums))
      stretches_.emplace(*sums);
    else
      floats_ = detail::to_floats(x, layout);
    if (floats_.defined()) data_ = floats_.data<float>(layout);
  }
  /// Returns `count` elements, stored in `buffer` or in the original memory.
  [[nodiscard]] const float* at(std::int64_t begin, std::int64_t count, float* buffer) const {
    if (data_ != nullptr) return data_ + begin;
    (*stretches_)(begin, count, buffer);
    return buffer;
  }
  [[nodiscard]] const float* all() const { return data_; }

 private:
  Tensor floats_;
  const float* data_ = nullptr;
  std::optional<StretchValues> stretches_;
};

/// Elements read beginning with a group that has a code at an end. Such codes often occur together.
constexpr std::int64_t kStretch = 8 * end_group;

/// Returns clip_sum of the elements [begin, end). Reads only elements near codes at the ends of the range.
template <class Code>
double sum_at_ends(const Values& x, const Code* codes, const float* dy, std::int64_t begin, std::int64_t end,
                   const GridRow& row) {
  double lanes[share_lanes] = {}, sum = 0;
  const auto upper = static_cast<Code>(row.upper);
  float buffer[kStretch];
  for (std::int64_t i = begin;; i += kStretch) {
    // Elements without a code at an end add exactly 0, so skipping them does not change the bits. Both steps
    // are multiples of share_lanes, which keeps each element in its lane.
    i += find_end(codes + i, end - i, upper);
    const std::int64_t count = std::min(kStretch, end - i);
    if (count <= 0) break;
    add_clip_shares(x.at(i, count, buffer), dy + i, count, row, lanes);
    if (i + count == end) break;
  }
  for (const double lane : lanes) sum += lane;
  return sum;
}

/// Contributions of the elements [begin, end) of one range to its gradient.
struct Shares {
  const Values& x;
  const Tensor& codes;
  const float* q;  ///< values of the codes; null for clip
  const float* dy;
  bool at_ends;

  [[nodiscard]] double sum(std::int64_t begin, std::int64_t end, const GridRow& row) const {
    const std::int64_t count = end - begin;
    if (q != nullptr) return lsq_sum(x.all() + begin, q + begin, dy + begin, count, row);
    if (!at_ends) return clip_sum(x.all() + begin, dy + begin, count, row);
    if (codes.dtype() == DType::i8)
      return sum_at_ends(x, static_cast<const std::int8_t*>(codes.raw()), dy, begin, end, row);
    return sum_at_ends(x, static_cast<const std::uint8_t*>(codes.raw()), dy, begin, end, row);
  }
};

std::vector<double> sums(const detail::RangedValues& x, const QuantizedTensor& codes, const Tensor& dy,
                         bool lsq) {
  const auto rows = grid_rows(codes.grid);
  std::vector<double> out(rows.size());
  const std::int64_t count = codes.codes.numel(), chunks = (count + kGradientChunk - 1) / kGradientChunk;
  if (count == 0) return out;
  const Layout layout = codes.layout();
  const bool at_ends = !lsq && has_ends(codes);
  const Values values(x, at_ends, layout);
  const Tensor q = lsq ? code_values(codes) : Tensor();
  const Shares shares{values, codes.codes, lsq ? q.data<float>(layout) : nullptr, dy.data<float>(layout),
                      at_ends};
  // A chunk may cut a range. The parts of a range are added in the order of chunks, for any number of
  // threads.
  const auto map = BlockMap::of(codes.shape(), codes.grid.granularity.block_shape(codes.shape()), layout);
  std::vector<std::vector<Part>> parts(static_cast<std::size_t>(chunks));
#pragma omp parallel for schedule(static) if (chunks > 2)
  for (std::int64_t c = 0; c < chunks; ++c) {
    auto& own = parts[static_cast<std::size_t>(c)];
    const auto add = [&](std::int64_t begin, std::int64_t end, std::int64_t j) {
      own.emplace_back(j, shares.sum(begin, end, rows[static_cast<std::size_t>(j)]));
    };
    map.visit_runs(c * kGradientChunk, std::min(count, (c + 1) * kGradientChunk),
                   [&](std::int64_t begin, std::int64_t end, std::int64_t j, std::int64_t step) {
                     // step 0: one range for the run; step 1: one range per element.
                     if (step == 0) return add(begin, end, j);
                     for (std::int64_t i = begin; i < end; ++i) add(i, i + 1, j + i - begin);
                   });
  }
  for (const auto& own : parts)
    for (const auto& [j, sum] : own) out[static_cast<std::size_t>(j)] += sum;
  return out;
}

}  // namespace

void amax_gradient(const detail::RangedValues& x, const QuantizedTensor& codes, const Tensor& dy, bool lsq,
                   double divisor, float factor, Tensor& out) {
  const auto total = sums(x, codes, dy, lsq);
  auto* values = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    values[i] = static_cast<float>(total[static_cast<std::size_t>(i)] / divisor) * factor;
}

namespace {

template <class Code>
std::vector<std::int64_t> find_rows(const Code* codes, std::int64_t rows, std::int64_t length, Code upper) {
  std::vector<char> found(static_cast<std::size_t>(rows));
#pragma omp parallel for schedule(static) if (rows * length > 16 * kGradientChunk)
  for (std::int64_t r = 0; r < rows; ++r)
    found[static_cast<std::size_t>(r)] = find_end(codes + r * length, length, upper) < length ? 1 : 0;
  std::vector<std::int64_t> out;
  for (std::int64_t r = 0; r < rows; ++r)
    if (found[static_cast<std::size_t>(r)] != 0) out.push_back(r);
  return out;
}

}  // namespace

// Lets the caller multiply only those rows of a product whose range gradient is not 0.
std::optional<std::vector<std::int64_t>> rows_at_ends(const QuantizedTensor& codes) {
  if (codes.codes.rank() < 2 || !has_ends(codes) || codes.grid.amax.numel() != 1) return std::nullopt;
  const std::int64_t rows = codes.codes.dim(0), length = rows == 0 ? 0 : codes.codes.numel() / rows;
  const float upper = grid_rows(codes.grid)[0].upper;
  const void* data = codes.codes.raw();
  if (codes.codes.dtype() == DType::i8)
    return find_rows(static_cast<const std::int8_t*>(data), rows, length, static_cast<std::int8_t>(upper));
  return find_rows(static_cast<const std::uint8_t*>(data), rows, length, static_cast<std::uint8_t>(upper));
}

}  // namespace fq::cpu
