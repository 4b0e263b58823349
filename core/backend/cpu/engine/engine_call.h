#pragma once

/// Execution of one oneDNN primitive; included by engine sources only.

#include <initializer_list>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cpu/engine/onednn.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/storage.h"

namespace fq::cpu::onednn {

using Type = dnnl::memory::data_type;

const dnnl::engine& engine();
/// Scratch memory comes from our allocator, and floats are multiplied as floats whatever the environment asks
/// for.
const dnnl::primitive_attr& attributes();
[[nodiscard]] Type type_of(DType dtype);
[[nodiscard]] inline Type product_type(Type factor) {
  return factor == Type::s8 || factor == Type::u8 ? Type::s32 : Type::f32;
}

/// A primitive and its scratch memory, to be run on any number of arrays by one thread.
class Call {
 public:
  template <class PrimitiveDesc>
  explicit Call(const PrimitiveDesc& desc) : primitive_(desc.get()) {
    const Desc scratch = desc.scratchpad_desc();
    if (scratch.get_size() == 0) return;
    storage_ = Storage(static_cast<std::int64_t>(scratch.get_size()), Device::cpu());
    scratch_ = dnnl::memory(scratch, engine(), storage_.mutable_data());
  }
  struct Argument {
    int key;
    const Desc& desc;
    const void* data;
  };
  void run(std::initializer_list<Argument> arguments) const;

 private:
  dnnl::primitive primitive_;
  Storage storage_;
  dnnl::memory scratch_;
};

/// `data` in another order; itself when `to` equals `from`.
class Reordered {
 public:
  Reordered(const Desc& from, const Desc& to, const void* data);
  [[nodiscard]] const void* data() const { return data_; }

 private:
  Storage storage_;
  const void* data_;
};
void reorder(const Desc& from, const Desc& to, const void* source, void* destination);

/// Runs `f` and turns dnnl::error into BackendError naming `function`.
template <class F>
decltype(auto) guarded(const char* function, F&& f);
[[noreturn]] void raise(const char* function, const dnnl::error& error);

template <class F>
decltype(auto) guarded(const char* function, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    raise(function, error);
  }
}

}  // namespace fq::cpu::onednn
