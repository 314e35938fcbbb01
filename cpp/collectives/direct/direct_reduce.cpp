#include <cstring>

#include "collectives/direct/direct.h"
#include "collectives/direct/lockstep.h"
#include "collectives/direct/meeting.h"
#include "collectives/direct/piece_walker.h"

namespace sirtaki {
namespace {

/// Reduces a piece of the members' streams; the streams behind those get the result.
class Reduce {
 public:
  Reduce(const Op& op, int sources)
      : fn_(reduce_fn(op.dtype, op.reduce)),
        size_(size_of(op.dtype)),
        scale_(op.scale),
        sources_(static_cast<size_t>(sources)) {}

  void operator()(const std::vector<std::byte*>& at, size_t bytes, size_t) {
    const size_t n = sources_.size();
    std::copy_n(at.begin(), n, sources_.begin());
    std::byte* copy = n + 1 < at.size() ? at[n + 1] : nullptr;
    fn_(at[n], copy, sources_.data(), static_cast<int>(n), bytes / size_, scale_);
    for (size_t target = n + 2; target < at.size(); ++target) {
      std::memcpy(at[target], at[n], bytes);
    }
  }

 private:
  ReduceFn fn_;
  size_t size_;
  Scale scale_;
  std::vector<const void*> sources_;
};

/// What all members show of an allreduce or reduce: first what is reduced, in their order, then
/// where the result goes, beginning with the own.
std::vector<const Segments*> shown(const Group& group, const Op& op, const Meeting& meeting,
                                   size_t bytes) {
  std::vector<const Segments*> streams;
  for (int m = 0; m < group.size(); ++m) streams.push_back(&meeting.seen(m, 0, bytes));
  for (int i = 0; i < group.size(); ++i) {
    const int m = (group.rank() + i) % group.size();
    if (op.kind == Kind::kReduce && m != op.root) continue;
    streams.push_back(&meeting.seen(m, 1, bytes));
  }
  return streams;
}

/// What the others give to member `to`.
std::vector<const Segments*> given(const Group& group, const Meeting& meeting, int to,
                                   size_t bytes) {
  std::vector<const Segments*> streams;
  for (int m = 0; m < group.size(); ++m) {
    if (m != to) streams.push_back(&meeting.seen(m, static_cast<size_t>(to), bytes));
  }
  return streams;
}

}  // namespace

// Each member reduces a slice of what is shared and writes it wherever it goes: nobody else reads
// or writes that slice anywhere, so results may replace what they are made of.
Task direct_reduce(Group& group, const Op& op, const Segments& in, const Segments* out) {
  Meeting meeting(group, op, in.bytes());
  std::vector<const Segments*> own{&in};
  if (out != nullptr) own.push_back(out);
  co_await meeting.meet(std::move(own), out != nullptr ? 1 : -1);
  if (meeting.declined()) {
    meeting.leave();
    co_await slots_reduce(group, op, in, out);
    co_return;
  }
  std::vector<const Segments*> streams = shown(group, op, meeting, in.bytes());
  const Split split(streams);
  if (split.shared.empty()) {
    meeting.leave();
  } else {
    const size_t bytes = split.shared.bytes();
    const Range slice = slice_of(bytes, group.size(), group.rank(), kPage);
    PieceWalker pieces(group);
    co_await pieces.walk(split.shared.part(slice), std::move(streams), Reduce(op, group.size()));
    co_await meeting.part(bytes);
  }
  if (split.rest.empty()) co_return;
  const Segments rest_in = split.rest.of(in);
  const Segments rest_out = out != nullptr ? split.rest.of(*out) : Segments();
  co_await slots_reduce(group, op, rest_in, out != nullptr ? &rest_out : nullptr);
}

// Each member reduces what is its own from where the others have it.
Task direct_reducescatter(Group& group, const Op& op, const Streams& in, const Segments& out) {
  const auto own = static_cast<size_t>(group.rank());
  const Segments nothing;
  Meeting meeting(group, op, op.longest * in.size());
  std::vector<const Segments*> shows;
  for (size_t m = 0; m < in.size(); ++m) shows.push_back(m == own ? &nothing : &in[m]);
  co_await meeting.meet(std::move(shows), -1);
  if (meeting.declined()) {
    meeting.leave();
    co_await slots_reducescatter(group, op, in, out);
    co_return;
  }
  std::vector<Split> splits;
  size_t shared = 0;
  for (int m = 0; m < group.size(); ++m) {
    splits.emplace_back(given(group, meeting, m, in[static_cast<size_t>(m)].bytes()));
    shared += splits.back().shared.bytes();
  }
  if (shared == 0) {
    meeting.leave();
  } else {
    std::vector<const Segments*> streams = given(group, meeting, group.rank(), in[own].bytes());
    streams.insert(streams.begin() + group.rank(), &in[own]);
    streams.push_back(&out);
    PieceWalker pieces(group);
    co_await pieces.walk(splits[own].shared, std::move(streams), Reduce(op, group.size()));
    co_await meeting.part(shared);
  }
  Streams rest_in;
  Op rest_op = op;
  rest_op.longest = 0;
  for (size_t m = 0; m < in.size(); ++m) {
    rest_in.push_back(splits[m].rest.of(in[m]));
    rest_op.longest = std::max(rest_op.longest, rest_in[m].bytes());
  }
  if (rest_op.longest == 0) co_return;
  const Segments rest_out = splits[own].rest.of(out);
  co_await slots_reducescatter(group, rest_op, rest_in, rest_out);
}

}  // namespace sirtaki
