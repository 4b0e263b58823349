#include <nlohmann/json.hpp>

#include <gmock/gmock.h>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/modules/activation.h"
#include "thrown.h"

namespace fq::plain_functions_test {
namespace {

using ::testing::HasSubstr;

/// y = f(x) by torch 2.15 in f64.
struct Known {
  const char* op;
  Attributes options;
  float x, y;
};

TEST(PlainFunctions, HaveKnownValues) {
  const Known all[] = {
      {"leaky_relu", {{"slope", 0.5}}, -1, -0.5F},   {"elu", {{"alpha", 0.5}}, -1, -0.31606028F},
      {"celu", {{"alpha", 0.5}}, -1, -0.43233236F},  {"selu", {}, -1, -1.11133074F},
      {"softplus", {{"beta", 2.0}}, 1, 1.06346400F}, {"mish", {}, 1, 0.86509839F},
      {"log_sigmoid", {}, 1, -0.31326169F},          {"softsign", {}, -3, -0.75F},
  };
  for (const auto& [op, options, x, y] : all)
    EXPECT_NEAR((*make_function(op, options))(Variable(Tensor::from({x}))).tensor().item(), y, 1e-6) << op;
}

/// Every plain function of the operator table is a layer type with its options, here other numbers than the
/// defaults.
TEST(PlainFunctions, AreLayerTypesWithTheirOptions) {
  for (const OperatorSchema& row : operator_table()) {
    if (row.run == nullptr) continue;
    std::vector<double> values;
    nlohmann::json options = nlohmann::json::object();
    for (const auto& option : row.options()) {
      const bool whole = option.is_choice() || option.is_integer;
      values.push_back(option.is_required() ? static_cast<double>(values.size())
                       : whole              ? 1
                                            : option.fallback + 0.7);
      auto& given = options[std::string(option.name)];
      if (option.is_choice())
        given = option.choices[1];
      else if (option.is_integer)
        given = 1;
      else
        given = values.back();
    }
    const std::vector<std::string> inputs(static_cast<std::size_t>(row.inputs), "x");
    const nlohmann::json nodes{{{"name", "x"}, {"type", "identity"}},
                               {{"type", row.name}, {"options", options}, {"inputs", inputs}}};
    const auto model = build_model(ModelSpec::parse(nodes.dump()), {4, 4}, 0);
    const Variable x(Tensor::full({3, 4, 4}, 0.3));
    const std::vector<Variable> all(inputs.size(), x);
    EXPECT_TRUE(bitwise_equal((*model)(x).tensor(), row.run(row, all, values).tensor())) << row.name;
  }
}

TEST(PlainFunctions, CheckTheirOptions) {
  EXPECT_EQ(make_function("gelu", {{"approximate", std::string("tanh")}})->describe(), "approximate tanh");
  const auto error_text = [](std::string_view op, const Attributes& options = {}) {
    return test::error_message([&] { return make_function(op, options); });
  };
  EXPECT_THAT(error_text("sigmoyd"), HasSubstr("did you mean 'sigmoid'?"));
  EXPECT_THAT(error_text("linear"), HasSubstr("'linear' is not a plain function"));
  EXPECT_THAT(error_text("elu", {{"slope", 1.0}}),
              HasSubstr("[elu] the option 'slope' is unknown, it has alpha"));
  EXPECT_THAT(error_text("clip", {{"low", 1.0}}), HasSubstr("[clip] the option 'high' is missing"));
  EXPECT_THAT(error_text("leaky_relu", {{"slope", -1.0}}), HasSubstr("the option 'slope' is -1: use 0 to"));
  EXPECT_THAT(error_text("softmax", {{"axis", 0.5}}), HasSubstr("use an integer"));
  EXPECT_THAT(error_text("gelu", {{"approximate", std::string("erf")}}), HasSubstr("use 'none' or 'tanh'"));
}

}  // namespace
}  // namespace fq::plain_functions_test
