#include <memory>

#include "fakequant/bench/arrays.h"
#include "fakequant/bench/row.h"
#include "fakequant/calib/detail/mse_search_calibrator.h"

namespace fq::bench {
namespace {

/// The range of each channel of a weight, among ModelOpt's 39 multiples of its largest magnitude.
Row weight_mse_per_channel() {
  Row row;
  row.name = "calib.weight_mse_per_channel/modelopt";
  row.unit = "ms";
  row.clock = Clock::cpu;
  row.python = true;
  row.make = [](const Settings& settings) {
    const Tensor x = bell({512, 4608}, 1);
    auto amax = std::make_shared<Tensor>();
    write_array(settings.exchange, "x", x);
    Work work;
    work.ours.run = [x, amax] {
      MseSearchCalibrator calibrator({.axis = 0, .narrow_range = true});
      calibrator.collect(x);
      *amax = calibrator.compute_amax();
    };
    work.check = [run = work.ours.run, amax, folder = settings.exchange] {
      run();
      return first_difference("amax", *amax, read_array(folder, "amax", amax->shape()));
    };
    return work;
  };
  return row;
}

}  // namespace

std::vector<Row> weight_range_rows() { return {weight_mse_per_channel()}; }

}  // namespace fq::bench
