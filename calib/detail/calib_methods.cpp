#include "fakequant/calib/detail/calib_methods.h"

#include <algorithm>

#include "fakequant/calib/detail/histogram_methods.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::detail {
namespace {

template <auto make>
std::unique_ptr<Calibrator> make_from_options(std::string_view, const CalibratorOptions& options) {
  return make(options);
}

constexpr CalibMethod kMethods[]{
#define FQ_CALIB_METHOD(name) {#name, #name, {}, false, make_from_options<make_##name>},
#define FQ_SEARCH_METHOD(name) {#name, #name, {}, true, make_from_options<make_##name>},
#define FQ_HISTOGRAM_METHOD(name, kind, reading) {#name, #kind, #reading, false, make_##kind},
#include "fakequant/core/detail/calib_methods.def"
};

}  // namespace

const CalibMethod* find_calib_method(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kMethods, name, &CalibMethod::name);
  return found == std::end(kMethods) ? nullptr : found;
}

// The order of batches does not change maxima, or counts in bins that depend on the values alone. It changes
// averages, f64 sums and bins of the first batch.
bool merges_exactly(const CalibMethod& method) noexcept {
  return method.kind == "max" || method.kind == "one_pass" || method.kind == "two_pass";
}

std::string_view histogram_reading(std::string_view method) noexcept {
  const auto* found = find_calib_method(method);
  return found == nullptr ? std::string_view{} : found->reading;
}

bool skips_zeros(std::string_view method) noexcept {
  const auto* reading = find_histogram_reading(histogram_reading(method));
  return reading != nullptr && reading->skips_zeros;
}

void check_kind(std::string_view kind, std::string_view method, const char* where) {
  std::vector<std::string> names;
  for (const auto& known : kMethods)
    if (known.kind == kind) names.emplace_back(known.name);
  FQ_CHECK(std::ranges::find(names, method) != names.end(), where, "the method '{}' is unknown: use {}",
           method, alternatives(names));
}

}  // namespace fq::detail
