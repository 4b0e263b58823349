#include <fmt/format.h>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/gpu/rows.h"
#include "fakequant/bench/gpu/timer.h"
#include "fakequant/calib/calibrator.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/modelopt.h"

namespace fq::bench {
namespace {

constexpr double kCopyShare = 1 / 0.92;  // of the time of a copy of the same bytes
constexpr double kReadShare = 1 / 0.9;
constexpr std::int64_t kChannels = 1024;
constexpr std::int64_t kChecked = 1 << 20;  // elements that the CPU computes too

using Compute = std::function<Tensor(const Tensor&)>;

/// Times `compute(x)` against a copy of the number of bytes that it reads and writes.
GpuRow elementwise(std::string name, DType dtype, double bytes_an_element, const Compute& compute) {
  GpuRow row{std::move(name), kCopyShare, {}};
  row.make = [=](Device device, std::int64_t elements) {
    const std::int64_t rows = elements / kChannels;
    const Tensor host = bell({rows, kChannels}, 1).to(dtype), x = host.to(device);
    const auto bytes = bytes_an_element * static_cast<double>(x.numel());
    GpuRow::Work work;
    work.ours = [=] { (void)compute(x); };
    work.theirs = device_copy(device, static_cast<std::int64_t>(bytes / 2));
    work.check = [=] {
      const std::int64_t some = std::min(rows, kChecked / kChannels);
      return bitwise_equal(compute(x.slice(0, some)), compute(host.slice(0, some))) ? ""
                                                                                    : "the CPU's bits differ";
    };
    work.bytes = bytes;
    return work;
  };
  return row;
}

Tensor channel_ranges(const Tensor& x) { return Tensor::full({kChannels}, 3.0, DType::f32, x.device()); }

QuantizedTensor quantize_int8(const Tensor& x, bool per_channel) {
  const auto by = per_channel ? Granularity::per_axis(1) : Granularity::per_tensor();
  const Tensor amax = per_channel ? channel_ranges(x) : Tensor::full({}, 3.0, DType::f32, x.device());
  return quantize(x, Grid::from_amax(IntFormat{}, by, amax, "bench"));
}

/// A calibrator's pass over x, which reads each element once, against a copy of half of the bytes.
GpuRow reading(std::string name, const std::string& method) {
  GpuRow row{std::move(name), kReadShare, {}};
  row.make = [=](Device device, std::int64_t elements) {
    const Tensor host = bell({elements}, 2), x = host.to(device);
    const auto calibrator = std::shared_ptr<Calibrator>(make_calibrator(method, {}));
    GpuRow::Work work;
    work.ours = [=] { calibrator->collect(x); };
    work.theirs = device_copy(device, x.nbytes() / 2);
    work.check = [=] {
      const auto a = make_calibrator(method, {}), b = make_calibrator(method, {});
      a->collect(x.slice(0, kChecked));
      b->collect(host.slice(0, kChecked));
      return bitwise_equal(a->compute_amax(), b->compute_amax()) ? "" : "the CPU's range differs";
    };
    work.bytes = static_cast<double>(x.nbytes());
    return work;
  };
  return row;
}

}  // namespace

std::vector<GpuRow> gpu_kernel_rows() {
  std::vector<GpuRow> rows;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const double bytes = 2.0 * bit_width(dtype) / 8;
    const auto add = [&](const char* what, const Compute& compute) {
      rows.push_back(elementwise(fmt::format("kernel.{}.{}/copy", what, name(dtype)), dtype, bytes, compute));
    };
    add("fake_quant_int8", [](const Tensor& x) { return fake_tensor_quant(x, 3.0f); });
    add("fake_quant_int8_per_channel",
        [](const Tensor& x) { return fake_tensor_quant(x, channel_ranges(x)); });
    add("fake_quant_e4m3", [](const Tensor& x) { return scaled_e4m3(x, 3.0f); });
    add("fake_quant_nvfp4", [](const Tensor& x) {
      return modelopt::dynamic_block_quantize(x, {2, 1}, NumBits(4, 3), 16, 3.0f,
                                              modelopt::BlockKernel::triton);
    });
  }
  constexpr double codes_and_mask = 4 + 1 + 0.125;
  rows.push_back(elementwise("kernel.quantize_int8/copy", DType::f32, codes_and_mask,
                             [](const Tensor& x) { return quantize_int8(x, false).codes; }));
  rows.push_back(elementwise("kernel.quantize_int8_per_channel/copy", DType::f32, codes_and_mask,
                             [](const Tensor& x) { return quantize_int8(x, true).codes; }));
  rows.push_back(reading("kernel.amax/read", "max"));
  rows.push_back(reading("kernel.histogram/read", "one_pass"));
  return rows;
}

}  // namespace fq::bench
