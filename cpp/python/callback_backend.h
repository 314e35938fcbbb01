#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "backends/backend.h"

namespace sirtaki {

/// A backend written in Python: an object with the attribute `name` and the methods
///   run(kind, dtype, reduce, prescale, postscale, root, set, inputs, outputs)
///   add_set(set, ranks)
///   remove_set(set)
/// where numbers are those of Op, `root` is the index of a member in the set, `ranks` are ranks of
/// the world, and a stream is a list of (address, bytes).
///
/// A ValueError reports an error that all members detected before they exchanged any data: the
/// operation fails and the world goes on. Any other exception ends the world.
class CallbackBackend : public Backend {
 public:
  /// The GIL must be held.
  explicit CallbackBackend(nanobind::object target);
  ~CallbackBackend() override;
  CallbackBackend(const CallbackBackend&) = delete;
  CallbackBackend& operator=(const CallbackBackend&) = delete;

  const char* name() const override { return name_.c_str(); }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override;
  /// One track: MPI collectives on several communicators must be called in the same order on all
  /// ranks.
  int track_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t set, const std::vector<int>& ranks) override;
  WorkPtr remove_set(int32_t set) override;

 private:
  void run(const Op& op, const Streams& in, const Streams& out);

  nanobind::object target_;
  std::string name_;
};

}  // namespace sirtaki
