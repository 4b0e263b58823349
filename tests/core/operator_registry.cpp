#include "core/operator_registry.h"

#include <set>

#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/random.h"

namespace fq::test {
namespace {

/// Constants that the tests' operators hold in the dtype and on the device of their input.
Tensor running(const Variable& x, double value) {
  return Tensor::full({x.dim(1)}, value, DType::f64, x.device());
}

}  // namespace

std::vector<OperatorCase> reduce_cases() {
  const Input distinct{image, 0, 0, {}, true};
  std::vector<OperatorCase> cases{
      {"sum", "", {{image}}, [](const Vars& v) { return ops::sum(v[0]); }},
      {"sum",
       "channels",
       {{image}},
       [](const Vars& v) {
         return ops::sum(v[0], {0, 2, 3});
       }},
      {"sum",
       "kept",
       {{image}},
       [](const Vars& v) {
         return ops::sum(v[0], {-1, 1}, true);
       }},
      {"mean", "", {{image}}, [](const Vars& v) { return ops::mean(v[0]); }},
      {"mean",
       "pixels",
       {{image}},
       [](const Vars& v) {
         return ops::mean(v[0], {2, 3}, true);
       }},
      {"max",
       "",
       {distinct},
       [](const Vars& v) {
         return ops::max(v[0], {1, 2, 3});
       }},
      {"max", "kept", {distinct}, [](const Vars& v) { return ops::max(v[0], {1}, true); }},
      {"min", "", {distinct}, [](const Vars& v) { return ops::min(v[0], {-1}); }},
  };
  for (auto& entry : cases) entry.tolerance = 1e-5;  // sums of up to 120 values of up to 2, each with 6e-8
  return cases;
}

std::vector<OperatorCase> resize_cases() {
  using enum ops::ResizeMode;
  using enum ops::ResizeCoordinates;
  const auto resized = [](ops::Resize options) {
    return [options](const Vars& v) { return ops::resize(v[0], options); };
  };
  std::vector<OperatorCase> cases{
      {"resize", "nearest", {{image}}, resized({.sizes = {7, 3}})},
      {"resize", "up", {{image}}, resized({.sizes = {8, 10}})},
      {"resize", "linear", {{image}}, resized({.sizes = {8, 3}, .mode = linear, .coordinates = half_pixel})},
      {"resize",
       "corners",
       {{image}},
       resized({.sizes = {7, 9}, .mode = linear, .coordinates = align_corners})},
      {"resize", "cubic", {{image}}, resized({.sizes = {9, 7}, .mode = cubic, .coordinates = half_pixel})},
      {"resize",
       "signal",
       {{{2, 3, 8}}},
       resized({.sizes = {12}, .mode = linear, .coordinates = asymmetric})},
  };
  for (auto& entry : cases)
    entry.trace_name = entry.variant == "cubic"                              ? "resize_cubic"
                       : entry.variant == "nearest" || entry.variant == "up" ? "resize_nearest"
                                                                             : "resize_linear";
  return cases;
}

std::vector<OperatorCase> norm_cases() {
  Input channel{{3}};
  channel.batched = false;
  Input row{{5}};
  row.batched = false;
  Input plane{{4, 5}};
  plane.batched = false;
  const auto training = [](const Vars& v) {
    return ops::batch_norm(v[0], v[1], v[2], running(v[0], 0.0), running(v[0], 1.0), true);
  };
  const auto evaluation = [](const Vars& v) {
    return ops::batch_norm(v[0], v[1], v[2], running(v[0], 0.2), running(v[0], 1.5), false);
  };
  const auto plain = [](const Vars& v) { return ops::batch_norm(v[0], {}, {}, {}, {}, true); };
  std::vector<OperatorCase> cases{
      {"batch_norm", "training", {{image}, channel, channel}, training},
      {"batch_norm", "evaluation", {{image}, channel, channel}, evaluation},
      {"batch_norm", "sequence", {{{2, 3, 7}}, channel, channel}, training},
      {"batch_norm", "volume", {{{2, 3, 2, 3, 2}}, channel, channel}, training},
      {"batch_norm", "rows", {{{6, 3}}, channel, channel}, training},
      {"batch_norm", "plain", {{image}}, plain},
      {"layer_norm",
       "",
       {{image}, row, row},
       [](const Vars& v) { return ops::layer_norm(v[0], v[1], v[2]); }},
      {"layer_norm",
       "plane",
       {{image}, plane, plane},
       [](const Vars& v) { return ops::layer_norm(v[0], v[1], v[2], 2); }},
      {"layer_norm", "plain", {{image}}, [](const Vars& v) { return ops::layer_norm(v[0], {}, {}, 3); }},
      {"rms_norm", "", {{image}, row}, [](const Vars& v) { return ops::rms_norm(v[0], v[1]); }},
      {"rms_norm", "plain", {{image}}, [](const Vars& v) { return ops::rms_norm(v[0], {}, 2, 0.1); }},
      {"group_norm",
       "",
       {{{2, 4, 3, 5}}, fixed({4}), fixed({4})},
       [](const Vars& v) { return ops::group_norm(v[0], 2, v[1], v[2]); }},
      {"group_norm", "rows", {{{3, 6}}}, [](const Vars& v) { return ops::group_norm(v[0], 2, {}, {}); }},
      {"instance_norm",
       "",
       {{image}, channel, channel},
       [](const Vars& v) { return ops::instance_norm(v[0], v[1], v[2]); }},
      {"local_response_norm",
       "",
       {{{2, 6, 3, 2}}},
       [](const Vars& v) { return ops::local_response_norm(v[0], 4, 0.5, 0.75, 2.0); }},
  };
  for (auto& entry : cases) entry.tolerance = 1e-5;  // sums of 40 terms that cancel: 40 * 2 * 6e-8
  return cases;
}

std::vector<OperatorCase> pool_cases() {
  const Input distinct{{2, 3, 6, 5}, 0, 0, {}, true};
  const Input volume{{2, 2, 4, 3, 5}, 0, 0, {}, true};
  const ops::Pool3d deep{.kernel = {3, 2, 3}, .stride = {2, 1, 2}, .padding = {1, 1, 0}, .ceil_mode = true},
      apart3{.kernel = {2, 2, 2}, .stride = {1, 1, 2}, .padding = {1, 0, 1}, .dilation = {2, 1, 3}},
      inside{.kernel = {3, 2, 3},
             .stride = {2, 1, 2},
             .padding = {1, 1, 1},
             .count_include_pad = false,
             .padding_end = {1, 0, 0}};
  const ops::Pool2d plain{{2, 2}}, padded{{3, 3}, {2, 1}, {1, 1}}, apart{{3, 3}, {2, 2}, {1, 1}, false},
      up{.kernel = {3, 3}, .stride = {2, 3}, .padding = {1, 0}, .ceil_mode = true},
      uneven{.kernel = {3, 2}, .stride = {2, 1}, .padding = {0, 1}, .padding_end = {2, 0}},
      dilated{.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}, .dilation = {2, 1}};
  return {
      {"max_pool2d", "", {distinct}, [=](const Vars& v) { return ops::max_pool2d(v[0], plain); }},
      {"max_pool2d", "padded", {distinct}, [=](const Vars& v) { return ops::max_pool2d(v[0], padded); }},
      {"avg_pool2d", "", {distinct}, [=](const Vars& v) { return ops::avg_pool2d(v[0], plain); }},
      {"avg_pool2d", "padded", {distinct}, [=](const Vars& v) { return ops::avg_pool2d(v[0], padded); }},
      {"avg_pool2d", "apart", {distinct}, [=](const Vars& v) { return ops::avg_pool2d(v[0], apart); }},
      {"max_pool2d", "ceil", {distinct}, [=](const Vars& v) { return ops::max_pool2d(v[0], up); }},
      {"max_pool2d", "uneven", {distinct}, [=](const Vars& v) { return ops::max_pool2d(v[0], uneven); }},
      {"max_pool2d", "dilated", {distinct}, [=](const Vars& v) { return ops::max_pool2d(v[0], dilated); }},
      {"avg_pool2d", "ceil", {distinct}, [=](const Vars& v) { return ops::avg_pool2d(v[0], up); }},
      {"avg_pool2d", "uneven", {distinct}, [=](const Vars& v) { return ops::avg_pool2d(v[0], uneven); }},
      {"adaptive_avg_pool2d",
       "",
       {distinct},
       [](const Vars& v) {
         return ops::adaptive_avg_pool2d(v[0], {4, 3});
       }},
      {"global_avg_pool2d", "", {distinct}, [](const Vars& v) { return ops::global_avg_pool2d(v[0]); }},
      {"max_pool1d",
       "",
       {{{2, 3, 8}, 0, 0, {}, true}},
       [](const Vars& v) {
         return ops::max_pool1d(v[0], {3, 2, 1});
       },
       2e-6,
       true,
       "max_pool2d"},
      {"max_pool3d", "", {volume}, [](const Vars& v) { return ops::max_pool3d(v[0], {}); }},
      {"max_pool3d", "padded", {volume}, [=](const Vars& v) { return ops::max_pool3d(v[0], deep); }},
      {"max_pool3d", "dilated", {volume}, [=](const Vars& v) { return ops::max_pool3d(v[0], apart3); }},
      {"avg_pool3d", "", {volume}, [](const Vars& v) { return ops::avg_pool3d(v[0], {}); }},
      {"avg_pool3d", "padded", {volume}, [=](const Vars& v) { return ops::avg_pool3d(v[0], deep); }},
      {"avg_pool3d", "apart", {volume}, [=](const Vars& v) { return ops::avg_pool3d(v[0], inside); }},
      {"global_avg_pool3d", "", {volume}, [](const Vars& v) { return ops::global_avg_pool3d(v[0]); }},
      {"adaptive_avg_pool3d",
       "",
       {volume},
       [](const Vars& v) {
         return ops::adaptive_avg_pool3d(v[0], {3, 2, 4});
       }},
      {"avg_pool1d",
       "",
       {{{2, 3, 8}}},
       [](const Vars& v) {
         return ops::avg_pool1d(v[0], {3, 2, 1});
       },
       2e-6,
       true,
       "avg_pool2d"},
  };
}

std::vector<OperatorCase> shape_cases() {
  using enum ops::PadMode;
  const auto joined = [](const Vars& v) { return ops::concat(v, 1); };
  return {
      {"reshape",
       "",
       {{image}},
       [](const Vars& v) {
         return ops::reshape(v[0], {v[0].dim(0), 6, 10});
       }},
      {"reshape",
       "image",
       {{{2, 60}}},
       [](const Vars& v) {
         return ops::reshape(v[0], {v[0].dim(0), 3, 4, 5});
       }},
      {"flatten", "", {{image}}, [](const Vars& v) { return ops::flatten(v[0]); }},
      {"flatten", "last", {{image}}, [](const Vars& v) { return ops::flatten(v[0], -2); }},
      {"transpose",
       "",
       {{image}},
       [](const Vars& v) {
         return ops::transpose(v[0], {0, 2, -1, 1});
       }},
      {"transpose",
       "rows",
       {{{3, 4}}},
       [](const Vars& v) {
         return ops::transpose(v[0], {1, 0});
       }},
      {"concat", "", {{image}, {{2, 1, 4, 5}}, {image}}, joined},
      {"concat", "rows", {{{2, 3}}, {{2, 2}}}, [](const Vars& v) { return ops::concat(v, -1); }},
      {"slice", "", {{image}}, [](const Vars& v) { return ops::slice(v[0], 1, 1, 3); }},
      {"slice", "back", {{image}}, [](const Vars& v) { return ops::slice(v[0], -1, -3, -1); }},
      {"slice", "step", {{image}}, [](const Vars& v) { return ops::slice(v[0], 3, 0, 5, 2); }},
      {"split",
       "",
       {{image}},
       [](const Vars& v) {
         return ops::split(v[0], {1, 2}, 1)[1];
       },
       2e-6,
       true,
       "slice"},
      {"stack", "", {{image}, {image}}, [](const Vars& v) { return ops::stack(v, 1); }, 2e-6, true, "concat"},
      {"input_part",
       "",
       {{{3, 7}}},
       [](const Vars& v) {
         return ops::input_part(v[0], {.begin = 1, .shape = {3, 2}, .name = "image"});
       }},
      {"input_part", "number", {{{3, 2}}}, [](const Vars& v) { return ops::input_part(v[0], {.begin = 1}); }},
      {"index_select",
       "",
       {{image}},
       [](const Vars& v) {
         return ops::index_select(v[0], 3, {4, 0, -1, 0});
       }},
      {"index_select",
       "channels",
       {{image}},
       [](const Vars& v) {
         return ops::index_select(v[0], 1, {2, 2});
       }},
      {"expand",
       "",
       {{{2, 1, 4}}},
       [](const Vars& v) {
         return ops::expand(v[0], {v[0].dim(0), 3, -1});
       }},
      {"expand",
       "front",
       {fixed({1, 4})},
       [](const Vars& v) {
         return ops::expand(v[0], {2, 3, 4});
       }},
      {"pad",
       "",
       {{image}},
       [](const Vars& v) {
         return ops::pad(v[0], {{1, 2}, {0, 1}});
       }},
      {"pad",
       "cut",
       {{image}},
       [](const Vars& v) {
         return ops::pad(v[0], {{-1, 2}});
       }},
      {"pad",
       "reflect",
       {{image}},
       [](const Vars& v) {
         return ops::pad(v[0], {{3, 1}, {2, 4}}, reflect);
       }},
      {"pad",
       "replicate",
       {{image}},
       [](const Vars& v) {
         return ops::pad(v[0], {{3, 1}, {2, 4}}, replicate);
       }},
      {"pad",
       "circular",
       {{image}},
       [](const Vars& v) {
         return ops::pad(v[0], {{3, 1}, {2, 4}}, circular);
       }},
      {"pad",
       "constant",
       {{image}},
       [](const Vars& v) {
         return ops::pad(v[0], {{1, 1}, {1, 0}}, constant, -1.5);
       },
       2e-6,
       true,
       "pad_constant"},
      {"pixel_shuffle", "", {{{2, 8, 2, 3}}}, [](const Vars& v) { return ops::pixel_shuffle(v[0], 2); }},
      {"pixel_unshuffle", "", {{{2, 2, 4, 6}}}, [](const Vars& v) { return ops::pixel_unshuffle(v[0], 2); }},
  };
}

std::vector<OperatorCase> loss_cases() {
  const auto labels = [](const Variable& logits) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(logits.dim(0)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(3 * i % 5);
    return detail::constant(Tensor::from(values, {logits.dim(0)}), logits.device());
  };
  return {
      {"softmax", "", {{{3, 5}}}, [](const Vars& v) { return ops::softmax(v[0]); }},
      {"softmax", "channels", {{image}}, [](const Vars& v) { return ops::softmax(v[0], 1); }},
      {"log_softmax", "", {{{3, 5}}}, [](const Vars& v) { return ops::log_softmax(v[0]); }},
      {"log_softmax", "channels", {{image}}, [](const Vars& v) { return ops::log_softmax(v[0], 1); }},
      {"cross_entropy",
       "",
       {{{4, 5}}},
       [=](const Vars& v) { return ops::cross_entropy(v[0], labels(v[0])); }},
      {"cross_entropy",
       "smoothed",
       {{{4, 5}}},
       [=](const Vars& v) { return ops::cross_entropy(v[0], labels(v[0]), 0.2); }},
      {"cross_entropy",
       "positions",
       {{{3, 5, 2, 3}}},
       [=](const Vars& v) {
         std::vector<std::int64_t> values(static_cast<std::size_t>(v[0].numel() / 5));
         for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(7 * i % 5);
         const Tensor each = detail::constant(Tensor::from(values, {v[0].dim(0), 2, 3}), v[0].device());
         return ops::cross_entropy(v[0], each, 0.1, 2);
       }},
      {"mse_loss", "", {{image}, {image}}, [](const Vars& v) { return ops::mse_loss(v[0], v[1]); }},
  };
}

std::vector<OperatorCase> other_cases() {
  const auto ids = [](const Variable& weight) {
    return detail::constant(Tensor::from<std::int64_t>({4, 0, 4, 1, 3, 4}, {2, 3}), weight.device());
  };
  Input table{{5, 4}};
  table.batched = false;
  const auto drawn = [](auto op) {
    return Function([op](const Vars& v) {
      const RandomScope scope(3, 14);
      return op(v[0], 0.4, true);
    });
  };
  return {
      {"embedding", "", {table}, [=](const Vars& v) { return ops::embedding(ids(v[0]), v[0]); }},
      {"dropout", "", {{image}}, drawn(ops::dropout)},
      {"channel_dropout", "", {{image}}, drawn(ops::channel_dropout)},
      {"drop_path", "", {{{5, 3}}}, drawn(ops::drop_path)},
      {"alpha_dropout", "", {{image}}, drawn([](const Variable& x, double p, bool training) {
         return ops::alpha_dropout(x, p, training);
       })},
      {"alpha_dropout", "channels", {{image}}, drawn([](const Variable& x, double p, bool training) {
         return ops::alpha_dropout(x, p, training, true);
       })},
      {"drop_block2d", "", {{{2, 3, 6, 7}}}, drawn([](const Variable& x, double p, bool training) {
         return ops::drop_block2d(x, p, 3, training);
       })},
  };
}

/// Straight-through operators: their gradient equals that of a clip to the code range.
std::vector<OperatorCase> quantize_cases() {
  const auto grid = [](Format format, const Vars& v) {
    Grid made = Grid::from_amax(format, {}, Tensor::scalar(1.5), "q");
    made.amax = detail::constant(made.amax, v[0].device());
    made.scale = detail::constant(made.scale, v[0].device());
    return made;
  };
  const auto clip = [](const Vars& v) { return ops::clip(v[0], -1.5, 1.5); };
  const auto above = [](const Vars& v) { return ops::clip(v[0], 0.0, 1.5); };
  const auto attach = [=](const Vars& v) {
    return ops::attach_codes(v[0], fq::quantize(v[0].tensor(), grid(IntFormat{8}, v)));
  };
  const auto attach_joined = [=](const Vars& v) {
    const Tensor rows = ops::concat(v, 0).tensor();
    return ops::attach_joined_codes(v, fq::quantize(rows, grid(IntFormat{8}, v)));
  };
  const auto clip_rows = [](const Vars& v) { return ops::clip(ops::concat(v, 0), -1.5, 1.5); };
  const Input x{image, -2, 2, {-1.5, 0.0, 1.5}};
  const Input upper{{3, 5}, -2, 2, {-1.5, 1.5}}, lower{{2, 5}, -2, 2, {-1.5, 1.5}};
  std::vector<OperatorCase> cases{
      {"quantize", "int8", {x}, [=](const Vars& v) { return ops::quantize(v[0], grid(IntFormat{8}, v)); }},
      {"quantize",
       "uint4",
       {x},
       [=](const Vars& v) {
         return ops::quantize(v[0], grid(IntFormat{4, true}, v));
       }},
      {"fake_quantize",
       "e4m3",
       {x},
       [=](const Vars& v) { return ops::fake_quantize(v[0], grid(FloatFormat{}, v)); }},
      {"attach_codes", "", {x}, attach},
      {"attach_joined_codes", "", {upper, lower}, attach_joined},
  };
  for (auto& entry : cases) {
    entry.surrogate = entry.variant == "uint4" ? Function(above) : Function(clip);
    if (entry.inputs.size() == 2) entry.surrogate = clip_rows;
    entry.trace_name = "quantize";
  }
  return cases;
}

std::vector<OperatorCase> product_cases() {
  const Input x{{2, 4, 6, 5}}, volume{{2, 4, 4, 3, 5}};
  const ops::ConvOptions strided{{2, 1}, {1, 2}, {1, 2}, 2};
  const auto linear = [](const Vars& v) { return ops::linear(v[0], v[1], v.size() > 2 ? v[2] : Variable()); };
  const auto conv = [](const Vars& v) { return ops::conv2d(v[0], v[1], v.size() > 2 ? v[2] : Variable()); };
  const auto transposed = [](const Vars& v) { return ops::conv_transpose2d(v[0], v[1], v[2]); };
  const auto matmul = [](const Vars& v) { return ops::matmul(v[0], v[1]); };
  return {
      {"linear", "", {{{3, 6}}, fixed({4, 6}), fixed({4})}, linear},
      {"linear", "plain", {{{2, 3, 6}}, fixed({4, 6})}, linear},
      {"matmul", "", {{{3, 6}}, fixed({6, 4})}, matmul},
      {"matmul", "batch", {{{2, 3, 6}}, {{2, 6, 4}}}, matmul},
      {"matmul",
       "turned",
       {{{2, 3, 6}}, {{2, 4, 6}}},
       [](const Vars& v) { return ops::matmul(v[0], v[1], true); }},
      {"lstm",
       "",
       {{{2, 3, 4}}, fixed({12, 4}), fixed({12, 3}), fixed({12}), fixed({12})},
       [](const Vars& v) {
         return ops::lstm(v[0], {v[1], v[2], v[3], v[4]});
       }},
      {"lstm",
       "states",
       {{{2, 3, 4}}, fixed({8, 4}), fixed({8, 2}), {{2, 2}}, {{2, 2}}},
       [](const Vars& v) {
         return ops::lstm(v[0], {v[1], v[2]}, v[3], v[4], true);
       }},
      {"gru",
       "",
       {{{2, 3, 4}}, fixed({9, 4}), fixed({9, 3}), fixed({9}), fixed({9})},
       [](const Vars& v) {
         return ops::gru(v[0], {v[1], v[2], v[3], v[4]});
       }},
      {"gru",
       "states",
       {{{2, 3, 4}}, fixed({6, 4}), fixed({6, 2}), {{2, 2}}},
       [](const Vars& v) {
         return ops::gru(v[0], {v[1], v[2]}, v[3], true);
       }},
      {"gru",
       "input_bias",
       {{{2, 2, 4}}, fixed({6, 4}), fixed({6, 2}), fixed({6})},
       [](const Vars& v) {
         return ops::gru(v[0], {v[1], v[2], v[3]});
       }},
      {"gru",
       "state_bias",
       {{{2, 1, 4}}, fixed({6, 4}), fixed({6, 2}), fixed({6})},
       [](const Vars& v) {
         return ops::gru(v[0], {v[1], v[2], Variable(), v[3]});
       }},
      {"rnn",
       "",
       {{{2, 3, 4}}, fixed({3, 4}), fixed({3, 3}), fixed({3}), fixed({3})},
       [](const Vars& v) {
         return ops::rnn(v[0], {v[1], v[2], v[3], v[4]});
       }},
      {"rnn",
       "relu",
       {{{2, 3, 4}}, fixed({2, 4}), fixed({2, 2}), {{2, 2}}},
       [](const Vars& v) {
         return ops::rnn(v[0], {v[1], v[2]}, v[3], true, true);
       }},
      {"conv2d", "", {x, fixed({3, 4, 3, 3}), fixed({3})}, conv},
      {"conv2d", "plain", {x, fixed({3, 4, 1, 1})}, conv},
      {"conv2d",
       "strided",
       {x, fixed({6, 2, 3, 2}), fixed({6})},
       [=](const Vars& v) { return ops::conv2d(v[0], v[1], v[2], strided); }},
      {"conv1d",
       "",
       {{{2, 4, 7}}, fixed({3, 4, 3}), fixed({3})},
       [](const Vars& v) {
         return ops::conv1d(v[0], v[1], v[2], {{2}, {1}, {}, 1});
       }},
      {"conv1d",
       "mirrored",
       {{{2, 4, 7}}, fixed({3, 4, 3})},
       [](const Vars& v) {
         return ops::conv1d(v[0], v[1], {}, {{1}, {2}, {1}, 1, {}, ops::PadMode::reflect});
       }},
      {"conv2d",
       "uneven",
       {x, fixed({3, 4, 3, 3})},
       [](const Vars& v) {
         return ops::conv2d(v[0], v[1], {}, {{1}, {0, 2}, {1}, 1, {1, 0}});
       }},
      {"conv3d",
       "",
       {volume, fixed({3, 4, 3, 2, 1}), fixed({3})},
       [](const Vars& v) { return ops::conv3d(v[0], v[1], v[2]); }},
      {"conv3d",
       "strided",
       {volume, fixed({6, 2, 2, 3, 2}), fixed({6})},
       [](const Vars& v) {
         return ops::conv3d(v[0], v[1], v[2], {{2, 1, 2}, {2, 1, 0}, {3, 1, 2}, 2});
       }},
      {"conv_transpose1d",
       "",
       {{{2, 4, 5}}, fixed({4, 3, 3}), fixed({6})},
       [](const Vars& v) {
         return ops::conv_transpose1d(v[0], v[1], v[2], {{2}, {1}, {}, 2}, {1});
       }},
      {"conv_transpose3d",
       "",
       {volume, fixed({4, 3, 2, 2, 1}), fixed({3})},
       [](const Vars& v) { return ops::conv_transpose3d(v[0], v[1], v[2]); }},
      {"conv_transpose3d",
       "strided",
       {volume, fixed({4, 3, 3, 2, 3}), fixed({6})},
       [](const Vars& v) {
         return ops::conv_transpose3d(v[0], v[1], v[2], {{3, 2, 1}, {1, 0, 1}, {2, 1, 1}, 2}, {2, 1, 0});
       },
       cpu::best_exact_type() == cpu::ExactType::s8
           ? 2e-6
           : 3e-6},  // gradients of weights, sums that cancel: 2.9e-6 between orders on a processor with AVX2
                     // alone
      {"conv_transpose2d", "", {x, fixed({4, 3, 3, 3}), fixed({3})}, transposed},
      {"conv_transpose2d",
       "strided",
       {x, fixed({4, 3, 3, 2}), fixed({6})},
       [](const Vars& v) {
         return ops::conv_transpose2d(v[0], v[1], v[2], {{2}, {1}, {}, 2}, {1, 0});
       }},
  };
}

std::vector<OperatorCase> attention_cases() {
  const auto attention = [](ops::AttentionOptions options) {
    return [options](const Vars& v) {
      return ops::scaled_dot_product_attention(v[0], v[1], v[2], options, v.size() > 3 ? v[3] : Variable());
    };
  };
  const auto make_rotary = [](ops::Rotary options) {
    return [options](const Vars& v) { return ops::rotary(v[0], options); };
  };
  const auto constant = [](Shape shape) {
    Input input = fixed(std::move(shape));
    input.differentiable = false;
    return input;
  };
  const auto hidden = [](const Vars& v) {
    const Tensor seen =
        detail::constant(Tensor::from<std::uint8_t>({1, 0, 1, 1, 1, 0, 0, 0, 0, 0}, {2, 5}), v[0].device());
    return ops::scaled_dot_product_attention(v[0], v[1], v[2], {}, Variable(seen));
  };
  const auto weights = [](ops::AttentionOptions options) {
    return [options](const Vars& v) {
      return ops::attention_weights(v[0], options, v.size() > 1 ? v[1] : Variable());
    };
  };
  const auto weights_seen = [](const Vars& v) {
    const Tensor seen =
        detail::constant(Tensor::from<std::uint8_t>({1, 0, 1, 0, 0, 0}, {2, 3}), v[0].device());
    return ops::attention_weights(v[0], {}, Variable(seen));
  };
  std::vector<OperatorCase> cases{
      {"attention_weights", "", {{{2, 3, 4, 5}}}, weights({.scale = 0.4})},
      {"attention_weights", "causal", {{{2, 2, 3, 5}}}, weights({.causal = true})},
      {"attention_weights", "first", {{{2, 2, 5, 3}}}, weights({.causal = true, .scale = 0.4})},
      {"attention_weights", "mask", {{{2, 2, 3, 4}}, constant({2, 1, 4})}, weights({})},
      {"attention_weights", "hidden", {{{3, 2, 2, 3}}}, weights_seen},
      {"scaled_dot_product_attention", "", {{{2, 3, 4, 6}}, {{2, 3, 5, 6}}, {{2, 3, 5, 2}}}, attention({})},
      {"scaled_dot_product_attention",
       "causal",
       {{{2, 2, 4, 3}}, {{2, 2, 4, 3}}, {{2, 2, 4, 3}}},
       attention({.causal = true})},
      {"scaled_dot_product_attention",
       "grouped",
       {{{2, 4, 3, 2}}, {{2, 2, 5, 2}}, {{2, 2, 5, 3}}},
       attention({.causal = true, .scale = 0.4})},
      {"scaled_dot_product_attention",
       "first",
       {{{2, 2, 5, 2}}, {{2, 1, 3, 2}}, {{2, 1, 3, 2}}},
       attention({.causal = true})},
      {"scaled_dot_product_attention",
       "mask",
       {{{2, 2, 3, 2}}, {{2, 1, 4, 2}}, {{2, 1, 4, 2}}, constant({2, 1, 4})},
       attention({})},
      {"scaled_dot_product_attention", "hidden", {{{3, 2, 2, 2}}, {{3, 1, 5, 2}}, {{3, 1, 5, 3}}}, hidden},
      {"rotary", "", {{{2, 3, 4, 6}}}, make_rotary({})},
      {"rotary",
       "scaled",
       {{{2, 3, 4, 6}}},
       make_rotary({.frequencies = {1.5, 0.3, 0.05}, .magnitude = 1.4})},
      {"rotary",
       "part",
       {{{2, 4, 7}}},
       make_rotary({.base = 100, .first = 3, .dims = 4, .interleaved = true})},
  };
  for (auto& entry : cases) entry.tolerance = 1e-5;  // exponents and sums of some ten products of up to 4
  return cases;
}

const std::vector<OperatorCase>& operator_cases() {
  static const auto all = [] {
    std::vector<OperatorCase> cases;
    for (const auto& list :
         {activation_cases(), elementwise_cases(), comparison_cases(), function_cases(), reduce_cases(),
          resize_cases(), norm_cases(), pool_cases(), shape_cases(), loss_cases(), product_cases(),
          attention_cases(), other_cases(), quantize_cases()})
      cases.insert(cases.end(), list.begin(), list.end());
    std::set<std::string> known;
    for (const auto& entry : cases) known.insert({entry.op, entry.trace_name});
    for (auto& entry : plain_cases())
      if (!known.contains(entry.op)) cases.push_back(std::move(entry));
    return cases;
  }();
  return all;
}

}  // namespace fq::test
