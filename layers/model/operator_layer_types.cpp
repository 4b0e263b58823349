#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/modules/activation.h"

namespace fq::detail {
namespace {

using Inputs = std::vector<Variable>;
using Sizes = std::vector<std::int64_t>;
using One = Variable (*)(const Variable&);
using Two = Variable (*)(const Variable&, const Variable&);
using Reduce = Variable (*)(const Variable&, const std::vector<int>&, bool);

constexpr std::int64_t kLongest = LayerOptions::largest;
constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // made of an axis, or added to it
constexpr std::size_t kLongestName = 200;
constexpr std::size_t kMostIndices = std::size_t{1} << 20;

/// A type whose `read` makes of the options the function that it is.
template <class Read>
std::pair<const std::string, LayerType> function(const char* type, std::vector<std::string> options,
                                                 Read read) {
  return {type, {std::move(options), [type, read](const LayerOptions& o) -> std::shared_ptr<Module> {
                   return std::make_shared<Function>(type, "",
                                                     [f = read(o)](const Variable& x, bool) { return f(x); });
                 }}};
}

std::pair<const std::string, LayerType> of_one(const char* type, One f) {
  return function(type, {}, [f](const LayerOptions&) { return f; });
}

/// A type of so many inputs.
template <class F>
std::pair<const std::string, LayerType> of_several(const char* type, std::size_t count, F f) {
  return {type, {{}, [type, count, f](const LayerOptions&) -> std::shared_ptr<Module> {
                   return std::make_shared<FunctionOfSeveral>(type, "", [=](const Inputs& x) {
                     FQ_CHECK(x.size() == count, type, "{} inputs: it takes {}", x.size(), count);
                     return f(x);
                   });
                 }}};
}

std::pair<const std::string, LayerType> of_two(const char* type, Two f) {
  return of_several(type, 2, [f](const Inputs& x) { return f(x[0], x[1]); });
}

std::pair<const std::string, LayerType> reduction(const char* type, Reduce f) {
  return function(type, {"axes", "keep_axes"}, [f](const LayerOptions& o) {
    const Sizes given = o.sizes("axes", -8, 8);
    if (given.empty()) o.fail("the option 'axes' is missing: give those that go, not the batch");
    return [f, axes = std::vector<int>(given.begin(), given.end()),
            keep = o.flag_or("keep_axes", false)](const Variable& x) { return f(x, axes, keep); };
  });
}

int axis(const LayerOptions& o, int fallback) {
  return static_cast<int>(o.integer_or("axis", fallback, -8, 8));
}

auto slice(const LayerOptions& o) {
  const int at = axis(o, 1);
  const auto begin = o.integer_or("begin", 0, -kLongest, kLongest),
             end = o.integer_or("end", kLongest, -kLongest, kLongest), step = o.integer_or("step", 1);
  return [=](const Variable& x) {
    const std::int64_t size = x.dim(at);
    return ops::slice(x, at, std::max(begin, -size), std::min(end, size), step);
  };
}

auto index_select(const LayerOptions& o) {
  const auto indices = o.sizes("indices", -kLongest, kLongest, kMostIndices);
  if (indices.empty()) o.fail("the option 'indices' is missing: give those to take along 'axis'");
  return [=, at = axis(o, 1)](const Variable& x) { return ops::index_select(x, at, indices); };
}

auto expand(const LayerOptions& o) {
  const Sizes shape = o.sizes("shape", -1, kMostElements);
  if (shape.empty()) o.fail("the option 'shape' is missing: give the sizes after the batch, -1 keeps one");
  return [=](const Variable& x) {
    Shape full{x.dim(0)};
    full.insert(full.end(), shape.begin(), shape.end());
    return ops::expand(x, full);
  };
}

auto pad(const LayerOptions& o) {
  const Sizes before = o.sizes("before", -kLongest, kMostElements),
              after = o.sizes("after", -kLongest, kMostElements);
  if (before.size() != after.size() || before.empty())
    o.fail("'before' and 'after' are the elements added to each of the last axes: give as many of both");
  std::vector<std::array<std::int64_t, 2>> sizes;
  for (std::size_t i = 0; i < before.size(); ++i) sizes.push_back({before[i], after[i]});
  const auto mode = o.choice_or("mode", "constant", {"constant", "reflect", "replicate", "circular"});
  const auto kind = mode == "reflect"     ? ops::PadMode::reflect
                    : mode == "replicate" ? ops::PadMode::replicate
                    : mode == "circular"  ? ops::PadMode::circular
                                          : ops::PadMode::constant;
  const double value = o.number_or("value", 0, -kLargestOption, kLargestOption);
  return [=](const Variable& x) { return ops::pad(x, sizes, kind, value); };
}

/// One of the names of an enumeration whose values begin with 0.
template <class Choice>
Choice choice(const LayerOptions& o, const char* name, const std::vector<std::string>& names,
              Choice fallback) {
  const auto given = o.choice_or(name, names[static_cast<std::size_t>(fallback)], names);
  return static_cast<Choice>(std::ranges::find(names, given) - names.begin());
}

auto resize(const LayerOptions& o) {
  ops::Resize options;
  options.sizes = o.sizes("sizes", 1, kMostElements);
  if (options.sizes.empty()) o.fail("the option 'sizes' is missing: give those of the last axes");
  options.mode = choice(o, "mode", {"nearest", "linear", "cubic"}, ops::ResizeMode::nearest);
  const auto usual = options.mode == ops::ResizeMode::nearest ? ops::ResizeCoordinates::asymmetric
                                                              : ops::ResizeCoordinates::half_pixel;
  options.coordinates =
      choice(o, "coordinates", {"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"}, usual);
  options.rounding =
      choice(o, "rounding", {"prefer_floor", "prefer_ceil", "floor", "ceil"}, ops::ResizeRounding::floor);
  options.cubic = o.number_or("cubic", -0.75, -8, 8);
  if (o.has("scales")) options.scales = o.numbers("scales", 1e-6, 1e6);
  return [options](const Variable& x) { return ops::resize(x, options); };
}

auto input_part(const LayerOptions& o) {
  ops::InputPart part{.begin = o.integer_or("begin", 0, 0, kLongest),
                      .shape = o.sizes("shape", 1, kLongest),
                      .name = o.text("name"),
                      .type = o.choice_or("type", "f32", ops::input_part_types())};
  if (part.name.empty() || part.name.size() > kLongestName)
    o.fail(fmt::format("'name' is what the input is called in exported files: 1 to {} bytes", kLongestName));
  return [part](const Variable& x) { return ops::input_part(x, part); };
}

auto local_response_norm(const LayerOptions& o) {
  return [size = o.integer("size"), alpha = o.number_or("alpha", 1e-4, -kLargestOption, kLargestOption),
          beta = o.number_or("beta", 0.75, -kLargestOption, kLargestOption),
          k = o.number_or("k", 1, -kLargestOption, kLargestOption)](const Variable& x) {
    return ops::local_response_norm(x, size, alpha, beta, k);
  };
}

/// A function of one number, whose option has a fallback.
template <class F>
std::pair<const std::string, LayerType> of_number(const char* type, const char* option, double fallback,
                                                  F f) {
  return function(type, {option}, [=](const LayerOptions& o) {
    return [f, by = o.number_or(option, fallback, -kLargestOption, kLargestOption)](const Variable& x) {
      return f(x, by);
    };
  });
}

LayerRegistry arithmetic_types() {
  return {
      of_two("sub", ops::sub),
      of_two("div", ops::div),
      of_two("pow", ops::pow),
      of_two("minimum", ops::minimum),
      of_two("maximum", ops::maximum),
      of_two("less", ops::less),
      of_two("less_equal", ops::less_equal),
      of_two("greater", ops::greater),
      of_two("greater_equal", ops::greater_equal),
      of_two("equal", ops::equal),
      of_two("not_equal", ops::not_equal),
      of_two("matmul", [](const Variable& a, const Variable& b) { return ops::matmul(a, b); }),
      of_several("where", 3, [](const Inputs& x) { return ops::where(x[0], x[1], x[2]); }),
      of_number("scale", "factor", 1, ops::scale),
      of_number("shift", "by", 0, ops::shift),
      of_number("power", "exponent", 1, static_cast<Variable (*)(const Variable&, double)>(ops::pow)),
      of_one("neg", ops::neg),
      of_one("reciprocal", ops::reciprocal),
      of_one("exp", ops::exp),
      of_one("log", ops::log),
      of_one("sqrt", ops::sqrt),
      of_one("abs", ops::abs),
      of_one("erf", ops::erf),
      of_one("sin", ops::sin),
      of_one("cos", ops::cos),
      of_one("floor", ops::floor),
      of_one("ceil", ops::ceil),
      of_one("round", ops::round),
      of_one("sign", ops::sign),
      of_one("trunc", ops::trunc),
      function("round_to", {"type"},
               [](const LayerOptions& o) {
                 return [type = dtype_from_name(o.choice_or("type", "f16", {"f16", "bf16"}))](
                            const Variable& x) { return ops::round_to(x, type); };
               }),
      reduction("sum", ops::sum),
      reduction("mean", ops::mean),
      reduction("max", ops::max),
      reduction("min", ops::min),
  };
}

LayerRegistry activation_types() {
  return {
      of_number("elu", "alpha", 1, ops::elu),
      of_number("celu", "alpha", 1, ops::celu),
      of_one("selu", ops::selu),
      of_one("mish", ops::mish),
      of_one("log_sigmoid", ops::log_sigmoid),
      of_one("softsign", ops::softsign),
      function("softplus", {"beta", "threshold"},
               [](const LayerOptions& o) {
                 return [beta = o.number_or("beta", 1, 1e-6, kLargestOption),
                         threshold = o.number_or("threshold", 20, -kLargestOption, kLargestOption)](
                            const Variable& x) { return ops::softplus(x, beta, threshold); };
               }),
      function("glu", {"axis"},
               [](const LayerOptions& o) {
                 return [at = axis(o, -1)](const Variable& x) { return ops::glu(x, at); };
               }),
  };
}

LayerRegistry moving_types() {
  const auto factor = [](auto f) {
    return [f](const LayerOptions& o) {
      return [f, by = o.integer("factor")](const Variable& x) { return f(x, by); };
    };
  };
  return {
      function("slice", {"axis", "begin", "end", "step"}, slice),
      function("input_part", {"begin", "shape", "name", "type"}, input_part),
      function("index_select", {"axis", "indices"}, index_select),
      function("expand", {"shape"}, expand),
      function("pad", {"before", "after", "mode", "value"}, pad),
      function("resize", {"sizes", "scales", "mode", "coordinates", "rounding", "cubic"}, resize),
      function("pixel_shuffle", {"factor"}, factor(ops::pixel_shuffle)),
      function("pixel_unshuffle", {"factor"}, factor(ops::pixel_unshuffle)),
      function("local_response_norm", {"size", "alpha", "beta", "k"}, local_response_norm),
  };
}

}  // namespace

LayerRegistry operator_layer_types() {
  LayerRegistry all = arithmetic_types();
  all.merge(activation_types());
  all.merge(moving_types());
  return all;
}

}  // namespace fq::detail
