#include "fakequant/export/onnx/reader/quantized/clipped_codes.h"

namespace fq::detail {

ClippedCodes clipped_codes(const OnnxNode& clip, const FindConstant& constant, const StoredGrid& grid) {
  const NodeReader reader(clip);
  reader.check(grid.format.is_integer(), "it clips codes of E4M3");
  const IntFormat whole = grid.format.integer();
  const auto bound = [&](std::size_t i, int fallback) {
    if (!reader.has_input(i)) return fallback;
    const Tensor value = constant(clip.inputs[i]);
    reader.check(value.defined() && value.numel() == 1 && bit_width(value.dtype()) >= 8,
                 "its bounds are not constants");
    return static_cast<int>(value.item()) - grid.zero_point;
  };
  const int lowest = bound(1, whole.lower()), highest = bound(2, whole.upper());
  const bool relu = lowest == 0 && !whole.is_unsigned;
  for (int bits = 2; bits <= whole.bits; ++bits)
    for (const bool narrow : {false, true}) {
      const IntFormat format{bits, whole.is_unsigned, narrow};
      if (whole.is_unsigned && narrow) continue;
      if (highest == format.upper() && (relu || lowest == format.lower())) return {format, relu};
    }
  reader.check(lowest == 0 && highest == 0, "it leaves the codes {} to {}, which no number of bits has",
               lowest, highest);
  return {grid.format, relu};
}

}  // namespace fq::detail
