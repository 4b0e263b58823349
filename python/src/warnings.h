#pragma once

/// What the library warns of, as Python's warnings of one category, fakequant.FakequantWarning.

#include <string>

#include "array.h"

namespace fq::python {

/// A warning at the line outside of the package that called, or an exception, where a filter makes one of it;
/// nothing for an empty message. With the interpreter's lock.
void warn(const std::string& message);

/// A call of the library: its warnings wait till it has ended, and are told once each, whatever thread they
/// come from. Made and destroyed with the interpreter's lock. What a call without one warns of, or one that
/// ends by an exception, is told by the main thread as soon as it interprets anything.
class CallWarnings {
 public:
  CallWarnings();
  ~CallWarnings();
  CallWarnings(const CallWarnings&) = delete;  // counted
  CallWarnings& operator=(const CallWarnings&) = delete;

  /// As `warn`, of all that wait.
  static void tell();
};

}  // namespace fq::python
