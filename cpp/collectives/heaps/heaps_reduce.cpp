#include <cstring>

#include "collectives/heaps/share.h"

namespace sirtaki {
namespace {

/// Reduces a piece of the members' streams into the streams that follow those.
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

/// The streams that all members show for an allreduce or reduce: first the inputs, in members'
/// order, then the outputs, beginning with this member's.
std::vector<const Segments*> shown(const Group& group, const Op& op, const Handshake& handshake) {
  std::vector<const Segments*> streams;
  for (int m = 0; m < group.size(); ++m) streams.push_back(&handshake.seen(m, 0, op.longest));
  for (int i = 0; i < group.size(); ++i) {
    const int m = (group.rank() + i) % group.size();
    if (traits_of(op.kind).rooted && m != op.root) continue;
    streams.push_back(&handshake.seen(m, 1, op.longest));
  }
  return streams;
}

/// The streams that the others give to member `to`.
std::vector<const Segments*> given(const Group& group, const Handshake& handshake, int to,
                                   size_t bytes) {
  std::vector<const Segments*> streams;
  for (int m = 0; m < group.size(); ++m) {
    if (m != to) streams.push_back(&handshake.seen(m, static_cast<size_t>(to), bytes));
  }
  return streams;
}

}  // namespace

// Each member reduces a slice of the shared part and writes it to every output: no other member
// reads or writes that slice, so results may overwrite their inputs.
Task heaps_reduce(Group& group, const Op& op, const Streams& in, const Streams& out, Rest& rest) {
  const bool writes = !traits_of(op.kind).rooted || group.rank() == op.root;
  const auto plan = [&](const Handshake& handshake) {
    std::vector<const Segments*> streams = shown(group, op, handshake);
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

// Each member reduces its own part from where the others keep it.
Task heaps_reducescatter(Group& group, const Op& op, const Streams& in, const Streams& out,
                         Rest& rest) {
  const int own = group.rank();
  const auto plan = [&](const Handshake& handshake) {
    Share share;
    rest.op.longest = 0;
    for (int m = 0; m < group.size(); ++m) {
      const auto member = static_cast<size_t>(m);
      std::vector<const Segments*> streams = given(group, handshake, m, in[member].bytes());
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
