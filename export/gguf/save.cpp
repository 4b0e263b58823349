#include <bit>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/export/gguf/detail/types.h"

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

namespace fq {
namespace {

using detail::GgufKind;

constexpr const char* kSave = "save_gguf";

// Collects the header. GGUF is little-endian, and a text has a length of 8 bytes and no terminator.
class Bytes {
 public:
  template <class T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<std::uint64_t>(value.size()));
    text_ += value;
  }
  void kind(GgufKind kind) { number(static_cast<std::uint32_t>(kind)); }
  void pad() {
    while (text_.size() % static_cast<std::size_t>(detail::gguf_alignment) != 0) text_ += '\0';
  }
  [[nodiscard]] std::string& bytes() noexcept { return text_; }

 private:
  std::string text_;
};

template <class T>
constexpr GgufKind gguf_kind() {
  if constexpr (std::is_same_v<T, bool>) return GgufKind::boolean;
  if constexpr (std::is_same_v<T, std::uint32_t>) return GgufKind::u32;
  if constexpr (std::is_same_v<T, std::int32_t>) return GgufKind::i32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return GgufKind::u64;
  if constexpr (std::is_same_v<T, std::int64_t>) return GgufKind::i64;
  if constexpr (std::is_same_v<T, float>) return GgufKind::f32;
  if constexpr (std::is_same_v<T, double>) return GgufKind::f64;
  return GgufKind::text;
}

template <class T>
void write_one(Bytes& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    out.text(value);
  else
    out.number(value);
}

// Writes a value after its type. A list has two types: array, and the type of its elements.
struct WriteValue {
  Bytes& out;
  template <class T>
  void operator()(const T& value) const {
    out.kind(gguf_kind<T>());
    write_one(out, value);
  }
  template <class T>
  void operator()(const std::vector<T>& values) const {
    out.kind(GgufKind::array);
    out.kind(gguf_kind<T>());
    out.number(static_cast<std::uint64_t>(values.size()));
    for (const T& value : values) write_one(out, value);
  }
};

void check(const GgufModel& model) {
  std::set<std::string_view> keys, names;
  for (const auto& [key, value] : model.metadata)
    FQ_CHECK(!key.empty() && keys.insert(key).second, kSave, "the key '{}' is empty or there twice", key);
  for (const auto& t : model.tensors) {
    FQ_CHECK(!t.name.empty() && names.insert(t.name).second, kSave, "the tensor '{}' is there twice", t.name);
    // ggml keeps a name in 64 bytes, including the terminator.
    FQ_CHECK(t.name.size() <= detail::gguf_longest_name, kSave,
             "the name '{}' has {} bytes, ggml supports {}. Use a shorter name for the module", t.name,
             t.name.size(), detail::gguf_longest_name);
    FQ_CHECK(t.shape.size() <= detail::gguf_most_axes && numel(t.shape) > 0, kSave,
             "'{}' is {}: ggml has up to {} axes and no empty tensors", t.name, to_string(t.shape),
             detail::gguf_most_axes);
    // Blocks lie within a row: a row must have whole blocks.
    const bool whole = t.shape.empty() ? detail::gguf_block(t.type).elements == 1
                                       : t.shape.back() % detail::gguf_block(t.type).elements == 0;
    FQ_CHECK(whole && t.data.defined() && t.data.device().is_cpu() &&
                 t.data.dtype() == detail::gguf_dtype(t.type) &&
                 t.data.shape() == detail::gguf_data_shape(t.type, t.shape),
             kSave, "'{}' is {} of {}, its data {}", t.name, name(t.type), to_string(t.shape),
             t.data.describe());
  }
}

std::int64_t padded(std::int64_t bytes) {
  return (bytes + detail::gguf_alignment - 1) / detail::gguf_alignment * detail::gguf_alignment;
}

std::string gguf_header(const GgufModel& model) {
  Bytes out;
  out.bytes() += detail::gguf_magic;
  out.number(detail::gguf_version);
  out.number(static_cast<std::uint64_t>(model.tensors.size()));
  out.number(static_cast<std::uint64_t>(model.metadata.size()));
  for (const auto& [key, value] : model.metadata) {
    out.text(key);
    std::visit(WriteValue{out}, value);
  }
  // Offsets count from the beginning of the data, and each tensor begins at a multiple of the alignment.
  std::int64_t offset = 0;
  for (const auto& t : model.tensors) {
    out.text(t.name);
    out.number(static_cast<std::uint32_t>(t.shape.size()));
    // ggml has the innermost axis first.
    for (std::size_t i = t.shape.size(); i-- > 0;) out.number(static_cast<std::uint64_t>(t.shape[i]));
    out.number(static_cast<std::uint32_t>(t.type));
    out.number(static_cast<std::uint64_t>(offset));
    offset += padded(t.data.nbytes());
  }
  out.pad();
  return std::move(out.bytes());
}

}  // namespace

std::string_view name(GgufType type) noexcept {
  switch (type) {
    case GgufType::f32:
      return "F32";
    case GgufType::f16:
      return "F16";
    case GgufType::q4_0:
      return "Q4_0";
    case GgufType::q8_0:
      break;
  }
  return "Q8_0";
}

void save_gguf(const std::string& path, const GgufModel& model) {
  check(model);
  AtomicFile file(path);
  // Tensors are written one by one, so the file is never in memory as a whole.
  file.write(gguf_header(model));
  for (const auto& t : model.tensors) {
    // The header has counted the bytes of each tensor with its padding, also after the last one.
    const Tensor rows = t.data.to(Layout::row_major);
    file.write(rows.raw(), static_cast<std::size_t>(rows.nbytes()));
    file.write(std::string(static_cast<std::size_t>(padded(rows.nbytes()) - rows.nbytes()), '\0'));
  }
  file.commit();
}

}  // namespace fq
