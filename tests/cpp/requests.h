#pragma once

#include <string>
#include <vector>

#include "engine/requests/request.h"

// What ranks ask for in tests.
namespace sirtaki::testing {

inline Request named(Kind kind, const std::string& name, const Shape& shape = {4}) {
  Request request;
  request.kind = kind;
  request.dtype = Dtype::kF32;
  request.name = name;
  request.shapes = {shape};
  return request;
}

inline Request sum_of(const std::string& name, const Shape& shape = {4}) {
  return named(Kind::kAllreduce, name, shape);
}

/// On tensors of accelerators.
inline Request launched(Request request) {
  request.device = 1;
  return request;
}

/// On the wire.
inline Request rounding(Request request) {
  request.codec = CodecId::kBF16;
  return request;
}

inline Request in_set(Request request, int32_t set) {
  request.set = set;
  return request;
}

inline Request add_set(const std::vector<int64_t>& ranks) {
  Request request;
  request.kind = Kind::kAddSet;
  request.name = "add_process_set";
  request.splits = ranks;
  return request;
}

inline Request remove_set(int32_t set) {
  Request request;
  request.kind = Kind::kRemoveSet;
  request.name = "remove_process_set";
  request.root = set;
  return request;
}

inline Request join_of(int32_t set = 0) {
  Request request;
  request.kind = Kind::kJoin;
  request.name = "join." + std::to_string(set);
  request.set = set;
  return request;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace sirtaki::testing
