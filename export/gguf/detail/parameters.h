#pragma once

/// Parameters of a network as GGUF tensors: floats, or blocks of codes.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/export/gguf/file.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/detail/ggml_scheme.h"
#include "fakequant/reference/ggml.h"

namespace fq::detail {

class GgufParameters {
 public:
  /// Throws ArgumentError for weights on a grid that ggml does not have.
  GgufParameters(Module& model, bool f16);

  /// Returns the parameter `ours` as a tensor `name`. With `positions` it is always F32.
  [[nodiscard]] GgufTensor tensor(const std::string& ours, const std::string& name,
                                  bool positions = false) const;
  /// Returns several parameters of one kind, stacked along the rows.
  [[nodiscard]] GgufTensor stacked(const std::vector<std::string>& ours, const std::string& name) const;
  /// Returns a matrix with its rows in the given order.
  [[nodiscard]] GgufTensor ordered(const std::string& ours, const std::string& name,
                                   const std::vector<std::int64_t>& rows) const;
  /// Returns all parameters, with the names of the model.
  [[nodiscard]] std::vector<GgufTensor> all() const;
  /// Whether both names refer to the same parameter on the same grid.
  [[nodiscard]] bool same(const std::string& a, const std::string& b) const;
  /// Returns llama.cpp's number for the type of most tensors.
  [[nodiscard]] std::uint32_t file_type() const;

 private:
  struct Coded {
    ggml::Blocks blocks;
    GgmlRounding rounding;
  };

  void take_codes(const std::string& path, const QuantModule& layer, const GgmlScheme* scheme);
  [[nodiscard]] const Variable& parameter(const std::string& name) const;
  [[nodiscard]] Tensor value(const std::string& name) const;
  [[nodiscard]] GgufTensor floats(const std::string& name, const Tensor& values) const;
  [[nodiscard]] static GgufTensor packed(const std::string& name, const std::vector<const Coded*>& parts);

  bool f16_;
  std::vector<std::pair<std::string, Variable>> floats_;
  std::map<std::string, Coded> codes_;
};

}  // namespace fq::detail
