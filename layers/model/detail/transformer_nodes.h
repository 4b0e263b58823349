#pragma once

/// The built-in transformers: gpt, vit and encoder. Their options and parts are those of
/// `builtin_model_text`.

#include "fakequant/layers/model/detail/builtin_nodes.h"

namespace fq::detail {

/// The names of the options.
[[nodiscard]] std::vector<std::string> gpt_options();
[[nodiscard]] std::vector<std::string> vit_options();
[[nodiscard]] std::vector<std::string> encoder_options();

/// Token ids to the next ones: norms before each half of a block.
[[nodiscard]] BuiltinNodes gpt_nodes(BuiltinOptions options);
/// Squares of an image to its class: norms before each half of a block.
[[nodiscard]] BuiltinNodes vit_nodes(BuiltinOptions options);
/// Token ids to the class of the text: a norm behind each half of a block.
[[nodiscard]] BuiltinNodes encoder_nodes(BuiltinOptions options);

}  // namespace fq::detail
