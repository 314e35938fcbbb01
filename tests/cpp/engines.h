#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "ranks.h"
#include "requests.h"

// Whole engines, one a thread of the test.
namespace sirtaki::testing {

inline EngineOptions quick_options() {
  EngineOptions options;
  // There are more ranks than cores: who polls keeps the one it waits for from running.
  options.caller_spin_ns = 0;
  options.engine_spin_ns = 0;
  options.chunk_bytes = static_cast<int64_t>(kSmallestChunk);
  options.autotune.chunk_fixed = true;
  return options;
}

/// Runs `body(engine, rank)` for each rank of a world of `n`; every engine shuts down after it.
inline void run_engines(int n, const EngineOptions& options,
                        const std::function<void(Engine&, int)>& body) {
  const std::shared_ptr<Region> region = Region::anonymous(n);
  run_threads(
      n,
      [&](int r) {
        Engine engine(r, HostMap::single(n), region, {}, {}, options);
        body(engine, r);
      },
      [&](int r) { Doorbell(region, r, SpinPolicy{}).abort(r); });
}

inline void run_engines(int n, const std::function<void(Engine&, int)>& body) {
  run_engines(n, quick_options(), body);
}

inline void check(const Handle& handle) {
  if (handle.error()) throw *handle.error();
}

/// The error of an operation, or of submitting it; fails the test if there is none.
inline Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  throw std::runtime_error("expected an error");
}

/// Sums `values` over all ranks in place.
inline std::shared_ptr<Handle> start_sum(Engine& engine, const std::string& name,
                                         std::vector<float>& values, int32_t set = 0) {
  Request request = sum_of(name, {static_cast<int64_t>(values.size())});
  request.set = set;
  return engine.submit({std::move(request), {values.data()}, {values.data()}});
}

inline void finish(Engine& engine, Handle& handle) {
  engine.wait(handle);
  check(handle);
}

inline void sum(Engine& engine, const std::string& name, std::vector<float>& values,
                int32_t set = 0) {
  Request request = sum_of(name, {static_cast<int64_t>(values.size())});
  request.set = set;
  check(*engine.submit_and_wait({std::move(request), {values.data()}, {values.data()}}));
}

inline std::shared_ptr<Handle> finished(Engine& engine, Request request,
                                        std::vector<const void*> in = {},
                                        std::vector<void*> out = {}) {
  auto handle = engine.submit_and_wait({std::move(request), std::move(in), std::move(out)});
  check(*handle);
  return handle;
}

inline void barrier(Engine& engine) { finished(engine, Request{}); }

inline int32_t add_set_of(Engine& engine, const std::vector<int64_t>& ranks) {
  return finished(engine, add_set(ranks))->value;
}

inline void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

}  // namespace sirtaki::testing
