#include "fakequant/core/backend/cuda/codes/codes.cuh"
#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/column_groups.h"
#include "fakequant/core/backend/cuda/loops/narrow_groups.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/detail/quantizer_checks.h"

namespace fq::cuda {
namespace {

struct Coded {
  std::uint8_t code;
  bool within;
};

/// Quantizes columns. A thread prepares the numbers of eight columns once for several lines.
struct CodesOfColumns {
  using Group = NarrowGroup<float, group_size>;
  const float *x, *scale, *amax;
  std::uint8_t *codes, *mask;  ///< the mask may be null
  CodeFormat format;
  ColumnGroups shape;
  Alarm alarm;

  /// Processes a line. pair(v, j) returns the code of column j, and whether v is within its range.
  template <class Pair>
  FQ_HD void line(std::int64_t first, const Group& group, const Pair& pair) const {
    float v[group_size];
    group.to(v);
    loops::Pack<std::uint8_t> bytes;
    unsigned bits = 0;
    bool nan = false;
    for (int j = 0; j < group_size; ++j) {
      const bool bad = scalar::is_nan_(v[j]);
      const Coded made = pair(v[j], j);
      bytes.v[j] = bad ? std::uint8_t{0} : made.code;
      bits |= static_cast<unsigned>(made.within) << j;
      nan = nan || bad;
    }
    loops::store_pack(reinterpret_cast<loops::Pack<std::uint8_t>*>(codes + first), bytes);
    if (mask != nullptr) mask[first / group_size] = static_cast<std::uint8_t>(bits);
    if (nan) raise(alarm);
  }
  template <int ahead, class Pair>
  FQ_HD void lines(const ColumnGroups::Part& part, const Pair& pair) const {
    shape.visit_lines<ahead>(
        part, [&](std::int64_t first) { return Group::of(x + first); },
        [&](std::int64_t first, const Group& group) { line(first, group, pair); });
  }
  FQ_HD void operator()(std::int64_t item) const {
    const auto part = shape.part(item, group_size);
    RowCodes of[group_size];
    float scales[group_size], ranges[group_size];
    load_group(scale + part.column, group_size, scales);
    load_group(amax + part.column, group_size, ranges);
    bool few = true;
    for (int j = 0; j < group_size; ++j) {
      of[j] = RowCodes(format, grid_row(format.grid, scales[j], ranges[j]));
      few = few && of[j].few_bits();
    }
    // The reciprocal does not give the bits of the division for every scale. Such columns divide, and read
    // their numbers again instead of keeping them in registers.
    if (!few)
      lines<1>(part, [&](float v, int j) {
        const auto own = grid_row(format.grid, scale[part.column + j], amax[part.column + j]);
        return Coded{static_cast<std::uint8_t>(static_cast<int>(format.code(v, own))),
                     scalar::mask_closed(v, own.mask_lower, own.amax)};
      });
    else if (format.grid.is_unsigned)
      lines<2>(part, [&](float v, int j) {
        return Coded{of[j].byte(v), scalar::mask_closed(v, 0.0f, of[j].row.amax)};
      });
    else
      // A signed range is symmetric, so one comparison replaces two.
      lines<2>(part, [&](float v, int j) { return Coded{of[j].byte(v), scalar::abs_(v) <= of[j].row.amax}; });
  }
};

/// Returns the number of columns, or 0 if the scales are not per column.
std::int64_t columns_with_scales(const QuantizedTensor& x) {
  const int axis = x.grid.granularity.single_axis(x.codes.rank());
  if (axis < 0 || x.codes.numel() == 0) return 0;
  const auto blocks = fq::detail::AxisBlocks::of(x.shape(), x.layout(), axis);
  return blocks.length == 1 ? blocks.size : 0;
}

}  // namespace

bool quantize_code_columns(const fq::detail::QuantizeCall& call) {
  auto& out = call.out;
  const std::int64_t columns = columns_with_scales(out);
  const bool bytes = out.codes.dtype() == DType::i8 || out.codes.dtype() == DType::u8;
  // Vector loads and whole bytes of the mask need columns in groups of eight, and aligned memory.
  if (columns == 0 || columns % group_size != 0 || !bytes || !packed(call.x) || !packed(out.codes))
    return false;
  const ColumnGroups shape(call.x.numel() / columns, columns, group_size,
                           block_threads * loops::resident_blocks<CodesOfColumns>(call.x.device()));
  launch_each(call.x.device(), shape.items(),
              CodesOfColumns{device_data<float>(call.x), device_data<float>(out.grid.scale),
                             device_data<float>(out.grid.amax), mutable_device_data<std::uint8_t>(out.codes),
                             mutable_device_data<std::uint8_t>(out.mask), CodeFormat::of(out.grid.format),
                             shape, alarm(call.x.device(), call.nan_text)});
  return true;
}

}  // namespace fq::cuda
