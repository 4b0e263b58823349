#pragma once

/// How long a network takes for one sample.

#include <optional>
#include <string>

#include "fakequant/cli/flags/flag_groups.h"

namespace fq::cli {

struct Latency {
  double milliseconds = 0;  ///< of one sample: the median of many
  std::string engine;       ///< "ONNX Runtime 1.19.2", or "fakequant"
};

/// Times the network of a checkpoint on zeros on this machine. On the CPU ONNX Runtime runs it, if the Python
/// has it and the network can be exported. Otherwise this library evaluates it. From then on this thread
/// computes on --threads, or one. Returns nothing for a network that takes no zeros. Throws as load_network.
[[nodiscard]] std::optional<Latency> measure_latency(const std::string& checkpoint, const std::string& python,
                                                     const GeneralOptions& options);

}  // namespace fq::cli
