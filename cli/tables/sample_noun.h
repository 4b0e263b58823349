#pragma once

/// What the samples of a data set are called where a person reads of them.

#include <string>

#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// "images" of [C, H, W], "windows" of a text, and "samples" of everything else.
[[nodiscard]] std::string sample_noun(const Dataset& data);

}  // namespace fq::cli
