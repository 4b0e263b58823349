#pragma once

#include <string>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/model/model_file.h"
#include "thrown.h"

namespace fq::test {

inline std::string parse_error(const std::string& text) {
  return error_message([&] { (void)ModelSpec::parse(text); });
}

inline std::string build_error(const std::string& text, const Shape& shape = {1, 8, 8},
                               std::int64_t classes = 10, BuildOptions options = {}) {
  const auto spec = ModelSpec::parse(text);
  return error_message([&] { (void)build_model(spec, shape, classes, options); });
}

inline std::int64_t parameter_count(Module& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

}  // namespace fq::test
