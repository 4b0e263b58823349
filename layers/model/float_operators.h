#pragma once

/// Which operators of a quantized model an engine computes in floats of its own, so that its codes and bits
/// may differ from evaluation here.
///
///     const auto floats = float_operators(model, {1, 3, 32, 32}, Target::ort);
///     if (!floats.empty()) std::cout << describe(floats) << '\n';
///
/// `quantize` logs them, and `fakequant verify` counts what differs.

#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// One of them.
struct FloatOperator {
  std::string path;    ///< of the module that calls it
  std::string op;      ///< "conv2d", "gelu", ..
  std::string reason;  ///< why: the rest of a sentence that begins with the operator
};

/// The operators of the model as it is now that are computed in floats, in the order of execution, for an
/// input of that shape, batch included.
///
/// For `ort` and `none` they are those of ONNX Runtime's kernels for x86-64 (1.31, level `all`) in the file
/// that `export_onnx` writes; where there are none, every code and every bit of the output is the engine's.
/// An operator is listed where the engine adds up, multiplies or looks up floats: what it gives differs in
/// the last bits, and near a tie by a code, which goes on through whatever reads it. An addition of floats
/// that no listed operator made is rounded once everywhere, and not listed but for `tensorrt`. Sums of codes
/// whose scales are powers of two are exact in floats too and are not listed while they fit 2^23. A batch
/// norm behind one layer counts as folded. For `tensorrt`, whose kernels are not documented, those are listed
/// that have no codes to work on.
///
/// Scales that were not calibrated yet count as powers of two where they are to become such. Throws as
/// `trace`.
[[nodiscard]] std::vector<FloatOperator> float_operators(Module& model, const Shape& input_shape,
                                                         Target target);

/// "'act' (gelu: the engine has its own erf and tanh), 'up' (..) and 3 more": at most `most` of them by name;
/// empty for none.
[[nodiscard]] std::string describe(const std::vector<FloatOperator>& operators, std::size_t most = 5);

/// How ONNX Runtime computes an operator (docs/deploy.md).
struct EngineForm {
  std::string_view exact;   ///< When the engine gives the codes and bits of evaluation. Empty: never.
  std::string_view reason;  ///< Why it is computed in floats otherwise. Empty: it never is.
};
/// The form that the operator table gives. Null for operators that no exported file has.
[[nodiscard]] const EngineForm* engine_form(std::string_view op);

}  // namespace fq
