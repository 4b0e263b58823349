#include <array>
#include <map>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/engine/blas_lt.h"
#include "fakequant/core/backend/cuda/engine/exact.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/exact_check.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/log.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

struct OnDevice {
  Device device;

  [[nodiscard]] Storage copied(const Codes& codes, std::int64_t count) const {
    Storage out(count, device);
    copy_bytes(out.mutable_data(), device, codes.data, Device::cpu(), static_cast<std::size_t>(count));
    return out;
  }
  /// Runs product(x, w, sums) on the device, of so many codes and sums on the host.
  template <class F>
  void run(const Codes& x, std::int64_t x_count, const Codes& w, std::int64_t w_count, std::int32_t* sums,
           std::int64_t count, F&& product) const {
    const Storage a = copied(x, x_count), b = copied(w, w_count);
    Storage out(count * 4, device);
    product(Codes{a.data(), x.dtype, x.largest}, Codes{b.data(), w.dtype, w.largest},
            reinterpret_cast<std::int32_t*>(out.mutable_data()));
    copy_bytes(sums, Device::cpu(), out.data(), device, static_cast<std::size_t>(count) * 4);
  }
};

std::string why_not(ExactType type, Device device) {
  const cpu::ForceExactType only(type);
  const OnDevice on{device};
  return fq::detail::why_sums_are_wrong(
      {[&](std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
           std::int32_t* sums) {
         on.run(x, m * k, w, n * k, sums, m * n, [&](const Codes& a, const Codes& b, std::int32_t* out) {
           exact_gemm(m, n, k, a, b, out, device);
         });
       },
       [&](const ConvShape& s, const Codes& x, const Codes& w, std::int32_t* sums) {
         on.run(x, numel(s.x_shape()), w, numel(s.w_shape()), sums, numel(s.y_shape()),
                [&](const Codes& a, const Codes& b, std::int32_t* out) { exact_conv(s, a, b, out, device); });
       }});
}

ExactChoice first_that_works(Device device) {
  static_cast<void>(blas_lt());  // every product needs it: to lack it is no property of a type
  ExactChoice out{ExactType::f32, {}};
  for (const ExactType type : {ExactType::s8, ExactType::bf16}) {
    const std::string reason = why_not(type, device);
    if (reason.empty()) {
      out.type = type;
      break;
    }
    out.reason += fmt::format("{}{}: {}", out.reason.empty() ? "" : "; ", cpu::name(type), reason);
  }
  if (!out.reason.empty())
    log(LogLevel::warning, fmt::format("{} multiplies codes as {}, which is slower ({})", to_string(device),
                                       cpu::name(out.type), out.reason));
  return out;
}

}  // namespace

const ExactChoice& exact_choice(Device device) {
  static std::mutex mutex;
  static std::map<int, ExactChoice> known;
  const std::scoped_lock lock(mutex);
  const auto found = known.find(device.index);
  if (found != known.end()) return found->second;
  ExactChoice choice;
  without_capture([&] { choice = first_that_works(device); });  // it reads sums back
  return known.emplace(device.index, std::move(choice)).first->second;
}

ExactType best_exact_type(Device device) {
  if (const auto forced = cpu::forced_exact_type()) return *forced;
  return exact_choice(device).type;
}

}  // namespace fq::cuda
