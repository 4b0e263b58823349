#pragma once

/// Measurements on a GPU. A row is named "<subject>/<peer>".

#include <functional>
#include <string>
#include <vector>

#include "fakequant/core/device.h"

namespace fq::bench {

struct GpuRow {
  std::string name;
  double goal;  ///< ours / theirs in time at most
  /// The two timed functions with their arrays. `check` describes the first difference from the CPU's result,
  /// or returns an empty text. `bytes`: bytes that a call reads and writes; 0 if memory does not limit it.
  struct Work {
    std::function<void()> ours, theirs;
    std::function<std::string()> check;
    double bytes = 0;
    /// A call with less work, which makes the caches that a captured call needs. Empty: `ours`.
    std::function<void()> prepare = {};
  };
  /// `elements` fill the device's last cache four times as f32.
  std::function<Work(Device device, std::int64_t elements)> make;
};

[[nodiscard]] std::vector<GpuRow> gpu_kernel_rows();
[[nodiscard]] std::vector<GpuRow> gpu_product_rows();
[[nodiscard]] std::vector<GpuRow> gpu_step_rows();

}  // namespace fq::bench
