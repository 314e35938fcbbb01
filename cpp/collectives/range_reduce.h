#pragma once

#include <vector>

#include "collectives/cursor.h"

namespace sirtaki {

/// Reduces a range of several sources, one of which is this member's own and lies in pieces. With a
/// codec all of them are encoded.
class RangeReduce {
 public:
  /// `decodes`: results are not encoded.
  RangeReduce(const Op& op, const Scale& scale, int sources, bool decodes = false)
      : form_(op),
        decodes_(decodes && form_.encodes()),
        fn_(fn_of(op)),
        size_(size_of(op.dtype)),
        scale_(scale),
        sources_(static_cast<size_t>(sources)) {}

  /// `own`, source number `index`, and `out` are walked; `source(k, position)` is where another one
  /// has that position of the stream, and the own one too if results are decoded. `copy`, if not
  /// null, gets the same results from its beginning on.
  template <class Own, class Out, class Source>
  void run(Range range, Own& own, int index, Out& out, Source source, std::byte* copy = nullptr) {
    if (decodes_) return decode(range, out, source, copy);
    own.walk(range, [&](const std::byte* mine, size_t bytes, size_t at) {
      out.walk({at, at + bytes}, [&](std::byte* to, size_t piece, size_t position) {
        for (int k = 0; k < count(); ++k) {
          sources_[static_cast<size_t>(k)] =
              k == index ? mine + (position - at) : source(k, position);
        }
        fn_(to, copy != nullptr ? copy + (position - range.begin) : nullptr, sources_.data(),
            count(), form_.plain(piece) / size_, scale_);
      });
    });
  }

 private:
  template <class Out, class Source>
  void decode(Range range, Out& out, Source source, std::byte* copy) {
    out.walk(range, [&](std::byte* to, size_t piece, size_t position) {
      for (int k = 0; k < count(); ++k) sources_[static_cast<size_t>(k)] = source(k, position);
      std::byte* const second =
          copy != nullptr ? copy + form_.plain(position - range.begin) : nullptr;
      fn_(to, second, sources_.data(), count(), piece / size_, scale_);
    });
  }

  ReduceFn fn_of(const Op& op) const {
    if (!form_.encodes()) return reduce_fn(op.dtype, op.reduce);
    return decodes_ ? decode_fn(*form_.codec(), op.reduce) : recode_fn(*form_.codec(), op.reduce);
  }
  int count() const { return static_cast<int>(sources_.size()); }

  Form form_;
  bool decodes_;
  ReduceFn fn_;
  size_t size_;
  Scale scale_;
  std::vector<const void*> sources_;
};

}  // namespace sirtaki
