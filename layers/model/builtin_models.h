#pragma once

/// Built-in models, as nodes of a model file.
///
///     auto net = build_model(ModelSpec::builtin("resnet20", R"({"widths": [8, 16, 32]})"), {3, 32, 32}, 10);
///
/// Images or signals may have any size and number of channels. The output size depends on the data.

#include <string>
#include <string_view>
#include <vector>

namespace fq {

/// Returns the names: cnn, encoder, gpt, mlp, resnet20, vit.
[[nodiscard]] std::vector<std::string> builtin_models();

/// Returns the text of a model file of the built-in model. `options` is a JSON object, empty for the
/// defaults:
///
/// - mlp: `hidden` [1024, 1024], `batch_norm` false. Flatten, then a linear layer and a ReLU for each size,
///   then a linear layer.
/// - cnn: `widths` [32, 64, 64], `features` 0, `signals` false. For each width a 3x3 convolution, BN and
///   ReLU, with a 2x2 max pool after each except the first. Then flatten, a linear layer to `features` with
///   BN and ReLU (unless `features` is 0), and a linear layer.
/// - resnet20: `widths` [16, 32, 64], `blocks` 3 per stage, `signals` false. He et al., arXiv:1512.03385, for
///   small images: each stage except the first halves the image. A shortcut that changes size is a 1x1
///   convolution with BN. A global average pool ends the network.
/// - gpt: `context` 256, `vocabulary` the classes of the data, `positions` learned or rotary, `tied` false.
///   Maps token ids [L] to logits of each next token, [classes, L]. It consists of embedding and positions,
///   blocks of causal attention, a last norm and a linear layer without bias. With `tied`, this layer shares
///   the weight of the embedding (Radford et al. 2019). `rotary` true is the same as `positions` rotary.
/// - vit: `patch` 4, `pool` mean or token. Squares of `patch` pixels of an image [C, H, W] become tokens.
///   Then follow learned positions, blocks, a last norm, the mean of the tokens or a learned first token, and
///   a linear layer (Dosovitskiy et al., arXiv:2010.11929). Pixels after the last whole square are ignored.
/// - encoder: `vocabulary` 257, `context` the length of the samples, `pool` mean or first. Maps token ids [L]
///   to the class of the text. It consists of embedding and learned positions, a norm, blocks, the mean of
///   the tokens or the first token, and a linear layer (Devlin et al., arXiv:1810.04805). Padding tokens are
///   treated like other tokens.
///
/// The three transformers have blocks with `layers` 4, `width` 128 (vit and encoder 64), `heads` 4, and
/// `kv_heads` equal to `heads`. A block is attention and a feed-forward network. The feed-forward network is
/// two linear layers with GELU between them, with `hidden` 4 * width. With `feed_forward` swiglu it is three
/// linear layers with SiLU, and `hidden` is 8/3 * width rounded up to a multiple of 32. The output of both
/// halves is added to their input. `norm` is layer_norm or rms_norm. The norm comes before each half, and in
/// an encoder after it. `dropout` 0 applies to the input of the first block and to the output of each half.
/// With `bias` false (default true), the linear layers of blocks have no bias.
///
/// With `signals`, samples are [C, L] and convolutions run along L.
/// Throws ArgumentError that names the models, or the option and the nearest valid one.
[[nodiscard]] std::string builtin_model_text(std::string_view name, std::string_view options = {});

}  // namespace fq
