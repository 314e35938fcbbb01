#include "collectives/heaps/meeting.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace sirtaki {
namespace {

// A table: how many streams, then of each how many segments, then of each its bytes and where it
// lies in the heap of its member.
constexpr size_t kWords = Region::kSmallBytes / sizeof(uint64_t);
constexpr uint64_t kDeclined = UINT64_MAX;  ///< in place of how many streams
constexpr uint64_t kNowhere = UINT64_MAX;

/// Reads a table that a peer wrote.
class Table {
 public:
  explicit Table(const std::byte* words) : words_(words) {}

  /// Behind the end: what no table has.
  uint64_t next() {
    if (at_ == kWords) return kDeclined;
    uint64_t word;
    std::memcpy(&word, words_ + at_++ * sizeof word, sizeof word);
    return word;
  }

 private:
  const std::byte* words_;
  size_t at_ = 0;
};

}  // namespace

Meeting::~Meeting() {
  if (!open_ || written_ < 0) return;
  for (const Segment& segment : seen(group_.rank(), static_cast<size_t>(written_)).list()) {
    if (segment.data != nullptr) group_.heaps()->abandon(segment.data, segment.bytes);
  }
}

Task Meeting::meet(std::vector<const Segments*> own, int written) {
  const int which = co_await group_.begin_small();
  std::byte* table = group_.small_slot(group_.rank(), which);
  show(own, table);
  read(group_.rank(), table);  // what the others see is what this member goes by, too
  written_ = written;
  open_ = !declined_;
  group_.publish();
  co_await group_.all_published(1);
  for (int m = 0; m < group_.size(); ++m) {
    if (m != group_.rank()) read(m, group_.small_slot(m, which));
  }
}

const Segments& Meeting::seen(int member, size_t stream) const {
  const auto& streams = seen_[static_cast<size_t>(member)];
  if (stream >= streams.size()) refuse(member);
  return streams[stream];
}

const Segments& Meeting::seen(int member, size_t stream, size_t bytes) const {
  const Segments& found = seen(member, stream);
  if (found.bytes() != bytes) refuse(member);
  return found;
}

Task Meeting::part(size_t bytes) {
  group_.publish();
  co_await group_.all_published(2);
  group_.heaps()->count(bytes);
  end(true);
}

void Meeting::leave() { end(false); }

void Meeting::end(bool shared) {
  open_ = false;
  group_.end();
  group_.meetings().met(kind_, bytes_, shared);
}

void Meeting::show(const std::vector<const Segments*>& own, std::byte* table) const {
  std::vector<uint64_t> words;
  if (!maps_all() || !list(own, words)) words = {kDeclined};
  std::memcpy(table, words.data(), words.size() * sizeof words[0]);
}

bool Meeting::maps_all() const {
  for (int m = 0; m < group_.size(); ++m) {
    if (group_.heaps()->base(group_.place(m)) == nullptr) return false;
  }
  return true;
}

/// False if there are too many segments. Those beside one another that lie nowhere count as one.
bool Meeting::list(const std::vector<const Segments*>& own, std::vector<uint64_t>& words) const {
  words.push_back(own.size());
  for (const Segments* stream : own) {
    const size_t count = words.size();
    words.push_back(0);
    for (const Segment& segment : stream->list()) {
      if (segment.bytes == 0) continue;
      const uint64_t at = group_.heaps()->offset_of(segment.data, segment.bytes).value_or(kNowhere);
      if (at == kNowhere && words[count] > 0 && words.back() == kNowhere) {
        words[words.size() - 2] += segment.bytes;
        continue;
      }
      words.insert(words.end(), {segment.bytes, at});
      ++words[count];
    }
    if (words.size() > kWords) return false;
  }
  return true;
}

void Meeting::read(int member, const std::byte* words) {
  const int place = group_.place(member);
  const uint64_t room = group_.heaps()->bytes(place);
  Table table(words);
  const uint64_t streams = table.next();
  declined_ |= streams == kDeclined;
  if (declined_) return;
  if (streams > kWords) refuse(member);
  auto& seen = seen_[static_cast<size_t>(member)];
  seen.resize(streams);
  for (Segments& stream : seen) {
    const uint64_t segments = table.next();
    if (segments > kWords) refuse(member);
    for (uint64_t s = 0; s < segments; ++s) {
      const uint64_t bytes = table.next();
      const uint64_t at = table.next();
      const bool nowhere = at == kNowhere;
      if (!nowhere && (bytes > room || at > room - bytes)) refuse(member);
      stream.add(nowhere ? nullptr : group_.heaps()->base(place) + at, bytes);
    }
  }
}

/// What it shows is not what any member shows of this operation.
void Meeting::refuse(int member) const {
  // No other member has to find it: the world ends.
  throw Error(ErrorCode::kPeerLost,
              "rank " + std::to_string(group_.world_ranks()[static_cast<size_t>(member)]) +
                  " says what cannot be of where its tensors lie: do all ranks run the same "
                  "version?");
}

}  // namespace sirtaki
