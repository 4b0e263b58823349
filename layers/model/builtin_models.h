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

/// The names: cnn, encoder, gpt, mlp, resnet20, vit.
[[nodiscard]] std::vector<std::string> builtin_models();

/// The text of a model file of the built-in model. `options` is a JSON object, empty for the defaults:
///
/// - mlp: `hidden` [1024, 1024], `batch_norm` false. Flatten, then for each size linear and ReLU; then
///   linear.
/// - cnn: `widths` [32, 64, 64], `features` 0, `signals` false. A 3x3 convolution, BN and ReLU of each width,
///   a 2x2 max pool after each but the first; flatten, linear to `features`, BN and ReLU unless that is 0;
///   then linear.
/// - resnet20: `widths` [16, 32, 64], `blocks` 3 a stage, `signals` false. He et al., arXiv:1512.03385, for
///   small images: each stage but the first halves the image; a shortcut that changes size is a 1x1
///   convolution with BN; global average pool.
/// - gpt: `context` 256, `vocabulary` the classes of the data, `positions` learned or rotary, `tied` false.
///   Token ids [L] to a class for each next token, [classes, L]: embedding and positions, blocks of causal
///   attention, a last norm and a linear layer without bias, whose weight is with `tied` the embedding's
///   (Radford et al. 2019). `rotary` true is the same as `positions` rotary.
/// - vit: `patch` 4, `pool` mean or token. Squares of `patch` pixels of an image [C, H, W] as tokens,
///   learned positions, blocks, a last norm, the mean of the tokens or one that is learned in front of them,
///   linear (Dosovitskiy et al., arXiv:2010.11929). Pixels behind the last whole square are not seen.
/// - encoder: `vocabulary` 257, `context` the length of the samples, `pool` mean or first. Token ids [L] to
///   the class of the text: embedding and learned positions, a norm, blocks, the mean of the tokens or the
///   first of them, linear (Devlin et al., arXiv:1810.04805). What fills a sample is a token as any other.
///
/// These three have blocks of `layers` 4, `width` 128 (vit and encoder 64), `heads` 4, `kv_heads` as many.
/// Each is attention and two linear layers with GELU between, `hidden` 4 * width, or with `feed_forward`
/// swiglu three and SiLU, 8/3 * width rounded up to 32; both halves are added to their input. `norm` is
/// layer_norm or rms_norm, before each half, in an encoder behind it. `dropout` 0 is of the first block's
/// input and of what is added. Without `bias` (true) the linear layers of blocks have none.
///
/// With `signals` samples are [C, L] and convolutions run along L.
/// Throws ArgumentError naming the models, or the option and the nearest valid one.
[[nodiscard]] std::string builtin_model_text(std::string_view name, std::string_view options = {});

}  // namespace fq
