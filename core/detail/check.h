#pragma once

/// Macros that raise errors. FQ_CHECK reports invalid arguments. FQ_CALL reports failed C functions that
/// return a negative number.

#include <fmt/format.h>

#include "fakequant/core/error.h"

#define FQ_CHECK(condition, function, ...)                                                  \
  do {                                                                                      \
    if (!(condition)) [[unlikely]]                                                          \
      throw ::fq::ArgumentError(fmt::format("[{}] ", function) + fmt::format(__VA_ARGS__)); \
  } while (false)

#define FQ_CALL(call, function)                                                 \
  [&] {                                                                         \
    const auto fq_call_result = (call);                                         \
    if (fq_call_result < 0) [[unlikely]]                                        \
      throw ::fq::BackendError(fmt::format("[{}] {} failed", function, #call)); \
    return fq_call_result;                                                      \
  }()
