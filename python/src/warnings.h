#pragma once

/// Converts warnings of the library to Python warnings of the category fakequant.FakequantWarning.

#include <string>

#include "array.h"

namespace fq::python {

/// Issues a Python warning at the nearest caller outside of the package, or throws if a filter turns the
/// warning into an exception. Does nothing for an empty message. Requires the interpreter's lock.
void warn(const std::string& message);

/// A call of the library. Its warnings are issued after the call, each message once, from any thread. The
/// constructor and destructor require the interpreter's lock. Warnings without an open call, and warnings of
/// a call that ends with an exception, are issued by the main thread as soon as it runs Python code.
class CallWarnings {
 public:
  CallWarnings();
  ~CallWarnings();
  CallWarnings(const CallWarnings&) = delete;  // counted
  CallWarnings& operator=(const CallWarnings&) = delete;

  /// Issues all warnings that wait, as `warn`.
  static void tell();
};

}  // namespace fq::python
