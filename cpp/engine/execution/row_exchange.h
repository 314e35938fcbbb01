#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backends/backend.h"

namespace sirtaki {

/// An alltoall of rows, in two steps: first the members tell each other how many rows they will
/// send, then these go. So nobody else has to know.
class RowExchange final : public Work {
 public:
  struct Plan {
    /// Rows for each member.
    std::vector<int64_t> sent;
    size_t row_bytes;
    int64_t most_rows;  ///< that can be, in all
    /// Called with the rows from each member: adds where they are to go to `out`.
    std::function<void(const std::vector<int64_t>& received)> receive;
  };

  /// `op`, `in` and `out`: of the second step; `op.longest` and `out` are filled in between.
  RowExchange(Backend& backend, Op& op, const Streams& in, const Streams& out, Plan plan);

  bool advance() override;
  bool is_ready() override { return work_->is_ready(); }
  void prepare(Sleep& sleep) const override { work_->prepare(sleep); }
  Awaited awaited() const override { return work_->awaited(); }

 private:
  /// What one member tells another.
  struct Told {
    int64_t rows = 0;  ///< for that one
    int64_t most = 0;  ///< for any member
  };

  void learn();

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
  WorkPtr work_;  ///< is about all of these
};

}  // namespace sirtaki
