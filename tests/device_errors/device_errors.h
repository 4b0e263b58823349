#pragma once

/// Shared code of tests of a failing device.

#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/log.h"
#include "fakequant/core/tensor.h"
#include "simulated/simulated.h"

namespace fq::device_errors_test {

inline Tensor make_on_device(std::int64_t count) {
  return Tensor::full({count}, 1.0, DType::f32, Device::cuda());
}

template <class E, class F>
std::string error_message(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

/// In a process of its own, whose first call to the runtime fails.
template <class F>
void run_in_fresh_process(cudaError_t first_answer, F&& f) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        simulated::fail(first_answer);
        f();
        std::exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

/// Collects log messages during its lifetime.
class Logged {
 public:
  Logged() {
    set_log_callback(
        [this](LogLevel level, std::string_view text) { all += fmt::format("{}: {}\n", name(level), text); });
  }
  ~Logged() { set_log_callback({}); }
  Logged(const Logged&) = delete;  // the callback refers to it
  Logged& operator=(const Logged&) = delete;

  std::string all;
};

}  // namespace fq::device_errors_test
