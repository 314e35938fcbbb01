#include "base/bytes.h"

#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "engine/requests/request.h"

namespace sirtaki {
namespace {

Request full_request() {
  Request request;
  request.kind = Kind::kAllgather;
  request.dtype = Dtype::kBF16;
  request.reduce = ReduceOp::kMax;
  request.device = 1;
  request.scale = {0.5, -2.0};
  request.root = 3;
  request.set = 9;
  request.name = std::string("grad/\0weight", 12);
  request.shapes = {{}, {0}, {5, 7, 11}};
  request.splits = {1, 0, int64_t{1} << 40};
  return request;
}

TEST_CASE("a reader gives back what a writer put") {
  std::string message;
  Writer(message)
      .put(uint8_t{7})
      .put(-1.5)
      .put_string("name")
      .put_string("")
      .put_vector(std::vector<int64_t>{1, -2, 3})
      .put_vector(std::vector<int64_t>{});
  Reader in(message);
  CHECK(in.get<uint8_t>() == 7);
  CHECK(in.get<double>() == -1.5);
  CHECK(in.get_string() == "name");
  CHECK(in.get_string().empty());
  CHECK(in.get_vector<int64_t>() == std::vector<int64_t>{1, -2, 3});
  CHECK(in.get_vector<int64_t>().empty());
  CHECK(in.empty());
}

TEST_CASE("a request comes out of its message as it went in") {
  const Request request = full_request();
  std::string message;
  Writer out(message);
  request.encode(out);
  Reader in(message);
  const Request decoded = Request::decode(in);
  CHECK(in.empty());
  CHECK(decoded.name == request.name);
  CHECK(decoded.shapes == request.shapes);
  CHECK(decoded.splits == request.splits);
  CHECK(decoded.device == 1);
  std::string again;
  Writer writer(again);
  decoded.encode(writer);
  CHECK(again == message);
}

TEST_CASE("every truncation of a message is refused") {
  Response response;
  response.base = full_request();
  response.sizes = {1, 2, 3};
  std::string message;
  Writer out(message);
  out(response);
  for (size_t length = 0; length < message.size(); ++length) {
    // A copy of its own, so that an address sanitizer sees a read past the end.
    const std::vector<char> part(message.begin(), message.begin() + static_cast<long>(length));
    Reader in(std::string_view(part.data(), part.size()));
    Response read;
    CHECK_THROWS_AS(in(read), Error);
  }
}

TEST_CASE("a length that the message does not have is refused before memory is taken for it") {
  std::string message;
  Writer(message).put(uint32_t{0xffffffff}).put(uint64_t{1});
  Reader as_string(message);
  CHECK_THROWS_AS(as_string.get_string(), Error);
  Reader as_vector(message);
  CHECK_THROWS_AS(as_vector.get_vector<int64_t>(), Error);
}

}  // namespace
}  // namespace sirtaki
