#pragma once

#include <string>

#include "fakequant/core/error.h"

namespace fq::test {

/// The message of what `call` throws as Expected; empty when it throws nothing.
template <class Expected = ArgumentError, class Call>
std::string message_of(Call&& call) {
  try {
    (void)call();
  } catch (const Expected& error) {
    return error.what();
  }
  return {};
}

}  // namespace fq::test
