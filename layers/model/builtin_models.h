#pragma once

/// The models that come with the library, as nodes of a model file.
///
///     auto net = build_model(ModelSpec::builtin("resnet20", R"({"widths": [8, 16, 32]})"), {3, 32, 32}, 10);
///
/// Images or signals may have any size and number of channels; the output size is that of the data.

#include <string>
#include <string_view>
#include <vector>

namespace fq {

/// The names: cnn, gpt, mlp, resnet20.
[[nodiscard]] std::vector<std::string> builtin_models();

/// The text of a model file of the built-in model. `options` is a JSON object, empty for the defaults:
///
/// - mlp: `hidden` [1024, 1024], `batch_norm` false. Flatten, then for each size linear and ReLU; then
///   linear.
/// - cnn: `widths` [32, 64, 64], `features` 0, `signals` false. A 3x3 convolution, BN and ReLU of each width,
/// a
///   2x2 max pool after each but the first; flatten, linear to `features`, BN and ReLU unless that is 0; then
///   linear.
/// - resnet20: `widths` [16, 32, 64], `blocks` 3 a stage, `signals` false. He et al., arXiv:1512.03385, for
///   small images: each stage but the first halves the image; a shortcut that changes size is a 1x1
///   convolution with BN; global average pool.
///
/// - gpt: `layers` 4, `width` 128, `heads` 4, `kv_heads` as many, `context` 256, `vocabulary` the classes of
/// the
///   data, `rotary` false. Token ids [L] to a class for each next token, [classes, L]: embedding and learned
///   positions (with `rotary` none), blocks of layer norm, causal attention, layer norm and two linear layers
///   with GELU between, each half added to its input; a last norm and a linear layer without bias (Radford et
///   al. 2019).
///
/// With `signals` samples are [C, L] and convolutions run along L.
/// Throws ArgumentError naming the models, or the option and the nearest valid one.
[[nodiscard]] std::string builtin_model_text(std::string_view name, std::string_view options = {});

}  // namespace fq
