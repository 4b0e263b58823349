#pragma once

/// The two macros by which sources raise errors. FQ_CHECK is for the caller's mistakes, FQ_CALL for C
/// functions that answer a negative number on failure.

#include <fmt/format.h>

#include "fakequant/core/error.h"

#define FQ_CHECK(condition, function, ...)                                                           \
  do {                                                                                               \
    if (!(condition)) [[unlikely]]                                                                   \
      throw ::fq::ArgumentError(fmt::format("[{}] ", function) + fmt::format(__VA_ARGS__));          \
  } while (false)

#define FQ_CALL(call, function)                                                                      \
  [&] {                                                                                              \
    const auto fq_call_result = (call);                                                              \
    if (fq_call_result < 0) [[unlikely]]                                                             \
      throw ::fq::BackendError(fmt::format("[{}] {} failed", function, #call));                      \
    return fq_call_result;                                                                           \
  }()
