#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "export/onnx_model.h"
#include "fakequant/core/error.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/import_quantized.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::import_any_operator_test {
namespace {

using test::Ints;
using test::OnnxGraph;

constexpr const char* kTexts[] = {"",       "SAME_UPPER", "VALID",   "CRD",  "reverse",   "bidirectional",
                                  "linear", "nearest",    "reflect", "edge", "nij,nj->ni"};

/// Operators of the table, and four that are not in it.
const std::vector<std::string>& operators() {
  static const auto all = [] {
    std::vector<std::string> out{"DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"};
    for (const auto& row : detail::operator_table())
      if (row.domain.empty()) out.emplace_back(row.name);
    return out;
  }();
  return all;
}

/// The number of a message that was computed from the stand-in of the batch; empty if there is none.
std::string placeholder_number(const std::string& message) {
  for (std::size_t begin = 0, end = 0; begin < message.size(); begin = end + 1) {
    end = begin;
    while (end < message.size() && std::isdigit(static_cast<unsigned char>(message[end])) != 0) ++end;
    if (end - begin < 6 || end - begin > 9) continue;
    const std::int64_t value = std::stoll(message.substr(begin, end - begin)), batch = detail::kSymbolicBatch;
    if ((value + 20) % batch <= 40 && value > batch / 2) return message.substr(begin, end - begin);
  }
  return {};
}

class Anything {
 public:
  explicit Anything(unsigned seed) : random_(seed) {}

  int random_int(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

  std::int64_t number() {
    constexpr std::int64_t odd[] = {1 << 20, std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::max(),
                                    std::numeric_limits<std::int64_t>::min()};
    return random_int(15) == 0 ? odd[random_int(3)]
                               : random_int(random_int(1) == 0 ? 18 : 4) - (random_int(3) == 0 ? 9 : 0);
  }
  Ints numbers() {
    Ints out(static_cast<std::size_t>(random_int(5)));
    for (auto& value : out) value = number();
    return out;
  }
  Tensor constant() {
    Shape shape(static_cast<std::size_t>(random_int(5)));
    for (auto& size : shape) size = random_int(9) == 0 ? 0 : 1 + random_int(3);
    if (random_int(4) == 0)
      return Tensor::full(shape, static_cast<float>(random_int(4)),
                          random_int(1) == 0 ? DType::i8 : DType::u8);
    if (random_int(1) == 0) return Tensor::full(shape, static_cast<float>(random_int(4)) - 1, DType::f32);
    const Ints values = numbers();
    return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  }
  OnnxAttribute attribute(const detail::SchemaAttribute& schema) {
    const std::string type = random_int(50) == 0 ? "s" : schema.type;
    if (!schema.allowed.empty() && type == "i") return std::int64_t{std::stoll(schema.allowed[0])};
    if (type == "i") return random_int(2) == 0 ? number() : std::int64_t{random_int(1)};
    if (type == "f") return static_cast<float>(random_int(20)) / 4 - 1;
    if (type == "is") return numbers();
    if (type == "fs") return std::vector<float>{1};
    if (type == "s")
      return schema.allowed.empty() ? std::string(kTexts[random_int(std::size(kTexts) - 1)])
                                    : schema.allowed[0];
    return constant();
  }
  /// The operator on the input, or on constants alone, with some of the attributes, and perhaps others behind
  /// it.
  OnnxModel graph(const std::string& op) {
    Ints input{-1};
    for (int rank = random_int(4); rank > 0; --rank) input.push_back(1 + random_int(5));
    OnnxGraph out(input);
    out.model.opset = 11 + random_int(17);
    std::string last = "x";
    for (int i = 0, count = random_int(2); i <= count; ++i) {
      const std::string name = i == count ? "y" : "v" + std::to_string(i);
      add_node(out, i == 0 ? op : operators()[random_int(static_cast<int>(operators().size()) - 1)], last,
               name);
      last = random_int(3) == 0 ? "x" : name;
    }
    return out.model;
  }

 private:
  /// The operator's own number of inputs, rarely another one.
  int input_count(const std::string& op, std::int64_t opset) {
    const auto* known = detail::find_operator({op, "", "", {}, {}, {}});
    if (known == nullptr || random_int(20) == 0) return 1 + random_int(3);
    int count = 0;
    for (const auto& input : known->schema.inputs())
      if (input.is_in(static_cast<int>(opset)))
        count += input.variadic ? 1 + random_int(3) : input.optional ? random_int(1) : 1;
    return count;
  }

  void add_node(OnnxGraph& graph, const std::string& op, const std::string& last, const std::string& name) {
    std::vector<std::string> inputs;
    const bool fixed = random_int(5) == 0;
    for (int i = 0, count = input_count(op, graph.model.opset); i < count; ++i) {
      inputs.push_back(random_int(19) == 0                        ? ""
                       : !fixed && (i == 0 || random_int(4) == 0) ? last
                                                                  : name + "." + std::to_string(i));
      if (inputs.back().starts_with(name)) graph.fixed(inputs.back(), constant());
    }
    test::Attributes attributes;
    if (const auto* known = detail::find_operator({op, "", "", {}, {}, {}}))
      for (const auto& schema : known->schema.attributes())
        if (schema.is_in(static_cast<int>(graph.model.opset)) && !schema.unsupported &&
            (schema.required || random_int(2) == 0))
          attributes.emplace_back(schema.name, attribute(schema));
    if (random_int(50) == 0) attributes.emplace_back("nonsense", number());
    graph.node(op, inputs, name, attributes);
  }

  std::mt19937 random_;
};

/// A sanitizer finds accesses outside of an input.
TEST(OnnxImport, AcceptsOrRejectsAnyOperatorInput) {
  int built = 0, rejected = 0;
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
      } catch (const Error& error) {
        EXPECT_EQ(placeholder_number(error.what()), "")
            << op << ", seed " << seed - 1 << ": " << error.what();
        ++rejected;
      } catch (const std::exception& error) {
        ADD_FAILURE() << op << ", seed " << seed - 1 << ": " << error.what();
      }
    }
  }
  EXPECT_GT(built, 1000);
  EXPECT_GT(rejected, 1000);
}

}  // namespace
}  // namespace fq::import_any_operator_test
