#include "fakequant/train/calibration/detail/calibration_undo.h"

#include "fakequant/core/log.h"

namespace fq::detail {

CalibrationUndo::CalibrationUndo(const std::vector<TensorQuantizer*>& quantizers) {
  for (auto* q : quantizers) {
    before_.push_back({q, q->descriptor(), {}});
    q->observer().save(before_.back().collected, "q");
  }
}

CalibrationUndo::~CalibrationUndo() {
  for (const auto& [q, descriptor, collected] : before_) {
    try {
      if (!(q->descriptor() == descriptor)) q->set_descriptor(descriptor);
      q->observer().load(collected, "q");
    } catch (const std::exception& error) {  // a destructor must not throw
      log(LogLevel::warning, error.what());
    }
  }
}

}  // namespace fq::detail
