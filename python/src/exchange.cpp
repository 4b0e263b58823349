#include "exchange.h"

#include <memory>
#include <unordered_map>
#include <vector>

#include "fakequant/core/error.h"
#include "foreign_array.h"

namespace fq::python {
namespace {

struct Owner {
  std::unique_ptr<Given> given;
  std::vector<std::int64_t> shape, strides;
  ManagedTensor managed;
};

// The table is an attribute of the type. A newer major version may have another layout and is not used.
const Exchange* read_table(nb::handle type) {
  constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
  if (!nb::hasattr(type, kAttribute)) return nullptr;
  const nb::object capsule = nb::getattr(type, kAttribute);
  auto* table = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (table == nullptr) PyErr_Clear();
  return table != nullptr && table->version.major == 1 ? table : nullptr;
}

}  // namespace

const Exchange* find_exchange(nb::handle value) {
  // Never freed: threads may convert arrays until the process exits.
  static auto* known =
      new std::unordered_map<PyTypeObject*, const Exchange*>;  // protected by the interpreter's lock
  if (!value.is_valid() || value.is_none()) return nullptr;
  auto* type = Py_TYPE(value.ptr());
  // Types without a table are not cached: their addresses may be reused for other types.
  const auto at = known->find(type);
  if (at != known->end()) return at->second;
  const Exchange* found = read_table(nb::handle(reinterpret_cast<PyObject*>(type)));
  if (found != nullptr) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));  // keeps the type alive, so that its address stays unique
    known->emplace(type, found);
  }
  return found;
}

Given::~Given() {
  if (tensor.defined() && tensor.device().is_cuda()) wait_for_stream_at_end(tensor.device(), stream);
}

// Shape and strides must live as long as the managed tensor, so `Owner` has all of them.
nb::object exchanged(const Exchange& exchange, std::unique_ptr<Given> given, nb::dlpack::dtype type) {
  auto owner = std::make_unique<Owner>();
  Tensor& tensor = given->tensor;
  owner->shape.assign(tensor.shape().begin(), tensor.shape().end());
  owner->strides.resize(owner->shape.size());
  std::int64_t step = 1;
  // Row-major strides in elements: the last axis has stride 1.
  for (std::size_t i = owner->shape.size(); i-- > 0;) {
    owner->strides[i] = step;
    step *= owner->shape[i];
  }
  ManagedTensor& managed = owner->managed;
  managed.context = owner.get();
  managed.deleter = [](ManagedTensor* self) { delete static_cast<Owner*>(self->context); };
  auto& view = managed.tensor;
  view.data = tensor.mutable_raw();
  view.device = {tensor.device().is_cuda() ? nb::device::cuda::value : nb::device::cpu::value,
                 tensor.device().index};
  view.ndim = static_cast<std::int32_t>(owner->shape.size());
  view.dtype = type;
  view.shape = owner->shape.data();
  view.strides = owner->strides.data();
  owner->given = std::move(given);
  void* out = nullptr;
  // From here the consumer owns the object. On failure it has not taken it, so it is deleted here.
  auto* owned = &owner.release()->managed;
  if (exchange.to_object(owned, &out) != 0) {
    owned->deleter(owned);
    nb::raise_python_error();
  }
  return nb::steal(static_cast<PyObject*>(out));
}

using fq::detail::ForeignStream;

ForeignStream current_stream(nb::handle like, Device device) {
  if (!device.is_cuda()) return 0;
  const Exchange* exchange = find_exchange(like);
  if (exchange != nullptr && exchange->current_stream != nullptr) {
    void* stream = nullptr;
    if (exchange->current_stream(nb::device::cuda::value, device.index, &stream) != 0)
      nb::raise_python_error();
    return reinterpret_cast<ForeignStream>(stream);
  }
  if (!is_torch(like)) return 0;
  // torch before 2.10 has no C table.
  const nb::object cuda = nb::module_::import_("torch").attr("cuda");
  return nb::cast<ForeignStream>(cuda.attr("current_stream")(device.index).attr("cuda_stream"));
}

void let_stream_wait_at_end(Device device, ForeignStream stream) noexcept {
  try {
    fq::detail::let_stream_wait(device, stream);
  } catch (const Error&) {  // the device is lost
  }
}

void wait_for_stream_at_end(Device device, ForeignStream stream) noexcept {
  try {
    fq::detail::wait_for_stream(device, stream);
  } catch (const Error&) {  // the device is lost
  }
}

}  // namespace fq::python
