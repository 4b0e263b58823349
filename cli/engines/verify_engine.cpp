#include "fakequant/cli/engines/verify_engine.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

constexpr std::array<VerifyEngine, 5> kEngines{{
    {"ort", ".onnx", "onnx", "fakequant.engines.onnx", "ort", "", true, false},
    {"ort_dynamic", ".onnx", "onnx", "fakequant.engines.onnx", "ort", "ort_dynamic", true, false},
    {"xnnpack", ".pte", "executorch", "fakequant.engines.executorch", "xnnpack", "", false, true},
    {"llama.cpp", ".gguf", "gguf", "fakequant.engines.gguf", "llama.cpp", "", false, true},
    {"openvino", ".onnx", "onnx", "fakequant.engines.openvino", "openvino", "", true, false},
}};

}  // namespace

std::span<const VerifyEngine> verify_engines() { return kEngines; }

std::vector<std::string> verify_engine_names() {
  std::vector<std::string> names;
  for (const VerifyEngine& engine : kEngines) names.emplace_back(engine.name);
  names.emplace_back("all");
  return names;
}

std::vector<const VerifyEngine*> find_engines(const std::string& name, const std::string& model) {
  std::vector<const VerifyEngine*> found;
  for (const VerifyEngine& engine : kEngines) {
    const bool reads =
        model.ends_with(engine.suffix) && engine.name != "ort_dynamic";  // ort runs the same file
    if (name == "all" ? reads : name == engine.name) found.push_back(&engine);
  }
  FQ_CHECK(
      !found.empty(), "verify",
      "--engine all: no engine runs {} by its name: give a file whose name ends with .onnx, .gguf or .pte",
      model);
  return found;
}

void check_target(const VerifyEngine& engine, const Network& network) {
  if (engine.target.empty()) return;
  const Target found = target_of(network.module());
  FQ_CHECK(name(found) == engine.target, "verify",
           "--engine {}: the checkpoint is quantized for {}: calibrate and train with --preset {}, or leave "
           "out --engine",
           engine.name, name(found), profile_of(target_named(engine.target)).presets);
}

}  // namespace fq::cli
