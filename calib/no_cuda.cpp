// What calib/cuda has, for builds without it: no tensor is on a device there.

#include "fakequant/calib/cuda/count.h"
#include "fakequant/calib/cuda/range_updates.h"
#include "fakequant/calib/cuda/ranges.h"
#include "fakequant/calib/cuda/row_sums.h"
#include "fakequant/core/error.h"

namespace fq::cuda {
namespace {

[[noreturn]] void absent_here() { throw BackendError("[cuda] this build has no CUDA: use --device cpu"); }

}  // namespace

Tensor amax(const Tensor&, const Axes&, std::string_view) { absent_here(); }
cpu::Range range(const Tensor&) { absent_here(); }
void check_finite(const Tensor&, const std::string&, const std::string&) { absent_here(); }
void use_ranges(const Tensor&, float, float, Tensor&) { absent_here(); }
void move_ranges(Tensor&, const Tensor&, float) { absent_here(); }
void count(const Tensor&, const cpu::BinRule&, std::span<std::int64_t>) { absent_here(); }
void add_magnitudes(const cpu::Rows&, bool, std::vector<double>&) { absent_here(); }
void add_values(const cpu::Rows&, std::vector<double>&) { absent_here(); }
void add_errors(const cpu::Rows&, const Tensor&, const std::vector<float>&, const Format&,
                std::vector<double>&) {
  absent_here();
}
void sweep_ranges(const cpu::Rows&, const std::vector<float>&, float, const Format&, Tensor&) {
  absent_here();
}

}  // namespace fq::cuda
