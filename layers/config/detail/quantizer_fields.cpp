#include "fakequant/layers/config/detail/quantizer_fields.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/descriptor_fields.h"

namespace fq::detail {

namespace {

/// Ranges of binary weights are those of each step; what takes `binary` back, takes that back too.
void apply_binary(const QuantFields& fields, QuantParams& params, QuantDescriptorOptions& options) {
  const bool before = params.binary;
  if (fields.num_bits || fields.binary) params.binary = fields.binary && fields.binary->value_or(false);
  if (params.binary)
    options.dynamic = options.narrow_range = true;
  else if (before && !fields.dynamic)
    options.dynamic = false;
}

}  // namespace

void apply(const QuantFields& fields, QuantParams& params) {
  FQ_CHECK(fields.sequence.empty(), "quantize", "'sequence' within one quantizer: give its fields alone");
  QuantDescriptorOptions options = params.descriptor.options();
  for_each_descriptor_field(
      [](const char*, const auto& field, auto& option, auto& fallback) {
        if (!field) return;
        if (*field)
          option = **field;
        else
          option = fallback;
      },
      fields, options, QuantDescriptorOptions{});
  apply_binary(fields, params, options);
  params.descriptor = QuantDescriptor(std::move(options));
  params.enabled = fields.enable.value_or(params.enabled);
  if (fields.pass_through_bwd) params.pass_through_bwd = *fields.pass_through_bwd;
  params.amax_gradient = fields.amax_gradient.value_or(params.amax_gradient);
}

}  // namespace fq::detail
