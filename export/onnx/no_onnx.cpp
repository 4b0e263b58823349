#include "fakequant/core/error.h"
#include "fakequant/export/onnx/model.h"

namespace fq {
namespace {

[[noreturn]] void fail(const char* function) {
  throw BackendError(std::string("[") + function +
                     "] this build has no ONNX: install libonnx-dev and libprotobuf-dev, and build again");
}

}  // namespace

bool has_onnx() noexcept { return false; }
void save_onnx(const std::string&, const OnnxModel&, std::int64_t) { fail("save_onnx"); }
OnnxModel load_onnx(const std::string&) { fail("load_onnx"); }

}  // namespace fq
