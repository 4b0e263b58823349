#include "fakequant/calib/detail/scale_sweep_calibrator.h"

#include <algorithm>
#include <array>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/quantized.h"

namespace fq {
namespace {

constexpr const char* kScaleSweepCalibrator = "scale_sweep_calibrator";
// The positive E4M3 numbers are codes 1 to 126; 127 is NaN.
constexpr std::size_t kScales = 126;

/// amax of every scale. No value exceeds the amax of the tensor, which determines g.
std::array<float, kScales> candidates(const Format& format, float global) {
  const auto grid = Grid::block_scaled(format, {}, Tensor::scalar(static_cast<double>(global)), NumBits(4, 3),
                                       global, kScaleSweepCalibrator);
  const auto e4m3 = Minifloat::of({4, 3});
  std::array<float, kScales> out;
  for (std::size_t k = 0; k < kScales; ++k)
    out[k] = std::min(e4m3.decode(static_cast<std::uint8_t>(k + 1)) * grid.unit * format.bound(), global);
  return out;
}

}  // namespace

std::unique_ptr<Calibrator> detail::make_scale_sweep(const CalibratorOptions& options) {
  return std::make_unique<ScaleSweepCalibrator>(options);
}

ScaleSweepCalibrator::ScaleSweepCalibrator(const CalibratorOptions& options)
    : axis_(options.axis), format_(detail::search_format(options, kScaleSweepCalibrator)) {}

void ScaleSweepCalibrator::do_collect(const Tensor& x, float largest) {
  // The candidates depend on the largest |x| of the whole tensor: a second batch would need the first one
  // again.
  FQ_CHECK(!amax_.defined(), kScaleSweepCalibrator,
           "a second tensor was collected: scale_sweep is for weights. Use another method, or call reset()");
  Tensor amax = detail::amax(x, axis_, kScaleSweepCalibrator);
  const auto rows = detail::range_rows(x, axis_, kScaleSweepCalibrator);
  const auto scales = candidates(format_, largest);
  detail::run(x.device(), &detail::Kernels::sweep_ranges, rows, std::vector(scales.begin(), scales.end()),
              largest, format_, amax);
  amax_ = amax.to(Device::cpu());
}

Tensor ScaleSweepCalibrator::do_compute(const AmaxOptions&) const { return amax_.clone(); }

void ScaleSweepCalibrator::do_save(StateDict& state) const { state.set("amax", amax_.clone()); }

void ScaleSweepCalibrator::do_load(const StateDict& state) {
  amax_ = detail::loaded_amax(state.at("amax"), kScaleSweepCalibrator);
}

}  // namespace fq
