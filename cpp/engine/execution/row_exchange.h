#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/error.h"

namespace sirtaki {

/// An alltoall of rows, in two steps: first the members send each other the numbers of their rows,
/// then the rows. So no other rank has to know them.
class RowExchange final : public Work {
 public:
  struct Plan {
    /// Rows for each member.
    std::vector<int64_t> sent;
    size_t row_bytes;
    int64_t most_rows;  ///< the largest possible total
    /// Called with the rows from each member: adds their destinations to `out`.
    std::function<void(const std::vector<int64_t>& received)> receive;
  };

  /// `op`, `in` and `out`: of the second step; `op.longest` and `out` are filled in before it.
  RowExchange(Backend& backend, Op& op, const Streams& in, const Streams& out, Plan plan)
      : backend_(backend),
        op_(op),
        in_(in),
        out_(out),
        plan_(std::move(plan)),
        telling_(op),
        own_(plan_.sent.size()),
        others_(plan_.sent.size()),
        own_streams_(plan_.sent.size()),
        others_streams_(plan_.sent.size()) {
    const int64_t most = *std::max_element(plan_.sent.begin(), plan_.sent.end());
    for (size_t m = 0; m < plan_.sent.size(); ++m) {
      own_[m] = {plan_.sent[m], most};
      own_streams_[m].add(&own_[m], sizeof(Told));
      others_streams_[m].add(&others_[m], sizeof(Told));
    }
    telling_.dtype = Dtype::kI64;
    telling_.longest = sizeof(Told);
    work_ = backend_.start(telling_, own_streams_, others_streams_);
  }

  bool advance() override {
    if (!work_->advance()) return false;
    if (told_) return true;
    told_ = true;
    learn();
    work_ = backend_.start(op_, in_, out_);
    return false;
  }
  bool is_ready() override { return work_->is_ready(); }
  void prepare(Sleep& sleep) const override { work_->prepare(sleep); }
  Awaited awaited() const override { return work_->awaited(); }

 private:
  /// One member's message to another.
  struct Told {
    int64_t rows = 0;  ///< for the receiver
    int64_t most = 0;  ///< for any member
  };

  void learn() {
    std::vector<int64_t> received;
    int64_t most = 0;
    int64_t total = 0;
    for (size_t m = 0; m < others_.size(); ++m) {
      const Told& told = others_[m];
      const bool possible =
          told.rows >= 0 && told.rows <= told.most && told.most <= plan_.most_rows;
      if (possible) total += told.rows;
      if (!possible || total > plan_.most_rows) {
        // The others continue and wait for this rank, so the world ends.
        throw Error(ErrorCode::kPeerLost, "member " + std::to_string(m) + " of process set " +
                                              std::to_string(op_.set) +
                                              " announced an impossible number of rows");
      }
      received.push_back(told.rows);
      most = std::max(most, told.most);
    }
    plan_.receive(received);
    op_.longest = static_cast<size_t>(most) * plan_.row_bytes;
  }

  Backend& backend_;
  Op& op_;
  const Streams& in_;
  const Streams& out_;
  Plan plan_;
  bool told_ = false;
  Op telling_;
  std::vector<Told> own_;
  std::vector<Told> others_;
  Streams own_streams_;
  Streams others_streams_;
  WorkPtr work_;  ///< refers to all of these
};

}  // namespace sirtaki
