#include "fakequant/layers/config/target_profile.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq {
namespace {

constexpr std::string_view kAny = "any preset";
constexpr std::string_view kOpenVino = "openvino";  // reads files of ort, equal within a bound

// Columns as TargetProfile, rows in the order of Target.
constexpr TargetProfile kProfiles[] = {
    {Target::none, "none", "any engine", false, kAny, "scales", false},
    {Target::ort, "ort", "ONNX Runtime", false, kAny, "onnx", true},
    {Target::tensorrt, "tensorrt", "TensorRT", false, kAny, "onnx", true},
    {Target::ort_dynamic, "ort_dynamic", "ONNX Runtime", true, "int8_dynamic", "onnx", true},
    {Target::xnnpack, "xnnpack", "XNNPACK", true, "8da8w or 8da4w", "executorch", false},
    {Target::ggml, "ggml", "ggml", true, "q4_0 or q8_0", "gguf", false},
};

}  // namespace

std::span<const TargetProfile> target_profiles() { return kProfiles; }

const TargetProfile& target_profile(Target target) {
  return *std::ranges::find(kProfiles, target, &TargetProfile::target);
}

std::vector<std::string> target_names() {
  std::vector<std::string> out;
  for (const auto& profile : kProfiles) out.emplace_back(profile.name);
  out.emplace_back(kOpenVino);
  return out;
}

Target target_named(std::string_view name) {
  if (name == kOpenVino) return Target::ort;
  const auto* found = std::ranges::find(kProfiles, name, &TargetProfile::name);
  FQ_CHECK(found != std::end(kProfiles), "quantize", "target '{}' is unknown: use one of {}", name,
           fmt::join(target_names(), ", "));
  return found->target;
}

std::string_view name(Target target) noexcept { return target_profile(target).name; }

}  // namespace fq
