#pragma once

/// The operators of ONNX and what builds them.

#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::detail::onnx_ops {

ImportValue conv(const OpImport& op);
ImportValue conv_transpose(const OpImport& op);
ImportValue gemm(const OpImport& op);
/// A third input is the bias.
ImportValue matmul(const OpImport& op);
ImportValue batch_norm(const OpImport& op);
/// Of a pattern: `axes` as ReduceMean has them, scale and bias may be left out.
ImportValue layer_norm(const OpImport& op);
ImportValue embedding(const OpImport& op);

ImportValue max_pool(const OpImport& op);
ImportValue average_pool(const OpImport& op);
ImportValue global_average_pool(const OpImport& op);
ImportValue global_max_pool(const OpImport& op);
ImportValue reduce_mean(const OpImport& op);

ImportValue same(const OpImport& op);
ImportValue cast(const OpImport& op);
ImportValue shape(const OpImport& op);
ImportValue flatten(const OpImport& op);
ImportValue reshape(const OpImport& op);
ImportValue squeeze(const OpImport& op);
ImportValue unsqueeze(const OpImport& op);
ImportValue transpose(const OpImport& op);
ImportValue concat(const OpImport& op);

ImportValue relu(const OpImport& op);
ImportValue sigmoid(const OpImport& op);
ImportValue tanh(const OpImport& op);
ImportValue gelu(const OpImport& op);
ImportValue silu(const OpImport& op);
ImportValue hard_sigmoid(const OpImport& op);
ImportValue hard_swish(const OpImport& op);
ImportValue leaky_relu(const OpImport& op);
ImportValue prelu(const OpImport& op);
ImportValue clip(const OpImport& op);
ImportValue softmax(const OpImport& op);
ImportValue log_softmax(const OpImport& op);
ImportValue dropout(const OpImport& op);
ImportValue add(const OpImport& op);
ImportValue multiply(const OpImport& op);

}  // namespace fq::detail::onnx_ops
