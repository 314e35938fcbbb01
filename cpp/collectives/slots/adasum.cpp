#include <vector>

#include "collectives/adasum_weights.h"
#include "collectives/collectives.h"
#include "collectives/cursor.h"
#include "collectives/slots/slots.h"

namespace sirtaki {
namespace {

/// The products, of which each member computes those of its slice of every chunk.
class Products {
 public:
  Products(Group& group, const Op& op, const Segments& in)
      : group_(group),
        op_(op),
        chunk_(StreamSlots::chunk_for(group, op, in.bytes())),
        chunks_(in.bytes(), chunk_),
        slots_(group, chunk_),
        copied_(in),
        own_(in),
        gram_(in, group.size()) {}

  /// Leaves this member's share of them in `gram()`.
  Task compute() {
    co_await group_.begin_stream();
    for (uint32_t step = 0; step < chunks_.count() + 1; ++step) {
      if (step < chunks_.count()) {
        if (step >= StreamSlots::kDepth) {
          co_await group_.all_consumed(step + 1 - StreamSlots::kDepth);
        }
        copy_out(step);
      }
      if (step == 0) continue;
      co_await group_.all_published(step);
      multiply(step - 1);
    }
    group_.end();
  }

  Gram& gram() { return gram_; }

 private:
  void copy_out(uint32_t q) {
    const Range chunk = chunks_.range(q);
    const Range part = own_part(chunk);
    std::byte* slot = slots_.input(group_.rank(), q);
    // The part in between is nobody else's business.
    copied_.copy_to(slot, {chunk.begin, part.begin});
    copied_.copy_to(slot + (part.end - chunk.begin), {part.end, chunk.end});
    group_.publish();
  }

  void multiply(uint32_t q) {
    const Range chunk = chunks_.range(q);
    std::vector<const std::byte*> sources(static_cast<size_t>(group_.size()));
    own_.walk(own_part(chunk), [&](const std::byte* own, size_t bytes, size_t at) {
      for (int m = 0; m < group_.size(); ++m) {
        sources[static_cast<size_t>(m)] =
            m == group_.rank() ? own : slots_.input(m, q) + (at - chunk.begin);
      }
      gram_.add(op_.dtype, {at, at + bytes}, sources);
    });
    group_.consume();
  }

  /// What this member multiplies of a chunk.
  Range own_part(const Range& chunk) const {
    const Range slice = slice_of(chunk.bytes(), group_.size(), group_.rank());
    return {chunk.begin + slice.begin, chunk.begin + slice.end};
  }

  Group& group_;
  const Op& op_;
  size_t chunk_;
  Chunks chunks_;
  StreamSlots slots_;
  Cursor copied_;
  Cursor own_;
  Gram gram_;
};

}  // namespace

Task adasum(Group& group, const Op& op, const Segments& in, const Segments& out) {
  Products products(group, op, in);
  co_await products.compute();
  co_await add_weighted(group, op, products.gram(), in, out);
}

}  // namespace sirtaki
