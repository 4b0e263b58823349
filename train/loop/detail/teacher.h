#pragma once

/// Outputs of the teacher in distillation (DistillationOptions).

#include <memory>
#include <vector>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/losses.h"

namespace fq::detail {

/// Computes and caches the teacher's outputs. Caches them if samples are the same in every epoch and all
/// outputs are small. Each cached part of the data is computed once, on first use, as a whole: its bits do
/// not depend on where a run begins. Otherwise the teacher runs on each batch.
class Teacher {
 public:
  /// Moves the teacher to `device` and sets evaluation mode. `training` must outlive the object.
  Teacher(std::shared_ptr<Module> model, const DataLoader& training, Device device);

  /// Returns the outputs for a batch of the loader, in its order, on the device.
  [[nodiscard]] Tensor outputs(const Batch& batch);

 private:
  [[nodiscard]] Tensor run(const Tensor& x) const;
  [[nodiscard]] bool keeps(const Tensor& some) const;
  /// Computes the outputs of a part of the data, if they are not cached. Returns false if all outputs are too
  /// large to cache.
  bool fill(std::int64_t part);

  std::shared_ptr<Module> model_;
  const DataLoader& training_;
  Device device_;
  std::int64_t rows_;  // rows of a part
  bool keeps_;
  std::vector<bool> has_;  // parts that are in all_
  Tensor all_;             // [samples, ..] on the host; undefined if outputs are not cached
};

}  // namespace fq::detail
