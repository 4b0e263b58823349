#include <fstream>
#include <regex>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/onnx_model.h"
#include "fakequant/core/error.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/import_quantized.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::import_schema_test {
namespace {

using detail::find_operator;
using detail::OperatorRow;
using detail::SchemaAttribute;
using test::Ints;
using test::OnnxGraph;
using testing::AllOf;
using testing::HasSubstr;

OnnxAttribute make_attribute(const std::string& type, const std::string& allowed = {}) {
  if (type == "i") return std::int64_t{allowed.empty() ? 1 : std::stoll(allowed)};
  if (type == "f") return 1.0F;
  if (type == "s") return allowed;
  if (type == "is") return Ints{1, 1};
  if (type == "fs") return std::vector<float>{1};
  if (type == "ss") return std::vector<std::string>{"a"};
  if (type == "t") return Tensor::from({1.0F}, {1});
  return std::monostate{};
}

OnnxAttribute make_attribute(const SchemaAttribute& attribute) {
  return make_attribute(attribute.type, attribute.allowed.empty() ? std::string() : attribute.allowed[0]);
}

/// A graph of one node "y" with the inputs and attributes that its row requires.
OnnxModel smallest(const OperatorRow& row, int opset) {
  OnnxGraph graph({-1, 4});
  graph.model.opset = opset;
  OnnxNode node{std::string(row.name), "y", std::string(row.domain), {}, {"y"}, {}};
  const auto& schema = find_operator(node)->schema;
  for (const auto& input : schema.inputs())
    if (input.is_in(opset) && !input.optional) {
      const std::string name = node.inputs.empty() ? "x" : "c" + std::to_string(node.inputs.size());
      if (name != "x") graph.number(name, 1);
      node.inputs.push_back(name);
    }
  for (const auto& attribute : schema.attributes())
    if (attribute.required && attribute.is_in(opset)) {
      node.attributes.emplace_back(attribute.name, make_attribute(attribute));
      if (attribute.type == "g") node.branches.push_back({attribute.name, {}, {}, {}});
    }
  graph.model.nodes.push_back(std::move(node));
  return graph.model;
}

std::string error_text(const OnnxModel& model) {
  try {
    (void)import_onnx(model);
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "imported";
}

/// Rows of operators that files have, and an opset of each.
std::vector<std::pair<OperatorRow, int>> rows() {
  std::vector<std::pair<OperatorRow, int>> out;
  for (const auto& row : detail::operator_table())
    if (row.domain != detail::kPatternDomain) {
      out.emplace_back(row, row.last);
      if (row.first != row.last) out.emplace_back(row, row.first);
    }
  return out;
}

std::string named(const OperatorRow& row, const std::string& what) {
  const std::string domain(row.domain);
  return "[import_onnx] node 'y' (" + (domain.empty() ? "" : domain + ".") + std::string(row.name) +
         "): " + what;
}

TEST(OnnxSchema, AcceptsTheMinimalNodeOfEveryRow) {
  for (const auto& [row, opset] : rows())
    EXPECT_NO_THROW(detail::check_operator(smallest(row, opset).nodes[0], opset)) << row.name << ' ' << opset;
}

TEST(OnnxSchema, EveryLayerOperatorIsDocumented) {
  std::stringstream text;
  text << std::ifstream(FAKEQUANT_SOURCE_DIR "/docs/import.md").rdbuf();
  const std::string page = text.str();
  for (const auto& row : detail::operator_table())
    if (row.build != nullptr && row.domain.empty()) {
      EXPECT_TRUE(std::regex_search(page, std::regex("\\b" + std::string(row.name) + "\\b"))) << row.name;
    }
}

TEST(OnnxSchema, EveryOperatorRejectsAnotherAttribute) {
  for (const auto& [row, opset] : rows()) {
    OnnxModel model = smallest(row, opset);
    model.nodes[0].attributes.emplace_back("nonsense", std::int64_t{3});
    EXPECT_THAT(error_text(model), HasSubstr(named(row, "attribute 'nonsense' is unknown")));
    EXPECT_THROW((void)import_quantized_onnx(model), ArgumentError) << row.name;
  }
}

TEST(OnnxSchema, EveryOperatorRejectsAnAttributeOfAnotherTypeOrTwice) {
  for (const auto& [row, opset] : rows())
    for (const auto& attribute :
         find_operator({std::string(row.name), "", std::string(row.domain), {}, {}, {}})
             ->schema.attributes()) {
      if (!attribute.is_in(opset) || attribute.unsupported) continue;
      OnnxModel model = smallest(row, opset);
      auto& given = model.nodes[0].attributes;
      std::erase_if(given, [&](const auto& entry) { return entry.first == attribute.name; });
      std::erase_if(model.nodes[0].branches,
                    [&](const auto& branch) { return branch.name == attribute.name; });
      given.emplace_back(attribute.name, make_attribute(attribute.type == "f" ? "i" : "f"));
      EXPECT_THAT(error_text(model), HasSubstr("attribute '" + attribute.name + "' is a"));
      if (attribute.type == "g") continue;
      given.back().second = make_attribute(attribute);
      given.emplace_back(attribute.name, make_attribute(attribute));
      EXPECT_THAT(error_text(model),
                  HasSubstr(named(row, "attribute '" + attribute.name + "' is given twice")));
    }
}

TEST(OnnxSchema, EveryOperatorRejectsUnsupportedValues) {
  int values = 0;
  for (const auto& [row, opset] : rows())
    for (const auto& attribute :
         find_operator({std::string(row.name), "", std::string(row.domain), {}, {}, {}})
             ->schema.attributes()) {
      if (!attribute.is_in(opset) || (attribute.allowed.empty() && !attribute.unsupported)) continue;
      OnnxModel model = smallest(row, opset);
      auto& given = model.nodes[0].attributes;
      std::erase_if(given, [&](const auto& entry) { return entry.first == attribute.name; });
      given.emplace_back(attribute.name,
                         make_attribute(attribute.type, attribute.type == "s" ? "other" : "12345"));
      EXPECT_THAT(error_text(model), HasSubstr(named(row, "attribute '" + attribute.name + "' is ")));
      ++values;
    }
  EXPECT_GT(values, 30);
}

TEST(OnnxSchema, EveryOperatorRejectsExtraAndMissingInputs) {
  for (const auto& [row, opset] : rows()) {
    OnnxModel model = smallest(row, opset);
    auto& inputs = model.nodes[0].inputs;
    const auto required = inputs.size();
    std::size_t most = 0;
    bool variadic = false;
    for (const auto& input : find_operator(model.nodes[0])->schema.inputs()) {
      most += input.is_in(opset) ? 1 : 0;
      variadic = variadic || input.variadic;
    }
    if (!variadic) {
      inputs.resize(most, "x");
      EXPECT_NO_THROW(detail::check_operator(model.nodes[0], opset)) << row.name;
      inputs.emplace_back("x");
      EXPECT_THAT(error_text(model),
                  HasSubstr(named(row, "it has " + std::to_string(most + 1) + " inputs: ")));
    }
    if (required == 0) continue;
    inputs.resize(required - 1);
    EXPECT_THAT(error_text(model), AllOf(HasSubstr(named(row, "its input " + std::to_string(required - 1))),
                                         HasSubstr("is missing")));
  }
}

TEST(OnnxSchema, EveryOperatorRejectsOtherOpsets) {
  for (const auto& row : detail::operator_table()) {
    if (!row.domain.empty()) continue;
    for (const int opset : {row.first - 1, row.last + 1}) {
      if (opset < detail::kFirstOpset || opset > detail::kLastOpset) continue;
      OnnxModel model = smallest(row, row.first);
      model.opset = opset;
      EXPECT_THAT(error_text(model), HasSubstr("is supported in opset " + std::to_string(row.first)));
    }
  }
  OnnxModel model = OnnxGraph({-1, 4}).node("Relu", {"x"}, "y").model;
  for (const std::int64_t opset : {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{5},
                                   std::int64_t{29}, std::int64_t{99}, std::int64_t{1} << 62}) {
    model.opset = opset;
    EXPECT_THAT(error_text(model),
                HasSubstr("opset: " + std::to_string(opset) + " is not supported, 6 to 28 are"));
  }
  model.opset = 13;
  model.other_opsets = {{"com.microsoft", 2}};
  EXPECT_THAT(error_text(model), HasSubstr("opset of com.microsoft: 2 is not supported, 1 is"));
}

TEST(OnnxSchema, NamesTheOpsetOfAnAttribute) {
  const auto model = [](std::int64_t opset) {
    OnnxGraph graph({-1, 4, 4, 4});
    graph.model.opset = opset;
    return graph
        .node("SpaceToDepth", {"x"}, "y", {{"blocksize", std::int64_t{2}}, {"mode", std::string("CRD")}})
        .model;
  };
  EXPECT_THAT(error_text(model(13)),
              HasSubstr("attribute 'mode' is of opset 28 and later: the file has opset 13"));
  EXPECT_EQ(error_text(model(28)), "imported");
}

TEST(OnnxSchema, ChecksNodesInFoldsPatternsAndBranches) {
  OnnxGraph folded({-1, 4});
  folded.number("c", 2).node("Neg", {"c"}, "n", {{"by", 1.0F}}).node("Mul", {"x", "n"}, "y");
  EXPECT_THAT(error_text(folded.model), HasSubstr("node 'n' (Neg): attribute 'by' is unknown"));

  OnnxGraph silu({-1, 4});
  silu.node("Sigmoid", {"x"}, "s", {{"steepness", 2.0F}}).node("Mul", {"x", "s"}, "y");
  EXPECT_THAT(error_text(silu.model), HasSubstr("node 's' (Sigmoid): attribute 'steepness' is unknown"));

  OnnxGraph branches({-1, 4});
  branches.fixed("c", Tensor::full({}, 1, DType::u8));
  OnnxNode choice{"If", "y", "", {"c"}, {"y"}, {{"then_branch", {}}, {"else_branch", {}}}};
  const OnnxNode relu{"Relu", "r", "", {"x"}, {"r"}, {{"alpha", 0.5F}}};
  choice.branches = {{"then_branch", {relu}, {}, {"r"}}, {"else_branch", {relu}, {}, {"r"}}};
  branches.model.nodes.push_back(choice);
  EXPECT_THAT(error_text(branches.model), HasSubstr("node 'r' (Relu): attribute 'alpha' is unknown"));
}

/// x [N, 4, 5] through a pair of quantizers along an axis, and a product by floats.
OnnxModel pair(const Ints& scales, const Ints& zero_points, std::int64_t axis) {
  const auto fill = [](const Ints& shape, DType type) {
    return Tensor::full(shape, type == DType::f32 ? 0.5 : 0.0, type);
  };
  OnnxGraph graph({-1, 4, 5});
  graph.fixed("scale", fill(scales, DType::f32))
      .fixed("zero", fill(zero_points, DType::i8))
      .fixed("w", Tensor::full({5, 3}, 0.25))
      .node("QuantizeLinear", {"x", "scale", "zero"}, "q", {{"axis", axis}})
      .node("DequantizeLinear", {"q", "scale", "zero"}, "d", {{"axis", axis}})
      .node("MatMul", {"d", "w"}, "y");
  return graph.model;
}

TEST(OnnxSchema, ScalesAndZeroPointsFitTheirAxis) {
  const auto import_result = [](const OnnxModel& model) {
    try {
      (void)import_quantized_onnx(model);
    } catch (const ArgumentError& error) {
      return std::string(error.what());
    }
    return std::string("imported");
  };
  EXPECT_EQ(import_result(pair({}, {}, 1)), "imported");
  EXPECT_EQ(import_result(pair({1}, {1}, 1)), "imported");
  EXPECT_THAT(import_result(pair({3}, {3}, 1)),
              HasSubstr("node 'q' (QuantizeLinear): it has 3 scales along axis 1 of [N, 4, 5]"));
  EXPECT_THAT(import_result(pair({5}, {5}, 1)), HasSubstr("5 scales along axis 1"));
  EXPECT_THAT(import_result(pair({4}, {4}, 2)), HasSubstr("4 scales along axis 2"));
  EXPECT_THAT(import_result(pair({4}, {4}, -4)), HasSubstr("4 scales along axis -4"));
  EXPECT_THAT(import_result(pair({4}, {3}, 1)), HasSubstr("its zero point is i8 [3]"));
  EXPECT_THAT(import_result(pair({}, {4}, 1)), HasSubstr("both need one shape"));
  OnnxModel typed = pair({}, {}, 1);
  typed.opset = 21;
  typed.nodes[0].attributes.emplace_back("output_dtype", std::int64_t{5});
  EXPECT_THAT(import_result(typed), HasSubstr("attribute 'output_dtype' is i16: its zero point is i8"));
}

TEST(OnnxSchema, RejectsInternalNodesInFiles) {
  for (const auto& row : detail::operator_table()) {
    if (row.domain != detail::kPatternDomain) continue;
    EXPECT_THAT(error_text(smallest(row, 20)), HasSubstr("fakequant." + std::string(row.name) + " (1: 'y')"));
  }
}

TEST(OnnxSchema, IgnoresNodesOfUnusedOutputs) {
  OnnxGraph graph({-1, 4});
  graph.node("Relu", {"x"}, "y").node("Relu", {"x"}, "other", {{"alpha", 0.5F}});
  EXPECT_EQ(error_text(graph.model), "imported");
}

}  // namespace
}  // namespace fq::import_schema_test
