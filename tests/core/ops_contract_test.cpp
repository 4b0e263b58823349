#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "core/operator_run.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/trace.h"

namespace fq::test {

/// Printed name of a case in GoogleTest.
void PrintTo(const OperatorCase& tested, std::ostream* out) { *out << tested.op << ' ' << tested.variant; }

namespace {

class Operator : public testing::TestWithParam<OperatorCase> {
 protected:
  [[nodiscard]] const OperatorCase& op() const { return GetParam(); }

  [[nodiscard]] std::vector<Tensor> inputs(DType dtype = DType::f64, bool empty = false) const {
    return make_inputs(op(), dtype, empty);
  }
  [[nodiscard]] std::vector<Variable> leaves(const std::vector<Tensor>& tensors) const {
    return make_leaves(op(), tensors);
  }

  [[nodiscard]] std::vector<Tensor> run(const std::vector<Tensor>& tensors) const {
    return run_case(op(), tensors);
  }
  /// In a trace.
  [[nodiscard]] std::string name() const { return op().trace_name.empty() ? op().op : op().trace_name; }
};

void expect_close(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance) {
  EXPECT_EQ(difference(a, b, tolerance), "");
}

TEST_P(Operator, GradientsMatchCentralDifferences) {
  GradientCheck options;
  options.surrogate = op().surrogate;
  EXPECT_EQ(check_gradients(op().apply, inputs(), differentiable_inputs(op()), options), "");
}

TEST_P(Operator, FloatAgreesWithDouble) {
  const Poison poison;
  auto rounded = inputs(DType::f32);
  std::vector<Tensor> exact;
  for (const auto& x : rounded) exact.push_back(x.to(DType::f64));
  const auto single = run(rounded);
  EXPECT_EQ(single[0].dtype(), DType::f32);
  expect_close(single, run(exact), op().tolerance);
}

TEST_P(Operator, IsInvariantToLayout) {
  const Poison poison;
  const auto rows = inputs(DType::f32);
  const auto expected = run(rows);
  for (std::size_t only = 0; only <= rows.size(); ++only) {  // one input channels_last, then all
    auto mixed = rows;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if ((i == only || only == rows.size()) && rows[i].rank() == 4)
        mixed[i] = rows[i].to(Layout::channels_last);
    expect_close(run(mixed), expected, op().tolerance);
  }
}

TEST_P(Operator, EmptyBatchGivesEmptyOutputs) {
  if (!op().empty_batch) GTEST_SKIP();
  const Poison poison;
  for (const auto& tensor : run(inputs(DType::f32, true))) {
    if (!tensor.defined()) continue;
    for (const float v : tensor.to_vector<float>()) EXPECT_TRUE(std::isfinite(v));
  }
}

/// The inputs with nothing along axis `axis`, counted from the back, of one of them or, with `only` their
/// count, of all.
std::vector<Tensor> emptied(std::vector<Tensor> tensors, std::size_t only, int axis) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if ((i != only && only != tensors.size()) || tensors[i].rank() < axis) continue;
    Shape shape = tensors[i].shape();
    shape[shape.size() - static_cast<std::size_t>(axis)] = 0;
    tensors[i] = Tensor::zeros(shape, tensors[i].dtype());
  }
  return tensors;
}

TEST_P(Operator, HandlesOrRejectsEmptyAxes) {
  const Poison poison;
  const auto whole = inputs(DType::f32);
  int computed = 0;
  for (std::size_t only = 0; only <= whole.size(); ++only)
    for (int axis = 1; axis <= 4; ++axis) {
      const auto tensors = emptied(whole, only, axis);
      try {
        for (const auto& found : run(tensors)) computed += found.defined() ? 1 : 0;
      } catch (const ArgumentError&) {
      }
    }
  EXPECT_GT(computed, 0);
}

TEST_P(Operator, HandlesOrRejectsEmptyCodes) {
  const Poison poison;
  const auto whole = inputs(DType::f32);
  for (const Format format : {Format(IntFormat{8}), Format(IntFormat{4, true}), Format(FloatFormat{})}) {
    const auto grid = Grid::from_amax(format, {}, Tensor::scalar(2.0), "q");
    for (std::size_t only = 0; only <= whole.size(); ++only)
      for (int axis = 1; axis <= 4; ++axis) try {
          auto variables = leaves(emptied(whole, only, axis));
          for (auto& v : variables) v = ops::quantize(v, grid);
          const Variable y = ops::quantize(op().apply(variables), grid);
          if (y.requires_grad()) y.backward(Tensor::full(y.shape(), 1.0));
        } catch (const ArgumentError&) {
        }
  }
}

TEST_P(Operator, MetaInfersTheExecutedShape) {
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    std::vector<Variable> real, abstract;
    for (const auto& x : inputs(DType::f32)) {
      const Layout own = x.rank() == 4 ? layout : Layout::row_major;
      real.emplace_back(x.to(own));
      abstract.emplace_back(Tensor::empty(x.shape(), x.dtype(), Device::meta(), own));
    }
    const Tensor y = op().apply(real).tensor(), shape = op().apply(abstract).tensor();
    EXPECT_TRUE(shape.device().is_meta());
    EXPECT_EQ(shape.shape(), y.shape());
    EXPECT_EQ(shape.dtype(), y.dtype());
    EXPECT_EQ(shape.layout(), y.layout());
  }
}

TEST_P(Operator, MetaInfersTheGradientShapes) {
  const auto expected = run(inputs(DType::f32));
  std::vector<Tensor> abstract;
  for (const auto& x : inputs(DType::f32))
    abstract.push_back(Tensor::empty(x.shape(), x.dtype(), Device::meta()));
  const auto found = run(abstract);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(found[i].defined(), expected[i].defined()) << i;
    if (!found[i].defined()) continue;
    EXPECT_TRUE(found[i].device().is_meta()) << i;
    EXPECT_EQ(found[i].shape(), expected[i].shape()) << i;
    EXPECT_EQ(found[i].dtype(), expected[i].dtype()) << i;
  }
}

TEST_P(Operator, ChangedInputsNeverGiveWrongGradients) {
  const auto expected = run(inputs(DType::f32));
  for (std::size_t i = 0; i < op().inputs.size(); ++i) {
    auto tensors = inputs(DType::f32);
    const auto variables = leaves(tensors);
    const Variable y = op().apply(variables);
    const Tensor seed = Tensor::full(y.shape(), 1.0);
    auto* values = static_cast<float*>(tensors[i].mutable_raw());
    std::fill_n(values, tensors[i].numel(), 100.0f);
    try {
      y.backward(seed);
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find("changed since the forward pass"), std::string::npos)
          << error.what();
      continue;
    }
    std::vector<Tensor> got{expected[0]};
    for (const auto& v : variables) got.push_back(v.grad());
    expect_close(got, expected, 0.0);
  }
}

TEST_P(Operator, IsDeterministic) {
  const auto a = run(inputs(DType::f32)), b = run(inputs(DType::f32));
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(!a[i].defined() || bitwise_equal(a[i], b[i])) << i;
}

TEST_P(Operator, RecordsNothingWithoutGradients) {
  std::vector<Variable> constants;
  for (const auto& x : inputs(DType::f32)) constants.emplace_back(x);
  EXPECT_FALSE(op().apply(constants).requires_grad());
}

TEST_P(Operator, ReportsItselfToTheTrace) {
  Recorder recorder;
  Variable y;
  {
    const RecordScope scope(recorder);
    y = op().apply(leaves(inputs(DType::f32)));
  }
  const auto graph = recorder.finish(y);
  EXPECT_TRUE(std::ranges::any_of(graph.nodes, [&](const TraceNode& node) { return node.op == name(); }))
      << name();
  for (const auto& node : graph.nodes) EXPECT_EQ(traits(node.op).name, node.op) << "it has no row";
}

std::vector<Tensor> mapped(std::vector<Tensor> tensors, double (*f)(double)) {
  for (Tensor& x : tensors) {
    auto values = x.to(Layout::row_major).to_vector<double>();
    std::ranges::transform(values, values.begin(), f);
    x = Tensor::from(values, x.shape());
  }
  return tensors;
}

bool is_non_negative(const Tensor& x) {
  return std::ranges::all_of(x.to(Layout::row_major).to_vector<double>(), [](double v) { return v >= 0; });
}

TEST_P(Operator, MatchesItsTraits) {
  const OperatorTraits& facts = traits(name());
  const auto given = inputs();
  const Tensor y = run(given)[0];
  if (facts.is_non_negative) {
    EXPECT_TRUE(is_non_negative(y));
  }
  if (facts.keeps_sign) {
    EXPECT_TRUE(is_non_negative(run(mapped(given, [](double v) { return std::abs(v); }))[0]));
  }
  if (facts.is_homogeneous) {
    const auto twice = [](double v) { return 2 * v; };
    expect_close({run(mapped(given, twice))[0]}, mapped({y}, twice), 0);
  }
  if (!facts.moves_values) return;
  std::set<double> read;
  for (const Tensor& x : given)
    for (const double v : x.to_vector<double>()) read.insert(v);
  for (const double v : y.to(Layout::row_major).to_vector<double>()) EXPECT_TRUE(read.contains(v)) << v;
}

INSTANTIATE_TEST_SUITE_P(All, Operator, testing::ValuesIn(operator_cases()), [](const auto& tested) {
  return tested.param.op + (tested.param.variant.empty() ? "" : "_" + tested.param.variant);
});

/// Names declared as `Variable name(` in the public headers of core/ops.
std::set<std::string> declared_operators() {
  std::set<std::string> names;
  const std::regex declaration(R"(\n\[\[nodiscard\]\] Variable ([a-z0-9_]+)\()");
  for (const auto& file : std::filesystem::directory_iterator(FAKEQUANT_SOURCE_DIR "/core/ops")) {
    if (file.path().extension() != ".h") continue;
    std::stringstream text;
    text << std::ifstream(file.path()).rdbuf();
    const std::string source = text.str();
    if (source.find("not a public header") != std::string::npos) continue;
    for (std::sregex_iterator match(source.begin(), source.end(), declaration), end; match != end; ++match)
      names.insert((*match)[1]);
  }
  return names;
}

TEST(OperatorTraits, BelongToTheName) {
  const auto named = [](bool OperatorTraits::*fact) {
    std::set<std::string_view> names;
    for (const auto& row : operator_table())
      if (row.*fact) names.insert(row.name);
    return names;
  };
  using Names = std::set<std::string_view>;
  EXPECT_EQ(named(&OperatorTraits::has_weight),
            (Names{"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                   "conv_transpose3d"}));
  EXPECT_EQ(named(&OperatorTraits::is_product),
            (Names{"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                   "conv_transpose3d", "matmul"}));
  EXPECT_EQ(named(&OperatorTraits::keeps_codes),
            (Names{"max_pool2d", "max_pool3d", "flatten", "reshape", "transpose", "slice", "index_select",
                   "expand", "pad", "pixel_shuffle", "pixel_unshuffle", "resize_nearest"}));
  EXPECT_EQ(
      named(&OperatorTraits::is_non_negative),
      (Names{"relu", "relu6", "sigmoid", "hard_sigmoid", "softmax", "attention_weights", "softplus", "exp",
             "sqrt", "abs", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"}));
  EXPECT_EQ(named(&OperatorTraits::is_homogeneous),
            (Names{"relu", "leaky_relu", "max_pool2d", "avg_pool2d", "global_avg_pool2d", "max_pool3d",
                   "avg_pool3d", "global_avg_pool3d", "flatten", "dropout", "channel_dropout", "drop_path",
                   "drop_block2d", "abs", "pad"}));
  EXPECT_EQ(traits("conv_transpose2d").channel_axis(), 1);
  EXPECT_EQ(traits("conv2d").channel_axis(), 0);
  const OperatorTraits& unknown = traits("a user's own");
  EXPECT_TRUE(unknown.name.empty() && !unknown.keeps_codes && !unknown.is_product && !unknown.keeps_sign);
  std::set<std::string_view> once;
  for (const auto& row : operator_table()) EXPECT_TRUE(once.insert(row.name).second) << row.name;
}

TEST(Operators, AllHaveATest) {
  std::set<std::string> missing = declared_operators();
  EXPECT_GE(missing.size(), 20u);
  for (const auto& row : operator_table())
    if (row.run != nullptr) missing.emplace(row.name);
  for (const auto& entry : operator_cases()) {
    missing.erase(entry.op);
    missing.erase(entry.trace_name);
  }
  std::string list;
  for (const auto& name : missing) list += name + " ";
  EXPECT_EQ(list, "");
}

}  // namespace
}  // namespace fq::test
