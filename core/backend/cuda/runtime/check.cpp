#include "fakequant/core/backend/cuda/runtime/check.h"

#include <fmt/format.h>

#include "fakequant/core/backend/capture.h"

namespace fq::cuda {
namespace {

/// Returns the path below the root of the sources.
std::string_view source_path(std::string_view path) {
  for (const std::string_view folder : {"/core/", "/calib/", "/bench/"})
    if (const auto at = path.rfind(folder); at != std::string_view::npos) return path.substr(at + 1);
  return path;
}

std::string driver_advice() {
  int driver = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  if (driver == 0)
    return fmt::format("there is no NVIDIA driver: install one for CUDA {}.{}, or use --device cpu",
                       CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return fmt::format(
      "the driver supports CUDA {}.{}, this program needs CUDA {}.{}: update the driver, or use --device cpu",
      driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

/// Returns whether the code means that a call cannot be captured.
bool ends_capture(cudaError_t code) {
  return cudaErrorStreamCaptureUnsupported <= code && code <= cudaErrorStreamCaptureWrongThread;
}

// Returns a remedy, or an empty string.
std::string advice(cudaError_t code) {
  switch (code) {
    case cudaErrorMemoryAllocation:
      return "too little memory is free on the GPU: use a smaller batch, or end other programs that use it";
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return driver_advice();
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return "use --device cpu, or a GPU that nvidia-smi lists";
    case cudaErrorDevicesUnavailable:
      return "another program uses the GPU exclusively: wait for it, or use another device";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorUnsupportedPtxVersion:
      return "this build has no code for the GPU: build with CMAKE_CUDA_ARCHITECTURES=native";
    // These errors destroy the context of the process: no later call can succeed.
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorAssert:
      return "the GPU is lost to this process: start it again, and resume from the last checkpoint";
    default:
      return {};
  }
}

}  // namespace

void check(cudaError_t code, const char* call, std::source_location place) {
  if (code == cudaSuccess) return;
  // CUDA keeps the error, and the next unrelated call would report it again.
  static_cast<void>(cudaGetLastError());
  auto message = fmt::format("[cuda] {} failed: {} ({}) at {}:{}", call, cudaGetErrorName(code),
                             cudaGetErrorString(code), source_path(place.file_name()), place.line());
  if (const auto what = advice(code); !what.empty()) message += "; " + what;
  if (code == cudaErrorMemoryAllocation) throw SystemError(message);
  if (ends_capture(code)) throw fq::detail::CannotCapture(message);
  throw BackendError(message);
}

}  // namespace fq::cuda
