#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ffi/sirtaki.h"

// What the libraries that call the table have in common.
namespace sirtaki {

inline constexpr const char* kNoWorld = "Horovod has not been initialized; use hvd.init().";

/// Our number of a framework's type; -1: there is none.
template <class Type, size_t kCount>
int32_t dtype_in(const std::pair<Type, int32_t> (&types)[kCount], Type type) {
  for (const auto& [its, ours] : types) {
    if (its == type) return ours;
  }
  return -1;
}

/// Where the elements are, also of what has none.
inline void* place_of(void* data) {
  static char nothing;
  return data == nullptr ? &nothing : data;
}

/// How long the thread that begins an operation of so many bytes stays. Operations of few bytes are
/// waited for there, for it moves them itself meanwhile: waking others takes longer. The thread
/// goes on before others come late or in another order.
inline int64_t patience_ns(size_t bytes) { return bytes <= 256 << 10 ? 100'000 : 0; }

/// Begins an operation, and lets go of its world. `call` is asked by `allocate` for memory of
/// results whose size the ranks agree on, and told the end by `finish`.
template <class Call>
void begin(const sirtaki_table& table, sirtaki_world* world, sirtaki_request request,
           const std::string& name, const std::vector<sirtaki_tensor>& tensors, size_t bytes,
           Call* call) {
  request.struct_size = sizeof request;
  request.name = name.data();
  request.name_bytes = name.size();
  request.tensors = tensors.data();
  request.tensor_count = tensors.size();
  request.allocate = [](void* user, size_t tensor, const int64_t* shape, size_t dimensions,
                        size_t size) {
    return static_cast<Call*>(user)->allocate(tensor, shape, dimensions, size);
  };
  request.done = [](void* user, sirtaki_operation* operation) {
    static_cast<Call*>(user)->finish(operation);
  };
  request.user = call;
  request.patience_ns = patience_ns(bytes);
  table.release(table.submit(world, &request));
  table.release_world(world);
}

/// What is wrong with the engine's interface; "" if nothing is.
inline const char* problem_of(const sirtaki_table& table) {
  const bool known =
      table.version == SIRTAKI_FFI_VERSION && table.struct_size >= sizeof(sirtaki_table);
  return known ? "" : "the engine's interface has another version";
}

}  // namespace sirtaki
