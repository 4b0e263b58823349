#pragma once

/// oneDNN: primitive descriptors for versions 2 and 3, execution of primitives, and blocked signals. Only
/// engine sources include this header.

#include <csignal>
#include <dnnl.hpp>
#include <initializer_list>
#include <utility>
#include <vector>

#include "fakequant/core/dtype.h"
#include "fakequant/core/storage.h"

namespace fq::cpu::onednn {

using Dims = dnnl::memory::dims;
using Desc = dnnl::memory::desc;

/// Geometry in oneDNN's terms: a dilation of 0 means adjacent taps.
struct Window {
  Dims strides, dilates, before, after;
};

constexpr auto direct = dnnl::algorithm::convolution_direct;  // no other algorithm is exact on codes

#if DNNL_VERSION_MAJOR >= 3

inline auto matmul(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& a, const Desc& b,
                   const Desc& c) {
  return dnnl::matmul::primitive_desc(e, a, b, c, attr);
}
inline auto forward(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x, const Desc& w,
                    const Desc& y, const Window& g) {
  return dnnl::convolution_forward::primitive_desc(e, dnnl::prop_kind::forward_training, direct, x, w, y,
                                                   g.strides, g.dilates, g.before, g.after, attr);
}
inline auto backward_data(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& dx,
                          const Desc& w, const Desc& dy, const Window& g,
                          const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(e, direct, dx, w, dy, g.strides, g.dilates, g.before,
                                                         g.after, hint, attr);
}
inline auto backward_weights(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x,
                             const Desc& dw, const Desc& dy, const Window& g,
                             const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(e, direct, x, dw, dy, g.strides, g.dilates,
                                                            g.before, g.after, hint, attr);
}

#else

inline auto matmul(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& a, const Desc& b,
                   const Desc& c) {
  return dnnl::matmul::primitive_desc({a, b, c}, attr, e);
}
inline auto forward(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x, const Desc& w,
                    const Desc& y, const Window& g) {
  return dnnl::convolution_forward::primitive_desc(
      {dnnl::prop_kind::forward_training, direct, x, w, y, g.strides, g.dilates, g.before, g.after}, attr, e);
}
inline auto backward_data(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& dx,
                          const Desc& w, const Desc& dy, const Window& g,
                          const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_data::primitive_desc(
      {direct, dx, w, dy, g.strides, g.dilates, g.before, g.after}, attr, e, hint);
}
inline auto backward_weights(const dnnl::engine& e, const dnnl::primitive_attr& attr, const Desc& x,
                             const Desc& dw, const Desc& dy, const Window& g,
                             const dnnl::convolution_forward::primitive_desc& hint) {
  return dnnl::convolution_backward_weights::primitive_desc(
      {direct, x, dw, dy, g.strides, g.dilates, g.before, g.after}, attr, e, hint);
}

#endif

using Type = dnnl::memory::data_type;

const dnnl::engine& engine();
/// Returns attributes for our own scratch memory, and for f32 products in f32 regardless of environment
/// variables.
const dnnl::primitive_attr& attributes();
[[nodiscard]] Type onednn_type(DType dtype);
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

/// `data` in another memory order; unchanged if `to` equals `from`.
class Reordered {
 public:
  Reordered(const Desc& from, const Desc& to, const void* data);
  [[nodiscard]] const void* data() const { return data_; }

 private:
  Storage storage_;
  const void* data_;
};
void reorder(const Desc& from, const Desc& to, const void* source, void* destination);

[[noreturn]] void raise(const char* function, const dnnl::error& error);

/// Runs `f` and turns dnnl::error into BackendError with the name `function`.
template <class F>
decltype(auto) guarded(const char* function, F&& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    raise(function, error);
  }
}

}  // namespace fq::cpu::onednn

namespace fq::cpu {

/// Blocks signals on this thread during its lifetime; they are delivered afterwards. oneDNN's float products
/// (AVX2 and later, version 2.6) move the stack pointer to an array on the heap. A signal handler would then
/// overwrite memory below this array. Faults of the thread itself are not blocked.
class HeldSignals {
 public:
  HeldSignals() noexcept {
    sigset_t held;
    sigfillset(&held);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) sigdelset(&held, own);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;  // restores the signal mask
  HeldSignals& operator=(const HeldSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace fq::cpu
