#include "fakequant/core/error.h"

#include "fakequant/core/detail/utf8.h"

namespace fq {

Error::Error(const std::string& message) : std::runtime_error(detail::one_line(message)) {}

}  // namespace fq
