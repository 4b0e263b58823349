#pragma once

/// Work on a model's numbers one by one.

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// While it lives the model is on the CPU; then it is where it was, its gradients forgotten. Tied to its block.
class OnHost {
 public:
  explicit OnHost(Module& model);
  /// Where the GPU is lost the model stays on the host: the next call there says so.
  ~OnHost();
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

 private:
  Module& model_;
  Device device_;
};

}  // namespace fq::detail
