#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "backends/immediate.h"
#include "base/frames.h"
#include "engine/control/host_aggregator.h"
#include "engine/control/relay.h"
#include "engine/engine.h"
#include "engine/requests/checks.h"
#include "engine/sequencer/sequencer.h"
#include "pairs/pairs.h"
#include "transport/memory/byte_ring.h"
#include "transport/network/tcp_channel.h"

// A coverage-guided search for bytes from peers that know the secret and lie: what the core makes
// of them is an error or an operation that stays inside its memory, never a crash or a hang.
//
//     make fuzz-cpp            (seconds: FUZZ_SECONDS=60)

/// Memory that a lie asks for is refused as a full machine would, and by no report of the
/// sanitizer.
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=256";
}

namespace sirtaki {
namespace {

using Data = FuzzedDataProvider;

constexpr size_t kMostBytes = 512;  ///< of one message
constexpr size_t kMostSteps = 24;

template <class Work>
void may_throw(Work work) {
  try {
    work();
  } catch (const std::exception&) {
  }
}

void require(bool condition) {
  if (!condition) __builtin_trap();
}

std::string some_bytes(Data& data) { return data.ConsumeRandomLengthString(kMostBytes); }

// ---- Messages that are nearly right ----

std::vector<int64_t> some_numbers(Data& data) {
  static constexpr int64_t kOften[] = {0, 1, 2, 3, 4, -1, 1 << 20, int64_t{1} << 48, INT64_MAX};
  std::vector<int64_t> numbers(data.ConsumeIntegralInRange<size_t>(0, 4));
  for (int64_t& number : numbers) number = data.PickValueInArray(kOften);
  return numbers;
}

Request some_request(Data& data) {
  static constexpr const char* kNames[] = {"x", "y", "", "join.0", "add_process_set", "\0021.x"};
  Request request;
  request.kind = static_cast<Kind>(data.ConsumeIntegralInRange(0, kKindCount - 1));
  request.dtype = static_cast<Dtype>(data.ConsumeIntegralInRange(0, 10));
  request.reduce = static_cast<ReduceOp>(data.ConsumeIntegralInRange(0, kReduceOpCount));
  request.codec = static_cast<CodecId>(data.ConsumeIntegralInRange(0, codec_count()));
  request.root = data.ConsumeIntegralInRange(-1, 4);
  request.set = data.ConsumeIntegralInRange(-1, 3);
  request.name = data.PickValueInArray(kNames);
  request.shapes.resize(data.ConsumeIntegralInRange<size_t>(0, 2));
  for (Shape& shape : request.shapes) shape = some_numbers(data);
  request.splits = some_numbers(data);
  return request;
}

std::string some_up(Data& data) {
  std::string message;
  Writer out(message);
  switch (data.ConsumeIntegralInRange(0, 5)) {
    case 0:
      return some_bytes(data);
    case 1:
      out.put(data.ConsumeBool() ? Up::kReady : Up::kCarry);
      out.put(data.ConsumeIntegralInRange<uint32_t>(0, 6));
      return message + some_bytes(data);
    case 2:
      out.put(Up::kFlushed);
      return message;
    default:
      out.put(Up::kRequest);
      some_request(data).encode(out);
      if (data.ConsumeIntegralInRange(0, 7) == 0) message[sizeof(Up)] = kKindCount;
      return message;
  }
}

void put_item(Data& data, Writer& out) {
  const bool full = data.ConsumeBool();
  out.put(full).put(data.ConsumeIntegralInRange<uint32_t>(0, 6));
  out.put(data.ConsumeIntegralInRange<uint64_t>(0, 3));
  if (full) {
    Response response;
    response.base = some_request(data);
    response.sizes = some_numbers(data);
    response.joined = data.ConsumeBool();
    response.carried = data.ConsumeIntegralInRange<uint32_t>(0, 32);
    out(response);
  }
  out(data.ConsumeBool() ? some_bytes(data) : std::string());
}

std::string some_down(Data& data) {
  std::string message;
  Writer out(message);
  switch (data.ConsumeIntegralInRange(0, 7)) {
    case 0:
      return some_bytes(data);
    case 1:
      out.put(Down::kError).put_string(data.ConsumeBool() ? "x" : "y");
      out.put(data.ConsumeIntegral<uint8_t>()).put_string("why");
      return message;
    case 2:
      out.put(Down::kFlush);
      return message;
    case 3:
      out.put(Down::kTune).put(data.ConsumeIntegral<int64_t>());
      return message;
    default: {
      const auto items = data.ConsumeIntegralInRange<uint32_t>(0, 3);
      out.put(Down::kBatch).put(items);
      for (uint32_t i = 0; i < items; ++i) put_item(data, out);
      return message;
    }
  }
}

// ---- What they are told to ----

void decode(Data& data) {
  const std::string bytes = data.ConsumeRemainingBytesAsString();
  may_throw([&] {
    Reader in(bytes);
    Response response;
    in(response);
    require(malformed(response.base).empty());
    const ProcessSets sets(2);
    (void)contradiction(response, &response.base, sets, 1);
    (void)contradiction(response, nullptr, sets, 0);
  });
}

void frames(Data& data) {
  std::string stream;
  may_throw([&] {
    while (data.remaining_bytes() > 0) {
      stream += some_bytes(data);
      take_frames(stream, [](std::string_view message) { require(message.size() < 1 << 20); });
    }
  });
}

void ring(Data& data) {
  constexpr uint32_t kBytes = 4 << 10;
  struct Memory {
    ByteRing::Positions positions;
    char bytes[kBytes];
  };
  const auto memory = std::make_unique<Memory>();
  auto& [head, tail, blocked] = memory->positions;
  ByteRing writer(memory->positions, kBytes, RingEnd::kWrites);
  ByteRing reader(memory->positions, kBytes, RingEnd::kReads);
  for (size_t step = 0; step < kMostSteps && data.remaining_bytes() > 0; ++step) {
    const auto position = data.ConsumeIntegral<uint32_t>();
    if (data.ConsumeBool()) (data.ConsumeBool() ? tail : head) = position;
    may_throw([&] {
      std::string out;
      reader.read(out);
      require(out.size() <= kBytes);
    });
    const std::string text(data.ConsumeIntegralInRange<size_t>(0, 2 * kBytes), 'x');
    may_throw([&] { require(writer.write(text) <= kBytes); });
  }
}

/// Four ranks, of which one of three hosts tells an aggregator what it hears.
void sequencer(Data& data) {
  constexpr int kRanks = 4;
  const HostMap hosts({0, 1, 2, 2});
  HostAggregator host(hosts, {2, 3});
  EngineOptions options;
  options.cache_capacity = 2;
  Sequencer sequencer(hosts, options, [&](const Recipients& to, std::string_view text) {
    for (const int rank : to.ranks) require(rank >= 0 && rank < kRanks);
    require(to.members.size() <= kRanks);
    host.receive_down(text);  // what the sequencer says can be read
  });
  may_throw([&] {
    for (size_t step = 0; step < kMostSteps && data.remaining_bytes() > 0; ++step) {
      const int rank = data.ConsumeIntegralInRange(0, kRanks - 1);
      const std::string message = some_up(data);
      const bool together = data.ConsumeBool();
      together ? sequencer.receive(Reporters{{}, {{2, 3}}}, message, 0)
               : sequencer.receive(rank, message, 0);
      if (data.ConsumeBool()) sequencer.dispatch(0);
      if (data.ConsumeBool()) sequencer.check_stalls(int64_t{1} << 40);
    }
  });
}

void aggregator(Data& data) {
  const HostMap hosts({0, 1, 2, 1, 3});
  HostAggregator host(hosts, {1, 3});  // two hosts: its own and one below
  may_throw([&] {
    for (int64_t step = 0; data.remaining_bytes() > 0; ++step) {
      switch (data.ConsumeIntegralInRange(0, 3)) {
        case 0:
          host.receive_down(some_down(data));
          break;
        case 1:
          host.receive_up(Reporters{{}, {{2, 3}}}, some_up(data), step);
          break;
        default:
          host.receive_up(data.ConsumeBool() ? 1 : 3, some_up(data), step);
      }
      for (const auto& report : host.take(step)) {
        require(!report.from.ranks.empty() || !report.from.hosts.empty());
      }
    }
  });
}

std::string some_hop(Data& data) {
  std::string message;
  Writer out(message);
  const auto hop = static_cast<Hop>(data.ConsumeIntegralInRange(0, 7));
  out.put(hop);
  if (hop == Hop::kLost) out.put(data.ConsumeIntegral<int32_t>());
  if (hop == Hop::kAsk || hop == Hop::kTell) out.put(data.ConsumeIntegral<uint32_t>());
  if (hop != Hop::kUp && hop != Hop::kDown) return message;
  std::vector<int32_t> ranks(data.ConsumeIntegralInRange<size_t>(0, 2));
  for (int32_t& rank : ranks) rank = data.ConsumeIntegralInRange(-1, 4);
  if (hop == Hop::kDown) out.put(data.ConsumeIntegralInRange(-1, 2));
  out.put_vector(ranks);
  std::vector<HostRange> ranges(data.ConsumeIntegralInRange<size_t>(0, 1));
  for (HostRange& range : ranges)
    range = {data.ConsumeIntegralInRange(-1, 3), data.ConsumeIntegralInRange(-1, 3)};
  if (hop == Hop::kUp) out.put_vector(ranges);
  return message + (hop == Hop::kUp ? some_up(data) : some_down(data));
}

/// The relay of rank 0, or of the leader of ranks 1 and 2; all others are played.
void relay(Data& data) {
  const HostMap hosts({0, 1, 1});
  const bool leads = data.ConsumeBool();
  const int rank = leads ? 1 : 0;
  const auto region = Region::anonymous(leads ? 2 : 1);
  int pair[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  const Fd peer(pair[1]);
  std::vector<HostLink> links;
  links.emplace_back(std::make_unique<TcpChannel>(1 - rank, Fd(pair[0])));
  links.back().begin(kFirstGeneration);
  FrameSealer sealer({});  // with the key that the link has
  const RankContext context(rank, hosts, region, LinkSet{.local = {}, .hosts = links}, {});
  Relay relay(context);
  for (size_t step = 0; step < kMostSteps && data.remaining_bytes() > 0; ++step) {
    std::string stream;
    const uint32_t generation = kFirstGeneration + data.ConsumeIntegralInRange<uint32_t>(0, 1);
    sealer.append(stream, some_hop(data), generation);
    if (data.ConsumeBool()) stream = some_bytes(data);
    if (leads && data.ConsumeBool()) {
      std::string frame;
      append_frame(frame, some_up(data));
      may_throw([&] { region->up(1, RingEnd::kWrites).write(frame); });
    }
    if (send(peer.get(), stream.data(), stream.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    relay.step(now_ns());
    require(region->lost_rank() < hosts.size());
    if (leads) continue;
    relay.receive_up([](const Reporters&, std::string_view text) { require(!text.empty()); });
  }
}

/// Touches both ends of all memory that an operation names.
class Toucher : public Backend {
 public:
  explicit Toucher(int members) : members_(members) {}

  const char* name() const override { return "toucher"; }
  WorkPtr start(const Op& op, const Streams& in, const Streams& out) override {
    return immediately([this, &op, &in, &out] { touch(op, in, out); });
  }
  int track_of(int32_t) const override { return 0; }
  WorkPtr add_set(int32_t set, const std::vector<int>& ranks) override {
    require(set > 0 && set < Region::kMaxSets && ranks.front() >= 0 && ranks.back() < members_);
    return immediately([] {});
  }
  WorkPtr remove_set(int32_t) override {
    return immediately([] {});
  }

 private:
  void touch(const Op& op, const Streams& in, const Streams& out) {
    require(op.root < members_ && op.reduce <= ReduceOp::kBitXor);
    for (const Segments& stream : in) {
      for (const Segment& piece : stream.list()) {
        if (piece.bytes > 0) seen_ += piece.data[0] == piece.data[piece.bytes - 1];
      }
    }
    for (const Segments& stream : out) {
      for (const Segment& piece : stream.list()) {
        if (piece.bytes > 0) piece.data[0] = piece.data[piece.bytes - 1] = std::byte{1};
      }
    }
  }

  int members_;
  int seen_ = 0;
};

/// Rank 1 of two has submitted one operation of several kinds, and rank 0 answers.
void engine(Data& data) {
  constexpr int64_t kLongNs = 20'000'000;
  const auto region = Region::anonymous(2);
  const auto make = [](Endpoint&, const HostMap&, const MakeNetwork&) {
    return std::make_unique<Toucher>(2);
  };
  EngineOptions options;
  options.log_level = LogLevel::kFatal;
  Engine engine(1, HostMap::single(2), region, {}, {}, options, make);
  std::vector<std::vector<float>> tensors;
  std::vector<std::shared_ptr<Handle>> handles;
  for (const char* name : {"x", "y", ""}) {
    Request request = some_request(data);
    request.name = name;
    request.set = 0;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (Shape& shape : request.shapes) {
      for (int64_t& extent : shape) extent &= 3;
      tensors.emplace_back(2 * static_cast<size_t>(elements(shape)) + 1);  // of any dtype
      in.push_back(tensors.back().data());
      out.push_back(tensors.back().data());
    }
    // As Python's: scatter reads a tensor for each member.
    if (request.kind == Kind::kScatter && !in.empty()) in.push_back(in[0]);
    may_throw([&] { handles.push_back(engine.submit({request, in, out})); });
  }
  std::string stream;
  for (size_t step = 0; step < 6; ++step) append_frame(stream, some_down(data));
  std::string end;
  Writer(end).put(Down::kShutdown).put(int32_t{0});
  append_frame(stream, end);
  may_throw([&] { region->down(1, RingEnd::kWrites).write(stream); });
  Doorbell(region, 0, SpinPolicy{}).ring(1, kControl);
  for (const auto& handle : handles) engine.wait(*handle, now_ns() + kLongNs);
  Doorbell(region, 0, SpinPolicy{}).abort(0);
  for (const auto& handle : handles) engine.wait(*handle);
}

// ---- Messages from one rank to another ----

Header some_header(Data& data) {
  static constexpr uint64_t kSizes[] = {
      0, 1, 64, 1000, 64 << 10, (64 << 10) + 1, 2 << 20, uint64_t{1} << 40, UINT64_MAX};
  Header header{};
  header.note = static_cast<Note>(data.ConsumeIntegralInRange<uint32_t>(0, 7));
  header.communicator = data.ConsumeIntegralInRange(-1, 1);
  header.tag = data.ConsumeIntegralInRange<int64_t>(-1, 2);
  header.bytes = data.PickValueInArray(kSizes);
  header.key = data.ConsumeIntegralInRange<uint64_t>(0, 4);
  header.address = data.ConsumeIntegral<uint64_t>();
  return header;
}

/// A transfer of rank 1, with memory of exactly its size.
Transfer some_transfer(Data& data, std::vector<std::vector<std::byte>>& memory) {
  static constexpr size_t kSizes[] = {0, 1, 1000, 64 << 10, (64 << 10) + 1, 3 << 20};
  Transfer transfer;
  transfer.sends = data.ConsumeBool();
  transfer.peer = data.ConsumeIntegralInRange(transfer.sends ? 0 : kAnySource, 1);
  transfer.communicator = data.ConsumeIntegralInRange(0, 1);
  transfer.tag = data.ConsumeIntegralInRange<int64_t>(0, 2);
  memory.emplace_back(data.PickValueInArray(kSizes));
  transfer.data = memory.back().data();
  transfer.bytes = memory.back().size();
  transfer.owner = std::make_shared<int>();
  return transfer;
}

/// Rank 1 of two sends and receives; what rank 0 says has headers of all kinds.
void pairs(Data& data) {
  const HostMap hosts = HostMap::single(2);
  const auto region = Region::anonymous(2);
  Endpoint endpoint(region, 1, 1, SpinPolicy{});
  const Doorbell doorbell(region, 0, SpinPolicy{});
  RingStream liar(*region, doorbell, 0, 1);
  std::vector<std::vector<std::byte>> memory;
  struct Counting final : Pairs::Listener {
    void end(const std::shared_ptr<void>&, const Message& message,
             const std::optional<Error>& error) override {
      --open;
      require(error || message.bytes <= 3 << 20);
    }
    void invite(int) override {}

    int open = 0;
  } transfers;
  Pairs pairs(endpoint, hosts, {}, false, transfers);
  may_throw([&] {
    for (size_t step = 0; step < kMostSteps && data.remaining_bytes() > 0; ++step) {
      if (data.ConsumeBool()) {
        ++transfers.open;
        pairs.add(some_transfer(data, memory));
      }
      const Header header = some_header(data);
      const std::string body =
          data.ConsumeBool() ? some_bytes(data) : std::string(header.bytes & 0xffff, 'x');
      const bool whole = data.ConsumeIntegralInRange(0, 7) > 0;
      liar.write(std::as_bytes(std::span(&header, whole ? 1 : 0)), std::as_bytes(std::span(body)));
      while (liar.read(nullptr, kMostBytes) > 0) liar.release();
      pairs.advance();
      if (data.ConsumeIntegralInRange(0, 15) == 0) pairs.forget(1);
    }
  });
  (void)pairs.pending_of(nullptr);
  pairs.drop(Error(ErrorCode::kPeerLost, "the search is over"));
  require(transfers.open == 0);
  pairs.stop();
}

constexpr void (*kTargets[])(Data&) = {decode,     frames, ring,   sequencer,
                                       aggregator, relay,  engine, pairs};

}  // namespace
}  // namespace sirtaki

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const auto target = data.ConsumeIntegralInRange<size_t>(0, std::size(sirtaki::kTargets) - 1);
  sirtaki::kTargets[target](data);
  return 0;
}
