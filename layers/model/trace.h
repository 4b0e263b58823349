#pragma once

/// Tracing a model, and what can be read from its trace: shapes, parameters, multiply-adds, memory.
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

/// Runs the model in evaluation mode on `meta` with an input of that shape, batch included, and returns what
/// it did. Parameters are named by their paths. The model is only read: other threads may evaluate it
/// meanwhile. Throws ArgumentError when the shape does not fit, naming the operator.
[[nodiscard]] TraceGraph trace(Module& model, const Shape& input_shape);

/// One operator of a summary.
struct SummaryRow {
  std::string path, op;
  Shape output;
  std::int64_t parameters = 0;  ///< elements of the module's own parameters, counted at its first operator
  std::int64_t multiply_adds = 0;
  std::int64_t activation_bytes = 0;  ///< of the output, in f32
};

/// The operators in their order, and the sums over them.
struct Summary {
  std::vector<SummaryRow> rows;
  std::int64_t parameters = 0, multiply_adds = 0, activation_bytes = 0;
};

/// What the model is and costs for an input of that shape, computed on `meta`.
[[nodiscard]] Summary summary(Module& model, const Shape& input_shape);
/// A table: path, operator, output shape, parameters, multiply-adds, bytes.
std::ostream& operator<<(std::ostream& out, const Summary& summary);

}  // namespace fq
