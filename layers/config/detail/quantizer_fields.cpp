#include "fakequant/layers/config/detail/quantizer_fields.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/descriptor_fields.h"

namespace fq::detail {

std::string_view amax_gradient_name(AmaxGradient gradient) noexcept {
  return gradient == AmaxGradient::clip ? "clip" : "lsq";
}

AmaxGradient amax_gradient_from_name(std::string_view name) {
  for (const AmaxGradient gradient : {AmaxGradient::clip, AmaxGradient::lsq})
    if (amax_gradient_name(gradient) == name) return gradient;
  throw ArgumentError(fmt::format("[quantize] 'amax_gradient' is '{}': use clip or lsq", name));
}

namespace {

/// Ranges of binary weights are those of each step; what takes `binary` back, takes that back too.
void apply_binary(const QuantFields& fields, QuantizerSettings& settings, QuantDescriptorOptions& options) {
  const bool before = settings.binary;
  if (fields.num_bits || fields.binary) settings.binary = fields.binary && fields.binary->value_or(false);
  if (settings.binary)
    options.dynamic = options.narrow_range = true;
  else if (before && !fields.dynamic)
    options.dynamic = false;
}

}  // namespace

void apply(const QuantFields& fields, QuantizerSettings& settings) {
  FQ_CHECK(fields.sequence.empty(), "quantize", "'sequence' within one quantizer: give its fields alone");
  QuantDescriptorOptions options = settings.descriptor.options();
  for_each_descriptor_field(
      [](const char*, const auto& field, auto& option, auto& fallback) {
        if (!field) return;
        if (*field)
          option = **field;
        else
          option = fallback;
      },
      fields, options, QuantDescriptorOptions{});
  apply_binary(fields, settings, options);
  settings.descriptor = QuantDescriptor(std::move(options));
  settings.enabled = fields.enable.value_or(settings.enabled);
  if (fields.pass_through_bwd) settings.pass_through_bwd = *fields.pass_through_bwd;
  settings.amax_gradient = fields.amax_gradient.value_or(settings.amax_gradient);
}

}  // namespace fq::detail
