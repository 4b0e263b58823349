#pragma once

/// Traces a model and summarizes it: shapes, parameters, multiply-adds, memory.
///
///     std::cout << summary(model, {1, 3, 32, 32});
///     for (const TraceNode& node : trace(model, {1, 3, 32, 32}).nodes) std::cout << node.op << '\n';

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Runs the model in evaluation mode on `meta` and returns its operators. `input_shape` includes the batch.
/// Parameters are named by their paths. The call only reads the model: other threads may evaluate it at the
/// same time. Throws ArgumentError that names the operator if the shape does not fit.
[[nodiscard]] TraceGraph trace(Module& model, const Shape& input_shape);

/// One operator of a summary.
struct SummaryRow {
  std::string path, op;
  Shape output;
  std::int64_t parameters = 0;  ///< elements of the module's own parameters, at its first operator
  std::int64_t multiply_adds = 0;
  std::int64_t activation_bytes = 0;  ///< bytes of the output in f32
};

/// The operators in order, and their sums.
struct Summary {
  std::vector<SummaryRow> rows;
  std::int64_t parameters = 0, multiply_adds = 0, activation_bytes = 0;
};

/// Returns shapes, parameters and costs of the model for an input shape, computed on `meta`.
[[nodiscard]] Summary summary(Module& model, const Shape& input_shape);
/// Prints a table: path, operator, output shape, parameters, multiply-adds, bytes.
std::ostream& operator<<(std::ostream& out, const Summary& summary);

}  // namespace fq
