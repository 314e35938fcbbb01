#pragma once

#include <vector>

#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

/// Reduces a range of several sources, one of which is this member's own and lies in pieces.
class RangeReduce {
 public:
  RangeReduce(const Op& op, const Scale& scale, int sources)
      : fn_(reduce_fn(op.dtype, op.reduce)),
        size_(size_of(op.dtype)),
        scale_(scale),
        sources_(static_cast<size_t>(sources)) {}

  /// `own`, source number `index`, and `out` are walked; `source(k, position)` is where another one
  /// has that position of the stream. `copy`, if not null, gets the same results from its beginning
  /// on.
  template <class Own, class Out, class Source>
  void run(Range range, Own& own, int index, Out& out, Source source, std::byte* copy = nullptr) {
    own.walk(range, [&](const std::byte* mine, size_t bytes, size_t at) {
      out.walk({at, at + bytes}, [&](std::byte* to, size_t piece, size_t position) {
        for (int k = 0; k < count(); ++k) {
          sources_[static_cast<size_t>(k)] =
              k == index ? mine + (position - at) : source(k, position);
        }
        fn_(to, copy != nullptr ? copy + (position - range.begin) : nullptr, sources_.data(),
            count(), piece / size_, scale_);
      });
    });
  }

 private:
  int count() const { return static_cast<int>(sources_.size()); }

  ReduceFn fn_;
  size_t size_;
  Scale scale_;
  std::vector<const void*> sources_;
};

}  // namespace sirtaki
