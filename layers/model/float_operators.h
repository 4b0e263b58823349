#pragma once

/// Finds the operators of a quantized model that an engine computes in floats. Their codes and bits may
/// differ from evaluation here.
///
///     const auto floats = float_operators(model, {1, 3, 32, 32}, Target::ort);
///     if (!floats.empty()) std::cout << describe(floats) << '\n';
///
/// `quantize` logs these operators, and `fakequant verify` counts the differences.

#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// An operator that the engine computes in floats.
struct FloatOperator {
  std::string path;    ///< path of the module that calls it
  std::string op;      ///< "conv2d", "gelu", ..
  std::string reason;  ///< completes a sentence that begins with the operator
};

/// Returns the operators of the model that the engine computes in floats, in the order of execution.
/// `input_shape` includes the batch.
///
/// For `ort` and `none`, the engine is ONNX Runtime for x86-64 (1.31, level `all`) with the file that
/// `export_onnx` writes. If the list is empty, all codes and output bits equal the codes and bits of the
/// engine.
///
/// An operator is listed if the engine sums, multiplies or looks up floats. Its output then differs in the
/// last bits, and near a tie by one code, and later operators pass the difference on. An addition of floats
/// that no listed operator computed is rounded once in every engine. It is listed only for `tensorrt`. Sums
/// of codes whose scales are powers of two are exact in floats and are not listed while they fit 2^23. A
/// batch norm after one layer counts as folded. For `tensorrt`, whose kernels are not documented, the list
/// has the operators without code inputs.
///
/// Uncalibrated scales count as powers of two if the configuration requires powers of two. Throws as `trace`.
[[nodiscard]] std::vector<FloatOperator> float_operators(Module& model, const Shape& input_shape,
                                                         Target target);

/// Returns "'act' (gelu: the engine has its own erf and tanh), 'up' (..) and 3 more". Names at most `most`
/// operators. Returns an empty text for an empty list.
[[nodiscard]] std::string describe(const std::vector<FloatOperator>& operators, std::size_t most = 5);

/// How ONNX Runtime computes an operator (docs/deploy.md).
struct EngineForm {
  std::string_view exact;   ///< when codes and bits equal evaluation; empty: never
  std::string_view reason;  ///< why it computes in floats otherwise; empty: it never does
};
/// Returns the form from the operator table. Returns null for operators that no exported file contains.
[[nodiscard]] const EngineForm* engine_form(std::string_view op);

}  // namespace fq
