#pragma once

#include <string>

#include "fakequant/core/error.h"

namespace fq::test {

/// The message that `call` throws as Expected; empty if it does not throw.
template <class Expected = ArgumentError, class Call>
std::string error_message(Call&& call) {
  try {
    (void)call();
  } catch (const Expected& error) {
    return error.what();
  }
  return {};
}

}  // namespace fq::test
