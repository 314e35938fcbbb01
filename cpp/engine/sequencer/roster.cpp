#include "engine/sequencer/roster.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace sirtaki {
namespace {

/// Calls `visit(word, bits)` for each word of a bitmap that the stretch touches; true if one did.
template <class Visit>
bool any_word(Stretch who, Visit visit) {
  const auto end = static_cast<size_t>(who.end);
  for (auto at = static_cast<size_t>(who.begin); at < end;) {
    const size_t next = std::min(end, (at / 64 + 1) * 64);
    const uint64_t bits = (~uint64_t{0} >> (64 - (next - at))) << (at % 64);
    if (visit(at / 64, bits)) return true;
    at = next;
  }
  return false;
}

}  // namespace

Roster::Roster(const HostMap& hosts, const std::vector<int>& members) : hosts_(hosts) {
  const auto host_count = static_cast<size_t>(hosts.hosts());
  begins_.resize(host_count + 1);
  for (const int rank : members) ++begins_[static_cast<size_t>(hosts.host_of(rank)) + 1];
  for (size_t host = 0; host < host_count; ++host) begins_[host + 1] += begins_[host];
  ranks_.resize(members.size());
  std::vector<int> next(begins_.begin(), begins_.end() - 1);
  for (const int rank : members) {
    int& place = next[static_cast<size_t>(hosts.host_of(rank))];
    ranks_[static_cast<size_t>(place++)] = rank;
  }
}

Stretch Roster::of_rank(int rank) const {
  const auto host = static_cast<size_t>(hosts_.host_of(rank));
  const auto first = ranks_.begin() + begins_[host];
  const auto last = ranks_.begin() + begins_[host + 1];
  const auto at = std::lower_bound(first, last, rank);
  if (at == last || *at != rank) return {};
  const int place = static_cast<int>(at - ranks_.begin());
  return {place, place + 1};
}

Stretch Roster::of_hosts(HostRange hosts) const {
  if (hosts.begin < 0 || hosts.begin > hosts.end || hosts.end > hosts_.hosts()) {
    throw Error(ErrorCode::kInternal, "there are no hosts " + std::to_string(hosts.begin) + " to " +
                                          std::to_string(hosts.end));
  }
  return {begins_[static_cast<size_t>(hosts.begin)], begins_[static_cast<size_t>(hosts.end)]};
}

std::vector<int> Roster::on_hosts() const {
  std::vector<int> counts;
  for (size_t host = 1; host < begins_.size(); ++host) {
    const int members = begins_[host] - begins_[host - 1];
    if (members > 0) counts.push_back(members);
  }
  return counts;
}

std::optional<uint64_t> Roster::next_ordinal(Stretch who) {
  ordinals_.resize(ranks_.size());
  const auto first = ordinals_.begin() + who.begin;
  const auto last = ordinals_.begin() + who.end;
  const uint64_t ordinal = *first;
  if (std::any_of(first, last, [&](uint64_t other) { return other != ordinal; })) return {};
  std::fill(first, last, ordinal + 1);
  return ordinal;
}

uint64_t Roster::align_ordinals(uint64_t least) {
  for (const uint64_t ordinal : ordinals_) least = std::max(least, ordinal);
  ordinals_.assign(ranks_.size(), least);
  return least;
}

bool Marks::contains_any(Stretch who) const {
  return any_word(who, [&](size_t word, uint64_t bits) { return (words_[word] & bits) != 0; });
}

void Marks::add(Stretch who) {
  any_word(who, [&](size_t word, uint64_t bits) {
    words_[word] |= bits;
    return false;
  });
  count_ += who.size();
}

}  // namespace sirtaki
