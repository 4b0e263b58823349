#include <algorithm>

#include "fakequant/core/ops/ops.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/merge.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/dot_product_attention.h"

namespace fq::detail {
namespace {

using Made = std::shared_ptr<Module>;
using Sizes = std::vector<std::int64_t>;
using Reduce = Variable (*)(const Variable&, const std::vector<int>&, bool);

// Limits of options: a model file must not make a layer allocate without bound.
constexpr std::int64_t kLongest = LayerOptions::largest;
constexpr std::int64_t kMostElements = std::int64_t{1} << 20;  // size of an axis, or added to it
constexpr std::size_t kLongestName = 200;
constexpr std::size_t kMostIndices = std::size_t{1} << 20;

/// Makes a layer type. `read` converts the options to the function of the layer.
template <class Read>
std::pair<const std::string, LayerType> function(const char* type, std::vector<std::string> options,
                                                 Read read) {
  return {type, {std::move(options), [type, read](const LayerOptions& o) -> std::shared_ptr<Module> {
                   return std::make_shared<Function>(type, "",
                                                     [f = read(o)](const Variable& x, bool) { return f(x); });
                 }}};
}

std::pair<const std::string, LayerType> reduction(const char* type, Reduce f) {
  return function(type, {"axes", "keep_axes"}, [f](const LayerOptions& o) {
    // Tensors have up to 8 axes.
    const Sizes given = o.sizes("axes", -8, 8);
    if (given.empty()) o.fail("the option 'axes' is missing: use the axes to reduce, not the batch");
    return [f, axes = std::vector<int>(given.begin(), given.end()),
            keep = o.flag_or("keep_axes", false)](const Variable& x) { return f(x, axes, keep); };
  });
}

int axis(const LayerOptions& o, int fallback, const char* name = "axis") {
  return static_cast<int>(o.integer_or(name, fallback, -8, 8));
}

auto slice(const LayerOptions& o) {
  const int at = axis(o, 1);
  const auto begin = o.integer_or("begin", 0, -kLongest, kLongest),
             end = o.integer_or("end", kLongest, -kLongest, kLongest), step = o.integer_or("step", 1);
  return [=](const Variable& x) {
    const std::int64_t size = x.dim(at);
    // Bounds beyond the axis are clamped, as in Python and ONNX.
    return ops::slice(x, at, std::max(begin, -size), std::min(end, size), step);
  };
}

auto index_select(const LayerOptions& o) {
  const auto indices = o.sizes("indices", -kLongest, kLongest, kMostIndices);
  if (indices.empty()) o.fail("the option 'indices' is missing: use those to take along 'axis'");
  return [=, at = axis(o, 1)](const Variable& x) { return ops::index_select(x, at, indices); };
}

auto expand(const LayerOptions& o) {
  const Sizes shape = o.sizes("shape", -1, kMostElements);
  if (shape.empty()) o.fail("the option 'shape' is missing: use the sizes after the batch, -1 keeps one");
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
    o.fail("'before' and 'after' are the elements added to each of the last axes: use lists of one length");
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

/// Reads an enumeration by name. Its values begin with 0.
template <class Choice>
Choice choice(const LayerOptions& o, const char* name, const std::vector<std::string>& names,
              Choice fallback) {
  const auto given = o.choice_or(name, names[static_cast<std::size_t>(fallback)], names);
  return static_cast<Choice>(std::ranges::find(names, given) - names.begin());
}

auto resize(const LayerOptions& o) {
  ops::Resize options;
  options.sizes = o.sizes("sizes", 1, kMostElements);
  if (options.sizes.empty()) o.fail("the option 'sizes' is missing: use the sizes of the last axes");
  options.mode = choice(o, "mode", {"nearest", "linear", "cubic"}, ops::ResizeMode::nearest);
  // PyTorch's coordinates: "nearest" is asymmetric, the others are half_pixel.
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

// A network with several inputs reads one row per sample, and each part is an input of the exported file.
auto input_part(const LayerOptions& o) {
  ops::InputPart part{.begin = o.integer_or("begin", 0, 0, kLongest),
                      .shape = o.sizes("shape", 1, kLongest),
                      .name = o.text("name"),
                      .type = o.choice_or("type", "f32", ops::input_part_types())};
  if (part.name.empty() || part.name.size() > kLongestName)
    o.fail(fmt::format("'name' is the name of the input in exported files: 1 to {} bytes", kLongestName));
  return [part](const Variable& x) { return ops::input_part(x, part); };
}

auto local_response_norm(const LayerOptions& o) {
  return [size = o.integer("size"), alpha = o.number_or("alpha", 1e-4, -kLargestOption, kLargestOption),
          beta = o.number_or("beta", 0.75, -kLargestOption, kLargestOption),
          k = o.number_or("k", 1, -kLargestOption, kLargestOption)](const Variable& x) {
    return ops::local_response_norm(x, size, alpha, beta, k);
  };
}

/// Reads the value of an option of a plain function.
double plain_option(const LayerOptions& o, const OperatorOption& option) {
  const std::string name(option.name);
  // A choice is stored as the index of its name; the first one is the default.
  if (option.is_choice()) {
    const std::vector<std::string> allowed(option.choices.begin(), option.choices.end());
    return option.index(o.choice_or(name, allowed[0], allowed), name);
  }
  if (option.is_integer)
    return static_cast<double>(o.integer_or(name, static_cast<std::int64_t>(option.fallback),
                                            static_cast<std::int64_t>(option.low),
                                            static_cast<std::int64_t>(option.high)));
  return option.is_required() ? o.number(name, option.low, option.high)
                              : o.number_or(name, option.fallback, option.low, option.high);
}

/// Returns the layer types of the plain functions of the operator table.
LayerRegistry plain_types() {
  LayerRegistry all;
  for (const OperatorSchema& row : operator_table()) {
    if (row.run == nullptr) continue;
    LayerType& type = all[std::string(row.name)];
    for (const auto& option : row.options()) type.options.emplace_back(option.name);
    // The table lives as long as the program, so a reference to its row is safe.
    type.make = [&row](const LayerOptions& o) {
      std::vector<double> values;
      for (const auto& option : row.options()) values.push_back(plain_option(o, option));
      return make_function(row, std::move(values));
    };
  }
  return all;
}

Made build_reshape(const LayerOptions& o) {
  Shape shape = o.sizes("shape", -1);
  if (shape.empty()) o.fail("the option 'shape' is missing: use the sizes after the batch, one may be -1");
  return make_reshape(std::move(shape), o.flag_or("whole", false));
}

Made build_transpose(const LayerOptions& o) {
  const auto axes = o.sizes("axes", 0, 8);
  if (axes.empty()) o.fail("the option 'axes' is missing: use their order");
  return make_transpose({axes.begin(), axes.end()});
}

Made make_dot_product_attention(const LayerOptions& o) {
  ops::AttentionOptions options{.causal = o.flag_or("causal", false)};
  if (o.has("scale")) options.scale = o.number("scale", -kLargestOption, kLargestOption);
  return std::make_shared<DotProductAttention>(options);
}

template <class M>
Made build_plain(const LayerOptions&) {
  return std::make_shared<M>();
}

/// Reads the drop probability.
double drop_probability(const LayerOptions& o) { return o.number_or("p", 0.5, 0, 0.999); }

Made build_drop_block(const LayerOptions& o) {
  const auto block = o.integer_or("block", 7);
  if (block % 2 == 0) o.fail("the option 'block' is even: use an odd number");
  return make_drop_block(drop_probability(o), block);
}

/// Returns the layers with one operator and no parameters that are not plain functions.
LayerRegistry other_types() {
  const auto factor = [](auto f) {
    return [f](const LayerOptions& o) {
      return [f, by = o.integer("factor")](const Variable& x) { return f(x, by); };
    };
  };
  return {
      {"identity", {{}, [](const LayerOptions&) { return make_identity(); }}},
      {"dropout", {{"p"}, [](const LayerOptions& o) { return make_dropout(drop_probability(o)); }}},
      {"channel_dropout",
       {{"p"}, [](const LayerOptions& o) { return make_channel_dropout(drop_probability(o)); }}},
      {"drop_path", {{"p"}, [](const LayerOptions& o) { return make_drop_path(drop_probability(o)); }}},
      {"alpha_dropout",
       {{"p", "channels"},
        [](const LayerOptions& o) {
          return make_alpha_dropout(drop_probability(o), o.flag_or("channels", false));
        }}},
      {"drop_block", {{"p", "block"}, build_drop_block}},
      {"flatten",
       {{"start_axis"}, [](const LayerOptions& o) { return make_flatten(axis(o, 1, "start_axis")); }}},
      {"reshape", {{"shape", "whole"}, build_reshape}},
      {"transpose", {{"axes"}, build_transpose}},
      {"scaled_dot_product_attention", {{"causal", "scale"}, make_dot_product_attention}},
      {"add", {{}, build_plain<Add>}},
      {"multiply", {{}, build_plain<Multiply>}},
      {"concat", {{"axis"}, [](const LayerOptions& o) { return std::make_shared<Concat>(axis(o, 1)); }}},
      reduction("sum", ops::sum),
      reduction("mean", ops::mean),
      reduction("max", ops::max),
      reduction("min", ops::min),
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

LayerRegistry standard_layer_types() {
  // merge keeps the entries of `all`: types with readers of their own come first.
  LayerRegistry all = other_types();
  all.merge(plain_types());
  all.merge(weighted_layer_types());
  all.merge(window_layer_types());
  return all;
}

}  // namespace fq::detail
