#pragma once

#include <vector>

#include "collectives/op.h"
#include "collectives/plan.h"

namespace sirtaki {

/// Reduces a range of several sources, one of which is this member's own and lies in pieces. With a
/// wire the own numbers are rounded as all others are, and lie where those do.
class RangeReduce {
 public:
  RangeReduce(const Op& op, const Scale& scale, int sources)
      : rounded_(op.wire != WireFormat::kOwn),
        fn_(rounded_ ? widening_reduce_fn(op.wire, op.reduce) : reduce_fn(op.dtype, op.reduce)),
        size_(size_of(op.dtype)),
        scale_(scale),
        sources_(static_cast<size_t>(sources)) {}

  /// `own`, source number `index`, and `out` are walked; `source(k, position)` is where another one
  /// has that position of the stream, with a wire the own one too. `copy`, if not null, gets the
  /// same results from its beginning on.
  template <class Own, class Out, class Source>
  void run(Range range, Own& own, int index, Out& out, Source source, std::byte* copy = nullptr) {
    if (rounded_) return run_rounded(range, out, source, copy);
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
  template <class Out, class Source>
  void run_rounded(Range range, Out& out, Source source, std::byte* copy) {
    out.walk(range, [&](std::byte* to, size_t piece, size_t position) {
      for (int k = 0; k < count(); ++k) sources_[static_cast<size_t>(k)] = source(k, position);
      fn_(to, copy != nullptr ? copy + (position - range.begin) : nullptr, sources_.data(), count(),
          piece / size_, scale_);
    });
  }

  int count() const { return static_cast<int>(sources_.size()); }

  bool rounded_;
  ReduceFn fn_;
  size_t size_;
  Scale scale_;
  std::vector<const void*> sources_;
};

}  // namespace sirtaki
