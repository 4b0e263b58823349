#pragma once

/// The outputs that a run follows (DistillationOptions).

#include <atomic>
#include <memory>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/distillation.h"

namespace fq::detail {

/// Where samples are the same in every epoch, and the outputs of all of them small, those are computed once,
/// in the order of the data: the same bits wherever a run begins. Elsewhere the teacher runs on each batch.
class Teacher {
 public:
  /// `training` outlives it. The teacher goes to `device`, in evaluation mode.
  Teacher(std::shared_ptr<Module> model, const DataLoader& training, Device device);

  /// Computes what is computed once, the first time. It ends, with nothing kept, when `*stop` becomes true.
  void prepare(const std::atomic<bool>* stop);
  /// Of a batch of the loader, in its order, on the device.
  [[nodiscard]] Tensor outputs(const Batch& batch);

 private:
  [[nodiscard]] Tensor run(const Tensor& x) const;
  [[nodiscard]] bool keeps(const Tensor& some) const;

  std::shared_ptr<Module> model_;
  const DataLoader& training_;
  Device device_;
  bool prepared_ = false;
  Tensor all_;  // [samples, ..] on the host; undefined where they are not kept
};

}  // namespace fq::detail
