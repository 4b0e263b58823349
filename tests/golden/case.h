#pragma once

/// One case of a golden file: parameters, inputs and the reference's answers. Schema version 1: every group
/// under the root is a case with an attribute `function`, parameters as further attributes, tensors under
/// `in/` and `out/`.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::golden {

/// A dataset. Where `dtype` names a type whose codes are kept one a byte ("float4_e2m1", "floatx_e3m2") or
/// packed ("e2m1x2_low_first"), the tensor holds those bytes as u8; bfloat16, float8 and bool have their own.
struct Value {
  Tensor tensor;
  std::string dtype;    ///< the attribute, or empty
  std::string compare;  ///< its own rule, or empty
};

class Case {
 public:
  std::string name;
  std::map<std::string, std::vector<double>> numbers;  ///< integers, floats and lists of them
  std::map<std::string, std::string> texts;
  std::map<std::string, Value> inputs, outputs;  ///< without the prefix in/ or out/

  [[nodiscard]] bool has(const std::string& attribute) const;
  /// The parameter, or the default of the reference.
  [[nodiscard]] int integer(const std::string& attribute, int otherwise) const;
  [[nodiscard]] double number(const std::string& attribute, double otherwise) const;
  [[nodiscard]] bool flag(const std::string& attribute, bool otherwise) const;
  [[nodiscard]] std::string text(const std::string& attribute, const std::string& otherwise = {}) const;
  [[nodiscard]] std::vector<std::int64_t> integers(const std::string& attribute) const;  ///< {} when absent
  [[nodiscard]] std::optional<int> optional_integer(const std::string& attribute) const;
  /// The input of that name, undefined when absent.
  [[nodiscard]] Tensor tensor(const std::string& input) const;
  /// Inputs batch_000, batch_001, .. in order.
  [[nodiscard]] std::vector<Tensor> batches() const;
  /// A copy of the case with its inputs on a device.
  [[nodiscard]] Case on(Device device) const;
  [[nodiscard]] bool refused() const { return texts.contains("error"); }
  [[nodiscard]] bool degenerate() const { return text("edge") == "degenerate"; }
};

/// All cases of a file. Throws FileError for files other than golden files of schema version 1.
[[nodiscard]] std::vector<Case> read_cases(const std::string& path);

}  // namespace fq::golden
