// Alternatives that are used if a GPU or a library lacks a feature.

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "device_errors/device_errors.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/backend/cuda/engine/blas_lt_paths.h"
#include "fakequant/core/backend/cuda/engine/exact.h"

namespace fq::device_errors_test {
namespace {

using testing::HasSubstr;

TEST(DeviceFallbacks, AutoReportsItsChoice) {
  run_in_fresh_process(cudaSuccess, [] {
    const Logged log;
    EXPECT_EQ(Device::parse("auto"), Device::cuda());
    EXPECT_THAT(log.all,
                HasSubstr("info: device auto is cuda:0: Simulated, 9 GB, compute 9.0, 8589 MB free"));
    EXPECT_EQ(Device::parse("auto"), Device::cuda());
    EXPECT_EQ(std::ranges::count(log.all, '\n'), 1);
  });
}

TEST(DeviceFallbacks, AutoSkipsUnusableGpus) {
  run_in_fresh_process(cudaSuccess, [] {
    const Logged log;
    (void)make_on_device(1);
    simulated::set_memory(100 << 20);
    EXPECT_EQ(Device::parse("auto"), Device::cpu());
    EXPECT_THAT(log.all, HasSubstr("warning: device auto is the CPU (cuda:0: "));
    EXPECT_THAT(log.all, HasSubstr("only 104 of 8589 MB are free"));
  });
  run_in_fresh_process(cudaSuccess, [] {
    const Logged log;
    (void)make_on_device(1);
    simulated::fail(cudaErrorNoKernelImageForDevice, 6);
    EXPECT_EQ(Device::parse("auto"), Device::cpu());
    EXPECT_THAT(log.all, HasSubstr("this build has no code for the GPU"));
  });
}

TEST(DeviceFallbacks, RejectsAFailingCapture) {
  const Tensor x = make_on_device(64);
  detail::Capture capture(Device::cuda());
  const auto add = [&] { capture.add([&] { (void)x.to(DType::f64); }); };
  for (int calls = 1; calls <= 4; ++calls) {
    simulated::fail(cudaErrorStreamCaptureInvalidated, calls);
    EXPECT_THAT(error_message<detail::CannotCapture>(add), HasSubstr("[cuda] ")) << calls;
  }
  simulated::set_memory(0);
  const auto large = [&] {
    capture.add([] { (void)Tensor::empty({std::int64_t{1} << 24}, DType::f32, Device::cuda()); });
  };
  EXPECT_THAT(error_message<detail::CannotCapture>(large), HasSubstr("too little memory"));
  simulated::set_memory(std::int64_t{1} << 33);
  add();
  EXPECT_EQ(x.slice(0, 1).item(), 1.0);
}

TEST(DeviceFallbacks, HandlesCodesWithoutByteProducts) {
  run_in_fresh_process(cudaSuccess, [] {
    const Logged log;
    simulated::refuse_bytes();
    const auto& choice = cuda::exact_choice(Device::cuda());
    EXPECT_EQ(choice.type, cpu::ExactType::bf16);
    EXPECT_THAT(choice.reason, HasSubstr("s8: [cuda] cublasLtMatmulAlgoGetHeuristic failed"));
    EXPECT_THAT(log.all, HasSubstr("warning: cuda:0 multiplies codes as bf16, which is slower (s8: "));
  });
}

TEST(DeviceFallbacks, MultipliesWithoutCublas) {
  const auto root = std::filesystem::temp_directory_path() / fmt::format("blas_lt_paths.{}", ::getpid());
  const auto wheel = root / "lib/nvidia/cu13/lib/libcublasLt.so.13";
  std::filesystem::create_directories(wheel.parent_path());
  std::ofstream(wheel) << "no library";
  const auto paths = cuda::blas_lt_paths(root / "lib/fakequant/_fakequant.so", 13);
  EXPECT_EQ(paths.front(), "libcublasLt.so.13");
  EXPECT_THAT(paths, testing::Contains(wheel.string()));
  const auto message = error_message<BackendError>([&] {
    (void)cuda::open_first({wheel.string(), "/none.so"});
  });
  EXPECT_THAT(message, HasSubstr("tried: " + wheel.string() + ", /none.so"));
  EXPECT_THAT(message, HasSubstr("--device cpu"));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace fq::device_errors_test
