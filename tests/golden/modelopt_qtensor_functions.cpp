#include "fakequant/core/error.h"
#include "fakequant/reference/modelopt.h"
#include "functions.h"

namespace fq::golden {
namespace {

using modelopt::QTensor;

Outputs outputs(const QTensor& q) {
  Outputs out{{"codes", q.codes}, {"scale", q.scale}, {"y", q.dequantize()}};
  for (const auto& [name, tensor] :
       {std::pair("scale2", q.scale2), std::pair("scale_codes", q.scale_codes),
        std::pair("double_scale", q.double_scale), std::pair("scale_zero", q.scale_zero)})
    if (tensor.defined()) out.emplace(name, tensor);
  return out;
}

Axes kept_axes(const Case& c) {
  const auto axes = c.integers("axis");
  return std::vector<int>(axes.begin(), axes.end());
}

modelopt::BlockLengths blocks(const Case& c) {
  const auto axes = c.integers("block_axes"), lengths = c.integers("block_lengths");
  if (axes.size() != lengths.size()) throw ArgumentError("[golden] block_axes and block_lengths differ");
  modelopt::BlockLengths out;
  for (std::size_t i = 0; i < axes.size(); ++i) out[static_cast<int>(axes[i])] = lengths[i];
  return out;
}

}  // namespace

void add_modelopt_qtensor(Functions& functions) {
  functions["int8_qtensor"] = [](const Case& c) {
    return outputs(modelopt::int8_qtensor(c.tensor("x"), kept_axes(c), blocks(c)));
  };
  functions["fp8_qtensor"] = [](const Case& c) {
    return outputs(modelopt::fp8_qtensor(c.tensor("x"), kept_axes(c), blocks(c)));
  };
  functions["int4_qtensor"] = [](const Case& c) {
    return outputs(modelopt::int4_qtensor(c.tensor("x"), c.integer("block_size", 0)));
  };
  functions["nvfp4_qtensor"] = [](const Case& c) {
    return outputs(modelopt::nvfp4_qtensor(c.tensor("x"), c.tensor("scale2"), c.integer("block_size", 16)));
  };
  functions["mxfp4_qtensor"] = [](const Case& c) {
    return outputs(modelopt::mxfp4_qtensor(c.tensor("x"), c.integer("block_size", 32)));
  };
  functions["mxfp8_qtensor"] = [](const Case& c) { return outputs(modelopt::mxfp8_qtensor(c.tensor("x"))); };
  functions["nf4_qtensor"] = [](const Case& c) {
    return outputs(
        modelopt::nf4_qtensor(c.tensor("x"), c.integer("block_size", 0), c.integer("scale_block_size", 0)));
  };
}

}  // namespace fq::golden
