#include "fakequant/core/io/state_dict.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq {

// Entries keep their order of insertion, the index finds them by name.
struct StateDict::Body {
  std::vector<Entry> entries;
  std::map<std::string, std::size_t, std::less<>> index;
  nlohmann::json attributes = nlohmann::json::object();
};

namespace {

constexpr std::int64_t kMostParts = 64;  // limit of nested groups when reading

// Names are paths of HDF5 objects: empty parts and "." would name another object.
void check_name(std::string_view name) {
  FQ_CHECK(name.find('\0') == name.npos, "state_dict", "a name contains a zero byte: remove it");
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    FQ_CHECK(!part.empty() && part != ".", "state_dict",
             "the name '{}' has a part '{}': use parts joined by one '/'", name, part);
    begin = end + 1;
  }
  FQ_CHECK(std::ranges::count(name, '/') < kMostParts, "state_dict", "the name '{}..' has more than {} parts",
           name.substr(0, 80), kMostParts);
}

std::string joined(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
}

// Returns whether the name is in the group `prefix`: "a/b" is in "a", "ab" is not.
bool below(std::string_view name, std::string_view prefix) {
  return prefix.empty() ||
         (name.size() > prefix.size() + 1 && name.starts_with(prefix) && name[prefix.size()] == '/');
}

std::string without(std::string_view name, std::string_view prefix) {
  return std::string(prefix.empty() ? name : name.substr(prefix.size() + 1));
}

}  // namespace

StateDict::StateDict() : body_(std::make_unique<Body>()) {}
StateDict::StateDict(const StateDict& other) : body_(std::make_unique<Body>(*other.body_)) {}
StateDict::StateDict(StateDict&& other) noexcept = default;
StateDict& StateDict::operator=(StateDict other) noexcept {
  body_.swap(other.body_);
  return *this;
}
StateDict::~StateDict() = default;

void StateDict::set(std::string name, Tensor tensor) {
  check_name(name);
  FQ_CHECK(tensor.defined(), "state_dict", "the tensor '{}' is undefined: create it with a shape", name);
  const auto [place, added] = body_->index.try_emplace(name, body_->entries.size());
  if (added)
    body_->entries.emplace_back(std::move(name), std::move(tensor));
  else
    // A replaced tensor keeps its position.
    body_->entries[place->second].second = std::move(tensor);
}

bool StateDict::contains(std::string_view name) const { return body_->index.contains(name); }

const Tensor& StateDict::at(std::string_view name) const {
  const auto found = body_->index.find(name);
  FQ_CHECK(found != body_->index.end(), "state_dict", "there is no tensor '{}'{}", name,
           detail::did_you_mean(name, names()));
  return body_->entries[found->second].second;
}

// Loaders use this form: a file of another model then fails by name instead of being misread.
const Tensor& StateDict::at(std::string_view name, const Shape& shape, DType dtype) const {
  const Tensor& tensor = at(name);
  FQ_CHECK(tensor.shape() == shape && tensor.dtype() == dtype, "state_dict",
           "'{}' is {} {}, expected {} {}: the state is of another model", name, fq::name(tensor.dtype()),
           to_string(tensor.shape()), fq::name(dtype), to_string(shape));
  return tensor;
}

const std::vector<StateDict::Entry>& StateDict::tensors() const noexcept { return body_->entries; }

std::vector<std::string> StateDict::names() const {
  std::vector<std::string> all;
  for (const auto& entry : tensors()) all.push_back(entry.first);
  return all;
}

void StateDict::set_attribute(std::string name, nlohmann::json value) {
  check_name(name);
  body_->attributes[std::move(name)] = std::move(value);
}

bool StateDict::has_attribute(std::string_view name) const {
  return attributes().contains(std::string(name));
}

const nlohmann::json& StateDict::attribute(std::string_view name) const {
  const auto found = attributes().find(std::string(name));
  if (found != attributes().end()) return *found;
  std::vector<std::string> all;
  for (const auto& item : attributes().items()) all.push_back(item.key());
  FQ_CHECK(false, "state_dict", "there is no attribute '{}'{}", name, detail::did_you_mean(name, all));
}

const nlohmann::json& StateDict::attributes() const noexcept { return body_->attributes; }

void StateDict::merge(const StateDict& other, std::string_view prefix) {
  // Inserting into the list that is read would invalidate it.
  if (&other == this) return merge(StateDict(other), prefix);
  for (const auto& [name, tensor] : other.tensors())
    FQ_CHECK(!contains(joined(prefix, name)), "state_dict",
             "a tensor '{}' exists already: merge under another prefix", joined(prefix, name));
  for (const auto& item : other.attributes().items())
    FQ_CHECK(!has_attribute(joined(prefix, item.key())), "state_dict",
             "an attribute '{}' exists already: merge under another prefix", joined(prefix, item.key()));
  if (!prefix.empty()) check_name(prefix);
  for (const auto& [name, tensor] : other.tensors()) set(joined(prefix, name), tensor);
  for (const auto& item : other.attributes().items()) set_attribute(joined(prefix, item.key()), item.value());
}

StateDict StateDict::sub(std::string_view prefix) const {
  StateDict part;
  for (const auto& [name, tensor] : tensors())
    if (below(name, prefix)) part.set(without(name, prefix), tensor);
  for (const auto& item : attributes().items())
    if (below(item.key(), prefix)) part.set_attribute(without(item.key(), prefix), item.value());
  return part;
}

bool StateDict::has_sub(std::string_view prefix) const {
  // Names of a group are neighbours in the sorted index.
  const auto found = body_->index.lower_bound(fmt::format("{}/", prefix));
  if (found != body_->index.end() && below(found->first, prefix)) return true;
  const auto items = attributes().items();
  return std::any_of(items.begin(), items.end(), [&](const auto& item) { return below(item.key(), prefix); });
}

bool bitwise_equal(const StateDict& a, const StateDict& b) {
  // Attributes are sorted by name and compare by value; tensors also by order.
  return a.attributes() == b.attributes() &&
         std::equal(a.tensors().begin(), a.tensors().end(), b.tensors().begin(), b.tensors().end(),
                    [](const auto& x, const auto& y) {
                      return x.first == y.first && bitwise_equal(x.second, y.second);
                    });
}

}  // namespace fq
