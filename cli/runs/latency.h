#pragma once

/// How long a network takes for one sample.

#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

struct Latency {
  double milliseconds = 0;  ///< of one sample: the median of many
  std::string engine;       ///< "ONNX Runtime 1.19.2", or "fakequant"
};

/// Of the network of a checkpoint, on zeros, on this machine: as an ONNX file in ONNX Runtime where --device
/// is the CPU, the Python of --python has it and the network can be exported, else as this library evaluates
/// it. From here on this thread computes on --threads, or one. Nothing for a network that takes no zeros.
/// Throws what load_network throws.
[[nodiscard]] std::optional<Latency> latency_of(const std::string& checkpoint, const Flags& flags);

}  // namespace fq::cli
