#pragma once

/// Table entries of the algorithms in layers/config/detail/weight_algorithms.def, and their options in a
/// config. The source file of an algorithm defines its entry.

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::ptq {

/// Type of an option. count: a whole number from 1 to 1000000; flag: true or false.
enum class OptionType : unsigned char { number, count, flag };

struct AlgorithmOption {
  std::string name;
  std::string alias = {};  ///< ModelOpt's name; `name` wins if both are given
  OptionType type = OptionType::number;
};

class AlgorithmOptions {
 public:
  /// Reads the options of `algorithm` from the object `given`, or none if null. Throws ArgumentError for an
  /// option that is not `known` or has another type.
  AlgorithmOptions(const std::string& algorithm, const std::vector<AlgorithmOption>& known,
                   const nlohmann::json* given, std::int64_t samples);

  [[nodiscard]] double number(const std::string& name, double fallback) const;
  [[nodiscard]] int count(const std::string& name, int fallback) const;
  [[nodiscard]] bool flag(const std::string& name, bool fallback) const;
  /// Number of images of each pass; 0 uses one epoch.
  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }
  /// Processes that share the data; null for this process alone.
  [[nodiscard]] const std::shared_ptr<Communicator>& ranks() const noexcept { return ranks_; }
  void set_ranks(std::shared_ptr<Communicator> ranks) noexcept { ranks_ = std::move(ranks); }

 private:
  std::map<std::string, double> values_;
  std::int64_t samples_;
  std::shared_ptr<Communicator> ranks_;
};

/// The part of an algorithm before or after calibration. The model is on the CPU.
using AlgorithmStep = Report (*)(Module& model, DataLoader& data, const AlgorithmOptions& options);

struct AlgorithmEntry {
  std::vector<AlgorithmOption> options = {};
  AlgorithmStep before = nullptr;  ///< run before calibration; null for no such part
  AlgorithmStep after = nullptr;   ///< run after calibration
};

#define FQ_WEIGHT_ALGORITHM(name) [[nodiscard]] AlgorithmEntry name##_entry();
#include "fakequant/layers/config/detail/weight_algorithms.def"

}  // namespace fq::ptq
