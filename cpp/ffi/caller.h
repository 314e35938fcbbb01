#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ffi/sirtaki.h"

// Shared by the libraries that call the table.
namespace sirtaki {

inline constexpr const char* kNoWorld = "Horovod has not been initialized; use hvd.init().";

/// The number for a framework's type here; -1: there is none.
template <class Type, size_t kCount>
int32_t dtype_in(const std::pair<Type, int32_t> (&types)[kCount], Type type) {
  for (const auto& [its, ours] : types) {
    if (its == type) return ours;
  }
  return -1;
}

/// The address of the elements, which is not null even if there are none.
inline void* place_of(void* data) {
  static char nothing;
  return data == nullptr ? &nothing : data;
}

/// Adds the error's name in Python, which shows elastic training a loss in a framework's error.
inline std::string named(int32_t status, const std::string& message) {
  static constexpr std::pair<int32_t, const char*> kNames[] = {
      {SIRTAKI_INTERNAL, "HorovodInternalError: "},
      {SIRTAKI_PEER_LOST, "PeerLostError: "},
      {SIRTAKI_TIMEOUT, "CollectiveTimeoutError: "},
      {SIRTAKI_MISMATCH, "MismatchError: "}};
  for (const auto& [its, name] : kNames) {
    if (its == status) return name + message;
  }
  return message;
}

/// How long the thread that begins an operation of this size stays in the call. It waits there for
/// small operations because it moves them itself meanwhile, which is faster than to wake others. It
/// returns in time if others come late or in another order.
inline int64_t patience_ns(size_t bytes) { return bytes <= 256 << 10 ? 100'000 : 0; }

/// Begins an operation, and releases its world. `call` provides, by `allocate`, memory for results
/// whose size the ranks agree on, and is notified of the end by `finish`.
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

/// The problem with the engine's interface; "" if there is none.
inline const char* problem_of(const sirtaki_table& table) {
  const bool known =
      table.version == SIRTAKI_FFI_VERSION && table.struct_size >= sizeof(sirtaki_table);
  return known ? "" : "the engine's interface has another version";
}

}  // namespace sirtaki
