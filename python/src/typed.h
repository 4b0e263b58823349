#pragma once

/// Binds functions of arrays. The types of their parameters say how arguments are converted:
///
///     bind_function(m, "onnx.dequantize_linear", onnx::dequantize_linear, "Returns values.", arg("codes"),
///     ..);
///
/// Arguments are converted before the interpreter's lock is released. Results are arrays of the type of the
/// first argument.

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array.h"
#include "graded.h"

namespace fq::python {

/// A parameter of type T: the type of its argument, and the conversion. The general form passes values on.
template <class T>
struct Argument {
  using Given = T;
  static T take(const Call&, T value, const char*) { return value; }
};

/// A parameter that `convert` makes of an object of Python.
template <class T, T (Call::*convert)(nb::handle, std::string_view) const>
struct Converted {
  using Given = nb::object;
  static T take(const Call& call, nb::handle value, const char* name) { return (call.*convert)(value, name); }
};
template <>
struct Argument<Tensor> : Converted<Tensor, &Call::tensor> {};
template <>
struct Argument<Constant> : Converted<Constant, &Call::constant> {};
template <>
struct Argument<Amax> : Converted<Amax, &Call::amax> {};
template <>
struct Argument<NumBits> : Converted<NumBits, &Call::num_bits> {};
template <>
struct Argument<std::optional<DType>> : Converted<std::optional<DType>, &Call::dtype> {};

/// A parameter that is given by name.
template <class T, T (*parse)(std::string_view)>
struct Named {
  using Given = std::string;
  static T take(const Call&, const std::string& name, const char*) { return parse(name); }
};

template <>
struct Argument<Shape> {
  using Given = std::vector<std::int64_t>;
  static Shape take(const Call&, const Given& value, const char*) { return Shape(value); }
};

/// Returns a result as an object of Python: an array for a tensor, and a tuple of arrays for several.
template <class T>
nb::object give(const Call& call, const T& value) {
  if constexpr (std::is_same_v<T, Tensor>)
    return call.give(value);
  else if constexpr (requires { std::tuple_size<T>::value; })
    return std::apply([&](const auto&... each) { return nb::make_tuple(call.give(each)...); }, value);
  else
    return nb::cast(value);
}

/// Returns the parameters for the arguments `given`, converted in their order.
template <class... P>
std::tuple<P...> take_arguments(const Call& call, const char* const* names,
                                typename Argument<P>::Given... given) {
  const auto next = [&] { return *names++; };
  return {Argument<P>::take(call, std::move(given), next())...};
}

inline nb::handle first_object() { return {}; }
template <class First, class... Rest>
nb::handle first_object(const First& first, const Rest&...) {
  if constexpr (std::is_same_v<First, nb::object>)
    return first;
  else
    return {};
}

/// Returns "quantize" of "tripy.quantize".
inline const char* short_name(const char* function) {
  const char* dot = std::strrchr(function, '.');
  return dot == nullptr ? function : dot + 1;
}

namespace typed {

template <class R, class... P, class... Names>
void bind(nb::module_& m, const char* function, std::function<R(P...)> f, const char* about,
          const Names&... names) {
  static_assert(sizeof...(P) == sizeof...(Names));
  m.def(
      short_name(function),
      [function, f = std::move(f), keys = std::array<const char*, sizeof...(P)>{names.name_...}](
          typename Argument<std::decay_t<P>>::Given... given) {
        const Call call{function, first_object(given...)};
        const auto taken = take_arguments<std::decay_t<P>...>(call, keys.data(), std::move(given)...);
        return give(call, unlocked([&] { return std::apply(f, taken); }));
      },
      names..., about);
}

template <class R, class... P, class... Names>
void bind_graded(nb::module_& m, const char* function, std::function<R(const Variable&, P...)> f,
                 const char* about, const Names&... names) {
  m.def(
      short_name(function),
      [function, f = std::move(f), keys = std::array<const char*, sizeof...(Names)>{names.name_...}](
          nb::object x, typename Argument<std::decay_t<P>>::Given... given, nb::object grad_y) {
        const Call call{function, x};
        const auto taken = take_arguments<std::decay_t<P>...>(call, keys.data() + 1, std::move(given)...);
        return graded(call, x, grad_y, [&](const Variable& v) {
          return std::apply([&](const auto&... each) { return f(v, each...); }, taken);
        });
      },
      names..., nb::arg("grad_y") = nb::none(), about);
}

}  // namespace typed

/// Binds a function of the library. `names` has an nb::arg for each parameter. `function` is the name in
/// messages; without its module it is the name in Python.
template <class F, class... Names>
void bind_function(nb::module_& m, const char* function, F f, const char* about, const Names&... names) {
  typed::bind(m, function, std::function{std::move(f)}, about, names...);
}

/// Binds a function of a Variable and other parameters that has a gradient, with the additional argument
/// `grad_y` (graded.h).
template <class F, class... Names>
void bind_graded(nb::module_& m, const char* function, F f, const char* about, const Names&... names) {
  typed::bind_graded(m, function, std::function{std::move(f)}, about, names...);
}

}  // namespace fq::python
