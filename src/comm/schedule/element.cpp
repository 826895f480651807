#include "comm/schedule/element.hpp"

namespace trainstone {

std::size_t size_of(ElementType type) {
  switch (type) {
  case ElementType::float32: return sizeof(float);
  case ElementType::float64: return sizeof(double);
  case ElementType::int32: return sizeof(std::int32_t);
  case ElementType::int64: return sizeof(std::int64_t);
  case ElementType::bfloat16:
  case ElementType::float16: return sizeof(std::uint16_t);
  }
  return 0;
}

std::string_view to_string(ElementType type) {
  switch (type) {
  case ElementType::float32: return "float32";
  case ElementType::float64: return "float64";
  case ElementType::int32: return "int32";
  case ElementType::int64: return "int64";
  case ElementType::bfloat16: return "bfloat16";
  case ElementType::float16: return "float16";
  }
  return "unknown";
}

std::string_view to_string(Operation operation) {
  switch (operation) {
  case Operation::sum: return "sum";
  case Operation::max: return "max";
  case Operation::min: return "min";
  }
  return "unknown";
}

} // namespace trainstone
