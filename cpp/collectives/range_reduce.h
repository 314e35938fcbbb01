#pragma once

#include <array>
#include <bit>
#include <vector>

#include "collectives/cursor.h"

namespace sirtaki {

/// Reduces a range of several sources. With a codec, all of them are encoded.
class RangeReduce {
 public:
  /// `decodes`: results are not encoded.
  RangeReduce(const Op& op, const Scale& scale, int sources, bool decodes = false)
      : form_(op),
        decodes_(decodes && form_.encodes()),
        fn_(fn_of(op)),
        shift_(std::countr_zero(size_of(op.dtype))),
        scale_(scale),
        count_(sources),
        many_(sources > kFew ? static_cast<size_t>(sources) : 0) {}

  /// Walks `out`; `source(k, position)` points to that position of the stream in source k. `copy`,
  /// if not null, receives the same results, from its first byte on.
  template <class Out, class Source>
  void run(Range range, Out& out, Source source, std::byte* copy = nullptr) {
    const void** const sources = many_.empty() ? few_.data() : many_.data();
    out.walk(range, [&](std::byte* to, size_t piece, size_t position) {
      for (int k = 0; k < count_; ++k) sources[k] = source(k, position);
      const size_t before = position - range.begin;
      std::byte* const second =
          copy == nullptr ? nullptr : copy + (decodes_ ? form_.plain(before) : before);
      const size_t bytes = decodes_ ? piece : form_.plain(piece);
      fn_(to, second, sources, count_, bytes >> shift_, scale_);
    });
  }

  /// The same if source number `index` is this member's own and lies in pieces, which are walked
  /// too; but if results are decoded, it lies like the others.
  template <class Own, class Out, class Source>
  void run(Range range, Own& own, int index, Out& out, Source source, std::byte* copy = nullptr) {
    if (decodes_) return run(range, out, source, copy);
    own.walk(range, [&](const std::byte* mine, size_t bytes, size_t at) {
      const auto any = [&](int k, size_t position) {
        return k == index ? mine + (position - at) : source(k, position);
      };
      run({at, at + bytes}, out, any, copy == nullptr ? nullptr : copy + (at - range.begin));
    });
  }

 private:
  static constexpr int kFew = 8;

  ReduceFn fn_of(const Op& op) const {
    if (!form_.encodes()) return reduce_fn(op.dtype, op.reduce);
    return decodes_ ? decode_fn(*form_.codec(), op.reduce) : recode_fn(*form_.codec(), op.reduce);
  }

  Form form_;
  bool decodes_;
  ReduceFn fn_;
  int shift_;  ///< log2 of the size of a number
  Scale scale_;
  int count_;
  std::array<const void*, kFew> few_;  ///< sources that need no allocation
  std::vector<const void*> many_;      ///< the sources if there are more
};

}  // namespace sirtaki
