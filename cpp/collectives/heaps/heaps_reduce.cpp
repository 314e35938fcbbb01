#include <cstring>

#include "collectives/heaps/share.h"
#include "collectives/ways.h"

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
std::vector<const Segments*> shown(const Group& group, const Op& op, const Meeting& meeting) {
  std::vector<const Segments*> streams;
  for (int m = 0; m < group.size(); ++m) streams.push_back(&meeting.seen(m, 0, op.longest));
  for (int i = 0; i < group.size(); ++i) {
    const int m = (group.rank() + i) % group.size();
    if (op.kind == Kind::kReduce && m != op.root) continue;
    streams.push_back(&meeting.seen(m, 1, op.longest));
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
Task heaps_reduce(Group& group, const Op& op, const Streams& in, const Streams& out, Rest& rest) {
  const bool writes = op.kind == Kind::kAllreduce || group.rank() == op.root;
  const auto plan = [&](const Meeting& meeting) {
    std::vector<const Segments*> streams = shown(group, op, meeting);
    const Split split(streams);
    rest.op.longest = split.rest.bytes();
    rest.in[0] = split.rest.of(in[0]);
    if (writes) rest.out[0] = split.rest.of(out[0]);
    Share share;
    share.divide(group, split.shared, std::move(streams));
    return share;
  };
  std::vector<const Segments*> shows{&in[0]};
  if (writes) shows.push_back(&out[0]);
  co_await share(group, op, std::move(shows), writes ? 1 : -1, plan, Reduce(op, group.size()));
}

// Each member reduces what is its own from where the others have it.
Task heaps_reducescatter(Group& group, const Op& op, const Streams& in, const Streams& out,
                         Rest& rest) {
  const int own = group.rank();
  const auto plan = [&](const Meeting& meeting) {
    Share share;
    rest.op.longest = 0;
    for (int m = 0; m < group.size(); ++m) {
      const auto member = static_cast<size_t>(m);
      std::vector<const Segments*> streams = given(group, meeting, m, in[member].bytes());
      const Split split(streams);
      share.bytes += split.shared.bytes();
      rest.in[member] = split.rest.of(in[member]);
      rest.op.longest = std::max(rest.op.longest, split.rest.bytes());
      if (m != own) continue;
      rest.out[0] = split.rest.of(out[0]);
      streams.insert(streams.begin() + own, &in[member]);
      streams.push_back(&out[0]);
      share.jobs.push_back({split.shared, std::move(streams)});
    }
    return share;
  };
  co_await share(group, op, for_others(group, in), -1, plan, Reduce(op, group.size()));
}

}  // namespace sirtaki
