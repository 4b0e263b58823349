#include "fakequant/core/backend/cuda/codes/codes.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"

namespace fq::cuda {
namespace {

struct RangeShares {
  using Sum = PairSum;
  const float *x, *dy, *scale, *amax;
  const void* codes;
  CodeFormat format;
  bool lsq;

  FQ_HD Sum zero() const { return {}; }
  FQ_HD void add(Sum& sum, std::int64_t i, std::int64_t range) const {
    const auto row = grid_row(format.grid, scale[range], amax[range]);
    const float share = lsq ? fq::detail::lsq_share(x[i], load_code(codes, format, i), row)
                            : fq::detail::clip_share(x[i], row);
    // PairSum keeps the rounding errors: a sum has about 48 bits.
    sum.add_product(dy[i], share);
  }
  FQ_HD void join(Sum& sum, const Sum& other) const { sum.join(other); }
};

struct PutGradient {
  double divisor;
  float factor;
  float* out;
  FQ_HD void operator()(std::int64_t range, const PairSum& sum) const {
    out[range] = static_cast<float>(sum.value() / divisor) * factor;
  }
};

/// Computes one block per thread.
struct BlockShares {
  RangeShares shares;
  PutGradient put;
  fq::detail::BlockMap blocks;
  FQ_HD void operator()(std::int64_t block) const {
    PairSum sum{};
    for (std::int64_t k = 0; k < blocks.length(); ++k)
      if (const std::int64_t i = blocks.element(block, k); i >= 0) shares.add(sum, i, block);
    put(block, sum);
  }
};

}  // namespace

void amax_gradient(const fq::detail::RangedValues& values, const QuantizedTensor& codes, const Tensor& dy,
                   bool lsq, double divisor, float factor, Tensor& out) {
  const Tensor x = fq::detail::to_floats(values, codes.layout());
  const Grid& grid = codes.grid;
  const int axis = grid.granularity.single_axis(x.rank());
  const RangeShares shares{device_data<float>(x),
                           device_data<float>(dy),
                           device_data<float>(grid.scale),
                           device_data<float>(grid.amax),
                           device_data<void>(codes.codes),
                           CodeFormat::of(grid.format),
                           lsq};
  const PutGradient put{divisor, factor, mutable_device_data<float>(out)};
  // Blocks are short, so one thread adds each.
  if (!grid.granularity.is_per_tensor() && axis < 0 && x.numel() > 0)
    return launch_each(
        x.device(), out.numel(),
        BlockShares{shares, put,
                    fq::detail::BlockMap::of(x.shape(), grid.granularity.block_shape(x.shape()))});
  const AxisView view =
      axis < 0 ? AxisView{1, 1, x.numel()} : fq::detail::memory_view(x.shape(), x.layout(), axis);
  reduce_channels(x.device(), {view.size, std::max<std::int64_t>(view.inner, 1), x.numel()}, shares, put);
}

// The caller needs the rows on the host, and reading them back would wait for the device.
std::optional<std::vector<std::int64_t>> rows_at_ends(const QuantizedTensor&) { return std::nullopt; }

}  // namespace fq::cuda
