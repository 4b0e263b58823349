#include "fakequant/core/backend/cpu/engine/onednn.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"

namespace fq::cpu::onednn {

const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  static_cast<void>(detail::threads());  // oneDNN waits for the number of threads that OpenMP reports
  return instance;
}

const dnnl::primitive_attr& attributes() {
  static const dnnl::primitive_attr instance = [] {
    dnnl::primitive_attr attr;
    // Scratch memory comes from our arena. Fresh memory in each call costs page faults.
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    // Otherwise ONEDNN_DEFAULT_FPMATH_MODE could round f32 factors to bf16.
    attr.set_fpmath_mode(dnnl::fpmath_mode::strict);
    return attr;
  }();
  return instance;
}

Type onednn_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Type::f32;
    case DType::bf16:
      return Type::bf16;
    case DType::i8:
      return Type::s8;
    case DType::u8:
      return Type::u8;
    default:
      throw ArgumentError(
          fmt::format("[engine] products of {} are not supported: use f32, bf16, i8 or u8", name(dtype)));
  }
}

// Memory objects are made in each call: three of them take less than 1 us.
void Call::run(std::initializer_list<Argument> arguments) const {
  std::unordered_map<int, dnnl::memory> map;
  for (const auto& [key, desc, data] : arguments)
    map.emplace(key, dnnl::memory(desc, engine(), const_cast<void*>(data)));
  if (scratch_) map.emplace(DNNL_ARG_SCRATCHPAD, scratch_);
  dnnl::stream stream(engine());
  // See HeldSignals: a signal handler must not run while oneDNN has moved the stack pointer.
  const HeldSignals held;
  primitive_.execute(stream, map);
  stream.wait();
}

void reorder(const Desc& from, const Desc& to, const void* source, void* destination) {
  Call(dnnl::reorder::primitive_desc(engine(), from, engine(), to, attributes()))
      .run({{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, destination}});
}

Reordered::Reordered(const Desc& from, const Desc& to, const void* data) : data_(data) {
  if (from == to) return;
  storage_ = Storage(static_cast<std::int64_t>(to.get_size()), Device::cpu());
  void* destination = storage_.mutable_data();
  reorder(from, to, data, destination);
  data_ = destination;
}

void raise(const char* function, const dnnl::error& error) {
  const auto* version = dnnl_version();
  throw BackendError(fmt::format("[{}] oneDNN {}.{}.{}: {}", function, version->major, version->minor,
                                 version->patch, error.what()));
}

}  // namespace fq::cpu::onednn
