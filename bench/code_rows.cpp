#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/row.h"
#include "fakequant/core/quantized.h"

namespace fq::bench {
namespace {

constexpr std::int64_t kColumns = 1024, kRows = 64 * 1024;  // 256 MB of floats

/// Codes and mask as a training step makes them, of ranges that are known.
Row codes_row(std::string_view what, const Format& format, const Granularity& granularity,
              std::optional<NumBits> scale_bits = {}) {
  Row row;
  row.name = std::string("kernel.codes_").append(what).append(".dram/memcpy");
  row.unit = "ns/element";
  row.clock = Clock::cpu;
  row.make = [=](const Settings&) {
    const auto x = std::make_shared<Tensor>(bell({kRows, kColumns}, 1));
    const Shape scales = granularity.is_per_tensor() ? Shape{} : granularity.scale_shape(x->shape());
    const Tensor amax = Tensor::full(scales, 2.7);
    const auto grid =
        std::make_shared<Grid>(scale_bits ? Grid::block_scaled(format, granularity, amax, *scale_bits, 2.7f)
                                          : Grid::from_amax(format, granularity, amax));
    Work work;
    work.ours.run = [x, grid] { static_cast<void>(quantize(*x, *grid)); };
    work.theirs.run = [x, copy = Tensor::zeros(x->shape())]() mutable {
      std::memcpy(copy.mutable_raw(), x->raw(), static_cast<std::size_t>(copy.nbytes()));
    };
    work.units_per_second = 1e9 / static_cast<double>(x->numel());
    return work;
  };
  return row;
}

}  // namespace

std::vector<Row> code_rows() {
  return {
      codes_row("int8", IntFormat{}, {}),
      codes_row("e4m3", FloatFormat{4, 3}, {}),
      codes_row("nvfp4", FloatFormat{2, 1}, Granularity::per_group(16), NumBits(4, 3)),
      codes_row("mxfp8", FloatFormat{4, 3}, Granularity::per_group(32), NumBits(8, 0)),
      codes_row("mxfp4", FloatFormat{2, 1}, Granularity::per_group(32), NumBits(8, 0)),
      codes_row("int4_block32", IntFormat{4}, Granularity::per_group(32)),
  };
}

}  // namespace fq::bench
