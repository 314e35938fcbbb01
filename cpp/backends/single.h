#pragma once

#include "backends/backend.h"

namespace sirtaki {

/// Runs an operation of a set with one member: copies, and scales where the operation reduces.
void run_alone(const Op& op, const Streams& in, const Streams& out);

/// A world of one: what scripts get that are started without a launcher.
class SingleBackend : public Backend {
 public:
  const char* name() const override { return "single"; }
  void run(const Op& op, const Streams& in, const Streams& out) override { run_alone(op, in, out); }
  void add_set(int32_t, const std::vector<int>&) override {}
  void remove_set(int32_t) override {}
};

}  // namespace sirtaki
