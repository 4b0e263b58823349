#pragma once

/// Networks from float checkpoints, for the table of algorithms and for tests.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::ptq {

/// The network of a float checkpoint, its batch norm folded, in evaluation mode.
inline std::shared_ptr<Graph> load_folded(const std::string& path) {
  const StateDict state = load_checkpoint(path);
  const nlohmann::json identity = state.attribute("model");
  const auto sample = fq::detail::whole_values<std::int64_t>(identity.at("sample_shape"));
  auto model = build_model(ModelSpec::parse(identity.at("model").dump()), sample,
                           fq::detail::whole_value<std::int64_t>(identity.at("classes")));
  Shape one = sample;
  one.insert(one.begin(), 1);
  const bool folded = identity.at("folded").get<bool>();
  if (folded) (void)fold_batch_norm(*model, one);
  load_model_state(*model, state, path);
  if (!folded) (void)fold_batch_norm(*model, one);
  model->eval();
  return model;
}

}  // namespace fq::ptq
