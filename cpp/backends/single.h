#pragma once

#include "backends/backend.h"
#include "backends/immediate.h"
#include "collectives/collectives.h"

namespace sirtaki {

/// A world of one rank, which scripts get that are started without a launcher.
class SingleBackend : public Backend {
 public:
  const char* name() const override { return "single"; }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override {
    return immediately([&op, &in, &out] { run_alone(op, in, out); });
  }
  int track_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t, const std::vector<int>&) override {
    return immediately([] {});
  }
  WorkPtr remove_set(int32_t) override {
    return immediately([] {});
  }
};

}  // namespace sirtaki
