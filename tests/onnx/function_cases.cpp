#include "onnx/operator_cases.h"

namespace fq::test {
namespace {

using Two = Variable (*)(const Variable&, const Variable&);

/// x moved to 0.5 .. 3.5.
Variable above(const Variable& x) { return ops::shift(ops::scale(x, 0.5), 2.0); }

}  // namespace

void add_arithmetic(Cases& cases) {
  const std::pair<const char*, Two> pairs[] = {{"minimum", ops::minimum}, {"maximum", ops::maximum}};
  for (const auto& [name, f] : pairs)
    cases.add(name, {6}, [f = f](auto& x, auto& p) { return f(x, p[0]); }, {row(6)});
  const std::pair<const char*, Two> comparisons[] = {
      {"less", ops::less},       {"less_equal", ops::less_equal},
      {"greater", ops::greater}, {"greater_equal", ops::greater_equal},
      {"equal", ops::equal},     {"not_equal", ops::not_equal}};
  for (const auto& [name, f] : comparisons)  // whole numbers, some of them equal
    cases.add(name, {6}, [f = f](auto& x, auto& p) { return f(ops::round(x), ops::round(p[0])); },
              {row(6, -2, 2)});
  cases.add("where", {6}, [](auto& x, auto& p) { return ops::where(ops::greater(x, p[0]), x, p[0]); },
            {row(6)});
  cases.add("div", {6}, [](auto& x, auto& p) { return ops::div(x, p[0]); }, {row(6, 0.5, 2)});
  cases.add("pow", {6}, [](auto& x, auto& p) { return ops::pow(above(x), p[0]); }, {row(6)});
  cases.add("power", {6}, [](auto& x, auto&) { return ops::pow(above(x), 1.7); });
  cases.add("square", {6}, [](auto& x, auto&) { return ops::pow(x, 2.0); });
  cases.add("sum", {4, 6}, [](auto& x, auto&) { return ops::sum(x, {1}); });
  cases.add("mean", {4, 6}, [](auto& x, auto&) { return ops::mean(x, {-1}, true); });
  cases.add("max", {4, 6}, [](auto& x, auto&) { return ops::max(x, {1, 2}); });
  cases.add("min", {4, 6}, [](auto& x, auto&) { return ops::min(x, {1}, true); });
}

void add_functions(Cases& cases) {
  for (const DType type : {DType::f16, DType::bf16})
    cases.add("round_to_" + std::string(name(type)), {6},
              [type](auto& x, auto&) { return ops::round_to(x, type); });
  cases.add("log", {6}, [](auto& x, auto&) { return ops::log(above(x)); });
  cases.add("sqrt", {6}, [](auto& x, auto&) { return ops::sqrt(above(x)); });
  cases.add("elu", {6}, [](auto& x, auto&) { return ops::elu(x, 0.7); });
  cases.add("celu", {6}, [](auto& x, auto&) { return ops::celu(x, 0.7); });
  cases.add("softplus_of_many", {6}, [](auto& x, auto&) { return ops::softplus(ops::scale(x, 20), 3); });
  cases.add("prelu", {3, 4, 4}, [](auto& x, auto& p) { return ops::prelu(x, p[0]); }, {row(3)});
  cases.add("prelu_of_one", {3, 4, 4}, [](auto& x, auto& p) { return ops::prelu(x, p[0]); }, {row(1)});
  cases.add("glu", {4, 6}, [](auto& x, auto&) { return ops::glu(x, 1); });
}

void add_norms(Cases& cases) {
  const std::vector<Tensor> channels{row(4), row(4, -0.5, 0.5)};
  cases.add(
      "group_norm", {4, 3, 5}, [](auto& x, auto& p) { return ops::group_norm(x, 2, p[0], p[1]); }, channels);
  cases.add("group_norm_plain", {4, 5}, [](auto& x, auto&) { return ops::group_norm(x, 2, {}, {}); });
  cases.add(
      "instance_norm", {4, 3, 5}, [](auto& x, auto& p) { return ops::instance_norm(x, p[0], p[1]); },
      channels);
  cases.add("rms_norm", {4, 6}, [](auto& x, auto& p) { return ops::rms_norm(x, p[0]); }, {row(6)});
  cases.add("rms_norm_plain", {4, 6}, [](auto& x, auto&) { return ops::rms_norm(x, {}, 2, 1e-3); });
  for (const int size : {3, 5})
    cases.add("local_response_norm_" + std::to_string(size), {7, 3, 2},
              [size](auto& x, auto&) { return ops::local_response_norm(x, size, 0.3, 0.75, 1.5); });
}

void add_recurrent(Cases& cases) {
  const auto weights = [](std::int64_t rows) {
    return std::vector<Tensor>{random_tensor({rows, 3}, -1, 1, 3), random_tensor({rows, 4}, -1, 1, 4),
                               row(rows), row(rows, -0.5, 0.5), random_tensor({1, 4}, -1, 1, 5)};
  };
  for (const bool reverse : {false, true}) {
    const std::string end = reverse ? "_reverse" : "";
    cases.add(
        "lstm" + end, {5, 3},
        [reverse](auto& x, auto& p) {
          return ops::lstm(x, {p[0], p[1], p[2], p[3]}, {}, {}, reverse);
        },
        weights(16));
    cases.add(
        "gru" + end, {5, 3},
        [reverse](auto& x, auto& p) {
          return ops::gru(x, {p[0], p[1], p[2], p[3]}, {}, reverse);
        },
        weights(12));
    for (const bool relu : {false, true})
      cases.add((relu ? "rnn_relu" : "rnn_tanh") + end, {5, 3},
                [reverse, relu](auto& x, auto& p) {
                  return ops::rnn(x, {p[0], p[1], p[2], p[3]}, {}, relu, reverse);
                },
                weights(4));
  }
  cases.add(
      "lstm_states", {5, 3},
      [](auto& x, auto& p) {
        const Variable h = ops::expand(p[4], {x.dim(0), 4});
        return ops::lstm(x, {p[0], p[1]}, h, ops::neg(h));
      },
      weights(16));
  cases.add(
      "gru_states", {5, 3},
      [](auto& x, auto& p) {
        return ops::gru(x, {p[0], p[1]}, ops::expand(p[4], {x.dim(0), 4}));
      },
      weights(12));
}

/// Every mode of coordinates and rounding, up and down.
void add_resizes(Cases& cases) {
  const char* coordinates[] = {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"};
  const std::vector<std::vector<std::int64_t>> sizes{{8, 10}, {7, 3}, {1, 13}};
  for (int c = 0; c < 4; ++c)
    for (const auto& to : sizes) {
      const auto add = [&](const std::string& mode, ops::Resize options) {
        options.sizes = to;
        options.coordinates = static_cast<ops::ResizeCoordinates>(c);
        cases.add("resize_" + mode + "_" + coordinates[c] + "_" + std::to_string(to[0]), {2, 4, 5},
                  [options](auto& x, auto&) { return ops::resize(x, options); });
      };
      add("linear", {.mode = ops::ResizeMode::linear});
      add("cubic", {.mode = ops::ResizeMode::cubic});
      for (int r = 0; r < 4; ++r)
        add("nearest" + std::to_string(r), {.rounding = static_cast<ops::ResizeRounding>(r)});
    }
  cases.add("resize_by_scales", {2, 4, 5}, [](auto& x, auto&) {
    return ops::resize(x, {.sizes = {6, 8},
                           .mode = ops::ResizeMode::linear,
                           .coordinates = ops::ResizeCoordinates::half_pixel,
                           .scales = {1.7, 1.7}});
  });
}

}  // namespace fq::test
