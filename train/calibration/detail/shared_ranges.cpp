#include "fakequant/train/calibration/detail/shared_ranges.h"

#include <utility>

#include <fmt/format.h>

#include "fakequant/calib/detail/calib_methods.h"
#include "fakequant/train/calibration/calibration_state.h"
#include "fakequant/train/ranks/detail/gather_states.h"

namespace fq::detail {

std::string_view method_of_one_process(const std::vector<TensorQuantizer*>& quantizers) {
  for (auto* quantizer : quantizers) {
    const auto method = quantizer->observer().calibrator().method();
    const auto* known = find_calib_method(method);
    if (known == nullptr || !merges_exactly(*known)) return method;
  }
  return {};
}

void merge_over_ranks(Module& model, Communicator& ranks) {
  if (ranks.size() == 1) return;
  const auto states = gather_states(ranks, calibration_state(model));
  bool first = true;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    if (!states[rank].has_sub("quantizers")) continue;  // there were fewer batches than ranks
    const auto take = std::exchange(first, false) ? load_calibration_state : merge_calibration_state;
    (void)take(model, states[rank], fmt::format("rank {}", rank));
  }
}

}  // namespace fq::detail
