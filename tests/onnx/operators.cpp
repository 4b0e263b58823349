/// Writes one graph for each operator and reference function that an export supports, with this library's
/// outputs: `onnx_operators FOLDER` makes FOLDER/<case>.onnx and FOLDER/cases.h5 with <case>/x, <case>/y;
/// likewise FOLDER/sums.h5 for integer layers whose sums are moved before they are rounded.

#include "fakequant/core/ops/operators.h"

#include "fakequant/reference/modelopt.h"
#include "fakequant/reference/pytorch_quantization.h"
#include "onnx/operator_cases.h"

namespace {

using namespace fq;  // NOLINT: a program of one purpose
using test::Cases;
using test::row;
using test::Weights;

void add_elementwise(Cases& cases) {
  cases.add("relu6", {6}, [](auto& x, auto&) { return ops::relu6(ops::scale(x, 4)); });
  cases.add("clip", {6}, [](auto& x, auto&) { return ops::clip(x, -0.7, 1.1); });
  cases.add("leaky_relu", {6}, [](auto& x, auto&) { return ops::leaky_relu(x, 0.2); });
  cases.add("gelu_tanh", {6}, [](auto& x, auto&) { return ops::gelu(x, true); });
  cases.add("scale", {6}, [](auto& x, auto&) { return ops::scale(x, 0.3); });
  cases.add("add_exact", {6}, [](auto& x, auto&) { return ops::add(x, ops::relu(x)); });
  cases.add("add", {6}, [](auto& x, auto&) { return ops::add(x, ops::tanh(x)); });
  cases.add("multiply", {2, 6}, [](auto& x, auto&) { return ops::multiply(x, ops::slice(x, 1, 0, 1)); });
  cases.add("softmax", {4, 6}, [](auto& x, auto&) { return ops::softmax(x, 1); });
}

void add_moves(Cases& cases) {
  cases.add("reshape", {4, 6}, [](auto& x, auto&) { return ops::reshape(x, {x.dim(0), 3, 8}); });
  cases.add("reshape_into_batch", {4, 6}, [](auto& x, auto&) { return ops::reshape(x, {x.dim(0) * 4, 6}); });
  cases.add("flatten", {4, 6}, [](auto& x, auto&) { return ops::flatten(x); });
  cases.add("flatten_late", {4, 3, 2}, [](auto& x, auto&) { return ops::flatten(x, 2); });
  cases.add("transpose", {4, 6}, [](auto& x, auto&) { return ops::transpose(x, {0, 2, 1}); });
  cases.add("slice", {4, 6}, [](auto& x, auto&) { return ops::slice(x, 2, 1, -1); });
  cases.add("concat", {4, 6}, [](auto& x, auto&) { return ops::concat({x, ops::neg(x)}, -1); });
  cases.add("identity", {4}, [](auto& x, auto&) { return x; });
  using enum ops::PadMode;
  cases.add("slice_step", {4, 7}, [](auto& x, auto&) { return ops::slice(x, 2, 1, 7, 3); });
  cases.add("index_select", {4, 6}, [](auto& x, auto&) { return ops::index_select(x, -1, {5, 0, -2, 0}); });
  cases.add("input_part", {6},
            [](auto& x, auto&) { return ops::input_part(x, {.shape = {6}, .name = "input"}); });
  cases.add("expand", {1, 6}, [](auto& x, auto&) { return ops::expand(x, {x.dim(0), 3, 6}); });
  cases.add("expand_to_batch", {1, 6},
            [](auto& x, auto& p) {
              return ops::add(x, ops::expand(p[0], {x.dim(0), 2, 6}));
            },
            {test::random_tensor({1, 1, 6}, -1, 1, 3)});
  cases.add("pad", {2, 4, 6}, [](auto& x, auto&) { return ops::pad(x, {{1, 2}, {0, 3}}); });
  cases.add("pad_crop", {2, 4, 6}, [](auto& x, auto&) { return ops::pad(x, {{1, -2}, {-1, 0}}); });
  cases.add("pad_constant", {4, 6}, [](auto& x, auto&) { return ops::pad(x, {{2, 1}}, constant, -0.5); });
  cases.add("pad_reflect", {2, 4, 6}, [](auto& x, auto&) { return ops::pad(x, {{1, 3}, {5, 2}}, reflect); });
  cases.add("pad_replicate", {2, 4, 6}, [](auto& x, auto&) {
    return ops::pad(x, {{1, 5}, {7, 2}}, replicate);
  });
  cases.add("pad_circular", {2, 4, 6}, [](auto& x, auto&) {
    return ops::pad(x, {{1, 3}, {6, 2}}, circular);
  });
  cases.add("pixel_shuffle", {8, 3, 2}, [](auto& x, auto&) { return ops::pixel_shuffle(x, 2); });
  cases.add("pixel_unshuffle", {2, 6, 4}, [](auto& x, auto&) { return ops::pixel_unshuffle(x, 2); });
}

void add_products(Cases& cases) {
  const Tensor w = test::random_tensor({5, 6}, -1, 1, 3), image = test::random_tensor({6, 2, 3, 3}, -1, 1, 4);
  const auto linear = [](auto& x, auto& p) { return ops::linear(x, p[0], p[1]); };
  const auto without_bias = [](auto& x, auto& p) { return ops::linear(x, p[0], {}); };
  cases.add("linear", {6}, linear, {w, row(5)});
  cases.add("linear_without_bias", {6}, without_bias, {w});
  cases.add("linear_of_rows", {4, 6}, linear, {w, row(5)});
  cases.add("linear_of_rows_without_bias", {4, 6}, without_bias, {w});
  cases.add("matmul", {4, 6}, [](auto& x, auto&) { return ops::matmul(x, ops::transpose(x, {0, 2, 1})); });
  cases.add("matmul_turned", {4, 6}, [](auto& x, auto&) { return ops::matmul(x, x, true); });
  const auto heads = [](const Variable& x, std::int64_t begin, std::int64_t end) {
    return ops::slice(x, 1, begin, end);
  };
  cases.add("scaled_dot_product_attention", {6, 5, 4}, [=](auto& x, auto&) {
    return ops::scaled_dot_product_attention(heads(x, 0, 4), heads(x, 4, 5), heads(x, 5, 6),
                                             {.causal = true});
  });
  cases.add("scaled_dot_product_attention_masked", {4, 3, 4}, [=](auto& x, auto&) {
    const Variable mask = ops::slice(heads(x, 0, 1), 3, 0, 3);
    return ops::scaled_dot_product_attention(x, x, x, {}, mask);
  });
  cases.add("attention_weights", {6, 5, 7},
            [](auto& x, auto&) { return ops::attention_weights(x, {.causal = true, .scale = 0.3}); });
  cases.add("attention_weights_masked", {2, 5, 5},
            [=](auto& x, auto&) { return ops::attention_weights(x, {}, heads(x, 0, 1)); });
  cases.add("rotary", {2, 5, 6}, [](auto& x, auto&) { return ops::rotary(x, {.first = 2, .dims = 4}); });
  cases.add("rotary_scaled", {2, 5, 4}, [](auto& x, auto&) {
    return ops::rotary(x, {.first = 1, .frequencies = {0.7, 0.02}, .magnitude = 1.3});
  });
  cases.add("rotary_interleaved", {5, 4},
            [](auto& x, auto&) { return ops::rotary(x, {.interleaved = true}); });
  cases.add("conv2d", {4, 7, 8},
            [](auto& x, auto& p) {
              return ops::conv2d(x, p[0], p[1],
                                 {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2});
            },
            {image, row(6)});
  cases.add("conv1d", {4, 9},
            [](auto& x, auto& p) {
              return ops::conv1d(x, p[0], {}, {.stride = {2}, .padding = {1}, .dilation = {1}, .groups = 1});
            },
            {test::random_tensor({3, 4, 3}, -1, 1, 5)});
  cases.add("conv_transpose2d", {6, 4, 5},
            [](auto& x, auto& p) {
              return ops::conv_transpose2d(
                  x, p[0], p[1], {.stride = {2}, .padding = {1}, .dilation = {1}, .groups = 2}, {1});
            },
            {image, row(4)});
  cases.add("conv1d_mirrored", {4, 9},
            [](auto& x, auto& p) {
              return ops::conv1d(x, p[0], {}, {{1}, {2}, {1}, 1, {}, ops::PadMode::reflect});
            },
            {test::random_tensor({3, 4, 3}, -1, 1, 5)});
  cases.add("conv3d", {4, 5, 6, 4},
            [](auto& x, auto& p) {
              return ops::conv3d(
                  x, p[0], p[1],
                  {.stride = {2, 1, 1}, .padding = {1, 2, 0}, .dilation = {1, 2, 1}, .groups = 2});
            },
            {test::random_tensor({6, 2, 3, 3, 2}, -1, 1, 6), row(6)});
  cases.add("conv_transpose1d", {6, 5},
            [](auto& x, auto& p) {
              return ops::conv_transpose1d(x, p[0], {}, {{2}, {1}, {}, 1}, {1});
            },
            {test::random_tensor({6, 4, 3}, -1, 1, 7)});
  cases.add("conv_transpose3d", {6, 3, 4, 5},
            [](auto& x, auto& p) {
              return ops::conv_transpose3d(
                  x, p[0], p[1],
                  {.stride = {2, 1, 2}, .padding = {1, 0, 1}, .dilation = {2, 1, 1}, .groups = 2}, {1, 0, 0});
            },
            {test::random_tensor({6, 2, 3, 2, 3}, -1, 1, 8), row(4)});
}

void add_volume_pools(Cases& cases) {
  const ops::Pool3d padded{.kernel = {3, 2, 2}, .stride = {2, 1, 2}, .padding = {1, 1, 0}},
      up{.kernel = {2, 3, 2}, .stride = {2, 2, 3}, .padding = {0, 1, 0}, .ceil_mode = true},
      uneven{.kernel = {3, 2, 2}, .stride = {2, 2, 1}, .padding = {0, 1, 0}, .padding_end = {2, 0, 1}},
      dilated{.kernel = {2, 3, 2}, .stride = {1, 1, 2}, .padding = {1, 1, 0}, .dilation = {2, 1, 3}};
  const std::pair<const char*, ops::Pool3d> all[]{{"", padded}, {"_ceil", up}, {"_uneven", uneven}};
  for (const auto& [name, options] : all) {
    cases.add(std::string("max_pool3d") + name, {2, 5, 6, 7},
              [options = options](auto& x, auto&) { return ops::max_pool3d(x, options); });
    for (const bool include : {true, false}) {
      ops::Pool3d of = options;
      of.count_include_pad = include;
      cases.add(std::string("avg_pool3d") + name + (include ? "" : "_of_inputs"), {2, 5, 6, 7},
                [of](auto& x, auto&) { return ops::avg_pool3d(x, of); });
    }
  }
  cases.add("max_pool3d_dilated", {2, 5, 6, 7},
            [dilated](auto& x, auto&) { return ops::max_pool3d(x, dilated); });
  cases.add("global_avg_pool3d", {2, 5, 6, 7}, [](auto& x, auto&) { return ops::global_avg_pool3d(x); });
  cases.add("adaptive_avg_pool3d", {2, 5, 6, 7}, [](auto& x, auto&) {
    return ops::adaptive_avg_pool3d(x, {3, 2, 4});
  });
  cases.add("batch_norm_of_volumes", {3, 4, 4, 2},
            [](auto& x, auto& p) { return ops::batch_norm(x, p[0], p[1], row(3), row(3, 0.5, 2), false); },
            {row(3), row(3)});
}

void add_layers(Cases& cases) {
  cases.add("max_pool2d", {2, 7, 8}, [](auto& x, auto&) {
    return ops::max_pool2d(x, {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}});
  });
  for (const bool padded : {true, false})
    cases.add(padded ? "avg_pool2d" : "avg_pool2d_of_inputs", {2, 7, 8}, [padded](auto& x, auto&) {
      return ops::avg_pool2d(
          x, {.kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 1}, .count_include_pad = padded});
    });
  cases.add("max_pool1d", {2, 9},
            [](auto& x, auto&) { return ops::max_pool1d(x, {.kernel = 3, .stride = 2, .padding = 1}); });
  const ops::Pool2d up{.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 1}, .ceil_mode = true},
      uneven{.kernel = {3, 2}, .stride = {2, 2}, .padding = {0, 1}, .padding_end = {2, 0}};
  for (const bool padded : {true, false}) {
    const std::string end = padded ? "" : "_of_inputs";
    ops::Pool2d of_up = up, of_uneven = uneven;
    of_up.count_include_pad = of_uneven.count_include_pad = padded;
    cases.add("avg_pool2d_ceil" + end, {2, 7, 8},
              [of_up](auto& x, auto&) { return ops::avg_pool2d(x, of_up); });
    cases.add("avg_pool2d_uneven" + end, {2, 7, 8},
              [of_uneven](auto& x, auto&) { return ops::avg_pool2d(x, of_uneven); });
  }
  cases.add("max_pool2d_ceil", {2, 7, 8}, [up](auto& x, auto&) { return ops::max_pool2d(x, up); });
  cases.add("max_pool2d_uneven", {2, 7, 8}, [uneven](auto& x, auto&) { return ops::max_pool2d(x, uneven); });
  cases.add("max_pool2d_dilated", {2, 7, 8}, [](auto& x, auto&) {
    return ops::max_pool2d(x, {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 1}, .dilation = {2, 3}});
  });
  cases.add("adaptive_avg_pool2d", {2, 7, 8}, [](auto& x, auto&) {
    return ops::adaptive_avg_pool2d(x, {3, 5});
  });
  cases.add("global_avg_pool2d", {2, 7, 8}, [](auto& x, auto&) { return ops::global_avg_pool2d(x); });
  cases.add("batch_norm", {3, 4, 4},
            [](auto& x, auto& p) { return ops::batch_norm(x, p[0], p[1], row(3), row(3, 0.5, 2), false); },
            {row(3), row(3)});
  cases.add("batch_norm_plain", {3},
            [](auto& x, auto&) { return ops::batch_norm(x, {}, {}, row(3), row(3, 0.5, 2), false); });
  cases.add("layer_norm", {4, 6}, [](auto& x, auto& p) { return ops::layer_norm(x, p[0], p[1]); },
            {row(6), row(6)});
  cases.write("embedding", {3}, Tensor::from({0.0f, 8.0f, 3.0f, 1.0f, 1.0f, 2.0f}, {2, 3}),
              [](auto& ids, auto& p) { return ops::embedding(ids, p[0]); },
              {test::random_tensor({9, 4}, -1, 1, 6)});
  cases.write("embedding_of_moved_ids", {4}, Tensor::from<std::int64_t>({0, 8, 3, 1, 1, 2, 5, 4}, {2, 4}),
              [](auto& ids, auto& p) {
                const Variable pairs = ops::transpose(ops::reshape(ids, {ids.dim(0), 2, 2}), {0, 2, 1});
                return ops::embedding(ops::slice(pairs, 1, 1, 2), p[0]);
              },
              {test::random_tensor({9, 4}, -1, 1, 6)});
  cases.write("embedding_and_its_ids", {3}, Tensor::from({0.0f, 8.0f, 3.0f, 1.0f, 1.0f, 2.0f}, {2, 3}),
              [](auto& ids, auto& p) {
                return ops::add(ops::embedding(ids, p[0]), ops::reshape(ids, {ids.dim(0), 3, 1}));
              },
              {test::random_tensor({9, 4}, -1, 1, 6)});
}

/// Powers of two as scales: dividing and multiplying by them are the same.
void add_references(Cases& cases) {
  cases.add("fake_tensor_quant", {6},
            [](auto& x, auto&) { return fake_tensor_quant(x, 127.0 / 64, {}, 8, false, false); });
  cases.add("fake_tensor_quant_narrow", {6}, [](auto& x, auto&) { return fake_tensor_quant(x, 127.0 / 64); });
  cases.add("fake_tensor_quant_unsigned", {6},
            [](auto& x, auto&) { return fake_tensor_quant(ops::relu(x), 255.0 / 128, {}, 8, true); });
  cases.add("fake_tensor_quant_channels", {3, 2}, [](auto& x, auto&) {
    return fake_tensor_quant(x, Tensor::from({127.0f / 64, 127.0f / 128, 127.0f / 32}, {3, 1}), {}, 8, false,
                             false);
  });
  cases.add("scaled_e4m3", {6}, [](auto& x, auto&) { return scaled_e4m3(x, 1.75); });
  cases.add("tensor_quant", {6}, [](auto& x, auto&) {
    return pytorch_quantization::tensor_quant(x, 127.0 / 64, 8, false, false).codes;
  });
  cases.add("weights_of_fake_tensor_quant", {6},
            [](auto& x, auto& p) {
              return ops::linear(x, fake_tensor_quant(p[0], Tensor::full({5, 1}, 127.0 / 128)), p[1]);
            },
            {test::random_tensor({5, 6}, -1, 1, 3), row(5)});
}

/// A convolution of codes.
Variable make_sums(const Variable& x, const Weights& p) {
  const auto of_x = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(2.9), "conv.input_quantizer");
  const auto of_w = Grid::from_amax(IntFormat{8, false, true}, Granularity::per_axis(0), row(6, 0.6F, 1),
                                    "conv.weight_quantizer");
  return ops::conv2d(ops::quantize(x, of_x), ops::quantize(p[0], of_w), p[1],
                     {.stride = {1}, .padding = {1}, .dilation = {1}, .groups = 1});
}

std::vector<std::pair<std::string, std::function<Variable(const Variable&)>>> sum_moves() {
  const auto shuffled = [](const Variable& y) {
    const Variable groups = ops::reshape(y, {y.dim(0), 3, 2, y.dim(2), y.dim(3)});
    return ops::reshape(ops::transpose(groups, {0, 2, 1, 3, 4}), y.shape());
  };
  const auto halves = [](const Variable& y) {
    return ops::concat({ops::slice(y, 1, 3, 6), ops::slice(y, 1, 0, 3)}, 1);
  };
  return {{"unmoved", [](auto& y) { return y; }},
          {"transpose",
           [](auto& y) {
             return ops::transpose(y, {0, 2, 3, 1});
           }},
          {"transpose_pixels",
           [](auto& y) {
             return ops::transpose(y, {0, 1, 3, 2});
           }},
          {"shuffle", shuffled},
          {"slice", [](auto& y) { return ops::slice(y, 1, 1, 4); }},
          {"slice_rows", [](auto& y) { return ops::slice(y, 2, 5, 29); }},
          {"split", halves},
          {"concat",
           [](auto& y) {
             return ops::concat({y, ops::relu(y)}, 1);
           }},
          {"flatten", [](auto& y) { return ops::flatten(y); }},
          {"rows",
           [](auto& y) {
             return ops::transpose(ops::flatten(y, 2), {0, 2, 1});
           }},
          {"later_relu", [shuffled](auto& y) { return ops::relu(shuffled(y)); }}};
}

void add_moved_sums(Cases& cases) {
  for (const auto& [name, move] : sum_moves())
    for (const bool relu : {false, true}) {
      const auto reader = Grid::from_amax(IntFormat{8, relu, false}, {}, Tensor::scalar(9.7), "reader");
      cases.add(name + (relu ? "_of_relu" : "_of_sums"), {4, 48, 48},
                [=, move = move](auto& x, auto& p) {
                  const Variable y = make_sums(x, p);
                  return ops::quantize(move(relu ? ops::relu(y) : y), reader).as_float();
                },
                {test::random_tensor({6, 4, 3, 3}, -1, 1, 8), row(6)});
    }
}

/// Plain functions of the operator table that no case has, with other numbers than their defaults.
void add_plain_functions(Cases& cases) {
  for (const auto& row : operator_table()) {
    if (row.run == nullptr || row.engine == EngineRule::none || cases.has(std::string(row.name))) continue;
    std::vector<double> options;
    for (const auto& option : row.options())
      options.push_back(option.is_choice() || option.is_integer ? option.fallback : option.fallback + 0.7);
    cases.add(std::string(row.name), {6}, [&row, options](const Variable& x, const Weights&) {
      const std::vector<Variable> inputs{x, ops::scale(x, 0.5)};
      return row.run(row, std::span(inputs).first(static_cast<std::size_t>(row.inputs)), options);
    });
  }
}

/// Whether every operator that a network may have was written; names the missing ones.
bool all_are_written(const Cases& cases) {
  std::string missing;
  for (const auto& row : operator_table())
    if (row.engine != EngineRule::none && row.name != "pre_quant_scale" &&
        !cases.operators().contains(std::string(row.name)))
      missing += std::string(row.name) + " ";
  if (!missing.empty()) std::fprintf(stderr, "without a case: %s\n", missing.c_str());
  return missing.empty();
}

}  // namespace

int main(int, char** arguments) {
  Cases cases(arguments[1]);
  add_elementwise(cases);
  add_moves(cases);
  add_products(cases);
  add_layers(cases);
  add_volume_pools(cases);
  test::add_arithmetic(cases);
  test::add_functions(cases);
  test::add_norms(cases);
  test::add_resizes(cases);
  test::add_recurrent(cases);
  add_plain_functions(cases);
  if (!all_are_written(cases)) return 1;
  add_references(cases);
  cases.finish("cases.h5");
  Cases sums(arguments[1], 24);
  add_moved_sums(sums);
  sums.finish("sums.h5");
}
