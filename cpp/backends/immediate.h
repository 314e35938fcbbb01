#pragma once

#include <utility>

#include "backends/work.h"

namespace sirtaki {

/// Work that is done at once, when it is first advanced: for calls that cannot be interrupted.
template <class Call>
class Immediate final : public Work {
 public:
  explicit Immediate(Call call) : call_(std::move(call)) {}

  bool advance() override {
    call_();
    return true;
  }
  bool is_ready() override { return true; }
  void prepare(Sleep&) const override {}
  Awaited awaited() const override { return {}; }

 private:
  Call call_;
};

template <class Call>
WorkPtr immediately(Call call) {
  return std::make_unique<Immediate<Call>>(std::move(call));
}

}  // namespace sirtaki
