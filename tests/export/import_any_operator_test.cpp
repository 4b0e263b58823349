#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "export/onnx_model.h"
#include "fakequant/core/error.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/import_quantized.h"
#include "fakequant/export/onnx/reader/op_import.h"

namespace fq::import_any_operator_test {
namespace {

using test::Ints;
using test::OnnxGraph;

constexpr const char* kAttributes[] = {"allowzero",
                                       "alpha",
                                       "auto_pad",
                                       "axes",
                                       "axis",
                                       "batch_dims",
                                       "beta",
                                       "blocksize",
                                       "ceil_mode",
                                       "count_include_pad",
                                       "dilations",
                                       "direction",
                                       "end",
                                       "epsilon",
                                       "equation",
                                       "exclusive",
                                       "group",
                                       "hidden_size",
                                       "is_causal",
                                       "keepdims",
                                       "kernel_shape",
                                       "kv_num_heads",
                                       "layout",
                                       "mode",
                                       "noop_with_empty_axes",
                                       "num_groups",
                                       "num_outputs",
                                       "output_padding",
                                       "output_shape",
                                       "pads",
                                       "perm",
                                       "q_num_heads",
                                       "reverse",
                                       "scale",
                                       "scales",
                                       "size",
                                       "split",
                                       "start",
                                       "strides",
                                       "to",
                                       "transA",
                                       "transB",
                                       "upper",
                                       "value"};
constexpr const char* kTexts[] = {"",       "SAME_UPPER", "VALID",   "CRD",  "reverse",   "bidirectional",
                                  "linear", "nearest",    "reflect", "edge", "nij,nj->ni"};

/// Those that layers are made of, and those of constants and codes.
const std::vector<std::string>& operators() {
  static const auto all = [] {
    auto out = detail::onnx_operators();
    for (const char* op :
         {"Constant", "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "If", "MatMulInteger",
          "QLinearConv", "QLinearMatMul", "QuantizeLinear", "Range", "ScatterND", "Size"})
      out.emplace_back(op);
    return out;
  }();
  return all;
}

class Anything {
 public:
  explicit Anything(unsigned seed) : random_(seed) {}

  int up_to(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

  std::int64_t number() {
    constexpr std::int64_t odd[] = {1 << 20, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()};
    return up_to(15) == 0 ? odd[up_to(3)] : up_to(up_to(1) == 0 ? 18 : 4) - (up_to(3) == 0 ? 9 : 0);
  }
  Ints numbers() {
    Ints out(static_cast<std::size_t>(up_to(5)));
    for (auto& value : out) value = number();
    return out;
  }
  Tensor constant() {
    Shape shape(static_cast<std::size_t>(up_to(5)));
    for (auto& size : shape) size = up_to(9) == 0 ? 0 : 1 + up_to(3);
    if (up_to(4) == 0)
      return Tensor::full(shape, static_cast<float>(up_to(4)), up_to(1) == 0 ? DType::i8 : DType::u8);
    if (up_to(1) == 0) return Tensor::full(shape, static_cast<float>(up_to(4)) - 1, DType::f32);
    const Ints values = numbers();
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  }
  OnnxAttribute attribute() {
    switch (up_to(7)) {
      case 0:
        return static_cast<float>(up_to(20)) / 4 - 1;
      case 1:
        return std::string(kTexts[up_to(std::size(kTexts) - 1)]);
      case 2:
        return constant();
      case 3:
      case 4:
        return number();
      default:
        return numbers();
    }
  }
  /// The operator on the input, or on constants alone, with some of the attributes, and perhaps others behind
  /// it.
  OnnxModel graph(const std::string& op) {
    Ints input{-1};
    for (int rank = up_to(4); rank > 0; --rank) input.push_back(1 + up_to(5));
    OnnxGraph out(input);
    out.model.opset = 11 + up_to(12);
    std::string last = "x";
    for (int i = 0, count = up_to(2); i <= count; ++i) {
      const std::string name = i == count ? "y" : "v" + std::to_string(i);
      add_node(out, i == 0 ? op : operators()[up_to(static_cast<int>(operators().size()) - 1)], last, name);
      last = up_to(3) == 0 ? "x" : name;
    }
    return out.model;
  }

 private:
  void add_node(OnnxGraph& graph, const std::string& op, const std::string& last, const std::string& name) {
    std::vector<std::string> inputs;
    const bool fixed = up_to(5) == 0;
    for (int i = 0, count = up_to(3); i <= count; ++i) {
      inputs.push_back(up_to(19) == 0                        ? ""
                       : !fixed && (i == 0 || up_to(4) == 0) ? last
                                                             : name + "." + std::to_string(i));
      if (inputs.back().starts_with(name)) graph.fixed(inputs.back(), constant());
    }
    test::Attributes attributes;
    for (int count = up_to(4); count > 0; --count)
      attributes.emplace_back(kAttributes[up_to(std::size(kAttributes) - 1)], attribute());
    graph.node(op, inputs, name, attributes);
  }

  std::mt19937 random_;
};

/// Memory beyond what is there is seen by a sanitizer.
TEST(OnnxImport, WhateverAnOperatorIsGivenIsRefusedOrBuilt) {
  int built = 0, refused = 0;
  unsigned seed = 0;
  for (const auto& op : operators()) {
    for (int i = 0; i < 200; ++i) {
      const OnnxModel model = Anything(seed++).graph(op);
      try {
        if (is_quantized(model))
          (void)import_quantized_onnx(model).build();
        else
          (void)import_onnx(model).build();
        ++built;
      } catch (const Error&) {
        ++refused;
      } catch (const std::exception& error) {
        ADD_FAILURE() << op << ", seed " << seed - 1 << ": " << error.what();
      }
    }
  }
  EXPECT_GT(built, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace fq::import_any_operator_test
