#pragma once

/// The outputs that a run follows (DistillationOptions).

#include <memory>
#include <vector>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/losses.h"

namespace fq::detail {

/// Where samples are the same in every epoch, and the outputs of all of them small, those are computed once
/// each, as they are asked for, with their neighbours in the data: the same bits wherever a run begins.
/// Elsewhere the teacher runs on each batch.
class Teacher {
 public:
  /// `training` outlives it. The teacher goes to `device`, in evaluation mode.
  Teacher(std::shared_ptr<Module> model, const DataLoader& training, Device device);

  /// Of a batch of the loader, in its order, on the device.
  [[nodiscard]] Tensor outputs(const Batch& batch);

 private:
  [[nodiscard]] Tensor run(const Tensor& x) const;
  [[nodiscard]] bool keeps(const Tensor& some) const;
  /// Puts the outputs of a part of the data in place; false where they are too large to keep.
  bool fill(std::int64_t part);

  std::shared_ptr<Module> model_;
  const DataLoader& training_;
  Device device_;
  std::int64_t rows_;  // of a part
  bool keeps_;
  std::vector<bool> has_;  // parts that are in all_
  Tensor all_;             // [samples, ..] on the host; undefined where they are not kept
};

}  // namespace fq::detail
