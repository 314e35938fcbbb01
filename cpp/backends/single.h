#pragma once

#include "backends/backend.h"
#include "backends/immediate.h"

namespace sirtaki {

/// Runs an operation of a set with one member: copies, and scales where the operation reduces.
void run_alone(const Op& op, const Streams& in, const Streams& out);

/// A world of one: what scripts get that are started without a launcher.
class SingleBackend : public Backend {
 public:
  const char* name() const override { return "single"; }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override {
    return immediately([&op, &in, &out] { run_alone(op, in, out); });
  }
  int lane_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t, const std::vector<int>&) override {
    return immediately([] {});
  }
  WorkPtr remove_set(int32_t) override {
    return immediately([] {});
  }
};

}  // namespace sirtaki
